"""Cases of check_kernels.py with rows of caches in bytes: how they are made, and attentions that read them."""
import dataclasses
import re

import ml_dtypes
import numpy as np

import attention_cases
import attention_ir
import kernel_cases
from kernel_cases import case, normal

E4M3, SCALE_BYTES = ml_dtypes.float8_e4m3fn, 4


def narrow(rows, kind="i8"):
    """What attn.narrow_rows makes of rows of f32, by its formula in f32, in bytes."""
    top = np.abs(rows).max(-1, keepdims=True).astype(np.float32)
    with np.errstate(all="ignore"):
        factor = np.where(top < np.float32(2.0 ** -100), np.float32(0), np.float32(127) / top)
        numbers = np.nan_to_num(rows * factor)
        codes = np.rint(numbers).clip(-127, 127).astype(np.int8) if kind == "i8" else numbers.astype(E4M3).view(np.int8)
    scales = (top / np.float32(127)).astype("<f4")
    return np.concatenate([codes, np.ascontiguousarray(scales).view(np.int8)], -1)


def widen(stored, kind="i8"):
    codes, scales = stored[..., :-SCALE_BYTES], np.ascontiguousarray(stored[..., -SCALE_BYTES:]).view("<f4")
    with np.errstate(invalid="ignore"):
        return (codes if kind == "i8" else codes.view(E4M3)).astype(np.float32) * scales


@case("caches", (1, 1, 8), (2, 3, 31), (1, 5, 32), (3, 2, 33), (2, 4, 64), (1, 9, 100), (1, 2, 128), (2, 1, 1024))
def rows(size):
    """Rows of any order of magnitude, of zeros and of less than counts; ties."""
    b, n, d = size
    x = normal(b, n, d) * np.float32(10) ** kernel_cases.rng.integers(-30, 30, (b, n, 1)).astype(np.float32)
    x[0, 0] = kernel_cases.rng.integers(-254, 255, d).astype(np.float32) / 2
    x[0, 0, 0] = 127
    if n > 2:
        x[0, 1], x[0, 2] = 0, x[0, 2] * np.float32(1e-38)
    text = f"""
      func.func @main(%x: tensor<{b}x{n}x{d}xf32> {{attn.name = "x"}}) -> (tensor<{b}x{n}x{d + 4}xi8> {{attn.name = "y"}})
          attributes {{attn.entry}} {{
        %y = attn.narrow_rows %x : tensor<{b}x{n}x{d}xf32> -> tensor<{b}x{n}x{d + 4}xi8>
        return %y : tensor<{b}x{n}x{d + 4}xi8>
      }}"""
    return text, {"x": x}, {}, {"y": narrow(x)}


@case("caches", (2, 3, 40), (1, 4, 64))
def rows_in_views(size):
    """Rows of a slice, in halves, which become rows within other ones; how many there are the run tells."""
    b, n, d = size
    x, z = normal(b, n, 2 * d).astype(np.float16), kernel_cases.rng.integers(-99, 99, (b + 3, n, d + 4)).astype(np.int8)
    whole = f"tensor<{b + 3}x{n}x{d + 4}xi8>"
    text = f"""
      func.func @main(%x: tensor<?x{n}x{2 * d}xf16> {{attn.name = "x"}}, %z: {whole} {{attn.name = "z"}}) -> ({whole} {{attn.name = "y"}})
          attributes {{attn.entry}} {{
        %c0 = arith.constant 0 : index
        %b = tensor.dim %x, %c0 : tensor<?x{n}x{2 * d}xf16>
        %s = tensor.extract_slice %x[0, 0, {d}] [%b, {n}, {d}] [1, 1, 1] : tensor<?x{n}x{2 * d}xf16> to tensor<?x{n}x{d}xf16>
        %r = attn.narrow_rows %s : tensor<?x{n}x{d}xf16> -> tensor<?x{n}x{d + 4}xi8>
        %y = tensor.insert_slice %r into %z[2, 0, 0] [%b, {n}, {d + 4}] [1, 1, 1] : tensor<?x{n}x{d + 4}xi8> into {whole}
        return %y : {whole}
      }}"""
    want = z.copy()
    want[2:2 + b] = narrow(x[:, :, d:].astype(np.float32))
    return text, {"x": x, "z": z}, {}, {"y": want}


