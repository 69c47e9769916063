#ifndef PASSES_KERNELS_SHARED_ATTENTIONMASK_H
#define PASSES_KERNELS_SHARED_ATTENTIONMASK_H

#include "passes/kernels/shared/AttentionOperands.h"
#include "passes/kernels/spec/Attention.h"

namespace attn {

/// Which keys the queries of one batch and head see, as far as `spec.limits` say.
class KeyMask {
public:
  KeyMask(Code &k, const AttentionSpec &spec, mlir::ValueRange buffers, const Index &batch, const Index &head,
          const Index &numKeys);

  /// Whether every query sees every key.
  bool isFull() const { return limits.empty(); }
  /// Whether the keys that one query sees stand side by side.
  bool isInterval() const { return prefixes.empty(); }

  struct Bounds {
    Index lower, upper;           ///< keys outside are seen by no query
    Index innerLower, innerUpper; ///< keys inside are seen by every query
    Index gapLower, gapUpper;     ///< keys inside are seen by no query: between a prefix and what is near
  };
  /// Of the queries [first, last], clamped to [0, numKeys].
  Bounds bounds(const Index &first, const Index &last);

  /// Emits what does not change from key to key for visibleTo.
  void setQueries(const QueryBlock &queries);
  /// Whether the queries of vector `vector` see `key`.
  Mask visibleTo(int64_t vector, const Index &key);
  /// Whether `query` sees each of the `lanes` keys from `key` on.
  Mask visibleKeys(const Index &query, const Index &key, int64_t lanes);

private:
  /// The last (or first) key that a query sees.
  struct Limit : KeyBound {
    bool isWidened;               ///< by prefixes
    Index place;                  ///< where all queries agree, without their own
    OperandView perQuery;         ///< elsewhere, added to `offset`
    llvm::SmallVector<Vec> lanes; ///< the limit itself, by query vector
  };
  Limit makeLimit(const KeyLimit &limit, mlir::ValueRange buffers, const Index &batch, const Index &head);
  Index placeOf(Num element, const Limit &limit);
  Index limitOf(const Limit &limit, const Index &query);
  std::pair<Index, Index> rangeOf(const Limit &limit, const Index &first, const Index &last);
  Vec lanesOf(const Limit &limit, const QueryBlock &queries, int64_t vector);
  Mask combine(llvm::function_ref<Mask(const Limit &)> test);
  /// Keys are compared as i32.
  Num narrow(const Index &key) { return toNum(key, k.b.getI32Type()); }

  Code &k;
  const AttentionSpec &spec;
  Index numKeys;
  llvm::SmallVector<Limit, 2> limits, prefixes;
};

} // namespace attn

#endif // PASSES_KERNELS_SHARED_ATTENTIONMASK_H
