"""Cases of check_kernels.py in which the CPU computes a part, or chooses."""
import re

import numpy as np
import onnx
from onnx import TensorProto, helper

from kernel_cases import case, normal


HOST = {"flags": ["--allow-host-ops"]}


def entry_of(operands, result, body):
    """A function in IR, of f32 or f64 tensors by name."""
    kind = lambda shape, element="f32": f"tensor<{'x'.join(map(str, shape))}x{element}>"
    named = ", ".join(f'%{name}: {kind(*shape)} {{attn.name = "{name}"}}' for name, shape in operands.items())
    results = ", ".join(f'{kind(*shape)} {{attn.name = "{name}"}}' for name, shape in result.items())
    body = re.sub(r"<(\w+(?:x\w+)*):(f\d+)>", r"tensor<\1x\2>", body)
    return f"func.func @main({named}) -> ({results}) attributes {{attn.entry}} {{\n{body}\n}}\n"


CUBE_ROOT = "math.cbrt"  # of f64, which no operator of ONNX asks for and a GPU has no code for


@case("host", (3, 5, 4), (40, 33, 7), **HOST)
def cube_root_between_products(size):
    """A function without code for a GPU: two copies around it."""
    m, n, k = size
    x, w, v = normal(m, k), normal(k, n), normal(n, k)
    body = f"""
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : <{m}x{n}:f32>
  %f = linalg.fill ins(%zero : f32) outs(%e : <{m}x{n}:f32>) -> <{m}x{n}:f32>
  %p = linalg.matmul ins(%x, %w : <{m}x{k}:f32>, <{k}x{n}:f32>) outs(%f : <{m}x{n}:f32>) -> <{m}x{n}:f32>
  %s = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%p : <{m}x{n}:f32>) outs(%e : <{m}x{n}:f32>) {{
  ^bb0(%a: f32, %o: f32):
    %wide = arith.extf %a : f32 to f64
    %root = {CUBE_ROOT} %wide : f64
    %r = arith.truncf %root : f64 to f32
    linalg.yield %r : f32
  }} -> <{m}x{n}:f32>
  %g = tensor.empty() : <{m}x{k}:f32>
  %h = linalg.fill ins(%zero : f32) outs(%g : <{m}x{k}:f32>) -> <{m}x{k}:f32>
  %y = linalg.matmul ins(%s, %v : <{m}x{n}:f32>, <{n}x{k}:f32>) outs(%h : <{m}x{k}:f32>) -> <{m}x{k}:f32>
  return %y : <{m}x{k}:f32>"""
    text = entry_of({"x": [(m, k)], "w": [(k, n)], "v": [(n, k)]}, {"y": [(m, k)]}, body)
    return text, {"x": x, "w": w, "v": v}, {}, {"y": np.cbrt(x.astype(float) @ w) @ v}


@case("host", (6, 9), (2, 3000), free={("x", 0): "rows", ("x", 1): "columns"}, **HOST)
def remainder_of_a_part(size):
    """On a view of a buffer, of open sizes; one operand is a table of constants."""
    x = 10 * normal(*size)
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Slice", ["a", "one", "last", "axis"], ["b"]),
             helper.make_node("Mod", ["b", "c"], ["y"], fmod=1), helper.make_node("Neg", ["a"], ["z"])]
    weights = {"c": np.float32([0.75]), "one": np.array([1]), "last": np.array([2**40]), "axis": np.array([1])}
    return nodes, {"x": x}, weights, {"y": np.fmod(np.abs(x)[:, 1:], np.float32(0.75)), "z": -np.abs(x)}


@case("host", (5, 7), **HOST)
def cube_root_in_a_loop(size):
    steps, n = size
    x = np.float64(normal(steps, n))
    body = f"""
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %steps = arith.constant {steps} : index
  %y = scf.for %i = %c0 to %steps step %c1 iter_args(%s = %z) -> (<{n}:f64>) {{
    %row = tensor.extract_slice %x[%i, 0] [1, {n}] [1, 1] : <{steps}x{n}:f64> to <{n}:f64>
    %e = tensor.empty() : <{n}:f64>
    %t = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]}} ins(%row, %s : <{n}:f64>, <{n}:f64>) outs(%e : <{n}:f64>) {{
    ^bb0(%a: f64, %b: f64, %o: f64):
      %root = {CUBE_ROOT} %a : f64
      %sum = arith.addf %root, %b : f64
      linalg.yield %sum : f64
    }} -> <{n}:f64>
    scf.yield %t : <{n}:f64>
  }}
  return %y : <{n}:f64>"""
    text = entry_of({"z": [(n,), "f64"], "x": [(steps, n), "f64"]}, {"y": [(n,), "f64"]}, body)
    return text, {"z": np.zeros(n), "x": x}, {}, {"y": np.cbrt(x).sum(0)}


@case("host", (5, 0), (5, 1))
def choice_of_buffers(size):
    """If: a buffer of the device or a table of constants; neither is touched by the CPU."""
    n, flag = size
    x, table = normal(n), np.arange(n, dtype=np.float32)
    value = onnx.numpy_helper.from_array(table, "v")
    branches = {f"{key}_branch": helper.make_graph([node], key, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [n])])
                for key, node in (("then", helper.make_node("Neg", ["x"], ["t"])), ("else", helper.make_node("Constant", [], ["e"], value=value)))}
    nodes = [helper.make_node("If", ["c"], ["h"], **branches), helper.make_node("Sub", ["h", "x"], ["y"])]
    return nodes, {"c": np.array(bool(flag)), "x": x}, {}, {"y": (-x if flag else table).astype(float) - x}
