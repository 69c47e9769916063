#!/usr/bin/env python3
"""The long run of all generators, from where it stopped; ./dev campaign calls it.

    campaign.py [--hours=N | --graphs=N] [--only=models] [--branches] [--folder=build/campaign] [--tools=build/bin]
                [--jobs=2]

Generators take turns. FOLDER keeps what was done (state.json), each failure in a folder of its own, those of
models.py with a smaller one beside it (reduced.onnx), and results.md, a page of what was tried and what differs.
Called again it goes on with the next seeds. A commit that changes what is judged, the compiler, the runtime or the
generators, begins a state of its own, from seeds of its own; one of pages or of other tests doesn't.
--graphs counts the models of models.py. --branches draws half of them near those that reached new branches of our passes
(seeds.py); ./dev campaign builds a compiler that counts them.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import model_graphs  # noqa: E402
import models  # noqa: E402
import seeds  # noqa: E402

# A turn of each: its script, models in a turn, and the options that name the compiler.
OTHERS = {"attention": ("attention_graphs.py", 40, "--tools={}"),
          "operators": ("operators.py", 80, "--server={}/onnx-case-server"),
          "programs": ("programs.py", 60, "--server={}/onnx-case-server"),
          "mutations": ("mutations.py", 60, "--server={}/onnx-case-server")}
TURN = 100
JUDGED = ["builders", "compiler", "dialects", "frontends", "passes", "runtime", "tools", "test/fuzz", "test/onnx_backend",
          "cmake", "CMakeLists.txt", "requirements.txt", ":(exclude)*.md", ":(exclude)*.test"]
WHAT = {"models": "models of several layers against float64, ONNX Runtime and -O0", "attention": "attention graphs against float64",
        "operators": "models of one operator against the reference", "programs": "models of several operators against ONNX Runtime",
        "mutations": "spoilt files, which end with a message"}


def judged_commit():
    """The last commit that changed the compiler, the runtime or a generator."""
    done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%H", "--", *JUDGED], capture_output=True, text=True)
    return done.stdout.strip() or models.commit()


class Campaign:
    def __init__(self, args):
        self.args, self.folder = args, args.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "state.json"
        now = judged_commit()
        state = json.loads(self.file.read_text()) if self.file.exists() else {}
        if state.get("commit") != now:
            if state:
                self.file.rename(self.folder / f"state-{state['commit'][:7]}.json")
            state = {"commit": now, "seconds": 0, "first": int(now[:7], 16) * 1000, "next": {}, "counts": {}, "failures": [], "operators": {}}
        self.state, self.start = state, time.monotonic()
        self.branches = seeds.ByBranches(self.folder / f"branches-{now[:7]}.json") if args.branches else None

    def save(self):
        now = time.monotonic()
        self.state["seconds"] += now - self.start
        self.start = now
        for name, text in (("state.json", json.dumps(self.state, indent=1)), ("results.md", self.page())):
            path = self.folder / (name + ".new")
            path.write_text(text + "\n")
            path.rename(self.folder / name)
        if self.branches:
            self.branches.save()

    def seed(self, name):
        return self.state["next"].setdefault(name, self.state["first"])

    def count(self, name, kind, n=1):
        counts = self.state["counts"].setdefault(name, {})
        counts[kind] = counts.get(kind, 0) + n

    def fail(self, name, seed, text, folder):
        self.state["failures"].append({"generator": name, "seed": seed, "text": text[:400], "folder": str(folder)})
        print(f"{name}: seed {seed}: {text[:300]}", flush=True)

    def models_turn(self, most):
        """Up to so many models of several layers."""
        first = self.seed("models")
        numbers = range(first, first + min(TURN, most))
        counting = self.args.branches and self.args.branches.resolve()
        drawn = [self.branches.next(n, lambda seed: model_graphs.make(seed).r.count) for n in numbers] if counting else numbers
        for n, (seed, kind, text, names, branches) in enumerate(models.judged(drawn, self.args, counting)):
            self.count("models", kind)
            if branches is not None:
                self.branches.reached(seed, branches)
            for name in names.split():
                self.state["operators"][name] = self.state["operators"].get(name, 0) + 1
            if kind in models.FAILURES:
                folder = models.folder_of(self.args.failures, kind, seed)
                self.fail("models", seed, f"{kind}: {text}", folder)
                if kind != "generator":
                    print(models.reduce(folder, self.args.tools)[0], flush=True)
            self.state["next"]["models"] = first + n + 1
            if n % 10 == 9:
                self.save()
        self.save()

    def others_turn(self, name):
        script, count, tools = OTHERS[name]
        seed, failures = self.seed(name), self.folder / name
        command = [sys.executable, HERE / script, f"--seed={seed}", f"--count={count}", tools.format(self.args.tools.resolve()),
                   f"--failures={failures}", f"--jobs={self.args.jobs}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=self.folder)
        tried, left = count, 0
        if found := re.search(r"\d+ of (\d+) (?:agree|answered)(?:, (\d+) left open)?, \d+ fail", done.stdout):
            tried, left = int(found[1]), int(found[2] or 0)
        failed = [line for line in done.stdout.splitlines() if re.match(r"FAIL|seed \d+: (wrong|crash|refused)", line)]
        if done.returncode and not failed and not re.search(r"\b0 (fail|wrong)", done.stdout):
            failed = [f"{script} ends with {done.returncode}: {(done.stderr or done.stdout)[-300:]}"]
        self.count(name, "pass", tried - left - len(failed))
        self.count(name, "open", left)
        for line in failed:
            self.count(name, "failed")
            self.fail(name, seed, line, failures)
        self.state["next"][name] = seed + 4 * count + 20  # draws that come to nothing are drawn again
        self.save()

    def graphs(self):
        return sum(self.state["counts"].get("models", {}).values())

    def run(self):
        names = self.args.only or ["models", *OTHERS]
        end = time.monotonic() + self.args.hours * 3600 if self.args.hours else None
        wanted = self.args.graphs
        while (end is None or time.monotonic() < end) and (wanted is None or self.graphs() < wanted):
            for name in names:
                if name == "models":
                    self.models_turn(TURN if wanted is None else wanted - self.graphs())
                elif end is None or time.monotonic() < end:
                    self.others_turn(name)
        self.save()
        tried = sum(sum(counts.values()) for counts in self.state["counts"].values())
        print(f"{self.folder / 'results.md'}: {tried} tried, {len(self.state['failures'])} failures")
        return int(bool(self.state["failures"]))

    def page(self):
        s = self.state
        lines = ["# Campaign", "", f"Commit {s['commit'][:12]}, {s['seconds'] / 3600:.2f} hours with {self.args.jobs} processes.", "",
                 "| generator | what | seeds | tried | agree | left open | failures |", "|-|-|-|-:|-:|-:|-:|"]
        for name, counts in s["counts"].items():
            bad = sum(n for kind, n in counts.items() if kind == "failed" or name == "models" and kind in models.FAILURES)
            left = counts.get("open", 0) + counts.get("void", 0)
            lines.append(f"| {name} | {WHAT[name]} | {s['first']} to {s['next'][name] - 1} | {sum(counts.values())} | "
                         f"{counts.get('pass', 0)} | {left} | {bad} |")
        lines += ["", "Left open: a size has to be known that the model leaves open, or no reference could run the model.", "",
                  f"## {len(s['failures'])} failures", ""]
        lines += [f"- {f['generator']}, seed {f['seed']}: {' '.join(f['text'].split())} (`{f['folder']}`)" for f in s["failures"]]
        lines += ["", f"{self.branches}."] if self.branches else []
        kinds = collections.Counter(s["operators"])
        lines += ["", f"## {len(kinds)} operators in models of several layers", "",
                  ", ".join(f"{name} {n}" for name, n in kinds.most_common())]
        return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how_long = p.add_mutually_exclusive_group()
    how_long.add_argument("--hours", type=float)
    how_long.add_argument("--graphs", type=int)
    p.add_argument("--only", type=lambda text: text.split(","), help="generators, with commas: models, " + ", ".join(OTHERS))
    p.add_argument("--branches", nargs="?", type=pathlib.Path, const=ROOT / ".build/branches/bin/onnx-case-server",
                   metavar="SERVER", help="draw models by the branches that they reach in this case server, built with ATTNC_COVERAGE")
    p.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/campaign")
    p.add_argument("--tools", type=pathlib.Path, default=ROOT / "build/bin")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    args = p.parse_args()
    if not args.hours and not args.graphs:
        p.error("how long is not given: --hours=N or --graphs=N")
    if unknown := set(args.only or []) - {"models", *OTHERS}:
        p.error(f"no generator is called {', '.join(sorted(unknown))}")
    if args.graphs and args.only and "models" not in args.only:
        p.error("--graphs counts models, which --only leaves out: --hours=N")
    if args.branches and not args.branches.exists():
        p.error(f"{args.branches} is not there: ./dev campaign --branches builds it")
    args.failures = args.folder / "models"
    return Campaign(args).run()


if __name__ == "__main__":
    sys.exit(main())
