#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Reduce.h"
#include "frontends/onnx/ops/Window.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;

namespace attn::onnx {
namespace {

/// `x` (already padded) combined over the window, in f32 for f16 and bf16.
Tensor pool(Node &n, Combine how, const Tensor &x, const Window &w) {
  OpBuilder &b = n.builder();
  MLIRContext *context = b.getContext();
  size_t r = w.rank();
  DType wide = computeDType(x.dtype);
  SmallVector<Expr, 4> shape{x.shape[0], x.shape[1]};
  shape.append(w.output.begin(), w.output.end());
  SmallVector<AffineExpr> source{b.getAffineDimExpr(0), b.getAffineDimExpr(1)}, offsets;
  for (size_t d = 0; d < r; ++d) {
    source.push_back(windowIndex(context, w, d, 2 + d, 2 + r + d));
    offsets.push_back(b.getAffineDimExpr(2 + r + d));
  }
  unsigned loops = 2 + 2 * r;
  // No operand has the window's size but this one, which nobody reads.
  Value extent = n.empty(x.dtype, w.kernel);
  AffineMap maps[] = {AffineMap::get(loops, 0, source, context), AffineMap::get(loops, 0, offsets, context),
                      AffineMap::getMultiDimIdentityMap(loops, context).getMajorSubMap(2 + r)};
  SmallVector<utils::IteratorType> iterators(loops, utils::IteratorType::parallel);
  std::fill(iterators.begin() + 2 + r, iterators.end(), utils::IteratorType::reduction);
  Num start = constantNum(b, n.loc(), wide, int64_t(0));
  Value init = n.filled(wide, shape, (how == Combine::Max ? start.lowest() : start).value());
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element = convert(Num(b, loc, x.dtype, v[0]), wide), so(b, loc, wide, v[2]);
    linalg::YieldOp::create(b, loc, (how == Combine::Max ? maximum(so, element) : so + element).value());
  };
  SmallVector<Value> operands{n.value(x), extent};
  Tensor y;
  y.dtype = wide;
  y.shape.assign(shape.begin(), shape.end());
  y.value = linalg::GenericOp::create(b, n.loc(), init.getType(), operands, init, maps, iterators, body).getResult(0);
  return y;
}

FailureOr<Window> readPooling(Node &n, const Tensor &x) {
  if (x.dtype == DType::Bool)
    return n.error() << "expects numbers, has bool";
  std::optional<SmallVector<int64_t>> kernel = n.intsAttr("kernel_shape");
  if (x.rank() < 3 || !kernel || int64_t(kernel->size()) != x.rank() - 2)
    return n.error() << "expects kernel_shape of rank - 2 numbers, has " << (kernel ? kernel->size() : 0)
                     << " for rank " << x.rank();
  SmallVector<Expr, 4> sizes;
  for (int64_t size : *kernel) {
    if (size < 1 || size > kMaxStep)
      return n.error() << "expects kernel_shape in [1, " << kMaxStep << "], has " << size;
    sizes.push_back(size);
  }
  // ONNX Runtime rounds the number of positions towards 0, ONNX down: for greater strides they differ by one.
  return readWindow(n, x, sizes, /*mayBeNone=*/true);
}

/// Output 1: where each maximum stands in the whole input, row-major or
/// (storage_order) column-major within a plane; the first of equal ones.
void setIndices(Node &n, const Window &w) {
  const Tensor &x = n.input(0);
  size_t r = w.rank();
  SmallVector<Expr, 4> shape{x.shape[0], x.shape[1]};
  shape.append(w.output.begin(), w.output.end());
  SmallVector<Value> sizes = sizeValues(n, x.shape), begins = sizeValues(n, w.padBegin),
                     kernel = sizeValues(n, w.kernel);
  bool columns = n.intAttr("storage_order", 0) != 0;
  Value source = n.value(x);
  Value result = n.generate(DType::I64, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto integer = [&](Value index) { return fromIndex(b, loc, DType::I64, index); };
    Num none = integer(at[0]).constant(-1), zero = none.constant(0);
    auto body = [&](OpBuilder &b, Location loc, ValueRange k, ValueRange carried) -> SmallVector<Value> {
      Num best(b, loc, x.dtype, carried[0]), position(b, loc, DType::I64, carried[1]);
      SmallVector<Value> place{at[0], at[1]};
      std::optional<Num> inside;
      SmallVector<Num> rows;
      for (size_t d = 0; d < r; ++d) {
        Num row = integer(at[d + 2]) * zero.constant(w.strides[d]) + integer(k[d]) * zero.constant(w.dilations[d]) -
                  integer(begins[d]);
        Num hit = (row >= zero) & (row < integer(sizes[d + 2]));
        inside = inside ? *inside & hit : hit;
        rows.push_back(select(hit, row, zero));
        place.push_back(arith::IndexCastOp::create(b, loc, b.getIndexType(), rows.back().value()));
      }
      Num offset = zero;
      for (size_t i = 0; i < r; ++i) {
        size_t d = columns ? r - 1 - i : i;
        offset = offset * integer(sizes[d + 2]) + rows[d];
      }
      Num plane = integer(at[0]) * integer(sizes[1]) + integer(at[1]);
      for (size_t d = 0; d < r; ++d)
        plane = plane * integer(sizes[d + 2]);
      Num element = load(b, loc, source, x.dtype, place), better = *inside & ((position < zero) | (element > best));
      return {select(better, element, best).value(), select(better, plane + offset, position).value()};
    };
    SmallVector<Value> inits{constantNum(b, loc, x.dtype, int64_t(0)).value(), none.value()};
    return sequential(b, loc, kernel, inits, body)[1];
  });
  n.setOutput(1, result, DType::I64, shape);
}

