"""lost_guard.py GUARDED.mlir OUT.mlir: the module with the kernel that its attention has without the guard for NaN."""
import pathlib
import re
import subprocess
import sys
import tempfile


def kernel_of(source, folder):
    """The first dump with the kernel: its name, its aliases, its text."""
    folder.mkdir()
    (folder / "m.mlir").write_text(source)
    subprocess.run(["attnc", folder / "m.mlir", "-o", folder / "m.so", f"--dump-ir={folder}/ir"], check=True)
    for path in sorted((folder / "ir").iterdir()):
        text = path.read_text()
        kernel = re.search(r"^  func\.func (?:private )?@(attention_\w+)\(.*?^  }$", text, re.M | re.S)
        if kernel:
            return kernel[1], re.findall(r"^#.*$", text, re.M), kernel[0]
    raise SystemExit("no kernel")


source = pathlib.Path(sys.argv[1]).read_text()
bare = source.replace("math.isnan %x : f32", "arith.constant false")
assert bare != source
with tempfile.TemporaryDirectory() as folder:
    name, _, _ = kernel_of(source, pathlib.Path(folder, "guarded"))
    other, aliases, kernel = kernel_of(bare, pathlib.Path(folder, "bare"))
pathlib.Path(sys.argv[2]).write_text("\n".join([*aliases, source, kernel.replace(f"@{other}(", f"@{name}(")]))
