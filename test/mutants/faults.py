"""Faults that can be put into C++ sources: what mutants.py draws from.

A mutant is one change of one expression, condition or statement. All that were drawn stand in the source at once, each
behind a switch: `a < b` becomes `(ATTN_MUTANT(17) ? (a <= b) : (a < b))`, and an environment variable turns one on.
Sources are read as text in clang-format's style, where operators have blanks around them and template brackets have
none. What is found wrongly does not compile, and is left out then.
"""
import collections
import re

# `begin` and `end` are places in the source's text; `after` stands there when the mutant is on. The whole lines,
# without and with the change, are what tells mutants apart.
Mutant = collections.namedtuple("Mutant", "file line kind begin end before after old new")

COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
# How tightly an operator binds, loosest first.
LEVELS = [["||"], ["&&"], ["==", "!="], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]]
SWAPS = [("comparison", COMPARED), ("condition", {"&&": "||", "||": "&&"}),
         ("operator", {"+": "-", "-": "+", "%": "/", "/": "*"})]
LEVEL_OF = {operator: level for level, operators in enumerate(LEVELS) for operator in operators}
BINARY = re.compile(r"(?<=[\w)\]}\"']) (<<|>>|<=|>=|==|!=|&&|\|\||[<>+/%*-])(?=[ \n])")
WORDS = {"true": "false", "false": "true", "success()": "failure()", "failure()": "success()"}
WORD = re.compile(r"(?<![\w.:>])(?:true\b|false\b|success\(\)|failure\(\))")
NUMBER = re.compile(r"(?<![\w.'<])(\d+)(?![\w.'>])")
CONDITION = re.compile(r"\bif \(")
DECLARATION = re.compile(r"\s*(?:const )?[\w:<>, *&]*[\w>&*] ?[*&]?(?:\w+|\[[\w, ]+\]) = ")
STATEMENT = re.compile(r"(?<=[;{})\n])(\n +)((?:\*|\+\+|--)?[\w.:>\[\]-]+(?:\(|(?: [+|&-]?= )|\+\+;|--;))")
NO_CODE = re.compile(r"\b(?:static_assert|assert|case|template|using|constexpr|enum|typedef|llvm_unreachable|"
                     r"operator|return|delete|break|continue|goto|throw|else|for|while|if|switch|do)\b")
NOT_CHANGED = re.compile(r"\b(?:static_assert|assert|case|template|using|constexpr|enum|typedef|llvm_unreachable|"
                         r"static)\b")
BEFORE_OPERAND = re.compile(r"(?:co_return|return|else|throw)$")


def code_of(text):
    """`text` without comments, texts and lines of the preprocessor: others in their place, so that places stay."""
    def blank(match):
        found = match[0]
        if found.startswith(("/", "#")):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + "_" * (len(found) - 2) + found[-1]
    return re.sub(r'//[^\n]*|/\*.*?\*/|^#(?:[^\n]*\\\n)*[^\n]*|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'',
                  blank, text, flags=re.S | re.M)


def close_of(code, begin):
    """The place of the bracket that closes the one at `begin`; None: none does."""
    depth = 0
    for place in range(begin, len(code)):
        depth += (code[place] in "([{") - (code[place] in ")]}")
        if depth == 0:
            return place
    return None


def stops(code, place):
    """Whether an operand goes no further than to what stands at `place`."""
    if code[place] in ",;" or (code[place] == "?" or code[place] == ":") and "::" not in code[place - 1:place + 2]:
        return True
    if code[place] == "=" and code[place - 1] not in "<>=!" and code[place + 1:place + 2] != "=":
        return True
    return False


def operand_begin(code, place, level):
    """Where the left operand of the operator at `place` begins. What binds as tightly belongs to it, from + on."""
    depth, at = 0, place - 1
    while at >= 0:
        c = code[at]
        if c in ")]}":
            if depth == 0 and c == "}" and code[at + 1] == "\n":
                return at + 1
            depth += 1
        elif c in "([{":
            if depth == 0:
                return at + 1
            depth -= 1
        elif depth == 0:
            if stops(code, at):
                return at + 1
            if c == " " and (match := BINARY.match(code, at)):
                other = LEVEL_OF[match[1]]
                if other < level or other == level and level < LEVEL_OF["+"]:
                    return match.end()
            if c in " \n" and BEFORE_OPERAND.search(code[max(at - 10, 0):at]):
                return at
        at -= 1
    return None


