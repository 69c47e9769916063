#ifndef DIALECTS_ATTN_MASKALGEBRA_H
#define DIALECTS_ATTN_MASKALGEBRA_H

#include "dialects/attn/AttnOps.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <optional>

// What an attention's mask says about a tile of queries, as intervals of keys:
// which keys can matter (loop bounds) and which of them need no test.
//
// For query i every term but `dense` and `blocks` shows an interval of keys
//
//     lower <= j < upper,   each bound = (i if perRow) + (operand if hasOperand) + constant
//
//     causal(o)            j < i + o + 1
//     window(l, r)         i - l <= j < i + r + 1     window(l, r, centre)   x - l <= j < x + r + 1
//     prefix(n)            j < n                      lengths                j < x
//
// A bound grows with i and with the operand x, so over a tile of queries its
// extremes stand at the first and last row and at the operand's extremes. For
// causal(0) and queries 8..11 of 16 keys: keys [0, 12) can matter and [0, 9)
// need no test.

namespace attn {

/// One bound of an interval; `isBounded` false stands for infinity.
struct MaskBound {
  bool isBounded = false;
  bool perRow = false;
  bool hasOperand = false;
  int64_t constant = 0;
};

/// One term of a mask as an interval of keys.
struct MaskSpan {
  enum Role {
    Narrow, ///< shows its interval only
    Near,   ///< the same, but a prefix widens it (causal, window)
    Prefix, ///< shows its interval whatever Near says
    Opaque, ///< no interval: each key needs its test (dense, blocks)
  };
  Role role = Narrow;
  MaskBound lower, upper;
  /// The mask operand of the term (position among the op's mask operands).
  unsigned operand = 0;
  /// The operand is a float x: the lower bound takes ceil(x), the upper one
  /// floor(x), and NaN shows nothing.
  bool isReal = false;
};

/// The terms of a mask, one span each, in their order.
llvm::SmallVector<MaskSpan> describeMask(llvm::ArrayRef<MaskTerm> terms);

/// An operand's value beyond this says no more than it; kernels clamp operands
/// to [-kMaxMaskOperand, kMaxMaskOperand], so that no sum overflows.
constexpr int64_t kMaxMaskOperand = int64_t(1) << 40;

/// Keys [begin, end) can matter for some query of a tile; those in
/// [fullBegin, fullEnd) are visible to all its queries and need no test.
/// 0 <= begin <= fullBegin <= fullEnd <= end <= number of keys (end is begin
/// where no key matters).
template <typename Value> struct KeyRange {
  Value begin, end, fullBegin, fullEnd;
};

/// The range of keys for queries `first`..`last` (inclusive, first <= last).
///
/// `arith` computes on `Value`: constant(int64_t), add, sub, min, max (x, y)
/// and, only with a prefix, selectLess(x, y, a, b) = x < y ? a : b; on int64_t
/// for a static mask, on IR for a kernel. `smallest` and `largest` give the
/// extremes over the tile's queries of the operand of span n, as an integer:
/// of ceil(x) for a lower bound of a real operand, floor(x) for an upper one
/// (`isLower` says which), clamped. With one query they are one value.
template <typename Value, typename Arith, typename Extreme>
KeyRange<Value> keyRange(Arith &arith, llvm::ArrayRef<MaskSpan> spans, Value first, Value last, Value numKeys,
                         Extreme smallest, Extreme largest) {
  auto evaluate = [&](unsigned n, const MaskBound &bound, bool isLower, bool isLeast) {
    Value value = arith.constant(bound.constant);
    if (bound.perRow)
      value = arith.add(value, isLeast ? first : last);
    if (bound.hasOperand)
      value = arith.add(value, isLeast ? smallest(n, isLower) : largest(n, isLower));
    return value;
  };
  // An interval that may be unbounded. Meeting others narrows it.
  struct Interval {
    std::optional<Value> lower, upper;
  };
  auto meet = [&](Interval &interval, unsigned n, const MaskSpan &span, bool isFull) {
    if (span.lower.isBounded) {
      Value bound = evaluate(n, span.lower, /*isLower=*/true, /*isLeast=*/!isFull);
      interval.lower = interval.lower ? arith.max(*interval.lower, bound) : bound;
    }
    if (span.upper.isBounded) {
      Value bound = evaluate(n, span.upper, /*isLower=*/false, /*isLeast=*/isFull);
      interval.upper = interval.upper ? arith.min(*interval.upper, bound) : bound;
    }
  };

  bool isOpaque = false;
  Value zero = arith.constant(0);
  Interval ranges[2];
  for (bool isFull : {false, true}) {
    Interval narrow, near;
    std::optional<Value> prefix;
    for (auto [n, span] : llvm::enumerate(spans)) {
      if (span.role == MaskSpan::Opaque) {
        isOpaque = true;
      } else if (span.role == MaskSpan::Prefix) {
        Value bound = evaluate(n, span.upper, /*isLower=*/false, /*isLeast=*/isFull);
        prefix = prefix ? arith.max(*prefix, bound) : bound;
      } else {
        meet(span.role == MaskSpan::Near ? near : narrow, n, span, isFull);
      }
    }
    if (prefix && (near.lower || near.upper)) {
      Value lower = near.lower ? *near.lower : zero, upper = near.upper ? *near.upper : numKeys;
      if (!isFull) {
        // The hull of [lower, upper) and [0, prefix).
        near.lower = arith.selectLess(zero, *prefix, zero, lower);
        near.upper = arith.max(upper, *prefix);
      } else {
        // Both are full; joined where they touch, else the near one.
        near.lower = arith.selectLess(*prefix, lower, lower, zero);
        near.upper = arith.selectLess(*prefix, lower, upper, arith.max(upper, *prefix));
      }
    }
    Interval &range = ranges[isFull] = near;
    if (narrow.lower)
      range.lower = range.lower ? arith.max(*range.lower, *narrow.lower) : narrow.lower;
    if (narrow.upper)
      range.upper = range.upper ? arith.min(*range.upper, *narrow.upper) : narrow.upper;
  }

  KeyRange<Value> keys{zero, numKeys, zero, numKeys};
  if (ranges[0].lower)
    keys.begin = arith.min(arith.max(*ranges[0].lower, zero), numKeys);
  if (ranges[0].upper)
    keys.end = arith.max(arith.min(*ranges[0].upper, numKeys), keys.begin);
  if (isOpaque) {
    keys.fullBegin = keys.fullEnd = keys.end;
    return keys;
  }
  keys.fullBegin = keys.begin;
  keys.fullEnd = keys.end;
  if (ranges[1].lower)
    keys.fullBegin = arith.min(arith.max(*ranges[1].lower, keys.begin), keys.end);
  if (ranges[1].upper)
    keys.fullEnd = arith.min(*ranges[1].upper, keys.end);
  if (ranges[1].lower || ranges[1].upper)
    keys.fullEnd = arith.max(keys.fullEnd, keys.fullBegin);
  return keys;
}

} // namespace attn

#endif // DIALECTS_ATTN_MASKALGEBRA_H
