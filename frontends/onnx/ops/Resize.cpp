#include "frontends/onnx/Limits.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

// Resize and Upsample. Nearest neighbours are gathered; the other modes are
// separable, so each resized dimension is a product with a matrix of weights
// [output, input], which costs little beside what a network does.

using namespace mlir;

namespace attn::onnx {
namespace {

enum class Place {
  HalfPixel,
  HalfPixelSymmetric,
  PytorchHalfPixel,
  AlignCorners,
  Asymmetric,
  Crop,
  TfHalfPixelNearest
};
enum class Nearest { PreferFloor, PreferCeil, Floor, Ceil, Simple };

/// One dimension that changes.
struct Resized {
  int64_t dim;
  Num scale; // f64, output / input
  Expr size; // of the output
};

struct Resizing {
  std::string mode; // nearest, linear, cubic
  Place place = Place::HalfPixel;
  Nearest nearest = Nearest::PreferFloor;
  double cubic = -0.75, extrapolation = 0;
  bool excludeOutside = false, antialias = false;
  std::vector<Resized> dims;
  Value roi; // tensor, for Crop
  DType roiType = DType::F32;
  SmallVector<int64_t> axes; // that scales, sizes and roi are of
};

LogicalResult readModes(Node &n, Resizing &r) {
  r.mode = n.stringAttr("mode", "nearest");
  if (r.mode == "bilinear")
    r.mode = "linear";
  if (r.mode != "nearest" && r.mode != "linear" && r.mode != "cubic")
    return n.error() << "mode '" << r.mode << "' is none of nearest, linear and cubic";
  if (n.version() < 11) {
    r.place = Place::Asymmetric;
    r.nearest = Nearest::Simple;
    return success();
  }
  static const std::pair<StringRef, Place> places[] = {{"half_pixel", Place::HalfPixel},
                                                       {"half_pixel_symmetric", Place::HalfPixelSymmetric},
                                                       {"align_corners", Place::AlignCorners},
                                                       {"pytorch_half_pixel", Place::PytorchHalfPixel},
                                                       {"asymmetric", Place::Asymmetric},
                                                       {"tf_crop_and_resize", Place::Crop},
                                                       {"tf_half_pixel_for_nn", Place::TfHalfPixelNearest}};
  static const std::pair<StringRef, Nearest> roundings[] = {{"round_prefer_floor", Nearest::PreferFloor},
                                                            {"round_prefer_ceil", Nearest::PreferCeil},
                                                            {"floor", Nearest::Floor},
                                                            {"ceil", Nearest::Ceil}};
  std::string place = n.stringAttr("coordinate_transformation_mode", "half_pixel");
  std::string rounding = n.stringAttr("nearest_mode", "round_prefer_floor");
  auto *foundPlace = llvm::find_if(places, [&](auto &p) { return p.first == place; });
  auto *foundRounding = llvm::find_if(roundings, [&](auto &p) { return p.first == rounding; });
  if (foundPlace == std::end(places))
    return n.error() << "coordinate_transformation_mode '" << place << "' is unknown";
  if (foundRounding == std::end(roundings))
    return n.error() << "nearest_mode '" << rounding << "' is unknown";
  r.place = foundPlace->second;
  r.nearest = foundRounding->second;
  r.cubic = n.floatAttr("cubic_coeff_a", -0.75);
  r.excludeOutside = n.intAttr("exclude_outside", 0) != 0;
  r.antialias = n.intAttr("antialias", 0) != 0 && r.mode != "nearest";
  r.extrapolation = n.floatAttr("extrapolation_value", 0.0);
  return success();
}

Num sizeAsDouble(Node &n, const Expr &size) {
  Value value = n.symbols().materialize(n.builder(), n.loc(), size);
  return fromIndex(n.builder(), n.loc(), DType::F64, value);
}

/// A float that is computed here as a size: constant where it folds.
Expr sizeFrom(Node &n, const Num &x) {
  Num low = constantNum(x.builder(), x.location(), DType::I64, int64_t(0));
  Num whole = clampedInteger(x, low, low.constant(2 * kMaxSize)); // what is too large stays so
  IntegerAttr constant;
  if (matchPattern(whole.value(), m_Constant(&constant)))
    return Expr(constant.getInt());
  return n.symbols().read(toIndex(whole), 0, std::nullopt);
}

constexpr double kMaxScale = 1e9;

/// Scales from an input or from the attribute, as numbers.
FailureOr<SmallVector<Num>> readScales(Node &n, std::optional<size_t> input, int64_t count) {
  OpBuilder &b = n.builder();
  SmallVector<Num> scales;
  std::optional<SmallVector<double>> known = input ? n.constantFloats(*input) : n.floatsAttr("scales");
  if (known) {
    for (double scale : *known) {
      if (!(scale > 0) || !(scale <= kMaxScale))
        return n.error() << "has a scale of " << scale << ", expected one above 0 and at most " << kMaxScale;
      scales.push_back(constantNum(b, n.loc(), DType::F64, scale));
    }
    return scales;
  }
  if (!input)
    return n.error() << "has no scales";
  const Tensor &t = n.input(*input);
  if (!isFloat(t.dtype) || t.rank() != 1)
    return n.error() << "expects a vector of floats for input " << *input;
  FailureOr<Tensor> vector = n.reshape(t, Expr(count));
  if (failed(vector))
    return failure();
  for (int64_t i = 0; i < count; ++i) {
    Value at = arith::ConstantIndexOp::create(b, n.loc(), i);
    Num scale = convert(load(b, n.loc(), n.value(*vector), t.dtype, at), DType::F64);
    n.require(((scale > 0.0) & (scale <= kMaxScale)).value(),
              "scale " + std::to_string(i) + " is not above 0 and at most 1000000000");
    scales.push_back(scale);
  }
  return scales;
}

/// The scales that sizes ask for: output / input, or one for all of them.
LogicalResult scalesOfSizes(Node &n, Resizing &r, SmallVector<Expr> sizes) {
  const Tensor &x = n.input(0);
  std::string policy = n.stringAttr("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    return n.error() << "keep_aspect_ratio_policy '" << policy << "' is unknown";
  std::optional<Num> common;
  for (auto [axis, size] : llvm::zip_equal(r.axes, sizes)) {
    if (failed(n.requireAtMost(0, size, "asks for a dimension of size {1}")))
      return failure();
    Num scale = sizeAsDouble(n, size) / sizeAsDouble(n, x.shape[axis]);
    if (!common)
      common = scale;
    else
      common = policy == "not_larger" ? minimum(*common, scale) : maximum(*common, scale);
    r.dims.push_back({axis, scale, size});
  }
  if (policy == "stretch")
    return success();
  for (Resized &d : r.dims) {
    d.scale = *common;
    d.size = sizeFrom(n, floor(*common * sizeAsDouble(n, x.shape[d.dim]) + 0.5));
  }
  return success();
}

LogicalResult readDims(Node &n, Resizing &r) {
  const Tensor &x = n.input(0);
  r.axes = llvm::to_vector(llvm::seq<int64_t>(0, x.rank()));
  if (std::optional<SmallVector<int64_t>> given = n.intsAttr("axes")) {
    r.axes.clear();
    for (int64_t axis : *given) {
      FailureOr<int64_t> dim = n.axis(axis, x.rank());
      if (failed(dim))
        return failure();
      if (llvm::is_contained(r.axes, *dim))
        return n.error() << "axis " << axis << " is given twice";
      r.axes.push_back(*dim);
    }
  }
  // An empty tensor stands for no scales, too.
  auto given = [&](size_t i) { return n.hasInput(i) && !(n.input(i).rank() == 1 && n.input(i).shape[0].is(0)); };
  bool attribute = n.opType() == "Upsample" && n.version() < 9;
  if (n.version() >= 11 && given(3)) {
    std::optional<SmallVector<Expr>> sizes = exprsOfLength(n, 3, r.axes.size());
    if (!sizes)
      return n.error() << "expects " << r.axes.size() << " sizes, one an axis";
    return scalesOfSizes(n, r, *sizes);
  }
  size_t input = n.version() < 11 ? 1 : 2;
  if (!attribute && !given(input))
    return n.error() << "has neither scales nor sizes";
  FailureOr<SmallVector<Num>> scales = readScales(n, attribute ? std::nullopt : std::optional(input), r.axes.size());
  if (failed(scales))
    return failure();
  if (scales->size() != r.axes.size())
    return n.error() << "has " << scales->size() << " scales for " << r.axes.size() << " axes";
  for (auto [axis, scale] : llvm::zip_equal(r.axes, *scales)) {
    FloatAttr constant;
    bool same = matchPattern(scale.value(), m_Constant(&constant)) && constant.getValueAsDouble() == 1;
    r.dims.push_back({axis, scale, same ? x.shape[axis] : sizeFrom(n, floor(scale * sizeAsDouble(n, x.shape[axis])))});
  }
  return success();
}

/// Where output `o` stands in the input, and (Crop) whether that is outside.
Num sourceOf(const Resizing &r, size_t entry, const Num &o, const Num &input, const Num &output) {
  const Num &scale = r.dims[entry].scale;
  Num exact = scale * input;
  switch (r.place) {
  case Place::HalfPixel:
    return (o + 0.5) / scale - 0.5;
  case Place::TfHalfPixelNearest:
    return (o + 0.5) / scale;
  case Place::PytorchHalfPixel:
    return select(exact == 1.0, o.constant(-0.5), (o + 0.5) / scale - 0.5);
  case Place::HalfPixelSymmetric:
    return 0.5 * input * (1.0 - output / exact) + (o + 0.5) / scale - 0.5;
  case Place::AlignCorners:
    return select(exact == 1.0, o.constant(0), o * (input - 1.0) / (exact - 1.0));
  case Place::Asymmetric:
    return o / scale;
  case Place::Crop: {
    OpBuilder &b = o.builder();
    auto bound = [&](size_t at) {
      Value index = arith::ConstantIndexOp::create(b, o.location(), at);
      return convert(load(b, o.location(), r.roi, r.roiType, index), DType::F64);
    };
    size_t position = llvm::find(r.axes, r.dims[entry].dim) - r.axes.begin();
    Num begin = bound(position), end = bound(position + r.axes.size()), range = (end - begin) * (input - 1.0);
    return begin * (input - 1.0) + select(exact == 1.0, 0.5 * range, o * range / (exact - 1.0));
  }
  }
  llvm_unreachable("a place");
}

Num nearestOf(Nearest how, const Num &x, const Num &scale) {
  switch (how) {
  case Nearest::PreferFloor:
    return ceil(x - 0.5);
  case Nearest::PreferCeil:
    return floor(x + 0.5);
  case Nearest::Floor:
    return floor(x);
  case Nearest::Ceil:
    return ceil(x);
  case Nearest::Simple:
    return select(scale < 1.0, ceil(x), floor(x));
  }
  llvm_unreachable("a rounding");
}

Tensor gathered(Node &n, const Resizing &r, ArrayRef<Expr> shape) {
  const Tensor &x = n.input(0);
  Value source = n.value(x);
  SmallVector<Value> inputs = sizeValues(n, x.shape), outputs = sizeValues(n, shape);
  Num extrapolated = constantNum(n.builder(), n.loc(), x.dtype == DType::Bool ? DType::U8 : x.dtype, r.extrapolation);
  Tensor y;
  y.dtype = x.dtype;
  y.shape.assign(shape.begin(), shape.end());
  y.value = n.generate(x.dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    SmallVector<Value> from(at);
    std::optional<Num> outside;
    for (auto [entry, d] : llvm::enumerate(r.dims)) {
      Num o = fromIndex(b, loc, DType::F64, at[d.dim]), length = fromIndex(b, loc, DType::I64, inputs[d.dim]);
      Num input = convert(length, DType::F64);
      Num place = sourceOf(r, entry, o, input, fromIndex(b, loc, DType::F64, outputs[d.dim]));
      Num last = length - length.constant(1);
      Num row = clampedInteger(nearestOf(r.nearest, place, d.scale), length.constant(0), last);
      from[d.dim] = toIndex(maximum(row, row.constant(0)));
      if (r.place != Place::Crop)
        continue;
      Num beyond = (place < 0.0) | (place > input - 1.0);
      outside = outside ? *outside | beyond : beyond;
    }
    Num element = extrapolated.with(tensor::ExtractOp::create(b, loc, source, from));
    return (outside ? select(*outside, extrapolated, element) : element).value();
  });
  return y;
}

/// The filter at a distance of `t` inputs.
Num filterAt(const Resizing &r, const Num &t) {
  Num x = abs(t);
  if (r.mode == "linear")
    return atLeast(1.0 - x, x.constant(0));
  double a = r.cubic;
  Num near = ((a + 2) * x - (a + 3)) * x * x + 1.0, far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return select(x <= 1.0, near, select(x < 2.0, far, x.constant(0)));
}

/// Weights [output, input] of one dimension; taps outside of the input are
/// the element at its end, or nothing.
Tensor weightMatrix(Node &n, const Resizing &r, size_t entry, const Expr &input) {
  const Resized &d = r.dims[entry];
  Value inputs = n.symbols().materialize(n.builder(), n.loc(), input);
  Value outputs = n.symbols().materialize(n.builder(), n.loc(), d.size);
  Tensor w;
  w.dtype = n.input(0).dtype == DType::F64 ? DType::F64 : DType::F32;
  w.shape.append({d.size, input});
  w.value = n.generate(w.dtype, w.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num length = fromIndex(b, loc, DType::F64, inputs), o = fromIndex(b, loc, DType::F64, at[0]);
    Num place = sourceOf(r, entry, o, length, fromIndex(b, loc, DType::F64, outputs));
    Num stretch = r.antialias ? atMost(d.scale, d.scale.constant(1)) : d.scale.constant(1);
    Num reach = ceil((r.mode == "linear" ? 1.0 : 2.0) / stretch), first = floor(place) - reach;
    Num here = fromIndex(b, loc, DType::F64, at[1]), zero = place.constant(0);
    Value taps = toIndex(clampedInteger(2.0 * reach + 2.0, constantNum(b, loc, DType::I64, int64_t(0)),
                                        constantNum(b, loc, DType::I64, int64_t(1) << 30)));
    auto body = [&](OpBuilder &b, Location loc, ValueRange k, ValueRange carried) -> SmallVector<Value> {
      Num all(b, loc, DType::F64, carried[0]), own(b, loc, DType::F64, carried[1]);
      Num tap = first + fromIndex(b, loc, DType::F64, k[0]), weight = filterAt(r, (tap - place) * stretch);
      Num end = atMost(atLeast(tap, zero), length - 1.0);
      if (r.excludeOutside)
        weight = select(end == tap, weight, zero);
      return {(all + weight).value(), select(end == here, own + weight, own).value()};
    };
    SmallVector<Value> sums = sequential(b, loc, taps, {zero.value(), zero.value()}, body);
    Num all(b, loc, DType::F64, sums[0]), own(b, loc, DType::F64, sums[1]);
    return convert(own / all, w.dtype).value();
  });
  return w;
}

/// `x` times the weights along one dimension.
FailureOr<Tensor> applied(Node &n, const Resizing &r, size_t entry, const Tensor &x) {
  const Resized &d = r.dims[entry];
  constexpr Label kNew = 100;
  LabelledTensor left{x, {}}, weights{weightMatrix(n, r, entry, x.shape[d.dim]), {kNew, Label(d.dim)}};
  SmallVector<Label> out;
  for (int64_t k = 0; k < x.rank(); ++k) {
    left.labels.push_back(k);
    out.push_back(k == d.dim ? kNew : Label(k));
  }
  FailureOr<Tensor> y = contractLabels(n, x.dtype, left, weights, out);
  if (failed(y) || r.place != Place::Crop)
    return y;
  Value inputs = n.symbols().materialize(n.builder(), n.loc(), x.shape[d.dim]);
  Value outputs = n.symbols().materialize(n.builder(), n.loc(), d.size);
  Tensor beyond;
  beyond.dtype = DType::Bool;
  beyond.shape.assign(x.rank(), Expr(1));
  beyond.shape[d.dim] = d.size;
  beyond.value = n.generate(DType::U8, beyond.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num length = fromIndex(b, loc, DType::F64, inputs);
    Num place =
        sourceOf(r, entry, fromIndex(b, loc, DType::F64, at[d.dim]), length, fromIndex(b, loc, DType::F64, outputs));
    return convert((place < 0.0) | (place > length - 1.0), DType::U8).value();
  });
  return formula(n, y->dtype, {*y, beyond},
                 [&](ArrayRef<Num> v) { return select(v[1], v[0].constant(r.extrapolation), v[0]); });
}

