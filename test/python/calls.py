"""Calls of a model: arrays of every kind in and out, what does not fit, timeouts, and what a model says of itself."""
import importlib.util
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import attnc
import attnc_runtime
import models
import numpy as np
from onnx import TensorProto


class Foreign:
    """An array of another library: of it only DLPack is known."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return Foreign

    @staticmethod
    def from_dlpack(tensor):
        return Foreign(np.from_dlpack(tensor))


def rows(n=3, start=0):
    return np.arange(start, start + 4 * n, dtype=np.float32).reshape(n, 4)


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = attnc.load(models.scaled(), threads=1)

    def test_by_place_and_by_name(self):
        a, b = rows(), rows(start=5)
        expected = 2 * a + b
        for y in (self.model(a, b), self.model(a=a, b=b), self.model(a, b=b), self.model.run({"b": b, "a": a})["y"],
                  self.model.entries["main"](a, b), self.model.run({"a": a, "b": b}, entry="main")["y"]):
            np.testing.assert_array_equal(y, expected)
        self.assertIsInstance(y, np.ndarray)
        self.assertTrue(y.flags.writeable and y.flags.c_contiguous)

    def test_numbers_of_python(self):
        """An input that may have one element takes an int or a float."""
        a = np.arange(4, dtype=np.float32)
        noisy = attnc.load(models.noisy(), threads=1)
        self.assertEqual(list(map(str, noisy.inputs)), ["a: float32 [n]", "seed: int64 [?] optional"])
        drawn = noisy(a, seed=7)
        np.testing.assert_array_equal(drawn, noisy(a, np.array([7])))
        np.testing.assert_array_equal(noisy(a), noisy(a, seed=0))
        np.testing.assert_array_equal(noisy(a, seed=-1), noisy(a, seed=np.array([-1])))
        self.assertFalse(np.array_equal(drawn, noisy(a)))
        self.assertTrue(np.all(drawn - a < 1) and np.all(drawn >= a))
        scalars = attnc.load(models.scalars(), threads=1)
        np.testing.assert_array_equal(scalars(a, 2.5, -3), a * 2.5 - 3)
        np.testing.assert_array_equal(scalars(a, 2, True), a * 2 + 1)
        self.check("input 'i' is 128, which is outside -128 to 127", lambda: scalars(a, 1.0, 128))
        self.check("input 'seed' is 36893488147419103232, which is outside", lambda: noisy(a, seed=2**65))
        self.check("'i' is of type float; give an int, a NumPy array", lambda: scalars(a, 1.0, 1.0))
        self.check("'b' is of type float; give a NumPy array", lambda: self.model(rows(), 1.0))

    def test_results_outlive_the_model(self):
        model = attnc.load(models.scaled(3.0))
        y = model(rows(), rows())
        del model
        np.testing.assert_array_equal(y, 4 * rows())

    def test_closed(self):
        a, b = rows(), rows()
        with attnc.load(models.scaled(3.0), threads=1) as model:
            y = model(a, b)
            entry = model.entries["main"]
        self.assertEqual((model.threads, model.outputs[0].name), (1, "y"))
        for late in (lambda: model(a, b), lambda: model.run({"a": a, "b": b}), lambda: entry(a, b), lambda: entry.run({}),
                     lambda: model.set_weight("w", a)):
            self.check("the model is closed", late)
        model.close()  # no harm
        np.testing.assert_array_equal(y, 4 * rows())
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(a, b), y)
        with self.assertRaisesRegex(ZeroDivisionError, "by zero"), attnc.load(models.scaled(3.0), threads=1) as model:
            1 / 0
        self.check("the model is closed", lambda: model(a, b))

    def test_closing_lets_calls_end(self):
        model = attnc.load(models.endless(), threads=1, sessions=1)
        feeds = {"count": np.array(1 << 23), "x": np.ones((64, 64), np.float32)}
        cancel, ended = attnc.Cancel(), []

        def call(**options):
            try:
                model.run(feeds, **options)
            except attnc.Error as error:
                ended.append(type(error))

        running, waiting = threading.Thread(target=call, kwargs=dict(cancel=cancel)), threading.Thread(target=call)
        running.start()
        while not _is_busy(model, feeds):
            time.sleep(0.01)
        waiting.start()
        time.sleep(0.1)
        model.close()
        waiting.join()
        self.assertEqual(ended, [attnc.InvalidArgument])
        self.assertTrue(running.is_alive())
        cancel.request()
        running.join()
        self.assertEqual(ended, [attnc.InvalidArgument, attnc.Cancelled])

    def test_closing_while_inputs_are_read(self):
        model, given = attnc.load(models.scaled(3.0), threads=1), rows()

        class Closing:
            def __dlpack_device__(self):
                return given.__dlpack_device__()

            def __dlpack__(self, **options):
                model.close()
                return given.__dlpack__(**options)

        self.check("the model is closed", lambda: model(Closing(), Closing()))
        self.check("the model is closed", lambda: model(given, given))

    def test_closing_while_a_weight_is_replaced(self):
        """The replacement waits for a run, which ends after the model is closed."""
        model = attnc.load(models.endless(), sessions=1)
        threads = model.threads
        feeds = {"count": np.array(1 << 23), "x": np.ones((64, 64), np.float32)}
        cancel, [weight] = attnc.Cancel(), model.weights

        def call():
            with self.assertRaises(attnc.Cancelled):
                model.run(feeds, cancel=cancel)

        running = threading.Thread(target=call)
        replacing = threading.Thread(target=lambda: model.set_weight(weight.name, np.zeros(weight.shape, np.float32)))
        running.start()
        while not _is_busy(model, feeds):
            time.sleep(0.01)
        self.assertEqual(model.threads, threads)
        replacing.start()
        time.sleep(0.1)
        model.close()
        self.assertEqual(model.threads, threads)
        cancel.request()
        running.join()
        replacing.join()

    def test_layouts(self):
        wide = np.arange(48, dtype=np.float32).reshape(6, 8)
        b = rows()
        backwards, apart, transposed = wide[2::-1, 3::-1], wide[::2, ::2], wide[:4, :3].T
        same = np.broadcast_to(np.float32(1), (3, 4))
        frozen = rows()
        frozen.flags.writeable = False
        for a in (backwards, apart, transposed, same, frozen, memoryview(rows())):
            np.testing.assert_array_equal(self.model(a, b), 2 * np.asarray(a) + b)
        np.testing.assert_array_equal(self.model(rows(0), rows(0)), rows(0))

    def test_kind_of_the_first_input(self):
        y = self.model(Foreign(rows()), rows())
        self.assertIsInstance(y, Foreign)
        np.testing.assert_array_equal(y.array, 3 * rows())
        self.assertIsInstance(self.model(rows(), Foreign(rows())), np.ndarray)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_torch(self):
        import torch
        y = self.model(torch.ones(3, 4), rows())
        self.assertIsInstance(y, torch.Tensor)
        np.testing.assert_array_equal(y.numpy(), 2 + rows())
        self.check("input 'a': its __dlpack__ says: .*grad", lambda: self.model(torch.ones(3, 4, requires_grad=True), rows()))

    def test_outputs(self):
        model = attnc.load(models.two_outputs())
        a = np.array([1, 2, 3], np.float32)
        y = model(a)
        self.assertEqual(list(y), ["twice", "minus"])
        np.testing.assert_array_equal(y["minus"], -a)
        out = np.empty(3, np.float32)
        y = model.run({"a": a}, out={"minus": out})
        self.assertIs(y["minus"], out)
        np.testing.assert_array_equal(out, -a)
        np.testing.assert_array_equal(y["twice"], 2 * a)
        self.check("no output 'other'; the outputs are twice: float32 \\[n\\], minus: float32 \\[n\\]",
                   lambda: model.run({"a": a}, out={"other": out}))
        self.check("output 'minus'.*(size|shape)", lambda: model.run({"a": a}, out={"minus": np.empty(4, np.float32)}))
        self.check("'minus' has strides", lambda: model.run({"a": a}, out={"minus": np.empty(6, np.float32)[::2]}))
        out.flags.writeable = False
        self.check("'minus'.*read-?only", lambda: model.run({"a": a}, out={"minus": out}))

    def test_types(self):
        for dtype, name in ((TensorProto.DOUBLE, "float64"), (TensorProto.FLOAT16, "float16"), (TensorProto.INT8, "int8"),
                            (TensorProto.INT32, "int32"), (TensorProto.INT64, "int64"), (TensorProto.UINT8, "uint8"),
                            (TensorProto.BOOL, "bool"), (TensorProto.BFLOAT16, "bfloat16")):
            model = attnc.load(models.typed(dtype))
            self.assertEqual(model.inputs[0].dtype, name)
            if name == "bfloat16":
                import ml_dtypes
                x = np.array([1, 0, 3], ml_dtypes.bfloat16)
            else:
                x = np.array([1, 0, 3]).astype(name)
            y = model(x)
            self.assertEqual(y.dtype, x.dtype)
            np.testing.assert_array_equal(y, np.concatenate([x, x]))

    def check(self, message, call, kind=attnc.InvalidArgument):
        with self.assertRaisesRegex(kind, message) as caught:
            call()
        self.assertIsInstance(caught.exception, attnc.Error)
        return caught.exception

    def test_what_does_not_fit(self):
        model, a, b = self.model, rows(), rows()
        self.check("input 'b' \\(float32 \\[n, 4\\]\\) is missing", lambda: model(a))
        self.check("has no input 'c'; its inputs are a: float32 \\[n, 4\\], b: float32", lambda: model(a=a, b=b, c=b))
        self.check("takes 2 inputs, not 3", lambda: model(a, b, b))
        self.check("'a' is given by its place and by its name", lambda: model(a, a=a, b=b))
        self.check("'b' is of type float64, the model has float32", lambda: model(a, b.astype(np.float64)))
        self.check("'b' has rank 1, in the model 2", lambda: model(a, b[0]))
        self.check("'b'.*dimension 1.* 3.* 4", lambda: model(a, b[:, :3]))
        self.check("'b'.*dimension 0 \\('n'\\) has size 2, but 3 in input 'a'", lambda: model(a, b[:2]))
        self.check("'b' is of type list; give a NumPy array", lambda: model(a, [1.0]))
        self.check("'b'.*elements of type '>f', big-endian; give .astype", lambda: model(a, b.astype(">f4")))
        self.check("'b'.*elements of type 'O'", lambda: model(a, b.astype(object)))
        odd = np.zeros((3, 4), np.dtype([("x", np.float32), ("y", np.uint8)]))["x"]
        self.check("'b'.*stride of 5 bytes", lambda: model(a, odd))
        self.check("'b'.*not aligned", lambda: model(a, np.zeros(49, np.uint8)[1:].view(np.float32).reshape(3, 4)))
        self.check("no entry 'other'; the model has main", lambda: model.run({}, entry="other"), attnc.NotFound)
        released = memoryview(rows())
        released.release()
        self.check("'b'.*released", lambda: model(a, released))
        np.testing.assert_array_equal(model(a, b), 3 * a)  # nothing is broken by what failed

    def test_arguments_of_other_kinds(self):
        model, feeds = self.model, {"a": rows(), "b": rows()}
        self.check("has no input 'a.udcff'", lambda: model.run({"a\udcff": rows()}))
        self.check("there is no output '.udc00'", lambda: model.run(feeds, out={"\udc00": rows()}))
        self.check("inputs expects a mapping of names to arrays, not list", lambda: model.run([rows(), rows()]))
        self.check("out expects a mapping of names to arrays, not ndarray", lambda: model.run(feeds, out=rows()))
        self.check("output 'y' overlaps input 'a'", lambda: model.run(feeds, out={"y": feeds["a"]}))
        for entry in (model, model.entries["main"]):
            self.check("the inputs alone, and all else by keyword", lambda: entry.run(feeds, "main"))
            self.check("of ONNX Runtime's run\\(names, feeds\\) write run\\(feeds\\)", lambda: entry.run(None, feeds))
            self.check("run has no option 'a', and takes the inputs as one mapping: run\\({'a': ...}\\); a call takes them by "
                       "name: model\\(a=...\\)", lambda: entry.run(**feeds))
            self.check("has no option 'timeot'", lambda: entry.run(feeds, timeot=3))
            self.check("run expects the inputs, as one mapping", lambda: entry.run(timeout=3))
        self.check("cancel expects an attnc.Cancel, not int", lambda: model.run(feeds, cancel=3))
        self.check("state expects an attnc.State, not str", lambda: model.run(feeds, state="s"))
        for timeout in (-1, float("nan"), "1"):
            self.check(f"timeout expects seconds above 0, not {timeout!r}", lambda: model.run(feeds, timeout=timeout))
        for option, message in ((dict(threads="2"), "threads expects a number from 1 to 4096, not '2'"),
                                (dict(sessions=0), "sessions expects a number from 1 to 65536, not 0"),
                                (dict(threads=True), "threads expects a number from 1 to 4096, not True"),
                                (dict(cpus=0), "cpus expects numbers of CPUs, not 0"),
                                (dict(copy_weights=1), "copy_weights expects True or False, not 1"),
                                (dict(cpus=[1 << 20]), "cpus expects numbers of CPUs from 0 to .*, not 1048576"),
                                (dict(device="cuda"), "device expects the number of a GPU from 0 to .*, not 'cuda'")):
            self.check(message, lambda: attnc.load(model.path, **option))
        self.check("no weight", lambda: model.set_weight(3, rows()), attnc.NotFound)
        self.check("path of the model is empty", lambda: attnc.load(""))
        self.check("no such file", lambda: attnc.load("a\0b.onnx"), attnc.NoSuchFile)

    def test_statuses(self):
        """One hierarchy, each with the builtin that it is a kind of."""
        kinds = [(attnc.InvalidArgument, ValueError), (attnc.OutOfRange, IndexError), (attnc.NotFound, LookupError),
                 (attnc.CorruptFile, attnc.Error), (attnc.Incompatible, attnc.Error), (attnc.OutOfMemory, MemoryError),
                 (attnc.Cancelled, attnc.Error), (attnc.DeadlineExceeded, TimeoutError), (attnc.Internal, attnc.Error),
                 (attnc.Unsupported, NotImplementedError), (attnc.FileError, OSError), (attnc.DeviceError, attnc.Error)]
        for status, (kind, builtin) in enumerate(kinds, 1):
            error = attnc_runtime._errors.from_status(status, kind.status, "node 'n' (Op): no")
            self.assertIs(type(error), kind)
            self.assertIsInstance(error, builtin)
            self.assertEqual((error.status, error.node, error.operator, str(error)),
                             (kind.status, "n", "Op", "node 'n' (Op): no"))  # fmt: skip

    def test_index_out_of_range(self):
        bert = attnc.load(models.BERT)
        ids = np.full((1, 4), 1000, np.int64)
        error = self.check("1000 in a dimension of size 50", lambda: bert(ids, ids), attnc.OutOfRange)
        self.assertIsInstance(error, IndexError)
        self.assertEqual((error.status, error.operator), ("out of range", "Gather"))
        self.assertIn("word_embeddings", error.node)

    def test_foreign_arrays_that_fail(self):
        class Broken:
            def __dlpack__(self, **arguments):
                raise BufferError("it requires a gradient")

        self.check("input 'a': its __dlpack__ says: it requires a gradient", lambda: self.model(Broken(), rows()))

    def test_deadline_and_cancel(self):
        model = attnc.load(models.endless(), threads=1)
        feeds = {"count": np.array(1 << 23), "x": np.ones((64, 64), np.float32)}
        start = time.monotonic()
        error = self.check("deadline|timeout|time", lambda: model.run(feeds, timeout=0.05), attnc.DeadlineExceeded)
        self.assertIsInstance(error, TimeoutError)
        cancel = attnc.Cancel()
        threading.Timer(0.05, cancel.request).start()
        self.check("cancel", lambda: model.run(feeds, cancel=cancel), attnc.Cancelled)
        self.check("cancel", lambda: model.run(feeds, cancel=cancel), attnc.Cancelled)  # it stays set
        self.check("timeout expects seconds above 0, not -1", lambda: model.run(feeds, timeout=-1))
        self.assertLess(time.monotonic() - start, 30)
        feeds["count"] = np.array(2)
        np.testing.assert_allclose(model.run(feeds, timeout=60)["y"], np.tanh(np.tanh(feeds["x"])), rtol=1e-6)

    def test_waiting_for_a_session(self):
        model = attnc.load(models.endless(), threads=1, sessions=1)
        feeds = {"count": np.array(1 << 23), "x": np.ones((64, 64), np.float32)}
        cancel = attnc.Cancel()
        busy = threading.Thread(target=lambda: self.assertRaises(attnc.Cancelled, model.run, feeds, cancel=cancel))
        busy.start()
        while model.sessions and not _is_busy(model, feeds):
            time.sleep(0.01)
        cancel.request()
        busy.join()
        feeds["count"] = np.array(1)
        model.run(feeds, timeout=60)

    def test_what_a_model_says(self):
        bert = attnc.load(models.BERT, threads=1)
        self.assertEqual([str(i) for i in bert.inputs],
                         ["input_ids: int64 [batch, seq]", "attention_mask: int64 [batch, seq]"])
        self.assertEqual(bert.outputs[0].shape, ("batch", "seq", 32))
        self.assertEqual((bert.fusion.fused, len(bert.fusion)), (2, 2))
        self.assertEqual({v.verdict for v in bert.fusion}, {"fused"})
        self.assertIn("2 of 2 softmaxes fused, 0 missed", str(bert.fusion))
        self.assertIn("srcdoc=", bert.fusion._repr_html_())
        page = bert.fusion.page()
        self.assertIn("softmax[j](s)", page)
        self.assertNotIn("@FUSION_DATA@", page)
        self.assertIn("attention_mask", bert._repr_html_())
        self.assertEqual((bert.threads, len(bert.digest)), (1, 64))
        self.assertIn("input_ids: int64", repr(bert))
        self.assertGreater(len(bert.weights), 5)
        self.assertEqual(bert.manifest["entries"][0]["name"], "main")
        self.assertIsInstance(bert.entries["main"], attnc.Entry)
        for each, kind in ((bert.inputs[0], attnc.TensorInfo), (bert.weights[0], attnc.WeightInfo),
                           (bert.fusion, attnc.FusionReport), (bert.fusion[0], attnc.Verdict)):
            self.assertIsInstance(each, kind)
        with self.assertRaises(TypeError):
            bert.entries["x"] = None

    def test_a_report_of_what_is_not_fused(self):
        """Line by line what attnc --fusion-report=- prints; no text stands there twice."""
        fields = {"fused": False, "kind": "none", "mask": "none", "reason_node": "node 'a' (MatMul)"}
        report = attnc.FusionReport([
            {**fields, "node": "node 's' (Softmax)", "verdict": "not an attention", "reason": "not an attention: its result is not contracted"},
            {**fields, "node": "node 't' (Softmax)", "verdict": "missed", "reason": "no", "kernel": False, "kernel_reason": "why",
             "assumes": ["a", "b"]},
        ])  # fmt: skip
        self.assertEqual(str(report).splitlines(), [
            "softmax             verdict           kind  mask",
            "node 's' (Softmax)  not an attention        none",
            "    its result is not contracted, at node 'a' (MatMul)",
            "node 't' (Softmax)  missed                  none",
            "    no, at node 'a' (MatMul)",
            "    assumes a, b",
            "    computed without a kernel: why",
            "0 of 2 softmaxes fused, 1 missed"])  # fmt: skip
        self.assertEqual((report.missed, report[0].assumes, report[1].assumes), (1, (), ("a", "b")))
        self.assertEqual(str(attnc.FusionReport([])), "0 of 0 softmaxes fused, 0 missed")

    def test_profile(self):
        bert = attnc.load(models.BERT, threads=2)
        ids = np.ones((1, 8), np.int64)
        profile = bert.profile(input_ids=ids, attention_mask=ids, runs=3)
        self.assertEqual(profile.runs, 3)
        self.assertEqual(sum("attention" in region.name for region in profile), 2)
        self.assertLessEqual(sum(region.seconds for region in profile), profile.seconds)
        self.assertTrue(any(region.flops for region in profile))
        self.assertIn("<table>", profile._repr_html_())
        self.assertIn("attention", str(profile))
        self.assertIsInstance(profile, attnc.Profile)
        self.assertIsInstance(profile[0], attnc.Region)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "timeline.json"
            profile.write_timeline(path)
            events = json.loads(path.read_text())["traceEvents"]
        rows = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        self.assertEqual(list(rows.values()), ["runs", "thread 0, of the run", "thread 1"])
        spans = {tid: [e for e in events if e["ph"] == "X" and e["tid"] == tid] for tid in rows}
        self.assertEqual([e["name"].partition(",")[0] for e in spans[0]], ["run 1", "run 2", "run 3"])
        self.assertEqual(sum("fastest" in e["name"] for e in spans[0]), 1)
        regions = {e["name"] for e in spans[1]} - {"at work"}
        self.assertLessEqual({e["name"] for e in spans[2]}, regions)  # it may come too late
        self.assertEqual({e["name"] for e in events if e["ph"] == "C"}, {"GFLOP/s", "GB/s", "threads at work"})
        self.assertLessEqual(max(e["args"]["value"] for e in events if e["name"] == "threads at work"), 2)
        library = attnc.Model(bert.path)
        self.check("was not compiled to be profiled", lambda: library.profile(input_ids=ids, attention_mask=ids))
        self.assertEqual(len(bert.profile(ids, attention_mask=ids, runs=1)), len(profile))
        self.check("input 'input_ids' is given by position and by name", lambda: bert.profile(ids, input_ids=ids))
        self.check("takes 2 inputs, not 3: input_ids, attention_mask", lambda: bert.profile(ids, ids, ids))

    def test_weights(self):
        bert = attnc.load(models.BERT, threads=1)
        ids = np.ones((1, 4), np.int64)
        before = bert(ids, ids)
        plain = next(w for w in bert.weights if w.layout == "plain" and len(w.shape) == 2)
        bert.set_weight(plain.name, np.zeros(plain.shape, np.float32))
        self.assertGreater(np.abs(bert(ids, ids) - before).max(), 1e-3)
        error = self.check("^model.onnx: no weight", lambda: bert.set_weight("other", before), attnc.NotFound)
        self.assertNotIn(bert.path, str(error))
        self.check("^no entry of model.onnx keeps a state", bert.state, attnc.Unsupported)
        self.check(plain.name, lambda: bert.set_weight(plain.name, np.zeros((1, 1), np.float32)))
        self.check("expects an array, not None", lambda: bert.set_weight(plain.name, None))

    def test_a_library_needs_no_compiler(self):
        """What a process imports that loads a library and runs it: each module is time until its first answer."""
        program = f"""
