#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Window.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// Conv as a matrix product of patches and filters: [N, positions, C * window]
// times [C * window, filters]. Patches that tile the input are a reshape and a
// transpose of it; others are gathered. Depthwise convolutions, where the
// matrices would be slivers, are computed directly.

using namespace mlir;

namespace attn::onnx {
namespace {

/// A Conv with its shapes read and checked: x [N, G*C, spatial], w [G*M, C, window].
struct Convolution {
  Tensor x, w;
  int64_t groups;
  Expr channels, filters; // of one group
  Window window;
  size_t rank() const { return window.rank(); }
  /// Whether patches have their channels last: then they are copied in rows. Of few, the window has longer ones; in
  /// groups, three dimensions of places and three of windows leave no dimension for them.
  bool endsWithChannels() const { return channels.constant().value_or(0) >= 8 && (groups == 1 || rank() < 3); }
};

FailureOr<Convolution> readConvolution(Node &n, const Tensor &x, const Tensor &w) {
  Convolution c{x, w, n.intAttr("group", 1), {}, {}, {}};
  if (c.x.rank() < 3 || c.w.rank() != c.x.rank())
    return n.error() << "expects X and W of one rank of at least 3, has ranks " << c.x.rank() << " and " << c.w.rank();
  if (c.groups < 1)
    return n.error() << "expects group of at least 1, has " << c.groups;
  c.channels = c.w.shape[1];
  c.filters = n.symbols().floorDiv(c.w.shape[0], c.groups);
  if (failed(n.requireEqual(c.x.shape[1], c.channels * Expr(c.groups), "X has {0} channels, W and group say {1}")) ||
      failed(n.requireEqual(c.w.shape[0], c.filters * Expr(c.groups), "groups cover {1} of {0} filters")))
    return failure();
  SmallVector<Expr, 4> kernel(c.w.shape.begin() + 2, c.w.shape.end());
  if (std::optional<SmallVector<int64_t>> given = n.intsAttr("kernel_shape")) {
    if (given->size() != kernel.size())
      return n.error() << "expects kernel_shape of " << kernel.size() << " numbers, has " << given->size();
    for (auto [d, size] : llvm::enumerate(*given))
      if (failed(n.requireEqual(kernel[d], size, "W has a window of {0}, kernel_shape says {1}")))
        return failure();
  }
  FailureOr<Window> window = readWindow(n, c.x, kernel);
  if (failed(window))
    return failure();
  c.window = *window;
  return c;
}

/// x without what is left of the last stride.
Tensor cut(Node &n, const Convolution &c) {
  Tensor x = c.x;
  OpBuilder &b = n.builder();
  for (size_t d = 0; d < c.rank(); ++d)
    x.shape[d + 2] = c.window.output[d] * c.window.kernel[d];
  if (x.shape == c.x.shape)
    return x;
  SmallVector<OpFoldResult> offsets(x.rank(), b.getIndexAttr(0)), strides(x.rank(), b.getIndexAttr(1)), sizes;
  for (const Expr &size : x.shape)
    sizes.push_back(n.symbols().size(b, n.loc(), size));
  Value v = tensor::ExtractSliceOp::create(b, n.loc(), n.type(x.dtype, x.shape), n.value(c.x), offsets, sizes, strides);
  x.elements.reset();
  x.weight.clear();
  x.value = v;
  return x;
}

/// Patches that tile the input, [N, spatial', G * C, window] or [N, spatial', G, window, C] (without G where it is 1):
/// a view of the input transposed.
FailureOr<Tensor> tiledPatches(Node &n, const Convolution &c) {
  bool splits = c.endsWithChannels() && c.groups > 1;
  SmallVector<Expr, 4> split{c.x.shape[0], c.x.shape[1]};
  if (splits)
    split = {c.x.shape[0], Expr(c.groups), c.channels};
  auto channels = static_cast<int64_t>(split.size()) - 1;
  SmallVector<int64_t> permutation{0}, window;
  for (size_t d = 0; d < c.rank(); ++d) {
    permutation.push_back(static_cast<int64_t>(split.size()));
    window.push_back(static_cast<int64_t>(split.size()) + 1);
    split.append({c.window.output[d], c.window.kernel[d]});
  }
  if (splits)
    permutation.push_back(1);
  if (!c.endsWithChannels())
    permutation.push_back(channels);
  permutation.append(window);
  if (c.endsWithChannels())
    permutation.push_back(channels);
  FailureOr<Tensor> view = n.reshape(cut(n, c), split);
  return failed(view) ? view : n.transpose(*view, permutation);
}

/// Patches copied from the padded input, [N, spatial', G * C, window] or [N, spatial', G, window, C].
FailureOr<Tensor> gatheredPatches(Node &n, const Convolution &c) {
  OpBuilder &b = n.builder();
  Num zero = constantNum(b, n.loc(), c.x.dtype, 0.0);
  size_t r = c.rank();
  FailureOr<Tensor> x = c.endsWithChannels() ? withChannelsLast(n, c.x) : c.x;
  if (failed(x))
    return failure();
  x = padded(n, *x, c.window, zero, c.endsWithChannels() ? 1 : 2);
  Tensor out;
  out.dtype = c.x.dtype;
  out.shape.push_back(c.x.shape[0]);
  out.shape.append(c.window.output.begin(), c.window.output.end());
  out.shape.push_back(c.endsWithChannels() ? Expr(c.groups) : x->shape[1]);
  out.shape.append(c.window.kernel.begin(), c.window.kernel.end());
  SmallVector<AffineExpr> source{b.getAffineDimExpr(0)};
  for (size_t d = 0; d < r; ++d)
    source.push_back(windowIndex(b.getContext(), c.window, d, 1 + d, 2 + r + d));
  if (c.endsWithChannels()) {
    SmallVector<Expr, 4> shape(ArrayRef(x->shape).drop_back());
    shape.append({Expr(c.groups), c.channels});
    x = n.reshape(*x, shape);
    if (failed(x))
      return failure();
    out.shape.push_back(c.channels);
    source.append({b.getAffineDimExpr(1 + r), b.getAffineDimExpr(2 + 2 * r)});
  } else {
    source.insert(source.begin() + 1, b.getAffineDimExpr(1 + r));
  }
  AffineMap maps[] = {AffineMap::get(out.rank(), 0, source, b.getContext()), b.getMultiDimIdentityMap(out.rank())};
  SmallVector<utils::IteratorType> iterators(out.rank(), utils::IteratorType::parallel);
  Value init = n.empty(out.dtype, out.shape);
  auto copy = [](OpBuilder &b, Location loc, ValueRange v) { linalg::YieldOp::create(b, loc, v[0]); };
  out.value =
      linalg::GenericOp::create(b, n.loc(), init.getType(), n.value(*x), init, maps, iterators, copy).getResult(0);
  return out;
}

/// The window's elements of all channels, as patches have them.
FailureOr<Tensor> patches(Node &n, const Convolution &c) {
  if (llvm::all_of(c.window.kernel, [](const Expr &size) { return size.is(1); }) && c.window.tiles())
    return withChannelsLast(n, c.x);
  return c.window.tiles() ? tiledPatches(n, c) : gatheredPatches(n, c);
}

/// [N, positions, G, M] (or without G) from patches and filters.
FailureOr<Tensor> contractPatches(Node &n, const Convolution &c, const Tensor &patches) {
  constexpr Label kBatch = 0, kPosition = 1, kGroup = 2, kFilter = 3, kInner = 4;
  Expr inner = c.channels * product(c.window.kernel), positions = product(c.window.output);
  SmallVector<Expr, 4> left{c.x.shape[0], positions}, right;
  LabelledTensor a{{}, {kBatch, kPosition}}, b{{}, {}};
  SmallVector<Label> out{kBatch, kPosition};
  if (c.groups > 1) {
    left.push_back(c.groups);
    right.push_back(c.groups);
    a.labels.push_back(kGroup);
    b.labels.push_back(kGroup);
    out.push_back(kGroup);
  }
  left.push_back(inner);
  a.labels.push_back(kInner);
  right.append({c.filters, inner});
  b.labels.append({kFilter, kInner});
  out.push_back(kFilter);
  Tensor w = c.endsWithChannels() ? channelsLast(n, c.w) : c.w;
  FailureOr<Tensor> rows = n.reshape(patches, left), filters = n.reshape(w, right);
  if (failed(rows) || failed(filters))
    return failure();
  a.tensor = *rows;
  b.tensor = *filters;
  return contractLabels(n, c.x.dtype, a, b, out);
}

FailureOr<Tensor> asMatrixProduct(Node &n, const Convolution &c, FinishSums finish) {
  FailureOr<Tensor> rows = patches(n, c);
  if (failed(rows))
    return failure();
  FailureOr<Tensor> y = contractPatches(n, c, *rows);
  if (succeeded(y) && c.groups > 1)
    y = n.reshape(*y, {c.x.shape[0], product(c.window.output), c.w.shape[0]});
  if (succeeded(y)) // in rows, as the kernel of a product has them
    y = finish(*y, 2);
  if (failed(y))
    return failure();
  SmallVector<Expr, 4> shape{c.x.shape[0], c.w.shape[0]};
  shape.append(c.window.output.begin(), c.window.output.end());
  return n.reshape(n.transpose(*y, {0, 2, 1}), shape);
}

/// The filters with the window in front, [window, G], and behind it M and C where they are not 1: channels that stand
/// last have theirs side by side.
FailureOr<Tensor> windowFirst(Node &n, const Convolution &c) {
  Expr window = product(c.window.kernel);
  FailureOr<Tensor> flat = n.reshape(c.w, {c.w.shape[0] * c.channels, window});
  if (failed(flat))
    return failure();
  SmallVector<Expr, 4> shape(c.window.kernel.begin(), c.window.kernel.end());
  shape.push_back(c.groups);
  for (const Expr &size : {c.filters, c.channels})
    if (!size.is(1))
      shape.push_back(size);
  return n.reshape(n.transpose(*flat, {1, 0}), shape);
}

/// One loop nest over [N, G, M, spatial', C, window], without M and C where they are 1.
FailureOr<Tensor> direct(Node &n, const Convolution &c) {
  OpBuilder &b = n.builder();
  MLIRContext *context = b.getContext();
  size_t r = c.rank();
  bool hasFilters = !c.filters.is(1), hasChannels = !c.channels.is(1);
  FailureOr<Tensor> x = padded(n, c.x, c.window, constantNum(b, n.loc(), c.x.dtype, 0.0));
  SmallVector<Expr, 4> xShape{x->shape[0], Expr(c.groups), c.channels}, shape{x->shape[0], Expr(c.groups)};
  xShape.append(x->shape.begin() + 2, x->shape.end());
  if (hasChannels)
    x = n.reshape(*x, xShape);
  FailureOr<Tensor> filters = windowFirst(n, c);
  if (failed(x) || failed(filters))
    return failure();
  unsigned place = 2 + hasFilters, window = place + r + hasChannels, loops = window + r;
  auto dim = [&](unsigned d) { return getAffineDimExpr(d, context); };
  SmallVector<AffineExpr> xMap{dim(0), dim(1)}, wMap, yMap{dim(0), dim(1)};
  if (hasChannels)
    xMap.push_back(dim(place + r));
  if (hasFilters) {
    yMap.push_back(dim(2));
    shape.push_back(c.filters);
  }
  for (size_t d = 0; d < r; ++d) {
    xMap.push_back(windowIndex(context, c.window, d, place + d, window + d));
    wMap.push_back(dim(window + d));
    yMap.push_back(dim(place + d));
    shape.push_back(c.window.output[d]);
  }
  wMap.push_back(dim(1));
  if (hasFilters)
    wMap.push_back(dim(2));
  if (hasChannels)
    wMap.push_back(dim(place + r));
  SmallVector<utils::IteratorType> iterators(loops, utils::IteratorType::parallel);
  std::fill(iterators.begin() + place + r, iterators.end(), utils::IteratorType::reduction);
  DType sum = computeDType(c.x.dtype);
  Value init = n.filled(sum, shape, constantNum(b, n.loc(), sum, 0.0).value());
  AffineMap maps[] = {AffineMap::get(loops, 0, xMap, context), AffineMap::get(loops, 0, wMap, context),
                      AffineMap::get(loops, 0, yMap, context)};
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element = convert(Num(b, loc, c.x.dtype, v[0]), sum), weight = convert(Num(b, loc, c.x.dtype, v[1]), sum);
    linalg::YieldOp::create(b, loc, (Num(b, loc, sum, v[2]) + element * weight).value());
  };
  SmallVector<Value> operands{n.value(*x), n.value(*filters)};
  Tensor y;
  y.dtype = sum;
  y.shape.assign(shape.begin(), shape.end());
  y.value = linalg::GenericOp::create(b, n.loc(), init.getType(), operands, init, maps, iterators, body).getResult(0);
  SmallVector<Expr, 4> result{c.x.shape[0], c.w.shape[0]};
  result.append(c.window.output.begin(), c.window.output.end());
  return n.reshape(n.cast(y, c.x.dtype), result);
}

} // namespace

