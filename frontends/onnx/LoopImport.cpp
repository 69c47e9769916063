#include "frontends/onnx/LoopImport.h"
#include "dialects/attn/LoopOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

/// Rows that a buffer of unknown length has room for at first.
static constexpr int64_t kFirstRows = 16;

//===----------------------------------------------------------------------===//
// Into the body
//===----------------------------------------------------------------------===//

/// What the loop starts with, outside of it.
LogicalResult LoopImport::prepare(Carried &value) {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  const Tensor &init = value.init;
  value.inits.clear();
  value.arguments.clear();
  value.yielded.clear();
  auto push = [&](const Expr &number) { value.inits.push_back(node.symbols().materialize(b, loc, number)); };
  switch (value.mode) {
  case Carried::Fixed:
    value.inits.push_back(castTo(node, node.value(init), node.type(init.dtype, init.shape)));
    return success();
  case Carried::Append:
    value.inits.push_back(toBuffer(node, node.value(init), init.dtype, init.shape, value.dim));
    push(init.shape[value.dim]);
    return success();
  case Carried::Flat: {
    FailureOr<Tensor> flat = node.reshape(init, {product(init.shape)});
    if (failed(flat))
      return failure();
    value.inits.push_back(toBuffer(node, node.value(*flat), init.dtype, flat->shape, 0));
    for (auto [size, varies] : llvm::zip_equal(init.shape, value.varies))
      if (varies)
        push(size);
    return success();
  }
  case Carried::Stack: {
    const Sequence &sequence = *init.sequence;
    Expr count = sequence.length + Expr(int64_t(sequence.items.size()));
    push(count);
    if (!value.element)
      return success(); // nothing is in it
    SmallVector<Expr> shape{Expr(kFirstRows)};
    shape.append(value.element->begin(), value.element->end());
    Value rows;
    if (count.is(0)) {
      rows = node.empty(sequence.dtype, shape);
    } else {
      std::optional<Tensor> stack = stackSequence(node, sequence);
      if (!stack)
        return failure();
      rows = node.value(*stack);
      shape[0] = count;
    }
    value.inits.push_back(toBuffer(node, rows, sequence.dtype, shape, 0));
    return success();
  }
  }
  llvm_unreachable("all modes are above");
}

/// What the body sees of it.
LogicalResult LoopImport::enter(Carried &value) {
  const Tensor &init = value.init;
  for (Value start : value.inits)
    value.arguments.push_back(block->addArgument(start.getType(), node.loc()));
  auto size = [&](unsigned n) { return node.symbols().opaque(value.arguments[n], 0); };
  SmallVector<Expr> shape(init.shape.begin(), init.shape.end());
  switch (value.mode) {
  case Carried::Fixed:
    value.inside = Tensor();
    value.inside.dtype = init.dtype;
    value.inside.shape = init.shape;
    value.inside.value = value.arguments[0];
    return success();
  case Carried::Append:
    shape[value.dim] = size(1);
    value.inside = frontOf(node, value.arguments[0], init.dtype, shape);
    return success();
  case Carried::Flat: {
    unsigned next = 1;
    for (auto [extent, varies] : llvm::zip_equal(shape, value.varies))
      if (varies)
        extent = size(next++);
    FailureOr<Tensor> inside = node.reshape(frontOf(node, value.arguments[0], init.dtype, {product(shape)}), shape);
    if (failed(inside))
      return failure();
    value.inside = *inside;
    return success();
  }
  case Carried::Stack: {
    auto sequence = std::make_shared<Sequence>();
    sequence->dtype = init.sequence->dtype;
    sequence->element = value.element;
    sequence->length = size(0);
    if (value.element)
      sequence->stack = value.arguments[1];
    value.inside = Tensor();
    value.inside.sequence = std::move(sequence);
    return success();
  }
  }
  llvm_unreachable("all modes are above");
}

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

//===----------------------------------------------------------------------===//
// Out of the body
//===----------------------------------------------------------------------===//

static Value withoutCasts(Value value) {
  while (value)
    if (auto cast = value.getDefiningOp<tensor::CastOp>())
      value = cast.getSource();
    else
      break;
  return value;
}

/// `out` is a concatenation in dimension `dim` that begins with `front`: the
/// insertions that follow it, the last one first.
static std::optional<SmallVector<tensor::InsertSliceOp>> matchAppend(Value out, Value front, int64_t dim) {
  SmallVector<tensor::InsertSliceOp> inserts;
  out = withoutCasts(out);
  while (auto insert = out ? out.getDefiningOp<tensor::InsertSliceOp>() : nullptr) {
    if (insert.getSourceType().getRank() != insert.getDestType().getRank())
      return std::nullopt;
    for (auto [n, offset] : llvm::enumerate(insert.getMixedOffsets()))
      if (int64_t(n) != dim && !isConstantIntValue(offset, 0))
        return std::nullopt;
    inserts.push_back(insert);
    out = insert.getDest();
    if (!out.hasOneUse())
      return std::nullopt;
  }
  if (inserts.size() < 2 || !out || !out.getDefiningOp<tensor::EmptyOp>())
    return std::nullopt;
  tensor::InsertSliceOp first = inserts.pop_back_val();
  if (withoutCasts(first.getSource()) != front || !isConstantIntValue(first.getMixedOffsets()[dim], 0))
    return std::nullopt;
  return inserts;
}

