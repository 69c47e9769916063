"""pages.py ATTNC ATTN_RUN ATTN_BENCH MODELS FOLDER [PICTURES]: what the pages draw is what the files say. With screenshots in FOLDER.

PICTURES: a folder that those for the documentation are written to.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

import browser
import png

ATTNC, RUN, BENCH = sys.argv[1:4]
MODELS, FOLDER = map(pathlib.Path, sys.argv[4:6])
PICTURES = pathlib.Path(sys.argv[6]) if len(sys.argv) > 6 else FOLDER


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)


def check_fusion():
    for name, model in {"fusion-report": "bert_eager_ts14", "fusion-bahdanau": "bahdanau_step_ts13",
                        "fusion-none": "chorowski_location_step_ts17"}.items():
        page = FOLDER / f"{name}.html"
        call(ATTNC, MODELS / model / "model.onnx", "-o", FOLDER / "m.so", f"--fusion-report={page}",
             *(["--verify-fusion"] if name == "fusion-report" else []))
        call(ATTNC, MODELS / model / "model.onnx", "-o", FOLDER / "m.so", f"--fusion-report={FOLDER}/report.json")
        verdicts = json.loads((FOLDER / "report.json").read_text())
        seen = browser.structure(page, """
            const detail = () => [...document.querySelectorAll("#detail .formula div")].map((row) => row.ariaLabel);
            const tiles = [...document.querySelectorAll(".tile")], first = detail();
            tiles[0].focus();
            for (let n = 1; n < tiles.length; ++n)
              document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
            return { tiles: tiles.map((tile) => tile.className), first, last: detail(),
                     current: document.activeElement === tiles[tiles.length - 1],
                     title: document.querySelector("#detail h2").textContent,
                     wide: document.documentElement.scrollWidth > innerWidth };""")
        tones = [v["verdict"] if v["verdict"] in ("fused", "missed") else "other" for v in verdicts]
        assert seen["tiles"] == [f"tile {tone}" for tone in tones], seen
        assert seen["first"] == verdicts[0].get("formula", []) and seen["last"] == verdicts[-1].get("formula", []), seen
        assert seen["current"] and f"'{seen['title']}'" in verdicts[-1]["node"], seen
        assert not seen["wide"], "the page is wider than its window"
        browser.screenshots(page, (PICTURES if name == "fusion-report" else FOLDER) / f"{name}.png", FOLDER)
    print("fusion: as the report")


def check_attention():
    model, maps, labels = MODELS / "bert_eager_ts14" / "model.onnx", FOLDER / "maps", FOLDER / "labels.txt"
    words = "[CLS] the page shows what each head looks at [SEP]".split()
    labels.write_text("\n".join(words) + "\n")
    ones = ",".join("1" for _ in words)
    call(RUN, model, "--dim=batch:1", f"--dim=seq:{len(words)}", f"--input=attention_mask=1x{len(words)}xi64={ones}",
         f"--attention-maps={maps}", f"--attention-labels={labels}")
    page = maps / "attention.html"
    seen = browser.structure(page, """
        const shown = () => document.getElementById("cell").textContent;
        const before = shown(), matrix = document.getElementById("matrix");
        for (const key of ["ArrowDown", "ArrowRight", "ArrowRight"]) matrix.dispatchEvent(new KeyboardEvent("keydown", { key }));
        return { size: [matrix.width, matrix.height], before, after: shown(),
                 buttons: document.querySelectorAll("#grid button").length,
                 entropy: [...document.querySelectorAll("#entropy td")].map((cell) => cell.textContent),
                 columns: [...document.querySelectorAll("#columns span")].map((text) => text.textContent),
                 picture: !document.getElementById("pictureSection").hidden,
                 words: [...document.querySelectorAll("#pairs .query")].map((text) => text.textContent),
                 wide: document.documentElement.scrollWidth > innerWidth };""")
    weights = [np.load(file).astype(np.float64) for file in sorted(maps.glob("*.npy"))]
    assert all(w.shape == (1, 4, len(words), len(words)) for w in weights), "a batch of one is no head"
    entropies = [-(np.where(w > 0, w * np.log2(np.where(w > 0, w, 1)), 0)).sum(-1).mean(-1)[0] for w in weights]
    assert seen["size"] == [len(words)] * 2 and seen["words"] == seen["columns"] == words, seen
    assert not seen["picture"], "there is none"
    assert seen["before"].startswith("query [CLS] → key [CLS]: ") and seen["after"].startswith("query the → key page: "), seen
    assert abs(float(seen["after"].split()[-1]) - weights[0][0, 0, 1, 2]) < 1e-4, seen
    assert seen["buttons"] == sum(w.shape[1] for w in weights), seen
    np.testing.assert_allclose([float(text) for text in seen["entropy"]], np.concatenate(entropies), atol=0.006)
    assert not seen["wide"], "the page is wider than its window"
    browser.screenshots(page, PICTURES / "attention-page.png", FOLDER)
    # No items, and a picture that the keys are no parts of, draw what there is, without an error.
    call(ATTNC, model, "-o", FOLDER / "open.so", "--expose-attention")
    call(RUN, FOLDER / "open.so", "--dim=batch:0", "--dim=seq:5", f"--attention-maps={FOLDER}/none")
    assert browser.structure(FOLDER / "none" / "attention.html", "return document.querySelectorAll('#grid button').length;") == 8
    (FOLDER / "tall.png").write_bytes(png.grey(np.zeros((40, 2), np.uint8)))
    call(RUN, model, f"--dim=seq:{len(words)}", f"--attention-maps={maps}", f"--attention-image={FOLDER}/tall.png")
    seen = browser.structure(page, """showPictures();
        return { text: document.getElementById("pictureText").textContent, canvases: document.querySelectorAll("#pictures canvas").length };""")
    assert "10 keys are no parts of one with 2 by 40 pixels" in seen["text"] and not seen["canvases"], seen
    print("attention: as the files")


def check_forms():
    """Reductions, more than a page holds, names that are long or look like tags: nothing is wider than the page."""
    model, labels = MODELS / "bert_eager_ts14" / "model.onnx", FOLDER / "odd.txt"
    odd = ["<img src=x onerror=document.title='read'>", "x" * 300, "日本語 🙂", "&lt;", "", "a</script>b"]
    labels.write_text("\n".join(odd) + "\n")
    call(RUN, model, "--dim=batch:2", "--dim=seq:6", f"--attention-maps={FOLDER}/forms", f"--attention-labels={labels}",
         "--expose-attention", "--expose-attention-as=head-mean,argmax,entropy,top-k:2")
    look = """
        const texts = (place) => [...document.querySelectorAll(place)].map((one) => one.textContent), seen = [];
        for (let layer = 0; layer < layers.length; ++layer) {
          choose({ layer });
          seen.push([document.getElementById("formTitle").textContent, texts("#rows span"), document.getElementById("matrix").width,
                     document.documentElement.scrollWidth > innerWidth]);
        }
        const buttons = [...document.querySelectorAll("#grid button")].map((one) => one.getBoundingClientRect());
        return { seen, title: document.title, images: document.images.length, bits: document.querySelectorAll("#entropy td").length,
                 reduced: document.getElementById("reduced").textContent,
                 square: buttons.every((box) => box.width < 70 && box.height < 70) };"""
    seen = browser.structure(FOLDER / "forms" / "attention.html", look)
    assert [one[0] for one in seen["seen"]] == 2 * ["Mean weights of all heads", "Key of each query’s largest weight",
                                                    "Entropy of each query and head", "Largest weights of each query"], seen
    assert all(rows == odd and not wide for _, rows, _, wide in seen["seen"]), seen
    assert [one[2] for one in seen["seen"] if "Entropy" in one[0]] == [4, 4] and seen["bits"] == 8, seen
    assert seen["title"] == "Attention of model.onnx" and not seen["images"] and not seen["reduced"], seen
    browser.screenshots(FOLDER / "forms" / "attention.html", FOLDER / "forms.png", FOLDER)
    call(RUN, MODELS / "t5_encoder_ts17" / "model.onnx", "--dim=batch:5", "--dim=seq:600", f"--attention-maps={FOLDER}/large")
    seen = browser.structure(FOLDER / "large" / "attention.html", look)
    assert "the first 5 of" not in seen["reduced"] and "up to 2 positions as one" in seen["reduced"], seen["reduced"]
    assert seen["square"] and all(width == 300 for _, _, width, _ in seen["seen"]), seen["seen"]
    browser.screenshots(FOLDER / "large" / "attention.html", FOLDER / "large.png", FOLDER)
    print("forms: as the files")


def write_named(path, names):
    """A model with an attention of each name, one behind the other."""
    nodes, source = [], "q"
    for n, name in enumerate(names):
        for operator, inputs, output in (("Transpose", ["k"], "kt"), ("MatMul", [source, f"kt{n}"], "s"), ("Mul", [f"s{n}", "scale"], "e"),
                                         ("Softmax", [f"e{n}"], "w"), ("MatMul", [f"w{n}", "v"], "y")):
            more = {"perm": [0, 2, 1]} if operator == "Transpose" else {}
            nodes.append(helper.make_node(operator, inputs, [f"{output}{n}"], name=name if output == "w" else f"{output}{n}", **more))
        source = f"y{n}"
    tensors = {x: helper.make_tensor_value_info(x, TensorProto.FLOAT, [2, 6, 8]) for x in ("q", "k", "v", source)}
    graph = helper.make_graph(nodes, "g", [tensors[x] for x in "qkv"], [tensors[source]], [numpy_helper.from_array(np.float32(0.5), "scale")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def check_names():
    """Names of nodes that look like tags or paths, and long ones, are texts on each page."""
    names = ["</script><img src=x onerror=document.title='read'>'\"/..\\", "../../a/b", "日本語" * 60, "&lt;b&gt;"]
    model = FOLDER / "<b>named.onnx"
    write_named(model, names)
    pages = {"fusion": FOLDER / "named.html", "roofline": FOLDER / "named-roofline.html", "attention": FOLDER / "named" / "attention.html"}
    call(ATTNC, model, "-o", FOLDER / "m.so", f"--fusion-report={pages['fusion']}")
    call(BENCH, model, "--runs=3", f"--roofline={pages['roofline']}")
    call(RUN, model, f"--attention-maps={FOLDER}/named")
    for name, page in pages.items():
        seen = browser.structure(page, """return { title: document.title, images: document.images.length, bold: document.querySelectorAll("h1 b").length,
            texts: [...document.querySelectorAll("#detail h2, #layer option, #rows small")].map((one) => one.textContent) };""")
        assert seen["title"].endswith("of <b>named.onnx") and not seen["images"] and not seen["bold"], seen
        assert any(names[0] in text for text in seen["texts"]), (name, seen)
        browser.screenshots(page, FOLDER / f"named-{name}.png", FOLDER)
    print("names: as texts")


def check_alignment():
    """A search's alignment: rows are what it wrote, columns what it read."""
    dates, maps = MODELS.parent / "dates", FOLDER / "alignment"
    read, written = "may 3 1998".replace(" ", "␣"), [*"1998-05-03", "end"]
    for name, labels in (("read", read), ("written", written)):
        (FOLDER / f"{name}.txt").write_text("\n".join(labels) + "\n")
    call(ATTNC, f"encode={dates}/encode.onnx", f"step={dates}/step.onnx", "-o", FOLDER / "dates.so", "--generate=beam:5",
         "--init=encode", "--bos=0", "--eos=1", "--max-length=16", "--alignment=alignment")
    call(RUN, FOLDER / "dates.so", "--entry=generate", "--input=source=1x10xi64=13,1,25,0,30,0,28,36,36,35",
         "--input=lengths=1xi64=10", f"--attention-maps={maps}", f"--attention-labels={FOLDER}/written.txt",
         f"--attention-labels={FOLDER}/read.txt")
    seen = browser.structure(maps / "attention.html", """
        const texts = (place) => [...document.querySelectorAll(`#${place} span`)].map((text) => text.textContent);
        const matrix = document.getElementById("matrix");
        return { size: [matrix.width, matrix.height], rows: texts("rows"), columns: texts("columns"),
                 title: document.getElementById("headTitle").textContent };""")
    assert seen == {"size": [10, 11], "rows": written, "columns": [*read], "title": "Hypothesis"}, seen
    browser.screenshots(maps / "attention.html", PICTURES / "alignment-page.png", FOLDER)
    print("alignment: as the files")


