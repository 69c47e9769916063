#include "frontends/onnx/Graph.h"
#include "frontends/onnx/LoopImport.h"
#include "frontends/onnx/ops/Concatenate.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn::onnx;

// A sequence exists at import only: a list of tensors, behind a stack of those
// that a loop gathered.

static void setSequence(Node &node, Sequence sequence) {
  Tensor t;
  t.sequence = std::make_shared<const Sequence>(std::move(sequence));
  node.setOutput(0, std::move(t));
}

/// `t` with a dimension of size 1 at `dim`.
static FailureOr<Tensor> withUnit(Node &node, const Tensor &t, int64_t dim) {
  SmallVector<Expr> shape(t.shape.begin(), t.shape.end());
  shape.insert(shape.begin() + dim, Expr(1));
  return node.reshape(t, shape);
}

std::optional<Tensor> attn::onnx::stackSequence(Node &node, const Sequence &sequence) {
  std::vector<Tensor> parts;
  if (sequence.stack) {
    SmallVector<Expr> shape{sequence.length};
    shape.append(sequence.element->begin(), sequence.element->end());
    parts.push_back(frontOf(node, sequence.stack, sequence.dtype, shape));
  }
  for (const Tensor &item : sequence.items) {
    FailureOr<Tensor> row = withUnit(node, item, 0);
    if (failed(row))
      return std::nullopt;
    parts.push_back(*row);
  }
  if (parts.empty())
    return node.unsupported() << "uses the tensors of a sequence that is known to be empty", std::nullopt;
  SmallVector<Expr> shape(parts[0].shape.begin(), parts[0].shape.end());
  for (const Tensor &part : ArrayRef(parts).drop_front()) {
    if (part.rank() != int64_t(shape.size()))
      return node.error() << "stacks tensors of " << shape.size() - 1 << " and " << part.rank() - 1 << " dimensions",
             std::nullopt;
    shape[0] = shape[0] + part.shape[0];
    for (size_t n = 1; n < shape.size(); ++n) {
      std::optional<int64_t> size = shape[n].constant(), other = part.shape[n].constant();
      if (size && other && *size != *other)
        return node.unsupported() << "stacks tensors of sizes " << *size << " and " << *other, std::nullopt;
      if (failed(node.requireEqual(shape[n], part.shape[n], "stacks tensors of sizes {0} and {1}")))
        return std::nullopt;
    }
  }
  return concatenate(node, parts, 0, shape);
}

//===----------------------------------------------------------------------===//
// Making sequences
//===----------------------------------------------------------------------===//

static LogicalResult importSequenceEmpty(Node &node) {
  int64_t type = node.intAttr("dtype", 1);
  std::optional<DType> dtype = dtypeFromProto(type);
  if (!dtype)
    return node.unsupported() << "makes a sequence of element type " << type, failure();
  Sequence sequence;
  sequence.dtype = *dtype;
  setSequence(node, std::move(sequence));
  return success();
}

static LogicalResult importSequenceConstruct(Node &node) {
  Sequence sequence;
  for (size_t i = 0; i < node.numInputs(); ++i) {
    sequence.items.push_back(node.input(i));
    if (sequence.items[i].dtype != sequence.items[0].dtype)
      return node.error() << "makes a sequence of " << dtypeName(sequence.items[0].dtype) << " and "
                          << dtypeName(sequence.items[i].dtype),
             failure();
  }
  if (sequence.items.empty())
    return node.error() << "has no inputs", failure();
  sequence.dtype = sequence.items[0].dtype;
  setSequence(node, std::move(sequence));
  return success();
}

/// The position in input `i` among the items of a sequence, from the front;
/// nullopt after an error.
static std::optional<int64_t> itemPosition(Node &node, size_t i, const Sequence &sequence, bool orEnd) {
  std::optional<SmallVector<int64_t>> position = node.constantInts(i);
  if (!position || position->size() != 1)
    return node.unsupported() << "takes a position that is not known at import", std::nullopt;
  int64_t count = sequence.items.size(), at = (*position)[0];
  if (sequence.stack)
    return node.unsupported() << "changes a sequence that a loop made other than at its end", std::nullopt;
  if (at < -count || at > (orEnd ? count : count - 1))
    return node.error() << "position " << at << " is outside of a sequence of " << count, std::nullopt;
  return at < 0 ? at + count : at;
}