def operand_end(code, place, level):
    depth = 0
    for at in range(place, len(code)):
        c = code[at]
        if c in "([{":
            if depth == 0 and c == "{" and code[at - 1] in " \n":
                return at
            depth += 1
        elif c in ")]}":
            if depth == 0:
                return at
            depth -= 1
        elif depth == 0:
            if stops(code, at):
                return at
            if c == " " and (match := BINARY.match(code, at)) and LEVEL_OF[match[1]] <= level:
                return at
    return None


def trimmed(code, begin, end):
    while begin < end and code[begin].isspace():
        begin += 1
    while begin < end and code[end - 1].isspace():
        end -= 1
    return begin, end


def mutants_of(name, text):
    """Of a source: those of the code in functions, but not of declarations, assertions and texts."""
    code = code_of(text)

    def mutant(kind, begin, end, after):
        first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
        old, new = (" ".join((text[first:begin] + part + text[end:last]).split()) for part in (text[begin:end], after))
        return Mutant(name, text.count("\n", 0, begin) + 1, kind, begin, end, text[begin:end], after, old, new)

    def is_code(place):
        begin = code.rfind("\n", 0, place) + 1
        line = code[begin:code.find("\n", place)]
        return line.startswith(" ") and not NOT_CHANGED.search(line)

    for match in BINARY.finditer(code):
        for kind, swaps in SWAPS:
            if match[1] in swaps and is_code(match.start()):
                level = LEVEL_OF[match[1]]
                begin, end = operand_begin(code, match.start(), level), operand_end(code, match.end(), level)
                if begin is not None and end is not None:
                    begin, end = trimmed(code, begin, end)
                    yield mutant(kind, begin, end, text[begin:match.start(1)] + swaps[match[1]] + text[match.end():end])
    for match in WORD.finditer(code):
        if is_code(match.start()):
            yield mutant("constant", *match.span(), WORDS[match[0]])
    for match in NUMBER.finditer(code):
        if is_code(match.start()):
            yield mutant("constant", *match.span(), str(int(match[1]) + 1))
    for match in CONDITION.finditer(code):
        end = close_of(code, match.end() - 1)
        if end is not None and is_code(match.start()):
            begin = match.end()
            begin = max(begin, *(begin + 1 + m.start() for m in re.finditer(";", code[begin:end])), begin)
            begin, end = trimmed(code, begin, end)
            if begin < end and not DECLARATION.match(code[begin:end]):
                yield mutant("condition", begin, end, f"!({text[begin:end]})")
                yield mutant("condition", begin, end, "false")
    for match in STATEMENT.finditer(code):
        begin = match.start(2)
        end = code.find(";", begin)
        for bracket in re.finditer(r"[({\[]", code[begin:end]): # a lambda's statements are not the end
            close = close_of(code, begin + bracket.start())
            if close and close > end:
                end = code.find(";", close)
        is_short = "\n  " not in text[begin:end].replace("\n" + " " * 6, "")  # no lambda of several lines
        if end > 0 and is_short and is_code(begin) and not NO_CODE.match(code, begin):
            yield mutant("statement", begin, end, "")


def overlap(one, other):
    return one.begin < other.end and other.begin < one.end


def switched(text, mutants):
    """`text` with each of `mutants`, pairs of a number and a mutant, behind its switch. None of them overlap."""
    for number, m in sorted(mutants, key=lambda pair: -pair[1].begin):
        on = f"ATTN_MUTANT({number})"
        if m.kind == "statement":
            new = f"(void)({on} || ((void)({m.before}), true))"
        elif m.kind == "condition" and m.after == "false" or m.after.startswith("!("):
            new = f"({on} ? bool({m.after}) : bool({m.before}))"
        else:
            new = f"({on} ? ({m.after}) : ({m.before}))"
        text = text[:m.begin] + new + text[m.end:]
    return text
