"""The parts of attnc.serve without a server: batches, rows, the protocol, models of a folder, the decoder."""
import asyncio
import concurrent.futures
import json
import random
import shutil
import threading
import time
import unittest
from types import SimpleNamespace
from unittest import mock

import attnc
import fixtures
import numpy as np
from attnc.serve import Decoder, Request, Settings, _batches, _decoder, _models, _protocol, _tensors
from pydantic import ValidationError


class FakeItem:
    def __init__(self, length, rows=1, key=None):
        self.length, self.rows, self.key = length, rows, key


class Batches(unittest.TestCase):
    def check(self, items, tokens, rows, padding):
        batches = _batches.divide(items, tokens, rows, padding)
        self.assertCountEqual([id(i) for b in batches for i in b], [id(i) for i in items], "each item once")
        for batch in batches:
            total = sum(i.rows * i.length for i in batch)
            self.assertEqual(len({i.key for i in batch}), 1)
            if len(batch) > 1:
                self.assertLessEqual(_batches.padded(batch), tokens)
                self.assertLessEqual(sum(i.rows for i in batch), rows)
                self.assertLessEqual(_batches.padded(batch) - total, padding)
        return batches

    def test_limits(self):
        draw = random.Random(1)
        for _ in range(300):
            items = [FakeItem(draw.randint(1, 200), draw.choice((1, 1, 1, 3)), draw.choice((None, "k"))) for _ in range(40)]
            self.check(items, draw.choice((50, 400, 4000)), draw.choice((1, 7, 64)), draw.choice((0, 8, 100)))

    def test_similar_lengths_share(self):
        lengths = [10, 100, 11, 99, 10]
        batches = self.check([FakeItem(n) for n in lengths], 1000, 64, 2)
        self.assertEqual([[i.length for i in b] for b in batches], [[10, 10, 11], [99, 100]])

    def test_padding_costs_no_more_than_runs(self):
        """Beside the best division of what waits, where a run costs as much as 8 tokens."""
        draw = random.Random(2)
        for count in (4, 16, 32):
            lengths = sorted(min(2 + int(draw.lognormvariate(2.4, 0.8)), 122) for _ in range(count))
            best = [0]
            for end in range(1, count + 1):
                best.append(min(best[begin] + 8 + (end - begin) * lengths[end - 1] for begin in range(end)))
            batches = self.check([FakeItem(n) for n in lengths], 4096, 64, 8)
            self.assertLessEqual(sum(8 + _batches.padded(batch) for batch in batches), 1.05 * best[-1])

    def test_full_batch(self):
        self.assertEqual(len(self.check([FakeItem(10) for _ in range(8)], 80, 64, 0)), 1)
        self.assertEqual(len(self.check([FakeItem(10) for _ in range(9)], 80, 64, 0)), 2)
        self.assertEqual(len(self.check([FakeItem(10) for _ in range(9)], 1000, 8, 0)), 2)
        self.assertEqual(len(self.check([FakeItem(500), FakeItem(500)], 80, 64, 0)), 2, "too large alone: served alone")


class BatcherTest(unittest.TestCase):
    class Meters:
        model = "m"

        def count(self, *_):
            pass

        observe = count

    def test_one_bad_request_is_alone_with_its_error(self):
        for kind in (ValueError, attnc.InvalidArgument):

            def run(values, **_):
                if 3 in values:
                    raise kind("three")
                return [10 * value for value in values]

            async def ask():
                batcher = _batches.Batcher(Settings(model=__file__, wait=0.05), run, self.Meters())
                items = [_batches.Item(n, time.monotonic() + 9) for n in range(5)]
                return await asyncio.gather(*map(batcher.submit, items), return_exceptions=True)

            answers = asyncio.run(ask())
            self.assertIsInstance(answers.pop(3), kind)
            self.assertEqual(answers, [0, 10, 20, 40])


class RowsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = fixtures.scratch()
        cls.model = attnc.load(fixtures.bert(cls.folder))
        cls.path = cls.model.path

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def rows(self, **padding):
        return _tensors.Rows(self.model, Settings(model=self.path, padding=padding))

    def request(self, rows, length, seed=0):
        ids = np.random.default_rng(seed).integers(1, 50, (rows, length))
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

    def items(self, rows, requests):
        async def make():
            return [rows.item(request, time.monotonic() + 9) for request in requests]

        return asyncio.run(make())

    def test_padded_rows_are_those_of_a_run_alone(self):
        rows = self.rows(**fixtures.PADDING)
        requests = [self.request(r, n, n) for r, n in ((1, 5), (3, 9), (2, 1), (1, 9))]
        self.assertEqual(len({i.key for i in self.items(rows, requests)}), 1)
        for request, answer in zip(requests, rows.run(requests)):
            alone = self.model.run(request)["last_hidden_state"]
            self.assertEqual(answer["last_hidden_state"].shape, alone.shape)
            np.testing.assert_allclose(answer["last_hidden_state"], alone, atol=2e-5)

    def test_without_padding_lengths_do_not_mix(self):
        items = self.items(self.rows(), [self.request(1, 5), self.request(2, 5), self.request(1, 6)])
        self.assertEqual(items[0].key, items[1].key)
        self.assertNotEqual(items[0].key, items[2].key)

    def test_refusals(self):
        rows, good = self.rows(), self.request(2, 4)
        for change, text in (
            ({"ids": good["input_ids"]}, "no input 'ids'"),
            ({"input_ids": good["input_ids"].astype(np.int32)}, "is int32 of rank 2"),
            ({"input_ids": good["input_ids"][0]}, "of rank 1"),
            ({"input_ids": good["input_ids"][:1]}, "'input_ids' and 'attention_mask' differ in dimension 'batch': 1 and 2"),
            ({"input_ids": good["input_ids"][:, :3]}, "'input_ids' and 'attention_mask' differ in dimension 'seq': 3 and 4"),
        ):
            with self.subTest(text), self.assertRaisesRegex(attnc.InvalidArgument, text):
                self.items(rows, [{**good, **change}])
        with self.assertRaisesRegex(attnc.InvalidArgument, "input 'attention_mask' is missing"):
            self.items(rows, [{"input_ids": good["input_ids"]}])
        for padding, text in (({"x": 0}, "no input 'x'"), ({"input_ids": 0}, "'attention_mask' has the dimension 'seq'")):
            with self.assertRaisesRegex(attnc.InvalidArgument, text):
                self.rows(**padding)


class Protocol(unittest.TestCase):
    def test_round_trip(self):
        for dtype, datatype in _protocol._TYPES.items():
            array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
            data = array.tolist()
            for given in (data, array.ravel().tolist()):
                body = {"inputs": [{"name": "x", "datatype": datatype, "shape": [2, 3], "data": given}]}
                arrays, rest = _protocol.read_request(json.loads(json.dumps(body)))
                self.assertEqual(arrays["x"].dtype, dtype)
                np.testing.assert_array_equal(arrays["x"], array)
            answer = _protocol.write_answer("m", {"x": array}, {**rest, "id": "7"})
            self.assertEqual(answer["id"], "7")
            self.assertEqual(_protocol.read_request({"inputs": answer["outputs"]})[0]["x"].tolist(), array.tolist())

    def test_malformed(self):
        good = {"name": "x", "datatype": "INT64", "shape": [2], "data": [1, 2]}
        cases = [[], None, 3, {}, {"inputs": 3}, {"inputs": [3]}, {"inputs": [good, good]}, {"inputs": [good], "parameters": 3},
                 {"inputs": [good], "outputs": [3]}, {"inputs": [good], "outputs": "x"}]
        for change in ({"name": 3}, {"datatype": "INT63"}, {"datatype": None}, {"shape": [3]}, {"shape": [-2]}, {"shape": 2},
                       {"shape": ["2"]}, {"data": 3}, {"data": ["a", "b"]}, {"data": [[1], [2, 3]]}, {"data": [1.5, 2]},
                       {"data": [1 << 70, 1]}, {"data": [None, 1]}, {"data": [{}, 1]}, {"datatype": "UINT8", "data": [1, 300]},
                       {"datatype": "BYTES"}, {"shape": [1 << 50]}, {"shape": [2, 1 << 39]}):
            cases.append({"inputs": [{**good, **change}]})
        for case in cases:
            with self.subTest(str(case)[:90]), self.assertRaises(attnc.InvalidArgument) as caught:
                _protocol.read_request(case)
            self.assertLessEqual(str(caught.exception).count("input 'x'"), 1)

    def test_no_nan_in_json(self):
        with self.assertRaisesRegex(attnc.InvalidArgument, "NaN"):
            _protocol.write_answer("m", {"x": np.array([np.nan], np.float32)}, {})
        with self.assertRaisesRegex(attnc.InvalidArgument, "no output 'y', but x"):
            _protocol.write_answer("m", {"x": np.zeros(1)}, {"outputs": [{"name": "y"}]})

    def test_statuses(self):
        for error, status in ((attnc.NoSuchFile("x"), 404), (attnc.InvalidArgument("x"), 400), (attnc.OutOfRange("x"), 400),
                              (attnc.DeadlineExceeded("x"), 504), (attnc.Internal("x"), 500), (ValueError("x"), 500)):
            self.assertEqual(_protocol.status_of(error), status)


