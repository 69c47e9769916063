#!/usr/bin/env python3
"""quotes.py on a page with every kind of quote, and on quotes of what is not there."""
import importlib.util
import pathlib
import sys
import unittest

place = pathlib.Path(sys.argv.pop(1)) / "tools/docs/quotes.py"
quotes = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("quotes", place))
spec.loader.exec_module(quotes)

SOURCE = '''struct A {
  int f() {
    return "x";
  }
};

int g();
'''


def update(page):
    return quotes.update(page, ["a/b.cpp", "a/c.py", "d/c.py"], lambda file: SOURCE, lambda script: "| a |\n|-|\n")


class Quotes(unittest.TestCase):
    def test_up_to_an_empty_line(self):
        new = update('Text\n\n<!-- quote b.cpp "struct A" -->\n```cpp\nold\n```\nMore\n')
        self.assertEqual(new, 'Text\n\n<!-- quote b.cpp "struct A" -->\n```cpp\n' + SOURCE[:-10] + "```\nMore\n")
        self.assertEqual(update(new), new)

    def test_up_to_a_line_and_without_a_block_yet(self):
        self.assertEqual(update('  <!-- quote b.cpp "int f" "return \\"x\\"" -->\n'),
                         '  <!-- quote b.cpp "int f" "return \\"x\\"" -->\n'
                         '  ```cpp\n  int f() {\n    return "x";\n  ```\n')

    def test_up_to_the_brace(self):
        self.assertIn('int f() {\n  return "x";\n}\n```', update('<!-- quote b.cpp "int f" "}" -->\n'))

    def test_tables(self):
        self.assertEqual(update("<!-- table of b.cpp -->\n| old |\n\nText\n"),
                         "<!-- table of b.cpp -->\n| a |\n|-|\n\nText\n")

    def test_what_is_not_there(self):
        for page in ('<!-- quote gone.cpp "x" -->\n', '<!-- quote c.py "x" -->\n', '<!-- quote b.cpp "gone" -->\n',
                     '<!-- quote b.cpp "int" -->\n', '<!-- quote b.cpp "int g" "struct" -->\n'):
            with self.assertRaises(quotes.Stale):
                update(page)


if __name__ == "__main__":
    unittest.main()
