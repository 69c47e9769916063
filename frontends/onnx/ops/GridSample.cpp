#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// GridSample and AffineGrid: reading an image at computed places.

using namespace mlir;

namespace attn::onnx {
namespace {

enum class Sampling { Nearest, Linear, Cubic };
enum class Outside { Zeros, Border, Reflection };

struct Sampler {
  Sampling sampling = Sampling::Linear;
  Outside outside = Outside::Zeros;
  bool alignCorners = false;
};

FailureOr<Sampler> readSampler(Node &n) {
  Sampler s;
  std::string mode = n.stringAttr("mode", n.version() < 20 ? "bilinear" : "linear");
  if (mode == "nearest")
    s.sampling = Sampling::Nearest;
  else if (mode == "cubic" || mode == "bicubic")
    s.sampling = Sampling::Cubic;
  else if (mode != "linear" && mode != "bilinear")
    return n.error() << "mode '" << mode << "' is none of nearest, linear and cubic";
  std::string padding = n.stringAttr("padding_mode", "zeros");
  if (padding == "border")
    s.outside = Outside::Border;
  else if (padding == "reflection")
    s.outside = Outside::Reflection;
  else if (padding != "zeros")
    return n.error() << "padding_mode '" << padding << "' is none of zeros, border and reflection";
  s.alignCorners = n.intAttr("align_corners", 0) != 0;
  return s;
}

/// `x` folded back into [low, high] at its ends as often as it takes.
Num reflected(const Num &x, const Num &low, const Num &high) {
  Num range = high - low, distance = select(x < low, low - x, x - high);
  Num times = floor(distance / range), rest = distance - times * range;
  Num even = times - 2.0 * floor(0.5 * times) == 0.0;
  Num fromLow = low + rest, fromHigh = high - rest;
  Num below = select(even, fromLow, fromHigh), above = select(even, fromHigh, fromLow);
  return select(x < low, below, select(x > high, above, x));
}

/// Taps along one dimension of `length` elements for the place `x` in it.
SmallVector<Tap, 4> tapsAt(const Sampler &s, Num x, const Num &length) {
  Num size = convert(length, x.dtype()), one = length.constant(1), zero = length.constant(0), last = length - one;
  Num low = x.constant(s.alignCorners ? 0.0 : -0.5), high = size + (s.alignCorners ? -1.0 : -0.5);
  if (s.sampling == Sampling::Nearest)
    x = roundEven(x);
  // The taps of a cubic one go to the border each by itself, as in PyTorch and ONNX Runtime.
  if (s.outside == Outside::Border && s.sampling != Sampling::Cubic)
    x = select((x < low) | (x > high), atMost(atLeast(x, x.constant(0)), size - 1.0), x);
  else if (s.outside == Outside::Reflection)
    x = reflected(x, low, high);
  // Far outside there is nothing, wherever; so a NaN is there, too. Nor does what is infinite lie between two elements.
  Num base = floor(x), first = clampedInteger(base, length.constant(-8), length + length.constant(8));
  Num beyond = x - base, fraction = select(isNaN(beyond), x.constant(0), beyond);
  SmallVector<Num, 4> weights;
  int64_t begin = 0;
  if (s.sampling == Sampling::Nearest) {
    weights.push_back(x.constant(1));
  } else if (s.sampling == Sampling::Linear) {
    weights = {1.0 - fraction, fraction};
  } else {
    weights = cubicWeights(fraction, -0.75);
    begin = -1;
  }
  SmallVector<Tap, 4> taps;
  for (auto [k, weight] : llvm::enumerate(weights)) {
    Num at = first + first.constant(begin + int64_t(k));
    if (s.outside == Outside::Zeros)
      weight = select((at >= zero) & (at < length), weight, weight.constant(0));
    else if (s.outside == Outside::Reflection)
      at = clampedInteger(reflected(convert(at, x.dtype()), low, high), zero, last);
    taps.push_back({maximum(zero, minimum(at, last)), weight});
  }
  return taps;
}

LogicalResult checkGrid(Node &n, const Tensor &x, const Tensor &grid) {
  int64_t rank = x.rank();
  if (rank < 3 || grid.rank() != rank)
    return n.error() << "expects X and grid of one rank of at least 3, has ranks " << rank << " and " << grid.rank();
  if (failed(n.requireEqual(x.shape[0], grid.shape[0], "X has batch {0}, the grid {1}")) ||
      failed(n.requireEqual(grid.shape.back(), Expr(rank - 2), "the grid has {0} coordinates a place, X {1}")))
    return failure();
  for (int64_t d = 2; d < rank; ++d)
    if (failed(n.requireAtMost(1, x.shape[d], "samples a dimension of size {1}")))
      return failure();
  return success();
}

/// Channels from which on each place is computed once and its channels are read side by side.
constexpr int64_t kManyChannels = 8;

LogicalResult importGridSample(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 1)))
    return failure();
  const Tensor &x = n.input(0), &grid = n.input(1);
  FailureOr<Sampler> sampler = readSampler(n);
  if (failed(sampler) || failed(checkGrid(n, x, grid)))
    return failure();
  int64_t spatial = x.rank() - 2;
  bool channelsLast = x.shape[1].constant().value_or(kManyChannels) >= kManyChannels;
  SmallVector<Expr, 4> shape{x.shape[0]};
  if (!channelsLast)
    shape.push_back(x.shape[1]);
  shape.append(grid.shape.begin() + 1, grid.shape.end() - 1);
  // The channels go behind the places, and back.
  SmallVector<int64_t> back{0}, forth{0, spatial + 1};
  for (int64_t d = 1; d <= spatial; ++d) {
    back.push_back(d + 1);
    forth.push_back(d);
  }
  back.push_back(1);
  if (channelsLast)
    shape.push_back(x.shape[1]);
  DType wide = x.dtype == DType::F64 || grid.dtype == DType::F64 ? DType::F64 : DType::F32;
  Value image = n.value(channelsLast ? n.transpose(x, back) : x), places = n.value(grid);
  SmallVector<Value> lengths;
  for (int64_t d = 0; d < spatial; ++d)
    lengths.push_back(n.symbols().materialize(n.builder(), n.loc(), x.shape[d + 2]));
  auto body = [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    SmallVector<SmallVector<Tap, 4>, 3> taps;
    for (int64_t d = 0; d < spatial; ++d) {
      SmallVector<Value> place{at[0]};
      llvm::append_range(place, at.slice(channelsLast ? 1 : 2, spatial));
      // The last dimension's coordinate comes first.
      place.push_back(arith::ConstantIndexOp::create(b, loc, spatial - 1 - d));
      Num g = convert(Num(b, loc, grid.dtype, tensor::ExtractOp::create(b, loc, places, place)), wide);
      Num length = toInteger(b, loc, lengths[d]), size = convert(length, wide);
      Num where = sampler->alignCorners ? (g + 1.0) * 0.5 * (size - 1.0) : ((g + 1.0) * size - 1.0) * 0.5;
      taps.push_back(tapsAt(*sampler, where, length));
    }
    DType stored = x.dtype == DType::Bool ? DType::U8 : x.dtype;
    SmallVector<Value> lead(at.take_front(channelsLast ? 1 : 2)), trail(at.drop_front(lead.size() + spatial));
    return convert(interpolate(image, stored, lead, taps, trail), stored).value();
  };
  Tensor y;
  y.dtype = x.dtype;
  y.shape = shape;
  y.value = n.generate(x.dtype, shape, body);
  n.setOutput(0, channelsLast ? n.transpose(y, forth) : y);
  return success();
}

