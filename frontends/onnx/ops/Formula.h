#ifndef FRONTENDS_ONNX_OPS_FORMULA_H
#define FRONTENDS_ONNX_OPS_FORMULA_H

#include "frontends/onnx/ops/Num.h"

namespace attn::onnx {

/// What an elementwise operator computes from one element of each operand.
using Formula = llvm::function_ref<Num(llvm::ArrayRef<Num>)>;

/// The formula on integers as expressions, for sizes that a model computes.
using SymbolicFormula = llvm::function_ref<std::optional<Scalar>(llvm::ArrayRef<Scalar>)>;

/// `body` applied to the broadcast of `operands`. f16 and bf16 operands arrive
/// as f32, and the result is converted to `result`. Known elements give known
/// elements where the formula, run on constants, folds, or where `symbolic`
/// has an answer.
mlir::FailureOr<Tensor> formula(Node &n, DType result, llvm::ArrayRef<Tensor> operands, Formula body,
                                SymbolicFormula symbolic = nullptr);

/// The formula's result as output 0.
mlir::LogicalResult setFormula(Node &n, DType result, llvm::ArrayRef<Tensor> operands, Formula body,
                               SymbolicFormula symbolic = nullptr);

/// A rank-0 tensor of one known element.
Tensor scalarTensor(DType dtype, Scalar value);

/// Error unless the inputs 0..count-1 are there.
mlir::LogicalResult expectInputs(Node &n, size_t count);
/// Error unless the dtype of input `i` is a float type.
mlir::LogicalResult expectFloat(Node &n, size_t i);
/// Error unless both inputs have one dtype.
mlir::LogicalResult expectSameDType(Node &n, size_t i, size_t j);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_FORMULA_H
