#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/ops/Concatenate.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn::onnx;

// What copies elements to other places: by whole blocks, chosen at import.

//===----------------------------------------------------------------------===//
// Transpose
//===----------------------------------------------------------------------===//

static LogicalResult importTranspose(Node &node) {
  const Tensor &t = node.input(0);
  SmallVector<int64_t> permutation = llvm::to_vector(llvm::reverse(llvm::seq<int64_t>(0, t.rank())));
  if (std::optional<SmallVector<int64_t>> given = node.intsAttr("perm")) {
    permutation = *given;
    SmallVector<int64_t> sorted = permutation;
    llvm::sort(sorted);
    if (sorted != llvm::to_vector(llvm::seq<int64_t>(0, t.rank())))
      return node.error() << "perm is not an order of the " << t.rank() << " dimensions of the input", failure();
  }
  node.setOutput(0, node.transpose(t, permutation));
  return success();
}

//===----------------------------------------------------------------------===//
// Concat, Split
//===----------------------------------------------------------------------===//

/// Elements of all parts, those of small integer tensors read at run time: so a
/// shape that is partly computed stays a shape. nullopt where that does not pay.
static std::optional<SmallVector<Scalar, 4>> concatElements(Node &node) {
  size_t count = 0;
  bool some = false, all = true;
  for (size_t i = 0; i < node.numInputs(); ++i) {
    const Tensor &part = node.input(i);
    std::optional<int64_t> length = part.rank() == 1 ? part.shape[0].constant() : std::nullopt;
    some |= part.elements.has_value();
    all &= part.elements.has_value();
    if (!length || (count += *length) > Tensor::kMaxElements)
      return std::nullopt;
  }
  if (!some || (!all && isFloat(node.input(0).dtype)))
    return std::nullopt;
  SmallVector<Scalar, 4> result;
  for (size_t i = 0; i < node.numInputs(); ++i) {
    const Tensor &part = node.input(i);
    if (part.elements) {
      result.append(part.elements->begin(), part.elements->end());
      continue;
    }
    std::optional<SmallVector<Expr>> read = node.exprs(i);
    if (!read)
      return std::nullopt;
    for (const Expr &expr : *read)
      result.push_back(Scalar(expr));
  }
  return result;
}

/// The sizes of all parts along `axis` one behind the other. As in ONNX Runtime, the other sizes of a part that has
/// none along it do not count, unless they are known to differ, which ONNX forbids.
static LogicalResult joinShapes(Node &node, int64_t axis, SmallVectorImpl<Expr> &shape) {
  auto isPart = [&](size_t i) { return !node.input(i).shape[axis].is(0); };
  size_t lead = 0;
  while (lead != node.numInputs() && !isPart(lead))
    ++lead;
  if (lead == node.numInputs())
    lead = 0;
  shape.assign(node.input(lead).shape.begin(), node.input(lead).shape.end());
  for (size_t i = 0; i < node.numInputs(); ++i) {
    const Tensor &part = node.input(i);
    for (int64_t dim = 0; i != lead && dim < part.rank(); ++dim) {
      if (dim == axis) {
        shape[dim] = shape[dim] + part.shape[dim];
        continue;
      }
      bool isOpen = !shape[dim].constant() || !part.shape[dim].constant();
      if (isOpen && !isPart(i))
        continue;
      if (failed(node.requireEqual(shape[dim], part.shape[dim], "concatenates dimensions of sizes {0} and {1}")))
        return failure();
      if (part.shape[dim].constant())
        shape[dim] = part.shape[dim];
    }
  }
  return success();
}

static LogicalResult importConcat(Node &node) {
  const Tensor &first = node.input(0);
  if (!node.hasAttr("axis") && node.version() >= 4)
    return node.error() << "has no axis", failure();
  FailureOr<int64_t> axis = node.axis(node.intAttr("axis", 1), first.rank());
  if (failed(axis))
    return failure();
  for (size_t i = 1; i < node.numInputs(); ++i) {
    if (!node.hasInput(i))
      return node.error() << "has no input " << i, failure();
    const Tensor &part = node.input(i);
    if (part.rank() != first.rank())
      return node.error() << "inputs 0 and " << i << " have " << first.rank() << " and " << part.rank()
                          << " dimensions",
             failure();
    if (part.dtype != first.dtype)
      return node.error() << "inputs 0 and " << i << " are " << dtypeName(first.dtype) << " and "
                          << dtypeName(part.dtype),
             failure();
  }
  SmallVector<Expr> shape;
  if (failed(joinShapes(node, *axis, shape)))
    return failure();
  if (first.rank() == 1)
    if (std::optional<SmallVector<Scalar, 4>> elements = concatElements(node)) {
      node.setElements(0, first.dtype, shape, *elements);
      return success();
    }
  if (node.numInputs() == 1) {
    node.setOutput(0, first);
    return success();
  }

  std::vector<Tensor> parts;
  for (size_t i = 0; i < node.numInputs(); ++i)
    parts.push_back(node.input(i));
  node.setOutput(0, concatenate(node, parts, *axis, shape));
  return success();
}

