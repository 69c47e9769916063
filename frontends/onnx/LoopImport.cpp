#include "frontends/onnx/LoopImport.h"
#include "dialects/attn/LoopOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

//===----------------------------------------------------------------------===//
// Into and out of the body
//===----------------------------------------------------------------------===//

Tensor LoopImport::slice(const Scanned &input) {
  OpBuilder &b = node.builder();
  const Tensor &t = input.tensor;
  SmallVector<Expr> shape(t.shape.begin(), t.shape.end());
  SmallVector<OpFoldResult> sizes = sizesOf(node, shape);
  SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0)), strides(shape.size(), b.getIndexAttr(1));
  Expr at = input.isReversed ? *trips - Expr(1) - iteration : iteration;
  offsets[input.axis] = node.symbols().size(b, node.loc(), at);
  sizes[input.axis] = b.getIndexAttr(1);
  shape.erase(shape.begin() + input.axis);
  Tensor result;
  result.dtype = t.dtype;
  result.shape.assign(shape.begin(), shape.end());
  result.value =
      tensor::ExtractSliceOp::create(b, node.loc(), node.type(t.dtype, shape), t.value, offsets, sizes, strides);
  return result;
}

LogicalResult LoopImport::readCondition(const Tensor &out) {
  if (out.sequence || out.dtype != DType::Bool || out.rank() > 1)
    return node.error() << "expects the body's first output to be one bool", failure();
  if (out.rank() == 1 && failed(node.requireEqual(out.shape[0], Expr(1), "the condition has {0} elements, not {1}")))
    return failure();
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  std::optional<Scalar> known = out.scalar();
  counts = trips && known && std::get<Expr>(*known).is(1);
  if (counts)
    return success();
  SmallVector<Value> zeros;
  if (out.rank() == 1)
    zeros.push_back(arith::ConstantIndexOp::create(b, loc, 0));
  Value bit = tensor::ExtractOp::create(b, loc, node.value(out), zeros);
  Value zero = arith::ConstantOp::create(b, loc, b.getIntegerAttr(bit.getType(), 0));
  goesOn = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bit, zero);
  bool isShort = trips && trips->constant() && *trips->constant() <= node.maxLoopIterations();
  if (isShort)
    return success();
  return node.requireAtMost(iteration + Expr(1), Expr(node.maxLoopIterations()),
                            "runs {0} iterations, the limit is {1} (--max-loop-iterations)");
}

LogicalResult LoopImport::gather(Gathered &output, const Tensor &out) {
  OpBuilder &b = node.builder();
  if (out.sequence)
    return node.unsupported() << "gathers sequences", failure();
  if (output.axis < -(out.rank() + 1) || output.axis > out.rank())
    return node.error() << "gathers values of " << out.rank() << " dimensions along axis " << output.axis, failure();
  int64_t axis = output.axis < 0 ? output.axis + out.rank() + 1 : output.axis;
  output.dtype = out.dtype;
  output.shape.clear();
  output.varies.clear();
  for (const Expr &size : out.shape) {
    output.shape.push_back(node.symbols().simplify(size));
    output.varies.push_back(!node.symbols().outlivesHome(output.shape.back()));
  }
  if (output.isFlat()) {
    output.axis = axis;
    return gatherFlat(output, out);
  }
  SmallVector<OpFoldResult> sizes = sizesOf(node, output.shape);
  SmallVector<OpFoldResult> offsets(sizes.size() + 1, b.getIndexAttr(0)), strides(sizes.size() + 1, b.getIndexAttr(1));
  sizes.insert(sizes.begin() + axis, b.getIndexAttr(1));
  Value value = castTo(node, node.value(out), node.type(out.dtype, output.shape));
  output.shape.insert(output.shape.begin() + axis, counts ? *trips : Expr::overflow());
  output.axis = axis;
  Value buffer = block->addArgument(node.type(out.dtype, output.shape), node.loc());
  if (!counts) {
    Value wanted = node.symbols().materialize(b, node.loc(), iteration + Expr(1));
    buffer = GrowOp::create(b, node.loc(), buffer.getType(), buffer, wanted, axis);
  }
  Expr at = output.isReversed ? *trips - Expr(1) - iteration : iteration;
  offsets[axis] = node.symbols().size(b, node.loc(), at);
  output.yielded = tensor::InsertSliceOp::create(b, node.loc(), value, buffer, offsets, sizes, strides);
  return success();
}

