"""Runs the models of a package: compares each variant with PyTorch in float64, then times them in turns."""
import on_card_models as forms
from on_card_compile import weights_of
from on_card_library import Library
from on_card_timing import Side, first_line

# Of f32, as the stored references have it; of bf16, as a multiple of what PyTorch's own bf16 is off at most.
ABSOLUTE, RELATIVE, MULTIPLE = 1e-4, 1e-3, 2.0
# Graph, products, whether they are the library's own; the first is compared alone.
VARIANTS = (("f32", "f32", False), ("bf16", "bf16", False), ("bf16", "bf16", True), ("f32", "bf16", False))
# Peers of all models, and then what compiles for minutes.
TURNS = (("PyTorch eager", "torch.compile reduce-overhead"), ("torch.compile max-autotune",))


def variants(case):
    return [(case, *each) for each in dict.fromkeys((graph, precision) for graph, precision, _ in VARIANTS)]


def outputs_of(case, library):
    """In the order of the form."""
    wanted = ["tokens"] if case["form"] == "gpt2_greedy" else library.output_names
    return [library.outputs[name] for name in wanted]


def share_of_bound(case, precision, outputs, wanted, narrow):
    """Largest difference as a share of what is allowed there. Tokens are equal in f32; in bf16 they are not judged: where two
    scores are close, another one is right, too, and all that follow differ. The step itself is."""
    if case["form"] == "gpt2_greedy":
        equal = outputs[0].shape == wanted[0].shape and bool((outputs[0] == wanted[0]).all())
        return 0.0 if equal or precision == "bf16" and outputs[0].shape == wanted[0].shape else float("inf")
    worst = 0.0
    for got, want, other in zip(outputs, wanted, narrow, strict=True):
        if got.shape != want.shape:
            return float("inf")
        if precision == "f32":
            allowed = ABSOLUTE + RELATIVE * want.abs()
        else:
            allowed = MULTIPLE * (other.double() - want).abs().max() + 2.0**-8 * want.abs()
        worst = max(worst, float(((got.double() - want).abs() / allowed).nan_to_num(float("inf")).max()))
    return worst


class Ours:
    def __init__(self, case, torch, clock, compiled, graph, precision, own, device):
        name = f"attnc, {graph} graph" + ", own products" * own
        self.side, self.precision, self.library = Side(name, None, blocks=True), precision, None
        dtype = torch.bfloat16 if graph == "bf16" else torch.float32
        try:
            given = forms.inputs(case, torch, dtype, device)
            if case["form"] == "gpt2_greedy":
                given.pop("token")  # --bos
            if clock.on_card:
                torch.cuda.synchronize()  # the library works on another stream
            entry = "generate" if case["form"] == "gpt2_greedy" else None
            self.library = Library(compiled.library(case, graph, precision), given, torch, entry, clock.handle, own)
            self.side.call = self.library.run
            clock.prepare(self.side)
        except Exception as error:  # noqa: BLE001: the other variants go on
            self.side.error = first_line(error)

    def answer(self, case, wanted, narrow):
        share = None if self.side.error else share_of_bound(case, self.precision, outputs_of(case, self.library), wanted, narrow)
        answer = {"variant": f"{self.side.name}, {self.precision} products", "of_bound": share, "error": self.side.error,
                  "passed": share is not None and share <= 1}
        if share is not None and case["form"] == "gpt2_greedy":
            tokens = self.library.outputs["tokens"]
            answer["equal_tokens"] = float((tokens == wanted[0]).double().mean()) if tokens.shape == wanted[0].shape else 0.0
        return answer


def peers(names, case, torch, clock, arrays, device, budget):
    for name in names:
        side = Side(name, None)
        try:
            with budget.spending(name):
                side.call = forms.forward(case, torch, arrays, torch.bfloat16, device, forms.PEERS[name])
                clock.prepare(side)
        except Exception as error:  # noqa: BLE001: the others go on
            side.error = first_line(error)
        yield side


def compare(case, torch, arrays, device, ours):
    wanted = forms.forward(case, torch, arrays, torch.float64, device)()
    narrow = forms.forward(case, torch, arrays, torch.bfloat16, device)()
    checks = [each.answer(case, wanted, narrow) for each in ours]
    return {"checks": checks, "passed": all(each["passed"] for each in checks)}


def run_case(case, torch, clock, compiled, budget, names):
    """Answers: the comparison first, as compiling a peer may take all the time that is left."""
    device = "cuda" if clock.on_card else "cpu"
    arrays = list(weights_of(case, compiled.folder(case)))
    isFirst = names == TURNS[0]
    ours = [Ours(case, torch, clock, compiled, *each, device) for each in VARIANTS[0 if isFirst else 1:]]
    facts = {"case": case["name"], "steps": case.get("steps", 1)}
    if isFirst:
        yield facts | compare(case, torch, arrays, device, ours)
    sides = [each.side for each in ours if each.precision == "bf16"]
    sides += peers(names, case, torch, clock, arrays, device, budget)
    yield facts | {"times": clock.measure(sides, "wall" if "steps" in case else "device", budget.end)}
    for each in ours:
        if each.library:
            each.library.close()
