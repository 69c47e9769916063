"""A server on Ray: what clients get, by HTTP and by handles, and what they get when something breaks."""
import concurrent.futures
import json
import os
import random
import shutil
import signal
import socket
import struct
import time
import unittest
import urllib.error
import urllib.request

import attnc
import fixtures
import numpy as np
from attnc import serve
from fixtures import http, tensor


def setUpModule():
    global folder
    folder = fixtures.scratch()
    # Replicas import peers.py.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(fixtures.ROOT / "test/serve"), os.environ.get("PYTHONPATH", "")])
    fixtures.start_ray()
    fixtures.start_http()


def tearDownModule():
    fixtures.stop_ray()
    shutil.rmtree(folder)


def start(test, name, model, **settings):
    """A server that ends with its test, or with its class of tests."""
    from ray import serve as ray_serve

    end = test.addClassCleanup if isinstance(test, type) else test.addCleanup
    end(ray_serve.delete, name)
    return serve.run(serve.Settings(model=str(model), name=name, **settings), route=f"/{name}")


class Tensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = fixtures.bert(folder)
        cls.model = attnc.load(cls.path)
        cls.handle = start(cls, "bert", cls.path, padding=fixtures.PADDING)

    def body(self, ids, mask=None, **more):
        ids = np.asarray(ids)
        mask = np.ones_like(ids) if mask is None else mask
        return {"inputs": [tensor("input_ids", ids), tensor("attention_mask", mask)], **more}

    def test_metadata(self):
        self.assertEqual(json.loads(http("GET", "/bert/v2")[1])["name"], "attnc")
        for path in ("health/live", "health/ready", "models/bert/ready"):
            self.assertEqual(http("GET", f"/bert/v2/{path}"), (200, ""))
        about = json.loads(http("GET", "/bert/v2/models/bert")[1])
        self.assertEqual(about["inputs"][0], {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]})
        self.assertEqual(about["outputs"], [{"name": "last_hidden_state", "datatype": "FP32", "shape": [-1, -1, 32]}])
        self.assertEqual(http("GET", "/bert/v2/models/other")[0], 404)

    def test_answers_are_the_model_s(self):
        def one(n):
            ids = np.random.default_rng(n).integers(1, 50, (1 + n % 3, 1 + n % 17))
            if n % 4:
                feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
                got = self.handle.infer.remote(feeds).result(timeout_s=60)["last_hidden_state"]
            else:
                status, text = http("POST", "/bert/v2/models/bert/infer", self.body(ids, id=str(n)))
                answer = json.loads(text)
                self.assertEqual((status, answer["id"], answer["model_name"]), (200, str(n), "bert"))
                (output,) = answer["outputs"]
                got = np.array(output["data"], np.float32).reshape(output["shape"])
            want = self.model(input_ids=ids, attention_mask=np.ones_like(ids))
            self.assertEqual(got.shape, want.shape)
            return np.abs(got - want).max()

        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            self.assertLess(max(pool.map(one, range(120))), 2e-5)

    def test_one_bad_request_fails_alone(self):
        """Requests that share a run with a token out of range are served."""
        def one(n):
            ids = np.full((1, 6), 70 if n % 7 == 3 else 5)
            return http("POST", "/bert/v2/models/bert/infer", self.body(ids))

        with concurrent.futures.ThreadPoolExecutor(28) as pool:
            for n, (status, text) in enumerate(pool.map(one, range(84))):
                self.assertEqual(status, 400 if n % 7 == 3 else 200, text)
                self.assertIn("out of range: 70" if n % 7 == 3 else "last_hidden_state", text)

    def test_malformed(self):
        good = json.dumps(self.body([[2, 5, 7]])).encode()
        draw = random.Random(5)
        bodies = [b"", b"{", b"[" * 100000, b"\xff\xfe", b"null", b'{"inputs": []}', good.replace(b"INT64", b"FP32"),
                  good.replace(b"input_ids", b"input_id"), good.replace(b"[1, 3]", b"[3, 1, 1]")]
        while len(bodies) < 1000:
            text = bytearray(good)
            for _ in range(draw.randint(1, 4)):
                at = draw.randrange(len(text))
                if draw.random() < 0.5:
                    text[at] = draw.randrange(256)
                else:
                    del text[at : at + draw.randint(1, 20)]
            bodies.append(bytes(text))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda b: http("POST", "/bert/v2/models/bert/infer", b)[0], bodies))
        self.assertLessEqual(set(statuses), {200, 400})
        self.assertGreater(statuses.count(400), 500)
        self.assertEqual(http("POST", "/bert/v2/models/bert/infer", self.body([[2]]))[0], 200)
        self.assertEqual(http("POST", "/bert/v2/models/bert/generate", {})[0], 501)
        self.assertEqual(http("DELETE", "/bert/v2/models/bert")[0], 405)


