#ifndef PASSES_KERNELS_SHARED_ATTENTIONMASK_H
#define PASSES_KERNELS_SHARED_ATTENTIONMASK_H

#include "passes/kernels/shared/AttentionOperands.h"
#include "passes/kernels/shared/LaneBuilder.h"
#include "passes/kernels/spec/Attention.h"

namespace attn {

/// Which keys the queries of one batch and head see, as far as `spec.limits` say.
class KeyMask {
public:
  KeyMask(LaneBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers, mlir::Value batch, mlir::Value head,
          mlir::Value numKeys);

  /// Whether every query sees every key.
  bool isFull() const { return limits.empty(); }
  /// Whether the keys that one query sees stand side by side.
  bool isInterval() const { return prefixes.empty(); }

  struct Bounds {
    mlir::Value lower, upper;           ///< keys outside are seen by no query
    mlir::Value innerLower, innerUpper; ///< keys inside are seen by every query
  };
  /// Of the queries [first, last], clamped to [0, numKeys].
  Bounds bounds(mlir::Value first, mlir::Value last);

  /// Emits what does not change from key to key for visibleTo.
  void setQueries(const QueryBlock &queries);
  /// Whether the queries of vector `vector` see `key`.
  mlir::Value visibleTo(int64_t vector, mlir::Value key);
  /// Whether `query` sees keys `key`, `key` + 1...
  mlir::Value visibleKeys(mlir::Value query, mlir::Value key);

private:
  /// The last (or first) key that a query sees.
  struct Limit : KeyBound {
    bool isWidened;                       ///< by prefixes
    mlir::Value place;                    ///< where all queries agree, without their own
    HeadView perQuery;                    ///< elsewhere, added to `offset`
    llvm::SmallVector<mlir::Value> lanes; ///< the limit itself, by query vector
  };
  Limit makeLimit(const KeyLimit &limit, mlir::ValueRange buffers, mlir::Value batch, mlir::Value head);
  mlir::Value toIndex(mlir::Value element, const Limit &limit);
  mlir::Value limitOf(const Limit &limit, mlir::Value query);
  std::pair<mlir::Value, mlir::Value> rangeOf(const Limit &limit, mlir::Value first, mlir::Value last);
  mlir::Value combine(llvm::function_ref<mlir::Value(const Limit &)> test);

  LaneBuilder &k;
  const AttentionSpec &spec;
  mlir::Value numKeys;
  llvm::SmallVector<Limit, 2> limits, prefixes;
};

} // namespace attn

#endif // PASSES_KERNELS_SHARED_ATTENTIONMASK_H