LogicalResult LoopImport::gatherFlat(Gathered &output, const Tensor &out) {
  if (output.isReversed)
    return node.unsupported() << "gathers values whose size only the body knows, the last one in front", failure();
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  Expr count = product(out.shape);
  FailureOr<Tensor> flat = node.reshape(out, {count});
  if (failed(flat))
    return failure();
  Value buffer = block->addArgument(node.type(out.dtype, {Expr::overflow()}), loc);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value isFirst =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, node.symbols().materialize(b, loc, iteration), zero);
  output.sizes.clear();
  for (auto [size, varies] : llvm::zip_equal(out.shape, output.varies)) {
    if (!varies)
      continue;
    Value before = block->addArgument(b.getIndexType(), loc), now = node.symbols().materialize(b, loc, size);
    Value same = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, before, now);
    node.require(arith::OrIOp::create(b, loc, isFirst, same),
                 "gathers a value of another shape than in the iteration before");
    output.sizes.push_back(now);
  }
  Value end = node.symbols().materialize(b, loc, (iteration + Expr(1)) * count);
  buffer = GrowOp::create(b, loc, buffer.getType(), buffer, end, 0);
  SmallVector<OpFoldResult> offsets{node.symbols().size(b, loc, iteration * count)}, sizes = sizesOf(node, {count});
  SmallVector<OpFoldResult> strides{b.getIndexAttr(1)};
  output.yielded = tensor::InsertSliceOp::create(b, loc, node.value(*flat), buffer, offsets, sizes, strides);
  return success();
}

/// The output of what gatherFlat gathered: the buffer and the sizes of a value.
FailureOr<Tensor> LoopImport::unflatten(const Gathered &output, ValueRange results) {
  SmallVector<Expr> shape{ran};
  unsigned next = 1;
  for (auto [size, varies] : llvm::zip_equal(output.shape, output.varies))
    shape.push_back(varies ? node.symbols().opaque(results[next++], 0) : size);
  FailureOr<Tensor> rows = node.reshape(frontOf(node, results[0], output.dtype, {product(shape)}), shape);
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(1, shape.size()));
  order.insert(order.begin() + output.axis, 0);
  return failed(rows) || output.axis == 0 ? rows : FailureOr<Tensor>(node.transpose(*rows, order));
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

/// Whether the loop goes on, if the import knows.
static std::optional<bool> knownCondition(const Tensor &condition) {
  std::optional<Scalar> scalar = condition.scalar();
  const Expr *known = scalar && condition.dtype == DType::Bool ? std::get_if<Expr>(&*scalar) : nullptr;
  std::optional<int64_t> constant = known ? known->constant() : std::nullopt;
  return constant ? std::optional(*constant != 0) : std::nullopt;
}

LogicalResult LoopImport::leaveBody(MutableArrayRef<Tensor> outputs, bool &fits) {
  size_t front = condition ? 1 : 0;
  if (outputs.size() != front + carried.size() + gathered.size())
    return node.error() << "has a body of " << outputs.size() << " outputs, expected "
                        << front + carried.size() + gathered.size(),
           failure();
  isEndKnown = !condition || knownCondition(outputs[0]) == true;
  for (auto [n, value] : llvm::enumerate(carried))
    if (failed(fit(value, outputs[front + n], fits)))
      return failure();
  if (!fits)
    return success();
  counts = true;
  if (condition && failed(readCondition(outputs[0])))
    return failure();
  for (auto [n, value] : llvm::enumerate(carried))
    if (failed(leave(value, outputs[front + n], outputs)))
      return failure();
  for (auto [n, output] : llvm::enumerate(gathered))
    if (failed(gather(output, outputs[front + carried.size() + n])))
      return failure();
  return success();
}

LogicalResult LoopImport::attempt(bool &fits) {
  for (Carried &value : carried)
    if (failed(prepare(value)))
      return failure();
  region = node.enterRegion();
  block = &region->getRegion(0).front();
  iteration = node.symbols().opaque(block->addArgument(node.builder().getIndexType(), node.loc()), 0);
  PollOp::create(node.builder(), node.loc());
  node.enterIteration(iteration);
  std::vector<Tensor> inputs;
  if (condition) {
    Tensor number, go;
    number.dtype = DType::I64;
    number.elements.emplace(1, Scalar(iteration));
    go.dtype = DType::Bool;
    go.elements.emplace(1, Scalar(Expr(1)));
    inputs = {number, go};
  }
  LogicalResult result = success();
  for (Carried &value : carried) {
    result = succeeded(result) ? enter(value) : result;
    inputs.push_back(value.inside);
  }
  for (const Scanned &input : scanned)
    inputs.push_back(slice(input));
  if (succeeded(result)) {
    FailureOr<std::vector<Tensor>> outputs = body(inputs);
    fits = true;
    result = failed(outputs) ? failure() : leaveBody(*outputs, fits);
  }
  node.leaveIteration();
  node.leaveRegion(region);
  return result;
}