class Queues(unittest.TestCase):
    """A model that takes 100 ms for any batch: of eight requests at once half have an answer within their 450."""

    def test_batches(self):
        handle = start(self, "slow", __file__, backend="peers:slow", max_rows=16)
        began = time.monotonic()
        answers = [handle.infer.remote({"x": np.full((1, 3), n)}) for n in range(48)]
        got = [answer.result(timeout_s=60) for answer in answers]
        self.assertTrue(all((a["y"] == n).all() for n, a in enumerate(got)))
        self.assertLessEqual(max(a["runs"][0] for a in got), 12, "48 requests share a few runs")
        self.assertLess(time.monotonic() - began, 4)

    def test_deadline(self):
        handle = start(self, "late", __file__, backend="peers:slow", max_rows=1)
        body = {"inputs": [tensor("x", [[1]])], "parameters": {"timeout": 450000}}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: http("POST", "/late/v2/models/late/infer", body), range(8)))
        self.assertEqual({status for status, _ in results}, {200, 504})
        self.assertTrue(all("deadline" in text for status, text in results if status == 504))
        for wrong in (0, -1, "1", 1.5, True):
            body["parameters"] = {"timeout": wrong}
            self.assertEqual(http("POST", "/late/v2/models/late/infer", body)[0], 400)
        self.assertEqual(handle.infer.remote({"x": np.ones((1, 1), int)}).result()["y"].tolist(), [[1]])

    def test_full_queue(self):
        start(self, "full", __file__, backend="peers:slow", max_rows=1, max_ongoing=2, max_queued=2)
        body = {"inputs": [tensor("x", [[1]])]}
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            statuses = list(pool.map(lambda _: http("POST", "/full/v2/models/full/infer", body)[0], range(24)))
        self.assertEqual(set(statuses), {200, 503})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                url = f"http://127.0.0.1:{fixtures.PORT}/full/v2/models/full/infer"
                list(pool.map(lambda _: urllib.request.urlopen(url, json.dumps(body).encode(), 30).read(), range(24)))
        self.assertEqual((refused.exception.code, refused.exception.headers["Retry-After"]), (503, "1"))
        self.assertEqual(http("POST", "/full/v2/models/full/infer", body)[0], 200)

    def test_cancelled_and_large(self):
        handle = start(self, "some", __file__, backend="peers:slow", max_rows=1, max_body=2000)
        answers = [handle.infer.remote({"x": np.full((1, 1), n)}) for n in range(6)]
        for answer in answers[1:5]:
            answer.cancel()
        self.assertEqual(answers[5].result(timeout_s=30)["y"].tolist(), [[5]])
        status, text = http("POST", "/some/v2/models/some/infer", {"inputs": [tensor("x", [list(range(3000))])]})
        self.assertEqual(status, 413)
        self.assertIn("max_body", text)


class Texts(unittest.TestCase):
    def test_embeddings(self):
        path = fixtures.sentences(folder)
        encoder = attnc.TextEncoder(path)
        handle = start(self, "text", path)
        texts = ["the rain", "bread and stock and rivers", "", "a b c d e f g h i j"]
        want = encoder.encode(texts)
        np.testing.assert_allclose(handle.embed.remote(texts).result(timeout_s=60), want, atol=1e-6)
        tensor = {"name": "text", "datatype": "BYTES", "shape": [4], "data": texts}
        status, text = http("POST", "/text/v2/models/text/infer", {"inputs": [tensor]})
        self.assertEqual(status, 200)
        np.testing.assert_allclose(np.array(json.loads(text)["outputs"][0]["data"]).reshape(4, -1), want, atol=1e-6)
        for wrong in ({"data": [1, 2, 3, 4]}, {"data": ["a"]}, {"name": "texts"}, {"datatype": "INT64"}):
            self.assertEqual(http("POST", "/text/v2/models/text/infer", {"inputs": [{**tensor, **wrong}]})[0], 400)
        self.assertEqual(handle.embed.remote([]).result(timeout_s=60).shape, (0, 32))


class Decoders(unittest.TestCase):
    def test_tokens(self):
        handle = start(self, "decoder", fixtures.decoder(folder), slots=4)

        def one(n):
            prompt, count = [n % 23, 3, (5 * n) % 23], 5 + n % 20
            if n % 2:
                got = list(handle.options(stream=True).generate.remote(prompt, max_new_tokens=count))
            else:
                body = {"text_input": prompt, "parameters": {"max_new_tokens": count}}
                got = json.loads(http("POST", "/decoder/v2/models/decoder/generate", body)[1])["tokens"]
            want = fixtures.greedy(prompt, count)
            end = fixtures.folders.EOS
            return got == (want[: want.index(end) + 1] if end in want else want)

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            self.assertTrue(all(pool.map(one, range(36))))
        status, text = http("POST", "/decoder/v2/models/decoder/generate_stream", {"text_input": [3, 4], "parameters": {"max_new_tokens": 4}})
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        self.assertEqual([event["token"] for event in events], fixtures.greedy([3, 4], 4))
        for wrong in ({"text_input": [99]}, {"text_input": "text"}, {"text_input": []}, {"text_input": [1], "parameters": {"beams": 4}},
                      {"text_input": [1], "parameters": {"max_new_tokens": 0}}):
            for how in ("generate", "generate_stream"):
                self.assertEqual(http("POST", f"/decoder/v2/models/decoder/{how}", wrong)[0], 400, (how, wrong))
        # That the model has fewer positions shows when it is beyond them.
        long = {"text_input": [1], "parameters": {"max_new_tokens": 500}}
        self.assertEqual(http("POST", "/decoder/v2/models/decoder/generate", long)[0], 400)
        status, text = http("POST", "/decoder/v2/models/decoder/generate_stream", long)
        self.assertEqual(status, 200)
        self.assertIn("error", json.loads(text.splitlines()[-2][6:]))


