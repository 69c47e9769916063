#include "frontends/onnx/ops/Resizing.h"

#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

// Each output is a weighted sum of a few inputs, so-called taps, along each dimension. Which inputs and weights these
// are is a table, constant where sizes are. A filter that widens as the output shrinks (antialias) has more taps: a
// product with a matrix of weights [output, input].

using namespace mlir;

namespace attn::onnx {
namespace {

// The formulas below are of doubles, at import, and of numbers in the run.
double select(bool condition, double a, double b) { return condition ? a : b; }
double atLeast(double x, double low) { return std::max(x, low); }
double floor(double x) { return std::floor(x); }
double ceil(double x) { return std::ceil(x); }

/// Where output `o` stands in the input, but for Crop.
template <typename T> T placeOf(Place place, const T &o, const T &scale, const T &input, const T &output) {
  T exact = scale * input, zero = o - o;
  switch (place) {
  case Place::HalfPixel:
    return (o + 0.5) / scale - 0.5;
  case Place::TfHalfPixelNearest:
    return (o + 0.5) / scale;
  case Place::PytorchHalfPixel:
    return select(exact == 1.0, zero - 0.5, (o + 0.5) / scale - 0.5);
  case Place::HalfPixelSymmetric:
    return 0.5 * input * (1.0 - output / exact) + (o + 0.5) / scale - 0.5;
  case Place::AlignCorners:
    return select(exact == 1.0, zero, o * (input - 1.0) / (exact - 1.0));
  case Place::Asymmetric:
  case Place::Crop:
    return o / scale;
  }
  llvm_unreachable("a place");
}

template <typename T> T nearestOf(Nearest how, const T &x, const T &scale) {
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

/// The filter at a distance of `t` inputs.
template <typename T> T filterAt(const Resizing &r, const T &t) {
  T x = atLeast(t, 0.0 - t), zero = t - t;
  if (r.mode == "linear")
    return atLeast(1.0 - x, zero);
  double a = r.cubic;
  T near = ((a + 2) * x - (a + 3)) * x * x + 1.0, far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return select(x <= 1.0, near, select(x < 2.0, far, zero));
}

/// The first tap of a place, and how many there are.
int64_t countTaps(const Resizing &r) { return r.mode == "nearest" ? 1 : r.mode == "linear" ? 2 : 4; }
template <typename T> T firstTap(const Resizing &r, const T &place, const T &scale) {
  if (r.mode == "nearest")
    return nearestOf(r.nearest, place, scale);
  return floor(place) - (r.mode == "linear" ? 0.0 : 1.0);
}

/// Where output `o` of a crop stands in the input.
Num placeInCrop(const Resizing &r, size_t entry, const Num &o, const Num &input) {
  OpBuilder &b = o.builder();
  auto bound = [&](size_t at) {
    Value index = arith::ConstantIndexOp::create(b, o.location(), at);
    return convert(load(b, o.location(), r.roi, r.roiType, index), DType::F64);
  };
  size_t position = llvm::find(r.axes, r.dims[entry].dim) - r.axes.begin();
  Num begin = bound(position), end = bound(position + r.axes.size()), range = (end - begin) * (input - 1.0);
  Num exact = r.dims[entry].scale * input;
  return begin * (input - 1.0) + select(exact == 1.0, 0.5 * range, o * range / (exact - 1.0));
}

/// An output of a dimension, as the run has it.
struct Output {
  Num o, place, input; ///< number, place in the input, length of the input: f64
  Num stays;           ///< whether the dimension turns out to stay as it is
};

Output outputAt(const Resizing &r, size_t entry, const Num &o, const Num &input, const Num &outputs) {
  if (r.place == Place::Crop)
    return {o, placeInCrop(r, entry, o, input), input, o != o};
  Num scale = r.dims[entry].scale, stays = (scale == 1.0) & (input == outputs);
  return {o, select(stays, o, placeOf<Num>(r.place, o, scale, input, outputs)), input, stays};
}

/// Of one dimension, tensors [..., size, ...] of rank of the input: row t of each output, its weight (but for the
/// nearest), and whether the output lies outside of the input (Crop alone).
struct TapTables {
  SmallVector<Tensor, 4> rows, weights;
  std::optional<Tensor> beyond;
};

class TapReader {
public:
  TapReader(Node &n, const Resizing &r, size_t entry, const Tensor &x)
      : n(n), r(r), entry(entry), dim(r.dims[entry].dim), input(x.shape[dim]), shape(x.rank(), Expr(1)),
        dtype(x.dtype == DType::F64 ? DType::F64 : DType::F32) {
    shape[dim] = r.dims[entry].size;
  }

  TapTables read() {
    FloatAttr scale;
    std::optional<int64_t> inputs = input.constant(), outputs = shape[dim].constant();
    bool isKnown = r.place != Place::Crop && inputs && outputs && *outputs <= kMostKnown &&
                   matchPattern(r.dims[entry].scale.value(), m_Constant(&scale));
    for (int64_t t = 0; t != countTaps(r); ++t)
      if (isKnown)
        addKnown(t, static_cast<double>(*inputs), static_cast<double>(*outputs), scale.getValueAsDouble());
      else
        addComputed(t);
    if (r.place == Place::Crop)
      tables.beyond =
          compute(DType::Bool, [&](const Output &at) { return (at.place < 0.0) | (at.place > at.input - 1.0); });
    return std::move(tables);
  }

private:
  static constexpr int64_t kMostKnown = 1 << 16;

  void addKnown(int64_t tap, double inputs, double outputs, double scale) {
    std::vector<int64_t> rows;
    std::vector<double> weights;
    for (double o = 0; o < outputs; ++o) {
      double place = placeOf<double>(r.place, o, scale, inputs, outputs), first = firstTap(r, place, scale);
      double at = first + static_cast<double>(tap);
      rows.push_back(!(at > 0) ? 0 : static_cast<int64_t>(std::min(at, inputs - 1)));
      double all = 0, own = 0;
      for (int64_t t = 0; t != countTaps(r); ++t) {
        double other = first + static_cast<double>(t), weight = filterAt(r, other - place);
        if (r.excludeOutside && (other < 0 || other > inputs - 1))
          weight = 0;
        all += weight;
        own = t == tap ? weight : own;
      }
      weights.push_back(own / all);
    }
    tables.rows.push_back(constant(DType::I64, rows));
    if (r.mode == "nearest")
      return;
    if (dtype == DType::F64)
      tables.weights.push_back(constant(dtype, weights));
    else
      tables.weights.push_back(constant(dtype, std::vector<float>(weights.begin(), weights.end())));
  }

  template <typename T> Tensor constant(DType of, const std::vector<T> &values) {
    SmallVector<int64_t> sizes(shape.size(), 1);
    sizes[dim] = static_cast<int64_t>(values.size());
    return n.constantTensor(of, sizes, {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T)});
  }

  /// Where the dimension stays, each output is its own element in equal parts: those beside it take no part, which may
  /// be no finite numbers.
  void addComputed(int64_t tap) {
    tables.rows.push_back(compute(DType::I64, [&](const Output &at) {
      Num first = firstTap(r, at.place, r.dims[entry].scale),
          row = select(at.stays, at.o, first + static_cast<double>(tap));
      Num last = convert(at.input - 1.0, DType::I64);
      return maximum(clampedInteger(row, last.constant(0), last), last.constant(0));
    }));
    if (r.mode == "nearest")
      return;
    tables.weights.push_back(compute(dtype, [&](const Output &at) {
      Num first = firstTap(r, at.place, r.dims[entry].scale), zero = at.place.constant(0);
      Num all = zero, own = zero;
      for (int64_t t = 0; t != countTaps(r); ++t) {
        Num other = first + static_cast<double>(t), weight = filterAt(r, other - at.place);
        if (r.excludeOutside)
          weight = select((other < 0.0) | (other > at.input - 1.0), zero, weight);
        all = all + weight;
        own = t == tap ? weight : own;
      }
      return convert(select(at.stays, zero + 1.0 / static_cast<double>(countTaps(r)), own / all), dtype);
    }));
  }

  Tensor compute(DType of, llvm::function_ref<Num(const Output &)> body) {
    Value inputs = n.symbols().materialize(n.builder(), n.loc(), input);
    Value outputs = n.symbols().materialize(n.builder(), n.loc(), shape[dim]);
    Tensor table;
    table.dtype = of;
    table.shape.assign(shape.begin(), shape.end());
    DType stored = of == DType::Bool ? DType::U8 : of;
    table.value = n.generate(stored, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
      Num length = fromIndex(b, loc, DType::F64, inputs), o = fromIndex(b, loc, DType::F64, at[dim]);
      return convert(body(outputAt(r, entry, o, length, fromIndex(b, loc, DType::F64, outputs))), stored).value();
    });
    return table;
  }

