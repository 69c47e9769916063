"""Files that are no model, versions, operators, and weights in files of their own, of which PayloadTest tries more."""
import os

import numpy as np
from onnx import helper

from hostile_pieces import case, external, identity, model, weight, with_weight


@case(3, "is empty")
def empty_file(_):
    return b""


@case(3, "is not an ONNX model")
def text_file(_):
    return b"this is not a model\n" * 20


@case(3, "is not an ONNX model, or is cut off or damaged")
def truncated(_):
    data = with_weight(weight("w", [64], raw=bytes(256))).SerializeToString()
    return data[: len(data) // 2]


@case(3, "is not an ONNX model, or is cut off or damaged")
def random_bytes(_):
    return np.random.default_rng(7).integers(0, 256, 4096, dtype=np.uint8).tobytes()


@case(3, "has no graph")
def no_graph(_):
    return b"\x08\x08"  # ir_version: 8


@case(1, "has no model (*.onnx)")
def folder(at):
    os.makedirs(f"{at}/folder.onnx")


@case(1, "is not a regular file")
def fifo(at):
    os.mkfifo(f"{at}/fifo.onnx")


@case(1, "is not a regular file")
def device(at):
    os.symlink("/dev/zero", f"{at}/device.onnx")


@case(3, "limit is 2147483647")
def huge_file(at):
    with open(f"{at}/huge_file.onnx", "wb") as f:
        f.truncate(1 << 31)


@case(1, "no such file")
def missing_file(at):
    return None


@case(3, "imports version 0 of domain ''")
def old_opset(_):
    return model([identity()], opset=0)


@case(2, "opset 999 is not supported; known are 1 to 28")
def new_opset(_):
    return model([identity()], opset=999)


@case(2, "IR version 99 is not supported; known are 3 to 14")
def new_ir(_):
    return model([identity()], ir=99)


@case(3, "imports domain '' twice, as version 17 and 13")
def two_opsets(_):
    m = model([identity()])
    m.opset_import.add(domain="ai.onnx", version=13)
    return m


@case(3, "is of the default domain, of which the model imports no version")
def no_opset(_):
    m = model([identity()])
    del m.opset_import[:]
    return m


@case(2, "uses 3 operators that are not supported: StringNormalizer (node 'sn'); "
         "StringSplit (nodes 'nz1', 'nz2'); com.example.Magic (node 'm')")
def unsupported_operators(_):
    nodes = [helper.make_node("StringSplit", ["x"], ["a"], "nz1"), helper.make_node("StringSplit", ["x"], ["b"], "nz2"),
             helper.make_node("StringNormalizer", ["x"], ["c"], "sn"),
             helper.make_node("Magic", ["x"], ["y"], "m", domain="com.example")]
    return model(nodes, domains=["com.example"])


@case(3, "external data '../secret.bin': the location leaves the model's folder")
def external_parent(at):
    with open(f"{at}/../secret.bin", "wb") as f:
        f.write(bytes(16))
    return external(location="../secret.bin")


@case(3, "external data '/etc/passwd': the location is an absolute path")
def external_absolute(_):
    return external(location="/etc/passwd", length="16")


@case(3, "the location is or passes through a symbolic link")
def external_symlink(at):
    os.symlink("/etc/passwd", f"{at}/link.bin")
    return external(location="link.bin", length="16")


@case(3, "the file has 2 names (hard links), and must have one")
def external_hard_link(at):
    with open(f"{at}/original.bin", "wb") as f:
        f.write(bytes(16))
    os.link(f"{at}/original.bin", f"{at}/hard.bin")
    return external(location="hard.bin")


@case(3, "are not within its 8 bytes")
def external_short(at):
    with open(f"{at}/short.bin", "wb") as f:
        f.write(bytes(8))
    return external(location="short.bin")


@case(3, "has length 99999999999, but the tensor needs 16 bytes")
def external_length(_):
    return external(location="short.bin", length="99999999999")


@case(3, "the offset of its external data, '-16', is not a number in [0, 2^63)")
def external_negative_offset(_):
    return external(location="short.bin", offset="-16")