def there_and_back(x, kind):
    """A model of rows that become bytes, and of what these stand for."""
    n, d = x.shape
    types = f"tensor<{n}x{d}xf32>", f"tensor<{n}x{d + 4}x{kind}>"
    text = f"""
      func.func @main(%x: {types[0]} {{attn.name = "x"}}) -> ({types[0]} {{attn.name = "y"}}) attributes {{attn.entry}} {{
        %r = attn.narrow_rows %x : {types[0]} -> {types[1]}
        %y = attn.widen_rows %r : {types[1]} -> {types[0]}
        return %y : {types[0]}
      }}"""
    return text, {"x": x}, {}, {"y": widen(narrow(x, kind), kind)}


@case("caches", (3, 40))
def rows_without_numbers(size):
    """An infinity or a NaN leaves no number in its row."""
    made = []
    for kind, first in (("i8", np.inf), ("f8E4M3FN", np.nan)):  # in e4m3 an infinity may stay one
        x = normal(*size)
        x[0, 3], x[2, size[1] - 1] = first, np.nan
        made.append(there_and_back(x, kind))
        made[-1][3]["y"][[0, 2]] = np.nan
    return made


@case("caches", (2, 33), (3, 1024))
def rows_of_float8(size):
    """All numbers of e4m3 up to 127 and those in the middle of two, each with the number next to it on both sides."""
    x = normal(*size) * np.float32(10) ** kernel_cases.rng.integers(-30, 30, (size[0], 1)).astype(np.float32)
    numbers = np.arange(0x80, dtype=np.uint8).view(E4M3).astype(np.float32)
    numbers = numbers[numbers < 127]
    exact = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2])
    exact = np.concatenate([exact, np.nextafter(exact, np.float32(0)), np.nextafter(exact, np.float32(200))])
    exact = np.concatenate([[127], exact, -exact])[:size[1]].astype(np.float32)
    x[0, :exact.size] = exact
    x[0, exact.size:] = 0
    x[1, :size[1] // 2] *= np.float32(2.0 ** -14)
    return there_and_back(x, "f8E4M3FN")


def in_bytes(attention, stored="i8"):
    """Keys and values as rows of bytes: given, or made of what is given. What these stand for is not rounded."""
    text, inputs, weights, _ = attention_ir.entry(attention)
    kind = {np.float16: "f16", np.float32: "f32"}[attention.query.array.dtype.type]
    lines = ""
    for n, operand in ((1, attention.key), (2, attention.value)):
        rows = narrow(operand.array.astype(np.float32), stored)
        wide, bytes_ = (f"tensor<{'x'.join(map(str, x.shape))}x{t}>" for x, t in ((operand.array, kind), (rows, stored)))
        if stored == "i8":
            text, inputs[f"x{n}"] = text.replace(f"%{n}: {wide}", f"%n{n}: {bytes_}", 1), rows
        else:
            lines += f"%n{n} = attn.narrow_rows %{n} : {wide} -> {bytes_}\n"
        lines += f"%w{n} = attn.widen_rows %n{n} : {bytes_} -> {wide}\n"
        operand.array = widen(rows, stored)
    text = text.replace("{attn.entry} {\n", "{attn.entry} {\n" + lines, 1)
    text = re.sub(r"ins\(%0, %1, %2\b", "ins(%0, %w1, %w2", text)
    return text, inputs, weights, {f"y{n}": value for n, value in enumerate(attention.evaluate())}


def maker(size, kind=np.float32):
    return attention_ir.Maker(kernel_cases.rng, size, attention_cases.to_both_halves if kind == np.float16 else lambda x: x, kind)


# Each number of queries, keys on both sides of a tile and in parts, widths of lanes that are not all in a row; then what is
# written out: more queries, rows that are no words, and such as a warp does not hold.
SIZES = [(1, 2, 2, 1, 7, 8, 8), (2, 2, 1, 1, 1, 16, 24), (1, 2, 1, 3, 33, 12, 20), (1, 1, 1, 4, 130, 64, 64), (2, 4, 2, 1, 257, 64, 64),
         (1, 2, 2, 1, 1100, 128, 128), (1, 1, 1, 2, 65, 256, 40), (1, 70, 35, 1, 63, 64, 64), (1, 1, 1, 5, 33, 16, 16), (1, 1, 1, 1, 20, 10, 14),
         (1, 1, 1, 1, 9, 132, 8)]


@case("caches", *SIZES)
def read(size):
    made = maker(size)
    return [in_bytes(made.attention()), in_bytes(made.attention(key=made.normal("jbhd", {"h": made.groups}), value=made.normal("hbje", {"h": made.groups})))]


@case("caches", *SIZES[2:6])
def read_masked(size):
    """Rows whose scale is no number and that no query sees; rows that see no key; a table in the scores."""
    made = maker(size)
    lengths = made.lengths([0] + [size[4] // 2] * (size[0] - 1))
    return [in_bytes(made.hide(made.attention(mask=[made.causal(size[4] // 2)]))), in_bytes(made.hide(made.attention(rows="nan", mask=[lengths]))),
            in_bytes(made.attention(rows="uniform", mask=[lengths])), in_bytes(made.attention(captures=[made.normal("hij")], mask=[made.dense(0)]))]


@case("caches", *SIZES[:6])
def read_by_halves(size):
    """Queries of 16 bits."""
    made = maker(size, np.float16)
    return [attention_cases.in_half(*in_bytes(made.attention(), stored)) for stored in ("i8", "f8E4M3FN")]


@case("caches", *SIZES)
def read_float8(size):
    made = maker(size)
    lengths = made.lengths([0] + [size[4] // 2] * (size[0] - 1))
    return [in_bytes(made.attention(), "f8E4M3FN"), in_bytes(made.attention(rows="uniform", mask=[lengths]), "f8E4M3FN"),
            in_bytes(made.hide(made.attention(mask=[made.causal(size[4] // 2)])), "f8E4M3FN")]


@case("caches", *((1, 2, 1, 1, j, 64, 64) for j in (0, 1, 63, 64, 65, 129)), (2, 2, 2, 4, 40, 16, 8))
def read_any_length(size):
    """As a search has them: how many keys there are the run tells."""
    made = dataclasses.replace((m := maker(size)).attention(), query=m.normal("bhid"), value=m.normal("bhje", {"h": m.groups}), result="bhie")
    b, h, g, i, j, d, e = size
    if j:
        _, inputs, _, outputs = in_bytes(made)
    else:
        inputs = {"x0": made.query.array, "x1": narrow(made.key.array), "x2": narrow(made.value.array)}
        outputs = {"y0": np.zeros((b, h, i, e))}
    maps = ", ".join(x.map() for x in (made.query, made.key, made.value, attention_ir.Operand(None, "bhie")))
    keys, result = f"tensor<{b}x{g}x?x{{}}x{{}}>", f"tensor<{b}x{h}x{i}x{e}xf32>"
    wide, stored = [keys.format(n, "f32") for n in (d, e)], [keys.format(n + 4, "i8") for n in (d, e)]
    text = f"""
      func.func @main(%q: tensor<{b}x{h}x{i}x{d}xf32> {{attn.name = "x0"}}, %k: {stored[0]} {{attn.name = "x1"}},
                      %v: {stored[1]} {{attn.name = "x2"}}) -> ({result} {{attn.name = "y0"}}) attributes {{attn.entry}} {{
        %wk = attn.widen_rows %k : {stored[0]} -> {wide[0]}
        %wv = attn.widen_rows %v : {stored[1]} -> {wide[1]}
        %y = attn.attention kind dot normalizer softmax masked_rows zero maps [{maps}]
            ins(%q, %wk, %wv : tensor<{b}x{h}x{i}x{d}xf32>, {wide[0]}, {wide[1]}) -> {result}
        score {{
        ^bb0(%x: f32):
          %c = arith.constant {made.scale:e} : f32
          %s = arith.mulf %x, %c : f32
          attn.yield %s : f32
        }}
        return %y : {result}
      }}"""
    return text, inputs, {}, outputs
