#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// NonMaxSuppression and RoiAlign.

using namespace mlir;

namespace attn::onnx {
namespace {

//===----------------------------------------------------------------------===//
// NonMaxSuppression
//===----------------------------------------------------------------------===//

struct Corners {
  Num top, left, bottom, right;
  Num area() const { return (bottom - top) * (right - left); }
};

Corners cornersOf(OpBuilder &b, Location loc, Value boxes, DType dtype, Value batch, Value box, bool center) {
  auto entry = [&](int64_t k) {
    return load(b, loc, boxes, dtype, {batch, box, arith::ConstantIndexOp::create(b, loc, k)});
  };
  Num a = entry(0), c = entry(1), d = entry(2), e = entry(3);
  if (center) // x, y, width, height
    return {c - 0.5 * e, a - 0.5 * d, c + 0.5 * e, a + 0.5 * d};
  return {minimum(a, d), minimum(c, e), maximum(a, d), maximum(c, e)};
}

Num overlap(const Corners &a, const Corners &b) {
  Num zero = a.top.constant(0);
  Num height = maximum(zero, minimum(a.bottom, b.bottom) - maximum(a.top, b.top));
  Num width = maximum(zero, minimum(a.right, b.right) - maximum(a.left, b.left));
  Num common = height * width, all = a.area() + b.area() - common;
  return select(all > zero, common / all, zero);
}

/// What the loops read.
struct Suppression {
  Value boxes, scores, count; // [B, N, 4], [B, C, N], N
  DType dtype;
  Num most;       // int64, a class
  Num iou, score; // thresholds
  std::optional<Num> useScore;
  bool center;
};

/// An optional scalar input as a number of `dtype`, else `fallback`.
FailureOr<Num> scalarInput(Node &n, size_t i, DType dtype, const Num &fallback) {
  if (!n.hasInput(i))
    return fallback;
  FailureOr<Tensor> scalar = n.reshape(n.input(i), {});
  if (failed(scalar))
    return failure();
  return convert(load(n.builder(), n.loc(), n.value(*scalar), scalar->dtype, {}), dtype);
}

FailureOr<Suppression> readSuppression(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  const Tensor &boxes = n.input(0), &scores = n.input(1);
  if (boxes.rank() != 3 || scores.rank() != 3)
    return n.error() << "expects boxes and scores of rank 3, has ranks " << boxes.rank() << " and " << scores.rank();
  if (failed(n.requireEqual(boxes.shape[2], 4, "a box has {0} numbers, expected {1}")) ||
      failed(n.requireEqual(boxes.shape[0], scores.shape[0], "boxes have batch {0}, scores {1}")) ||
      failed(n.requireEqual(boxes.shape[1], scores.shape[2], "there are {0} boxes and {1} scores")))
    return failure();
  OpBuilder &b = n.builder();
  Num none = constantNum(b, n.loc(), DType::I64, int64_t(0)), zero = constantNum(b, n.loc(), boxes.dtype, 0.0);
  FailureOr<Num> most = scalarInput(n, 2, DType::I64, none), iou = scalarInput(n, 3, boxes.dtype, zero);
  FailureOr<Num> score = scalarInput(n, 4, boxes.dtype, zero.lowest());
  if (failed(most) || failed(iou) || failed(score))
    return failure();
  return Suppression{n.value(boxes), n.value(scores), n.symbols().materialize(b, n.loc(), boxes.shape[1]),
                     boxes.dtype,    *most,           *iou,
                     *score,         std::nullopt,    n.intAttr("center_point_box", 0) != 0};
}

/// The first of the best boxes that are left, or -1. `gone` holds for each box
/// the number of the last class that has done with it.
Num bestBox(OpBuilder &b, Location loc, const Suppression &s, Value batch, Value group, const Num &number, Value gone) {
  Num nobody = constantNum(b, loc, DType::I64, int64_t(-1));
  auto body = [&](OpBuilder &b, Location loc, ValueRange j, ValueRange carried) -> SmallVector<Value> {
    Num best(b, loc, DType::I64, carried[0]), most(b, loc, s.dtype, carried[1]);
    Num here = load(b, loc, s.scores, s.dtype, {batch, group, j[0]});
    Num open = load(b, loc, gone, DType::I64, j[0]) != number;
    Num better = open & (here > s.score) & ((best < best.constant(0)) | (here > most));
    return {select(better, fromIndex(b, loc, DType::I64, j[0]), best).value(), select(better, here, most).value()};
  };
  SmallVector<Value> inits{nobody.value(), s.score.constant(0.0).value()};
  return Num(b, loc, DType::I64, sequential(b, loc, s.count, inits, body)[0]);
}

/// `gone` with the boxes that overlap box `best`, itself among them.
Value suppressed(OpBuilder &b, Location loc, const Suppression &s, Value batch, const Num &best, const Num &number,
                 Value gone) {
  Value at = toIndex(best);
  Corners winner = cornersOf(b, loc, s.boxes, s.dtype, batch, at, s.center);
  auto body = [&](OpBuilder &b, Location loc, ValueRange j, ValueRange carried) -> SmallVector<Value> {
    Num shared = overlap(winner, cornersOf(b, loc, s.boxes, s.dtype, batch, j[0], s.center));
    Num hit = (shared > s.iou) | (fromIndex(b, loc, DType::I64, j[0]) == best);
    Num old = load(b, loc, carried[0], DType::I64, j[0]);
    return {store(b, loc, select(hit, number, old), carried[0], j[0])};
  };
  return sequential(b, loc, s.count, gone, body)[0];
}

LogicalResult importNonMaxSuppression(Node &n) {
  FailureOr<Suppression> s = readSuppression(n);
  if (failed(s))
    return failure();
  OpBuilder &b = n.builder();
  const Tensor &boxes = n.input(0), &scores = n.input(1);
  Expr classes = scores.shape[1], room = boxes.shape[0] * classes * boxes.shape[1];
  SmallVector<Expr, 2> shape{room, Expr(3)};
  Value groups = n.symbols().materialize(b, n.loc(), classes), zero = arith::ConstantIndexOp::create(b, n.loc(), 0);
  // Chosen boxes, how many, which boxes are gone, and how many of this class.
  SmallVector<Value> inits{n.empty(DType::I64, shape), zero,
                           n.filled(DType::I64, boxes.shape[1], n.constant(DType::I64, -1)),
                           constantNum(b, n.loc(), DType::I64, int64_t(0)).value()};
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    auto integer = [&](Value index) { return fromIndex(b, loc, DType::I64, index); };
    Num number = integer(at[0]) * integer(groups) + integer(at[1]), none = number.constant(0);
    Num chosen = select(integer(at[2]) == none, none, Num(b, loc, DType::I64, carried[3]));
    Num best = bestBox(b, loc, *s, at[0], at[1], number, carried[2]);
    Num take = (best >= none) & (chosen < s->most);
    auto branch = scf::IfOp::create(
        b, loc, take.value(),
        [&](OpBuilder &b, Location loc) {
          Value list = carried[0], one = arith::ConstantIndexOp::create(b, loc, 1);
          Num row[] = {fromIndex(b, loc, DType::I64, at[0]), fromIndex(b, loc, DType::I64, at[1]), best};
          for (auto [k, entry] : llvm::enumerate(row))
            list = store(b, loc, Num(b, loc, DType::I64, entry.value()), list,
                         {carried[1], arith::ConstantIndexOp::create(b, loc, k)});
          Num wider(b, loc, DType::I64, number.value());
          Value gone = suppressed(b, loc, *s, at[0], Num(b, loc, DType::I64, best.value()), wider, carried[2]);
          Num more(b, loc, DType::I64, chosen.value());
          scf::YieldOp::create(b, loc,
                               {list, arith::AddIOp::create(b, loc, carried[1], one).getResult(), gone,
                                (more + more.constant(1)).value()});
        },
        [&](OpBuilder &b, Location loc) {
          scf::YieldOp::create(b, loc, {carried[0], carried[1], carried[2], chosen.value()});
        });
    return SmallVector<Value>(branch.getResults());
  };
  SmallVector<Value> bounds = sizeValues(n, {boxes.shape[0], classes, boxes.shape[1]});
  SmallVector<Value> done = sequential(b, n.loc(), bounds, inits, body);
  Tensor all;
  all.dtype = DType::I64;
  all.shape.assign(shape.begin(), shape.end());
  all.value = done[0];
  n.setOutput(0, n.slice(all, 0, 0, n.symbols().opaque(done[1], 0)));
  return success();
}

//===----------------------------------------------------------------------===//
// RoiAlign
//===----------------------------------------------------------------------===//

/// The weighted taps of one coordinate: two neighbours, nothing outside.
SmallVector<Tap, 4> neighbours(const Num &x, const Num &length) {
  Num size = convert(length, x.dtype()), zero = x.constant(0), last = length - length.constant(1);
  Num inside = (x >= -1.0) & (x <= size);
  Num place = atLeast(x, zero), low = clampedInteger(floor(place), length.constant(0), last);
  Num fraction = select(low == last, zero, place - convert(low, x.dtype()));
  return {{low, select(inside, 1.0 - fraction, zero)},
          {minimum(low + low.constant(1), last), select(inside, fraction, zero)}};
}

/// Samples of one bin, and what they span.
struct Sampling {
  SmallVector<Num> begin, bin, samples; // height, width
};

/// How RoiAlign samples.
struct Sampler {
  Value boxes;
  DType dtype;
  double scale, shift;
  int64_t height, width, ratio; // ratio 0: one sample a pixel

