"""The cache of compiled models: what names a library, who may write to it, and what happens where nobody can."""
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import warnings
from unittest import mock

import attnc
import models
import numpy as np
import onnx


class Caches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.kept = self.folder / "cache"
        for name, value in (("ATTNC_CACHE", str(self.kept)), ("ATTNC_CACHE_SIZE", "")):
            before = os.environ.get(name, "")
            os.environ[name] = value
            self.addCleanup(os.environ.__setitem__, name, before)

    def libraries(self):
        return sorted(path.name for path in self.kept.glob("*.so"))

    def load(self, factor=2.0, **options):
        """With whether it was compiled."""
        path, seen = self.folder / "model.onnx", []
        onnx.save(models.scaled(factor), path)
        model = attnc.load(path, on_progress=lambda stage, seconds: seen.append(stage), **options)
        ones = np.ones((1, 4), np.float32)
        np.testing.assert_array_equal(model(ones, ones), (factor + 1) * ones)
        return model, bool(seen)

    def test_what_names_a_library(self):
        self.assertTrue(self.load()[1])
        self.assertFalse(self.load()[1])
        self.assertFalse(self.load(threads=2, sessions=3)[1])
        self.assertTrue(self.load(dims={"n": (1, 9)})[1])
        self.assertTrue(self.load(cpu="x86-64-v3")[1])
        # Another model under the same name.
        self.assertTrue(self.load(3.0)[1])
        self.assertFalse(self.load()[1])
        self.assertEqual(len(self.libraries()), 4)
        model, _ = self.load()
        self.assertEqual(attnc.Cache().find(pathlib.Path(model.path).stem), (pathlib.Path(model.path), []))
        self.assertIsNone(attnc.Cache().find("0" * 40))
        self.assertTrue(self.load(cache=False)[1])
        self.assertEqual(len(self.libraries()), 4)

    def test_a_model_in_memory_has_a_name(self):
        for _ in range(2):
            model = attnc.load(models.scaled())
            for each in (model, pickle.loads(pickle.dumps(model))):
                self.assertRegex(repr(each), "^<attnc model model.onnx: ")
        self.assertRegex(repr(attnc.load(models.scaled(), cache=False)), "^<attnc model model.onnx: ")

    def test_another_compiler_or_processor(self):
        from attnc import _binary, _cache

        plain = _cache.key_of("digest", [])
        portable = _cache.key_of("digest", ["--mcpu=x86-64-v3"])
        for name, value in (("compiler_id", lambda: "other"), ("_processor", lambda: "other")):
            before = getattr(_cache, name)
            setattr(_cache, name, value)
            try:
                self.assertNotEqual(_cache.key_of("digest", []), plain)
                if name == "_processor":
                    self.assertEqual(_cache.key_of("digest", ["--mcpu=x86-64-v3"]), portable)
            finally:
                setattr(_cache, name, before)
        with open(_binary.program("attnc"), "rb") as file:
            self.assertNotEqual(_binary.compiler_id(), "")
            self.assertEqual(file.read(4), b"\x7fELF")

    def test_data_beside_the_model(self):
        ones = np.ones(1024, np.float32)
        for factor in (2.0, 5.0, 2.0):
            models.external(self.folder / "model.onnx", factor)
            np.testing.assert_array_equal(attnc.load(self.folder / "model.onnx")(ones), factor * ones)
        self.assertEqual(len(self.libraries()), 2)
        # The model itself is the same file each time; what it names is not.
        shutil.copy(self.folder / "w.bin", self.folder / "keep.bin")
        (self.folder / "w.bin").write_bytes(np.full(1024, 7, np.float32).tobytes())
        np.testing.assert_array_equal(attnc.load(self.folder / "model.onnx")(ones), 7 * ones)
        (self.folder / "w.bin").unlink()
        with self.assertRaisesRegex(attnc.InvalidArgument, "w.bin"):
            attnc.load(self.folder / "model.onnx")

    def test_a_model_that_changes_while_it_is_loaded(self):
        first, _ = self.load()
        ones = np.ones((1, 4), np.float32)
        attnc.Cache().remove(pathlib.Path(first.path))
        np.testing.assert_array_equal(first(ones, ones), 3 * ones)
        # What is written into is found, and made anew by the next.
        models.external(self.folder / "model.onnx", 2.0)
        ones = np.ones(1024, np.float32)
        second = attnc.load(self.folder / "model.onnx")
        np.testing.assert_array_equal(second(ones), 2 * ones)
        with open(second.path, "r+b") as file:
            file.seek(-2000, os.SEEK_END)
            file.write(b"damage")
        with self.assertRaisesRegex(attnc.CorruptFile, "modified|digest"):
            second(ones)
        np.testing.assert_array_equal(attnc.load(self.folder / "model.onnx")(ones), 2 * ones)

    def test_damage(self):
        model, _ = self.load()
        path = model.path
        del model
        pathlib.Path(path).write_bytes(pathlib.Path(path).read_bytes()[:-9])
        self.assertTrue(self.load()[1])
        self.assertFalse(self.load()[1])

    def test_verify(self):
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "home")  # where libattnrt notes what it verified
        self.addCleanup(os.environ.pop, "XDG_CACHE_HOME")
        models.external(self.folder / "model.onnx", 2.0)
        path, ones = self.folder / "model.so", np.ones(1024, np.float32)
        attnc.compile(self.folder / "model.onnx", path)
        for verify in ("once", "once", "never", "always"):
            model = attnc.load(path, verify=verify)
            np.testing.assert_array_equal(model(ones), 2 * ones)
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(ones), 2 * ones)
        # In the weight's place: what is computed stays right but for it.
        whole = path.read_bytes()
        at = whole.index(np.full(64, 2, np.float32).tobytes())
        path.write_bytes(whole[:at] + np.float32(5).tobytes() + whole[at + 4 :])
        for verify in ("once", "always"):
            with self.assertRaises(attnc.CorruptFile):
                attnc.load(path, verify=verify)
        self.assertEqual(attnc.load(path, verify="never").path, str(path))
        with self.assertRaisesRegex(attnc.InvalidArgument, "verify expects 'always', 'once', 'never', not 'sometimes'"):
            attnc.load(path, verify="sometimes")

    def test_two_processes(self):
        program = textwrap.dedent("""
            import attnc, models, sys
            seen = []
            attnc.load(models.BERT, on_progress=lambda stage, seconds: seen.append(stage))
            print(bool(seen))
            """)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        children = [subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
                    for _ in range(3)]
        said = sorted(child.communicate()[0] for child in children)
        self.assertEqual([child.returncode for child in children], [0, 0, 0])
        self.assertEqual(said, ["False\n", "False\n", "True\n"])
        self.assertEqual(len(self.libraries()), 1)

    def unusable(self, reason):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, compiled = self.load()
        self.assertTrue(compiled)
        (warning,) = [w for w in caught if w.category is attnc.CacheWarning]
        self.assertRegex(str(warning.message), "compiled for this process alone: .*" + reason + ".*ATTNC_CACHE names")
        self.assertEqual(warning.filename, __file__)

    def test_a_cache_that_is_a_file(self):
        self.kept.write_text("")
        self.unusable("File exists|Not a directory")

    def test_a_cache_that_cannot_be_written(self):
        if os.getuid() == 0:  # whom permissions do not stop
            os.environ["ATTNC_CACHE"] = "/proc/attnc"
            self.unusable("No such file|Permission|not permitted")
        else:
            self.kept.mkdir(mode=0o500)
            self.unusable("Permission")

    def test_a_folder_in_the_place_of_a_library(self):
        self.load()
        [name] = self.libraries()
        (self.kept / name).unlink()
        (self.kept / name).mkdir()
        self.unusable(f"{name}: is a folder")
        self.assertEqual(attnc.Cache().list(), [])

    def test_a_full_disk(self):
        # A limit on the size of files ends a write as a full disk does; the scratch folder is as full.
        child = textwrap.dedent(f"""
            import attnc, models, resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            try:
                attnc.load({str(self.folder / 'model.onnx')!r})
            except attnc.FileError as error:
                print("FileError", "cannot write" in str(error))
            """)
        onnx.save(models.scaled(), self.folder / "model.onnx")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", child], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(done.stdout, "FileError True\n", done.stderr)
        self.assertEqual(self.libraries(), [])
        self.assertTrue(self.load()[1])

    def test_the_least_recently_used_go(self):
        sizes = {}
        for factor in (2.0, 3.0, 4.0):
            model, _ = self.load(factor)
            sizes[factor] = os.path.getsize(model.path)
            time.sleep(0.02)
        self.load(2.0)  # used now: 3.0 is the oldest
        os.environ["ATTNC_CACHE_SIZE"] = str(sum(sizes.values()) - 1)
        attnc.Cache().shrink(sum(sizes.values()) - 1)
        self.assertEqual(len(self.libraries()), 2)
        self.assertFalse(self.load(2.0)[1])
        self.assertFalse(self.load(4.0)[1])
        self.assertTrue(self.load(3.0)[1])
        os.environ["ATTNC_CACHE_SIZE"] = "1K"  # less than one: the newest stays
        self.load(9.0)
        self.assertEqual(len(self.libraries()), 1)
        os.environ["ATTNC_CACHE_SIZE"] = "many"
        with self.assertRaisesRegex(attnc.InvalidArgument, "ATTNC_CACHE_SIZE expects bytes, as 512M or 10G, not 'many'"):
            self.load(8.0)

    def test_command(self):
        def attnc_cache(*arguments):
            return subprocess.run([sys.executable, "-m", "attnc", "cache", *arguments], capture_output=True, text=True)

        self.assertRegex(attnc_cache().stdout, f"^0 in {self.kept}")
        self.load(dims={"n": 1})
        shown = attnc_cache("list").stdout
        self.assertRegex(shown, f"MB .* {self.folder}/model.onnx --dim=n:1\n1 in ")
        # Two models of one name, and two of none.
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "model.onnx").write_bytes(models.scaled(9.0).SerializeToString())
        attnc.load(elsewhere / "model.onnx", dims={"n": 1})
        attnc.load(models.scaled(8.0), dims={"n": 1})
        shown = attnc_cache().stdout
        self.assertRegex(shown, f" {elsewhere}/model.onnx --dim=n:1\n")
        self.assertRegex(shown, " <onnx.ModelProto '.*'> --dim=n:1\n")
        self.assertRegex(attnc_cache("clear", "--unused-days=1").stdout, "^0 removed")
        self.assertRegex(attnc_cache("clear").stdout, "^3 removed")
        self.assertEqual(self.libraries(), [])
        self.assertEqual(attnc_cache("nonsense").returncode, 2)
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as nobody:  # as "| head" once it has its lines
            done = subprocess.run([sys.executable, "-m", "attnc", "cache"], stdout=nobody, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (128 + signal.SIGPIPE, ""))
        for days in ("-5", "nan"):
            self.assertIn(f"expects days, 0 or more, not {days}", attnc_cache("clear", f"--unused-days={days}").stderr)
        with mock.patch.dict(os.environ, ATTNC_CACHE_SIZE="zz"):
            done = attnc_cache()
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (2, False))
        self.assertIn("ATTNC_CACHE_SIZE expects bytes", done.stderr)


if __name__ == "__main__":
    unittest.main()
