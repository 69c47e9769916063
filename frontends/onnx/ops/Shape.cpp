#include "frontends/onnx/Limits.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn::onnx;

// What changes no element: shapes as values, and values under other shapes.

static SmallVector<Scalar> scalars(ArrayRef<Expr> exprs) {
  SmallVector<Scalar> result;
  for (const Expr &expr : exprs)
    result.push_back(Scalar(expr));
  return result;
}

static LogicalResult setReshaped(Node &node, const Tensor &t, ArrayRef<Expr> shape) {
  FailureOr<Tensor> view = node.reshape(t, shape);
  if (failed(view))
    return failure();
  node.setOutput(0, *view);
  return success();
}

//===----------------------------------------------------------------------===//
// Shape, Size
//===----------------------------------------------------------------------===//

static LogicalResult importShape(Node &node) {
  ArrayRef<Expr> shape = node.input(0).shape;
  int64_t rank = shape.size();
  auto bound = [&](llvm::StringRef name, int64_t fallback) { // start and end: since 15
    int64_t at = node.intAttr(name, fallback);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  int64_t start = bound("start", 0), end = std::max(start, bound("end", rank));
  ArrayRef<Expr> part = shape.slice(start, end - start);
  node.setElements(0, DType::I64, {Expr(end - start)}, scalars(part));
  return success();
}

static LogicalResult importSize(Node &node) {
  node.setElements(0, DType::I64, {}, {Scalar(product(node.input(0).shape))});
  return success();
}

//===----------------------------------------------------------------------===//
// Reshape, Flatten, Squeeze, Unsqueeze
//===----------------------------------------------------------------------===//

/// In sizes that are data, 0 and -1 mean what they mean only in a run; a
/// dimension of the model is itself also where it is 0. The shape with 0 replaced by the input's sizes and -1 left;
/// error for what can be seen to be wrong.
static FailureOr<SmallVector<Expr>> copyZeros(Node &node, ArrayRef<Expr> wanted) {
  const Tensor &t = node.input(0);
  bool allowZero = node.intAttr("allowzero", 0) != 0;
  Symbols &symbols = node.symbols();
  SmallVector<Expr> shape(wanted);
  for (auto [n, size] : llvm::enumerate(shape)) {
    if (size.constant() && *size.constant() < -1)
      return node.error() << "shape has size " << *size.constant() << " in dimension " << n, failure();
    if (allowZero)
      continue;
    if (size.is(0) && n >= t.shape.size())
      return node.error() << "dimension " << n << " of the new shape is 0, which copies dimension " << n
                          << " of the input, and the input has " << t.shape.size()
                          << (t.shape.size() == 1 ? " dimension" : " dimensions")
                          << ": give the size, or -1 for the one that is left (with allowzero=1 a 0 is a size)",
             failure();
    if (size.is(0))
      size = t.shape[n];
    else if (symbols.isData(size) && n < t.shape.size())
      size = symbols.select(symbols.equal(size, Expr(0)), t.shape[n], size);
  }
  return shape;
}

static LogicalResult importReshape(Node &node) {
  const Tensor &t = node.input(0);
  std::optional<SmallVector<Expr>> wanted;
  if (node.version() >= 5)
    wanted = shapeExprs(node, 1, node.declaredRank());
  else if (std::optional<SmallVector<int64_t>> given = node.intsAttr("shape"))
    wanted.emplace(given->begin(), given->end());
  if (!wanted)
    return node.unsupported() << "reshape to a shape whose length is not known at import", failure();
  FailureOr<SmallVector<Expr>> shape = copyZeros(node, *wanted);
  if (failed(shape))
    return failure();
  Symbols &symbols = node.symbols();
  auto isInferred = [&](const Expr &size) -> Expr {
    return size.constant() || symbols.isData(size) ? symbols.equal(size, Expr(-1)) : Expr(0);
  };
  Expr rest(1);
  std::optional<size_t> inferred;
  for (auto [n, size] : llvm::enumerate(*shape)) {
    if (size.is(-1)) {
      if (inferred)
        return node.error() << "shape has -1 in dimensions " << *inferred << " and " << n, failure();
      inferred = n;
    }
    rest = rest * symbols.select(isInferred(size), Expr(1), size);
  }
  Expr total = product(t.shape);
  for (Expr &size : *shape) {
    Expr condition = isInferred(size);
    if (condition.is(0))
      continue;
    if (rest.is(0))
      return node.error() << "shape has -1 beside a dimension of size 0", failure();
    if (symbols.mayExceed(rest, kMaxSize) &&
        failed(node.requireDifferent(symbols.select(condition, rest, Expr(1)), Expr(0),
                                     "shape has -1 beside a dimension of size {0}")))
      return failure();
    size = symbols.select(condition, symbols.floorDiv(total, rest), size);
  }
  // Two negative sizes would make a product that looks right.
  for (const Expr &size : *shape)
    if (failed(node.requireAtMost(Expr(0), size, "shape has a dimension of size {1}")))
      return failure();
  return setReshaped(node, t, *shape);
}

static LogicalResult importFlatten(Node &node) {
  const Tensor &t = node.input(0);
  int64_t axis = node.intAttr("axis", 1), rank = t.rank();
  if (axis < -rank || axis > rank)
    return node.error() << "axis " << axis << " is outside [" << -rank << ", " << rank << "]", failure();
  if (axis < 0)
    axis += rank;
  ArrayRef<Expr> shape = t.shape;
  return setReshaped(node, t, {product(shape.take_front(axis)), product(shape.drop_front(axis))});
}

/// Axes from the attribute (before 13) or from input 1, normalised, each once.
/// nullopt in the result: none are given.
static FailureOr<std::optional<SmallVector<int64_t>>> readAxes(Node &node, int64_t rank) {
  std::optional<SmallVector<int64_t>> axes;
  if (node.version() < 13)
    axes = node.intsAttr("axes");
  else if (node.hasInput(1) && !(axes = node.constantInts(1)))
    return node.unsupported() << "axes that are not known at import", failure();
  if (!axes)
    return std::optional<SmallVector<int64_t>>();
  SmallVector<bool> seen(rank);
  for (int64_t &axis : *axes) {
    FailureOr<int64_t> normal = node.axis(axis, rank);
    if (failed(normal))
      return failure();
    if (seen[*normal])
      return node.error() << "axis " << axis << " is given twice", failure();
    seen[axis = *normal] = true;
  }
  return axes;
}

/// The number of axes in input 1 where the axes themselves are data: its length,
/// or by how many dimensions the result is declared to differ.
static std::optional<int64_t> countRuntimeAxes(Node &node) {
  if (node.version() < 13 || !node.hasInput(1) || node.constantInts(1) || node.input(1).rank() != 1)
    return std::nullopt;
  std::optional<int64_t> count = node.input(1).shape[0].constant(), rank = node.declaredRank();
  return count || !rank ? count : std::abs(*rank - node.input(0).rank());
}

static LogicalResult requireDistinct(Node &node, ArrayRef<Expr> flags, int64_t count) {
  Expr sum(0);
  for (const Expr &flag : flags)
    sum = sum + flag;
  return node.requireEqual(sum, Expr(count), "{0} dimensions are named by {1} axes");
}

static LogicalResult squeezeAtRun(Node &node, int64_t count) {
  const Tensor &t = node.input(0);
  FailureOr<SmallVector<Expr>> flags = axisFlags(node, 1, t.rank(), 0);
  if (failed(flags) || count > t.rank() || failed(requireDistinct(node, *flags, count)))
    return count > t.rank() ? node.error() << "has " << count << " axes for " << t.rank() << " dimensions" : failure();
  for (auto [size, flag] : llvm::zip_equal(t.shape, *flags))
    if (failed(node.requireEqual(node.symbols().select(flag, size, 1), Expr(1),
                                 "a squeezed dimension has size {0}, not {1}")))
      return failure();
  return setReshaped(node, t, unflagged(node, t.shape, *flags, t.rank() - count));
}

static LogicalResult unsqueezeAtRun(Node &node, int64_t count) {
  const Tensor &t = node.input(0);
  FailureOr<SmallVector<Expr>> flags = axisFlags(node, 1, t.rank() + count, 0);
  if (failed(flags) || failed(requireDistinct(node, *flags, count)))
    return failure();
  return setReshaped(node, t, withFlaggedUnits(node, t.shape, *flags));
}

static LogicalResult importSqueeze(Node &node) {
  if (std::optional<int64_t> count = countRuntimeAxes(node); count && *count > 0)
    return squeezeAtRun(node, *count);
  const Tensor &t = node.input(0);
  FailureOr<std::optional<SmallVector<int64_t>>> axes = readAxes(node, t.rank());
  if (failed(axes))
    return failure();
  SmallVector<Expr> shape;
  for (auto [n, size] : llvm::enumerate(t.shape)) {
    bool removed = *axes ? llvm::is_contained(**axes, int64_t(n)) : size.is(1);
    if (!removed)
      shape.push_back(size);
    else if (failed(node.requireEqual(size, Expr(1), "a squeezed dimension has size {0}, not {1}")))
      return failure();
  }
  return setReshaped(node, t, shape);
}

static LogicalResult importUnsqueeze(Node &node) {
  if (std::optional<int64_t> count = countRuntimeAxes(node); count && *count > 0)
    return unsqueezeAtRun(node, *count);
  const Tensor &t = node.input(0);
  size_t added = 0;
  if (node.version() < 13)
    added = node.intsAttr("axes").value_or(SmallVector<int64_t>()).size();
  else if (std::optional<SmallVector<int64_t>> axes = node.constantInts(1))
    added = axes->size();
  int64_t rank = t.rank() + added;
  FailureOr<std::optional<SmallVector<int64_t>>> axes = readAxes(node, rank);
  if (failed(axes))
    return failure();
  if (!*axes)
    return node.error() << "has no axes", failure();
  SmallVector<Expr> shape;
  size_t next = 0;
  for (int64_t n = 0; n < rank; ++n)
    shape.push_back(llvm::is_contained(**axes, n) ? Expr(1) : t.shape[next++]);
  return setReshaped(node, t, shape);
}

//===----------------------------------------------------------------------===//
// Expand, Identity
//===----------------------------------------------------------------------===//

static LogicalResult importExpand(Node &node) {
  const Tensor &t = node.input(0);
  std::optional<int64_t> rank = node.declaredRank();
  if (rank && *rank < t.rank())
    rank.reset();
  std::optional<SmallVector<Expr>> wanted =
      rank == t.rank() ? paddedShapeExprs(node, 1, rank) : shapeExprs(node, 1, rank);
  if (!wanted)
    return node.unsupported() << "expand to a shape whose length is not known at import", failure();
  for (const Expr &size : *wanted)
    if (size.constant() && *size.constant() < 0)
      return node.error() << "expands to a dimension of size " << *size.constant(), failure();
  // Beside a dimension of the input that is not known to be 1, a size of 1 that
  // is data changes nothing: so such a size is the dimension or 1.
  Symbols &symbols = node.symbols();
  for (size_t n = 0; n < std::min(wanted->size(), t.shape.size()); ++n) {
    Expr &size = (*wanted)[wanted->size() - 1 - n];
    const Expr &have = t.shape[t.shape.size() - 1 - n];
    if (!symbols.isData(size) || symbols.isEqual(have, Expr(1)) == true)
      continue;
    size = symbols.select(symbols.equal(size, Expr(1)), have, size);
  }
  FailureOr<SmallVector<Expr>> shape = node.broadcast({t.shape, *wanted});
  if (failed(shape))
    return failure();
  node.setOutput(0, node.expand(t, *shape));
  return success();
}

static LogicalResult importIdentity(Node &node) {
  if (node.isSequence(0)) {
    Tensor t;
    t.sequence = std::make_shared<const Sequence>(*node.sequence(0));
    node.setOutput(0, std::move(t));
    return success();
  }
  node.setOutput(0, node.input(0));
  return success();
}

//===----------------------------------------------------------------------===//
// Constant, ConstantOfShape
//===----------------------------------------------------------------------===//

static LogicalResult importConstant(Node &node) {
  if (node.hasAttr("value")) {
    std::optional<Tensor> value = node.tensorAttr("value");
    if (!value)
      return failure();
    node.setOutput(0, *value);
    return success();
  }
  if (node.hasAttr("value_int")) {
    node.setElements(0, DType::I64, {}, {Scalar(Expr(node.intAttr("value_int", 0)))});
    return success();
  }
  if (node.hasAttr("value_float")) {
    node.setElements(0, DType::F32, {}, {Scalar(node.floatAttr("value_float", 0))});
    return success();
  }
  auto setList = [&](DType dtype, auto values) {
    std::vector<char> bytes(values.size() * dtypeBytes(dtype));
    for (auto [n, value] : llvm::enumerate(values)) {
      float narrow = value;
      memcpy(bytes.data() + n * dtypeBytes(dtype), dtype == DType::F32 ? (void *)&narrow : (void *)&value,
             dtypeBytes(dtype));
    }
    node.setOutput(0, node.constantTensor(dtype, {int64_t(values.size())}, bytes));
    return success();
  };
  if (node.hasAttr("value_ints"))
    return setList(DType::I64, node.intsAttr("value_ints").value_or(SmallVector<int64_t>()));
  if (node.hasAttr("value_floats"))
    return setList(DType::F32, node.floatsAttr("value_floats").value_or(SmallVector<double>()));
  if (node.hasAttr("sparse_value")) {
    std::optional<Tensor> dense = node.sparseTensorAttr("sparse_value");
    if (!dense)
      return failure();
    node.setOutput(0, *dense);
    return success();
  }
  for (llvm::StringRef name : {"value_string", "value_strings"})
    if (node.hasAttr(name))
      return node.unsupported() << "a constant by attribute '" << name << "'", failure();
  return node.error() << "has no value", failure();
}

static LogicalResult importConstantOfShape(Node &node) {
  std::optional<SmallVector<Expr>> shape = shapeExprs(node, 0, node.declaredRank());
  if (!shape)
    return node.unsupported() << "a shape whose length is not known at import", failure();
  if (node.input(0).rank() != 1)
    return node.error() << "expects a shape of 1 dimension, got " << node.input(0).rank(), failure();
  for (const Expr &size : *shape)
    if (size.constant() && *size.constant() < 0)
      return node.error() << "has a dimension of size " << *size.constant(), failure();
    else if (failed(node.requireAtMost(Expr(0), size, "a dimension has size {1}")))
      return failure();
  Tensor value;
  value.elements.emplace(1, Scalar(0.0));
  if (node.hasAttr("value")) {
    std::optional<Tensor> given = node.tensorAttr("value");
    if (!given)
      return failure();
    int64_t count = 1;
    for (const Expr &size : given->shape)
      count *= *size.constant();
    if (count != 1)
      return node.error() << "expects a value of 1 element, got " << count, failure();
    FailureOr<Tensor> number = node.reshape(*given, {});
    if (failed(number))
      return failure();
    value = *number;
  }
  // A shape that cannot be is reported by its output's check, not by expanding.
  Tensor result;
  result.dtype = value.dtype;
  result.shape.assign(shape->begin(), shape->end());
  if (auto folded = node.foldElementwise(value.dtype, *shape, {value}, [](ArrayRef<Scalar> in) { return in[0]; }))
    result = *folded;
  else
    result = node.expand(value, *shape);
  node.setOutput(0, std::move(result));
  return success();
}

void attn::onnx::registerShapeOps(OpRegistry &registry) {
  registry.add("Shape", {1, 13, 15, 19, 21, 23, 24, 25}, importShape);
  registry.add("Size", {1, 13, 19, 21, 23, 24, 25}, importSize);
  registry.add("Reshape", {1, 5, 13, 14, 19, 21, 23, 24, 25}, importReshape);
  registry.add("Flatten", {1, 9, 11, 13, 21, 23, 24, 25}, importFlatten);
  registry.add("Squeeze", {1, 11, 13, 21, 23, 24, 25}, importSqueeze);
  registry.add("Unsqueeze", {1, 11, 13, 21, 23, 24, 25}, importUnsqueeze);
  registry.add("Expand", {8, 13}, importExpand);
  registry.add("Identity", {1, 13, 14, 16, 19, 21, 23, 24, 25}, importIdentity);
  registry.add("Constant", {1, 9, 11, 12, 13, 19, 21, 23, 24, 25}, importConstant);
  registry.add("ConstantOfShape", {9, 20, 21, 23, 24, 25}, importConstantOfShape);
}