static LogicalResult importSequenceInsert(Node &node) {
  const Sequence *source = node.sequence(0);
  if (!source)
    return failure();
  Sequence sequence = *source;
  const Tensor &item = node.input(1);
  if (item.dtype != sequence.dtype)
    return node.error() << "inserts " << dtypeName(item.dtype) << " into a sequence of " << dtypeName(sequence.dtype),
           failure();
  int64_t at = sequence.items.size();
  if (node.hasInput(2)) {
    std::optional<int64_t> position = itemPosition(node, 2, sequence, /*orEnd=*/true);
    if (!position)
      return failure();
    at = *position;
  }
  sequence.items.insert(sequence.items.begin() + at, item);
  setSequence(node, std::move(sequence));
  return success();
}

static LogicalResult importSequenceErase(Node &node) {
  const Sequence *source = node.sequence(0);
  if (!source)
    return failure();
  Sequence sequence = *source;
  if (sequence.items.empty())
    return node.unsupported() << "erases from a sequence whose end is not known at import", failure();
  int64_t at = sequence.items.size() - 1;
  if (node.hasInput(1)) {
    std::optional<int64_t> position = itemPosition(node, 1, sequence, /*orEnd=*/false);
    if (!position)
      return failure();
    at = *position;
  }
  sequence.items.erase(sequence.items.begin() + at);
  setSequence(node, std::move(sequence));
  return success();
}

/// Rows `[begin, begin + size)` of dimension `axis`, each an item.
static LogicalResult splitEvenly(Node &node, const Tensor &t, int64_t axis, ArrayRef<Expr> sizes, bool keepDims) {
  Sequence sequence;
  sequence.dtype = t.dtype;
  Expr begin(0);
  for (const Expr &size : sizes) {
    Tensor item = node.slice(t, axis, begin, size);
    begin = begin + size;
    if (!keepDims) {
      SmallVector<Expr> shape(item.shape.begin(), item.shape.end());
      shape.erase(shape.begin() + axis);
      FailureOr<Tensor> view = node.reshape(item, shape);
      if (failed(view))
        return failure();
      item = *view;
    }
    sequence.items.push_back(std::move(item));
  }
  setSequence(node, std::move(sequence));
  return success();
}

static LogicalResult importSplitToSequence(Node &node) {
  const Tensor &t = node.input(0);
  FailureOr<int64_t> axis = node.axis(node.intAttr("axis", 0), t.rank());
  if (failed(axis))
    return failure();
  bool hasSplit = node.hasInput(1), keepDims = hasSplit || node.intAttr("keepdims", 1) != 0;
  std::optional<int64_t> extent = t.shape[*axis].constant();
  SmallVector<Expr> sizes;
  if (hasSplit && node.input(1).rank() == 1) {
    std::optional<SmallVector<Expr>> given = node.exprs(1);
    if (!given)
      return node.unsupported() << "splits into a number of tensors that is not known at import", failure();
    sizes = *given;
    Expr total(0);
    for (const Expr &size : sizes) {
      if (failed(node.requireAtMost(Expr(0), size, "splits off {1} rows")))
        return failure();
      total = total + size;
    }
    if (failed(node.requireEqual(total, t.shape[*axis], "splits {0} rows of a dimension of size {1}")))
      return failure();
    return splitEvenly(node, t, *axis, sizes, keepDims);
  }
  std::optional<SmallVector<int64_t>> chunk = SmallVector<int64_t>{1};
  if (hasSplit)
    chunk = node.constantInts(1);
  if (!chunk || chunk->size() != 1)
    return node.unsupported() << "splits into sizes that are not known at import", failure();
  if ((*chunk)[0] <= 0)
    return node.error() << "splits into parts of " << (*chunk)[0] << " rows", failure();
  if (extent && *extent / (*chunk)[0] <= 4096) {
    for (int64_t begin = 0; begin < *extent; begin += (*chunk)[0])
      sizes.push_back(Expr(std::min((*chunk)[0], *extent - begin)));
    return splitEvenly(node, t, *axis, sizes, keepDims);
  }
  if ((*chunk)[0] != 1)
    return node.unsupported() << "splits a dimension whose size is not known at import into parts of " << (*chunk)[0],
           failure();
  // Any number of rows: the stack is the tensor itself, `axis` in front.
  SmallVector<int64_t> order{*axis};
  for (int64_t n = 0; n < t.rank(); ++n)
    if (n != *axis)
      order.push_back(n);
  Tensor front = node.transpose(t, order);
  Sequence sequence;
  sequence.dtype = t.dtype;
  sequence.length = t.shape[*axis];
  sequence.element.emplace(front.shape.begin() + 1, front.shape.end());
  if (keepDims) {
    sequence.element->insert(sequence.element->begin() + *axis, Expr(1));
    SmallVector<Expr> shape{sequence.length};
    shape.append(sequence.element->begin(), sequence.element->end());
    FailureOr<Tensor> view = node.reshape(front, shape);
    if (failed(view))
      return failure();
    front = *view;
  }
  sequence.stack = node.value(front);
  setSequence(node, std::move(sequence));
  return success();
}

