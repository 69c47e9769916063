#!/usr/bin/env python3
"""Models under a sanitizer of LLVM, in generated code and in the runtime: sanitized.py KIND BUILD FOLDER [MODEL...]

KIND is address or thread. What attnc of the folder BUILD emits as LLVM IR is instrumented and linked, and takes the
object's place in the library; an attn-run whose runtime is instrumented, too, runs its cases with four threads. Outputs
are compared with the stored references. Without a MODEL it is all of test/e2e/models.

That a report would be seen is tried with the first model: a load behind the end of a global, or a masked store that all
tasks of a loop make, is put into its code. Not seen are accesses out of one tensor into another of the workspace, which is
one buffer, and those behind weights, which are a mapping of the file.
"""
import json
import pathlib
import re
import subprocess
import sys

import numpy as np

from check_model import complaint

MODELS = pathlib.Path(__file__).parent / "models"
LLVM = pathlib.Path("/usr/lib/llvm-22")
LARGE = 32
# Where what is put in, and what it needs.
SPOILT = {"address": (r"(define internal i32 @attn\.[^{]*\{\n)",
                      "%spoilt = load volatile i8, ptr getelementptr (i8, ptr @spoilt, i64 17)", ""),
          "thread": (r"(define internal void @attn\.\w+_task\([^{]*\{\n)",
                     "call void @llvm.masked.store.v2i64.p0(<2 x i64> zeroinitializer, ptr align 8 @spoilt, <2 x i1> <i1 1, i1 0>)",
                     "declare void @llvm.masked.store.v2i64.p0(<2 x i64>, ptr, <2 x i1>)\n")}


class Sanitizer:
    def __init__(self, kind, build, folder):
        self.kind, self.folder, build = kind, pathlib.Path(folder), pathlib.Path(build)
        self.attnc, self.attn_run = build / "bin/attnc", build / f"test/sanitized/attn-run-{kind}"
        self.make_library = build / "test/runtime/make-library"

    def output(self, command):
        return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout

    def build(self, model, spoil=False):
        """The instrumented library of a model."""
        plain, library, ir, elf = (self.folder / name for name in ("plain.so", "m.so", "m.ll", "m.elf"))
        self.output([self.attnc, model, "-o", plain])
        text = self.output([self.attnc, model, "--emit=llvm", "-o", "-"])
        if spoil:
            where, what, needed = SPOILT[self.kind]
            text, count = re.subn(where, rf"\1  {what}\n", text)
            assert count, model
            text += f"\n@spoilt = global [16 x i8] zeroinitializer\n{needed}"
        if self.kind == "thread":
            text = re.sub(r' "target-(cpu|features)"="[^"]*"', "", text)
        ir.write_text(text)
        # ThreadSanitizer looks at no access of more than 16 bytes, and at none behind a mask, which is taken apart for
        # processors that have none, such as one that is not named.
        parts = ",function(scalarize-masked-mem-intrin,scalarizer<load-store>)" if self.kind == "thread" else ""
        self.output([LLVM / "bin/opt", f"-passes=forceattrs{parts}", f"-force-attribute=sanitize_{self.kind}", ir, "-o", ir])
        self.output([LLVM / "bin/clang", "-O1", "-march=native", "-w", f"-fsanitize={self.kind}", "-shared", "-fPIC",
                     "-x", "ir", ir, "-o", elf])
        self.output([self.make_library, elf, library, plain])
        return library

    def start(self, library, *options):
        return subprocess.run([str(self.attn_run), str(library), "--threads=4", *options], capture_output=True, text=True,
                              errors="replace")

    def run(self, library, inputs, outputs):
        """What attn-run says, and the outputs."""
        command = []
        for n, (name, value) in enumerate(inputs.items()):
            np.save(self.folder / f"in{n}.npy", value)
            command.append(f"--input={name}=@{self.folder}/in{n}.npy")
        command += [f"--output={name}=@{self.folder}/out{n}.npy" for n, name in enumerate(outputs)]
        done = self.start(library, *command)
        if done.returncode:
            return done.stderr.strip() or f"exit status {done.returncode}", []
        return "", [np.load(self.folder / f"out{n}.npy") for n in range(len(outputs))]

    def judge(self, folder, spoil=False):
        """What is wrong with a model, over its cases."""
        meta = json.loads((folder / "meta.json").read_text())
        library = self.build(folder / "model.onnx", spoil)
        for path in sorted(folder.glob("inputs_*.npz")):
            want = dict(np.load(path.with_name(path.name.replace("inputs", "outputs"))))
            said, got = self.run(library, dict(np.load(path)), want)
            for name, value in zip(want, got):
                said = said or complaint(value, want[name], meta["rtol"], meta["atol"])
            if said:
                return f"{path.stem}: {said}"
        # Larger, so that several threads find tasks; not every model has a meaning there.
        names = {size for shape in meta["inputs"].values() for size in shape["shape"] if isinstance(size, str)}
        said = self.start(library, *(f"--dim={name}:{LARGE}" for name in sorted(names))).stderr
        return f"dimensions of {LARGE}: {said}" if "Sanitizer" in said else ""


def main(kind, build, folder, *names):
    sanitizer = Sanitizer(kind, build, folder)
    models = [MODELS / name for name in names] or sorted(MODELS.iterdir())
    report = {"address": "ERROR: AddressSanitizer: global-buffer-overflow", "thread": "WARNING: ThreadSanitizer: data race"}[kind]
    # One thread may have been fast enough to take all tasks.
    assert any(report in sanitizer.judge(models[0], spoil=True) for _ in range(5)), f"nothing is said of {models[0].name}, spoilt"
    wrong = 0
    for model in models:
        if found := sanitizer.judge(model):
            wrong += 1
            print(f"{model.name}, {found}", flush=True)
    print(f"{len(models)} models, {wrong} wrong")


if __name__ == "__main__":
    main(*sys.argv[1:])