LogicalResult importResize(Node &n) {
  Resizing r;
  if (failed(expectInputs(n, 1)) || failed(readModes(n, r)) || failed(readDims(n, r)))
    return failure();
  const Tensor &x = n.input(0);
  if (r.place == Place::Crop) {
    if (!n.hasInput(1) || !isFloat(n.input(1).dtype) || n.input(1).rank() != 1)
      return n.error() << "expects a vector of floats for roi (input 1)";
    if (failed(n.requireEqual(n.input(1).shape[0], Expr(2 * int64_t(r.axes.size())), "roi has {0} numbers, not {1}")))
      return failure();
    r.roi = n.value(1);
    r.roiType = n.input(1).dtype;
  }
  // A dimension that stays takes no part (a crop may change it all the same).
  if (r.place != Place::Crop)
    llvm::erase_if(r.dims, [&](const Resized &d) {
      FloatAttr scale;
      return d.size == x.shape[d.dim] &&
             (!matchPattern(d.scale.value(), m_Constant(&scale)) || scale.getValueAsDouble() == 1);
    });
  SmallVector<Expr, 4> shape(x.shape);
  for (const Resized &d : r.dims) {
    shape[d.dim] = d.size;
    if (failed(n.requireAtMost(1, x.shape[d.dim], "resizes a dimension of size {1}")))
      return failure();
  }
  if (r.mode == "nearest") {
    n.setOutput(0, gathered(n, r, shape));
    return success();
  }
  FailureOr<Tensor> y = n.cast(x, x.dtype == DType::F64 ? DType::F64 : DType::F32);
  for (size_t entry = r.dims.size(); entry-- > 0;) {
    y = applied(n, r, entry, *y);
    if (failed(y))
      return failure();
  }
  n.setOutput(0, n.cast(*y, x.dtype));
  return success();
}

} // namespace

void registerResizeOps(OpRegistry &registry) {
  registry.add("Resize", {10, 11, 13, 18, 19}, importResize);
  registry.add("Upsample", {7, 9, 10}, importResize);
}

} // namespace attn::onnx
