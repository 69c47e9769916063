#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Taps.h"
#include "frontends/onnx/ops/Window.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

// DeformConv: the image read at places that the offsets move, and a contraction with the filters.

using namespace mlir;

namespace attn::onnx {
namespace {

constexpr size_t X = 0, W = 1, Offset = 2, Bias = 3, Mask = 4;

struct Deformed {
  Window window;
  int64_t groups = 1, offsetGroups = 1;
  Expr channels, filters; // of one group
  Expr area;              // places of the window
};

FailureOr<Deformed> readDeformed(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, X)))
    return failure();
  for (size_t i : {W, Offset, Bias, Mask})
    if (n.hasInput(i) && failed(expectSameDType(n, X, i)))
      return failure();
  const Tensor &x = n.input(X), &w = n.input(W), &offset = n.input(Offset);
  int64_t rank = x.rank();
  if (rank < 3 || w.rank() != rank || offset.rank() != rank || (n.hasInput(Mask) && n.input(Mask).rank() != rank))
    return n.error() << "expects X, W, offset and mask of one rank of at least 3, has ranks " << rank << ", "
                     << w.rank() << " and " << offset.rank();
  Deformed c;
  c.groups = n.intAttr("group", 1), c.offsetGroups = n.intAttr("offset_group", 1);
  if (c.groups < 1 || c.offsetGroups < 1)
    return n.error() << "expects group and offset_group of at least 1, has " << c.groups << " and " << c.offsetGroups;
  Symbols &s = n.symbols();
  c.channels = w.shape[1];
  c.filters = s.floorDiv(w.shape[0], c.groups);
  if (failed(n.requireEqual(c.channels * Expr(c.groups), x.shape[1], "W covers {0} of {1} channels")) ||
      failed(n.requireEqual(c.filters * Expr(c.groups), w.shape[0], "groups cover {0} of {1} filters")) ||
      failed(n.requireEqual(s.floorDiv(x.shape[1], c.offsetGroups) * Expr(c.offsetGroups), x.shape[1],
                            "offset groups cover {0} of {1} channels")))
    return failure();
  FailureOr<Window> window = readWindow(n, x, ArrayRef(w.shape).drop_front(2));
  if (failed(window))
    return failure();
  c.window = *window;
  c.area = 1;
  for (const Expr &size : c.window.kernel)
    c.area = c.area * size;
  return c;
}

LogicalResult checkOffsets(Node &n, const Deformed &c) {
  const Tensor &x = n.input(X);
  for (size_t i : {Offset, Mask}) {
    if (!n.hasInput(i))
      continue;
    const Tensor &t = n.input(i);
    Expr channels = c.area * Expr(c.offsetGroups) * Expr(i == Offset ? int64_t(c.window.rank()) : 1);
    if (failed(n.requireEqual(t.shape[0], x.shape[0], "offset or mask have batch {0}, X has {1}")) ||
        failed(n.requireEqual(t.shape[1], channels, "offset or mask have {0} channels, expected {1}")))
      return failure();
    for (auto [own, size] : llvm::zip_equal(ArrayRef(t.shape).drop_front(2), c.window.output))
      if (failed(n.requireEqual(own, size, "offset or mask have size {0} where the result has {1}")))
        return failure();
  }
  for (const Expr &size : ArrayRef(x.shape).drop_front(2))
    if (failed(n.requireAtMost(1, size, "samples a dimension of size {1}")))
      return failure();
  return success();
}

/// What each place of the window sees: [N, group, channel, place in the window, position...].
Tensor sampled(Node &n, const Deformed &c) {
  const Tensor &x = n.input(X);
  size_t r = c.window.rank();
  Tensor out;
  out.dtype = computeDType(x.dtype);
  out.shape.append({x.shape[0], Expr(c.groups), c.channels, c.area});
  llvm::append_range(out.shape, c.window.output);
  Value image = n.value(x), offsets = n.value(Offset), mask = n.hasInput(Mask) ? n.value(Mask) : Value();
  SmallVector<Value> lengths = sizeValues(n, ArrayRef(x.shape).drop_front(2)), kernel = sizeValues(n, c.window.kernel),
                     before = sizeValues(n, c.window.padBegin);
  Value perGroup = n.symbols().materialize(n.builder(), n.loc(), c.channels);
  Value perOffset = n.symbols().materialize(n.builder(), n.loc(), n.symbols().floorDiv(x.shape[1], c.offsetGroups));
  Value area = n.symbols().materialize(n.builder(), n.loc(), c.area);
  out.value = n.generate(out.dtype, out.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto integer = [&](Value v) { return toInteger(b, loc, v); };
    Num channel = integer(at[1]) * integer(perGroup) + integer(at[2]);
    Num place = channel / integer(perOffset) * integer(area) + integer(at[3]), rest = integer(at[3]);
    auto read = [&](Value tensor, const Num &row) {
      SmallVector<Value> from{at[0], toIndex(row)};
      llvm::append_range(from, at.drop_front(4));
      return convert(load(b, loc, tensor, x.dtype, from), out.dtype);
    };
    SmallVector<SmallVector<Tap, 4>, 3> taps(r);
    for (size_t d = r; d-- > 0;) {
      Num size = integer(kernel[d]), k = rest - rest / size * size;
      rest = rest / size;
      Num start = integer(at[4 + d]) * k.constant(c.window.strides[d]) - integer(before[d]);
      Num moved = read(offsets, place * k.constant(int64_t(r)) + k.constant(int64_t(d)));
      taps[d] =
          linearTaps(convert(start + k * k.constant(c.window.dilations[d]), out.dtype) + moved, integer(lengths[d]));
    }
    Num value = interpolate(image, x.dtype, {at[0], toIndex(channel)}, taps);
    return (mask ? value * read(mask, place) : value).value();
  });
  return out;
}

LogicalResult importDeformConv(Node &n) {
  FailureOr<Deformed> c = readDeformed(n);
  if (failed(c) || failed(checkOffsets(n, *c)))
    return failure();
  const Tensor &w = n.input(W);
  Tensor columns = sampled(n, *c);
  FailureOr<Tensor> filters = n.reshape(n.cast(w, columns.dtype), {Expr(c->groups), c->filters, c->channels, c->area});
  if (failed(filters))
    return failure();
  constexpr Label batch = 0, group = 1, channel = 2, place = 3, filter = 4, position = 5;
  SmallVector<Label> read{batch, group, channel, place}, made{batch, group, filter};
  for (size_t d = 0; d < c->window.rank(); ++d) {
    read.push_back(position + d);
    made.push_back(position + d);
  }
  FailureOr<Tensor> y =
      contractLabels(n, columns.dtype, {columns, read}, {*filters, {group, filter, channel, place}}, made);
  SmallVector<Expr, 4> shape{n.input(X).shape[0], w.shape[0]};
  llvm::append_range(shape, c->window.output);
  if (succeeded(y))
    y = n.reshape(*y, shape);
  if (failed(y))
    return failure();
  if (!n.hasInput(Bias)) {
    n.setOutput(0, n.cast(*y, w.dtype));
    return success();
  }
  FailureOr<Tensor> bias = uprightBias(n, n.input(Bias), w.shape[0], y->rank());
  if (failed(bias))
    return failure();
  return setFormula(n, w.dtype, {*y, *bias}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
}

} // namespace

void registerDeformConvOps(OpRegistry &registry) { registry.add("DeformConv", {19, 22}, importDeformConv); }

} // namespace attn::onnx
