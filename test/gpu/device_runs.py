"""What check_loops.py and check_searches.py share: runs of tools on the stand-in for libcuda, and what is expected of them."""
import argparse
import os
import pathlib
import re
import subprocess


def arguments(description, short):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--short", action="store_true", help=short)
    parser.add_argument("names", nargs="*")
    return parser.parse_args()


def run(command, **environment):
    """Exit status and all that the command writes."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900,
                          env=dict(os.environ, **environment))
    return done.returncode, done.stdout + done.stderr


def waits_and_graphs(output):
    """How often the host waited and launched a graph, as the stand-in says at the end (count=1), or None."""
    counted = re.search(r"waited (\d+) times, launched (\d+) graphs", output)
    return counted and tuple(map(int, counted.groups()))


class Checks:
    def __init__(self):
        self.runs = self.problems = 0

    def expect(self, holds, *what):
        if not holds:
            self.problems += 1
            print("FAILED:", *what)

    def finish(self):
        print(f"{self.runs} runs, {self.problems} problems")
        return self.problems != 0
