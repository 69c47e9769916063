#include "passes/kernels/shared/AttentionMask.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/shared/AttentionOperands.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

/// Offsets beyond this one are as good as infinite, and sums with an index fit 32 bits.
static constexpr int64_t kFar = int64_t(1) << 30;

//===----------------------------------------------------------------------===//
// KeyMask
//===----------------------------------------------------------------------===//

KeyMask::KeyMask(LaneBuilder &k, const AttentionSpec &spec, ValueRange buffers, Value batch, Value head, Value numKeys)
    : k(k), spec(spec), numKeys(numKeys) {
  for (const KeyLimit &limit : spec.limits)
    (limit.isPrefix() ? prefixes : limits).push_back(makeLimit(limit, buffers, batch, head));
  // A prefix widens; alone it says nothing.
  if (llvm::none_of(limits, [](const Limit &limit) { return limit.isWidened; }))
    prefixes.clear();
}

KeyMask::Limit KeyMask::makeLimit(const KeyLimit &from, ValueRange buffers, Value batch, Value head) {
  Limit limit{from, /*isWidened=*/from.join == MaskJoin::near, {}, {}, {}};
  limit.offset = std::clamp(from.offset, -kFar, kFar);
  limit.place = k.index(limit.offset);
  if (from.operand < 0)
    return limit;
  HeadView view = viewHead(k, buffers[from.operand], spec.maps[from.operand], batch, head);
  limit.perQuery = view;
  if (view.has(Dim::I))
    limit.place = Value();
  else
    limit.place = toIndex(k.load(view.flat, view.base), limit);
  return limit;
}

/// An element of the operand plus the constant; a fraction is rounded so that
/// the comparison with integers stays what it was.
Value KeyMask::toIndex(Value element, const Limit &limit) {
  Type type = element.getType();
  if (isa<FloatType>(type)) {
    Value rounded = limit.isUpper ? math::FloorOp::create(k.b, k.loc, element).getResult()
                                  : math::CeilOp::create(k.b, k.loc, element).getResult();
    auto constant = [&](double value) -> Value {
      return arith::ConstantOp::create(k.b, k.loc, k.b.getFloatAttr(type, value));
    };
    // A NaN is no place: the limit excludes all keys.
    Value isNumber = k.compare(arith::CmpFPredicate::ORD, element, element);
    // Compared, since a GPU has minnumf in libdevice alone.
    Value far = constant(kFar), before = constant(-kFar);
    rounded = k.select(k.compare(arith::CmpFPredicate::OGT, rounded, far), far, rounded);
    rounded = k.select(k.compare(arith::CmpFPredicate::OLT, rounded, before), before, rounded);
    rounded = k.select(isNumber, rounded, constant(limit.isUpper ? -kFar : kFar));
    element = arith::FPToSIOp::create(k.b, k.loc, k.b.getI64Type(), rounded);
  }
  if (!element.getType().isIndex())
    element = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), element);
  element = k.max(k.min(element, k.index(kFar)), k.index(-kFar));
  element = k.add(element, limit.offset);
  return k.max(k.min(element, k.index(kFar)), k.index(-kFar));
}

/// The limit of one query.
Value KeyMask::limitOf(const Limit &limit, Value query) {
  Value place = limit.place;
  if (!place) {
    const HeadView &view = limit.perQuery;
    place = toIndex(k.load(view.flat, view.along(k, view.base, Dim::I, query)), limit);
  }
  if (!limit.movesWithQuery)
    return place;
  Value moved = limit.step == 1 ? query : k.floorTo(query, limit.step);
  return k.add(place, moved);
}

/// Least and greatest limit of the queries [first, last].
std::pair<Value, Value> KeyMask::rangeOf(const Limit &limit, Value first, Value last) {
  Value least = limitOf(limit, first);
  if (limit.place || first == last)
    return {least, limit.place ? limitOf(limit, last) : least};
  auto range = k.loop(k.add(first, 1), k.add(last, 1), 1, {least, least}, [&](Value query, ValueRange carried) {
    Value one = limitOf(limit, query);
    return Values{k.min(carried[0], one), k.max(carried[1], one)};
  });
  return {range[0], range[1]};
}

