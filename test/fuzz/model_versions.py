"""The same model in another opset: attributes that became inputs and back, and what an opset allows."""
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

# The first opset in which an input takes the place of the attribute: its index and name.
AXES = {"ReduceSum": (13, 1, "axes"), "Squeeze": (13, 1, "axes"), "Unsqueeze": (13, 1, "axes"), "Split": (13, 1, "split"),
        "TopK": (10, 1, "k"), **{f"Reduce{n}": (18, 1, "axes") for n in ("Max", "Min", "Mean", "L2", "L1", "Prod")}}
# The attributes that may be negative from opset 11 on.
NEGATIVE = ("axis", "axes")
# Before these opsets an operator of the same name meant another thing, or said it in another way.
OTHERWISE = {"Scan": 9, "Slice": 10, "Dropout": 12, "Clip": 11, "Pad": 11, "BatchNormalization": 9}


class CannotSpell(Exception):
    pass


def spelled(model, opset):
    """`model` in `opset`, or None where that opset lacks something that it uses."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    before = copy.opset_import[0].version
    copy.opset_import[0].version = opset
    copy.ir_version = 4 if opset < 10 else 10
    try:
        respell(copy.graph, before, opset, {}, {})
        onnx.checker.check_model(copy, full_check=True)
        require_types(copy.graph, opset, known_types(onnx.shape_inference.infer_shapes(copy).graph, {}))
    except (CannotSpell, onnx.checker.ValidationError, onnx.shape_inference.InferenceError, onnx.defs.SchemaError):
        return None
    return copy


def known_constants(graph, outer):
    constants = dict(outer, **{t.name: numpy_helper.to_array(t) for t in graph.initializer})
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return constants


def respell(graph, before, opset, outer, ranks):
    constants = known_constants(graph, outer)
    ranks = dict(ranks, **{i.name: len(i.type.tensor_type.shape.dim) for i in [*graph.value_info, *graph.input, *graph.output]
                           if i.type.tensor_type.HasField("shape")})
    ranks.update({n: v.ndim for n, v in constants.items()})
    for node in graph.node:
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                respell(a.g, before, opset, constants, ranks)
        if opset < OTHERWISE.get(node.op_type, 0):
            raise CannotSpell
        since, place, name = AXES.get(node.op_type, (0, 0, ""))
        if opset < since <= before and len(node.input) > place:
            if node.input[place] not in constants:
                raise CannotSpell
            value = constants[node.input[place]].reshape(-1).tolist()
            del node.input[place]
            node.attribute.append(helper.make_attribute(name, value[0] if name == "k" else value))
        elif before < since <= opset:
            for a in list(node.attribute):
                if a.name == name:
                    node.attribute.remove(a)
                    made = f"{node.output[0]}_{name}"
                    graph.initializer.append(numpy_helper.from_array(np.array(helper.get_attribute_value(a)), made))
                    node.input.append(made)
        if opset < 11:
            count_from_the_front(node, ranks, constants)


def count_from_the_front(node, ranks, constants):
    if node.op_type == "Gather" and (constants.get(node.input[1], np.zeros(1)) < 0).any():
        raise CannotSpell
    for a in node.attribute:
        if a.name not in NEGATIVE or node.op_type == "Constant":
            continue
        values = list(a.ints) or [a.i]
        rank = ranks.get(node.output[0] if node.op_type == "Unsqueeze" else node.input[0])
        if min(values) < 0 and rank is None:
            raise CannotSpell
        values = [v + rank if v < 0 else v for v in values]
        if a.ints:
            a.ints[:] = values
        else:
            a.i = values[0]


def known_types(graph, types):
    """Element types of all values, of bodies, too."""
    for info in [*graph.value_info, *graph.input, *graph.output]:
        types[info.name] = info.type.tensor_type.elem_type
    for tensor in graph.initializer:
        types[tensor.name] = tensor.data_type
    for node in graph.node:
        if node.op_type == "Constant":
            types[node.output[0]] = node.attribute[0].t.data_type
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                known_types(a.g, types)
    return types


def require_types(graph, opset, types):
    """That the opset's operators take what they are given."""
    for node in graph.node:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        for n, name in enumerate(node.input):
            form = schema.inputs[min(n, len(schema.inputs) - 1)]
            kind = types.get(name)
            if not name or not kind or form.type_str not in allowed:
                continue
            if f"tensor({TensorProto.DataType.Name(kind).lower()})" not in allowed[form.type_str]:
                raise CannotSpell
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                require_types(a.g, opset, types)
