#include "passes/kernels/cpu/Range.h"

#include "builders/Lanes.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/spec/Storage.h"

using namespace mlir;

namespace attn {
namespace {

/// Vectors of one extreme that are at work at once.
constexpr int64_t kUnroll = 4;

Vec greater(const Vec &x, const Vec &y) { return maximum(x, y); }
Vec lesser(const Vec &x, const Vec &y) { return minimum(x, y); }

/// The greatest and the least element of [begin, end) of `flat`, each in every lane.
std::pair<Vec, Vec> reduce(Code &k, const Buffer &flat, Index begin, Index end, int64_t lanes) {
  int64_t step = kUnroll * lanes;
  Index size = end - begin;
  Index wide = begin + floorTo(size, step), whole = begin + floorTo(size, lanes);
  std::tuple<Vecs, Vecs> parts(Vecs(kUnroll, k.splat(k.f32(-Code::kInfinity), lanes)),
                               Vecs(kUnroll, k.splat(k.f32(Code::kInfinity), lanes)));
  parts = k.loop(begin, wide, step, parts, [&](Index first, Vecs most, Vecs least) {
    for (int64_t n = 0; n < kUnroll; ++n) {
      Vec x = flat.vector(lanes, first + n * lanes);
      most[n] = maximum(most[n], x);
      least[n] = minimum(least[n], x);
    }
    return std::tuple(most, least);
  });
  std::tuple<Vec, Vec> all(tree<Vec>(std::get<0>(parts), greater), tree<Vec>(std::get<1>(parts), lesser));
  auto join = [](Vec most, Vec least, Vec x) { return std::tuple(maximum(most, x), minimum(least, x)); };
  all = k.loop(wide, whole, lanes, all,
               [&](Index at, Vec most, Vec least) { return join(most, least, flat.vector(lanes, at)); });
  all = k.loop(whole, end, 1, all,
               [&](Index at, Vec most, Vec least) { return join(most, least, splat(flat(at), lanes)); });
  return {acrossLanes(std::get<0>(all), greater), acrossLanes(std::get<1>(all), lesser)};
}

} // namespace

RangeSpec RangeSpec::get(Value tensor, TargetAttr target) { return {bufferOf(tensor), target.getF32Lanes()}; }

std::string RangeSpec::symbol() const {
  std::string name = "range_f32";
  for (int64_t size : type.getShape())
    name += "_" + (ShapedType::isDynamic(size) ? std::string("n") : std::to_string(size));
  return name + "_v" + std::to_string(lanes);
}

bool canBuildRange(const RangeSpec &spec, std::string *reason) {
  if (spec.type && spec.type.getElementType().isF32() && spec.type.getRank() > 0 && spec.lanes > 0 &&
      RangeSpec::kParts % spec.lanes == 0)
    return true;
  return fail(reason, "it is not of f32, or of rank 0");
}

func::FuncOp buildRange(OpBuilder &builder, Location loc, const RangeSpec &spec) {
  assert(canBuildRange(spec));
  KernelFunction f(builder, loc, spec.symbol());
  f.function.setPrivate();
  Code &k = f.k;
  Type f32 = builder.getF32Type();
  Buffer input = f.buffer(spec.type).flat(), parts = f.buffer({2, RangeSpec::kParts}, f32);
  Buffer greatest = f.buffer({}, f32), least = f.buffer({}, f32);
  Index size = input.dim(0);
  // Parts of whole steps, so that only one has a tail.
  int64_t step = kUnroll * spec.lanes;
  Index length = ceilTo(ceilDiv(size, RangeSpec::kParts), step);
  k.parallel(k.index(RangeSpec::kParts), [&](Index part) {
    Index begin = minimum(part * length, size);
    auto [top, bottom] = reduce(k, input, begin, minimum(begin + length, size), spec.lanes);
    parts.set(extract(top, 0), 0, part);
    parts.set(extract(bottom, 0), 1, part);
  });
  auto finish = [&](int64_t row, const Buffer &result, double neutral, Vec (*combine)(const Vec &, const Vec &)) {
    Vec all = k.splat(k.f32(neutral), spec.lanes);
    for (int64_t n = 0; n < RangeSpec::kParts; n += spec.lanes)
      all = combine(all, parts.vector(spec.lanes, row, n));
    result.set(extract(acrossLanes(all, combine), 0));
  };
  finish(0, greatest, -Code::kInfinity, greater);
  finish(1, least, Code::kInfinity, lesser);
  return f.function;
}

} // namespace attn
