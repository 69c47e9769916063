#!/usr/bin/env python3
"""Which faults are found in a source, and what stands there with their switches."""
import pathlib
import unittest

import faults
import mutants

SOURCE = """
static int kSize = 3;
int f(int a, int b) {
  // a < b is not code
  if (a < b && g(")", a + 2 * b))
    return 7;
  if (Op op = find(a); op && a)
    h(op, "x + 1");
  assert(a == b);
  std::map<int, Two> m;
  m[a] += [&] {
    return a - b % 2 == b;
  }();
  return true;
}
"""


class MutantsTest(unittest.TestCase):
    def changes(self, line, kind):
        return [(m.before, m.after) for m in faults.mutants_of("f.cpp", SOURCE) if m.line == line and m.kind == kind]

    def test_operators(self):
        self.assertEqual(self.changes(5, "comparison"), [("a < b", "a <= b")])
        self.assertEqual(self.changes(5, "operator"), [("a + 2 * b", "a - 2 * b")])
        self.assertEqual(self.changes(12, "comparison"), [("a - b % 2 == b", "a - b % 2 != b")])
        self.assertEqual(self.changes(12, "operator"), [("a - b % 2", "a + b % 2"), ("b % 2", "b / 2")])

    def test_conditions(self):
        condition = 'a < b && g(")", a + 2 * b)'
        self.assertEqual(self.changes(5, "condition"), [
            (condition, condition.replace("&&", "||")), (condition, f"!({condition})"), (condition, "false")])
        self.assertEqual(self.changes(7, "condition")[1:], [("op && a", "!(op && a)"), ("op && a", "false")])

    def test_constants(self):
        self.assertEqual(self.changes(6, "constant"), [("7", "8")])
        self.assertEqual(self.changes(14, "constant"), [("true", "false")])

    def test_statements(self):
        self.assertEqual(self.changes(8, "statement"), [('h(op, "x + 1")', "")])
        self.assertEqual(self.changes(11, "statement"), [])  # of several lines

    def test_left_alone(self):
        lines = {m.line for m in faults.mutants_of("f.cpp", SOURCE)}
        self.assertFalse(lines & {2, 3, 4, 9, 10, 13, 15})

    def test_switched(self):
        taken = []
        for mutant in faults.mutants_of("f.cpp", SOURCE):
            if not any(faults.overlap(mutant, other) for other in taken):
                taken.append(mutant)
        text = faults.switched(SOURCE, list(enumerate(taken, 1)))
        self.assertIn("if ((ATTN_MUTANT(1) ? (a <= b) : (a < b)) && ", text)
        self.assertIn('(void)(ATTN_MUTANT(', text)
        self.assertEqual(text.count("\n"), SOURCE.count("\n"))

    def test_draw(self):
        drawn = mutants.drawn("runtime", 60, 1)
        self.assertEqual(len(drawn), 60)
        self.assertGreater(len({m.file for m in drawn}), 10)
        self.assertEqual(drawn, mutants.drawn("runtime", 60, 1))
        self.assertFalse([m for m in drawn if "/Gpu" in m.file])

    def test_survivors(self):
        wanted = set(mutants.listed("survivors.txt"))
        drawn = [m for room in mutants.ROOMS for m in mutants.drawn(room, 1000, 1, wanted)]
        keys = [mutants.key(m) for m in drawn]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertTrue(keys and wanted.issuperset(keys))

    def test_equivalents(self):
        lines = (mutants.HERE / "equivalent.txt").read_text().splitlines()[2:]
        known = list(mutants.known_equivalents())
        self.assertEqual(len(known), len(lines))
        self.assertEqual(known[0][:2], ("runtime/src/CpuQuota.cpp", "if (file < 0)"))


if __name__ == "__main__":
    unittest.main()
