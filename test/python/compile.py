"""Compiles from Python: every kind of source, options, progress, errors, and what Ctrl-C and a deadline leave behind."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import warnings
from unittest import mock

import attnc
import models
import numpy as np
import onnx


class Compile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, message, kind, *arguments, **options):
        with self.assertRaisesRegex(kind, message) as caught:
            attnc.compile(*arguments, **options)
        return caught.exception

    def test_result_and_progress(self):
        seen = []
        out = self.folder / "model.so"
        done = attnc.compile(models.BERT, out, on_progress=lambda stage, seconds: seen.append((stage, seconds)))
        self.assertEqual((done.path, done.bytes, done.fused, done.softmaxes), (str(out), out.stat().st_size, 2, 2))
        self.assertIsInstance(done, attnc.Compiled)
        self.assertEqual(done.details["bytes"], done.bytes)
        stages = [stage for stage, _ in seen]
        self.assertEqual((stages[0], stages[-1]), ("importing", ""))
        self.assertIn("code generation", stages)
        self.assertEqual([s for _, s in seen], sorted(s for _, s in seen))
        self.assertEqual(attnc.load(out).fusion.fused, 2)
        self.assertEqual(os.listdir(self.folder), ["model.so"])

    def test_a_listener_that_raises(self):
        def listen(stage, seconds):
            if stage == "code generation":
                raise KeyError(stage)

        with self.assertRaises(KeyError):
            attnc.compile(models.BERT, self.folder / "model.so", on_progress=listen)
        self.assertEqual(os.listdir(self.folder), [])

    def test_sources(self):
        a, b = np.ones((1, 4), np.float32), np.full((1, 4), 3, np.float32)
        proto = models.scaled()
        onnx.save(proto, self.folder / "model.onnx")
        for source in (proto, self.folder / "model.onnx", str(self.folder / "model.onnx")):
            np.testing.assert_array_equal(attnc.load(source, cache=False)(a, b), 5 * a)
        onnx.save(models.scaled(4.0), self.folder / "other=x.onnx")
        both = attnc.load({"twice": self.folder / "model.onnx", "four": self.folder / "other=x.onnx"})
        self.assertEqual(list(both.entries), ["twice", "four"])
        np.testing.assert_array_equal(both.entries["four"](a, b), 7 * a)
        np.testing.assert_array_equal(attnc.load(self.folder / "other=x.onnx")(a, b), 7 * a)
        graph = self.folder / "graph.json"
        graph.write_text('{"format": 1, "inputs": {"x": {"shape": [4]}}, "outputs": {"y": "half"}, '
                         '"layers": [{"layer": "formula", "name": "half", "value": "0.5 * x"}]}')
        np.testing.assert_array_equal(attnc.load(graph)(a[0]), 0.5 * a[0])

    def test_options(self):
        # Each does what the flag does of which it is made.
        small = attnc.load(models.BERT, dims={"batch": 1, "seq": (1, 16)}, weights="int8", optimize=2, cpu="x86-64-v3")
        self.assertEqual(small.inputs[0].shape, (1, "seq"))
        self.assertIn("avx2", small._info["required_cpu_features"])
        self.assertTrue(any("int8" in w.layout for w in small.weights))
        ids = np.ones((1, 17), np.int64)
        with self.assertRaisesRegex(attnc.InvalidArgument, "17"):
            small(ids, ids)
        report = str(attnc.load(models.BERT, precision="int8").fusion)
        self.assertRegex(report, "\nproduct +weight +arithmetic +kernel\n")
        self.assertRegex(report, "\n\\d+ of \\d+ products of operands in fewer bits than f32 by a kernel$")
        shaped = attnc.load(models.scaled(), shapes={"a": (np.int64(2), None)})
        self.assertEqual(shaped.inputs[0].shape, (2, 4))
        asked = attnc.load(models.optional(), absent="s")
        self.assertEqual([info.name for info in asked.inputs], ["x"])
        np.testing.assert_array_equal(asked(np.ones(2, np.float32)), [1, 1])
        names = [info.name for info in attnc.load(models.two_outputs()).outputs]
        self.assertEqual(len(names), 2)
        last = attnc.load(models.two_outputs(), keep_output=names[1])
        self.assertEqual([info.name for info in last.outputs], names[1:])
        pair = attnc.load(models.pair(), shapes={"s": [(2, None), (3, 2)]})
        self.assertEqual([(info.name, info.shape[0]) for info in pair.inputs], [("s.0", 2), ("s.1", 3)])
        rows = np.arange(6, dtype=np.float32).reshape(3, 2)
        np.testing.assert_array_equal(pair.run({"s.0": np.ones((2, 1), np.float32), "s.1": rows})["y"], 2 * rows)
        plain = attnc.load(models.BERT, optimize=0)
        self.assertEqual(plain.fusion.fused, 0)

    def test_errors(self):
        out = self.folder / "model.so"
        self.check("nowhere.onnx: no such file", attnc.NoSuchFile, "nowhere.onnx", out)
        self.check("nowhere.onnx: no such file", FileNotFoundError, "nowhere.onnx", out)
        self.check("is a folder", attnc.InvalidArgument, self.folder, out)
        self.check("of type int", ValueError, 7, out)
        self.check("no models are given", attnc.InvalidArgument, {}, out)
        self.check("no option 'wieghts', did you mean 'weights'; the options of a compile are", attnc.InvalidArgument, models.BERT,
                   out, wieghts="int8")
        self.check("no option 'thread', did you mean 'threads'; the", attnc.InvalidArgument, models.BERT, out, thread=2)
        self.check("no option 'qqq'; the options of a compile are", attnc.InvalidArgument, models.BERT, out, qqq=2)
        self.check("^weights expects f32, bf16, int8", attnc.InvalidArgument, models.BERT, out, weights="int3")
        self.check("dims: 'seq' expects a size or \\(least, most\\), not '5'", attnc.InvalidArgument, models.BERT, out, dims={"seq": "5"})
        for option, message in (("dims", "a mapping of names to sizes"), ("shapes", "a mapping of inputs to shapes"),
                                ("states", "a mapping of inputs to outputs"), ("search", "attnc.Greedy, Beam or Sample")):
            self.check(f"{option} expects {message}, not str", attnc.InvalidArgument, models.BERT, out, **{option: "n"})
        self.check("no dimension 'sq'", attnc.InvalidArgument, models.BERT, out, dims={"sq": 5})
        self.check("no input 'z', which absent names; inputs are 'a', 'b'", attnc.InvalidArgument, models.scaled(), out,
                   absent=["z"])  # fmt: skip
        self.check("input 'a', which absent names, is not optional", attnc.InvalidArgument, models.scaled(), out, absent="a")
        self.check("absent expects a text or a list of texts", attnc.InvalidArgument, models.scaled(), out, absent=[1])
        # A model in memory is none in a file.
        self.check("^<onnx.ModelProto '.+'>: has no input 'z'", attnc.InvalidArgument, models.scaled(), out, absent="z")
        self.check("no output 'z', which keep_output names; outputs are", attnc.InvalidArgument, models.two_outputs(), out,
                   keep_output=["z"])  # fmt: skip
        for option, wrong, message in (
            ("absent", False, "absent expects a text or a list of texts, not bool"),
            ("absent", 0, "absent expects a text or a list of texts, not int"),
            ("expose_attention", 0, "expose_attention expects a text or a list of texts, not int"),
            ("own_state", "no", "own_state expects True or False, not 'no'"),
            ("profiling", 1, "profiling expects True or False, not 1"),
            ("allow_host_ops", None, "allow_host_ops expects True or False, not None"),
            ("optimize", True, "optimize expects a level from 0 to 3, not True"),
            ("optimize", 9, "optimize expects a level from 0 to 3, not 9"),
            ("dims", {"a": (True, 4)}, "expects a size or \\(least, most\\), not \\(True, 4\\)"),
            ("shapes", {"a": (2, 2.5)}, "shapes: 'a' expects sizes, or None for an open one, not \\(2, 2.5\\)"),
        ):
            self.check(message, attnc.InvalidArgument, models.scaled(), out, **{option: wrong})
        for search, message in ((attnc.Beam(n_best=True), "n_best expects a number or a name, not True"),
                                (attnc.Sample(top_k=False), "top_k expects a number or a name, not False"),
                                (attnc.Beam(gnmt=1), "gnmt expects True or False, not 1")):
            self.check(message, attnc.InvalidArgument, models.scaled(), out, search=search)
        self.assertIn("--eos=3", attnc.Greedy(eos=np.int64(3)).flags())
        self.assertIn("--eos=3,4", attnc.Greedy(eos=np.array([3, 4])).flags())
        for wrong in (4, "4"):
            self.check("shapes: 'a' expects a shape, or", attnc.InvalidArgument, models.scaled(), out, shapes={"a": wrong})
        onnx.save(models.scaled(), self.folder / "m.onnx")
        self.check("none of the models has the input 'z', to which shapes gives 2x4; inputs are 'a', 'b'",
                   attnc.InvalidArgument, dict.fromkeys("mn", self.folder / "m.onnx"), out, shapes={"z": (2, 4)})
        self.check("cannot write", attnc.FileError, models.BERT, self.folder / "no" / "such" / "model.so")
        self.check("fused", attnc.Unsupported, models.BERT, out, require_fused=3)
        self.check("the limit set by timeout", TimeoutError, models.BERT, out, timeout=0.01)
        self.check("memory", MemoryError, models.BERT, out, memory="300M")
        damaged = self.folder / "damaged.onnx"
        damaged.write_bytes(models.BERT.read_bytes()[:5000])
        self.check("damaged.onnx", attnc.InvalidArgument, damaged, out)
        error = self.check("NoSuchOperator", NotImplementedError, models.unsupported(), out)
        self.assertEqual((error.node, error.operator, error.status), ("first", "NoSuchOperator", "unsupported"))
        self.assertIn("NorThisOne (node 'second')", str(error))
        self.assertIn("docs/operators.md lists what is supported", error.notes[0])
        self.assertFalse(out.exists())
        attnc.compile(models.scaled(), out)
        with self.assertRaisesRegex(attnc.InvalidArgument, "compiled already: weights="):
            attnc.load(out, weights="int8")
        with self.assertRaises(attnc.NoSuchFile):
            attnc.load(self.folder / "nowhere.so")
        out.write_bytes(out.read_bytes()[:-100])
        with self.assertRaisesRegex(attnc.CorruptFile, "model.so"):
            attnc.load(out)
        with self.assertRaisesRegex(attnc.InvalidArgument, "threads expects a number from 1"):
            attnc.load(models.BERT, threads=0)

    def test_options_by_their_names_in_python(self):
        for options, message in (
            ({"fp32_math": "x"}, "^fp32_math expects f32, bf16x3 or bf16x6, not 'x'\n  help\\(attnc.compile\\) lists"),
            ({"require_fused": "x"}, "^'require_fused' expects a whole number"),
            ({"memory": "x"}, "^'memory' expects a size as 512M or 4G"),
            ({"cache": "int8"}, "^cache='int8' is about caches that a library keeps: give own_state or search"),
            ({"expose_attention_as": "weights"}, "^expose_attention_as belongs to expose_attention"),
            ({"max_loop_iterations": -1}, "^'max_loop_iterations' expects a whole number"),
        ):
            self.check(message, attnc.InvalidArgument, models.scaled(), self.folder / "model.so", **options)
        self.check("name them with states={'INPUT': 'OUTPUT'}", attnc.InvalidArgument, models.scaled(), self.folder / "m.so",
                   own_state=True)  # fmt: skip
        for error, name, key in ((attnc.InvalidArgument, "a", "a"), (attnc.Unsupported, "s", "s.0")):
            self.check(f"give .*, as in shapes={{'{key}': \\(2, 3\\)}}$", error, models.shapeless(name == "s", name),
                       self.folder / "m.so")  # fmt: skip
        for search, message in ((attnc.Beam(5), r"^search=attnc.Beam\(\) needs a first token: bos=ID, or bos='input'"),
                                (attnc.Greedy(bos=1), r"^search=attnc.Greedy\(\) needs max_length")):
            self.check(message, attnc.InvalidArgument, models.scaled(), self.folder / "m.so", search=search)
        self.check("dims={'batch': 0} makes tensors empty", attnc.InvalidArgument, models.BERT, self.folder / "m.so", dims={"batch": 0})

    def test_a_limit_on_loops(self):
        model = attnc.load(models.loop(), max_loop_iterations=3, cache=False)
        self.assertEqual(model(np.int64(3)), 3)
        with self.assertRaisesRegex(attnc.Error, "asks for 4 iterations, the limit is 3"):
            model(np.int64(4))

    def test_what_a_compile_notes(self):
        with self.assertWarnsRegex(attnc.CompileWarning, "each run copies its state 'c'") as caught:
            attnc.compile(models.growing(), self.folder / "model.so", own_state=True, states={"c": "d"})
        self.assertEqual(caught.filename, __file__)
        with warnings.catch_warnings(), mock.patch.dict(os.environ, ATTNC_CACHE=str(self.folder / "cache")):
            warnings.simplefilter("error")
            with self.assertRaisesRegex(attnc.CompileWarning, "each run copies"):
                attnc.load(models.growing(), own_state=True, states={"c": "d"})
            self.assertEqual([kept.model != "?" for kept in attnc.Cache().list()], [True])
            with self.assertRaisesRegex(attnc.CompileWarning, "each run copies"):  # what the cache has notes the same
                attnc.load(models.growing(), own_state=True, states={"c": "d"})
        with mock.patch.dict(os.environ, ATTNC_CACHE=str(self.folder / "cache")):
            for _ in range(2):
                with self.assertWarnsRegex(attnc.CompileWarning, "^model.onnx: .*each run copies") as caught:
                    model = attnc.load(models.growing(), own_state=True, states={"c": "d"})
                self.assertEqual(caught.filename, __file__)
            self.assertEqual(len(attnc.Cache().list()), 1)
            self.assertEqual(self.warned_by_two_threads(), 2)
            # A damaged library is made anew, and warned of once.
            pathlib.Path(model.path).write_bytes(b"\x7fELF")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                attnc.load(models.growing(), own_state=True, states={"c": "d"})
            self.assertEqual(len(caught), 1)
            # One whose note is not there has not been finished; a damaged note says nothing.
            note = pathlib.Path(model.path).with_suffix(".json")
            note.unlink()
            with self.assertWarnsRegex(attnc.CompileWarning, "each run copies"):
                attnc.load(models.growing(), own_state=True, states={"c": "d"})
            for text in ("{", "[]", "null", '{"notes": 5}', '{"notes": "abc"}', '{"notes": [1, null]}'):
                note.write_text(text)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    attnc.load(models.growing(), own_state=True, states={"c": "d"})

    def test_whose_line_a_warning_is(self):
        """Not that of a library that called us."""
        between = {"__name__": "transformers.generation.utils", "attnc": attnc}
        exec(compile("def call(f, *given, **named):\n    return f(*given, **named)", "utils.py", "exec"), between)
        with self.assertWarnsRegex(attnc.CompileWarning, "each run copies") as caught:
            between["call"](attnc.compile, models.growing(), self.folder / "m.so", own_state=True, states={"c": "d"})
        self.assertEqual(caught.filename, __file__)

    def test_notes_are_said_once(self):
        onnx.save(models.growing(), self.folder / "model.onnx")
        with mock.patch.dict(os.environ, ATTNC_CACHE=str(self.folder / "cache")):
            with self.assertWarnsRegex(attnc.CompileWarning, "^model.onnx: .*each run copies"):
                model = attnc.load(self.folder / "model.onnx", own_state=True, states={"c": "d"})
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model.profile(runs=1, **{each.name: np.zeros((1, 4), np.float32) for each in model.inputs})  # compiles anew

    def warned_by_two_threads(self):
        """How often, where one compiles and the other waits for it."""
        attnc.Cache().shrink(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            threads = [threading.Thread(target=attnc.load, args=(models.growing(),), kwargs={"own_state": True, "states": {"c": "d"}})
                       for _ in range(2)]  # fmt: skip
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return sum(each.category is attnc.CompileWarning for each in caught)

    def test_limits_of_what_the_cache_has(self):
        with mock.patch.dict(os.environ, ATTNC_CACHE=str(self.folder / "cache")):
            attnc.load(models.scaled(), memory="4g", timeout=100)
            for keep in (True, False):  # nobody starts the compiler for what the cache has
                for memory in ("x", "", "4g4", -1, 1.5, "5000000000G", "9" * 5000, "٤G"):
                    with self.assertRaisesRegex(attnc.InvalidArgument, f"^'memory' expects a size as 512M or 4G, not '{memory}'"):
                        attnc.load(models.scaled(), memory=memory, cache=keep)
                for timeout in ("soon", -1, float("inf"), float("nan"), True, 10**400):
                    with self.assertRaisesRegex(attnc.InvalidArgument, f"^'timeout' expects a number of at least 0, not '{timeout}'"):
                        attnc.load(models.scaled(), timeout=timeout, cache=keep)
            for timeout in ("30", 30, 30.5, np.float32(30)):
                attnc.load(models.scaled(), memory=4 << 30, timeout=timeout)
            attnc.load(models.scaled(), memory="00000000000000000000004G")

    def test_interrupt(self):
        # Only this process gets the signal, as from `kill -INT`; it must take the compiler along.
        program = textwrap.dedent(f"""
            import attnc, signal, sys
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
            def listen(stage, seconds):
                print(stage, flush=True)
            try:
                attnc.compile({str(models.BERT)!r}, {str(self.folder / "model.so")!r}, on_progress=listen)
            except KeyboardInterrupt:
                sys.exit(42)
            """)
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.assertEqual(child.stdout.readline(), "importing\n")
        child.send_signal(signal.SIGINT)
        with child.stdout:
            rest = child.stdout.read()
        self.assertEqual(child.wait(), 42, rest)
        self.assertEqual(os.listdir(self.folder), [])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and _members(child.pid):
            time.sleep(0.05)
        self.assertEqual(_members(child.pid), [])


def _members(session):
    """The processes of a session."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


if __name__ == "__main__":
    unittest.main()