/// Whether `out` can be carried as `value` is; if not, the mode to try next.
LogicalResult LoopImport::fit(Carried &value, Tensor &out, bool &fits) {
  const Tensor &init = value.init;
  if (init.sequence || out.sequence) {
    if (!init.sequence || !out.sequence)
      return node.error() << "carries a sequence in some iterations and a tensor in others", failure();
    return fitSequence(value, out, fits);
  }
  if (out.dtype != init.dtype)
    return node.error() << "carries a value that is " << dtypeName(init.dtype) << " before the loop and "
                        << dtypeName(out.dtype) << " after an iteration",
           failure();
  if (out.rank() != init.rank())
    return node.unsupported() << "carries a value that has " << init.rank() << " dimensions before the loop and "
                              << out.rank() << " after an iteration",
           failure();
  SmallVector<int64_t> differ;
  for (auto [n, size] : llvm::enumerate(out.shape))
    if (node.symbols().isEqual(size, init.shape[n]) != true)
      differ.push_back(n);
  if (value.mode == Carried::Fixed && differ.empty())
    return success();
  auto appends = [&](int64_t dim) { return matchAppend(out.value, withoutCasts(value.inside.value), dim).has_value(); };
  if (value.mode == Carried::Fixed && differ.size() == 1 && appends(differ[0])) {
    value.mode = Carried::Append;
    value.dim = differ[0];
    fits = false;
    return success();
  }
  if (value.mode == Carried::Append && llvm::all_of(differ, [&](int64_t n) { return n == value.dim; }) &&
      appends(value.dim))
    return success();
  bool more = value.mode != Carried::Flat;
  if (more) {
    value.varies.assign(init.rank(), false);
    if (value.mode == Carried::Append)
      value.varies[value.dim] = true;
    value.mode = Carried::Flat;
  }
  for (int64_t n : differ)
    more |= !std::exchange(value.varies[n], true);
  fits &= !more;
  return success();
}

LogicalResult LoopImport::fitSequence(Carried &value, const Tensor &out, bool &fits) {
  const Sequence &before = *value.inside.sequence, &after = *out.sequence;
  if (after.dtype != before.dtype)
    return node.error() << "carries a sequence of " << dtypeName(before.dtype) << " before the loop and of "
                        << dtypeName(after.dtype) << " after an iteration",
           failure();
  if (after.stack != before.stack || after.length != before.length)
    return node.unsupported() << "carries a sequence that is not appended to, but replaced", failure();
  if (after.items.empty())
    return success();
  if (!value.element) {
    const Tensor &first = after.items.front();
    value.element.emplace();
    for (const Expr &size : first.shape) {
      Expr known = node.symbols().simplify(size);
      if (!node.symbols().outlivesHome(known))
        return node.unsupported() << "appends to a sequence a tensor whose size only the body knows", failure();
      value.element->push_back(known);
    }
    fits = false;
    return success();
  }
  for (const Tensor &item : after.items) {
    if (item.rank() != int64_t(value.element->size()))
      return node.unsupported() << "appends tensors of " << item.rank() << " and " << value.element->size()
                                << " dimensions to one sequence",
             failure();
    for (auto [size, expected] : llvm::zip_equal(item.shape, *value.element))
      if (failed(node.requireEqual(size, expected, "appends tensors of sizes {0} and {1} to one sequence in a loop")))
        return failure();
  }
  return success();
}

/// What is yielded for a value whose mode fits.
LogicalResult LoopImport::leave(Carried &value, Tensor &out, MutableArrayRef<Tensor> outputs) {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  switch (value.mode) {
  case Carried::Fixed:
    value.yielded.push_back(castTo(node, node.value(out), value.arguments[0].getType()));
    return success();
  case Carried::Append:
    leaveAppend(value, out, outputs);
    return success();
  case Carried::Flat: {
    Expr count = product(out.shape);
    FailureOr<Tensor> flat = node.reshape(out, {count});
    if (failed(flat))
      return failure();
    Value buffer = value.arguments[0], size = node.symbols().materialize(b, loc, count);
    buffer = GrowOp::create(b, loc, buffer.getType(), buffer, size, 0);
    SmallVector<OpFoldResult> offsets{b.getIndexAttr(0)}, sizes = sizesOf(node, {count}), strides{b.getIndexAttr(1)};
    value.yielded.push_back(tensor::InsertSliceOp::create(b, loc, node.value(*flat), buffer, offsets, sizes, strides));
    for (auto [extent, varies] : llvm::zip_equal(out.shape, value.varies))
      if (varies)
        value.yielded.push_back(node.symbols().materialize(b, loc, extent));
    return success();
  }
  case Carried::Stack:
    leaveSequence(value, *out.sequence);
    return success();
  }
  llvm_unreachable("all modes are above");
}

