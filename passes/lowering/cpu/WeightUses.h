#ifndef PASSES_LOWERING_CPU_WEIGHTUSES_H
#define PASSES_LOWERING_CPU_WEIGHTUSES_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include <optional>
#include <string>

namespace attn {

/// What becomes of the weights (scores) that an attention gives as extra
/// results: the ops that follow them query by query.
class WeightUses {
public:
  /// Where the queries and the keys are in a value made from the weights.
  struct Place {
    int64_t query = -1, key = -1; ///< dimensions; -1: reduced
    bool isReduced = false;       ///< over heads, keys or queries
    unsigned sweep = 0;           ///< in which loop over the queries it is made
    bool isLarge() const { return query >= 0 && key >= 0; }
  };

  explicit WeightUses(AttentionOp op) : op(op) {}

  /// Whether every use of the weights is, or ends in, a reduction; else
  /// `reason` says which is not.
  bool analyze(std::string &reason);

  const Place *lookup(mlir::Value value) const {
    auto found = places.find(value);
    return found == places.end() ? nullptr : &found->second;
  }
  /// The loop of `op` over the queries, or nullopt.
  static std::optional<unsigned> findLoop(mlir::linalg::LinalgOp op, const WeightUses &uses);

  /// The ops that use weights, in their order; and what others need of them.
  llvm::SetVector<mlir::Operation *> consumers;
  llvm::SetVector<mlir::Value> exits;
  /// Ops that depend on the attention.
  llvm::DenseSet<mlir::Operation *> dependent;
  unsigned numSweeps = 1;

private:
  bool follow(mlir::Operation *user, std::string &reason);
  bool followLinalg(mlir::linalg::LinalgOp user, std::string &reason);
  bool followReshape(mlir::Operation *user);
  bool collectExits(std::string &reason);

  AttentionOp op;
  llvm::DenseMap<mlir::Value, Place> places;
};

} // namespace attn

#endif // PASSES_LOWERING_CPU_WEIGHTUSES_H