  Sampling of(OpBuilder &b, Location loc, Value roi) const {
    auto bound = [&](int64_t k) {
      Value column = arith::ConstantIndexOp::create(b, loc, k);
      return convert(load(b, loc, boxes, dtype, {roi, column}), computeDType(dtype)) * scale - shift;
    };
    Sampling s{{bound(1), bound(0)}, {}, {}};
    for (int64_t d : {0, 1}) {
      Num extent = bound(3 - d) - s.begin[d];
      if (shift == 0)
        extent = atLeast(extent, extent.constant(1));
      s.bin.push_back(extent / double(d == 0 ? height : width));
      Num zero = constantNum(b, loc, DType::I64, int64_t(0));
      s.samples.push_back(ratio ? zero.constant(ratio) : clampedInteger(ceil(s.bin[d]), zero, zero.constant(1 << 20)));
    }
    return s;
  }
};

constexpr int64_t kMaxSamples = int64_t(1) << 24; // of a bin

/// A roi may be of any size: no bin of any takes more than kMaxSamples.
void requireSamples(Node &n, const Sampler &sampler, const Expr &rois) {
  OpBuilder &b = n.builder();
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Sampling s = sampler.of(b, loc, at[0]);
    return {maximum(Num(b, loc, DType::I64, carried[0]), s.samples[0] * s.samples[1]).value()};
  };
  Num none = constantNum(b, n.loc(), DType::I64, int64_t(0));
  Value count = n.symbols().materialize(b, n.loc(), rois);
  Num most(b, n.loc(), DType::I64, sequential(b, n.loc(), count, none.value(), body)[0]);
  n.require((most <= none.constant(kMaxSamples)).value(),
            "a roi takes more than " + std::to_string(kMaxSamples) + " samples for an element");
}

