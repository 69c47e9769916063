"""What ptxas makes of the kernels on matrix units, read back from machine code (SASS) and held against what a kernel is to do.

    sass.py [--tools=build/bin]          with ptxas and nvdisasm of a CUDA toolkit on the path

Says, of each kernel, the matrix instructions of its loop, those of the softmax beside them, registers and barriers. Wrong is:
another number of products or exponentials than the tile has, an exponential that is not made beside a product, local memory (a
spill), more instructions a tile than LIMITS and MASKED have, a bound by attention_cycles.py below BOUNDS.
"""
import argparse
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper

import attention_cycles

LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+):")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
# Of an attention by warpgroups without a mask: head to instructions a tile between the two products.
LIMITS = {64: 356, 128: 388, 256: 308}
MASKED = 180  # instructions more where a tile is tested against a causal mask, at most; 64 comparisons and selections of a thread
BOUNDS = {64: 520, 128: 790, 256: 755}  # TFLOP/s of such an attention, both warpgroups in lock step
KEYS = {64: 128, 128: 128, 256: 64}  # of a tile


@dataclasses.dataclass
class Instruction:
    address: int
    opcode: str
    rest: str


def kernels(listing):
    """Name to instructions and labels (name to the number of the instruction behind it)."""
    found, name = {}, None
    for line in listing.splitlines():
        if begin := re.match(r"\.text\.(\w+):", line):
            name = begin[1]
            found[name] = ([], {})
        elif line.startswith(".section") or line.startswith("\t.section"):
            name = None
        elif name and (label := LABEL.match(line)):
            found[name][1][label[1]] = len(found[name][0])
        elif name and (code := LINE.search(line)):
            found[name][0].append(Instruction(int(code[1], 16), code[2], code[3]))
    return found


def loops(code, labels):
    """Innermost loops: ranges behind which a branch goes back, without another one inside."""
    ranges = []
    for n, each in enumerate(code):
        if each.opcode.startswith("BRA") and (to := TARGET.search(each.rest)) and to[1] in labels and labels[to[1]] <= n:
            ranges.append((labels[to[1]], n + 1))
    return [(a, b) for a, b in ranges if not any((a, b) != (c, d) and a <= c and d <= b for c, d in ranges)]


def count(code, *prefixes):
    return sum(each.opcode.startswith(prefixes) for each in code)