import sys, attnc
model = attnc.load({attnc.load(models.scaled()).path!r})
later = [f"attnc.{{name}}" for name in ("_cache", "_compile", "_compile_and_load", "_search", "_source", "text_encoder")]
print(*(name for name in [*later, "attnc_runtime._report", "numpy", "json"] if name in sys.modules))
print(*(name for name in attnc.__all__ if getattr(attnc, name, None) is None or name not in dir(attnc)))
print(hasattr(attnc, "nothing"), hasattr(attnc.compile, "__call__"))
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
        self.assertEqual(done.stdout.splitlines(), ["", "", "False True"])

    def test_pickle(self):
        path = models.BERT
        bert = attnc.load(path, dims={"seq": (1, 16)}, threads=1)
        ids = np.ones((1, 8), np.int64)
        again = pickle.loads(pickle.dumps(bert))
        self.assertEqual((again.path, again.threads), (bert.path, 1))
        np.testing.assert_array_equal(again(ids, ids), bert(ids, ids))
        error = pickle.loads(pickle.dumps(attnc.Unsupported("node 'n' (Op): no", ["more"], ["note"])))
        self.assertEqual((error.node, error.operator, error.more, error.notes), ("n", "Op", ("more",), ("note",)))


def _is_busy(model, feeds):
    try:
        model.run({**feeds, "count": np.array(1)}, timeout=0.02)
    except attnc.DeadlineExceeded as error:
        return "all 1 sessions were busy" in str(error)
    return False


class Installed(unittest.TestCase):
    def import_beside(self, change):
        """What the import of a copy says whose stub is changed."""
        built = pathlib.Path(attnc_runtime.__file__).parent
        with tempfile.TemporaryDirectory() as name:
            copy = pathlib.Path(name) / "attnc_runtime"
            copy.mkdir()
            for file in built.glob("[_a-z]*.*"):
                (copy / file.name).symlink_to(file.absolute())
            stub = copy / "_core.pyi"
            text = stub.read_text()
            stub.unlink()
            stub.write_text(text + change)
            command = [sys.executable, "-c", "import attnc_runtime"]
            return subprocess.run(command, env={"PYTHONPATH": name}, capture_output=True, text=True, check=False)

    def test_module_of_another_version(self):
        done = self.import_beside("def more() -> None: ...\n")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr,
            r"ImportError: .*_core\S*\.so \(version \d\S+\) has interface [0-9a-f]{12}, and the package beside it expects "
            r"[0-9a-f]{12}: .*\./dev build.*pip install --force-reinstall attnc-runtime",
        )
        self.assertEqual(self.import_beside("").returncode, 0)


if __name__ == "__main__":
    unittest.main()