/// What an output that gathers starts with, and what an iteration hands on.
void LoopImport::initGathered(const Gathered &output, SmallVectorImpl<Value> &inits, SmallVectorImpl<Value> &yielded) {
  yielded.push_back(output.yielded);
  if (output.isFlat()) {
    SmallVector<Expr> shape{Expr(kFirstRows)};
    inits.push_back(toBuffer(node, node.empty(output.dtype, shape), output.dtype, shape, 0));
    inits.append(output.sizes.size(), arith::ConstantIndexOp::create(node.builder(), node.loc(), 0));
    llvm::append_range(yielded, output.sizes);
    return;
  }
  SmallVector<Expr> shape = output.shape;
  if (counts) {
    inits.push_back(node.empty(output.dtype, shape));
    return;
  }
  shape[output.axis] = Expr(kFirstRows);
  inits.push_back(toBuffer(node, node.empty(output.dtype, shape), output.dtype, shape, output.axis));
}

/// Sizes that the body has are those of its operands, which may be too short for it: it says so only if it runs.
LogicalResult LoopImport::requireRows() {
  Symbols &symbols = node.symbols();
  const Expr zero(0);
  Expr runs = condition.value_or(Expr(1));
  if (trips)
    runs = symbols.select(symbols.equal(*trips, zero), zero, runs);
  for (Gathered &output : gathered)
    for (auto [n, size] : llvm::enumerate(output.shape)) {
      bool isOwn = output.isFlat() ? !output.varies[n] : static_cast<int64_t>(n) != output.axis;
      if (!isOwn || symbols.isLess(size, zero) == false)
        continue;
      if (failed(node.requireAtMost(zero, symbols.select(runs, size, zero),
                                    "gathers values that have a dimension of size {1}")))
        return failure();
      size = symbols.max(size, zero);
    }
  return success();
}

ValueRange LoopImport::makeFor() {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  Expr count = condition ? node.symbols().select(*condition, *trips, Expr(0)) : *trips;
  Value upper = node.symbols().materialize(b, loc, count);
  SmallVector<Value> inits, yielded;
  for (Carried &value : carried) {
    llvm::append_range(inits, value.inits);
    llvm::append_range(yielded, value.yielded);
  }
  for (Gathered &output : gathered)
    initGathered(output, inits, yielded);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
  auto loop = scf::ForOp::create(b, loc, zero, upper, one, inits);
  loop.getRegion().takeBody(region->getRegion(0));
  region->erase();
  OpBuilder inner = OpBuilder::atBlockEnd(loop.getBody());
  scf::YieldOp::create(inner, loc, yielded);
  ran = count;
  return loop.getResults();
}

ValueRange LoopImport::makeWhile() {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value starts =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, node.symbols().materialize(b, loc, *condition), zero);
  Value upper = trips ? node.symbols().materialize(b, loc, *trips) : Value();
  SmallVector<Value> inits{zero, starts}, yielded;
  for (Carried &value : carried) {
    llvm::append_range(inits, value.inits);
    llvm::append_range(yielded, value.yielded);
  }
  for (Gathered &output : gathered)
    initGathered(output, inits, yielded);
  SmallVector<Type> results(ValueRange(inits).getTypes());
  results.erase(results.begin() + 1);
  auto loop = scf::WhileOp::create(b, loc, results, inits);
  OpBuilder inner(b.getContext());
  Block *before = inner.createBlock(&loop.getBefore());
  for (Value init : inits)
    before->addArgument(init.getType(), loc);
  Value go = before->getArgument(1);
  if (upper) {
    Value more = arith::CmpIOp::create(inner, loc, arith::CmpIPredicate::slt, before->getArgument(0), upper);
    go = arith::AndIOp::create(inner, loc, go, more);
  }
  SmallVector<Value> forwarded(before->getArguments());
  forwarded.erase(forwarded.begin() + 1);
  scf::ConditionOp::create(inner, loc, go, forwarded);
  loop.getAfter().takeBody(region->getRegion(0));
  region->erase();
  inner.setInsertionPointToEnd(&loop.getAfter().front());
  Value one = arith::ConstantIndexOp::create(inner, loc, 1);
  yielded.insert(yielded.begin(), {arith::AddIOp::create(inner, loc, loop.getAfterArguments()[0], one), goesOn});
  scf::YieldOp::create(inner, loc, yielded);
  ran = node.symbols().opaque(loop.getResult(0), 0);
  return loop.getResults().drop_front();
}

