#ifndef PASSES_GRAPH_ATTENTION_JOINPARTS_H
#define PASSES_GRAPH_ATTENTION_JOINPARTS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"
#include <vector>

namespace attn {

/// A tensor, read at `map` of the dimensions of some space, which is a projected permutation: one of several that lie
/// one behind the other along one of those dimensions, of which it has `size`.
struct Part {
  mlir::Value value;
  mlir::AffineMap map;
  int64_t size;
};

/// What parts are as one tensor. What the same ops make of parts is made of the whole; the rest is copied, and repeated
/// along dimensions that only others have.
struct JoinedParts {
  enum Kind {
    Same,      ///< one tensor, which lacks the dimension
    Slice,     ///< of one tensor, of which they are slices side by side
    Pointwise, ///< by the op of the first part, of `operands`
    Product,   ///< of the first of `operands`, one tensor, and of the second one, the whole of its parts
    Copy,      ///< one behind the other
  };
  Kind kind = Copy;
  llvm::SmallVector<Part> parts;
  std::vector<JoinedParts> operands;

  /// Whether products are among what is joined.
  bool hasProduct() const;
};

class PartsJoiner {
public:
  /// The space has dimensions of `sizes`, all parts together along dimension `along`, and behind them one that products
  /// are summed over: maps have one dimension more than there are sizes.
  PartsJoiner(llvm::SmallVector<mlir::OpFoldResult> sizes, unsigned along)
      : sizes(std::move(sizes)), along(along), summed(this->sizes.size()) {
    this->sizes.emplace_back();
  }

  /// None where the whole would have dimensions that no part has all of.
  std::optional<JoinedParts> match(llvm::SmallVector<Part> parts);
  /// Does not look at what computes parts.
  std::optional<JoinedParts> matchOperand(llvm::SmallVector<Part> parts);
  /// Their tensor, and where it is read, at `b`'s place.
  Part write(mlir::OpBuilder &b, mlir::Location loc, const JoinedParts &joined);

private:
  std::optional<JoinedParts> matchPointwise(llvm::ArrayRef<Part> parts);
  std::optional<JoinedParts> matchProduct(llvm::ArrayRef<Part> parts);
  /// All dimensions of parts, in their order.
  mlir::AffineMap mapOfCopy(llvm::ArrayRef<Part> parts);
  Part writeCopy(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<Part> parts);
  llvm::SmallVector<mlir::OpFoldResult> sizesOf(mlir::AffineMap map);

  llvm::SmallVector<mlir::OpFoldResult> sizes;
  unsigned along, summed, numSteps = 0;
};

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_JOINPARTS_H