LogicalResult importRoiAlign(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  const Tensor &x = n.input(0), &rois = n.input(1), &batches = n.input(2);
  std::string mode = n.stringAttr("mode", "avg");
  std::string corners =
      n.stringAttr("coordinate_transformation_mode", n.version() < 16 ? "output_half_pixel" : "half_pixel");
  int64_t height = n.intAttr("output_height", 1), width = n.intAttr("output_width", 1);
  int64_t ratio = n.intAttr("sampling_ratio", 0);
  if (x.rank() != 4 || rois.rank() != 2 || batches.rank() != 1 || (mode != "avg" && mode != "max"))
    return n.error() << "expects X of rank 4, rois of rank 2 and batch_indices of rank 1, and mode avg or max";
  if (height < 1 || width < 1 || ratio < 0)
    return n.error() << "expects output sizes of at least 1 and sampling_ratio of at least 0";
  if (ratio > 4096)
    return n.error() << "expects a sampling_ratio of at most 4096, has " << ratio;
  if (failed(n.requireEqual(rois.shape[1], 4, "a roi has {0} numbers, expected {1}")) ||
      failed(n.requireEqual(rois.shape[0], batches.shape[0], "there are {0} rois and {1} batch_indices")) ||
      failed(n.requireAtMost(1, x.shape[2], "X has a dimension of size {1}")) ||
      failed(n.requireAtMost(1, x.shape[3], "X has a dimension of size {1}")))
    return failure();
  DType wide = computeDType(x.dtype);
  double scale = n.floatAttr("spatial_scale", 1.0), shift = corners == "half_pixel" ? 0.5 : 0.0;
  Value image = n.value(x), boxes = n.value(rois), rows = n.value(batches);
  Sampler sampler{boxes, x.dtype, scale, shift, height, width, ratio};
  if (!ratio)
    requireSamples(n, sampler, rois.shape[0]);
  SmallVector<Value> sizes = sizeValues(n, x.shape);
  SmallVector<Expr, 4> shape{rois.shape[0], x.shape[1], Expr(height), Expr(width)};
  Value result = n.generate(x.dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Sampling sampling = sampler.of(b, loc, at[0]);
    const SmallVector<Num> &begin = sampling.begin, &bin = sampling.bin, &samples = sampling.samples;
    Value batch = checkedIndex(n, b, loc, load(b, loc, rows, batches.dtype, at[0]).value(), sizes[0]);
    auto body = [&](OpBuilder &b, Location loc, ValueRange k, ValueRange carried) -> SmallVector<Value> {
      SmallVector<SmallVector<Tap, 4>, 2> taps;
      for (int64_t d : {0, 1}) {
        Num cell = convert(fromIndex(b, loc, DType::I64, at[d + 2]), wide);
        Num part = (convert(fromIndex(b, loc, DType::I64, k[d]), wide) + 0.5) / convert(samples[d], wide);
        taps.push_back(neighbours(begin[d] + (cell + part) * bin[d], fromIndex(b, loc, DType::I64, sizes[d + 2])));
      }
      Num so(b, loc, wide, carried[0]);
      if (mode == "avg")
        return {(so + interpolate(image, x.dtype, {batch, at[1]}, taps)).value()};
      // The greatest of the weighted neighbours, as ONNX has it.
      for (const Tap &row : taps[0])
        for (const Tap &column : taps[1]) {
          Num element =
              convert(load(b, loc, image, x.dtype, {batch, at[1], toIndex(row.index), toIndex(column.index)}), wide);
          so = maximum(so, element * row.weight * column.weight);
        }
      return {so.value()};
    };
    Num start = constantNum(b, loc, wide, 0.0);
    SmallVector<Value> bounds{toIndex(samples[0]), toIndex(samples[1])};
    Num all(b, loc, wide, sequential(b, loc, bounds, (mode == "max" ? start.lowest() : start).value(), body)[0]);
    if (mode == "avg")
      all = all / atLeast(convert(samples[0] * samples[1], wide), start.constant(1));
    return convert(all, x.dtype).value();
  });
  n.setOutput(0, result, x.dtype, shape);
  return success();
}

} // namespace

void registerDetectionOps(OpRegistry &registry) {
  registry.add("NonMaxSuppression", {10, 11}, importNonMaxSuppression);
  registry.add("RoiAlign", {10, 16, 22}, importRoiAlign);
}

} // namespace attn::onnx
