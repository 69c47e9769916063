#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn::onnx;

namespace {
struct SliceSpec {
  SmallVector<int64_t> axes, steps;
  SmallVector<Expr> starts, ends;
};
} // namespace

static FailureOr<SliceSpec> readSlice(Node &node, int64_t rank) {
  SliceSpec spec;
  std::optional<SmallVector<int64_t>> axes, steps;
  if (node.version() < 10) {
    std::optional<SmallVector<int64_t>> starts = node.intsAttr("starts"), ends = node.intsAttr("ends");
    if (!starts || !ends)
      return node.error() << "has no starts or no ends", failure();
    spec.starts.assign(starts->begin(), starts->end());
    spec.ends.assign(ends->begin(), ends->end());
    axes = node.intsAttr("axes");
  } else {
    std::optional<SmallVector<Expr>> starts = node.exprs(1), ends = node.exprs(2);
    if (!starts || !ends)
      return node.unsupported() << "starts or ends whose number is not known at import", failure();
    spec.starts = *starts;
    spec.ends = *ends;
    if (node.hasInput(3) && !(axes = node.constantInts(3)))
      return node.unsupported() << "axes that are not known at import", failure();
    if (node.hasInput(4) && !(steps = node.constantInts(4)))
      return node.unsupported() << "steps that are not known at import", failure();
  }
  size_t count = spec.starts.size();
  spec.axes = axes ? *axes : llvm::to_vector(llvm::seq<int64_t>(0, count));
  spec.steps = steps ? *steps : SmallVector<int64_t>(count, 1);
  if (spec.ends.size() != count || spec.axes.size() != count || spec.steps.size() != count)
    return node.error() << "has " << count << " starts, but " << spec.ends.size() << " ends, " << spec.axes.size()
                        << " axes and " << spec.steps.size() << " steps",
           failure();
  SmallVector<bool> seen(rank);
  for (size_t i = 0; i < count; ++i) {
    FailureOr<int64_t> axis = node.axis(spec.axes[i], rank);
    if (failed(axis))
      return failure();
    if (seen[*axis])
      return node.error() << "slices axis " << *axis << " twice", failure();
    seen[spec.axes[i] = *axis] = true;
    if (spec.steps[i] == 0 || spec.steps[i] == INT64_MIN)
      return node.error() << "has a step of " << spec.steps[i], failure();
  }
  return spec;
}

/// A start or end as NumPy reads it: negative ones count from the end, then
/// clamped to [low, high]. The ends of the integer types mean "all".
static Expr clampBound(Symbols &symbols, const Expr &bound, const Expr &size, const Expr &low, const Expr &high) {
  std::optional<int64_t> constant = bound.constant();
  if (constant && *constant >= INT32_MAX)
    return high;
  // Of nothing, walked backwards, the last place (-1) lies before the first (0): there is none to start at.
  if (constant && *constant <= INT32_MIN)
    return symbols.min(high, low);
  Expr wrapped = symbols.select(symbols.less(bound, Expr(0)), bound + size, bound);
  return symbols.min(high, symbols.max(low, wrapped));
}

/// tf2onnx, which has numbers alone for "all", writes this.
constexpr int64_t kBeyondSizes = 1'000'000'000;

/// An end that no size reaches is the end, which the run checks: so what is cut and what is not have one size.
static FailureOr<Expr> readEnd(Node &node, const Expr &end, const Expr &size) {
  std::optional<int64_t> constant = end.constant();
  if (!constant || *constant < kBeyondSizes || *constant >= INT32_MAX || size.constant())
    return end;
  if (failed(node.requireAtMost(size, end,
                                "a size of {0} is beyond the end {1}, which was taken for all of it; compile "
                                "with --dim for this size")))
    return failure();
  return size;
}