def disassemble(ptx, folder):
    cubin = folder / "m.cubin"
    done = subprocess.run(["ptxas", "-v", "-arch=sm_90a", ptx, "-o", cubin], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ptxas: {done.stderr}")
    registers = dict(re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", done.stderr, re.S))
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    listing = subprocess.run(["nvdisasm", cubin], capture_output=True, text=True, check=True).stdout
    return kernels(listing), registers, warnings


def compiled(tools, folder, model, precision, *flags):
    path = folder / "m.onnx"
    onnx.save(model, path)
    subprocess.run([tools / "attnc", path, "--target=cuda", "--gpu-arch=sm_90a", f"--precision={precision}", "--emit=ptx",
                    "-o", folder / "m.ptx", *flags], check=True)
    return disassemble(folder / "m.ptx", folder)


def attention(head, length, causal=0):
    kind = onnx.TensorProto.BFLOAT16
    value = lambda name: helper.make_tensor_value_info(name, kind, [1, 2, length, head])
    graph = helper.make_graph([helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=causal)], "g", [value("q"), value("k"), value("v")], [value("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def gemm(rows, columns, depth):
    rng = np.random.default_rng(1)
    weight = onnx.numpy_helper.from_array(rng.standard_normal((depth, columns)).astype(np.float32), "w")
    value = lambda name, *shape: helper.make_tensor_value_info(name, 1, shape)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value("x", rows, depth)], [value("y", rows, columns)], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


class Report:
    def __init__(self):
        self.problems = 0

    def expect(self, holds, text):
        if not holds:
            self.problems += 1
            print(f"  WRONG: {text}")

    def common(self, name, code, registers, warnings):
        self.expect(not count(code, "STL", "LDL"), f"{name} uses local memory: {count(code, 'STL')} stores, {count(code, 'LDL')} loads")
        self.expect(not warnings, "; ".join(warnings))


def softmax_part(code):
    """What stands behind the wait for the scores: until the next product, which is that of the next round where tiles overlap."""
    wait = next(n for n, each in enumerate(code) if each.opcode.startswith("WARPGROUP.DEPBAR"))
    end = next((n for n in range(wait, len(code)) if code[n].opcode.startswith("WARPGROUP.ARRIVE")), len(code))
    return code[wait + 1:end]


def beside_product(tile):
    """What of a loop runs beside a product: between a wait for all but the last of those under way and one for that."""
    waits = [n for n, each in enumerate(tile) if each.opcode.startswith("WARPGROUP.DEPBAR")]
    begin = next((n for n in waits if "0x1" in tile[n].rest), len(tile))
    return begin, next((n for n in waits if n > begin), len(tile))


def bound_of(tile, head):
    """Of a loop of an attention."""
    begin, end = beside_product(tile)
    names = lambda part: [each.opcode for each in part if not each.opcode.startswith("HGMMA")]
    return attention_cycles.tile_of(head, KEYS[head], names(tile[begin:end]), names(tile[:begin] + tile[end:]))


def check_attention(report, head, built):
    found, registers, warnings = built
    name, (code, labels) = next((name, each) for name, each in found.items() if count(each[0], "HGMMA"))
    begin, end = max(loops(code, labels), key=lambda each: count(code[each[0]:each[1]], "HGMMA"))
    tile = code[begin:end]
    part, keys = softmax_part(tile), KEYS[head]
    kinds = collections.Counter(each.opcode.split(".")[0] for each in part)
    bound = bound_of(tile, head)
    print(f"attention d{head}: {count(tile, 'HGMMA')} HGMMA, {len(part)} instructions beside them a tile of {keys} keys, "
          f"{registers[name]} registers; {', '.join(f'{n} {kind}' for kind, n in kinds.most_common(8))}; "
          f"at most {bound.in_lock_step():.0f} TFLOP/s in lock step, {bound.apart():.0f} apart")
    report.common(f"attention d{head}", code, registers, warnings)
    # A warpgroup has 64 queries: 16 deep of scores along the head, of results along the keys.
    report.expect(count(tile, "HGMMA") == head // 16 + keys // 16, f"expected {head // 16} + {keys // 16} HGMMA")
    # 128 threads share 64 x keys weights, and each rescales two rows.
    report.expect(kinds["MUFU"] == keys // 2 + 2, f"expected {keys // 2 + 2} exponentials, got {kinds['MUFU']}")
    begin, end = beside_product(tile)
    late = kinds["MUFU"] - count(tile[begin:end], "MUFU")
    report.expect(not late, f"{late} exponentials are not beside a product")
    report.expect(count(tile[:begin], "HGMMA") == count(tile, "HGMMA"), "a product starts after the scores are waited for")
    report.expect(len(found) == 1, f"expected a launch, got {len(found)}: rows of 16 bits need no packing")
    # Of each of two rows a thread has a fourth of the columns, and stores eight side by side.
    stores = collections.Counter(each.opcode for each in code if each.opcode.startswith("STG"))
    report.expect(stores == {"STG.E.128": head // 16}, f"expected {head // 16} stores of 128 bits, got {dict(stores)}")
    report.expect(len(part) <= LIMITS[head], f"more than {LIMITS[head]} instructions a tile")
    report.expect(bound.in_lock_step() >= BOUNDS[head], f"a bound below {BOUNDS[head]} TFLOP/s")


def tile_of(built):
    """The loop over tiles of an attention."""
    code, labels = next(each for each in built[0].values() if count(each[0], "HGMMA"))
    begin, end = max(loops(code, labels), key=lambda each: count(code[each[0]:each[1]], "HGMMA"))
    return code[begin:end]


def check_mask(report, head, full, causal):
    more = len(softmax_part(tile_of(causal))) - len(softmax_part(tile_of(full)))
    print(f"attention d{head} behind a causal mask: {more} instructions more in a tile that is tested")
    report.expect(more <= MASKED, f"more than {MASKED} instructions to test 64 scores")


def check_gemm(report, columns, built):
    found, registers, warnings = built
    name, (code, labels) = next((name, each) for name, each in found.items() if count(each[0], "HGMMA"))
    begin, end = max(loops(code, labels), key=lambda each: count(code[each[0]:each[1]], "HGMMA"))
    tile = code[begin:end]
    shapes = collections.Counter(re.search(r"\d+x\d+x\d+", each.opcode)[0] for each in tile if each.opcode.startswith("HGMMA"))
    print(f"gemm of {columns} columns: {dict(shapes)} in {len(tile)} instructions a panel, {registers[name]} registers")
    report.common(f"gemm of {columns} columns", code, registers, warnings)
    # A panel is 64 deep.
    report.expect(sum(shapes.values()) % 4 == 0 and len(shapes) == 1, f"expected whole panels of one shape, got {dict(shapes)}")
    report.expect(count(tile, "WARPGROUP.DEPBAR") * 4 == sum(shapes.values()), "expected a wait for each panel, no product alone")


def check_widening(report, columns, built):
    """Of a weight of e4m3 a warpgroup widens a panel, two numbers at a time, and stores 16 bytes of 16-bit ones."""
    name, (code, _) = next((name, each) for name, each in built[0].items() if count(each[0], "HGMMA"))
    ofThread, widened = 64 * columns // 128, sum("E4M3" in each.opcode for each in code)
    print(f"gemm of {columns} columns of e4m3: {widened} conversions, {built[1][name]} registers")
    report.common(f"gemm of {columns} columns of e4m3", code, built[1], built[2])
    # One panel's code is all that there is.
    report.expect(widened == ofThread // 2, f"expected {ofThread // 2} conversions of two numbers")
    report.expect(count(code, "STS.128") == ofThread // 8, f"expected {ofThread // 8} stores of 16 bytes, got {count(code, 'STS')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    args = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for head in LIMITS:
            full = compiled(args.tools, folder, attention(head, 4096), "bf16")
            check_attention(report, head, full)
            if KEYS[head] == 128:
                check_mask(report, head, full, compiled(args.tools, folder, attention(head, 4096, 1), "bf16"))
        for rows, columns in ((512, 128), (8192, 256)):
            check_gemm(report, columns, compiled(args.tools, folder, gemm(rows, rows, 512), "bf16"))
            check_widening(report, columns, compiled(args.tools, folder, gemm(rows, rows, 512), "f16", "--weights=fp8"))
    print(f"{report.problems} problems")
    return report.problems != 0


if __name__ == "__main__":
    sys.exit(main())
