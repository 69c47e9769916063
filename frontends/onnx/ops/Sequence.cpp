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

/// The tensor among `tensors` (of one rank, and any sizes) whose number is `at`, which is in bounds.
static std::optional<Tensor> chosenTensor(Node &node, ArrayRef<Tensor> tensors, const Expr &at) {
  Symbols &symbols = node.symbols();
  std::vector<Tensor> parts;
  SmallVector<Expr> shape(tensors[0].shape.begin(), tensors[0].shape.end());
  Expr offset(0), end(0);
  for (auto [number, tensor] : llvm::enumerate(tensors)) {
    if (tensor.rank() != int64_t(shape.size()))
      return node.unsupported() << "takes one of tensors of " << shape.size() << " and " << tensor.rank()
                                << " dimensions, and only the run knows which",
             std::nullopt;
    Expr isChosen = symbols.equal(at, Expr(int64_t(number))), count = product(tensor.shape);
    for (auto [size, own] : llvm::zip_equal(shape, tensor.shape))
      size = symbols.select(isChosen, own, size);
    offset = symbols.select(isChosen, end, offset);
    FailureOr<Tensor> flat = node.reshape(tensor, {count});
    if (failed(flat))
      return std::nullopt;
    parts.push_back(*flat);
    end = end + count;
  }
  FailureOr<Tensor> result =
      node.reshape(node.slice(concatenate(node, parts, 0, {end}), 0, offset, product(shape)), shape);
  if (failed(result))
    return std::nullopt;
  return *result;
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

/// The position in input `i` among the `count` items of a sequence, from the front; nullopt after an error.
static std::optional<Expr> itemPosition(Node &node, size_t i, const Expr &count, bool orEnd) {
  std::optional<SmallVector<Expr>> position = node.exprs(i);
  if (!position || position->size() != 1)
    return node.error() << "expects one position", std::nullopt;
  Expr given = position->front(), at = node.symbols().select(node.symbols().less(given, 0), given + count, given);
  if (failed(node.requireAtMost(Expr(0) - count, given, "position {1} is before the front of the sequence")))
    return std::nullopt;
  LogicalResult isInside =
      orEnd ? node.requireAtMost(given, count, "inserts behind item {0} (from 1) of a sequence of {1}")
            : node.requireAtMost(given + Expr(1), count, "takes item {0} (from 1) of a sequence of {1}");
  if (failed(isInside))
    return std::nullopt;
  return at;
}

/// The same for a sequence that is changed there.
static std::optional<Expr> changedPosition(Node &node, size_t i, const Sequence &sequence, bool orEnd) {
  if (sequence.stack)
    return node.unsupported() << "changes a sequence that a loop made other than at its end", std::nullopt;
  return itemPosition(node, i, Expr(int64_t(sequence.items.size())), orEnd);
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
  int64_t count = sequence.items.size();
  std::optional<Expr> at = Expr(count);
  if (node.hasInput(2) && !(at = changedPosition(node, 2, sequence, /*orEnd=*/true)))
    return failure();
  if (std::optional<int64_t> known = at->constant()) {
    sequence.items.insert(sequence.items.begin() + *known, item);
    setSequence(node, std::move(sequence));
    return success();
  }
  Symbols &symbols = node.symbols();
  std::vector<Tensor> items;
  for (int64_t i = 0; i <= count; ++i) {
    std::vector<Tensor> candidates; // where the position is behind i, i, and before it
    if (i < count)
      candidates.push_back(source->items[i]);
    int64_t own = candidates.size();
    candidates.push_back(item);
    if (i > 0)
      candidates.push_back(source->items[i - 1]);
    Expr which = symbols.select(symbols.less(i, *at), 0, symbols.select(symbols.equal(*at, i), own, own + 1));
    std::optional<Tensor> chosen = chosenTensor(node, candidates, which);
    if (!chosen)
      return failure();
    items.push_back(*chosen);
  }
  sequence.items = std::move(items);
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
  std::optional<Expr> at = Expr(int64_t(sequence.items.size()) - 1);
  if (node.hasInput(1) && !(at = changedPosition(node, 1, sequence, /*orEnd=*/false)))
    return failure();
  if (std::optional<int64_t> known = at->constant()) {
    sequence.items.erase(sequence.items.begin() + *known);
    setSequence(node, std::move(sequence));
    return success();
  }
  sequence.items.pop_back();
  for (auto [i, item] : llvm::enumerate(sequence.items)) {
    Expr isAfter = node.symbols().less(*at, Expr(int64_t(i) + 1));
    std::optional<Tensor> chosen = chosenTensor(node, {source->items[i], source->items[i + 1]}, isAfter);
    if (!chosen)
      return failure();
    item = *chosen;
  }
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
  if (!sequence)
    return failure();
  Expr count = sequence->length + Expr(int64_t(sequence->items.size()));
  std::optional<Expr> at = itemPosition(node, 1, count, /*orEnd=*/false);
  if (!at)
    return failure();
  if (!sequence->stack && !sequence->items.empty()) {
    std::optional<int64_t> known = at->constant();
    std::optional<Tensor> item = known ? sequence->items[*known] : chosenTensor(node, sequence->items, *at);
    if (!item)
      return failure();
    node.setOutput(0, *item);
    return success();
  }
  std::optional<Tensor> stack = stackSequence(node, *sequence);
  if (!stack)
    return failure();
  Tensor row = node.slice(*stack, 0, *at, Expr(1));
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
    node.enterIteration(Expr(static_cast<int64_t>(at)));
    FailureOr<std::vector<Tensor>> outputs = node.importSubgraph(*body, inputs);
    node.leaveIteration();
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
