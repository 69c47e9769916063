"""States that a library keeps, and compiled searches."""
import asyncio
import json
import pathlib
import pickle
import re
import shutil
import signal
import tempfile
import unittest
import warnings

import attnc
import models
import numpy as np
import onnxruntime
from attnc import _source

DECODE = models.ROOT / "test/e2e/models/gpt2_decode_ts17/model.onnx"


class States(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = attnc.load(DECODE, own_state=True, threads=1)
        cls.peer = onnxruntime.InferenceSession(str(DECODE), providers=["CPUExecutionProvider"])
        cls.entry = cls.model.entries["main"]
        cls.kept = [input for input, _ in cls.entry.states]
        cls.given = [info for info in cls.entry.inputs if info.name not in cls.kept]
        caches = [info for info in cls.entry.inputs if info.name in cls.kept]
        cls.empty = {info.name: np.zeros([0 if size == "past" else 2 if isinstance(size, str) else size
                                          for size in info.shape], np.float32) for info in caches}

    def feeds(self, step):
        """Inputs of step number `step` (from 0) that the state does not keep: one token for each of two rows."""
        sizes = {"batch": 2, "total": step + 1}
        result = {}
        for info in self.given:
            shape = [sizes.get(size, 1) if isinstance(size, str) else size for size in info.shape]
            ids = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) * 7 + 3 * step
            result[info.name] = (np.ones(shape) if "mask" in info.name else
                                 np.full(shape, step) if "position" in info.name else ids % 40).astype(info.dtype)
        return result

    def expected(self, steps):
        caches = dict(self.empty)
        for step in range(steps):
            outputs = self.peer.run(None, {**self.feeds(step), **caches})
            by_name = dict(zip([o.name for o in self.peer.get_outputs()], outputs))
            caches = {input: by_name[output] for input, output in self.entry.states}
            yield by_name

    def test_steps(self):
        state = self.model.state()
        self.assertIsInstance(state, attnc.State)
        self.assertEqual(len(state), 0)
        for step, expected in enumerate(self.expected(12)):
            logits = self.model.step(state, **self.feeds(step))
            np.testing.assert_allclose(logits, expected[self.entry.outputs[0].name], atol=2e-5, rtol=0)
            self.assertEqual(len(state), step + 1)
        for input, output in self.entry.states:
            np.testing.assert_allclose(state[input], expected[output], atol=2e-5, rtol=0)
        with self.assertRaisesRegex(attnc.InvalidArgument, "state expects an attnc.State, as Model.state\\(\\) makes it, not NoneType"):
            self.model.step(None, **self.feeds(0))

    def test_back_and_forth(self):
        state = self.model.state("main")
        first = [self.model.step(state, **self.feeds(step)) for step in range(5)]
        copy = state.clone()
        state.truncate(3)
        self.assertEqual((len(state), len(copy)), (3, 5))
        again = self.model.run(self.feeds(3), state=state)
        np.testing.assert_array_equal(next(iter(again.values())), first[3])
        np.testing.assert_array_equal(self.model.step(copy, **self.feeds(5)).shape, first[4].shape)
        state.reset()
        self.assertEqual(len(state), 0)
        np.testing.assert_array_equal(self.model.step(state, **self.feeds(0)), first[0])
        other = self.model.state()
        for name in self.kept:
            other[name] = state[name]
        np.testing.assert_array_equal(self.model.step(other, **self.feeds(1)), first[1])

    def test_gather(self):
        state = self.model.state()
        for step in range(3):
            self.model.step(state, **self.feeds(step))
        before = {name: state[name] for name in self.kept}
        state.gather([1, 1, 0])
        for name in self.kept:
            np.testing.assert_array_equal(state[name], before[name][[1, 1, 0]])
        state.gather(np.array([2], np.int32), dim="batch")
        for name in self.kept:
            np.testing.assert_array_equal(state[name], before[name][:1])
        wrong = ([[0]], [0.5], "0", None, [None], np.array([0, (1 << 64) - 1], np.uint64), [1 << 70])
        for rows, message in (([1], "1"), ([-2], "-2"), *((rows, "whole numbers of 64 bits, one per row") for rows in wrong)):
            with self.assertRaisesRegex(attnc.InvalidArgument, message):
                state.gather(rows)
        with self.assertRaisesRegex(attnc.Error, "other"):
            state.gather([0], dim="other")

    def test_what_does_not_fit(self):
        state = self.model.state()
        self.model.step(state, **self.feeds(0))
        with self.assertRaisesRegex(attnc.InvalidArgument, "2"):
            state.truncate(2)
        for wrong in (0.5, "1", None):
            with self.assertRaisesRegex(attnc.InvalidArgument, f"whole number, not {wrong!r}"):
                state.truncate(wrong)
            with self.assertRaisesRegex(attnc.InvalidArgument, f"whole number, not {wrong!r}"):
                state.limit(wrong)
        for wrong in (1 << 63, -(1 << 63) - 1):
            for change in (state.truncate, state.limit):
                with self.assertRaisesRegex(attnc.InvalidArgument, f"number of 64 bits, not {wrong}"):
                    change(wrong)
        for most in ((1 << 63) - 1, -(1 << 63)):
            with self.assertRaisesRegex(attnc.InvalidArgument, f"{most}"):
                state.truncate(most)
        state.gather(np.array([1, 0], np.uint64))
        with self.assertRaisesRegex(attnc.NotFound, "other"):
            state["other"] = np.zeros(1, np.float32)
        with self.assertRaisesRegex(attnc.InvalidArgument, "float64"):
            state[self.kept[0]] = np.zeros(self.empty[self.kept[0]].shape)
        state.limit(2)
        self.model.step(state, **self.feeds(1))
        with self.assertRaisesRegex(attnc.InvalidArgument, "2"):
            self.model.step(state, **self.feeds(2))
        with self.assertRaisesRegex(attnc.InvalidArgument, f"no input '{self.kept[0]}'"):
            self.model.step(state, **self.feeds(2), **{self.kept[0]: self.empty[self.kept[0]]})
        with self.assertRaisesRegex(attnc.InvalidArgument, "belongs to another model"):
            attnc.load(DECODE, own_state=True, threads=1).step(state, **self.feeds(2))
        with self.assertRaisesRegex(attnc.Unsupported, "own_state=True"):
            attnc.load(models.scaled()).state()
        with self.assertRaisesRegex(attnc.InvalidArgument, "cache.* not 'int8'"):
            attnc.load(DECODE, own_state=True, cache="int8")


