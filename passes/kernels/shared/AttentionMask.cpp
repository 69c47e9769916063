#include "passes/kernels/shared/AttentionMask.h"

#include <algorithm>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// Offsets beyond this one are as good as infinite, and sums with an index fit 32 bits.
static constexpr int64_t kFar = int64_t(1) << 30;

KeyMask::KeyMask(Code &k, const AttentionSpec &spec, ValueRange buffers, const Index &batch, const Index &head,
                 const Index &numKeys)
    : k(k), spec(spec), numKeys(numKeys) {
  for (const KeyLimit &limit : spec.limits)
    (limit.isPrefix() ? prefixes : limits).push_back(makeLimit(limit, buffers, batch, head));
  // A prefix widens; alone it says nothing.
  if (llvm::none_of(limits, [](const Limit &limit) { return limit.isWidened; }))
    prefixes.clear();
}

KeyMask::Limit KeyMask::makeLimit(const KeyLimit &from, ValueRange buffers, const Index &batch, const Index &head) {
  Limit limit{from, /*isWidened=*/from.join == MaskJoin::near, {}, {}, {}};
  limit.offset = std::clamp(from.offset, -kFar, kFar);
  limit.place = k.index(limit.offset);
  if (from.operand < 0)
    return limit;
  OperandView view = viewHead(k, buffers[from.operand], spec.maps[from.operand], batch, head);
  limit.perQuery = view;
  if (view.has(Dim::I))
    limit.place = Index();
  else
    limit.place = placeOf(view.flat(view.base), limit);
  return limit;
}

/// An element of the operand plus the constant; a fraction is rounded so that
/// the comparison with integers stays what it was.
Index KeyMask::placeOf(Num element, const Limit &limit) {
  if (element.isFloating()) {
    Num rounded = limit.isUpper ? floor(element) : ceil(element);
    // Compared, since a GPU has minnumf in libdevice alone.
    rounded = atMost(rounded, constantLike(element, kFar));
    rounded = atLeast(rounded, constantLike(element, -kFar));
    // A NaN is no place: the limit excludes all keys.
    rounded = select(element == element, rounded, constantLike(element, limit.isUpper ? -kFar : kFar));
    element = convert(rounded, k.b.getI64Type());
  }
  auto clamp = [](const Index &place) { return maximum(minimum(place, kFar), -kFar); };
  return clamp(clamp(toIndex(element)) + limit.offset);
}

/// The limit of one query.
Index KeyMask::limitOf(const Limit &limit, const Index &query) {
  Index place = limit.place;
  if (!place.value()) {
    const OperandView &view = limit.perQuery;
    place = placeOf(view.flat(view.along(view.base, Dim::I, query)), limit);
  }
  if (!limit.movesWithQuery)
    return place;
  return place + (limit.step == 1 ? query : floorTo(query, limit.step));
}

/// Least and greatest limit of the queries [first, last].
std::pair<Index, Index> KeyMask::rangeOf(const Limit &limit, const Index &first, const Index &last) {
  Index least = limitOf(limit, first);
  if (limit.place.value())
    return {least, limitOf(limit, last)};
  if (first.value() == last.value())
    return {least, least};
  Index begin = first + 1, end = last + 1;
  auto [low, high] = k.loop(begin, end, 1, std::tuple(least, least), [&](Index query, Index least, Index greatest) {
    Index one = limitOf(limit, query);
    return std::tuple(minimum(least, one), maximum(greatest, one));
  });
  return {low, high};
}