class SettingsTest(unittest.TestCase):
    def test_refusals(self):
        for given, text in (({"model": "/nowhere"}, "no such file"), ({"model": __file__, "kind": "text"}, "needs a folder"),
                            ({"model": __file__, "cpus": 0}, "greater than or equal to 1"), ({"model": __file__, "cpu": 1}, "cpu"),
                            ({"model": __file__, "name": "a/b"}, "pattern")):
            with self.subTest(text), self.assertRaisesRegex(ValidationError, text):
                Settings(**given)


class ModelsTest(unittest.TestCase):
    def setUp(self):
        self.folder = fixtures.scratch()
        for n in range(5):
            (self.folder / f"m{n}.so").write_bytes(bytes(100))
        (self.folder / "f").mkdir()
        (self.folder / "f/model.onnx").write_bytes(b"")
        self.made, self.alive = [], set()

    def tearDown(self):
        shutil.rmtree(self.folder)

    def models(self, **limits):
        test = self

        class Made:
            def __init__(self, name, path):
                self.name = name
                test.made.append(name)
                test.alive.add(name)

            def __del__(self):
                test.alive.discard(self.name)

        return _models.Models(Settings(model=str(self.folder), **limits), Made)

    def test_names(self):
        models = self.models()
        self.assertEqual(models.names(), ["f", "m0", "m1", "m2", "m3", "m4"])
        for name in ("m9", "", ".", "..", "../m0", "m0.so", "f/model", "a\0b"):
            with self.subTest(name), self.assertRaises(attnc.NoSuchFile):
                models.take(name)
        self.assertEqual(self.made, [])

    def test_least_recently_used_goes(self):
        models = self.models(max_models=2)
        for name in ("m0", "m1", "m0", "m2"):
            models.take(name)
            models.give_back(name)
        self.assertEqual(models.loaded(), ["m0", "m2"])
        self.assertEqual(self.alive, {"m0", "m2"})
        self.assertEqual(self.made, ["m0", "m1", "m2"])

    def test_bytes(self):
        models = self.models(max_bytes=250)
        for n in range(5):
            models.take(f"m{n}")
            models.give_back(f"m{n}")
        self.assertEqual(models.loaded(), ["m3", "m4"])

    def test_held_ones_stay(self):
        models = self.models(max_models=1)
        held = models.take("m0")
        for name in ("m1", "m2"):
            models.take(name)
            models.give_back(name)
        self.assertIs(models.take("m0"), held)
        self.assertEqual(models.loaded(), ["m0"])

    def test_cancelled_while_it_opens(self):
        opening, go = threading.Event(), threading.Event()

        def make(name, path):
            opening.set()
            go.wait(20)
            return name

        models = _models.Models(Settings(model=str(self.folder), max_models=1), make)

        async def use(name):
            async with _models.held(models, name) as model:
                return model

        async def leave():
            task = asyncio.ensure_future(use("m0"))
            await asyncio.to_thread(opening.wait, 20)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            go.set()
            return await use("m1")

        self.assertEqual(asyncio.run(leave()), "m1")
        models.take("m2")
        self.assertEqual(models.loaded(), ["m2"], "nobody holds those before")

    def test_bytes_are_those_of_the_library(self):
        """An ONNX file may have its weights beside it."""
        library = self.folder / "m0.so"

        def make(name, path):
            return SimpleNamespace(model=SimpleNamespace(path=str(library)))

        (self.folder / "g").mkdir()
        (self.folder / "g/model.onnx").write_bytes(b"")
        models = _models.Models(Settings(model=str(self.folder), max_bytes=150), make)
        for name in ("f", "g"):
            models.take(name)
            models.give_back(name)
        self.assertEqual(models.loaded(), ["g"])

    def test_opened_once(self):
        models = self.models(max_models=8)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            got = list(pool.map(lambda n: models.take(f"m{n % 5}"), range(200)))
        self.assertEqual(sorted(self.made), [f"m{n}" for n in range(5)])
        self.assertEqual(len({id(each) for each in got}), 5)


class DecoderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = fixtures.scratch()
        cls.model = attnc.load(fixtures.decoder(cls.folder) / "model.onnx", own_state=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def decoder(self, **options):
        made = Decoder(self.model, **options)
        self.addCleanup(made.close)
        return made

    def test_sequences_that_come_and_go(self):
        for slots, chunk in ((1, 1), (4, 3), (8, 16)):
            decoder, draw = self.decoder(slots=slots, chunk=chunk), random.Random(slots)
            prompts = [([draw.randrange(23) for _ in range(draw.randint(1, 20))], draw.randint(1, 40)) for _ in range(40)]

            def one(case):
                time.sleep(0.02 * random.random())
                return decoder.generate(Request(case[0], max_new_tokens=case[1]))

            with threads(12) as pool:
                for case, got in zip(prompts, pool.map(one, prompts)):
                    self.assertEqual(got, fixtures.greedy(*case), case)
            if slots > 1:
                self.assertLess(decoder.steps, sum(count for _, count in prompts), "sequences share steps")

    def test_forgotten_columns(self):
        """Sequences without a gap: what the first ones wrote is dropped under the later ones."""
        decoder = self.decoder(slots=2, chunk=4)
        cases = [([n % 23, 3], 40 + n % 7) for n in range(24)]
        with threads(2) as pool:
            got = list(pool.map(lambda c: decoder.generate(Request(c[0], max_new_tokens=c[1])), cases))
        self.assertEqual(got, [fixtures.greedy(*case) for case in cases])
        self.assertLess(decoder._columns, 300)

    def test_end_token_deadline_and_leaving(self):
        decoder = self.decoder(slots=2)
        free = fixtures.greedy([3, 4], 12)
        got = decoder.generate(Request([3, 4], max_new_tokens=12, end_tokens=[free[4]]))
        self.assertEqual(got, free[: free.index(free[4]) + 1])
        with self.assertRaises(attnc.DeadlineExceeded):
            decoder.generate(Request([3], max_new_tokens=50, deadline=time.monotonic() - 1))
        ended, seen = threading.Event(), []

        def on_token(token, error):
            seen.append(token)
            if token is None:
                seen.append(type(error))
                ended.set()
            elif len(seen) == 3:
                leave()

        leave = decoder.submit(Request([3], max_new_tokens=50), on_token)
        self.assertTrue(ended.wait(20))
        self.assertEqual(seen[-1], attnc.Cancelled)
        self.assertEqual(decoder.generate(Request([3, 4], max_new_tokens=12)), free, "the batch is in order")

    def test_one_that_fails_ends_alone(self):
        decoder, choose = self.decoder(slots=2), _decoder._Row.choose

        def failing(row, logits):
            return choose(row, np.full_like(logits, np.nan) if row.request.seed == 7 and row.made == 3 else logits)

        with mock.patch.object(_decoder._Row, "choose", failing), threads(2) as pool:
            good = pool.submit(decoder.generate, Request([3, 4], max_new_tokens=40))
            bad = pool.submit(decoder.generate, Request([3, 4], max_new_tokens=40, temperature=1.0, seed=7))
            self.assertEqual(good.result(), fixtures.greedy([3, 4], 40))
            with self.assertRaisesRegex(ValueError, "not finite, after 3 tokens"):
                bad.result()

    def test_draws(self):
        decoder = self.decoder(slots=4)
        one = [decoder.generate(Request([3], max_new_tokens=20, temperature=2.0, seed=s)) for s in (1, 1, 2)]
        self.assertEqual(one[0], one[1])
        self.assertNotEqual(one[0], one[2])
        self.assertEqual(decoder.generate(Request([3, 4], max_new_tokens=9, temperature=2.0, top_k=1)), fixtures.greedy([3, 4], 9))
        # The first token's frequencies are the weights that the model gives it.
        scores = fixtures.folders.decoder(np.array([[3, 4]]), np.ones((1, 2), np.int64))[0] / 3
        weights = np.exp(scores - scores.max())
        order = np.argsort(-weights)
        kept = order[: int(np.searchsorted(np.cumsum(weights[order]) / weights.sum(), 0.8)) + 1]
        want = np.zeros_like(weights)
        want[kept] = weights[kept] / weights[kept].sum()
        count = np.bincount([decoder.generate(Request([3, 4], max_new_tokens=1, temperature=3.0, top_p=0.8, seed=s))[0]
                             for s in range(600)], minlength=len(want)) / 600
        self.assertLess(np.abs(count - want).max(), 5 * 0.5 / 600**0.5)
        self.assertEqual(count[want == 0].sum(), 0)

    def test_refusals(self):
        decoder = self.decoder(places=16)
        for given, text in (({"tokens": []}, "at least one token"), ({"tokens": [23]}, "vocabulary of 23"),
                            ({"tokens": [-1]}, "from 0 on"), ({"tokens": [1], "max_new_tokens": 17}, "16 positions"),
                            ({"tokens": [1], "temperature": float("nan")}, "temperature"),
                            ({"tokens": [1], "temperature": 1e-320}, "temperature"), ({"tokens": [1], "seed": -1}, "seed"),
                            ({"tokens": [1], "top_p": 0}, "top_p")):
            request = Request(**{"max_new_tokens": 4, **given})
            for refuse in (decoder.check, decoder.generate):
                with self.subTest(text), self.assertRaisesRegex(attnc.InvalidArgument, text):
                    refuse(request)
        fixtures.folders.write(self.folder / "pair", "past", True)
        with self.assertRaisesRegex(attnc.Unsupported, "encoder_hidden_states.* is not served"):
            Decoder(attnc.load(self.folder / "pair/decoder_with_past_model.onnx", own_state=True))


class NarrowDecoderTest(unittest.TestCase):
    """A decoder whose library keeps its cache in 8 bits, beside the same in f32."""

    def test_sequences_that_come_and_go(self):
        folder, draw = fixtures.scratch(), random.Random(4)
        self.addCleanup(shutil.rmtree, folder)
        cases = [([draw.randrange(40) for _ in range(draw.randint(1, 12))], 8) for _ in range(30)]
        written = []
        for cache in ("model", "int8"):
            library = folder / f"{cache}.so"
            attnc.compile(fixtures.ROOT / "test/e2e/models/gpt2_decode_ts17/model.onnx", library, own_state=True, cache=cache)
            decoder = Decoder(attnc.load(library), slots=4)
            self.addCleanup(decoder.close)
            with threads(8) as pool:
                written.append(list(pool.map(lambda c: decoder.generate(Request(c[0], max_new_tokens=c[1])), cases)))
        self.assertEqual({tensor.dtype for tensor in decoder._kept}, {"int8"})
        # A close decision may fall otherwise.
        self.assertGreater(sum(wide == narrow for wide, narrow in zip(*written)), 24)


def threads(count):
    return concurrent.futures.ThreadPoolExecutor(count)


if __name__ == "__main__":
    unittest.main()
