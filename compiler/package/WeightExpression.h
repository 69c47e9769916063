#ifndef COMPILER_PACKAGE_WEIGHTEXPRESSION_H
#define COMPILER_PACKAGE_WEIGHTEXPRESSION_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/WeightStore.h"
#include "llvm/ADT/ArrayRef.h"
#include <memory>
#include <vector>

namespace attn {

/// The bytes of an evaluated weight: a view of the store, or owned.
struct WeightBytes {
  llvm::ArrayRef<char> bytes;
  std::shared_ptr<const std::vector<char>> owner;
};

/// Bytes of one element in the library: whole bytes, i1 takes one.
uint64_t weightElementBytes(mlir::Type elementType);
/// Bytes of a tensor of static shape; nullopt when they do not fit 2^62.
std::optional<uint64_t> weightTensorBytes(mlir::RankedTensorType type);

/// The globals that the expression of `global` reads directly.
llvm::SmallVector<mlir::FlatSymbolRefAttr> weightSources(GlobalOp global);

/// Checks that the expression of `global`, given the types of its sources,
/// has the declared type; emits a diagnostic otherwise.
mlir::LogicalResult verifyWeightExpression(GlobalOp global, llvm::ArrayRef<mlir::RankedTensorType> sources);

struct Narrowing;

/// Computes the bytes of a verified global from the bytes of its sources; what
/// fewer bits lose goes to `narrowing`. None, with a diagnostic, where they
/// cannot hold the values.
WeightBytes applyWeightExpression(GlobalOp global, llvm::ArrayRef<mlir::RankedTensorType> types,
                                  llvm::ArrayRef<WeightBytes> sources, Narrowing *narrowing = nullptr);

} // namespace attn

#endif // COMPILER_PACKAGE_WEIGHTEXPRESSION_H
