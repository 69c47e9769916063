#include "dialects/attn/LoopOps.h"
#include "frontends/onnx/LoopImport.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// What a loop carries, in each of its modes: before the loop, in the body, and at the end of an iteration.

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

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
      if (!node.symbols().outlivesHome(known)) {
        if (canUnroll(value))
          return unrolls = true, fits = false, success();
        return node.unsupported() << "appends to a sequence a tensor whose size only the body knows", failure();
      }
      value.element->push_back(known);
    }
    fits = false;
    return success();
  }
  for (const Tensor &item : after.items) {
    // Where the run may end the loop, sizes that may be equal are left to the run, too.
    auto isUnlike = [&](auto sizes) {
      return node.symbols().isEqual(std::get<0>(sizes), std::get<1>(sizes)).value_or(!isEndKnown) == false;
    };
    if (canUnroll(value) && (item.rank() != int64_t(value.element->size()) ||
                             llvm::any_of(llvm::zip_equal(item.shape, *value.element), isUnlike)))
      return unrolls = true, fits = false, success();
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
