"""What the wheels say of themselves. Needs what makes them (requirements-wheel.txt), as ./dev wheel installs it."""
import contextlib
import email
import importlib.util
import io
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipUnless(importlib.util.find_spec("scikit_build_core"), "scikit-build-core is not installed: ./dev wheel does")
class Metadata(unittest.TestCase):
    def read(self, room):
        from scikit_build_core import build

        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(ROOT / "python" / room), \
                contextlib.redirect_stdout(io.StringIO()):  # fmt: skip
            made = build.prepare_metadata_for_build_wheel(folder)
            return email.message_from_string((pathlib.Path(folder) / made / "METADATA").read_text())

    def test_a_compiler_comes_with_the_runtime_of_its_build(self):
        (version,) = re.findall(r"project\(attnc VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
        compiler, runtime = self.read("compiler"), self.read("runtime")
        self.assertEqual((compiler["Version"], runtime["Version"]), (version, version))
        self.assertIn(f"attnc-runtime=={version}", compiler.get_all("Requires-Dist"))
        self.assertEqual([each for each in runtime.get_all("Requires-Dist") if "extra" not in each], ["numpy>=1.26"])


if __name__ == "__main__":
    unittest.main()