/// The concatenation that makes `out` becomes insertions into the buffer, and
/// `out` the front of it.
void LoopImport::leaveAppend(Carried &value, Tensor &out, MutableArrayRef<Tensor> outputs) {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  auto inserts = *matchAppend(out.value, withoutCasts(value.inside.value), value.dim);
  tensor::InsertSliceOp last = inserts.front();
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(last);
  // Sizes by hand: those of the symbols are written at the end of the body.
  Value length = value.arguments[1], buffer = value.arguments[0];
  SmallVector<Value> ends;
  for (tensor::InsertSliceOp insert : llvm::reverse(inserts)) {
    Value size = getValueOrCreateConstantIndexOp(b, loc, insert.getMixedSizes()[value.dim]);
    ends.push_back(arith::AddIOp::create(b, loc, ends.empty() ? length : ends.back(), size));
  }
  buffer = GrowOp::create(b, loc, buffer.getType(), buffer, ends.back(), value.dim);
  SmallVector<OpFoldResult> strides = last.getMixedStrides(), offsets(strides.size(), b.getIndexAttr(0));
  for (auto [n, insert] : llvm::enumerate(llvm::reverse(inserts))) {
    SmallVector<OpFoldResult> at = offsets;
    at[value.dim] = n ? ends[n - 1] : length;
    buffer = tensor::InsertSliceOp::create(b, loc, insert.getSource(), buffer, at, insert.getMixedSizes(), strides);
  }
  auto emptySizes = [&](Value dest) {
    while (auto insert = dest.getDefiningOp<tensor::InsertSliceOp>())
      dest = insert.getDest();
    return dest.getDefiningOp<tensor::EmptyOp>().getMixedSizes();
  };
  SmallVector<OpFoldResult> sizes = emptySizes(last.getResult());
  sizes[value.dim] = last.getType().isDynamicDim(value.dim) ? OpFoldResult(ends.back()) : sizes[value.dim];
  Value all = tensor::ExtractSliceOp::create(b, loc, last.getType(), buffer, offsets, sizes, strides);
  for (Tensor &t : outputs)
    if (t.value && t.value == last.getResult())
      t.value = all;
  last.getResult().replaceAllUsesWith(all);
  value.yielded.assign({buffer, ends.back()});
}

void LoopImport::leaveSequence(Carried &value, const Sequence &out) {
  OpBuilder &b = node.builder();
  int64_t added = out.items.size();
  value.yielded.push_back(node.symbols().materialize(b, node.loc(), out.length + Expr(added)));
  if (value.element)
    value.yielded.push_back(added ? appendRows(node, out.stack, out.length, out.items, *value.element) : out.stack);
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
  for (const Expr &size : out.shape) {
    output.shape.push_back(node.symbols().simplify(size));
    if (!node.symbols().outlivesHome(output.shape.back()))
      return node.unsupported() << "gathers values whose size only the body knows", failure();
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

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

LogicalResult LoopImport::leaveBody(MutableArrayRef<Tensor> outputs, bool &fits) {
  size_t front = condition ? 1 : 0;
  if (outputs.size() != front + carried.size() + gathered.size())
    return node.error() << "has a body of " << outputs.size() << " outputs, expected "
                        << front + carried.size() + gathered.size(),
           failure();
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
  node.leaveRegion(region);
  return result;
}

/// What an output that gathers starts with.
Value LoopImport::gatheredInit(const Gathered &output) {
  SmallVector<Expr> shape = output.shape;
  if (counts)
    return node.empty(output.dtype, shape);
  shape[output.axis] = Expr(kFirstRows);
  return toBuffer(node, node.empty(output.dtype, shape), output.dtype, shape, output.axis);
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
  for (Gathered &output : gathered) {
    inits.push_back(gatheredInit(output));
    yielded.push_back(output.yielded);
  }
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
  for (Gathered &output : gathered) {
    inits.push_back(gatheredInit(output));
    yielded.push_back(output.yielded);
  }
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
  for (auto [n, output] : llvm::enumerate(gathered)) {
    SmallVector<Expr> shape = output.shape;
    shape[output.axis] = ran;
    Tensor result;
    if (counts && ran == *trips) {
      result.dtype = output.dtype;
      result.shape.assign(shape.begin(), shape.end());
      result.value = results[n];
    } else {
      result = frontOf(node, results[n], output.dtype, shape);
    }
    outputs.push_back(std::move(result));
  }
  return outputs;
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
  }
  if (!counts)
    return outputsOf(makeWhile());
  if (failed(node.requireAtMost(*trips, Expr(node.maxLoopIterations()),
                                "asks for {0} iterations, the limit is {1} (--max-loop-iterations)")))
    return failure();
  return outputsOf(makeFor());
}