KeyMask::Bounds KeyMask::bounds(const Index &first, const Index &last) {
  Index zero = k.index(0);
  auto collect = [&](bool isWidened) {
    Bounds b{zero, numKeys, zero, numKeys, zero, zero};
    for (const Limit &limit : limits) {
      if (limit.isWidened != isWidened)
        continue;
      auto [least, greatest] = rangeOf(limit, first, last);
      if (limit.isUpper) {
        b.upper = minimum(b.upper, greatest + 1);
        b.innerUpper = minimum(b.innerUpper, least + 1);
      } else {
        b.lower = maximum(b.lower, least);
        b.innerLower = maximum(b.innerLower, greatest);
      }
    }
    for (Index *bound : {&b.lower, &b.innerLower, &b.upper, &b.innerUpper})
      *bound = maximum(minimum(*bound, numKeys), zero);
    return b;
  };
  Bounds strict = collect(false), wide = collect(true);
  Index gapLower = zero, gapUpper = prefixes.empty() ? zero : wide.lower;
  for (const Limit &prefix : prefixes) {
    auto [least, greatest] = rangeOf(prefix, first, last);
    auto count = [&](const Index &lastKey) { return maximum(minimum(lastKey + 1, numKeys), zero); };
    Index all = count(least), some = count(greatest);
    gapLower = maximum(gapLower, some);
    wide.lower = select(zero < some, zero, wide.lower);
    wide.upper = maximum(wide.upper, some);
    // Where the prefix reaches the keys that all see, it joins them; else it is tested.
    Mask joins = wide.innerLower < all + 1;
    wide.innerLower = select(joins, zero, wide.innerLower);
    wide.innerUpper = select(joins, maximum(wide.innerUpper, all), wide.innerUpper);
  }
  return {maximum(strict.lower, wide.lower),
          minimum(strict.upper, wide.upper),
          maximum(strict.innerLower, wide.innerLower),
          minimum(strict.innerUpper, wide.innerUpper),
          gapLower,
          gapUpper};
}

void KeyMask::setQueries(const QueryBlock &queries) {
  for (Limit &limit : llvm::concat<Limit>(limits, prefixes))
    for (int64_t v = 0; v < queries.vectors; ++v)
      limit.lanes.push_back(lanesOf(limit, queries, v));
}

/// The limit of each query of a vector.
Vec KeyMask::lanesOf(const Limit &limit, const QueryBlock &queries, int64_t vector) {
  int64_t lanes = queries.lanes, lane = vector * lanes;
  if (limit.place.value() && !limit.movesWithQuery)
    return splat(narrow(limit.place), lanes);
  if (limit.place.value() && limit.step == 1) {
    Vec first = splat(narrow(limit.place + queries.first), lanes);
    return first + k.consecutive(lane, lanes);
  }
  return vectorOf(llvm::map_to_vector(llvm::seq(lane, lane + lanes),
                                      [&](int64_t n) { return narrow(limitOf(limit, queries.row(n))); }));
}

/// All strict tests, and all widened ones or one of a prefix.
Mask KeyMask::combine(llvm::function_ref<Mask(const Limit &)> test) {
  Mask strict, widened;
  for (const Limit &limit : limits) {
    Mask &sofar = limit.isWidened && !prefixes.empty() ? widened : strict;
    Mask passes = test(limit);
    sofar = sofar.value() ? sofar & passes : passes;
  }
  for (const Limit &prefix : prefixes)
    widened = widened | test(prefix);
  return strict.value() && widened.value() ? strict & widened : strict.value() ? strict : widened;
}

Mask KeyMask::visibleTo(int64_t vector, const Index &key) {
  Vec keys = splat(narrow(key), limits.front().lanes[vector].lanes());
  return combine([&](const Limit &limit) {
    const Vec &lanes = limit.lanes[vector];
    return limit.isUpper ? lanes >= keys : lanes <= keys;
  });
}

Mask KeyMask::visibleKeys(const Index &query, const Index &key, int64_t lanes) {
  Vec keys = splat(narrow(key), lanes) + k.consecutive(0, lanes);
  return combine([&](const Limit &limit) {
    Num end = narrow(limitOf(limit, query));
    return limit.isUpper ? keys <= end : keys >= end;
  });
}

} // namespace attn