/// Bounds, axes or steps that are data: every element is read from its place.
static LogicalResult sliceAtRun(Node &node) {
  const Tensor &t = node.input(0);
  auto spread = [&](size_t input, int64_t fallback) -> FailureOr<SmallVector<Expr>> {
    if (!node.hasInput(input))
      return SmallVector<Expr>(t.rank(), Expr(fallback));
    return spreadByAxis(node, input, 3, t.rank(), fallback);
  };
  FailureOr<SmallVector<Expr>> starts = spread(1, 0), ends = spread(2, INT64_MAX), steps = spread(4, 1);
  if (failed(starts) || failed(ends) || failed(steps))
    return failure();
  Symbols &symbols = node.symbols();
  OpBuilder &b = node.builder();
  SmallVector<Expr> shape;
  SmallVector<Value> first, stride;
  for (int64_t dim = 0; dim < t.rank(); ++dim) {
    Expr size = t.shape[dim], step = (*steps)[dim];
    if (failed(node.requireDifferent(step, Expr(0), "has a step of {0}")))
      return failure();
    Expr backwards = symbols.less(step, Expr(0));
    Expr start = clampBound(symbols, (*starts)[dim], size, Expr(0), size - backwards);
    Expr end = clampBound(symbols, (*ends)[dim], size, Expr(0) - backwards, size - backwards);
    shape.push_back(symbols.max(Expr(0), symbols.ceilDiv(end - start, step)));
    first.push_back(symbols.materialize(b, node.loc(), start));
    stride.push_back(symbols.materialize(b, node.loc(), step));
  }
  Value source = node.value(t);
  Value result = node.generate(t.dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    SmallVector<Value> from;
    for (int64_t dim = 0; dim < t.rank(); ++dim) {
      Value moved = arith::MulIOp::create(b, loc, at[dim], stride[dim]);
      from.push_back(arith::AddIOp::create(b, loc, first[dim], moved));
    }
    return tensor::ExtractOp::create(b, loc, source, from);
  });
  node.setOutput(0, result, t.dtype, shape);
  return success();
}

/// Whether all that decides which axes are cut, and how, is known.
static bool hasKnownSlices(Node &node) {
  if (node.version() < 10)
    return true;
  auto known = [&](size_t i) { return !node.hasInput(i) || node.constantInts(i); };
  return node.exprs(1) && node.exprs(2) && known(3) && known(4);
}

static LogicalResult importSlice(Node &node) {
  if (!hasKnownSlices(node))
    return sliceAtRun(node);
  Tensor t = node.input(0);
  FailureOr<SliceSpec> spec = readSlice(node, t.rank());
  if (failed(spec))
    return failure();
  Symbols &symbols = node.symbols();
  for (size_t i = 0; i < spec->axes.size(); ++i) {
    int64_t axis = spec->axes[i], step = spec->steps[i];
    Expr size = t.shape[axis];
    if (step > 0) {
      Expr start = clampBound(symbols, spec->starts[i], size, Expr(0), size);
      FailureOr<Expr> last = readEnd(node, spec->ends[i], size);
      if (failed(last))
        return failure();
      Expr end = clampBound(symbols, *last, size, Expr(0), size);
      Expr count = symbols.ceilDiv(symbols.max(Expr(0), end - start), Expr(step));
      t = node.slice(t, axis, start, count, step);
    } else {
      Expr start = clampBound(symbols, spec->starts[i], size, Expr(0), size - Expr(1));
      Expr end = clampBound(symbols, spec->ends[i], size, Expr(-1), size - Expr(1));
      Expr count = symbols.ceilDiv(symbols.max(Expr(0), start - end), Expr(-step));
      t = node.slice(t, axis, start, count, step);
    }
    if (t.shape[axis].overflowed())
      return node.error() << "bounds of axis " << axis << " leave 64 bits", failure();
  }
  node.setOutput(0, t);
  return success();
}

void attn::onnx::registerSliceOps(OpRegistry &registry) { registry.add("Slice", {1, 10, 11, 13}, importSlice); }
