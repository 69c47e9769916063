#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Window.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// ConvTranspose as a Conv: the input spread out by the strides, padded, and
// convolved with the filters turned round. Windows that lie side by side are
// a matrix product: one place of the input makes each.

using namespace mlir;

namespace attn::onnx {
namespace {

/// x [N, G*C, spatial], w [G*C, M, window], one entry a spatial dimension.
struct Transposed {
  Tensor x, w;
  int64_t groups = 1;
  Expr channels, filters; // of one group
  SmallVector<int64_t> strides, dilations, extra;
  SmallVector<Expr> kernel, padBegin, output;
  size_t rank() const { return kernel.size(); }
};

FailureOr<SmallVector<int64_t>> numbers(Node &n, StringRef name, size_t rank, int64_t fallback) {
  SmallVector<int64_t> values = n.intsAttr(name).value_or(SmallVector<int64_t>(rank, fallback));
  if (values.size() != rank)
    return n.error() << "expects " << rank << " " << name << ", has " << values.size();
  for (int64_t value : values)
    if (value < fallback || value > kMaxStep)
      return n.error() << "expects " << name << " in [" << fallback << ", " << kMaxStep << "], has " << value;
  return values;
}

/// Pads and output sizes, from pads, output_shape or auto_pad.
LogicalResult readSizes(Node &n, Transposed &c) {
  std::string autoPad = n.stringAttr("auto_pad", "NOTSET");
  bool same = autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER";
  std::optional<SmallVector<int64_t>> given = n.intsAttr("output_shape");
  size_t r = c.rank();
  // Exporters of old wrote batch and channels, too.
  if (given && given->size() == r + 2)
    given->erase(given->begin(), given->begin() + 2);
  if (given && given->size() != r)
    return n.error() << "expects output_shape of " << r << " numbers, has " << given->size();
  SmallVector<int64_t> pads(2 * r, 0);
  if (!same && autoPad != "VALID")
    pads = n.intsAttr("pads").value_or(pads);
  if (pads.size() != 2 * r)
    return n.error() << "expects " << 2 * r << " pads, has " << pads.size();
  Symbols &s = n.symbols();
  for (size_t d = 0; d < r; ++d) {
    if (std::abs(pads[d]) > (int64_t(1) << 31) || std::abs(pads[d + r]) > (int64_t(1) << 31))
      return n.error() << "expects pads below 2^31";
    Expr stride(c.strides[d]), extent = (c.kernel[d] - Expr(1)) * Expr(c.dilations[d]) + Expr(1);
    Expr whole = stride * (c.x.shape[d + 2] - Expr(1)) + Expr(c.extra[d]) + extent;
    c.padBegin.push_back(pads[d]);
    c.output.push_back(whole - Expr(pads[d]) - Expr(pads[d + r]));
    if (given || same) {
      c.output[d] = given ? Expr((*given)[d]) : c.x.shape[d + 2] * stride;
      Expr total = s.max(0, whole - c.output[d]), half = s.floorDiv(total, 2);
      c.padBegin[d] = autoPad == "SAME_UPPER" ? half : total - half;
    }
    if (failed(n.requireAtMost(0, c.output[d], "makes a dimension of size {1}")))
      return failure();
  }
  return success();
}

FailureOr<Transposed> readTransposed(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  Transposed c;
  c.x = n.input(0);
  c.w = n.input(1);
  c.groups = n.intAttr("group", 1);
  if (c.x.rank() < 3 || c.w.rank() != c.x.rank())
    return n.error() << "expects X and W of one rank of at least 3, has ranks " << c.x.rank() << " and " << c.w.rank();
  if (c.groups < 1)
    return n.error() << "expects group of at least 1, has " << c.groups;
  c.channels = n.symbols().floorDiv(c.x.shape[1], c.groups);
  c.filters = c.w.shape[1];
  if (failed(n.requireEqual(c.x.shape[1], c.w.shape[0], "X has {0} channels, W has {1}")) ||
      failed(n.requireEqual(c.channels * Expr(c.groups), c.x.shape[1], "groups cover {0} of {1} channels")))
    return failure();
  c.kernel.append(c.w.shape.begin() + 2, c.w.shape.end());
  if (std::optional<SmallVector<int64_t>> given = n.intsAttr("kernel_shape")) {
    if (given->size() != c.kernel.size())
      return n.error() << "expects kernel_shape of " << c.kernel.size() << " numbers, has " << given->size();
    for (auto [own, size] : llvm::zip_equal(c.kernel, *given))
      if (failed(n.requireEqual(own, size, "W has a window of {0}, kernel_shape says {1}")))
        return failure();
  }
  FailureOr<SmallVector<int64_t>> strides = numbers(n, "strides", c.rank(), 1);
  FailureOr<SmallVector<int64_t>> dilations = numbers(n, "dilations", c.rank(), 1);
  FailureOr<SmallVector<int64_t>> extra = numbers(n, "output_padding", c.rank(), 0);
  if (failed(strides) || failed(dilations) || failed(extra))
    return failure();
  c.strides = *strides;
  c.dilations = *dilations;
  c.extra = *extra;
  if (failed(readSizes(n, c)))
    return failure();
  return c;
}

/// x spread and padded so that output place o reads places o + k * dilation of
/// it: [N, G, C, spatial'].
Tensor spread(Node &n, const Transposed &c) {
  Tensor out;
  out.dtype = c.x.dtype;
  out.shape.append({c.x.shape[0], Expr(c.groups), c.channels});
  OpBuilder &b = n.builder();
  SmallVector<Value> shifts, sizes;
  for (size_t d = 0; d < c.rank(); ++d) {
    Expr reach = (c.kernel[d] - Expr(1)) * Expr(c.dilations[d]);
    out.shape.push_back(c.output[d] + reach);
    Expr shift = c.padBegin[d] - reach;
    shifts.push_back(n.symbols().materialize(b, n.loc(), shift));
    sizes.push_back(n.symbols().materialize(b, n.loc(), c.x.shape[d + 2]));
  }
  Value source = n.value(c.x), width = n.symbols().materialize(b, n.loc(), c.channels);
  out.value = n.generate(out.dtype, out.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto integer = [&](Value index) { return fromIndex(b, loc, DType::I64, index); };
    auto index = [&](const Num &x) -> Value { return arith::IndexCastOp::create(b, loc, b.getIndexType(), x.value()); };
    std::optional<Num> inside;
    SmallVector<Value> from{at[0], index(integer(at[1]) * integer(width) + integer(at[2]))};
    for (size_t d = 0; d < c.rank(); ++d) {
      Num place = integer(at[d + 3]) + integer(shifts[d]), zero = place.constant(0),
          stride = zero.constant(c.strides[d]);
      Num row = place / stride, size = integer(sizes[d]);
      Num hit = (place >= zero) & (row * stride == place) & (row < size);
      inside = inside ? *inside & hit : hit;
      from.push_back(index(select(hit, row, zero)));
    }
    // An empty input has no row 0 to read: then nothing is generated from it.
    Num element(b, loc, out.dtype, tensor::ExtractOp::create(b, loc, source, from));
    return select(*inside, element, element.constant(0)).value();
  });
  return out;
}

/// sum over C and the window of spread input times turned filter,
/// [N, G, M, output].
Tensor correlate(Node &n, const Transposed &c, const Tensor &x, const Tensor &w) {
  OpBuilder &b = n.builder();
  MLIRContext *context = b.getContext();
  size_t r = c.rank();
  unsigned loops = 4 + 2 * r; // N, G, M, output.., C, window..
  auto dim = [&](unsigned d) { return getAffineDimExpr(d, context); };
  SmallVector<AffineExpr> xMap{dim(0), dim(1), dim(3 + r)}, wMap{dim(1), dim(3 + r), dim(2)},
      yMap{dim(0), dim(1), dim(2)};
  Tensor y;
  y.dtype = computeDType(c.x.dtype);
  y.shape.append({c.x.shape[0], Expr(c.groups), c.filters});
  for (size_t d = 0; d < r; ++d) {
    xMap.push_back(dim(3 + d) + dim(4 + r + d) * c.dilations[d]);
    wMap.push_back(dim(4 + r + d));
    yMap.push_back(dim(3 + d));
    y.shape.push_back(c.output[d]);
  }
  SmallVector<utils::IteratorType> iterators(loops, utils::IteratorType::parallel);
  std::fill(iterators.begin() + 3 + r, iterators.end(), utils::IteratorType::reduction);
  Value init = n.filled(y.dtype, y.shape, constantNum(b, n.loc(), y.dtype, 0.0).value());
  AffineMap maps[] = {AffineMap::get(loops, 0, xMap, context), AffineMap::get(loops, 0, wMap, context),
                      AffineMap::get(loops, 0, yMap, context)};
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element = convert(Num(b, loc, x.dtype, v[0]), y.dtype), weight = convert(Num(b, loc, w.dtype, v[1]), y.dtype);
    linalg::YieldOp::create(b, loc, (Num(b, loc, y.dtype, v[2]) + element * weight).value());
  };
  SmallVector<Value> operands{n.value(x), n.value(w)};
  y.value = linalg::GenericOp::create(b, n.loc(), init.getType(), operands, init, maps, iterators, body).getResult(0);
  return y;
}

