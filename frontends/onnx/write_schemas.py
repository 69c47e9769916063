#!/usr/bin/env python3
"""Writes OperatorSchemas.inc, what the standard says of each operator's inputs, outputs and attributes, from the
schemas of the onnx package: write_schemas.py [--check]

One line an operator and since_version:

    domain.Operator version|inputs|outputs|attributes|types

An input is `name:T`, T a type parameter or =MASK; an output is a name. `?` after the name: it may be missing; `*N`:
it is the last and stands for N or more of one type; `+N`: of any types. An attribute is `name:k`, k one letter for its
type (KINDS), and `!` if it has to be given. `types` are T=MASK: bit n for a tensor of data type n (TensorProto),
bit 32 + n for a sequence of such. Optional types count as what is in them.
"""
import pathlib
import sys

import onnx
from onnx import defs

FILE = pathlib.Path(__file__).with_name("OperatorSchemas.inc")
DOMAINS = ("", "ai.onnx.preview")
KINDS = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "FLOATS": "F", "INTS": "I",
         "STRINGS": "S", "TENSORS": "T", "GRAPHS": "G", "SPARSE_TENSOR": "z", "SPARSE_TENSORS": "Z", "TYPE_PROTO": "p",
         "TYPE_PROTOS": "P"}
TYPES = {name.lower(): number for name, number in onnx.TensorProto.DataType.items()}


def mask(types):
    bits = 0
    for text in types:
        shift = 0
        while not text.startswith("tensor("):
            kind, _, text = text.partition("(")
            if kind == "map":
                break
            shift = 32 if kind == "seq" else shift
        else:
            bits |= 1 << TYPES[text[len("tensor("):].rstrip(")")] + shift
    return f"{bits:x}"


def parameter(p, is_input):
    option = defs.OpSchema.FormalParameterOption
    text = p.name
    if p.option == option.Optional:
        text += "?"
    elif p.option == option.Variadic:
        text += ("*" if p.is_homogeneous else "+") + str(p.min_arity)
    if is_input:
        text += ":" + (f"={mask([p.type_str])}" if "(" in p.type_str else p.type_str)
    return text


def line(s):
    attributes = [f"{name}:{KINDS[a.type.name]}{'!' * a.required}" for name, a in sorted(s.attributes.items())]
    used = {p.type_str for p in s.inputs}
    types = [f"{t.type_param_str}={mask(t.allowed_type_strs)}" for t in s.type_constraints if t.type_param_str in used]
    parts = ([parameter(p, True) for p in s.inputs], [parameter(p, False) for p in s.outputs], attributes, types)
    return f"{s.domain}.{s.name} {s.since_version}|" + "|".join(" ".join(part) for part in parts)


def main(check=None):
    schemas = [s for s in defs.get_all_schemas_with_history() if s.domain in DOMAINS]
    lines = [line(s) for s in sorted(schemas, key=lambda s: (s.domain, s.name, s.since_version))]
    text = f"// Written by write_schemas.py from onnx {onnx.__version__}; its comment says how a line reads.\n"
    text += "".join(f'"{one}",\n' for one in lines)
    if check is None:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.name} is not what the schemas of onnx {onnx.__version__} say: run {sys.argv[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
