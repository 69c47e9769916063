#ifndef COMPILER_PACKAGE_BYTEWEIGHT_H
#define COMPILER_PACKAGE_BYTEWEIGHT_H

#include "compiler/package/WeightExpression.h"

namespace attn {

/// The shape that `#attn.byte_panels`, `#attn.column_sums` or `#attn.step_order` gives of `source`; fails with a
/// diagnostic where the source or the parameters do not fit.
mlir::FailureOr<llvm::SmallVector<int64_t>> byteShape(GlobalOp global, mlir::RankedTensorType source);

/// The bytes, or words of i32, of a verified global with one of these expressions.
WeightBytes packBytes(GlobalOp global, mlir::RankedTensorType type, const WeightBytes &source);

} // namespace attn

#endif // COMPILER_PACKAGE_BYTEWEIGHT_H