/// w as [G, C, M, window] with its window turned round.
FailureOr<Tensor> turned(Node &n, const Transposed &c) {
  SmallVector<Expr, 4> shape{Expr(c.groups), c.channels};
  shape.append(c.w.shape.begin() + 1, c.w.shape.end());
  FailureOr<Tensor> w = n.reshape(c.w, shape);
  if (failed(w))
    return failure();
  for (size_t d = 0; d < c.rank(); ++d)
    if (!c.kernel[d].is(1))
      w = n.slice(*w, d + 3, c.kernel[d] - Expr(1), c.kernel[d], -1);
  return w;
}

bool windowsTile(Node &n, const Transposed &c) {
  for (size_t d = 0; d < c.rank(); ++d)
    if (!c.kernel[d].is(c.strides[d]) || (c.dilations[d] != 1 && c.strides[d] != 1) || !c.padBegin[d].is(0) ||
        n.symbols().isEqual(c.output[d], c.x.shape[d + 2] * Expr(c.strides[d])) != true)
      return false;
  return c.groups == 1;
}

/// [N, places, C] times [C, window * M], and each window put where it belongs: [N, M, output].
FailureOr<Tensor> tileWindows(Node &n, const Transposed &c) {
  constexpr Label kBatch = 0, kPlace = 1, kInner = 2, kElement = 3;
  int64_t r = c.rank();
  ArrayRef<Expr> places = ArrayRef(c.x.shape).drop_front(2);
  FailureOr<Tensor> x = withChannelsLast(n, c.x);
  if (succeeded(x))
    x = n.reshape(*x, {c.x.shape[0], product(places), c.channels});
  FailureOr<Tensor> w = n.reshape(channelsLast(n, c.w), {c.channels, product(c.kernel) * c.filters});
  if (failed(x) || failed(w))
    return failure();
  FailureOr<Tensor> y = contractLabels(n, c.x.dtype, {*x, {kBatch, kPlace, kInner}}, {*w, {kInner, kElement}},
                                       {kBatch, kPlace, kElement});
  SmallVector<Expr, 4> split{c.x.shape[0]}, shape{c.x.shape[0], c.filters};
  split.append(places.begin(), places.end());
  split.append(c.kernel.begin(), c.kernel.end());
  split.push_back(c.filters);
  shape.append(c.output.begin(), c.output.end());
  SmallVector<int64_t> order{0};
  for (int64_t d = 1; d <= r; ++d)
    order.append({d, d + r});
  order.push_back(2 * r + 1);
  y = failed(y) ? y : n.reshape(*y, split);
  y = failed(y) ? y : n.reshape(n.transpose(*y, order), {c.x.shape[0], product(c.output), c.filters});
  return failed(y) ? y : n.reshape(n.transpose(*y, {0, 2, 1}), shape);
}

