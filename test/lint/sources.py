"""What the lints know of C++ text: a file without comments and literals, and where its functions begin and end.

LLVM style makes this short: no macro opens a brace. Tested by test_sources.py.
"""
import re
import subprocess

TOKEN = re.compile(r"""
    (?P<raw>R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<char>(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+')
  | (?P<line>//[^\n]*)
  | (?P<block>/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
""", re.X | re.S | re.M)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
PREFIX = re.compile(r"\b(?:alignas|__attribute__|decltype|noexcept|requires|explicit)\s*\(")


def tracked(root, pattern=""):
    """Files of the repository below `root` that match `pattern`, by name; new ones, too, but none that git ignores."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:  # an unpacked archive
        names = [str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()]
        names = [name for name in names if not name.startswith(("build/", "."))]
    return sorted(name for name in names if re.search(pattern, name) and (root / name).is_file())


def blank(text):
    """`text` with comments, literals and directives as spaces: every place and line stays where it is."""
    def erase(match):
        kept = '"' if match["string"] or match["raw"] else " "
        return kept + re.sub(r"[^\n]", " ", match[0][1:])

    return TOKEN.sub(erase, text)


def without_groups(head):
    """`head` without what stands in parentheses, and whether any parentheses followed a name."""
    depth, flat, is_call = 0, "", False
    for place, letter in enumerate(head):
        if letter == "(":
            is_call |= depth == 0 and bool(re.search(r"[\w>\]=+\-*/<!&|^%~]\s*$|operator\s*$", head[:place]))
            depth += 1
        elif letter == ")":
            depth -= 1
        elif depth == 0:
            flat += letter
    return flat, is_call


def is_function(head):
    """Whether `head`, what stands between the end of the last declaration and a brace, begins a function's body."""
    while match := PREFIX.search(head):
        depth, end = 1, match.end()
        while depth and end < len(head):
            depth += {"(": 1, ")": -1}.get(head[end], 0)
            end += 1
        head = head[:match.start()] + head[end:]
    flat, is_call = without_groups(head)
    if not is_call or re.search(r"(?:=|\breturn)\s*$", flat):
        return False
    # `struct Point makePoint() {` is a function, `struct Point : Base {` has no parentheses; a macro may stand in front.
    return not re.search(r"\b(?:namespace|enum)\b|^\s*(?:template\s*<.*?>\s*)?class\b", flat, re.S)


def functions(text):
    """(name, first line, lines) of each body at file, namespace or class scope; the lambdas in it are a part of it."""
    code = blank(text)
    start, depth, place = 0, 0, 0
    scopes = []  # for each open brace: None, or (start of the head, its text) of a function
    while place < len(code):
        letter = code[place]
        in_function = any(scopes)
        if letter in "([" and not in_function:
            depth += 1
        elif letter in ")]" and not in_function:
            depth -= 1
        elif letter == "{":
            head = code[start:place]
            opens = None
            if not in_function and depth == 0 and is_function(head):
                # A member that a constructor initialises: `Point() : x{1}, y{2} {`.
                flat, _ = without_groups(head)
                is_member = re.search(r"(?<!:):(?!:).*[\w>]\s*$", flat, re.S) and not re.search(r"\b(const|override|noexcept|try|final)\s*$|\)\s*$", head)
                if not is_member:
                    opens = start + len(head) - len(head.lstrip()), head
            if opens is None and not in_function and depth == 0 and re.search(r"=\s*$|[\w>]\s*$", head) and not SCOPE.search(head):
                place = skip(code, place)  # an initialiser; the declaration goes on
                continue
            if opens is None and not in_function and depth:
                place = skip(code, place)  # a lambda or a list among arguments
                continue
            if opens is None and not in_function and is_function(head):
                place = skip(code, place)
                continue
            scopes.append(opens)
            start = place + 1
        elif letter == "}":
            if scopes and (opened := scopes.pop()):
                first = code.count("\n", 0, opened[0]) + 1
                yield name_of(opened[1]), first, code.count("\n", 0, place) + 2 - first
            start = place + 1
        elif letter == ";" and depth == 0:
            start = place + 1
        place += 1


def skip(code, place):
    """The place behind the brace that closes the one at `place`."""
    depth = 0
    while place < len(code):
        depth += {"{": 1, "}": -1}.get(code[place], 0)
        place += 1
        if depth == 0:
            break
    return place


def name_of(head):
    head = re.sub(r"^\s*template\s*<.*?>\s*(?=[\w:])", "", head, flags=re.S)
    match = re.search(r"(\w+)\s*=\s*\[", head) or re.search(
        r"([\w:]*operator\s*(?:\(\s*\)|[^\s\w(]+)|[\w:~]+)\s*\(", head)
    return re.sub(r"\s", "", match[1]) if match else "?"


def settle(problems):
    """Prints `problems` (name: what is wrong). The exit status."""
    for name, wrong in problems.items():
        print(f"{name}: {wrong}")
    return bool(problems)