//===----------------------------------------------------------------------===//
// Using sequences
//===----------------------------------------------------------------------===//

static LogicalResult importSequenceLength(Node &node) {
  const Sequence *sequence = node.sequence(0);
  if (!sequence)
    return failure();
  Expr count = sequence->length + Expr(int64_t(sequence->items.size()));
  node.setElements(0, DType::I64, {}, {Scalar(count)});
  return success();
}

static LogicalResult importSequenceAt(Node &node) {
  const Sequence *sequence = node.sequence(0);
  std::optional<SmallVector<Expr>> position = node.exprs(1);
  if (!sequence)
    return failure();
  if (!position || position->size() != 1)
    return node.error() << "expects one position", failure();
  Expr at = (*position)[0];
  if (!sequence->stack && at.constant()) {
    std::optional<int64_t> item = itemPosition(node, 1, *sequence, /*orEnd=*/false);
    if (!item)
      return failure();
    node.setOutput(0, sequence->items[*item]);
    return success();
  }
  std::optional<Tensor> stack = stackSequence(node, *sequence);
  if (!stack)
    return failure();
  Symbols &symbols = node.symbols();
  Expr length = stack->shape[0];
  at = symbols.select(symbols.less(at, Expr(0)), at + length, at);
  if (failed(node.requireAtMost(Expr(0), at, "position {1} is before the front of the sequence")) ||
      failed(node.requireAtMost(at + Expr(1), length, "takes item {0} (from 1) of a sequence of {1}")))
    return failure();
  Tensor row = node.slice(*stack, 0, at, Expr(1));
  FailureOr<Tensor> item = node.reshape(row, ArrayRef<Expr>(row.shape).drop_front());
  if (failed(item))
    return failure();
  node.setOutput(0, *item);
  return success();
}

static LogicalResult importConcatFromSequence(Node &node) {
  const Sequence *sequence = node.sequence(0);
  if (!sequence)
    return failure();
  bool newAxis = node.intAttr("new_axis", 0) != 0;
  if (!node.hasAttr("axis"))
    return node.error() << "has no axis", failure();
  if (!newAxis && !sequence->stack && !sequence->items.empty()) {
    // The items may differ in the axis.
    ArrayRef<Tensor> items = sequence->items;
    FailureOr<int64_t> axis = node.axis(node.intAttr("axis", 0), items[0].rank());
    if (failed(axis))
      return failure();
    SmallVector<Expr> shape(items[0].shape.begin(), items[0].shape.end());
    for (const Tensor &item : items.drop_front()) {
      if (item.rank() != items[0].rank())
        return node.error() << "concatenates tensors of " << items[0].rank() << " and " << item.rank() << " dimensions",
               failure();
      for (int64_t n = 0; n < item.rank(); ++n) {
        if (n == *axis)
          shape[n] = shape[n] + item.shape[n];
        else if (failed(node.requireEqual(shape[n], item.shape[n], "concatenates dimensions of sizes {0} and {1}")))
          return failure();
      }
    }
    node.setOutput(0, concatenate(node, items, *axis, shape));
    return success();
  }
  std::optional<Tensor> stack = stackSequence(node, *sequence);
  if (!stack)
    return failure();
  FailureOr<int64_t> axis = node.axis(node.intAttr("axis", 0), newAxis ? stack->rank() : stack->rank() - 1);
  if (failed(axis))
    return failure();
  // The new dimension moves to the axis, and merges with what is there.
  SmallVector<int64_t> order;
  for (int64_t n = 1; n < stack->rank(); ++n)
    order.push_back(n);
  order.insert(order.begin() + *axis, 0);
  Tensor moved = node.transpose(*stack, order);
  if (!newAxis) {
    SmallVector<Expr> shape(moved.shape.begin(), moved.shape.end());
    shape[*axis] = shape[*axis] * shape[*axis + 1];
    shape.erase(shape.begin() + *axis + 1);
    FailureOr<Tensor> merged = node.reshape(moved, shape);
    if (failed(merged))
      return failure();
    moved = *merged;
  }
  node.setOutput(0, moved);
  return success();
}

