#ifndef FRONTENDS_ONNX_OPS_MATMUL_H
#define FRONTENDS_ONNX_OPS_MATMUL_H

#include "frontends/onnx/Importer.h"
#include "llvm/ADT/SmallVector.h"
#include <map>

// Contractions whose dimensions have labels, as in an einsum: what MatMul,
// Gemm, Einsum and Conv have in common.

namespace attn::onnx {

using Label = int;
using LabelSizes = std::map<Label, Expr>;

struct LabelledTensor {
  Tensor tensor;
  llvm::SmallVector<Label> labels; // one a dimension, each once
};

/// Enters the sizes of the labels of `t`. A size of 1 gives way to another;
/// other sizes must be equal.
mlir::LogicalResult collectSizes(Node &n, const LabelledTensor &t, LabelSizes &sizes);

/// `t` without the unit dimensions that are broadcast to another size.
mlir::FailureOr<LabelledTensor> dropBroadcast(Node &n, LabelledTensor t, const LabelSizes &sizes);

/// result[out] = sum over the other labels of a * b. At least one label is in
/// both operands and not in `out`, and none is in one operand alone and not in
/// `out`. Sizes are checked here.
mlir::FailureOr<Tensor> contractLabels(Node &n, DType result, LabelledTensor a, LabelledTensor b,
                                       llvm::ArrayRef<Label> out);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_MATMUL_H
