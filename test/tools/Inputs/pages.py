"""pages.py ATTNC ATTN_RUN MODELS FOLDER [PICTURES]: what the pages draw is what the files say. With screenshots in FOLDER.

PICTURES: a folder that those for the documentation are written to.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np

import browser

ATTNC, RUN = sys.argv[1:3]
MODELS, FOLDER = map(pathlib.Path, sys.argv[3:5])
PICTURES = pathlib.Path(sys.argv[5]) if len(sys.argv) > 5 else FOLDER


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
        browser.screenshot(page, PICTURES / f"{name}.png", (1200, 1050))
        browser.screenshot(page, FOLDER / f"{name}-dark.png", (1200, 1050), dark=True)
        browser.screenshot(page, FOLDER / f"{name}-narrow.png", (500, 1400))
    print("fusion: as the report")


def check_attention():
    model, maps, labels = MODELS / "bert_eager_ts14" / "model.onnx", FOLDER / "maps", FOLDER / "labels.txt"
    words = "[CLS] the page shows what each head looks at [SEP]".split()
    labels.write_text("\n".join(words) + "\n")
    call(RUN, model, "--dim=batch:1", f"--dim=seq:{len(words)}", f"--attention-maps={maps}", f"--attention-labels={labels}")
    page = maps / "attention.html"
    seen = browser.structure(page, """
        const shown = () => document.getElementById("cell").textContent;
        const before = shown(), matrix = document.getElementById("matrix");
        for (const key of ["ArrowDown", "ArrowRight", "ArrowRight"]) matrix.dispatchEvent(new KeyboardEvent("keydown", { key }));
        return { size: [matrix.width, matrix.height], before, after: shown(),
                 buttons: document.querySelectorAll("#grid button").length,
                 entropy: [...document.querySelectorAll("#entropy td")].map((cell) => cell.textContent),
                 words: [...document.querySelectorAll("#pairs .query")].map((text) => text.textContent),
                 wide: document.documentElement.scrollWidth > innerWidth };""")
    weights = [np.load(file).astype(np.float64) for file in sorted(maps.glob("*.npy"))]
    entropies = [-(np.where(w > 0, w * np.log2(np.where(w > 0, w, 1)), 0)).sum(-1).mean(-1)[0] for w in weights]
    assert seen["size"] == [len(words)] * 2 and seen["words"] == words, seen
    assert seen["before"].startswith("query [CLS] → key [CLS]: ") and seen["after"].startswith("query the → key page: "), seen
    assert abs(float(seen["after"].split()[-1]) - weights[0][0, 0, 1, 2]) < 1e-4, seen
    assert seen["buttons"] == sum(w.shape[1] for w in weights), seen
    np.testing.assert_allclose([float(text) for text in seen["entropy"]], np.concatenate(entropies), atol=0.006)
    assert not seen["wide"], "the page is wider than its window"
    browser.screenshot(page, PICTURES / "attention-page.png", (1200, 1050))
    browser.screenshot(page, FOLDER / "attention-dark.png", (1200, 1050), dark=True)
    browser.screenshot(page, FOLDER / "attention-narrow.png", (500, 1400))
    print("attention: as the files")


check_fusion()
check_attention()
