#!/usr/bin/env python3
"""Faults put into our sources: does a test notice?

    mutants.py make TREE [--count=ROOM:N,...] [--seed=1] [--survivors]
    mutants.py reach TREE [--longest=5]
    mutants.py kill TREE [ROOM...] [--seconds=60] [--again]
    mutants.py report TREE

`make` copies the repository with its build folder to TREE, puts mutants of each room into the copy's sources, all at
once, each behind a switch (faults.py, switch.h), and builds that; what does not compile is taken out. `reach` runs all
tests of no more than `--longest` seconds, and notes which mutants each of them reaches. `kill` turns one mutant on
after the other and runs the tests that reach it, the quickest first, until one fails: the mutant is killed. The others
survive: each wants a test, or a line with its reason in equivalent.txt. `--again` runs those that survived once more.
`make --survivors` draws the mutants of survivors.txt alone, to see whether tests that were written since kill them.

The copy lies at the repository's own place in a namespace of mounts, so that no path in the build folder changes.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

import faults

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIT = ["/usr/lib/llvm-22/bin/lit", "-q", "-j2"]
# Mutants of each room.
ROOMS = {"runtime": 110, "passes/graph": 140, "passes/kernels": 110, "passes/lowering": 120}
# What needs a GPU, or the interpreter of its code.
LEFT_OUT = re.compile(r"runtime/src/(Gpu|Cu[Bb]|Cuda)|/gpu/|/Gpu|buffers/Device")
PROGRAMS = ("RuntimeInternalTests", "RuntimeEveryCallTests", "RuntimeTests", "gemm-test", "block-gemm-test",
            "integer-gemm-test", "attention-kernel-test", "normalization-kernel-test", "region-vectorizer-test",
            "kernel-harness-test", "emit-test", "package-test", "payload-test", "builders-test", "symbolic-test")
TARGETS = ("attnc", "attn-opt", "attn-run", "attn-bench", "onnx-import", *PROGRAMS)
FOLDERS = ("passes", "dialects", "compiler", "frontends", "tools", "e2e", "compatibility", "hostile")
MEMORY = 16 << 30
SWITCH = '#include "test/mutants/switch.h"\n#line 1\n'

LIT_CONFIG = "\nfrom mutants.lit_switch import Switched  # noqa: E402\nconfig.test_format = Switched()\n"


class Tree:
    """The copy, and what is known of its mutants."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.file = self.folder / "build/mutants.json"
        self.state = json.loads(self.file.read_text()) if self.file.exists() else {}

    def save(self):
        self.file.write_text(json.dumps(self.state, indent=1))

    def run(self, command, limit=None, environment=()):
        """In the namespace where the copy lies at ROOT. None: it took longer than `limit` seconds."""
        inside = ["unshare", "-m", "sh", "-c", f'mount --make-rprivate / && mount --bind "{self.folder}" "{ROOT}" && '
                  f'cd "{ROOT}" && exec "$@"', "sh", *map(str, command)]
        process = subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True, env=os.environ | dict(environment))
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None
        return subprocess.CompletedProcess(command, process.returncode, output)


def key(mutant):
    return mutant.file, mutant.old, mutant.new


def listed(name):
    """Keys of the mutants in a list. Its lines are file: `line` -> `changed line`, and what is said of it."""
    for line in (HERE / name).read_text().splitlines():
        if match := re.match(r"(\S+): `(.+)` -> `(.*)`", line):
            yield match.groups()


def known_equivalents():
    return listed("equivalent.txt")


def drawn(room, count, seed, wanted=None):
    """Mutants by turns of each file of the room, `count` at most. Those of a file do not overlap. With `wanted`, a set of
    keys, only such, of each the first one that is drawn."""
    names = sorted(str(p.relative_to(ROOT)) for p in (ROOT / room).rglob("*.cpp"))
    known, taken = set(known_equivalents()), []
    queues = {}
    for name in names:
        if not LEFT_OUT.search(name):
            queues[name] = list(faults.mutants_of(name, (ROOT / name).read_text()))
            random.Random(f"{seed} {name}").shuffle(queues[name])
    while any(queues.values()) and len(taken) < count:
        names = [name for name, queue in queues.items() if queue]
        random.Random(f"{seed} {len(taken)}").shuffle(names)
        for name in names:
            mutant = queues[name].pop()
            if wanted is not None and key(mutant) not in wanted - {key(m) for m in taken}:
                continue
            if key(mutant) not in known and not any(m.file == name and faults.overlap(m, mutant) for m in taken):
                taken.append(mutant)
    return taken[:count]


