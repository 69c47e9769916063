"""Models that the tests of attnc.serve share, and one Ray for all of a test's servers."""
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("test/python", "test/e2e/hub", "tools/demo"):
    sys.path.insert(0, str(ROOT / folder))
# On a busy machine a proxy takes longer to start than the five seconds that Ray Serve waits for it.
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S="60")

import folders  # noqa: E402  test/e2e/hub
import numpy as np  # noqa: E402
import text_encoder  # noqa: E402  test/python

PADDING = {"input_ids": 0, "attention_mask": 0}


def scratch():
    return pathlib.Path(tempfile.mkdtemp(prefix="attnc-serve-"))


def bert(folder):
    """A BERT of tensors, input_ids and attention_mask [batch, seq]."""
    return pathlib.Path(shutil.copy(ROOT / "test/e2e/models/bert_sdpa_ts17/model.onnx", folder / "bert.onnx"))


def sentences(folder):
    """A sentence encoder, 24 positions."""
    (folder / "text").mkdir()
    text_encoder.write_folder(folder / "text")
    return folder / "text"


def decoder(folder):
    """A decoder with a cache as the hub has it: one file."""
    folders.write(folder / "decoder", "single", False)
    return folder / "decoder"


def greedy(tokens, count):
    """What the decoder generates, by NumPy in float64."""
    tokens, new = list(tokens), []
    for _ in range(count):
        scores = folders.decoder(np.array([tokens]), np.ones((1, len(tokens)), np.int64))
        new.append(int(scores[0].argmax()))
        tokens.append(new[-1])
    return new


def under_load(handle, act, threads=6):
    """Requests x = their number from several threads while ``act()`` breaks something and for two seconds more. Each
    one's answer, or the exception in its place, by number."""
    stop, results, numbers = threading.Event(), {}, itertools.count(1)

    def ask():
        while not stop.is_set():
            number = next(numbers)
            try:
                results[number] = handle.infer.remote({"x": np.full((1, 2), number)}).result(timeout_s=60)["y"]
            except Exception as error:
                results[number] = error

    workers = [threading.Thread(target=ask) for _ in range(threads)]
    for worker in workers:
        worker.start()
    time.sleep(1)
    act()
    time.sleep(2)
    stop.set()
    for worker in workers:
        worker.join(90)
        assert not worker.is_alive(), "a request without an answer"
    return results


def judge(test, results, least=100):
    """Each request has its own answer, or was refused because a replica died."""
    failed = {number: r for number, r in results.items() if isinstance(r, Exception)}
    for number in results.keys() - failed.keys():
        test.assertTrue((results[number] == number).all(), "another one's answer")
    kinds = {type(error).__name__ for error in failed.values()}
    test.assertLessEqual(kinds, {"ActorDiedError", "ActorUnavailableError", "RayActorError"})
    test.assertGreater(len(results) - len(failed), least)
    print(f"{test.id()}: {len(results)} requests, {len(failed)} refused")
    return failed


PORT = 8000


def start_ray(cpus=8):
    import ray

    # A Unix socket's name has 107 bytes; the tests' own folders are longer.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    ray.init(num_cpus=cpus, include_dashboard=False, object_store_memory=100 << 20, logging_level="error",
             log_to_driver=False, _temp_dir=folder)


def start_http():
    """Ray's HTTP on a port of this test's own."""
    global PORT
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        PORT = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})


def _ancestors(pid):
    while pid > 1:
        # The name in parentheses may hold anything; the parent is the second field behind it.
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


def replicas(name):
    """Processes of a model's replicas that this program's own Ray started: another Ray's are not ours to end."""
    title, found = f"ray::ServeReplica:{name}:".encode(), []
    for process in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and (process / "cmdline").read_bytes().startswith(title):
                if os.getpid() in _ancestors(int(process.name)):
                    found.append(int(process.name))
    return found


def stop_ray():
    import ray
    from ray import serve

    serve.shutdown()
    ray.shutdown()


def http(method, path, body=None, timeout=30, headers={}):
    """Status and text."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def tensor(name, array, datatype="INT64"):
    array = np.asarray(array)
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.ravel().tolist()}