LogicalResult importMaxPool(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  bool isLast = n.opType() == "NhwcMaxPool";
  Tensor x = isLast ? channelsFirst(n, n.input(0)) : n.input(0);
  FailureOr<Window> w = readPooling(n, x);
  if (failed(w))
    return failure();
  if (n.hasOutput(1) && isLast)
    return n.error() << "has a second output";
  if (n.hasOutput(1))
    setIndices(n, *w);
  Num lowest = constantNum(n.builder(), n.loc(), x.dtype, int64_t(0)).lowest();
  Tensor y = pool(n, Combine::Max, padded(n, x, *w, lowest), *w);
  y = n.cast(y, x.dtype);
  n.setOutput(0, isLast ? channelsLast(n, y) : y);
  return success();
}

/// How many elements of the padded input count at each position, [1, 1, ...].
Tensor windowCounts(Node &n, const Tensor &x, const Window &w, bool countPads) {
  OpBuilder &b = n.builder();
  Num one = constantNum(b, n.loc(), computeDType(x.dtype), 1.0), zero = one.constant(0);
  Window inside = w;
  Tensor ones;
  ones.dtype = one.dtype();
  ones.shape.append({Expr(1), Expr(1)});
  for (size_t d = 0; d < w.rank(); ++d) {
    Expr size = x.shape[d + 2];
    if (countPads) { // all that was asked for counts; what ceil_mode added does not
      size = size + w.padBegin[d] + w.padEnd[d];
      inside.padBegin[d] = inside.padEnd[d] = 0;
    }
    ones.shape.push_back(size);
  }
  ones.value = n.filled(ones.dtype, ones.shape, one.value());
  return pool(n, Combine::Sum, padded(n, ones, inside, zero), inside);
}

} // namespace

FailureOr<Tensor> averagePool(Node &n, const Tensor &x) {
  FailureOr<Window> w = readPooling(n, x);
  if (failed(w))
    return failure();
  Num zero = constantNum(n.builder(), n.loc(), x.dtype, 0.0);
  Tensor sum = pool(n, Combine::Sum, padded(n, x, *w, zero), *w);
  Tensor counts = windowCounts(n, x, *w, n.intAttr("count_include_pad", 0) != 0);
  return formula(n, x.dtype, {sum, counts}, [](ArrayRef<Num> v) { return v[0] / v[1]; });
}

namespace {

LogicalResult importAveragePool(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  FailureOr<Tensor> y = averagePool(n, n.input(0));
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

/// (sum |x|^p)^(1/p) over the window, or over everything.
LogicalResult importLpPool(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  int64_t p = n.intAttr("p", 2);
  if (p < 1 || x.rank() < 3)
    return n.error() << "expects p of at least 1 and a rank of at least 3, has " << p << " and " << x.rank();
  FailureOr<Tensor> powers =
      formula(n, computeDType(x.dtype), x, [&](ArrayRef<Num> v) { return pow(abs(v[0]), v[0].constant(double(p))); });
  if (failed(powers))
    return failure();
  FailureOr<Tensor> sum = failure();
  if (n.opType() == "LpPool") {
    FailureOr<Window> w = readPooling(n, x);
    if (failed(w))
      return failure();
    sum = pool(n, Combine::Sum, padded(n, *powers, *w, constantNum(n.builder(), n.loc(), powers->dtype, 0.0)), *w);
  } else {
    SmallVector<int64_t> dims = dimsFrom(2, x.rank());
    sum = keepDims(n, reduce(n, Combine::Sum, *powers, dims), dims, x.rank());
  }
  if (failed(sum))
    return failure();
  return setFormula(n, x.dtype, *sum, [&](ArrayRef<Num> v) {
    return p == 1 ? v[0] : p == 2 ? sqrt(v[0]) : pow(v[0], v[0].constant(1.0 / double(p)));
  });
}

LogicalResult importGlobalPool(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  if (x.rank() < 3)
    return n.error() << "expects a tensor of rank at least 3, has rank " << x.rank();
  SmallVector<int64_t> dims = dimsFrom(2, x.rank());
  bool isMax = n.opType() == "GlobalMaxPool";
  FailureOr<Tensor> y = reduce(n, isMax ? Combine::Max : Combine::Sum, x, dims);
  if (!isMax)
    y = divideByCount(n, *y, countOf(x, dims));
  if (succeeded(y))
    y = keepDims(n, *y, dims, x.rank());
  if (failed(y))
    return failure();
  n.setOutput(0, n.cast(*y, x.dtype));
  return success();
}

} // namespace

void registerPoolingOps(OpRegistry &registry) {
  registry.add("MaxPool", {1, 8, 10, 11, 12, 22}, importMaxPool);
  registry.add("NhwcMaxPool", {1}, importMaxPool, "com.microsoft");
  registry.add("AveragePool", {1, 7, 10, 11, 19, 22}, importAveragePool);
  registry.add("LpPool", {2, 11, 18, 22}, importLpPool);
  registry.add("GlobalLpPool", {2, 22}, importLpPool);
  registry.add("GlobalAveragePool", {1, 22}, importGlobalPool);
  registry.add("GlobalMaxPool", {1, 22}, importGlobalPool);
}

} // namespace attn::onnx
