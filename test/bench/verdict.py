"""What ./dev bench models is for: our ratio to the best peer of the same run, against its target, and the picture."""
import statistics

import models

FP32_PEERS = ("onnxruntime", "openvino", "onnxruntime-beam")
BF16_PEERS = ("openvino-bf16",)


def ratios(result, ours, peers):
    """One ratio a round: the median of the peer that is fastest over the whole run, over our median."""
    there = {p: result["sides"][p]["medians_ms"] for p in peers if p in result["sides"]}
    if not there or ours not in result["sides"]:
        return None, []
    best = min(there, key=lambda p: statistics.median(there[p]))
    return best, [t / o for t, o in zip(there[best], result["sides"][ours]["medians_ms"])]


def judge_sides(result, wanted):
    """Adds "targets" to a result, of (side, peers, target): side, peer, ratio, quartiles, target and whether it is met."""
    gflop, result["targets"] = models.MODELS[result["case"].rsplit(".", 1)[0]].gflop, []
    for side, peers, target in wanted:
        best, found = ratios(result, side, peers)
        if target is None or not found:
            continue
        ratio = statistics.median(found)
        low, _, high = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
        result["targets"].append({"side": side, "peer": best, "ratio": ratio, "quartiles": [low, high], "target": target,
                                  "met": ratio >= models.TOLERANCE * target, "gflops": gflop / min(result["sides"][side]["medians_ms"]) * 1e3})


def judge(result):
    model = models.MODELS[result["case"]]
    wanted = [("attnc", FP32_PEERS, model.fp32), ("attnc-bf16", BF16_PEERS, model.bf16)]
    if model.narrow:
        wanted += [(side, FP32_PEERS, target) for side, target in (model.weights or models.WEIGHTS).items()]
    judge_sides(result, wanted)


def print_targets(results):
    print(f"\n{'':30s}{'side':22s}{'best peer':16s}{'ratio':>7s}{'quartiles':>15s}{'target':>8s}{'GFLOP/s':>9s}")
    for result in results:
        for row in result.get("targets", []):
            low, high = row["quartiles"]
            print(f"{result['case']:30s}{row['side']:22s}{row['peer']:16s}{row['ratio']:7.2f}{low:8.2f} –{high:5.2f}{row['target']:8.2f}"
                  f"{row['gflops']:9.0f}  {'met' if row['met'] else 'missed'}")


def draw(results, path):
    """A bar a target, with its quartiles and the target as a line; False where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot
    rows = [(result["case"], row) for result in results for row in result.get("targets", [])]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.3 * max(len(rows), 1)))
    for y, (case, row) in enumerate(reversed(rows)):
        low, high = row["quartiles"]
        axes.barh(y, row["ratio"], color="tab:green" if row["met"] else "tab:red", height=0.7,
                  xerr=[[max(row["ratio"] - low, 0)], [max(high - row["ratio"], 0)]])
        axes.plot([row["target"]] * 2, [y - 0.45, y + 0.45], color="black")
    axes.set_yticks(range(len(rows)), [f"{case}, {row['side']}" for case, row in reversed(rows)])
    axes.axvline(1, color="gray", linestyle=":")
    axes.set_xlabel("times as fast as the best peer (black: target)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return True