def lines_of(mutant):
    return range(mutant.line, mutant.line + mutant.before.count("\n") + 1)


def write(tree, texts, mutants):
    """The sources of the copy: only those that change, so that others are not built again."""
    files = collections.defaultdict(list)
    for number, mutant in mutants.items():
        files[mutant.file].append((number, mutant))
    for path, text in texts.items():
        new = SWITCH + faults.switched(text, files[path]) if files[path] else text
        if (tree.folder / path).read_text() != new:
            (tree.folder / path).write_text(new)


def make(tree, counts, seed, wanted=None):
    if not tree.folder.exists():
        tree.folder.mkdir()
        entries = [e for e in ROOT.iterdir() if e.name not in (".git", ".cache", ".venv-transformers")]
        subprocess.run(["cp", "-a", "--reflink=auto", *entries, tree.folder], check=True)
    configuration = tree.folder / "test/lit.cfg.py"
    if LIT_CONFIG not in configuration.read_text():
        configuration.write_text(configuration.read_text() + LIT_CONFIG)
    found = [m for room, count in counts.items() for m in drawn(room, count, seed, wanted)]
    mutants, texts = dict(enumerate(found, 1)), {m.file: (ROOT / m.file).read_text() for m in found}
    while True:
        write(tree, texts, mutants)
        done = tree.run(["ninja", "-C", "build", "-j2", "-k0", *TARGETS])
        if done.returncode == 0:
            break
        wrong = {(name, int(line)) for name, line in
                 re.findall(rf"^{re.escape(str(ROOT))}/(\S+?):(\d+):\d+: (?:error|note)", done.stdout, re.M)}
        dropped = [n for n, m in mutants.items() if any((m.file, line) in wrong for line in lines_of(m))]
        if not dropped:
            sys.exit(done.stdout[-20000:])
        print(f"{len(dropped)} do not compile", flush=True)
        for number in dropped:
            del mutants[number]
    tree.state.update(mutants={n: m._asdict() for n, m in mutants.items()}, most=len(found), tests={}, verdicts={})
    tree.save()
    print(f"{len(mutants)} mutants")


def cases_of(tree, program):
    output = tree.run([f"build/test/unit/{program}", "--gtest_list_tests"]).stdout
    suite = ""
    for line in output.splitlines():
        if not line.startswith(" "):
            suite = line.split()[0] if line.endswith(".") or "  #" in line else ""
        elif suite:
            yield f"unit/{program}/{suite}{line.split()[0]}"


def command_of(program, cases):
    return [f"build/test/unit/{program}", f"--gtest_filter={':'.join(cases)}", "--gtest_fail_fast"]


def environment():
    path = os.pathsep.join([f"{ROOT}/build/bin", "/usr/lib/llvm-22/bin", os.environ["PATH"]])
    return {"PATH": path, "OPENBLAS_NUM_THREADS": "1"}


def reach(tree, longest):
    """Notes seconds of each test that passes, and numbers of the mutants that it reaches."""
    reached = tree.folder / "build/reached"
    reached.mkdir(exist_ok=True)
    tests, file = tree.state["tests"], reached / "case"

    def note(test, seconds, found):
        tests[test] = {"seconds": round(seconds, 2), "reaches": [n for n, byte in enumerate(found) if byte]}
    for program in PROGRAMS:
        for test in cases_of(tree, program):
            file.write_bytes(bytes(tree.state["most"] + 1))
            begin = time.monotonic()
            done = tree.run(command_of(program, [test.split("/", 2)[2]]), longest * 4,
                            environment() | {"ATTN_REACHED": f"{ROOT}/build/reached/case"})
            if done and done.returncode == 0:
                note(test, time.monotonic() - begin, file.read_bytes())
        tree.save()
    folders = [f"build/test/{f}" for f in FOLDERS]
    tree.run([*LIT, "-a", *folders], None, {
        "ATTN_REACHED_FOLDER": f"{ROOT}/build/reached", "ATTN_LONGEST": str(longest),
        "ATTN_MUTANTS": str(tree.state["most"])})
    for path in reached.rglob("*.passed"):
        test = str(path.relative_to(reached))[:-len(".passed")]
        note(test, float(path.read_text()), path.with_name(path.name[:-6] + "reached").read_bytes())
    tree.save()
    everything = {n for t in tests.values() for n in t["reaches"]}
    print(f"{len(tests)} tests reach {len(everything)} of {len(tree.state['mutants'])} mutants")


