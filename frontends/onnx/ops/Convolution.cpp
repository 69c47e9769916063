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

/// Patches that tile the input, [N, spatial', C, window] ([N, positions, C] for windows of one element): a view of the
/// input transposed. What is left of the last stride is cut off.
FailureOr<Tensor> tiledPatches(Node &n, const Convolution &c) {
  if (llvm::all_of(c.window.kernel, [](const Expr &size) { return size.is(1); })) {
    FailureOr<Tensor> flat = n.reshape(c.x, {c.x.shape[0], c.x.shape[1], product(c.window.output)});
    return failed(flat) ? flat : n.transpose(*flat, {0, 2, 1});
  }
  Tensor x = c.x;
  OpBuilder &b = n.builder();
  SmallVector<Expr, 4> cut(x.shape), split{x.shape[0], x.shape[1]};
  for (size_t d = 0; d < c.rank(); ++d) {
    cut[d + 2] = c.window.output[d] * c.window.kernel[d];
    split.push_back(c.window.output[d]);
    split.push_back(c.window.kernel[d]);
  }
  if (cut != x.shape) {
    SmallVector<OpFoldResult> offsets(x.rank(), b.getIndexAttr(0)), strides(x.rank(), b.getIndexAttr(1)), sizes;
    for (const Expr &size : cut)
      sizes.push_back(n.symbols().size(b, n.loc(), size));
    Value v = tensor::ExtractSliceOp::create(b, n.loc(), n.type(x.dtype, cut), n.value(x), offsets, sizes, strides);
    x.elements.reset();
    x.weight.clear();
    x.value = v;
    x.shape.assign(cut.begin(), cut.end());
  }
  FailureOr<Tensor> view = n.reshape(x, split);
  if (failed(view))
    return failure();
  SmallVector<int64_t> permutation{0};
  for (size_t d = 0; d < c.rank(); ++d)
    permutation.push_back(2 + 2 * d);
  permutation.push_back(1);
  for (size_t d = 0; d < c.rank(); ++d)
    permutation.push_back(3 + 2 * d);
  return n.transpose(*view, permutation);
}

/// Patches copied from the padded input, [N, spatial', G * C, window].
Tensor gatheredPatches(Node &n, const Convolution &c) {
  OpBuilder &b = n.builder();
  Tensor x = padded(n, c.x, c.window, constantNum(b, n.loc(), c.x.dtype, 0.0));
  size_t r = c.rank();
  Tensor out;
  out.dtype = x.dtype;
  out.shape.push_back(x.shape[0]);
  out.shape.append(c.window.output.begin(), c.window.output.end());
  out.shape.push_back(x.shape[1]);
  out.shape.append(c.window.kernel.begin(), c.window.kernel.end());
  SmallVector<AffineExpr> source{b.getAffineDimExpr(0), b.getAffineDimExpr(1 + r)};
  for (size_t d = 0; d < r; ++d)
    source.push_back(windowIndex(b.getContext(), c.window, d, 1 + d, 2 + r + d));
  AffineMap maps[] = {AffineMap::get(out.rank(), 0, source, b.getContext()), b.getMultiDimIdentityMap(out.rank())};
  SmallVector<utils::IteratorType> iterators(out.rank(), utils::IteratorType::parallel);
  Value init = n.empty(out.dtype, out.shape);
  auto copy = [](OpBuilder &b, Location loc, ValueRange v) { linalg::YieldOp::create(b, loc, v[0]); };
  out.value =
      linalg::GenericOp::create(b, n.loc(), init.getType(), n.value(x), init, maps, iterators, copy).getResult(0);
  return out;
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
  FailureOr<Tensor> rows = n.reshape(patches, left), filters = n.reshape(c.w, right);
  if (failed(rows) || failed(filters))
    return failure();
  a.tensor = *rows;
  b.tensor = *filters;
  return contractLabels(n, c.x.dtype, a, b, out);
}

FailureOr<Tensor> asMatrixProduct(Node &n, const Convolution &c, FinishSums finish) {
  FailureOr<Tensor> patches = failure();
  if (c.window.tiles())
    patches = tiledPatches(n, c);
  else
    patches = gatheredPatches(n, c);
  if (failed(patches))
    return failure();
  FailureOr<Tensor> y = contractPatches(n, c, *patches);
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

/// One loop nest over [N, G, M, spatial', C, window].
FailureOr<Tensor> direct(Node &n, const Convolution &c) {
  OpBuilder &b = n.builder();
  MLIRContext *context = b.getContext();
  size_t r = c.rank();
  Tensor x = padded(n, c.x, c.window, constantNum(b, n.loc(), c.x.dtype, 0.0));
  SmallVector<Expr, 4> xShape{x.shape[0], Expr(c.groups), c.channels}, wShape{Expr(c.groups), c.filters};
  xShape.append(x.shape.begin() + 2, x.shape.end());
  wShape.append(c.w.shape.begin() + 1, c.w.shape.end());
  FailureOr<Tensor> grouped = n.reshape(x, xShape), filters = n.reshape(c.w, wShape);
  if (failed(grouped) || failed(filters))
    return failure();
  unsigned loops = 4 + 2 * r;
  auto dim = [&](unsigned d) { return getAffineDimExpr(d, context); };
  SmallVector<AffineExpr> xMap{dim(0), dim(1), dim(3 + r)}, wMap{dim(1), dim(2), dim(3 + r)};
  SmallVector<AffineExpr> yMap{dim(0), dim(1), dim(2)};
  SmallVector<Expr, 4> shape{x.shape[0], Expr(c.groups), c.filters};
  for (size_t d = 0; d < r; ++d) {
    xMap.push_back(windowIndex(context, c.window, d, 3 + d, 4 + r + d));
    wMap.push_back(dim(4 + r + d));
    yMap.push_back(dim(3 + d));
    shape.push_back(c.window.output[d]);
  }
  SmallVector<utils::IteratorType> iterators(loops, utils::IteratorType::parallel);
  std::fill(iterators.begin() + 3 + r, iterators.end(), utils::IteratorType::reduction);
  DType sum = computeDType(x.dtype);
  Value init = n.filled(sum, shape, constantNum(b, n.loc(), sum, 0.0).value());
  AffineMap maps[] = {AffineMap::get(loops, 0, xMap, context), AffineMap::get(loops, 0, wMap, context),
                      AffineMap::get(loops, 0, yMap, context)};
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element = convert(Num(b, loc, x.dtype, v[0]), sum), weight = convert(Num(b, loc, x.dtype, v[1]), sum);
    linalg::YieldOp::create(b, loc, (Num(b, loc, sum, v[2]) + element * weight).value());
  };
  SmallVector<Value> operands{n.value(*grouped), n.value(*filters)};
  Tensor y;
  y.dtype = sum;
  y.shape.assign(shape.begin(), shape.end());
  y.value = linalg::GenericOp::create(b, n.loc(), init.getType(), operands, init, maps, iterators, body).getResult(0);
  SmallVector<Expr, 4> result{x.shape[0], c.w.shape[0]};
  result.append(c.window.output.begin(), c.window.output.end());
  return n.reshape(n.cast(y, x.dtype), result);
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
