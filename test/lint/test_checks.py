#!/usr/bin/env python3
"""Each check on a small tree: what it must find, and the near misses."""
import importlib
import pathlib
import tempfile
import unittest

from sources import settle

faults, lengths, names, passes, types, worklists = map(
    importlib.import_module,
    ("check-faults", "check-lengths", "check-names", "check-passes", "check-types", "check-worklists"))


def tree(**files):
    root = pathlib.Path(tempfile.mkdtemp())
    for name, text in files.items():
        place = root / name.replace("__", "/").replace("_DOT_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


class Lengths(unittest.TestCase):
    def test_functions(self):
        body = "  x();\n"
        text = "void f() {\n" + 79 * body + "}\nvoid g() {\n" + 78 * body + "}\n"
        self.assertEqual(list(lengths.too_long(tree(a_DOT_cpp=text))), ["a.cpp f"])

    def test_files(self):
        self.assertEqual(list(lengths.too_long(tree(a_DOT_cpp=501 * "int x;\n", b_DOT_h=500 * "int x;\n"))), ["a.cpp"])


class Faults(unittest.TestCase):
    ROWS = "".join(f"| {cell} | a fault | `a.test`, `B.cpp: Fails` |\n" for cell in faults.WANTED)

    def found(self, rows):
        return faults.untested(tree(test__faults_DOT_md=rows, test__a_DOT_test="RUN: a", test__B_DOT_cpp="TEST(B, Fails)"))

    def test_all(self):
        self.assertEqual(self.found(self.ROWS), {})

    def test_gaps(self):
        self.assertEqual(list(self.found(self.ROWS.replace("| L4 |", "| L3 |"))), ["L4", "L3"])
        for change in (("`a.test`, `B.cpp: Fails`", "none"), ("a.test", "b.test"), ("Fails", "Fail"), ("Fails", "B, Fails,")):
            self.assertEqual(len(self.found(self.ROWS.replace(*change, 1))), 1, change)


class Worklists(unittest.TestCase):
    def found(self, body):
        return list(worklists.hand_made(tree(passes__graph__A_DOT_cpp="void f() {\n" + body + "\n}\n")))

    def test_loops(self):
        for body in ("while (!front.empty()) { Value v = front.pop_back_val(); }",
                     "while (!front.empty() && n < 4)\n  for (auto *user : front.pop_back_val().getUsers()) { g(user); }",
                     "while (!front.empty()) { SmallVector<Value> next; front = std::move(next); }",
                     "for (size_t n = 0; n != list.size(); ++n) { llvm::append_range(list, list[n].uses()); }",
                     "for (size_t n = 0; n < list.size(); ++n)\n  list.push_back(list[n]);"):
            self.assertEqual(self.found(body), ["passes/graph/A.cpp f"], body)

    def test_near_misses(self):
        for body in ("while (!dims.empty()) { dims.resize(dims.size() / 2); }", "dims.pop_back();",
                     "if (!front.empty()) front.pop_back();", "// while (!front.empty()) front.pop_back_val();",
                     "for (size_t n = 0; n != list.size(); ++n) { other.push_back(list[n]); }",
                     "for (size_t n = 0; n != list.size(); ++n) { g(); } list.push_back(x);"):
            self.assertEqual(self.found(body), [], body)

    def test_structured_has_it(self):
        text = "void f() { while (!front.empty()) front.pop_back_val(); }"
        self.assertEqual(worklists.hand_made(tree(passes__graph__Structured_DOT_cpp=text)), {})


class Passes(unittest.TestCase):
    def found(self, **files):
        files.setdefault("passes__graph__P_DOT_td", 'def FoldScalePass : Pass<"attn-fold-scale"> {\n')
        files.setdefault("passes__graph__deep__FoldScale_DOT_cpp", "struct FoldScalePass {};")
        return [name.strip() for name in passes.misnamed(tree(**files))]

    def test_all_there(self):
        self.assertEqual(self.found(**{"test__passes__graph__fold-scale_DOT_mlir": "// RUN: attn-opt -attn-fold-scale",
                                       "test__passes__graph__fold-scale-more_DOT_mlir": "// RUN: attn-opt -attn-fold-scale=x"}), [])

    def test_no_test_of_its_name(self):
        self.assertEqual(self.found(**{"test__passes__graph__fold-scale-more_DOT_mlir": "// RUN: attn-opt -attn-fold-scale"}),
                         ["attn-fold-scale"])

    def test_test_that_runs_another(self):
        name = "test/passes/graph/fold-scale.mlir"
        self.assertEqual(self.found(**{"test__passes__graph__fold-scale_DOT_mlir": "// RUN: attn-opt -attn-fold-scales"}), [name])

    def test_test_in_another_folder(self):
        self.assertEqual(self.found(**{"test__passes__other__fold-scale_DOT_mlir": "// RUN: attn-opt -attn-fold-scale"}),
                         ["attn-fold-scale", "test/passes/other/fold-scale.mlir"])

    def test_no_file(self):
        found = self.found(**{"passes__graph__deep__FoldScale_DOT_cpp": "int x;",
                              "test__passes__graph__fold-scale_DOT_mlir": "// RUN: attn-opt -attn-fold-scale"})
        self.assertEqual(found, ["attn-fold-scale"])


class Types(unittest.TestCase):
    def found(self, text, other="namespace attn {\nstruct Band {\n};\n}", name="room__b_DOT_h"):
        return list(types.defined_twice(tree(**{"a_DOT_h": f"namespace attn {{\n{text}\n}}\n", name: other})))

    def test_two(self):
        for text in ("struct Band {};", "class Band : Base {\n};", "template <typename T> class Band {};", "enum class Band : int { a };"):
            self.assertEqual(self.found(text), ["attn::Band"], text)

    def test_near_misses(self):
        for text in ("struct Band;", "template <> struct Band<int> {};", "struct Band::Front {};", "struct Bands {};",
                     "struct Other {\n  struct Band {};\n};", "// struct Band {"):
            self.assertEqual(self.found(text), [], text)
        self.assertEqual(self.found("struct Band {};", "namespace attn::onnx {\nstruct Band {};\n}"), [])
        self.assertEqual(self.found("struct Band {};", name="test__b_DOT_h"), [])


class Names(unittest.TestCase):
    def found(self, text, **files):
        files["room__README_DOT_md"] = text
        return [name.partition(": ")[2] for name in names.stale(tree(**files).resolve())]

    def test_names(self):
        files = dict(room__FoldScale_DOT_cpp="", room__sub__a_DOT_py="", docs__b_DOT_md="", t_DOT_td='"attn-fold-scale"',
                     c_DOT_h="int ThereIsOne;")
        text = ("`FoldScale`, `FoldScale.cpp`, `sub/a.py`, `a.py`, `room/sub/{a,z}.py`, `sub/`, `ThereIsOne`, `attn-fold-scale`,\n"
                "[b](../docs/b.md) [web](https://example.org/x.html) [part](#part) `--a-flag`\n```\n`gone.cpp`\n```\n")
        self.assertEqual(self.found(text, **files), ["room/sub/z.py"])
        text = "`GoneAway` `gone.cpp` `sub/gone.py` `gone/` `attn-gone` [c](c.md)"
        self.assertEqual(self.found(text, **files), ["GoneAway", "gone.cpp", "sub/gone.py", "gone/", "attn-gone", "c.md"])


class Settle(unittest.TestCase):
    def test_what_is_wrong_fails(self):
        self.assertEqual(settle({}), 0)
        self.assertEqual(settle({"room/a": "long"}), 1)


if __name__ == "__main__":
    unittest.main()