def rooms_hold(rooms, name):
    return not rooms or any(name.startswith(room) for room in rooms)


def batches(able, seconds):
    """Tests by turns, the quickest first: some of one program, or of lit. Batches of one kind become larger."""
    sizes, spent = collections.Counter(), 0
    while able and spent < seconds:
        kind = kind_of(able[0][1])
        sizes[kind] = min(max(2, 4 * sizes[kind]), 100 if kind else 6)
        batch = [pair for pair in able if kind_of(pair[1]) == kind][:sizes[kind]]
        able = [pair for pair in able if pair not in batch]
        spent += sum(seconds for seconds, _ in batch)
        yield kind, [name for _, name in batch]


def kind_of(test):
    """The program of a case; "": one of lit."""
    return test.split("/")[1] if test.startswith("unit/") else ""


def killer_of(tree, number, seconds):
    """The test that fails; None: all pass that were run."""
    able = sorted((t["seconds"], name) for name, t in tree.state["tests"].items() if number in t["reaches"])
    on = environment() | {"ATTN_MUTANT": str(number)}
    for program, batch in batches(able, seconds):
        command = [*LIT, "--max-failures=1", *(f"build/test/{t}" for t in batch)]
        if program:
            command = command_of(program, [test.split("/", 2)[2] for test in batch])
        done = tree.run(command, 90, on)
        if done is None:
            return f"{batch[0]} or another, no end"
        if done.returncode != 0:
            failed = re.findall(r"\[  FAILED  \] (\w\S+)" if program else r"attnc :: (\S+)", done.stdout)
            begun = re.findall(r"\[ RUN      \] (\S+)", done.stdout)  # the last one died
            return failed[0] if failed else begun[-1] if begun else batch[0]
    return None


def kill(tree, rooms, seconds, again):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    verdicts = tree.state["verdicts"]
    for number, mutant in tree.state["mutants"].items():
        known = verdicts.get(number)
        if rooms_hold(rooms, mutant["file"]) and (known is None or again and known == "survived"):
            killer = killer_of(tree, int(number), seconds)
            verdicts[number] = killer or "survived"
            print(f"{number} {mutant['file']}:{mutant['line']}: `{mutant['before']}` -> `{mutant['after']}`: "
                  f"{killer or 'SURVIVED'}", flush=True)
            tree.save()


def report(tree):
    known, files = set(known_equivalents()), collections.defaultdict(collections.Counter)
    for number, verdict in tree.state["verdicts"].items():
        mutant = faults.Mutant(**tree.state["mutants"][number])
        kind = "equivalent" if key(mutant) in known else verdict if verdict == "survived" else "killed"
        files[mutant.file][kind] += 1
        if kind == "survived":
            print(f"{number} {mutant.file}:{mutant.line}: `{mutant.before}` -> `{mutant.after}`")

    def say(name, counts):
        able = counts["killed"] + counts["survived"]
        print(f"{name}: {counts['killed']} of {able} killed, {100 * counts['killed'] / max(able, 1):.1f} %")
    for name, counts in sorted(files.items()):
        say(name, counts)
    for room in ROOMS:
        say(room, sum((c for name, c in files.items() if name.startswith(room)), collections.Counter()))
    say("all", sum(files.values(), collections.Counter()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("make", "reach", "kill", "report"))
    p.add_argument("tree")
    p.add_argument("rooms", nargs="*")
    p.add_argument("--count", default="", help="mutants of each room")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--survivors", action="store_true", help="those of survivors.txt")
    p.add_argument("--longest", type=float, default=5, help="seconds of a test")
    p.add_argument("--seconds", type=float, default=60, help="of tests of a mutant")
    p.add_argument("--again", action="store_true")
    args = p.parse_args()
    tree = Tree(args.tree)
    if args.what == "make":
        counts = {room: int(n) for room, n in (pair.split(":") for pair in args.count.split(",") if pair)}
        make(tree, counts or ROOMS, args.seed, set(listed("survivors.txt")) if args.survivors else None)
    elif args.what == "reach":
        reach(tree, args.longest)
    elif args.what == "kill":
        kill(tree, args.rooms, args.seconds, args.again)
    else:
        report(tree)


if __name__ == "__main__":
    main()