def check_picture():
    """A page with a picture: a canvas for each head, the parts of the picture where the weights say."""
    gallery, maps = MODELS.parents[2] / "examples" / "gallery", FOLDER / "digits"
    digit = np.load(gallery / "digits.npz")["image"][3:4]
    np.save(FOLDER / "digit.npy", digit)
    (FOLDER / "digit.png").write_bytes(png.grey(np.round(255 * digit[0, 0]).astype(np.uint8)))
    call(RUN, gallery / "digits.onnx", f"--input=image=@{FOLDER}/digit.npy", f"--attention-maps={maps}",
         f"--attention-image={FOLDER}/digit.png")
    seen = browser.structure(maps / "attention.html", """
        showPictures();
        return { canvases: document.querySelectorAll("#pictures canvas").length, parts: partsOf(17, 1),
                 hidden: document.getElementById("pictureSection").hidden };""")
    assert not seen["hidden"] and seen["canvases"] == 4, seen
    assert (seen["parts"]["before"], seen["parts"]["columns"], seen["parts"]["rows"]) == (1, 4, 4), seen
    browser.screenshots(maps / "attention.html", PICTURES / "picture-page.png", FOLDER)
    print("picture: as the files")


def check_roofline():
    """A row for each region, and a point for each whose operations are known."""
    page = FOLDER / "roofline.html"
    call(BENCH, MODELS.parents[2] / "examples" / "gallery" / "digits.onnx", "--dim=batch:64", "--runs=20", f"--roofline={page}")
    seen = browser.structure(page, """
        const rows = document.querySelectorAll("#rows tr");
        rows[0].focus();
        rows[0].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
        return { rows: rows.length, points: document.querySelectorAll("circle").length, names: data.regions.map((r) => r.region),
                 known: data.regions.filter((r) => r.flops && r.bytes).length, moved: document.activeElement === rows[1],
                 placed: [...document.querySelectorAll("circle")].every((c) => c.cx.baseVal.value >= 70 && c.cy.baseVal.value <= 385),
                 wide: document.documentElement.scrollWidth > innerWidth };""")
    assert seen["rows"] == len(seen["names"]) and seen["points"] == seen["known"] > 0, seen
    assert any(name.startswith("attention_f32") for name in seen["names"]), seen
    assert seen["moved"] and seen["placed"] and not seen["wide"], seen
    browser.screenshots(page, PICTURES / "roofline-page.png", FOLDER)
    print("roofline: as the regions")


check_fusion()
check_attention()
check_forms()
check_names()
check_alignment()
check_picture()
check_roofline()
