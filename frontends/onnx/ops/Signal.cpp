#include "frontends/onnx/ops/Concatenate.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Reduce.h"
#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

// Windows, Fourier transforms and mel weights: what audio front-ends need. A
// transform is a product with a matrix of sines and cosines.

using namespace mlir;

namespace attn::onnx {
namespace {

/// A scalar (or vector of one) of integers.
FailureOr<Expr> readScalar(Node &n, size_t input) {
  std::optional<SmallVector<Expr>> value = n.exprs(input);
  if (!value || value->size() != 1)
    return n.error() << "expects an integer scalar for input " << input << ", has rank " << n.input(input).rank();
  return value->front();
}

FailureOr<Expr> readSize(Node &n, size_t input) {
  FailureOr<Expr> value = readScalar(n, input);
  if (failed(value) || failed(n.requireAtMost(0, *value, "has a length of {1}")))
    return failure();
  return value;
}

FailureOr<DType> readOutputType(Node &n) {
  std::optional<DType> dtype = dtypeFromProto(n.intAttr("output_datatype", 1));
  if (!dtype || *dtype == DType::Bool)
    return n.unsupported() << "output type " << n.intAttr("output_datatype", 1);
  return *dtype;
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

LogicalResult importWindow(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  FailureOr<Expr> size = readSize(n, 0);
  FailureOr<DType> dtype = readOutputType(n);
  if (failed(size) || failed(dtype))
    return failure();
  bool periodic = n.intAttr("periodic", 1) != 0;
  double a = 0.5, b = 0.5, c = 0; // a - b cos + c cos of twice the angle
  if (n.opType() == "HammingWindow")
    a = 25.0 / 46, b = 21.0 / 46;
  else if (n.opType() == "BlackmanWindow")
    a = 0.42, c = 0.08;
  Expr period = periodic ? *size : *size - Expr(1);
  Value length = n.symbols().materialize(n.builder(), n.loc(), period);
  Value result = n.generate(*dtype, *size, [&](OpBuilder &builder, Location loc, ValueRange at) -> Value {
    Num k = fromIndex(builder, loc, DType::F64, at[0]), whole = fromIndex(builder, loc, DType::F64, length);
    Num angle = 2 * M_PI * k / whole;
    Num value = a - b * cos(angle);
    if (c != 0)
      value = value + c * cos(2.0 * angle);
    return convert(value, *dtype).value();
  });
  n.setOutput(0, result, *dtype, *size);
  return success();
}

//===----------------------------------------------------------------------===//
// DFT
//===----------------------------------------------------------------------===//

/// cos (or -sin) of 2 pi k j / length, [rows, columns]; `sign` -1 turns the
/// other way. Angles are reduced first, so that they stay exact.
Tensor angles(Node &n, DType dtype, const Expr &rows, const Expr &columns, const Expr &length, bool sine, double sign) {
  Value period = n.symbols().materialize(n.builder(), n.loc(), length);
  Tensor t;
  t.dtype = dtype;
  t.shape.append({rows, columns});
  t.value = n.generate(dtype, t.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num k = fromIndex(b, loc, DType::I64, at[0]), j = fromIndex(b, loc, DType::I64, at[1]);
    Num whole = fromIndex(b, loc, DType::I64, period), turn = k * j;
    Num rest = turn - (turn / whole) * whole;
    Num angle = 2 * M_PI * convert(rest, DType::F64) / convert(whole, DType::F64);
    return convert(sine ? sign * -1.0 * sin(angle) : cos(angle), dtype).value();
  });
  return t;
}

struct Transform {
  int64_t axis = 0;  // of [..., n, ..., 1 or 2]
  Expr length, bins; // of the transform, and of its result
  bool inverse = false, onesided = false;
};

/// x (without its last dimension) times a matrix along the axis.
FailureOr<Tensor> along(Node &n, const Tensor &x, const Tensor &matrix, int64_t axis) {
  constexpr Label kBin = 100;
  LabelledTensor left{x, {}}, right{matrix, {kBin, Label(axis)}};
  SmallVector<Label> out;
  for (int64_t d = 0; d < x.rank(); ++d) {
    left.labels.push_back(d);
    out.push_back(d == axis ? kBin : Label(d));
  }
  return contractLabels(n, x.dtype, left, right, out);
}

/// Part 0 (real) or 1 (imaginary) of [..., 2], or nothing.
FailureOr<std::optional<Tensor>> part(Node &n, const Tensor &x, int64_t which) {
  if (which == 1 && x.shape.back().is(1))
    return std::optional<Tensor>();
  SmallVector<Expr, 4> shape(x.shape.begin(), x.shape.end() - 1);
  FailureOr<Tensor> view = n.reshape(n.slice(x, x.rank() - 1, which, 1), shape);
  if (failed(view))
    return failure();
  return std::optional(*view);
}

/// The two parts as [..., 2].
FailureOr<Tensor> together(Node &n, const Tensor &real, const Tensor &imaginary) {
  SmallVector<Expr, 4> shape(real.shape);
  shape.push_back(1);
  FailureOr<Tensor> re = n.reshape(real, shape), im = n.reshape(imaginary, shape);
  if (failed(re) || failed(im))
    return failure();
  shape.back() = 2;
  return concatenate(n, {*re, *im}, real.rank(), shape);
}

/// The transform of `x` [..., 1 or 2], computed in its dtype.
FailureOr<Tensor> transformed(Node &n, Tensor x, const Transform &how) {
  Symbols &s = n.symbols();
  Expr have = x.shape[how.axis], used = s.min(have, how.length); // missing elements are zeros
  x = n.slice(x, how.axis, 0, used);
  FailureOr<std::optional<Tensor>> real = part(n, x, 0), imaginary = part(n, x, 1);
  if (failed(real) || failed(imaginary))
    return failure();
  double sign = how.inverse ? -1 : 1;
  Tensor cosines = angles(n, x.dtype, how.bins, used, how.length, false, sign);
  Tensor sines = angles(n, x.dtype, how.bins, used, how.length, true, sign);
  FailureOr<Tensor> re = along(n, **real, cosines, how.axis), im = along(n, **real, sines, how.axis);
  if (failed(re) || failed(im))
    return failure();
  if (*imaginary) {
    FailureOr<Tensor> re2 = along(n, **imaginary, sines, how.axis), im2 = along(n, **imaginary, cosines, how.axis);
    if (failed(re2) || failed(im2))
      return failure();
    re = formula(n, x.dtype, {*re, *re2}, [](ArrayRef<Num> v) { return v[0] - v[1]; });
    im = formula(n, x.dtype, {*im, *im2}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
  }
  if (succeeded(re) && succeeded(im) && how.inverse) {
    re = divideByCount(n, *re, how.length);
    im = divideByCount(n, *im, how.length);
  }
  if (failed(re) || failed(im))
    return failure();
  return together(n, *re, *im);
}

/// The real signal of which the first half of the spectrum is `x` [..., 2]:
/// the other half is its mirror, conjugate.
FailureOr<Tensor> fromHalf(Node &n, const Tensor &x, Transform how) {
  Symbols &s = n.symbols();
  Value source = n.value(x), length = s.materialize(n.builder(), n.loc(), how.length);
  Value have = s.materialize(n.builder(), n.loc(), x.shape[how.axis]);
  Tensor whole;
  whole.dtype = x.dtype;
  whole.shape = x.shape;
  whole.shape[how.axis] = how.length;
  whole.value = n.generate(x.dtype, whole.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num k = fromIndex(b, loc, DType::I64, at[how.axis]), all = fromIndex(b, loc, DType::I64, length);
    Num size = fromIndex(b, loc, DType::I64, have), two = k.constant(2);
    Num mirrored = k * two > all, from = select(mirrored, all - k, k), inside = from < size;
    SmallVector<Value> place(at);
    place[how.axis] = toIndex(select(inside, from, k.constant(0)));
    Num element = load(b, loc, source, x.dtype, place);
    Num imaginary = fromIndex(b, loc, DType::I64, at.back()) == k.constant(1);
    // The ends of the half are real, whatever is written there.
    Num end = (from == k.constant(0)) | (from * two == all);
    element = select(imaginary & mirrored, -element, element);
    return select(inside & !(imaginary & end), element, element.constant(0)).value();
  });
  how.bins = how.length;
  FailureOr<Tensor> y = transformed(n, whole, how);
  if (failed(y))
    return failure();
  return n.slice(*y, y->rank() - 1, 0, 1);
}

/// `x`, whose last dimension has an open size (1 or 2), as complex numbers.
FailureOr<Tensor> asComplex(Node &n, const Tensor &x) {
  const Expr &parts = x.shape.back();
  if (failed(n.requireAtMost(1, parts, "expects real or complex numbers in the last dimension, has size {1}")) ||
      failed(n.requireAtMost(parts, 2, "expects real or complex numbers in the last dimension, has size {0}")))
    return failure();
  Value source = n.value(x), have = n.symbols().materialize(n.builder(), n.loc(), parts);
  Tensor result;
  result.dtype = x.dtype;
  result.shape = x.shape;
  result.shape.back() = Expr(2);
  result.value = n.generate(x.dtype, result.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num part = fromIndex(b, loc, DType::I64, at.back()), inside = part < fromIndex(b, loc, DType::I64, have);
    SmallVector<Value> place(at);
    place.back() = toIndex(select(inside, part, part.constant(0)));
    Num element = load(b, loc, source, x.dtype, place);
    return select(inside, element, element.constant(0)).value();
  });
  return result;
}

/// Input 0 as real or complex numbers: 1 or 2 parts in its last dimension.
FailureOr<Tensor> readNumbers(Node &n) {
  if (failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  if (x.rank() > 1 && !x.shape.back().constant())
    return asComplex(n, x);
  if (x.rank() < 2 || (!x.shape.back().is(1) && !x.shape.back().is(2)))
    return n.error() << "expects real or complex numbers in the last dimension, has rank " << x.rank() << " and size "
                     << (x.rank() ? n.symbols().print(x.shape.back()) : "none");
  return x;
}

/// What the attributes and the length of the node make of `x` along dimension `dim`.
FailureOr<Tensor> transformedAlong(Node &n, const Tensor &x, int64_t dim) {
  Transform how{dim, x.shape[dim], {}, n.intAttr("inverse", 0) != 0, n.intAttr("onesided", 0) != 0};
  if (how.inverse && how.onesided)
    how.length = (x.shape[dim] - Expr(1)) * Expr(2);
  if (n.hasInput(1)) {
    FailureOr<Expr> length = readSize(n, 1);
    if (failed(length))
      return failure();
    how.length = *length;
  }
  if (failed(n.requireAtMost(1, how.length, "has a length of {1}")))
    return failure();
  how.bins = how.onesided ? n.symbols().floorDiv(how.length, 2) + Expr(1) : how.length;
  Tensor wide = n.cast(x, computeDType(x.dtype));
  FailureOr<Tensor> y = how.inverse && how.onesided ? fromHalf(n, wide, how) : transformed(n, wide, how);
  if (failed(y))
    return failure();
  return n.cast(*y, x.dtype);
}

/// A transform whose axis is data: of [what lies before it, it, what lies behind it, parts].
LogicalResult transformAtRun(Node &n, const Tensor &x) {
  Symbols &s = n.symbols();
  FailureOr<Expr> given = readScalar(n, 2);
  if (failed(given))
    return failure();
  Expr axis = s.select(s.less(*given, 0), *given + Expr(x.rank()), *given), before(1), size(1), behind(1);
  if (failed(n.requireAtMost(0, axis, "axis {1} is before the first")) ||
      failed(n.requireAtMost(axis, Expr(x.rank() - 2), "axis {0} is beyond {1}")))
    return failure();
  for (int64_t d = 0; d + 1 < x.rank(); ++d) {
    before = before * s.select(s.less(d, axis), x.shape[d], 1);
    size = s.select(s.equal(axis, d), x.shape[d], size);
    behind = behind * s.select(s.less(axis, d), x.shape[d], 1);
  }
  FailureOr<Tensor> view = n.reshape(x, {before, size, behind, x.shape.back()});
  if (failed(view))
    return failure();
  FailureOr<Tensor> y = transformedAlong(n, *view, 1);
  if (failed(y))
    return failure();
  SmallVector<Expr> shape;
  for (int64_t d = 0; d + 1 < x.rank(); ++d)
    shape.push_back(s.select(s.equal(axis, d), y->shape[1], x.shape[d]));
  shape.push_back(y->shape.back());
  FailureOr<Tensor> result = n.reshape(*y, shape);
  if (failed(result))
    return failure();
  n.setOutput(0, *result);
  return success();
}

LogicalResult importDFT(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  FailureOr<Tensor> numbers = readNumbers(n);
  if (failed(numbers))
    return failure();
  const Tensor &x = *numbers;
  int64_t axis = n.version() < 20 ? n.intAttr("axis", 1) : -2;
  if (n.version() >= 20 && n.hasInput(2)) {
    std::optional<SmallVector<int64_t>> given = n.constantInts(2);
    if (!given)
      return transformAtRun(n, x);
    if (given->size() != 1)
      return n.error() << "expects one axis, has " << given->size();
    axis = given->front();
  }
  FailureOr<int64_t> dim = n.axis(axis, x.rank());
  if (failed(dim))
    return failure();
  if (*dim == x.rank() - 1)
    return n.error() << "axis " << axis << " is the one of the parts of a number";
  FailureOr<Tensor> y = transformedAlong(n, x, *dim);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

//===----------------------------------------------------------------------===//
// STFT
//===----------------------------------------------------------------------===//

LogicalResult importSTFT(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  if (n.input(0).rank() != 3)
    return n.error() << "expects a signal of rank 3, has rank " << n.input(0).rank();
  FailureOr<Tensor> numbers = readNumbers(n);
  if (failed(numbers))
    return failure();
  const Tensor &x = *numbers;
  FailureOr<Expr> step = readSize(n, 1), length = failure();
  if (n.hasInput(3))
    length = readSize(n, 3);
  else if (n.hasInput(2) && n.input(2).rank() == 1)
    length = n.input(2).shape[0];
  else
    return n.error() << "has neither a window nor a frame_length";
  if (failed(step) || failed(length) || failed(n.requireAtMost(1, *step, "has a frame_step of {1}")) ||
      failed(n.requireAtMost(1, *length, "has a frame_length of {1}")) ||
      failed(n.requireAtMost(*length, x.shape[1], "frames of {0} elements are longer than the signal ({1})")))
    return failure();
  Symbols &s = n.symbols();
  Expr frames = s.floorDiv(x.shape[1] - *length, *step) + Expr(1);
  Value source = n.value(x), stride = s.materialize(n.builder(), n.loc(), *step);
  Tensor framed;
  framed.dtype = x.dtype;
  framed.shape.append({x.shape[0], frames, *length, x.shape[2]});
  framed.value = n.generate(x.dtype, framed.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Value begin = arith::MulIOp::create(b, loc, at[1], stride);
    SmallVector<Value> place{at[0], arith::AddIOp::create(b, loc, begin, at[2]), at[3]};
    return tensor::ExtractOp::create(b, loc, source, place);
  });
  FailureOr<Tensor> weighted = framed;
  if (n.hasInput(2)) {
    if (n.input(2).rank() != 1 || failed(expectSameDType(n, 0, 2)) ||
        failed(n.requireEqual(n.input(2).shape[0], *length, "the window has {0} elements, a frame {1}")))
      return n.input(2).rank() != 1 ? n.error() << "expects a window of rank 1" : failure();
    FailureOr<Tensor> window = n.reshape(n.input(2), {*length, Expr(1)});
    if (failed(window))
      return failure();
    weighted = formula(n, computeDType(x.dtype), {framed, *window}, [](ArrayRef<Num> v) { return v[0] * v[1]; });
  }
  if (failed(weighted))
    return failure();
  Transform how{2, *length, *length, false, n.intAttr("onesided", 1) != 0};
  if (how.onesided)
    how.bins = s.floorDiv(*length, 2) + Expr(1);
  FailureOr<Tensor> y = transformed(n, n.cast(*weighted, computeDType(x.dtype)), how);
  if (failed(y))
    return failure();
  n.setOutput(0, n.cast(*y, x.dtype));
  return success();
}

//===----------------------------------------------------------------------===//
// MelWeightMatrix
//===----------------------------------------------------------------------===//

LogicalResult importMelWeightMatrix(Node &n) {
  if (failed(expectInputs(n, 5)))
    return failure();
  FailureOr<Expr> bins = readSize(n, 0), length = readSize(n, 1);
  FailureOr<DType> dtype = readOutputType(n);
  if (failed(bins) || failed(length) || failed(dtype))
    return failure();
  OpBuilder &b = n.builder();
  SmallVector<Num> scalars; // rate, lower and upper edge
  for (size_t i : {2, 3, 4}) {
    FailureOr<Tensor> scalar = n.reshape(n.input(i), {});
    if (failed(scalar))
      return failure();
    scalars.push_back(convert(load(b, n.loc(), n.value(*scalar), scalar->dtype, {}), DType::F64));
  }
  SmallVector<Expr, 2> shape{n.symbols().floorDiv(*length, 2) + Expr(1), *bins};
  Value size = n.symbols().materialize(b, n.loc(), *length), count = n.symbols().materialize(b, n.loc(), *bins);
  Value result = n.generate(*dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto mel = [](const Num &hertz) { return 2595 / std::log(10.0) * log1p(hertz / 700.0); };
    Num low = mel(scalars[1]), width = (mel(scalars[2]) - low) / (fromIndex(b, loc, DType::F64, count) + 2.0);
    Num dft = fromIndex(b, loc, DType::F64, size), row = fromIndex(b, loc, DType::F64, at[0]);
    Num band = fromIndex(b, loc, DType::F64, at[1]);
    auto edge = [&](double k) {
      Num hertz = 700.0 * expm1((low + (band + k) * width) * (std::log(10.0) / 2595));
      return floor((dft + 1.0) * hertz / scalars[0]);
    };
    Num left = edge(0), center = edge(1), right = edge(2), zero = row.constant(0), one = row.constant(1);
    Num rising = select(center == left, select(row == center, one, zero),
                        select((row >= left) & (row <= center), (row - left) / (center - left), zero));
    Num falls = (row >= center) & (row < right);
    return convert(select(falls, (right - row) / (right - center), rising), *dtype).value();
  });
  n.setOutput(0, result, *dtype, shape);
  return success();
}

} // namespace

void registerSignalOps(OpRegistry &registry) {
  for (const char *name : {"HannWindow", "HammingWindow", "BlackmanWindow"})
    registry.add(name, {17}, importWindow);
  registry.add("DFT", {17, 20}, importDFT);
  registry.add("STFT", {17}, importSTFT);
  registry.add("MelWeightMatrix", {17}, importMelWeightMatrix);
}

} // namespace attn::onnx
