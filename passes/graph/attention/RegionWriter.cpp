#include "passes/graph/attention/RegionWriter.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn {

RegionWriter::RegionWriter(AttentionMatch &match, Value target, StringRef between, SmallVector<unsigned> &used,
                           Miss &miss)
    : match(match), target(target), between(between), used(used), miss(miss), region(std::make_unique<Region>()),
      builder(target.getContext()) {
  Block &block = region->emplaceBlock();
  block.addArgument(match.computeType, target.getLoc());
  builder.setInsertionPointToStart(&block);
}

FailureOr<std::unique_ptr<Region>> RegionWriter::write(Value tensor, const Access &access) {
  FailureOr<Value> scalar = element(tensor, access);
  if (failed(scalar))
    return failure();
  if (!targetAccess)
    return fail("it does not depend on the scores", tensor.getLoc());
  YieldOp::create(builder, tensor.getLoc(), convertFloat(builder, tensor.getLoc(), *scalar, match.computeType));
  return std::move(region);
}

bool RegionWriter::dependsOnTarget(Value value) {
  if (value == target)
    return true;
  auto [it, fresh] = dependence.try_emplace(value, false);
  if (!fresh)
    return it->second;
  Operation *op = value.getDefiningOp();
  bool depends = false;
  if (isPerElement(op))
    for (Value operand : op->getOperands())
      depends |= isa<RankedTensorType>(operand.getType()) && dependsOnTarget(operand);
  return dependence[value] = depends;
}

/// Whether `op` computes its element by a few cheap scalar ops, or from its
/// position alone.
static bool isCheap(linalg::LinalgOp op, unsigned &budget) {
  for (Operation &inner : op.getBlock()->without_terminator()) {
    bool cheap =
        isa<linalg::IndexOp, math::AbsIOp, math::AbsFOp>(inner) ||
        (isa<arith::ArithDialect>(inner.getDialect()) && inner.getNumRegions() == 0 &&
         !isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::DivFOp, arith::RemFOp>(inner) &&
         llvm::none_of(inner.getOperandTypes(), llvm::IsaPred<ShapedType>));
    if (!cheap || budget == 0)
      return false;
    budget -= !isa<arith::ConstantOp>(inner);
  }
  return true;
}

/// A mask for every pair of query and key costs less to compute again, from
/// positions and from vectors, than to store and to read; so does one for every
/// key that is computed from smaller tensors, and what is made of positions
/// alone, as a Range.
bool RegionWriter::isWorthInlining(Value tensor, const Access &access) {
  auto isKey = [&](unsigned atom) { return match.isKey(atom); };
  auto isRow = [&](unsigned atom) { return match.isRow(atom); };
  Access whole(access);
  match.resolve(whole);
  bool forKeys = namesAny(whole, isKey), pairs = namesAny(whole, isRow);
  unsigned pairLeaves = 0;
  unsigned budget = 32;
  auto isLeafWorthReading = [&](Access &read) {
    match.resolve(read);
    match.resolve(whole);
    bool smaller = namesAny(whole, [&](unsigned atom) { return !names(read, atom); });
    return pairs ? !namesAny(read, isKey) || !namesAny(read, isRow) || ++pairLeaves <= 2 : smaller;
  };
  auto isWorth = [&](auto &isWorth, Value value, Access read) -> bool {
    match.space.walkUp(value, read);
    if (splatConstant(value))
      return true;
    auto op = value.getDefiningOp<linalg::LinalgOp>();
    if (!op || !isPointwise(op) || !isCheap(op, budget))
      return value != tensor && forKeys && isLeafWorthReading(read);
    SmallVector<OpOperand *> inputs = op.getDpsInputOperands();
    return llvm::all_of(llvm::reverse(inputs), [&](OpOperand *input) {
      if (!isa<RankedTensorType>(input->get().getType()))
        return true;
      std::optional<Access> at = match.space.readInput(*input, read);
      return at && isWorth(isWorth, input->get(), *at);
    });
  };
  return isWorth(isWorth, tensor, access);
}

FailureOr<Value> RegionWriter::element(Value tensor, Access access) {
  match.space.resolve(access);
  auto key = std::pair(tensor.getAsOpaquePointer(), access);
  if (auto it = written.find(key); it != written.end())
    return it->second;
  FailureOr<Value> scalar = elementUncached(tensor, access);
  if (succeeded(scalar))
    written[key] = *scalar;
  return scalar;
}

/// Whether `tensor` is a contraction over one element, of numbers of queries and of keys for instance.
static bool isOuterProduct(Value tensor) {
  auto op = tensor.getDefiningOp<linalg::LinalgOp>();
  SmallVector<unsigned> sums;
  if (!op || !isContraction(op) || !isZeroFill(op.getDpsInits()[0]))
    return false;
  op.getReductionDims(sums);
  SmallVector<int64_t> sizes = op.getStaticLoopRanges();
  return llvm::all_of(sums, [&](unsigned loop) { return sizes[loop] == 1; });
}

