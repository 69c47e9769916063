"""Compiles the graphs of a package and starts on_card_worker.py for a group of cases, again where a fault ended it; collects
what it says."""
import importlib.util
import json
import subprocess
import sys
import threading
import time

import on_card_attention
import on_card_whole
from on_card_check import shortened
from on_card_compile import HERE, Compiler, load_cases

GROUPS = {"attention": on_card_attention, "models": on_card_whole}

GRACE = 5  # seconds behind the end, in which a worker finishes what it has begun
SILENCE = {"attention": 30, "models": 90}  # seconds: PyTorch compiles whole models for longer


def architecture(device):
    """That of the best code for the card: wgmma is for compute capability 9.0 alone."""
    return "sm_90a" if device.get("compute_cap", "9.0") == "9.0" else "sm_80"


def begin_compiling(args, work, device, end):
    """In the background, while the compiled tests run."""
    compiler = Compiler(args.attnc.resolve(), work, architecture(device), end)
    if args.attnc.exists() and importlib.util.find_spec("torch"):
        for case in load_cases(args.small, args.filter):
            for variant in GROUPS[case["group"]].variants(case):
                compiler.ask(*variant)
    return compiler


def said_by(command, end, silence, log):
    """What a worker says until it ends; one that goes on beyond `end`, or says nothing for so long, is killed. PyTorch needs
    the machine's libstdc++, so the package's libraries are not on its path."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, errors="replace") as process:
        def wait():
            timer = threading.Timer(max(0, min(silence, end + GRACE - time.monotonic())), process.kill)
            timer.start()
            return timer
        killer = wait()
        for line in process.stdout:
            killer.cancel()
            killer = wait()
            if line.startswith("@"):
                yield json.loads(line[1:])
        killer.cancel()


def tell(results, answer):
    """One answer into tests, what was left out, and what is compared in time."""
    name = answer["case"]
    if "left_out" in answer:
        return results.left_out(name, answer["left_out"])
    if "error" in answer:
        results.test(name, answer["error"])
    elif "passed" in answer:
        wrong = [f"{each['variant']}: {each['error'] or 'off by %.2f of the bound' % each['of_bound']}"
                 for each in answer.get("checks", []) if not each["passed"]]
        if not answer["passed"]:
            wrong = wrong or [f"off by {answer['of_bound']:.2f} of the bound"]
        results.test(name, "; ".join(wrong))
    results["beside"].setdefault(name, []).append(answer)


def run_group(group, results, args, work, end):
    if not args.attnc.exists():
        return results.left_out(f"{group} beside PyTorch", f"no compiler at '{args.attnc}': give --attnc")
    begun, isOver = [], False
    with open(work / f"{group}.log", "w") as log:
        while not isOver and time.monotonic() < end:
            command = [sys.executable, "-W", "ignore", HERE / "on_card_worker.py", group, f"--work={work}",
                       f"--seconds={end - time.monotonic():.0f}", f"--skip={len(begun)}",
                       f"--device={args.device}", f"--filter={args.filter}"] + ["--small"] * args.small
            count = len(begun)
            for facts in said_by(list(map(str, command)), end, SILENCE[group], log):
                if "begun" in facts:
                    begun.append(facts["begun"])
                elif "case" in facts:
                    tell(results, facts)
                elif "torch" in facts:
                    results["torch"] = facts
                elif "none" in facts:
                    results.left_out(f"{group} beside PyTorch", facts["none"])
                isOver = isOver or "none" in facts or "finished" in facts
            if not isOver and len(begun) == count:
                results.test(f"{group} beside PyTorch", f"the worker ended before its first case: {tail_of(work / f'{group}.log')}")
                return
            if not isOver and time.monotonic() < end and not results["tests"].get(begun[-1]):
                results.test(begun[-1], f"it ended the process: {tail_of(work / f'{group}.log')}")
    if not isOver:
        results.left_out(f"{group} beside PyTorch" + (f", from {begun[-1]} on" if begun else ""), "left out for time")


def tail_of(path):
    return shortened(path.read_text(errors="replace"))
