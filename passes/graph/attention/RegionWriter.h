#ifndef PASSES_GRAPH_ATTENTION_REGIONWRITER_H
#define PASSES_GRAPH_ATTENTION_REGIONWRITER_H

#include "passes/graph/attention/AttentionMatch.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <map>

namespace attn {

/// Writes into a block the scalar computation of one element of a tensor, from
/// an element of `target` (block argument 0) and elements of captures.
class RegionWriter {
public:
  /// `between` says what the region connects, for messages; `used` gets the
  /// captures of the region, in the order of its arguments.
  RegionWriter(AttentionMatch &match, mlir::Value target, llvm::StringRef between, llvm::SmallVector<unsigned> &used,
               Miss &miss);

  /// The region, with `tensor` read at `access` as its yield.
  mlir::FailureOr<std::unique_ptr<mlir::Region>> write(mlir::Value tensor, const Access &access);

  /// Writes an element of `tensor`, which does not depend on the target, into
  /// the block, which stays without a terminator.
  mlir::FailureOr<mlir::Value> writeElement(mlir::Value tensor, const Access &access) {
    return element(tensor, access);
  }
  mlir::Block &getBlock() { return region->front(); }

  /// The target is stored in any case: what else is computed from it may be captured.
  bool capturesOfTarget = false;

  /// How `target` is read; set by `write`.
  std::optional<Access> targetAccess;

private:
  mlir::LogicalResult fail(const llvm::Twine &reason, mlir::Location location) { return miss.set(reason, location); }
  /// Whether `value` is computed from the target by elementwise ops and views.
  bool dependsOnTarget(mlir::Value value);
  bool isWorthInlining(mlir::Value tensor, const Access &access);
  mlir::FailureOr<mlir::Value> element(mlir::Value tensor, Access access);
  mlir::FailureOr<mlir::Value> elementUncached(mlir::Value tensor, Access access);
  mlir::FailureOr<mlir::Value> inlineBody(mlir::linalg::LinalgOp op, const Access &access);
  mlir::FailureOr<mlir::Value> inlineProduct(mlir::linalg::LinalgOp op, const Access &access);
  /// A scalar that is defined outside of the tensor ops: a constant is written
  /// again, anything else is captured.
  mlir::FailureOr<mlir::Value> outsideScalar(mlir::Value scalar);
  mlir::Value capture(mlir::Value value, Access access);

  AttentionMatch &match;
  mlir::Value target;
  llvm::StringRef between;
  llvm::SmallVector<unsigned> &used;
  Miss &miss;
  std::unique_ptr<mlir::Region> region;
  mlir::OpBuilder builder;
  llvm::DenseMap<mlir::Value, bool> dependence;
  llvm::DenseSet<mlir::Value> visited; ///< values known not to depend on the target
  std::map<std::pair<const void *, Access>, mlir::Value> written;
};

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_REGIONWRITER_H