FailureOr<Value> RegionWriter::elementUncached(Value tensor, Access access) {
  Location loc = tensor.getLoc();
  if (tensor == target) {
    if (targetAccess)
      match.space.resolve(*targetAccess);
    if (targetAccess && *targetAccess != access)
      return fail("the scores are read in two layouts", loc);
    targetAccess = access;
    return convertFloat(builder, loc, builder.getInsertionBlock()->getArgument(0), getElementTypeOrSelf(tensor));
  }
  if (TypedAttr constant = splatConstant(tensor))
    return Value(arith::ConstantOp::create(builder, loc, constant));
  bool depends = dependsOnTarget(tensor);
  bool follows = depends || !match.wholeCaptures;
  if (follows && isView(tensor.getDefiningOp())) {
    Value source = tensor;
    if (match.space.stepUp(source, access))
      return element(source, access);
    if (depends)
      return fail("a reshape whose sizes are not proved to match", loc);
  }
  auto op = tensor.getDefiningOp<linalg::LinalgOp>();
  if (op && isPointwise(op) && (depends || (follows && isWorthInlining(tensor, access))))
    return inlineBody(op, access);
  if (!depends && follows && isOuterProduct(tensor))
    return inlineProduct(op, access);
  if (depends || (!capturesOfTarget && isComputedFrom(tensor, target, visited)))
    return fail("an operation that is not elementwise stands between " + between, loc);
  return capture(tensor, access);
}

FailureOr<Value> RegionWriter::inlineProduct(linalg::LinalgOp op, const Access &access) {
  Value product;
  for (unsigned n : {0, 1}) {
    std::optional<Access> source = match.space.readInput(*op.getDpsInputOperand(n), access);
    if (!source)
      return fail("an operand that is not read at plain loop indices", op.getLoc());
    FailureOr<Value> scalar = element(op->getOperand(n), *source);
    if (failed(scalar))
      return failure();
    Value factor = convertFloat(builder, op.getLoc(), *scalar, match.computeType);
    product = product ? arith::MulFOp::create(builder, op.getLoc(), product, factor) : factor;
  }
  return convertFloat(builder, op.getLoc(), product, getElementTypeOrSelf(op->getResult(0)));
}

FailureOr<Value> RegionWriter::inlineBody(linalg::LinalgOp op, const Access &access) {
  IRMapping mapping;
  auto takeScalar = [&](Value inner, FailureOr<Value> scalar) -> LogicalResult {
    if (succeeded(scalar))
      mapping.map(inner, *scalar);
    return scalar;
  };
  for (OpOperand *input : op.getDpsInputOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(input);
    if (argument.use_empty())
      continue;
    if (!isa<RankedTensorType>(input->get().getType())) {
      if (failed(takeScalar(argument, outsideScalar(input->get()))))
        return failure();
      continue;
    }
    // Again for each operand: reading one may split an atom of the next.
    std::optional<Access> source = match.space.readInput(*input, access);
    if (!source)
      return fail("an operand that is not read at plain loop indices", op.getLoc());
    if (failed(takeScalar(argument, element(input->get(), *source))))
      return failure();
  }
  SmallVector<Atoms> loops = AtomSpace::loopAtoms(op, access);
  for (Operation &inner : op.getBlock()->without_terminator()) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      auto placeholder = IndexOp::create(builder, op.getLoc(), builder.getIndexType(), 0);
      match.indices.push_back({placeholder, loops[index.getDim()]});
      mapping.map(index.getResult(), placeholder.getResult());
      continue;
    }
    if (inner.getNumRegions() != 0 || !isMemoryEffectFree(&inner) ||
        llvm::any_of(inner.getOperandTypes(), llvm::IsaPred<ShapedType>))
      return fail("an elementwise operation that reads other elements", op.getLoc());
    for (Value operand : inner.getOperands())
      if (!mapping.contains(operand) && failed(takeScalar(operand, outsideScalar(operand))))
        return failure();
    builder.clone(inner, mapping);
  }
  Value yielded = op.getBlock()->getTerminator()->getOperand(0);
  return mapping.contains(yielded) ? mapping.lookup(yielded) : outsideScalar(yielded);
}

FailureOr<Value> RegionWriter::outsideScalar(Value scalar) {
  if (TypedAttr constant = splatConstant(scalar))
    return Value(arith::ConstantOp::create(builder, scalar.getLoc(), constant));
  if (!scalar.getType().isIntOrIndexOrFloat())
    return fail("a value in the region that is no number", scalar.getLoc());
  return capture(scalar, {});
}

Value RegionWriter::capture(Value value, Access access) {
  if (isa<RankedTensorType>(value.getType()) && !match.wholeCaptures)
    match.space.walkUp(value, access);
  unsigned number = match.captures.size();
  for (auto [n, other] : llvm::enumerate(match.captures)) {
    match.space.resolve(other.access);
    if (other.value == value && other.access == access)
      number = n;
  }
  if (number == match.captures.size())
    match.captures.push_back({value, access});
  auto *position = llvm::find(used, number);
  Block *block = builder.getInsertionBlock();
  // The block's arguments after the first are those of `used`, in order.
  Type element = getElementTypeOrSelf(value);
  bool isIndex = element.isIndex();
  if (position == used.end()) {
    used.push_back(number);
    block->addArgument(isIndex ? builder.getI64Type() : element, value.getLoc());
    position = used.end() - 1;
  }
  Value argument = block->getArgument(1 + (position - used.begin()));
  if (isIndex) // there are no tensors of index in a kernel
    return arith::IndexCastOp::create(builder, value.getLoc(), element, argument);
  return argument;
}

} // namespace attn