  Node &n;
  const Resizing &r;
  size_t entry;
  int64_t dim;
  Expr input;
  SmallVector<Expr, 4> shape;
  DType dtype;
  TapTables tables;
};

/// `x`, of which each element along the dimension is a sum of taps.
Tensor tapped(Node &n, const Resizing &r, size_t entry, const Tensor &x) {
  const Resized &d = r.dims[entry];
  TapTables tables = TapReader(n, r, entry, x).read();
  Value source = n.value(x);
  size_t count = tables.rows.size();
  SmallVector<Tensor, 9> operands(tables.rows.begin(), tables.rows.end());
  llvm::append_range(operands, tables.weights);
  if (tables.beyond)
    operands.push_back(*tables.beyond);
  Tensor y;
  y.dtype = x.dtype;
  y.shape.assign(x.shape.begin(), x.shape.end());
  y.shape[d.dim] = d.size;
  y.value = n.elementwise(x.dtype, y.shape, operands, [&](OpBuilder &b, Location loc, ValueRange given) -> Value {
    SmallVector<Value> at;
    for (int64_t k = 0; k != x.rank(); ++k)
      at.push_back(linalg::IndexOp::create(b, loc, k));
    auto element = [&](size_t tap) {
      at[d.dim] = toIndex(Num(b, loc, DType::I64, given[tap]));
      return load(b, loc, source, x.dtype, at);
    };
    Num sum = element(0);
    for (size_t tap = 0; tap != tables.weights.size(); ++tap) {
      Num term = element(tap) * Num(b, loc, x.dtype, given[count + tap]);
      sum = tap ? sum + term : term;
    }
    if (tables.beyond)
      sum = select(Num(b, loc, DType::Bool, given.back()), sum.constant(r.extrapolation), sum);
    return sum.value();
  });
  return y;
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
    Num place = outputAt(r, entry, o, length, fromIndex(b, loc, DType::F64, outputs)).place;
    Num stretch = atMost(d.scale, d.scale.constant(1)); // the filter widens as the output shrinks
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

} // namespace

FailureOr<Tensor> resized(Node &n, const Resizing &r, size_t entry, const Tensor &x) {
  if (!r.antialias)
    return tapped(n, r, entry, x);
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
  return formula(n, y->dtype, {*y, *TapReader(n, r, entry, x).read().beyond},
                 [&](ArrayRef<Num> v) { return select(v[1], v[0].constant(r.extrapolation), v[0]); });
}

} // namespace attn::onnx