LogicalResult importConvTranspose(Node &n) {
  FailureOr<Transposed> c = readTransposed(n);
  if (failed(c))
    return failure();
  // A batch of none makes none.
  for (const Expr &size : ArrayRef(c->x.shape).drop_front())
    if (failed(n.requireAtMost(1, size, "X has a dimension of size {1}")))
      return failure();
  SmallVector<Expr, 4> shape{c->x.shape[0], c->filters * Expr(c->groups)};
  shape.append(c->output.begin(), c->output.end());
  FailureOr<Tensor> y = failure();
  if (windowsTile(n, *c)) {
    y = tileWindows(n, *c);
  } else {
    FailureOr<Tensor> w = turned(n, *c);
    if (failed(w))
      return failure();
    y = n.reshape(correlate(n, *c, spread(n, *c), *w), shape);
  }
  if (failed(y))
    return failure();
  if (!n.hasInput(2)) {
    n.setOutput(0, n.cast(*y, c->x.dtype));
    return success();
  }
  FailureOr<Tensor> bias = uprightBias(n, n.input(2), shape[1], y->rank());
  if (failed(bias))
    return failure();
  return setFormula(n, c->x.dtype, {*y, *bias}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
}

} // namespace

void registerConvTransposeOps(OpRegistry &registry) { registry.add("ConvTranspose", {1, 11, 22}, importConvTranspose); }

} // namespace attn::onnx
