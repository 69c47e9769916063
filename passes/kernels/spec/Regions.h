#ifndef PASSES_KERNELS_SPEC_REGIONS_H
#define PASSES_KERNELS_SPEC_REGIONS_H

#include "mlir/IR/Block.h"
#include "mlir/IR/BuiltinAttributes.h"
#include <optional>
#include <string>

namespace attn {

// What is asked of the scalar ops that a kernel carries.

/// The dimension that an op asks for, if it is an index op (`attn.index`, `linalg.index`).
std::optional<int64_t> getIndexDim(mlir::Operation *op);
/// The value of a scalar constant, wherever it stands; null for anything else.
mlir::TypedAttr getScalarConstant(mlir::Value value);

/// True if every op of `block` maps to vectors element by element, is a
/// constant or an index op, no value but constants comes from outside, and one
/// scalar is yielded. Otherwise `reason`, if given, tells what stands in the way.
bool canVectorizeBlock(mlir::Block &block, std::string *reason = nullptr);

/// The generic form of `block` without locations and value names, constants
/// from outside included: equal for blocks that compute the same thing by the
/// same ops. Part of the key of a kernel that carries the block.
std::string blockSignature(mlir::Block &block);

} // namespace attn

#endif // PASSES_KERNELS_SPEC_REGIONS_H
