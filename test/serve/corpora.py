"""attnc.data: corpora to embeddings, interrupted and resumed."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

import attnc
import fixtures
import numpy as np
import pyarrow
import pyarrow.parquet
from attnc import data

TEXTS = ["the rain", "a b c", "bread and stock", "", "rivers", "the and the", "d e f g h"]


def lines(count, begin=0):
    return "".join(json.dumps({"id": n, "text": f"{TEXTS[n % 7]} {'abcdefghij'[n % 10]}"}) + "\n" for n in range(begin, begin + count))


class Corpora(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = fixtures.scratch()
        cls.model = fixtures.sentences(cls.folder)
        cls.encoder = attnc.TextEncoder(cls.model)
        fixtures.start_ray()

    @classmethod
    def tearDownClass(cls):
        fixtures.stop_ray()
        shutil.rmtree(cls.folder)

    def new(self, name):
        made = self.folder / name
        made.mkdir()
        return made

    def check(self, target, count):
        tables = [pyarrow.parquet.read_table(file) for file in sorted(target.glob("part-*.parquet"))]
        table = pyarrow.concat_tables(tables)
        self.assertEqual(table.column("id").to_pylist(), list(range(count)), "each row once, in order")
        got = np.stack(table.column("embedding").to_pylist()).astype(np.float32)
        np.testing.assert_allclose(got, self.encoder.encode(table.column("text").to_pylist()), atol=1e-5)

    def test_formats(self):
        source = self.new("mixed")
        (source / "a.jsonl").write_text(lines(130) + "\n\n")
        rows = [json.loads(line) for line in lines(300, 130).splitlines()]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), source / "b.parquet", row_group_size=77)
        (source / "c.ndjson").write_text(lines(20, 430).rstrip("\n"))
        for rows_per_file in (64, 1000, 77):
            target = self.folder / f"of-{rows_per_file}"
            made = data.embed(source, target, model=self.model, rows_per_file=rows_per_file, workers=2)
            self.assertEqual((made.rows, made.kept), (450, 0))
            self.check(target, 450)
        again = data.embed(source, target, model=self.model, rows_per_file=77)
        self.assertEqual((again.rows, again.written, again.kept), (450, 0, made.written))

    def test_many_small_files(self):
        source = self.new("small")
        for n in range(1000):
            (source / f"{n:04}.jsonl").write_text(lines(1, n))
        made = data.embed(source, self.folder / "of-small", model=self.model, rows_per_file=300)
        self.assertEqual((made.rows, made.written), (1000, 4))
        self.check(self.folder / "of-small", 1000)

    def test_killed_and_resumed(self):
        source, target = self.new("large"), self.folder / "of-large"
        (source / "all.jsonl").write_text(lines(3000))
        script = (f"import sys; sys.path[:0] = {sys.path!r}; import fixtures; fixtures.start_ray(2)\nfrom attnc import data\n"
                  f"data.embed({str(source)!r}, {str(target)!r}, model={str(self.model)!r}, rows_per_file=50)\n")
        kept = 0
        for _ in range(2):
            job = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            enough = kept + 5
            while job.poll() is None and len(list(target.glob("part-*.parquet"))) < enough:
                time.sleep(0.02)
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            kept = len(list(target.glob("part-*.parquet")))
        self.assertLess(kept, 60, "it was killed in the middle")
        made = data.embed(source, target, model=self.model, rows_per_file=50)
        self.assertEqual(made.rows, 3000)
        self.assertGreaterEqual(made.kept, 10)
        self.check(target, 3000)

    def test_refusals(self):
        source = self.new("wrong")
        good = source / "good.jsonl"
        good.write_text(lines(3))
        (source / "list.jsonl").write_text("[1]\n")
        (source / "broken.jsonl").write_text('{"text": \n')
        (source / "number.jsonl").write_text('{"text": 3}\n')
        (source / "x.txt").write_text("x")
        (source / "empty.jsonl").write_text("")
        n = 0

        def refuse(kind, text, given, **options):
            nonlocal n
            n += 1
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                data.embed(given, self.folder / f"refused{n}", **{"model": self.model, **options})

        refuse(attnc.NoSuchFile, "nowhere", source / "nowhere*.jsonl")
        refuse(attnc.InvalidArgument, "x.txt: expected .parquet", source / "x.txt")
        refuse(Exception, "is no JSON object", source / "list.jsonl")
        refuse(Exception, "a line is no JSON", source / "broken.jsonl")
        refuse(Exception, "which is no text", source / "number.jsonl")
        refuse(Exception, "no column 'body', but id, text", good, column="body")
        refuse(Exception, "has a column 'id' already", good, output="id")
        refuse(attnc.NoSuchFile, "no such folder", good, model=self.folder / "none")
        self.assertEqual(data.embed(source / "empty.jsonl", self.folder / "none", model=self.model).rows, 0)
        data.embed(good, self.folder / "one", model=self.model)
        with self.assertRaisesRegex(attnc.InvalidArgument, "a job with other column"):
            data.embed(good, self.folder / "one", model=self.model, column="id")
        with self.assertRaisesRegex(attnc.InvalidArgument, "a job with other options"):
            data.embed(good, self.folder / "one", model=self.model, weights="int8")
        self.assertEqual(data.embed(good, self.folder / "one", model=self.model, batch_size=2).kept, 1)
        copied = pathlib.Path(shutil.copytree(self.model, self.folder / "copied"))
        (copied / "model.onnx_data").write_bytes(b"1")  # weights beside a model
        data.embed(good, self.folder / "two", model=copied)
        (copied / "model.onnx_data").write_bytes(b"2")
        with self.assertRaisesRegex(attnc.InvalidArgument, "a job with other model"):
            data.embed(good, self.folder / "two", model=copied)
        good.write_text(lines(4))
        with self.assertRaisesRegex(attnc.InvalidArgument, "a job with other files"):
            data.embed(good, self.folder / "one", model=self.model)

    def test_in_a_pipeline(self):
        import ray

        rows = ray.data.from_items([{"text": text} for text in TEXTS])
        got = rows.map_batches(data.Embedder, fn_constructor_args=[str(self.model)], concurrency=1, num_cpus=1).take_all()
        want = {text: row for text, row in zip(TEXTS, self.encoder.encode(TEXTS))}
        for row in got:
            np.testing.assert_allclose(row["embedding"], want[row["text"]], atol=1e-5)


if __name__ == "__main__":
    unittest.main()
