#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Reduce.h"
#include "frontends/onnx/ops/RuntimeAxes.h"

// Reduce*: an element prepared, combined over some dimensions, and finished.

using namespace mlir;

namespace attn::onnx {
namespace {

/// What a node reduces.
struct Reduced {
  bool nothing = false;      ///< each element is a reduction of its own
  SmallVector<int64_t> dims; ///< ascending
  SmallVector<Expr> flags;   ///< one a dimension, where only the run knows
  int64_t resultRank = 0;
  bool known() const { return flags.empty(); }
};

LogicalResult readRuntimeAxes(Node &n, Reduced &r) {
  int64_t rank = n.input(0).rank();
  bool all = !n.intAttr("noop_with_empty_axes", 0);
  std::optional<int64_t> count = n.input(1).rank() == 1 ? n.input(1).shape[0].constant() : std::optional<int64_t>(1);
  if (std::optional<int64_t> declared = n.declaredRank(); !count && declared && !n.intAttr("keepdims", 1))
    count = rank - *declared;
  if (!count && !n.intAttr("keepdims", 1))
    return n.unsupported() << "axes whose number is not known at import, with keepdims = 0";
  FailureOr<SmallVector<Expr>> flags = axisFlags(n, 1, rank, all);
  if (failed(flags))
    return failure();
  r.flags = *flags;
  if (!count)
    return success();
  r.resultRank = rank - *count;
  Expr sum(0);
  for (const Expr &flag : r.flags)
    sum = sum + flag;
  return n.requireEqual(sum, Expr(*count), "{0} dimensions are named by {1} axes");
}

FailureOr<Reduced> readReduced(Node &n, bool axesAreInput) {
  int64_t rank = n.input(0).rank();
  Reduced r;
  std::optional<SmallVector<int64_t>> axes;
  if (!axesAreInput) {
    axes = n.intsAttr("axes");
  } else if (n.hasInput(1)) {
    axes = n.constantInts(1);
    bool empty = n.input(1).rank() == 1 && n.input(1).shape[0].is(0);
    if (!axes && !empty && rank > 0) {
      if (failed(readRuntimeAxes(n, r)))
        return failure();
      return r;
    }
  }
  if (!axes || axes->empty()) {
    r.nothing = axesAreInput && n.intAttr("noop_with_empty_axes", 0);
    r.dims = dimsFrom(0, rank);
    return r;
  }
  for (int64_t axis : *axes) {
    FailureOr<int64_t> dim = n.axis(axis, rank);
    if (failed(dim))
      return failure();
    if (llvm::is_contained(r.dims, *dim))
      return n.error() << "axis " << axis << " is given twice";
    r.dims.push_back(*dim);
  }
  llvm::sort(r.dims);
  return r;
}

/// `x` combined, without the reduced dimensions (known) or with units in their
/// place (not known).
Tensor combined(Node &n, const Reduced &r, Combine how, const Tensor &x, Prepare prepare = nullptr) {
  return r.known() ? reduce(n, how, x, r.dims, prepare) : reduceFlagged(n, how, x, r.flags, prepare);
}

/// The same with units in either case.
FailureOr<Tensor> withUnits(Node &n, const Reduced &r, const Tensor &t) {
  return r.known() ? keepDims(n, t, r.dims, n.input(0).rank()) : FailureOr<Tensor>(t);
}

Expr countOf(Node &n, const Reduced &r) {
  const Tensor &x = n.input(0);
  if (r.known())
    return countOf(x, r.dims);
  Expr count(1);
  for (auto [size, flag] : llvm::zip_equal(x.shape, r.flags))
    count = count * n.symbols().select(flag, size, 1);
  return count;
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
LogicalResult setReduced(Node &n, const Tensor &t, const Reduced &r, DType dtype) {
  FailureOr<Tensor> result = t;
  bool keep = n.intAttr("keepdims", 1) != 0;
  if (keep)
    result = withUnits(n, r, t);
  else if (!r.known())
    result = n.reshape(t, unflagged(n, t.shape, r.flags, r.resultRank));
  if (failed(result))
    return failure();
  if (dtype == DType::Bool && result->dtype == DType::U8)
    result->dtype = DType::Bool; // 0 and 1 are stored alike
  n.setOutput(0, result->dtype == dtype ? *result : n.cast(*result, dtype));
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
  FailureOr<Reduced> r = readReduced(n, n.version() >= row->inputAxesSince);
  if (failed(r))
    return failure();
  if (r->nothing) {
    // Without axes nothing is combined, but each element is a sum of its own.
    return setFormula(n, x.dtype, x, [&](ArrayRef<Num> v) {
      Num y = row->prepare ? row->prepare(v[0]) : v[0];
      return row->finish ? finished(*row, y) : y;
    });
  }
  if (r->known() && setFoldedAll(n, *row, r->dims))
    return success();
  FailureOr<Tensor> result = row->prepare ? combined(n, *r, row->how, x, row->prepare) : combined(n, *r, row->how, x);
  if (n.opType() == "ReduceMean")
    result = divideByCount(n, *result, countOf(n, *r));
  else if (row->finish)
    result = formula(n, result->dtype, *result, [&](ArrayRef<Num> v) { return finished(*row, v[0]); });
  if (failed(result))
    return failure();
  return setReduced(n, *result, *r, x.dtype);
}

LogicalResult importReduceLogSumExp(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  Tensor x = n.input(0);
  DType dtype = x.dtype;
  if (!isFloat(dtype))
    x = n.cast(x, DType::F64);
  FailureOr<Reduced> r = readReduced(n, n.version() >= 18);
  if (failed(r))
    return failure();
  if (r->nothing) {
    n.setOutput(0, n.input(0)); // log(exp(x))
    return success();
  }
  // exp(x - max) cannot overflow. An infinite maximum is left out: inf - inf is NaN.
  FailureOr<Tensor> max = formula(n, computeDType(x.dtype), combined(n, *r, Combine::Max, x), [](ArrayRef<Num> v) {
    return select(abs(v[0]) == v[0].highest(), v[0].constant(0), v[0]);
  });
  FailureOr<Tensor> kept = failure();
  if (succeeded(max))
    kept = r->known() ? withUnits(n, *r, *max) : expandFlagged(n, *max, r->flags, x.shape);
  if (failed(kept))
    return failure();
  FailureOr<Tensor> shifted =
      formula(n, computeDType(x.dtype), {x, *kept}, [](ArrayRef<Num> v) { return exp(v[0] - v[1]); });
  if (failed(shifted))
    return failure();
  FailureOr<Tensor> result = formula(n, max->dtype, {combined(n, *r, Combine::Sum, *shifted), *max},
                                     [](ArrayRef<Num> v) { return log(v[0]) + v[1]; });
  if (failed(result))
    return failure();
  return setReduced(n, *result, *r, dtype);
}

} // namespace

void registerReductionOps(OpRegistry &registry) {
  for (const Row &row : rows)
    registry.add(row.name, row.versions, importReduce);
  registry.add("ReduceLogSumExp", {1, 11, 13, 18, 28}, importReduceLogSumExp);
  registerScanReductionOps(registry);
}

} // namespace attn::onnx