class NarrowStates(States):
    """The same with caches in 8 bits: rows of a head and the scale of each."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        library = pathlib.Path(scratch.name) / "narrow.so"
        attnc.compile(DECODE, library, own_state=True, cache="int8")
        cls.model = attnc.load(library, threads=1)
        cls.entry = cls.model.entries["main"]
        cls.empty = {name: np.zeros([*value.shape[:-1], value.shape[-1] + 4], np.int8) for name, value in cls.empty.items()}
        cls.wide = {name: np.zeros([*value.shape[:-1], value.shape[-1] - 4], np.float32) for name, value in cls.empty.items()}

    def test_steps(self):
        state, caches = self.model.state(), dict(self.wide)
        for step in range(12):
            logits = self.model.step(state, **self.feeds(step))
            outputs = self.peer.run(None, {**self.feeds(step), **caches})
            by_name = dict(zip([o.name for o in self.peer.get_outputs()], outputs))
            caches = {input: by_name[output] for input, output in self.entry.states}
            expected = by_name[self.entry.outputs[0].name]
            np.testing.assert_allclose(logits, expected, atol=0.05 * np.abs(expected).max(), rtol=0)
        first, _ = self.entry.states[0]  # later layers are made from what attentions gave
        rows = state[first]
        self.assertEqual((rows.dtype, rows.shape), (np.int8, (*caches[first].shape[:-1], caches[first].shape[-1] + 4)))
        scales = np.ascontiguousarray(rows[..., -4:]).view(np.float32)
        top = np.abs(caches[first]).max(-1, keepdims=True)
        self.assertTrue((np.abs(rows[..., :-4] * scales - caches[first]) <= top / 254 * 1.001).all())


class Folders(unittest.TestCase):
    """As the hub has them; the files are a date translator's."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def put(self, entry, name):
        (self.folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(models.DATES / f"{entry}.onnx", self.folder / name)

    def test_parts(self):
        self.put("encode", "onnx/encoder_model.onnx")
        self.put("step", "decoder_with_past_model.onnx")
        self.put("step", "onnx/decoder_model.onnx")
        self.put("step", "decoder_model_merged.onnx")  # not wanted beside the two
        self.put("step", "decoder_model_quantized.onnx")
        search = attnc.Beam(5, init="encoder_model", step="decoder_with_past_model", bos=0, eos=1, max_length=16,
                            length_penalty=1.0)  # fmt: skip
        model = attnc.load(self.folder, search=search)
        parts = ["encoder_model", "decoder_model", "decoder_with_past_model"]
        self.assertEqual(list(model.entries), [*parts, "generate"])
        want = np.load(models.DATES / "expected.npz")
        tokens = model.generate(**{name: want[name].astype(np.int64) for name in ("source", "lengths")})["tokens"][:, 0]
        np.testing.assert_array_equal(tokens, want["tokens"][:, : tokens.shape[1]])

    def test_a_model_alone(self):
        self.put("encode", "onnx/model.onnx")
        self.put("step", "onnx/decoder_model.onnx")
        self.assertEqual(list(attnc.load(str(self.folder)).entries), ["main"])
        self.assertEqual(pickle.loads(pickle.dumps(attnc.load(self.folder))).path, attnc.load(self.folder).path)

    def test_whole(self):
        """Of a folder that a search is to be made of, attnc finds the parts; what it reads there names the library."""
        self.put("encode", "onnx/encoder_model.onnx")
        self.put("step", "onnx/decoder_model.onnx")

        def opened(search):
            return _source.open_source(self.folder, self.folder, search)[0]

        self.assertEqual(opened(attnc.Beam(4)).arguments(), [str(self.folder)])
        self.assertEqual(len(opened(attnc.Greedy(step="decoder_model")).arguments()), 2)
        before = opened(attnc.Beam(4)).digest()
        (self.folder / "generation_config.json").write_text('{"eos_token_id": 2}')
        self.assertNotEqual(opened(attnc.Beam(4)).digest(), before)

    def test_none(self):
        self.put("step", "other.onnx")
        for search in (None, attnc.Greedy()):
            with self.assertRaisesRegex(attnc.InvalidArgument, "none of model.onnx, encoder_model.onnx.*optimum-cli export onnx"):
                attnc.load(self.folder, search=search)


class Searches(unittest.TestCase):
    def test_generate(self):
        want = np.load(models.DATES / "expected.npz")
        search = attnc.Beam(5, init="encode", bos=0, eos=1, max_length=16, length_penalty=1.0, alignment="alignment")
        entries = {"encode": models.DATES / "encode.onnx", "step": models.DATES / "step.onnx"}
        model = attnc.load(entries, search=search, threads=2)
        feeds = {name: want[name].astype(np.int64) for name in ("source", "lengths")}
        found = model.generate(**feeds)
        tokens = found["tokens"][:, 0]
        np.testing.assert_array_equal(tokens, want["tokens"][:, : tokens.shape[1]])
        np.testing.assert_allclose(found["scores"][:, 0], want["scores"], atol=1e-4, rtol=0)
        # The same search is not compiled again; another one is, with the rest of it as before.
        np.testing.assert_array_equal(model.generate(search=attnc.Beam(5, length_penalty=1.0), **feeds)["tokens"], found["tokens"])
        greedy = model.generate(search=attnc.Greedy(), **feeds)
        self.assertGreater((greedy["tokens"].reshape(len(tokens), -1)[:, 0] == tokens[:, 0]).mean(), 0.9)
        self.assertLess(greedy["tokens"].ndim, found["tokens"].ndim + 1)
        with self.assertRaisesRegex(attnc.InvalidArgument, "'source'.*missing"):
            model.generate(lengths=feeds["lengths"])

    def test_notes(self):
        """What a search took each input for is no warning."""
        search = attnc.Greedy(init="encode", bos=0, eos=1, max_length=16)
        entries = {"encode": models.DATES / "encode.onnx", "step": models.DATES / "step.onnx"}
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("error")
            done = attnc.compile(entries, pathlib.Path(folder) / "m.so", search=search)
            attnc.load(entries, search=search, cache=False)
        self.assertRegex("\n".join(done.notes), "the search around 'step' gives tokens to ")

    def test_attention(self):
        """What its tokens attended to: as the step's own output says, for each hypothesis."""
        want = np.load(models.DATES / "expected.npz")
        feeds = {name: want[name][:3].astype(np.int64) for name in ("source", "lengths")}
        search = attnc.Beam(4, n_best=2, init="encode", bos=0, eos=1, max_length=16, alignment="alignment")
        entries = {"encode": models.DATES / "encode.onnx", "step": models.DATES / "step.onnx"}
        maps = attnc.load(entries, search=search, expose_attention="all").attention(entry="generate", **feeds)
        (node,) = set(maps) - {"alignment"}
        self.assertEqual(maps[node].shape[:3], (3, 2, 1))
        np.testing.assert_allclose(maps[node][:, :, 0], maps["alignment"], atol=1e-5)
        data = json.loads(re.search(r'id="data">(.*?)</script>', maps.page(), re.S)[1])
        layers = {one["name"]: one for one in data["layers"]}
        self.assertEqual(layers[node]["shape"], [6, *maps[node].shape[2:]])
        self.assertEqual(layers[node]["hypotheses"], 2)
        self.assertIn("hypothesis", maps.page())

    def test_sampling_by_the_run(self):
        """Settings that a run gives or leaves out: those of the compile draw the same."""
        want = np.load(models.DATES / "expected.npz")
        feeds = {name: want[name].astype(np.int64) for name in ("source", "lengths")}
        entries = {"encode": models.DATES / "encode.onnx", "step": models.DATES / "step.onnx"}
        fixed = dict(init="encode", bos=0, eos=1, max_length=16)

        def generate(search, **settings):
            return attnc.load(entries, search=search, threads=1).generate(**feeds, **settings)["tokens"]

        by_run = attnc.Sample(seed="input", temperature="input", top_k="input", top_p="input", **fixed)
        given = dict(seed=np.array([7]), temperature=np.array([3], np.float32), top_k=np.array([9]),
                     top_p=np.array([0.75], np.float32))  # fmt: skip
        infos = attnc.load(entries, search=by_run, threads=1).entries["generate"].inputs
        self.assertEqual({info.name for info in infos if info.optional}, set(given))
        self.assertIn("temperature: float32 [?] optional", map(str, infos))
        drawn = generate(by_run, **given)
        np.testing.assert_array_equal(drawn, generate(attnc.Sample(seed=7, temperature=3, top_k=9, top_p=0.75, **fixed)))
        self.assertFalse(np.array_equal(drawn, generate(by_run, **{**given, "seed": np.array([8])})))
        np.testing.assert_array_equal(generate(by_run), generate(attnc.Sample(**fixed)))
        with self.assertRaisesRegex(attnc.InvalidArgument, "'temperature' is 0, expected a number from 1e-6 to 1e6"):
            generate(by_run, temperature=np.array([0], np.float32))
        with self.assertRaisesRegex(attnc.InvalidArgument, "'source'.*is missing"):
            attnc.load(entries, search=by_run, threads=1).generate(lengths=feeds["lengths"])

    def test_settings_as_numbers(self):
        """A number of Python is an array of one."""
        want = np.load(models.DATES / "expected.npz")
        feeds = {name: want[name].astype(np.int64) for name in ("source", "lengths")}
        entries = {"encode": models.DATES / "encode.onnx", "step": models.DATES / "step.onnx"}
        search = attnc.Sample(seed="input", temperature="input", top_k="input", top_p="input", init="encode", bos=0, eos=1,
                              max_length=16)  # fmt: skip
        model = attnc.load(entries, search=search, threads=1)
        arrays = dict(seed=np.array([7]), temperature=np.array([3], np.float32), top_k=np.array([9]),
                      top_p=np.array([0.75], np.float32))  # fmt: skip
        expected = model.generate(**feeds, **arrays)["tokens"]
        numbers = dict(seed=7, temperature=3, top_k=9, top_p=0.75)
        for settings in (numbers, {**arrays, "seed": 7}, {**numbers, "top_p": arrays["top_p"]}):
            np.testing.assert_array_equal(model.generate(**settings, **feeds)["tokens"], expected)
        self.assertFalse(np.array_equal(model.generate(**feeds, **{**numbers, "seed": -8})["tokens"], expected))
        for name, value, said in (("seed", 0.5, "'seed' is of type float"),
                                  ("seed", 1 << 63, f"'seed' is {1 << 63}, which is outside"),
                                  ("temperature", "warm", "'temperature' is of type str"),
                                  ("temperature", 0, "'temperature' is 0, expected a number from 1e-6 to 1e6")):  # fmt: skip
            with self.subTest(name=name, value=value), self.assertRaisesRegex(attnc.InvalidArgument, said):
                model.generate(**{**feeds, **numbers, name: value})

    def test_streaming(self):
        want = np.load(models.DATES / "expected.npz")
        feeds = {name: want[name].astype(np.int64)[:5] for name in ("source", "lengths")}
        entries = {"encode": models.DATES / "encode.onnx", "step": models.DATES / "step.onnx"}
        model = attnc.load(entries, search=attnc.Greedy(init="encode", bos=0, eos=1, max_length=16), threads=1)
        found = model.generate(**feeds)

        def tokens_of(calls):
            rows = [[] for _ in found["lengths"]]
            for row, step, token in calls:
                self.assertEqual(step, len(rows[row]))
                rows[row].append(token)
            return rows

        expected = [tokens[:length].tolist() for tokens, length in zip(found["tokens"], found["lengths"], strict=True)]
        calls = []
        for run in (lambda call: model.generate(**feeds, on_token=call),
                    lambda call: model.run(feeds, entry="generate", on_token=call),
                    lambda call: asyncio.run(model.arun(entry="generate", **feeds, on_token=call))):  # fmt: skip
            calls.clear()
            again = run(lambda *call: calls.append(call))
            np.testing.assert_array_equal(again["tokens"], found["tokens"])
            self.assertEqual(tokens_of(calls), expected)

        def third(row, step, token):
            calls.append((row, step, token))
            return step == 2

        calls.clear()
        with self.assertRaisesRegex(attnc.Cancelled, "entry 'generate' was ended by on_token at token 2 of row 0"):
            model.generate(**feeds, on_token=third)
        self.assertEqual(tokens_of(calls)[0], expected[0][:3])

        def broken(row, step, token):
            raise KeyError(token)

        with self.assertRaises(KeyError):
            model.generate(**feeds, on_token=broken)
        np.testing.assert_array_equal(model.generate(**feeds)["tokens"], found["tokens"])
        with self.assertRaisesRegex(attnc.InvalidArgument, "on_token expects a function of row, step and token, not 3"):
            model.generate(**feeds, on_token=3)
        with self.assertRaisesRegex(attnc.InvalidArgument, "on_token needs attnc.Greedy or attnc.Sample"):
            model.generate(search=attnc.Beam(3), **feeds, on_token=third)

    def test_interrupted_streaming(self):
        """Ctrl-C while a function of the caller has the token, which calls a model itself, ends both runs; so a second
        time. A handler that returns does not: each token comes once."""
        want = np.load(models.DATES / "expected.npz")
        feeds = {name: want[name].astype(np.int64)[:5] for name in ("source", "lengths")}
        entries = {"encode": models.DATES / "encode.onnx", "step": models.DATES / "step.onnx"}
        model = attnc.load(entries, search=attnc.Greedy(init="encode", bos=0, eos=1, max_length=16), threads=1)
        inner = attnc.load(models.scaled(), threads=1)
        a = np.ones((1, 4), np.float32)
        calls, handled = [], []

        def call(row, step, token):
            calls.append((row, step))
            inner(a, a)
            if len(calls) in (4, 6):
                signal.raise_signal(signal.SIGINT)

        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        for _ in range(2):
            calls.clear()
            with self.assertRaises(KeyboardInterrupt):
                model.generate(**feeds, on_token=call)
            self.assertEqual(len(calls), 4)
        signal.signal(signal.SIGINT, lambda *_: handled.append(1))
        calls.clear()
        found = model.generate(**feeds, on_token=call)
        self.assertEqual((handled, len(calls), len(set(calls))), ([1, 1], found["lengths"].sum(), len(calls)))

    def test_without_a_search(self):
        model = attnc.load(models.scaled())
        with self.assertRaisesRegex(attnc.InvalidArgument, "no entry 'generate': attnc.load\\(..., search=attnc.Beam"):
            model.generate(a=np.zeros((1, 4), np.float32))
        with self.assertRaisesRegex(attnc.InvalidArgument, "compiled already: give search="):
            model.generate(search=attnc.Greedy())

    def test_flags(self):
        beam = attnc.Beam(4, bos=0, eos=[1, 2], max_length="dim:source+5", length_penalty=0.6, gnmt=True, n_best=2,
                          early_stop=True, states={"a": "b"}, ended="shrink")
        self.assertEqual(beam.flags(), ["--generate=beam:4", "--bos=0", "--eos=1,2", "--max-length=dim:source+5",
                                        "--state=a:b", "--length-penalty=gnmt:0.6", "--n-best=2", "--ended=shrink",
                                        "--early-stop"])
        beam = attnc.Beam(3, min_length=2, alignment="w", coverage_penalty=0.2)
        self.assertEqual(beam.flags(), ["--generate=beam:3", "--min-length=2", "--alignment=w", "--coverage-penalty=0.2"])
        greedy = attnc.Greedy(eos=3).completed_by(attnc.Beam(4, bos=1, eos=2, length_penalty=1.0))
        self.assertEqual(greedy, attnc.Greedy(bos=1, eos=3))
        self.assertIsInstance(greedy, attnc.Search)
        self.assertEqual(attnc.Sample(seed="input", temperature="input").flags(),
                         ["--generate=sample", "--sample-seed=input", "--temperature=input"])  # fmt: skip
        self.assertEqual(attnc.Sample(top_k=3, seed=1, bos="input").flags(),
                         ["--generate=sample", "--bos=input", "--sample-seed=1", "--top-k=3"])


if __name__ == "__main__":
    unittest.main()
