"""What a run finds, written as it comes; results.md: tests, then a table for each group of what was timed beside PyTorch."""
import json
import os
import threading
import time

# Of the fastest peer's time to ours.
TARGETS = {"attention": (0.8, 1.05), "models": (0.8, 1.2)}
OURS = "attnc"


class Results(dict):
    """Tests are kept as name to what is wrong, "" where nothing is. Each is in results.json at once, so that nothing is lost
    where the time ends."""

    def __init__(self, folder, device):
        super().__init__(device=device, started=time.strftime("%Y-%m-%d %H:%M:%S"), tests={}, times={}, left_out={}, beside={})
        self.folder, self.begun, self.lock = folder, time.monotonic(), threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def save(self):
        with self.lock:
            self["seconds"] = round(time.monotonic() - self.begun, 1)
            for name, text in (("results.json", json.dumps(self, indent=1)), ("results.md", markdown(self))):
                (self.folder / f"{name}.new").write_text(text)
                os.replace(self.folder / f"{name}.new", self.folder / name)

    def test(self, name, text):
        self["tests"][name] = text
        print(f"{name}: {text or 'ok'}", flush=True)
        self.save()

    def left_out(self, name, text):
        self["left_out"][name] = text
        print(f"{name}: {text}", flush=True)
        self.save()

    def failed(self):
        return [name for name, text in self["tests"].items() if text]


def medians(answer, isOurs):
    return {each["side"]: each["ms"] for each in answer.get("times", []) if "ms" in each and each["side"].startswith(OURS) == isOurs}


def ratio(answers):
    """The least of the turns: in each, both sides were timed in the same minute."""
    turns = [(medians(a, True), medians(a, False)) for a in answers]
    return min((min(peers.values()) / min(ours.values()) for ours, peers in turns if ours and peers), default=None)


def cell(answers, side):
    """Its median in ms, and TFLOP/s; of a search for a token. Otherwise why there is none."""
    flops, steps = answers[0].get("flops"), answers[0].get("steps", 1)
    found = [each for a in answers for each in a.get("times", []) if each["side"] == side]
    timed = [each["ms"] for each in found if "ms" in each]
    if not timed:
        return found[-1]["error"].replace("|", "/")[:60] if found else ""
    return f"{min(timed) / steps:.4f}" + (f" ({flops / min(timed) * 1e-9:.0f})" if flops else "")


def verdict(value, first, goal):
    return f"{value:.2f} | " + ("goal met" if value >= goal else "first step met" if value >= first else "below")


def table(cases, first, goal):
    sides = dict.fromkeys(each["side"] for answers in cases.values() for a in answers for each in a.get("times", []))
    lines = [f"| case | {' | '.join(sides)} | to the fastest | {first}x, goal {goal}x | of bound |", "|-" * (len(sides) + 4) + "|"]
    for name, answers in cases.items():
        value = ratio(answers)
        shares = [each["of_bound"] for a in answers for each in (a, *a.get("checks", [])) if each.get("of_bound") is not None]
        steps = answers[0].get("steps", 1)
        cells = [name + (f", a token of {steps}" if steps > 1 else ""), *(cell(answers, side) for side in sides),
                 verdict(value, first, goal) if value else "- | -", f"{max(shares, default=float('nan')):.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def beside(results):
    lines = []
    groups = {"attention": lambda name: name.startswith("attention"), "models": lambda name: not name.startswith("attention")}
    for group, isIn in groups.items():
        timed = {name: answers for name, answers in results["beside"].items()
                 if isIn(name) and any("times" in a for a in answers)}
        if timed:
            lines += ["", f"## {group.capitalize()} beside PyTorch, ms" + (" (TFLOP/s)" if group == "attention" else ""), "",
                      *table(timed, *TARGETS[group])]
    return lines


def markdown(results):
    failed = {name: text for name, text in results["tests"].items() if text}
    torch = results.get("torch", {})
    lines = [f"# GPU tests on {results['device'].get('name')}", "", f"{results['started']}, {results['seconds']} s.",
             "Before: " + ", ".join(f"{key} {value}" for key, value in results["device"].items()) + ".",
             "After: " + ", ".join(f"{key} {value}" for key, value in (results.get("clocks_after") or {}).items()) + "."]
    if torch:
        lines.append(f"PyTorch {torch['torch']}, CUDA {torch['cuda']}. Medians of times {torch['how']}; "
                     "those of searches on the host's clock.")
    lines += ["", f"{len(results['tests']) - len(failed)} of {len(results['tests'])} tests pass.", ""]
    lines += [f"- {name}: {text}" for name, text in failed.items()]
    lines += beside(results)
    if results["left_out"]:
        lines += ["", "## Left out", "", *(f"- {name}: {text}" for name, text in results["left_out"].items())]
    lines += [f"\n## {name}, {entry['flops'] / 1e9:.1f} GF, copies included\n```\n{entry['text']}\n```"
              for name, entry in results["times"].items()]
    return "\n".join(lines) + "\n"