//===----------------------------------------------------------------------===//
// Optionals
//===----------------------------------------------------------------------===//

/// An optional that has a value is this value.
static LogicalResult passValue(Node &node) {
  if (node.isSequence(0)) {
    setSequence(node, *node.sequence(0));
    return success();
  }
  if (!node.hasInput(0))
    return node.unsupported() << "an optional without a value", failure();
  node.setOutput(0, node.input(0));
  return success();
}

static LogicalResult importOptionalHasElement(Node &node) {
  node.setElements(0, DType::Bool, {}, {Scalar(Expr(static_cast<int64_t>(node.hasInput(0))))});
  return success();
}

//===----------------------------------------------------------------------===//
// SequenceMap
//===----------------------------------------------------------------------===//

/// The body once an item: what the operator's function says with a loop.
static LogicalResult importSequenceMap(Node &node) {
  const Subgraph *body = node.subgraph("body");
  const Sequence *first = node.sequence(0);
  if (!body || !first)
    return failure();
  for (size_t i = 0; i < node.numInputs(); ++i) {
    if (!node.isSequence(i))
      continue;
    const Sequence &sequence = *node.sequence(i);
    if (sequence.stack)
      return node.unsupported() << "maps a sequence whose length is not known at import", failure();
    if (sequence.items.size() != first->items.size())
      return node.error() << "maps sequences of " << first->items.size() << " and " << sequence.items.size()
                          << " tensors",
             failure();
  }
  if (first->items.empty())
    return node.unsupported() << "maps a sequence that is known to be empty", failure();
  std::vector<Sequence> results(node.numOutputs());
  for (size_t at = 0; at < first->items.size(); ++at) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < node.numInputs(); ++i)
      inputs.push_back(node.isSequence(i) ? node.sequence(i)->items[at] : node.input(i));
    FailureOr<std::vector<Tensor>> outputs = node.importSubgraph(*body, inputs);
    if (failed(outputs))
      return failure();
    if (outputs->size() < results.size())
      return node.error() << "has " << results.size() << " outputs, its body " << outputs->size(), failure();
    for (auto [n, result] : llvm::enumerate(results)) {
      if ((*outputs)[n].sequence)
        return node.error() << "output " << n << " of its body is a sequence", failure();
      result.dtype = (*outputs)[n].dtype;
      result.items.push_back((*outputs)[n]);
    }
  }
  for (auto [n, result] : llvm::enumerate(results)) {
    Tensor t;
    t.sequence = std::make_shared<const Sequence>(std::move(result));
    node.setOutput(n, std::move(t));
  }
  return success();
}

void attn::onnx::registerSequenceOps(OpRegistry &registry) {
  registry.add("SequenceEmpty", {11}, importSequenceEmpty);
  registry.add("SequenceConstruct", {11}, importSequenceConstruct);
  registry.add("SequenceInsert", {11}, importSequenceInsert);
  registry.add("SequenceErase", {11}, importSequenceErase);
  registry.add("SequenceAt", {11}, importSequenceAt);
  registry.add("SequenceLength", {11}, importSequenceLength);
  registry.add("ConcatFromSequence", {11}, importConcatFromSequence);
  registry.add("SequenceMap", {17}, importSequenceMap);
  registry.add("SplitToSequence", {11, 24}, importSplitToSequence);
  registry.add("Optional", {15, 28}, passValue);
  registry.add("OptionalHasElement", {15, 18, 28}, importOptionalHasElement);
  registry.add("OptionalGetElement", {15, 18, 28}, passValue);
}