FailureOr<Tensor> convolve(Node &n, const Tensor &x, const Tensor &w, FinishSums finish) {
  FailureOr<Convolution> c = readConvolution(n, x, w);
  if (failed(c))
    return failure();
  bool depthwise = c->groups > 1 && c->channels.constant().value_or(2) < 2;
  if (!depthwise)
    return asMatrixProduct(n, *c, finish);
  FailureOr<Tensor> y = direct(n, *c);
  return failed(y) ? y : finish(*y, 1);
}

FailureOr<Tensor> uprightBias(Node &n, const Tensor &bias, const Expr &channels, int64_t rank, int64_t dim) {
  if (bias.rank() != 1)
    return n.error() << "expects a vector for the bias, has rank " << bias.rank();
  if (failed(n.requireEqual(bias.shape[0], channels, "the bias has {0} elements, W {1} filters")))
    return failure();
  SmallVector<Expr, 4> upright(rank - dim, Expr(1));
  upright[0] = bias.shape[0];
  return n.reshape(bias, upright);
}

LogicalResult expectConvolution(Node &n) {
  return failure(failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)) ||
                 (n.hasInput(2) && failed(expectSameDType(n, 0, 2))));
}

FailureOr<Tensor> convolution(Node &n, const Tensor &x, const Tensor &w) {
  return convolve(n, x, w, [&](const Tensor &sums, int64_t filters) -> FailureOr<Tensor> {
    if (!n.hasInput(2))
      return sums;
    FailureOr<Tensor> bias = uprightBias(n, n.input(2), w.shape[0], sums.rank(), filters);
    if (failed(bias))
      return failure();
    return formula(n, sums.dtype, {sums, *bias}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
  });
}

namespace {

LogicalResult importConv(Node &n) {
  if (failed(expectConvolution(n)))
    return failure();
  FailureOr<Tensor> y = convolution(n, n.input(0), n.input(1));
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerConvolutionOps(OpRegistry &registry) { registry.add("Conv", {1, 11, 22}, importConv); }

} // namespace attn::onnx
