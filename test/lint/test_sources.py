#!/usr/bin/env python3
"""The scanner of sources.py on what it must find and what it must leave."""
import unittest

from sources import blank, functions

SAMPLE = r'''
#define OPEN(x) \
  if (x) {
MACRO_WITHOUT_SEMICOLON(elf)
namespace a {
// void commented() {
const char *text = "void quoted() {", *raw = R"(void raw() { )", brace = '{';
struct Point makePoint(int x = sizeof(int{})) {
  auto twice = [](int n) { return 2 * n; };
  if (x) {
    return {twice(x)};
  }
  return {};
}
struct alignas(64) Room : Base<decltype(f())> {
  Room() : x{1}, y{2} {
  }
  Room(int n) : x(n), y{n} {}
  bool operator()(int n) const noexcept {
    return n == 1'000;
  }
  int x{3}, y = f({1, 2});
  std::function<int()> call = [](int n) {
    return n;
  };
};
template <typename T, int N = 2>
std::enable_if_t<(N > 1), T>
Room::make(
    T t) const -> std::vector<T>
{
  return {t};
}
const Table tables[] = {
    {"a", [](int n) {
       return n;
     }},
};
static const bool isKnown = add("x", [] {
  return true;
});
enum class Kind : int { one, two };
extern "C" {
int main(void) {
  switch (1) {
  case 1: {
  }
  }
}
TEST(Suite, Name) {
}
}
} // namespace a
'''


class Functions(unittest.TestCase):
    def test_finds_each_with_its_lines(self):
        self.assertEqual([(name, lines) for name, _, lines in functions(SAMPLE)], [
            ("makePoint", 7), ("Room", 2), ("Room", 1), ("operator()", 3), ("call", 3), ("Room::make", 7), ("main", 6), ("TEST", 2)])

    def test_counts_from_the_first_line(self):
        firsts = {name: first for name, first, _ in functions(SAMPLE)}
        self.assertTrue(SAMPLE.splitlines()[firsts["makePoint"] - 1].startswith("struct Point"))
        self.assertTrue(SAMPLE.splitlines()[firsts["Room::make"] - 1].startswith("template"))

    def test_near_misses(self):
        for text in ("struct A { int f(); };", "int f();", "auto x = f(1);", "namespace n { int x[] = {f(1)}; }",
                     "class A : public B<(1 > 0)> {};", "Type t = Type{f()};", "Kind kind{f()};"):
            self.assertEqual(list(functions(text)), [], text)

    def test_blanks_keep_places(self):
        self.assertEqual(len(blank(SAMPLE)), len(SAMPLE))
        self.assertEqual(blank(SAMPLE).count("\n"), SAMPLE.count("\n"))
        self.assertNotIn("commented", blank(SAMPLE))


if __name__ == "__main__":
    unittest.main()