FailureOr<std::vector<Tensor>> LoopImport::outputsOf(ValueRange results) {
  std::vector<Tensor> outputs;
  for (Carried &value : carried) {
    ValueRange mine = results.take_front(value.inits.size());
    results = results.drop_front(value.inits.size());
    auto size = [&](unsigned at) { return node.symbols().opaque(mine[at], 0); };
    Tensor result;
    result.dtype = value.init.dtype;
    result.shape = value.init.shape;
    switch (value.mode) {
    case Carried::Fixed:
      result.value = mine[0];
      break;
    case Carried::Append:
      result.shape[value.dim] = size(1);
      result = frontOf(node, mine[0], result.dtype, result.shape);
      break;
    case Carried::Flat: {
      unsigned next = 1;
      for (auto [extent, varies] : llvm::zip_equal(result.shape, value.varies))
        if (varies)
          extent = size(next++);
      FailureOr<Tensor> view =
          node.reshape(frontOf(node, mine[0], result.dtype, {product(result.shape)}), result.shape);
      if (failed(view))
        return failure();
      result = *view;
      break;
    }
    case Carried::Stack: {
      auto sequence = std::make_shared<Sequence>();
      sequence->dtype = value.init.sequence->dtype;
      sequence->element = value.element;
      if (value.element) {
        sequence->length = size(0);
        sequence->stack = mine[1];
      }
      result.sequence = std::move(sequence);
    }
    }
    outputs.push_back(std::move(result));
  }
  for (Gathered &output : gathered) {
    ValueRange mine = results.take_front(1 + output.sizes.size());
    results = results.drop_front(mine.size());
    if (output.isFlat()) {
      FailureOr<Tensor> rows = unflatten(output, mine);
      if (failed(rows))
        return failure();
      outputs.push_back(*rows);
      continue;
    }
    SmallVector<Expr> shape = output.shape;
    shape[output.axis] = ran;
    Tensor result;
    if (counts && ran == *trips) {
      result.dtype = output.dtype;
      result.shape.assign(shape.begin(), shape.end());
      result.value = mine[0];
    } else {
      result = frontOf(node, mine[0], output.dtype, shape);
    }
    outputs.push_back(std::move(result));
  }
  return outputs;
}

/// A loop that surely runs a small number of times, if nothing ends it before, and whose `sequence` is known by items.
bool LoopImport::canUnroll(const Carried &sequence) const {
  constexpr int64_t kMostCopies = 64;
  std::optional<int64_t> count = trips ? trips->constant() : std::nullopt;
  return count && *count > 0 && *count <= kMostCopies && condition && condition->is(1) &&
         !sequence.init.sequence->stack;
}

/// What the loop is asked for may be more than --max-loop-iterations.
LogicalResult LoopImport::requireFewTrips() {
  return node.requireAtMost(*trips, Expr(node.maxLoopIterations()),
                            "asks for {0} iterations, the limit is {1} (--max-loop-iterations)");
}

/// The body once an iteration: a sequence then has items of its own, of any sizes.
FailureOr<std::vector<Tensor>> LoopImport::unroll() {
  if (failed(requireFewTrips()))
    return failure();
  std::vector<Tensor> now;
  for (const Carried &value : carried)
    now.push_back(value.init);
  std::vector<Sequence> rows(gathered.size());
  for (int64_t i = 0; i < *trips->constant(); ++i) {
    Tensor number, go;
    number.dtype = DType::I64;
    number.elements.emplace(1, Scalar(Expr(i)));
    go.dtype = DType::Bool;
    go.elements.emplace(1, Scalar(Expr(1)));
    now.insert(now.begin(), {number, go});
    node.enterIteration(Expr(i));
    FailureOr<std::vector<Tensor>> outputs = body(now);
    node.leaveIteration();
    if (failed(outputs))
      return failure();
    for (auto [n, row] : llvm::enumerate(rows)) {
      row.items.push_back((*outputs)[1 + carried.size() + n]);
      row.dtype = row.items[0].dtype;
    }
    now.assign(outputs->begin() + 1, outputs->begin() + 1 + carried.size());
    std::optional<bool> goesOn = knownCondition((*outputs)[0]);
    if (!goesOn)
      return node.unsupported() << "appends tensors of unlike sizes to a sequence, and only the run ends it", failure();
    if (!*goesOn)
      break;
  }
  for (const Sequence &row : rows) {
    std::optional<Tensor> stack = stackSequence(node, row);
    if (!stack)
      return failure();
    now.push_back(*stack);
  }
  return now;
}

FailureOr<std::vector<Tensor>> LoopImport::run() {
  if (trips)
    trips = node.symbols().max(*trips, Expr(0));
  for (Carried &value : carried)
    if (value.init.sequence) {
      value.mode = Carried::Stack;
      const Sequence &sequence = *value.init.sequence;
      value.element = sequence.element;
      if (!sequence.element && !sequence.items.empty())
        value.element.emplace(sequence.items.front().shape);
    }
  for (bool fits = false; !fits;) {
    if (failed(attempt(fits)))
      return failure();
    if (!fits)
      region->erase();
    if (unrolls)
      return unroll();
  }
  if (failed(requireRows()))
    return failure();
  if (!counts)
    return outputsOf(makeWhile());
  if (failed(requireFewTrips()))
    return failure();
  return outputsOf(makeFor());
}
