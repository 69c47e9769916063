#!/usr/bin/env python3
"""Writes graphs and weights that must be refused, and what must be said of each.

    make_hostile_graphs.py FOLDER

writes FOLDER/NAME.json, FOLDER/NAME.safetensors and FOLDER/expected.json: name -> [exit status, text, position or ""].
Each is a graph that compiles with one thing wrong.
"""
import copy
import json
import os
import struct
import sys

GOOD = {"format": 1, "weights": "NAME.safetensors", "dimensions": {"batch": {}, "time": {}},
        "inputs": {"x": {"shape": ["batch", "time", 4]}},
        "layers": [{"layer": "linear", "name": "y", "input": "x"}], "outputs": ["y"]}
HEADER = {"y.weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}, "y.bias": {"dtype": "F32", "shape": [3], "data_offsets": [48, 60]}}
CASES = {}


def weights(header=None, data=bytes(60), length=None, text=None):
    text = json.dumps(HEADER if header is None else header) if text is None else text
    return struct.pack("<Q", len(text) if length is None else length) + text.encode() + data


def graph(name, status, message, change=None, text=None, at=""):
    """A graph changed by `change`, or a text of its own."""
    value = copy.deepcopy(GOOD)
    if change:
        change(value)
    CASES[name] = (status, message, at, text if text is not None else json.dumps(value, indent=1).replace("NAME", name), weights())


def file(name, message, **options):
    CASES[name] = (3, message, "", json.dumps(GOOD).replace("NAME", name), weights(**options))


def changed(tensor, **fields):
    header = copy.deepcopy(HEADER)
    header[tensor].update(fields)
    return header


def layer(**fields):
    return lambda g: g["layers"][0].update(fields)


def layers(*items):
    return lambda g: g["layers"].__setitem__(slice(None), items)


# --- JSON
graph("good", 0, "")
graph("empty", 3, "expected a value, found the end of the file", text="", at=":1:1")
graph("cut", 3, "expected ',' or '}', found the end of the file", text='{"format": 1', at=":1:13")
graph("twice", 3, "the key 'format' stands twice in one object", text='{"format": 1,\n "format": 1}', at=":2:2")
graph("deep", 3, "arrays and objects are nested deeper than 64", text="[" * 100_000, at=":1:65")
graph("not_utf8", 3, "the text is not UTF-8", text="{\"name\": \"\udcff\"}")
graph("trailing", 3, "something follows the end of the JSON value", text='{"format": 1}\n!', at=":2:1")
graph("number", 3, "'01' is not a number", text='{"format": 01}', at=":1:12")
graph("huge_number", 3, "is too large", text='{"format": 1e999}', at=":1:12")
graph("wide_integer", 3, "does not fit 64 bits", text='{"format": 99999999999999999999}', at=":1:12")
graph("escape", 3, "the string holds a control character or an unknown escape", text='{"name": "\\q"}', at=":1:10")
graph("open_string", 3, "the string has no end", text='{"name": "a\n"}', at=":1:10")
# --- schema
graph("no_format", 3, "needs the key 'format'", lambda g: g.pop("format"))
graph("version", 3, "'format' is 2, and 1 is the only version known", lambda g: g.update(format=2))
graph("unknown_key", 3, "unknown key 'inptu', did you mean 'input'?", layer(inptu="x"), at=":22:4")
graph("unknown_layer", 3, "'liner' is none of linear", layer(layer="liner"))
graph("kind", 3, "layer 'y' (linear): expected a string, found an integer", layer(input=1))
graph("least", 3, "expected at least 1, found 0", layer(units=0))
graph("least_fraction", 3, "expected at least 1e-06, found 0",
      lambda g: g.update(search={"kind": "sample", "temperature": 0, "max_length": 4}))
graph("bad_name", 3, "'a b' is no name", layer(name="a b"))
graph("no_layers", 3, "needs the key 'layers', or 'entries'", lambda g: g.pop("layers"))
graph("search_key", 3, "unknown key 'beams'", lambda g: g.update(search={"beams": 4, "max_length": 4}))
graph("search_alone", 3, "'search' needs 'entries'", lambda g: g.update(search={"max_length": 4}))


def searched(**search):
    def change(g):
        g["entries"] = {"step": {key: g.pop(key) for key in ("inputs", "layers", "outputs")}}
        g["search"] = {key: value for key, value in {"max_length": 4, **search}.items() if value is not None}
    return change


graph("search_kind", 3, "'width' belongs to a search of kind 'beam' or 'ctc_beam', not 'greedy'", searched(width=2))
graph("search_length", 3, "max_length is a number, 'input', 'dim:NAME' or 'dim:NAME+N'", searched(max_length="long"))
graph("search_no_length", 3, "a search of kind 'greedy' needs 'max_length'", searched(max_length=None))
graph("search_ctc", 3, "'max_length' belongs to a search of kind 'greedy' or 'beam' or 'sample', not 'ctc_greedy'", searched(kind="ctc_greedy"))
graph("search_coverage", 3, "'coverage_penalty' needs an 'alignment'", searched(kind="beam", coverage_penalty=0.5))
graph("search_frames", 2, "has no output or input 'frames' of numbers of frames", searched(kind="ctc_beam", max_length=None, frames="frames"))
graph("search_step", 2, "has no entry 'decode'", searched(step="decode"))
graph("search_tokens", 2, "has no input that can be told to take tokens", searched())
# --- meaning
graph("no_value", 3, "layer 'y' (linear): there is no value 'xx' here, did you mean 'x'?", layer(input="xx"))
graph("same_name", 3, "there is a value of that name already", layer(name="x"))
graph("no_dimension", 3, "dimension 'tme' is not declared in 'dimensions'", lambda g: g["inputs"]["x"]["shape"].__setitem__(1, "tme"))
graph("bounds", 3, "dimension 'time' is at least 5 and at most 2", lambda g: g["dimensions"].update(time={"min": 5, "max": 2}))
graph("no_output", 3, "there is no value 'z' here", lambda g: g.update(outputs=["z"]))
graph("output_twice", 3, "output 'y' is listed twice", lambda g: g.update(outputs=["y", "y"]))
graph("units", 3, "weight 'y.weight' has shape 3x4, expected 5x4", layer(units=5))
graph("no_weight", 3, "the file of weights has no tensor 'z.weight', did you mean 'y.weight'?", layer(name="z"))
graph("rank", 3, "its input has 3 dimensions [batch, time, 4], expected 2", layers({"layer": "lstm_cell", "name": "y", "input": "x", "state": "x", "cell": "x"}))
graph("axis", 3, "axis 3 is outside [-3, 3)", layers({"layer": "softmax", "name": "y", "input": "x", "axis": 3}))
graph("axes_twice", 3, "names axis 1 twice", layers({"layer": "transpose", "name": "y", "input": "x", "order": [0, 1, -2]}))
graph("step_zero", 3, "a step of 0 goes nowhere", layers({"layer": "slice", "name": "y", "input": "x", "step": 0}))
graph("size", 3, "'tim' is no dimension of the graph", layers({"layer": "range", "name": "y", "size": "batch * tim"}))
graph("size_overflow", 3, "the size is beyond 64 bits", layers({"layer": "range", "name": "y", "size": "9000000000000000000 * 9"}))
graph("huge_fill", 3, "limit of", layers({"layer": "fill", "name": "y", "shape": [1 << 40, 1 << 20]}))
graph("negative_fill", 3, "", layers({"layer": "fill", "name": "y", "shape": [-5]}))
graph("formula_end", 3, "expected a value, found the end of the formula", layers({"layer": "formula", "name": "y", "value": "x +"}))
graph("formula_name", 3, "there is no function 'tan'", layers({"layer": "formula", "name": "y", "value": "tan(x)"}))
graph("formula_deep", 3, "the formula is nested deeper than 64", layers({"layer": "formula", "name": "y", "value": "(" * 100_000 + "x"}))
graph("formula_minus", 3, "the formula is nested deeper than 64", layers({"layer": "formula", "name": "y", "value": "-" * 100_000 + "x"}))
graph("formula_numbers", 3, "a formula of numbers alone has no type", layers({"layer": "formula", "name": "y", "value": "1 + 2"}))
graph("many_rounds", 3, "is one of more than 100000 layers", layers(
    {"layer": "repeat", "name": "r", "times": 1 << 40, "state": {"v": "x"}, "next": {"v": "w"}, "layers": [{"layer": "formula", "name": "w", "value": "v"}]},
    {"layer": "formula", "name": "y", "value": "r"}))
graph("next_missing", 3, "'next' does not say what 'v' becomes", layers(
    {"layer": "loop", "name": "y", "steps": 3, "state": {"v": "x"}, "next": {"u": "w"}, "layers": [{"layer": "formula", "name": "w", "value": "v"}]}))
graph("no_steps", 3, "needs 'steps', or something to run 'over'", layers(
    {"layer": "loop", "name": "y", "state": {"v": "x"}, "next": {"v": "w"}, "layers": [{"layer": "formula", "name": "w", "value": "v"}]}))
graph("changing_type", 3, "carries a value that is float32 before the loop and int64 after an iteration", layers(
    {"layer": "loop", "name": "y", "steps": 3, "state": {"v": "x"}, "next": {"v": "w"}, "layers": [{"layer": "cast", "name": "w", "input": "v", "dtype": "int64"}]}))
graph("few_locations", 3, "", layers({"layer": "attention", "name": "y", "keys": "x", "score": "location"}))
# --- safetensors
graph("outside", 3, "weights '../w.safetensors': ", lambda g: g.update(weights="../w.safetensors"))
graph("absolute", 3, "weights '/etc/passwd': ", lambda g: g.update(weights="/etc/passwd"))
graph("no_file", 3, "it cannot be opened", lambda g: g.update(weights="absent.safetensors"))
file("short", message="has 4 bytes, too few for a safetensors file")
CASES["short"] = (*CASES["short"][:4], b"1234")
file("header_length", "says that its header has 18446744073709551615 bytes", length=2**64 - 1)
file("header_json", "its header, column", text="{]")
file("header_array", "its header does not begin with '{'", text="[]")
file("header_twice", "the key 'a' stands twice", text='{"a": {}, "a": {}}')
file("header_deep", "nested deeper than 64", text='{"a": ' + "[" * 50_000)
file("metadata", "its __metadata__ is not an object of strings", header={"__metadata__": {"a": 1}, **HEADER})
file("hole", "begins at byte 52 of the data, the one before it ends at 48", header=changed("y.bias", data_offsets=[52, 64]), data=bytes(64))
file("overlap", "begins at byte 44 of the data, the one before it ends at 48", header=changed("y.bias", data_offsets=[44, 56]), data=bytes(56))
file("trailing_bytes", "has 61 bytes of data, its tensors end at 60", data=bytes(61))
file("beyond", "which are not within the 50 bytes of data", data=bytes(50))
file("backwards", "has data_offsets 60 to 48", header=changed("y.bias", data_offsets=[60, 48]))
file("too_few", "has 12 bytes, its shape 4 of F32 needs 16", header=changed("y.bias", shape=[4]))
file("shape_overflow", "is larger than the limit", header=changed("y.bias", shape=[1 << 62, 1 << 62]))
file("shape_negative", "has a dimension that is no size", header=changed("y.bias", shape=[-3]))
file("dtype", "has the unknown dtype 'F33'", header=changed("y.bias", dtype="F33"))
file("other_dtype", "is float16, what it meets is float32", header=changed("y.bias", dtype="F16", shape=[6]))
file("extra_field", "is described by dtype, shape and data_offsets, and nothing else", header=changed("y.bias", more=1))


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for name, (_, _, _, text, data) in CASES.items():
        with open(f"{folder}/{name}.json", "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write(text)
        with open(f"{folder}/{name}.safetensors", "wb") as f:
            f.write(data)
    with open(f"{folder}/expected.json", "w") as f:
        json.dump({name: case[:3] for name, case in CASES.items()}, f)


if __name__ == "__main__":
    main(sys.argv[1])