/// theta . (x, y[, z], 1) for the places of a regular grid over [-1, 1].
LogicalResult importAffineGrid(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &theta = n.input(0);
  if (theta.rank() != 3)
    return n.error() << "expects theta of rank 3, has rank " << theta.rank();
  // How long a size of open length is, the result's rank tells and theta's [N, 2, 3] or [N, 3, 4] does.
  std::optional<int64_t> length = n.declaredRank(), rows = theta.shape[1].constant();
  if (rows == 2 || rows == 3)
    length = *rows + 2;
  std::optional<SmallVector<Expr>> size = shapeExprs(n, 1, length);
  if (!size)
    return n.unsupported() << "a size whose number of dimensions is open: declare the result's rank, or give size a "
                              "length of 4 or 5";
  if (size->size() != 4 && size->size() != 5)
    return n.error() << "expects a size of 4 or 5 numbers, has " << size->size();
  int64_t spatial = size->size() - 2;
  if (failed(n.requireEqual(theta.shape[0], (*size)[0], "theta has batch {0}, size says {1}")) ||
      failed(n.requireEqual(theta.shape[1], Expr(spatial), "theta has {0} rows, expected {1}")) ||
      failed(n.requireEqual(theta.shape[2], Expr(spatial + 1), "theta has {0} columns, expected {1}")))
    return failure();
  bool align = n.intAttr("align_corners", 0) != 0;
  SmallVector<Expr, 4> shape{theta.shape[0]};
  SmallVector<Value> lengths;
  for (int64_t d = 0; d < spatial; ++d) {
    shape.push_back((*size)[d + 2]);
    if (failed(n.requireAtMost(0, shape.back(), "size has a dimension of {1}")))
      return failure();
    lengths.push_back(n.symbols().materialize(n.builder(), n.loc(), shape.back()));
  }
  shape.push_back(Expr(spatial));
  DType wide = computeDType(theta.dtype);
  Value matrix = n.value(theta);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto entry = [&](int64_t column) {
      SmallVector<Value> place{at[0], at.back(), arith::ConstantIndexOp::create(b, loc, column)};
      return convert(Num(b, loc, theta.dtype, tensor::ExtractOp::create(b, loc, matrix, place)), wide);
    };
    Num sum = entry(spatial);
    for (int64_t d = 0; d < spatial; ++d) {
      Num i = convert(toInteger(b, loc, at[d + 1]), wide), length = convert(toInteger(b, loc, lengths[d]), wide);
      // One place alone is at -1 with aligned corners, and at 0 without.
      Num where = align ? select(length > 1.0, 2.0 * i / (length - 1.0), i) - 1.0 : (2.0 * i + 1.0) / length - 1.0;
      sum = sum + entry(spatial - 1 - d) * where;
    }
    return convert(sum, theta.dtype).value();
  };
  n.setOutput(0, n.generate(theta.dtype, shape, body), theta.dtype, shape);
  return success();
}

} // namespace

void registerGridSampleOps(OpRegistry &registry) {
  registry.add("GridSample", {16, 20, 22}, importGridSample);
  registry.add("AffineGrid", {20}, importAffineGrid);
}

} // namespace attn::onnx
