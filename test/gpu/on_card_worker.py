"""Runs cases of a package beside PyTorch, for on_card.py: a process of its own, which a fault of either side may end.

    on_card_worker.py GROUP --work=DIR --seconds=N

Writes "@" and a JSON object a line: first what PyTorch is here, then the name of each case before its answers. --skip
leaves out the first turns, which an earlier process had.
"""
import argparse
import contextlib
import importlib.util
import itertools
import json
import pathlib
import sys
import time

from on_card_compile import Compiled, load_cases

# Of the group's time, for what compiles long.
SHARES = {"FlexAttention": 0.45, "torch.compile reduce-overhead": 0.4, "torch.compile max-autotune": 0.35}


def say(**facts):
    print("@" + json.dumps(facts), flush=True)


class Budget:
    def __init__(self, seconds):
        self.seconds, self.end, self.used = seconds, time.monotonic() + seconds, {}

    @contextlib.contextmanager
    def spending(self, what):
        """RuntimeError where `what` has had its share."""
        start = time.monotonic()
        if start > self.end or self.used.get(what, 0) > SHARES.get(what, 1) * self.seconds:
            raise RuntimeError("left out for time")
        try:
            yield
        finally:
            self.used[what] = self.used.get(what, 0) + time.monotonic() - start


def is_sound(torch):
    """Whether the device still answers: after a fault every later call fails, of the next cases, too."""
    try:
        torch.cuda.synchronize()
    except Exception:  # noqa: BLE001: whatever it is
        return False
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("group", choices=("attention", "models"))
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--filter", default="")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    if args.group == "attention":
        import on_card_attention as group
    else:
        import on_card_whole as group
    budget = Budget(args.seconds)
    compiled = Compiled(args.work, budget.end)
    if not importlib.util.find_spec("torch"):
        return say(none="no PyTorch here")
    cases = [case for case in load_cases(args.small, args.filter) if case["group"] == args.group]
    turns = list(itertools.product(group.TURNS, cases))[args.skip:]
    import torch
    if args.device == "cuda" and not torch.cuda.is_available():
        return say(none="this PyTorch finds no CUDA device")
    from on_card_timing import HOW, Clock, first_line
    torch.set_grad_enabled(False)
    say(torch=torch.__version__, cuda=torch.version.cuda, how=HOW["device" if args.device == "cuda" else "cpu"])
    clock = Clock(torch, args.device == "cuda")
    for names, case in turns:
        say(begun=case["name"])
        if time.monotonic() > budget.end:
            say(case=case["name"], left_out=f"{', '.join(names)}: left out for time")
            continue
        torch._dynamo.reset()  # it compiles a function for 8 shapes at most, and then no more
        try:
            for answer in group.run_case(case, torch, clock, compiled, budget, names):
                say(**answer)
        except Exception as error:  # noqa: BLE001: the next case may do
            say(case=case["name"], passed=False, error=first_line(error))
        if args.device == "cuda" and not is_sound(torch):
            return 3  # another process goes on
    say(finished=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
