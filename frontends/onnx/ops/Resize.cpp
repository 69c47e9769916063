#include "frontends/onnx/Limits.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Resizing.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

// Resize and Upsample, one dimension after the other.

using namespace mlir;

namespace attn::onnx {
namespace {

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
    // Of no elements nothing is made but none, and a common scale is not defined.
    Expr least = policy == "stretch" ? n.symbols().min(size, 1) : Expr(1);
    if (failed(n.requireAtMost(least, x.shape[axis], "resizes a dimension of size {1} to one with elements")))
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
    // In f32, as ONNX's shape inference and ONNX Runtime have it: 18 / 7 of 7 is 18.
    Num exact = convert(scale, DType::F32) * convert(sizeAsDouble(n, x.shape[axis]), DType::F32);
    r.dims.push_back({axis, scale, same ? x.shape[axis] : sizeFrom(n, floor(exact))});
  }
  return success();
}

/// Sums in `dtype`. Those of integers may lie beyond its numbers, as a cubic filter and a rounding to f32 make them,
/// and become its ends.
FailureOr<Tensor> sumsAs(Node &n, const Resizing &r, const Tensor &y, DType dtype) {
  bool isWithin = r.mode == "linear" && dtypeBits(dtype) < 32 && r.place != Place::Crop;
  if (isFloat(dtype) || dtype == DType::Bool || dtypeBits(dtype) > 32 || isWithin)
    return n.cast(y, dtype);
  return formula(n, dtype, {y}, [&](ArrayRef<Num> v) {
    Num limits = constantNum(v[0].builder(), v[0].location(), dtype, int64_t(0));
    Num low = limits.lowest(), high = limits.highest();
    if (dtypeBits(dtype) == 32)
      return convert(clampedInteger(v[0], convert(low, DType::I64), convert(high, DType::I64)), dtype);
    return convert(atMost(atLeast(v[0], convert(low, v[0].dtype())), convert(high, v[0].dtype())), dtype);
  });
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
  for (const Resized &d : r.dims)
    shape[d.dim] = d.size;
  // First what shrinks, then along rows, so that as few elements as can be are read one by one.
  auto shrinks = [&](const Resized &d) {
    std::optional<int64_t> from = x.shape[d.dim].constant(), to = d.size.constant();
    return from && to && *to < *from;
  };
  SmallVector<size_t> order;
  for (bool first : {true, false})
    for (size_t entry = r.dims.size(); entry-- > 0;)
      if (shrinks(r.dims[entry]) == first)
        order.push_back(entry);
  bool isNearest = r.mode == "nearest";
  FailureOr<Tensor> y = isNearest ? x : n.cast(x, x.dtype == DType::F64 ? DType::F64 : DType::F32);
  for (size_t entry : order) {
    y = resized(n, r, entry, *y);
    if (failed(y))
      return failure();
  }
  if (!isNearest)
    y = sumsAs(n, r, *y, x.dtype);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerResizeOps(OpRegistry &registry) {
  registry.add("Resize", {10, 11, 13, 18, 19}, importResize);
  registry.add("Upsample", {7, 9, 10}, importResize);
}

} // namespace attn::onnx