KeyMask::Bounds KeyMask::bounds(Value first, Value last) {
  Value zero = k.index(0);
  auto collect = [&](bool isWidened) {
    Bounds b{zero, numKeys, zero, numKeys};
    for (const Limit &limit : limits) {
      if (limit.isWidened != isWidened)
        continue;
      auto [least, greatest] = rangeOf(limit, first, last);
      if (limit.isUpper) {
        b.upper = k.min(b.upper, k.add(greatest, 1));
        b.innerUpper = k.min(b.innerUpper, k.add(least, 1));
      } else {
        b.lower = k.max(b.lower, least);
        b.innerLower = k.max(b.innerLower, greatest);
      }
    }
    for (Value *bound : {&b.lower, &b.innerLower, &b.upper, &b.innerUpper})
      *bound = k.max(k.min(*bound, numKeys), zero);
    return b;
  };
  Bounds strict = collect(false), wide = collect(true);
  for (const Limit &prefix : prefixes) {
    auto [least, greatest] = rangeOf(prefix, first, last);
    auto count = [&](Value lastKey) { return k.max(k.min(k.add(lastKey, 1), numKeys), zero); };
    Value all = count(least), some = count(greatest);
    wide.lower = k.select(k.less(zero, some), zero, wide.lower);
    wide.upper = k.max(wide.upper, some);
    // Where the prefix reaches the keys that all see, it joins them; else it is tested.
    Value joins = k.less(wide.innerLower, k.add(all, 1));
    wide.innerLower = k.select(joins, zero, wide.innerLower);
    wide.innerUpper = k.select(joins, k.max(wide.innerUpper, all), wide.innerUpper);
  }
  return {k.max(strict.lower, wide.lower), k.min(strict.upper, wide.upper), k.max(strict.innerLower, wide.innerLower),
          k.min(strict.innerUpper, wide.innerUpper)};
}

void KeyMask::setQueries(const QueryBlock &queries) {
  auto ints = VectorType::get({k.lanes}, k.b.getI32Type());
  auto narrow = [&](Value index) -> Value { return arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), index); };
  for (Limit &limit : llvm::concat<Limit>(limits, prefixes))
    for (int64_t v = 0; v < queries.vectors; ++v) {
      Values elements;
      if (limit.place && !limit.movesWithQuery) {
        limit.lanes.push_back(vector::BroadcastOp::create(k.b, k.loc, ints, narrow(limit.place)));
        continue;
      }
      if (limit.place && limit.step == 1) {
        auto iota = llvm::to_vector(llvm::seq<int32_t>(v * k.lanes, (v + 1) * k.lanes));
        Value first = vector::BroadcastOp::create(k.b, k.loc, ints, narrow(k.add(limit.place, queries.first)));
        Value lane = arith::ConstantOp::create(k.b, k.loc, k.b.getI32VectorAttr(iota));
        limit.lanes.push_back(arith::AddIOp::create(k.b, k.loc, first, lane));
        continue;
      }
      for (int64_t n = 0; n < k.lanes; ++n)
        elements.push_back(narrow(limitOf(limit, queries.row(k, v * k.lanes + n))));
      limit.lanes.push_back(vector::FromElementsOp::create(k.b, k.loc, ints, elements));
    }
}

/// All strict tests, and all widened ones or one of a prefix.
Value KeyMask::combine(llvm::function_ref<Value(const Limit &)> test) {
  Value strict, widened;
  for (const Limit &limit : limits) {
    Value &sofar = limit.isWidened && !prefixes.empty() ? widened : strict;
    Value passes = test(limit);
    sofar = sofar ? k.both(sofar, passes) : passes;
  }
  for (const Limit &prefix : prefixes)
    widened = k.either(widened, test(prefix));
  return strict && widened ? k.both(strict, widened) : strict ? strict : widened;
}

Value KeyMask::visibleTo(int64_t vector, Value key) {
  auto ints = VectorType::get({k.lanes}, k.b.getI32Type());
  Value narrow = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), key);
  Value keys = vector::BroadcastOp::create(k.b, k.loc, ints, narrow);
  return combine([&](const Limit &limit) -> Value {
    auto predicate = limit.isUpper ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle;
    return arith::CmpIOp::create(k.b, k.loc, predicate, limit.lanes[vector], keys);
  });
}

Value KeyMask::visibleKeys(Value query, Value key) {
  auto ints = VectorType::get({k.lanes}, k.b.getI32Type());
  auto spread = [&](Value index) -> Value {
    return vector::BroadcastOp::create(k.b, k.loc, ints,
                                       arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), index));
  };
  auto iota = llvm::to_vector(llvm::seq<int32_t>(0, k.lanes));
  Value keys =
      arith::AddIOp::create(k.b, k.loc, spread(key), arith::ConstantOp::create(k.b, k.loc, k.b.getI32VectorAttr(iota)));
  return combine([&](const Limit &limit) -> Value {
    auto predicate = limit.isUpper ? arith::CmpIPredicate::sle : arith::CmpIPredicate::sge;
    return arith::CmpIOp::create(k.b, k.loc, predicate, keys, spread(limitOf(limit, query)));
  });
}

} // namespace attn