/// Equal parts for `count` outputs; the last one smaller (since 18) or an error.
static FailureOr<SmallVector<Expr>> equalParts(Node &node, const Expr &size, int64_t count) {
  if (node.version() < 18) {
    Expr each = node.symbols().floorDiv(size, Expr(count));
    if (failed(node.requireEqual(each * Expr(count), size, "splits a dimension of size {1} into equal parts")))
      return failure();
    return SmallVector<Expr>(count, each);
  }
  Expr each = node.symbols().ceilDiv(size, Expr(count));
  SmallVector<Expr> parts(count - 1, each);
  Expr last = size - each * Expr(count - 1);
  if (failed(node.requireAtMost(Expr(0), last, "splits a dimension into parts of which the last has size {1}")))
    return failure();
  parts.push_back(last);
  return parts;
}

static LogicalResult importSplit(Node &node) {
  const Tensor &t = node.input(0);
  FailureOr<int64_t> axis = node.axis(node.intAttr("axis", 0), t.rank());
  if (failed(axis))
    return failure();
  const Expr size = t.shape[*axis];
  int64_t count = node.numOutputs();
  if (node.hasAttr("num_outputs") && node.intAttr("num_outputs", 0) != count)
    return node.error() << "num_outputs is " << node.intAttr("num_outputs", 0) << ", but the node has " << count
                        << " outputs",
           failure();
  SmallVector<Expr> parts;
  if (node.version() < 13 && node.hasAttr("split")) {
    for (int64_t part : node.intsAttr("split").value_or(SmallVector<int64_t>()))
      parts.push_back(Expr(part));
  } else if (node.version() >= 13 && node.hasInput(1)) {
    std::optional<SmallVector<Expr>> given = exprsOfLength(node, 1, count);
    if (!given)
      return node.error() << "expects " << count << " split sizes, one an output", failure();
    parts = *given;
  } else {
    FailureOr<SmallVector<Expr>> equal = equalParts(node, size, count);
    if (failed(equal))
      return failure();
    parts = *equal;
  }
  if (int64_t(parts.size()) != count)
    return node.error() << "splits into " << parts.size() << " parts, but has " << count << " outputs", failure();
  Expr total(0);
  for (const Expr &part : parts) {
    if (failed(node.requireAtMost(Expr(0), part, "splits off a part of size {1}")))
      return failure();
    total = total + part;
  }
  if (failed(node.requireEqual(total, size, "parts of {0} rows in all split a dimension of size {1}")))
    return failure();
  Expr offset(0);
  for (auto [i, part] : llvm::enumerate(parts)) {
    if (node.hasOutput(i))
      node.setOutput(i, node.slice(t, *axis, offset, part));
    offset = offset + part;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Pad, Tile
//===----------------------------------------------------------------------===//

/// Source index of `i - before` in the modes that repeat the input; `size` >= 1.
static Value padIndex(OpBuilder &b, Location loc, llvm::StringRef mode, Value at, Value size) {
  Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
  if (mode == "edge") {
    Value last = arith::SubIOp::create(b, loc, size, one);
    return arith::MaxSIOp::create(b, loc, zero, arith::MinSIOp::create(b, loc, at, last));
  }
  auto positiveMod = [&](Value value, Value period) {
    Value rest = arith::RemSIOp::create(b, loc, value, period);
    Value negative = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, rest, zero);
    return arith::SelectOp::create(b, loc, negative, arith::AddIOp::create(b, loc, rest, period), rest).getResult();
  };
  if (mode == "wrap")
    return positiveMod(at, size);
  // reflect: a period of 2 (size - 1), the second half backwards.
  Value last = arith::SubIOp::create(b, loc, size, one);
  Value period = arith::MaxSIOp::create(b, loc, one, arith::AddIOp::create(b, loc, last, last));
  Value folded = positiveMod(at, period);
  Value mirrored = arith::SubIOp::create(b, loc, period, folded);
  return arith::MinSIOp::create(b, loc, last, arith::MinSIOp::create(b, loc, folded, mirrored));
}

namespace {
struct PadSpec {
  SmallVector<Expr> before, after; // one a dimension
  std::string mode;
  Tensor value; // of one element
};
} // namespace

static FailureOr<PadSpec> readPad(Node &node) {
  const Tensor &t = node.input(0);
  PadSpec spec;
  spec.before.assign(t.rank(), Expr(0));
  spec.after.assign(t.rank(), Expr(0));
  spec.mode = node.stringAttr("mode", "constant");
  if (spec.mode != "constant" && spec.mode != "reflect" && spec.mode != "edge" && spec.mode != "wrap")
    return node.error() << "mode '" << spec.mode << "' is none of constant, reflect, edge and wrap", failure();
  SmallVector<Expr> axes;
  for (int64_t dim = 0; dim < t.rank(); ++dim)
    axes.push_back(Expr(dim));
  std::optional<SmallVector<Expr>> pads;
  spec.value.dtype = t.dtype;
  spec.value.elements.emplace(1, isFloat(t.dtype) ? Scalar(0.0) : Scalar(Expr(0)));
  if (node.version() < 11) {
    if (std::optional<SmallVector<int64_t>> given = node.intsAttr("pads"))
      pads.emplace(given->begin(), given->end());
    if (node.hasAttr("value"))
      spec.value.elements->front() = Scalar(node.floatAttr("value", 0));
  } else {
    std::optional<SmallVector<Expr>> given = node.hasInput(3) ? node.exprs(3) : axes; // an input since 18
    if (given) {
      axes = *given;
      pads = exprsOfLength(node, 1, 2 * axes.size());
    } else { // any number of axes
      FailureOr<SmallVector<Expr>> spread = spreadByAxis(node, 1, 3, t.rank(), 0, /*parts=*/2);
      if (failed(spread))
        return failure();
      pads = *spread;
    }
    if (node.hasInput(2)) {
      spec.value = node.input(2);
      if (spec.value.dtype != t.dtype)
        return node.error() << "pads " << dtypeName(t.dtype) << " with " << dtypeName(spec.value.dtype), failure();
      for (const Expr &size : spec.value.shape)
        if (failed(node.requireEqual(size, Expr(1), "the padding value has a dimension of size {0}, not {1}")))
          return failure();
    }
  }
  if (!pads)
    return node.error() << "expects " << 2 * axes.size() << " pads for " << axes.size() << " axes", failure();
  if (pads->size() != 2 * axes.size())
    return node.error() << "has " << pads->size() << " pads for " << axes.size() << " axes", failure();
  Symbols &symbols = node.symbols();
  for (auto [i, given] : llvm::enumerate(axes)) {
    if (std::optional<int64_t> known = given.constant()) {
      FailureOr<int64_t> axis = node.axis(*known, t.rank());
      if (failed(axis))
        return failure();
      spec.before[*axis] = (*pads)[i];
      spec.after[*axis] = (*pads)[i + axes.size()];
      continue;
    }
    Expr axis = symbols.select(symbols.less(given, Expr(0)), given + Expr(t.rank()), given);
    if (failed(node.requireAtMost(Expr(0), axis, "axis {1} is before the first")) ||
        failed(node.requireAtMost(axis, Expr(t.rank() - 1), "axis {0} is beyond {1}")))
      return failure();
    for (int64_t dim = 0; dim < t.rank(); ++dim) {
      Expr here = symbols.equal(axis, Expr(dim));
      spec.before[dim] = symbols.select(here, (*pads)[i], spec.before[dim]);
      spec.after[dim] = symbols.select(here, (*pads)[i + axes.size()], spec.after[dim]);
    }
  }
  return spec;
}

static LogicalResult importPad(Node &node) {
  FailureOr<PadSpec> spec = readPad(node);
  if (failed(spec))
    return failure();
  Tensor t = node.input(0);
  Symbols &symbols = node.symbols();
  // Negative pads cut; then only padding is left to do.
  for (int64_t dim = 0; dim < t.rank(); ++dim) {
    Expr &before = spec->before[dim], &after = spec->after[dim];
    Expr cutBefore = symbols.max(Expr(0), Expr(0) - before), cutAfter = symbols.max(Expr(0), Expr(0) - after);
    before = symbols.max(Expr(0), before);
    after = symbols.max(Expr(0), after);
    if (cutBefore.is(0) && cutAfter.is(0))
      continue;
    Expr size = t.shape[dim] - cutBefore - cutAfter;
    if (failed(node.requireAtMost(Expr(0), size, "negative pads leave {1} elements of a dimension")))
      return failure();
    t = node.slice(t, dim, cutBefore, size);
  }
  SmallVector<Expr> shape;
  for (int64_t dim = 0; dim < t.rank(); ++dim)
    shape.push_back(spec->before[dim] + t.shape[dim] + spec->after[dim]);
  if (llvm::equal(shape, t.shape)) {
    node.setOutput(0, t);
    return success();
  }

  OpBuilder &b = node.builder();
  Location loc = node.loc();
  if (spec->mode == "constant") {
    Tensor value = spec->value;
    FailureOr<Tensor> scalar = node.reshape(value, {});
    if (failed(scalar))
      return failure();
    Value background = node.value(node.expand(*scalar, shape));
    // Nothing goes nowhere: its offset may be beyond the end, which insert_slice refuses.
    if (llvm::any_of(t.shape, [](const Expr &size) { return size.is(0); })) {
      node.setOutput(0, background, t.dtype, shape);
      return success();
    }
    SmallVector<OpFoldResult> offsets, sizes, strides(t.rank(), b.getIndexAttr(1));
    for (int64_t dim = 0; dim < t.rank(); ++dim) {
      offsets.push_back(symbols.size(b, loc, spec->before[dim]));
      sizes.push_back(symbols.size(b, loc, t.shape[dim]));
    }
    Value result = tensor::InsertSliceOp::create(b, loc, node.value(t), background, offsets, sizes, strides);
    node.setOutput(0, result, t.dtype, shape);
    return success();
  }
  SmallVector<Value> before, sizes;
  for (int64_t dim = 0; dim < t.rank(); ++dim) {
    if (spec->before[dim].is(0) && spec->after[dim].is(0)) {
      before.push_back({});
      sizes.push_back({});
      continue;
    }
    if (failed(node.requireAtMost(Expr(1), t.shape[dim],
                                  "mode '" + spec->mode + "' has nothing to pad dimension " + std::to_string(dim) +
                                      " of size {1} with; mode 'constant' has")))
      return failure();
    before.push_back(symbols.materialize(b, loc, spec->before[dim]));
    sizes.push_back(symbols.materialize(b, loc, t.shape[dim]));
  }
  Value source = node.value(t);
  Value result = node.generate(t.dtype, shape, [&](OpBuilder &b, Location loc, ValueRange indices) {
    SmallVector<Value> from(indices);
    for (auto [dim, index] : llvm::enumerate(from))
      if (before[dim])
        index = padIndex(b, loc, spec->mode, arith::SubIOp::create(b, loc, index, before[dim]), sizes[dim]);
    return tensor::ExtractOp::create(b, loc, source, from);
  });
  node.setOutput(0, result, t.dtype, shape);
  return success();
}

/// Dimension `dim` repeated, whatever stands around it.
static FailureOr<Tensor> repeatDim(Node &node, const Tensor &t, int64_t dim, const Expr &repeat) {
  ArrayRef<Expr> sizes(t.shape);
  Expr before = product(sizes.take_front(dim)), after = product(sizes.drop_front(dim + 1));
  FailureOr<Tensor> view = node.reshape(t, {before, Expr(1), sizes[dim], after});
  if (failed(view))
    return failure();
  SmallVector<Expr> shape(sizes);
  shape[dim] = sizes[dim] * repeat;
  return node.reshape(node.expand(*view, {before, repeat, sizes[dim], after}), shape);
}

/// Each repeated dimension becomes [repeats, size]: a broadcast, then a collapse. Where these are too many for one
/// tensor, one dimension is repeated after the other.
static LogicalResult importTile(Node &node) {
  const Tensor &t = node.input(0);
  std::optional<SmallVector<Expr>> repeats = exprsOfLength(node, 1, t.rank());
  if (!repeats)
    return node.error() << "expects " << t.rank() << " repeats, one a dimension", failure();
  SmallVector<Expr> apart, wide, shape;
  for (auto [size, repeat] : llvm::zip_equal(t.shape, *repeats)) {
    if (failed(node.requireAtMost(Expr(0), repeat, "repeats a dimension {1} times")))
      return failure();
    shape.push_back(size * repeat);
    if (!repeat.is(1) && !size.is(1)) {
      apart.push_back(Expr(1));
      wide.push_back(repeat);
    }
    apart.push_back(size);
    wide.push_back(size.is(1) ? repeat : size);
  }
  if (wide.size() > kMaxRank) {
    FailureOr<Tensor> repeated = t;
    for (int64_t dim = 0; succeeded(repeated) && dim < t.rank(); ++dim)
      if (!(*repeats)[dim].is(1))
        repeated = repeatDim(node, *repeated, dim, (*repeats)[dim]);
    if (failed(repeated))
      return failure();
    node.setOutput(0, *repeated);
    return success();
  }
  FailureOr<Tensor> view = node.reshape(t, apart);
  if (failed(view))
    return failure();
  FailureOr<Tensor> result = node.reshape(node.expand(*view, wide), shape);
  if (failed(result))
    return failure();
  node.setOutput(0, *result);
  return success();
}

void attn::onnx::registerDataMovementOps(OpRegistry &registry) {
  registry.add("Transpose", {1, 13, 21, 23, 24, 25}, importTranspose);
  registry.add("Concat", {1, 4, 11, 13}, importConcat);
  registry.add("Split", {2, 11, 13, 18}, importSplit);
  registry.add("Pad", {2, 11, 13, 18, 19, 21, 23, 24, 25}, importPad);
  registry.add("Tile", {6, 13}, importTile);
}
