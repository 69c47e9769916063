#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Reduce.h"

// Reduce*: an element prepared, combined over some dimensions, and finished.

using namespace mlir;

namespace attn::onnx {
namespace {

/// The dimensions to reduce, ascending; nothing when the node is the identity.
FailureOr<std::optional<SmallVector<int64_t>>> reducedDims(Node &n, bool axesAreInput) {
  int64_t rank = n.input(0).rank();
  std::optional<SmallVector<int64_t>> axes;
  if (!axesAreInput) {
    axes = n.intsAttr("axes");
  } else if (n.hasInput(1)) {
    axes = n.constantInts(1);
    if (!axes)
      return n.unsupported() << "axes that are not known at import";
  }
  if (!axes || axes->empty()) {
    if (axesAreInput && n.intAttr("noop_with_empty_axes", 0))
      return std::optional<SmallVector<int64_t>>();
    return std::optional(dimsFrom(0, rank));
  }
  SmallVector<int64_t> dims;
  for (int64_t axis : *axes) {
    FailureOr<int64_t> dim = n.axis(axis, rank);
    if (failed(dim))
      return failure();
    if (llvm::is_contained(dims, *dim))
      return n.error() << "axis " << axis << " is given twice";
    dims.push_back(*dim);
  }
  llvm::sort(dims);
  return std::optional(dims);
}

/// Sum, product, minimum or maximum of all elements of a known vector: the
/// number of elements of a shape, say.
std::optional<Expr> foldAll(Node &n, Combine how, ArrayRef<Scalar> elements) {
  std::optional<Expr> result;
  for (const Scalar &element : elements) {
    const Expr &x = std::get<Expr>(element);
    if (!result)
      result = x;
    else if (how == Combine::Sum)
      result = *result + x;
    else if (how == Combine::Product)
      result = *result * x;
    else
      result = how == Combine::Min ? n.symbols().min(*result, x) : n.symbols().max(*result, x);
  }
  return result;
}

struct Row {
  const char *name;
  int inputAxesSince; ///< version that made the axes an input
  std::initializer_list<int> versions;
  Combine how;
  Num (*prepare)(const Num &);
  Num (*finish)(const Num &);
};

const Row rows[] = {
    {"ReduceSum", 13, {1, 11, 13}, Combine::Sum, nullptr, nullptr},
    {"ReduceMean", 18, {1, 11, 13, 18}, Combine::Sum, nullptr, nullptr}, // then divided by the count
    {"ReduceMax", 18, {1, 11, 12, 13, 18, 20}, Combine::Max, nullptr, nullptr},
    {"ReduceMin", 18, {1, 11, 12, 13, 18, 20}, Combine::Min, nullptr, nullptr},
    {"ReduceProd", 18, {1, 11, 13, 18}, Combine::Product, nullptr, nullptr},
    {"ReduceL1", 18, {1, 11, 13, 18}, Combine::Sum, abs, nullptr},
    {"ReduceL2", 18, {1, 11, 13, 18}, Combine::Sum, [](const Num &x) { return x * x; }, sqrt},
    {"ReduceSumSquare", 18, {1, 11, 13, 18}, Combine::Sum, [](const Num &x) { return x * x; }, nullptr},
    {"ReduceLogSum", 18, {1, 11, 13, 18, 28}, Combine::Sum, nullptr, log},
};

/// finish(x) on floats; integers go through f64, as NumPy does.
Num finished(const Row &row, const Num &x) {
  if (x.isFloating())
    return row.finish(x);
  return convert(row.finish(convert(x, DType::F64)), x.dtype());
}

/// Output 0 = `t` with units at `dims` when the node keeps them, as `dtype`.
LogicalResult setReduced(Node &n, const Tensor &t, ArrayRef<int64_t> dims, DType dtype) {
  Tensor result = t;
  if (n.intAttr("keepdims", 1)) {
    FailureOr<Tensor> kept = keepDims(n, t, dims, n.input(0).rank());
    if (failed(kept))
      return failure();
    result = *kept;
  }
  if (dtype == DType::Bool && result.dtype == DType::U8)
    result.dtype = DType::Bool; // 0 and 1 are stored alike
  n.setOutput(0, result.dtype == dtype ? result : n.cast(result, dtype));
  return success();
}

/// Whether the elements of a shape could be computed on.
bool setFoldedAll(Node &n, const Row &row, ArrayRef<int64_t> dims) {
  const Tensor &x = n.input(0);
  if (!x.elements || x.elements->empty() || isFloat(x.dtype) || x.dtype == DType::Bool ||
      int64_t(dims.size()) != x.rank() || row.prepare || row.finish || StringRef(row.name) == "ReduceMean")
    return false;
  SmallVector<Expr, 4> shape;
  if (n.intAttr("keepdims", 1))
    shape.assign(x.rank(), Expr(1));
  n.setElements(0, x.dtype, shape, Scalar(*foldAll(n, row.how, *x.elements)));
  return true;
}

LogicalResult importReduce(Node &n) {
  const Row *row = llvm::find_if(rows, [&](const Row &r) { return n.opType() == r.name; });
  if (failed(expectInputs(n, 1)))
    return failure();
  const Tensor &x = n.input(0);
  bool ordered = row->how == Combine::Max || row->how == Combine::Min;
  if (x.dtype == DType::Bool && !ordered)
    return n.error() << "expects numbers, has bool";
  FailureOr<std::optional<SmallVector<int64_t>>> dims = reducedDims(n, n.version() >= row->inputAxesSince);
  if (failed(dims))
    return failure();
  if (!*dims) {
    // Without axes nothing is combined, but each element is a sum of its own.
    return setFormula(n, x.dtype, x, [&](ArrayRef<Num> v) {
      Num y = row->prepare ? row->prepare(v[0]) : v[0];
      return row->finish ? finished(*row, y) : y;
    });
  }
  if (setFoldedAll(n, *row, **dims))
    return success();
  FailureOr<Tensor> result =
      row->prepare ? reduce(n, row->how, x, **dims, row->prepare) : reduce(n, row->how, x, **dims);
  if (n.opType() == "ReduceMean")
    result = divideByCount(n, *result, countOf(x, **dims));
  else if (row->finish)
    result = formula(n, result->dtype, *result, [&](ArrayRef<Num> v) { return finished(*row, v[0]); });
  if (failed(result))
    return failure();
  return setReduced(n, *result, **dims, x.dtype);
}

LogicalResult importReduceLogSumExp(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  Tensor x = n.input(0);
  DType dtype = x.dtype;
  if (!isFloat(dtype))
    x = n.cast(x, DType::F64);
  FailureOr<std::optional<SmallVector<int64_t>>> dims = reducedDims(n, n.version() >= 18);
  if (failed(dims))
    return failure();
  if (!*dims) {
    n.setOutput(0, n.input(0)); // log(exp(x))
    return success();
  }
  // exp(x - max) cannot overflow. An infinite maximum is left out: inf - inf is NaN.
  FailureOr<Tensor> max = formula(n, computeDType(x.dtype), reduce(n, Combine::Max, x, **dims), [](ArrayRef<Num> v) {
    return select(abs(v[0]) == v[0].highest(), v[0].constant(0), v[0]);
  });
  FailureOr<Tensor> kept = failure();
  if (succeeded(max))
    kept = keepDims(n, *max, **dims, x.rank());
  if (failed(kept))
    return failure();
  FailureOr<Tensor> shifted =
      formula(n, computeDType(x.dtype), {x, *kept}, [](ArrayRef<Num> v) { return exp(v[0] - v[1]); });
  if (failed(shifted))
    return failure();
  FailureOr<Tensor> result = formula(n, max->dtype, {reduce(n, Combine::Sum, *shifted, **dims), *max},
                                     [](ArrayRef<Num> v) { return log(v[0]) + v[1]; });
  if (failed(result))
    return failure();
  return setReduced(n, *result, **dims, dtype);
}

} // namespace

void registerReductionOps(OpRegistry &registry) {
  for (const Row &row : rows)
    registry.add(row.name, row.versions, importReduce);
  registry.add("ReduceLogSumExp", {1, 11, 13, 18, 28}, importReduceLogSumExp);
  registerScanReductionOps(registry);
}

} // namespace attn::onnx
