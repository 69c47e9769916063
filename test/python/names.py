"""Every public name of the packages is used by a test, and stands in the reference."""
import dataclasses
import inspect
import pathlib
import re
import unittest

import attnc
import attnc.onnx_backend
import attnc_runtime

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = "\n".join(path.read_text() for room in ("python", "serve") for path in (ROOT / "test" / room).glob("*.py")
                  if path.name != "names.py")  # fmt: skip
REFERENCE = (ROOT / "docs/reference.md").read_text()


def members(kind):
    """What a user can call or read of a class: its own methods, properties and fields, but for those of a builtin."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    own = {name for base in kind.__mro__ if base.__module__.startswith("attnc") for name in vars(base)}
    return sorted(name for name in own | fields if not name.startswith("_"))


class Names(unittest.TestCase):
    def test_members(self):
        untested = []
        for name in attnc.__all__:
            each = getattr(attnc, name)
            if inspect.isclass(each):
                untested += [f"{name}.{member}" for member in members(each) if not re.search(rf"\b{member}\b", TESTS)]
        self.assertEqual(untested, [])

    def test_names(self):
        names = [name for name in attnc.__all__ if name != "__version__"]
        self.assertEqual([name for name in names if not re.search(rf"\battnc\.{name}\b", TESTS)], [])
        self.assertEqual([name for name in names if f"::: attnc.{name}\n" not in REFERENCE + "\n"], [])
        self.assertEqual([name for name in attnc_runtime.__all__ if not hasattr(attnc, name)], [])

    def test_documented(self):
        for name in attnc.__all__:
            each = getattr(attnc, name)
            if inspect.isclass(each) or inspect.isfunction(each):
                self.assertTrue(inspect.getdoc(each), name)


if __name__ == "__main__":
    unittest.main()
