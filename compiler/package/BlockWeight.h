#ifndef COMPILER_PACKAGE_BLOCKWEIGHT_H
#define COMPILER_PACKAGE_BLOCKWEIGHT_H

#include "compiler/package/NarrowWeight.h"

namespace attn {

/// The shape of #attn.block_codes or #attn.block_scales, or a diagnostic.
mlir::FailureOr<llvm::SmallVector<int64_t>> blockShape(GlobalOp global, mlir::RankedTensorType source);

/// The bytes of such a global, from those of its source; none, with a diagnostic, where an element is not finite. What
/// the codes differ by is added to `narrowing`, if given.
WeightBytes storeInBlocks(GlobalOp global, mlir::RankedTensorType type, const WeightBytes &source,
                          Narrowing *narrowing);

} // namespace attn

#endif // COMPILER_PACKAGE_BLOCKWEIGHT_H