class SlowClients(unittest.TestCase):
    """Clients that drip, stall and go hold no place of others."""

    def connect(self, path, body):
        connection = socket.create_connection(("127.0.0.1", fixtures.PORT), timeout=30)
        self.addCleanup(connection.close)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode())
        return connection

    def test_requests(self):
        start(self, "drip", __file__, backend="peers:fast")
        path, body = "/drip/v2/models/drip/infer", json.dumps({"inputs": [tensor("x", [[7, 8]])]}).encode()
        dripping = [self.connect(path, body) for _ in range(50)]
        for at in range(len(body) - 1):
            for connection in dripping[:10]:
                connection.sendall(body[at : at + 1])
            if at % 8 == 0:  # others are served meanwhile
                self.assertEqual(http("POST", path, body)[0], 200)
        for connection in dripping[:5]:
            connection.sendall(body[-1:])
            self.assertIn(b" 200 OK", connection.recv(1 << 16))
        for connection in dripping[5:]:  # in the middle of a request
            connection.close()
        self.assertEqual(http("POST", path, body)[0], 200)

    def test_answers_that_nobody_reads(self):
        start(self, "gone", fixtures.decoder(folder), slots=2)
        body = json.dumps({"text_input": [3, 4], "parameters": {"max_new_tokens": 16}}).encode()
        plain, stream = (f"/gone/v2/models/gone/{name}" for name in ("generate", "generate_stream"))
        want = http("POST", plain, body)
        self.assertEqual(want[0], 200)
        for n in range(40):  # twenty times as many as there are slots
            connection = self.connect((plain, stream)[n % 2], body)
            connection.sendall(body)
            if n % 4 == 1:
                self.assertIn(b" 200 OK", connection.recv(64))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", n % 3 == 0, 0))
            connection.close()
        self.assertEqual(http("POST", plain, body), want)


class Collection(unittest.TestCase):
    def test_models_of_a_folder(self):
        models = folder / "many"
        models.mkdir()
        library = attnc.compile(fixtures.ROOT / "test/e2e/models/bert_sdpa_ts17/model.onnx", models / "m0.so")
        self.assertGreater(library.bytes, 0)
        for n in range(1, 6):
            shutil.copy(models / "m0.so", models / f"m{n}.so")
        (models / "broken.so").write_bytes(b"no library")
        start(self, "many", models, max_models=2)
        listed = json.loads(http("GET", "/many/v2/models")[1])["models"]
        self.assertEqual([each["name"] for each in listed], ["broken", "m0", "m1", "m2", "m3", "m4", "m5"])
        body = {"inputs": [tensor("input_ids", [[2, 5]]), tensor("attention_mask", [[1, 1]])]}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda n: http("POST", f"/many/v2/models/m{n % 6}/infer", body)[0], range(60)))
        self.assertEqual(set(statuses), {200})
        self.assertNotEqual(http("POST", "/many/v2/models/broken/infer", body)[0], 200)
        self.assertEqual(http("POST", "/many/v2/models/m9/infer", body)[0], 404)
        self.assertEqual(http("POST", "/many/v2/models/m0/infer", body)[0], 200)


class Faults(unittest.TestCase):
    def test_killed_replicas(self):
        notes = folder / "noted"
        notes.touch()
        handle = start(self, "fault", notes, kind="tensors", backend="peers:noting", replicas=2)
        pids = fixtures.replicas("fault")
        self.assertEqual(len(pids), 2)
        results = fixtures.under_load(handle, lambda: os.kill(pids[0], signal.SIGKILL))
        failed = fixtures.judge(self, results)
        run = [int(line) for line in notes.read_text().split()]
        self.assertEqual(len(run), len(set(run)), "none is run twice, those of the killed replica neither")
        self.assertLessEqual(results.keys() - failed.keys(), set(run))
        for _ in range(100):
            if len(set(fixtures.replicas("fault")) - set(pids)) == 1:
                break
            time.sleep(0.2)
        else:
            self.fail("Ray started no other replica")
        self.assertEqual(handle.infer.remote({"x": np.ones((1, 1), int)}).result(timeout_s=30)["y"].tolist(), [[1]])

    def restart(self):
        settings = serve.Settings(model=__file__, name="swap", backend="peers:fast", max_rows=32)
        serve.run(settings, route="/swap")

    def test_new_version_under_load(self):
        handle = start(self, "swap", __file__, backend="peers:fast")
        before = set(fixtures.replicas("swap"))
        self.assertEqual(fixtures.judge(self, fixtures.under_load(handle, self.restart)), {})
        self.assertFalse(before & set(fixtures.replicas("swap")), "it is another process")


if __name__ == "__main__":
    unittest.main()
