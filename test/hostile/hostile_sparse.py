"""Sparse initialisers and constants."""
import numpy as np
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from hostile_pieces import case, external, identity, model, weight


def sparse(dims, indices, values=(1.0, 2.0), dtype=np.int64):
    result = SparseTensorProto(dims=dims, indices=numpy_helper.from_array(np.array(indices, dtype), "places"))
    result.values.CopyFrom(values if isinstance(values, TensorProto) else
                           numpy_helper.from_array(np.array(values, np.float32), "w"))
    return result


def with_sparse(tensor):
    result = model([identity("w")])
    result.graph.sparse_initializer.append(tensor)
    return result


def as_constant(tensor):
    return model([helper.make_node("Constant", [], ["y"], "c", sparse_value=tensor)])


@case(0, "")
def sparse_flat(_):
    return with_sparse(sparse([3, 4], [0, 11]))


@case(0, "")
def sparse_wide(_):
    return with_sparse(sparse([3, 4], [[0, 3], [2, 0]]))


@case(0, "")
def sparse_of_nothing(_):
    return with_sparse(sparse([3, 4], np.zeros((0, 2)), []))


@case(0, "")
def sparse_constant(_):
    return as_constant(sparse([3, 4], [0, 11]))


@case(3, "initialiser 'w' has index 12 of value 1 outside [0, 12)")
def sparse_index_beyond(_):
    return with_sparse(sparse([3, 4], [0, 12]))


@case(3, "initialiser 'w' has index -1 of value 0 outside [0, 12)")
def sparse_index_negative(_):
    return with_sparse(sparse([3, 4], [-1, 2]))


@case(3, "initialiser 'w' has index 4 of value 1 outside [0, 4), its dimension 1")
def sparse_index_beyond_dimension(_):
    return with_sparse(sparse([3, 4], [[0, 0], [1, 4]]))


@case(3, "initialiser 'w' has value 1 at element 3, after one at element 5; indices have to ascend")
def sparse_unsorted(_):
    return with_sparse(sparse([3, 4], [[1, 1], [0, 3]]))


@case(3, "initialiser 'w' has value 1 at element 5, after one at element 5; indices have to ascend")
def sparse_twice(_):
    return with_sparse(sparse([3, 4], [5, 5]))


@case(3, "initialiser 'w' has indices of int32, expected int64")
def sparse_index_type(_):
    return with_sparse(sparse([3, 4], [0, 1], dtype=np.int32))


@case(3, "initialiser 'w' has indices of shape 2x3, expected 2 or 2x2")
def sparse_index_shape(_):
    return with_sparse(sparse([3, 4], [[0, 0, 0], [0, 0, 1]]))


@case(3, "initialiser 'w' has indices of shape 3, expected 2 or 2x2")
def sparse_index_count(_):
    return with_sparse(sparse([3, 4], [0, 1, 2]))


@case(3, "initialiser 'w' has values of shape 1x2, expected 1 dimension")
def sparse_value_shape(_):
    return with_sparse(sparse([3, 4], [0, 1], [[1, 2]]))


@case(3, "initialiser 'w' in its values has 4 bytes, but its shape 2 of float32 needs 8")
def sparse_short_values(_):
    return with_sparse(sparse([3, 4], [0, 1], weight("w", [2], raw=bytes(4))))


@case(2, "initialiser 'w' in its values has element type STRING, which is not supported")
def sparse_strings(_):
    return with_sparse(sparse([3, 4], [0], helper.make_tensor("w", TensorProto.STRING, [1], [b"text"])))


@case(3, "initialiser 'w' has 0 dimensions, expected 1 to 8")
def sparse_scalar(_):
    return with_sparse(sparse([], [0, 1]))


@case(3, "initialiser 'w' has a dimension of size -4, expected at least 1")
def sparse_negative_dimension(_):
    return with_sparse(sparse([3, -4], [0, 1]))


@case(3, "initialiser 'w' of shape 536870912 is sparse; dense it would have 2147483648 bytes")
def sparse_too_large(_):
    return with_sparse(sparse([1 << 29], [0, 1]))


@case(3, "initialiser 'w' of shape 4294967296x4294967296 is sparse; dense it would have more than 1099511627776 bytes")
def sparse_beyond_64_bits(_):
    return with_sparse(sparse([1 << 32, 1 << 32], [0, 1]))


@case(3, "of 2147483647 for all sparse tensors of a model 1073741823 are left")
def sparse_too_large_together(_):
    result = with_sparse(sparse([1 << 28], [0, 1]))
    result.graph.sparse_initializer.append(sparse([1 << 28], [0, 1], weight("v", [2], raw=bytes(8))))
    return result


@case(3, "tensor in attribute 'sparse_value' has index 12 of value 1 outside [0, 12)")
def sparse_constant_index(_):
    return as_constant(sparse([3, 4], [0, 12]))


@case(3, "attribute 'sparse_value' does not hold the type that it declares (SPARSE_TENSOR)")
def sparse_constant_without_tensor(_):
    result = as_constant(sparse([3, 4], [0, 1]))
    result.graph.node[0].attribute[0].ClearField("sparse_tensor")
    return result


@case(3, "has two initialisers 'w'")
def sparse_and_dense(_):
    result = with_sparse(sparse([3, 4], [0, 1]))
    result.graph.initializer.append(weight("w", [1], raw=bytes(4)))
    return result


@case(3, "initialiser 'w' in its values external data 'nowhere.bin': it cannot be opened")
def sparse_missing_file(_):
    values = external(location="nowhere.bin").graph.initializer[0]
    values.dims[0] = 2
    return with_sparse(sparse([3, 4], [0, 1], values))
