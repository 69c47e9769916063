#include "passes/graph/element/EdgeTable.h"

#include "passes/graph/Structured.h"
#include "passes/graph/element/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn {
namespace {

/// Whether `next`, of numbers of at least 32 bits, adds a constant above 0 to `old`, so that it stays above 0 however
/// often it does: 2^31 edges of 1 do not wrap.
bool addsPositive(Value next, TypedAttr step) {
  Operation *add = next.getDefiningOp();
  if (!isa_and_nonnull<arith::AddFOp, arith::AddIOp>(add) || next.getType().getIntOrFloatBitWidth() < 32)
    return false;
  if (auto number = dyn_cast<FloatAttr>(step))
    return number.getValueAsDouble() > 0;
  auto number = dyn_cast<IntegerAttr>(step);
  return number && number.getValue().isOne();
}

bool isZero(TypedAttr number) {
  if (auto real = dyn_cast<FloatAttr>(number))
    return real.getValue().isZero();
  auto integer = dyn_cast<IntegerAttr>(number);
  return integer && integer.getValue().isZero();
}

/// Writes `value` of the loop nest around `outer` again, with what it is made of.
Value cloneInto(OpBuilder &b, Value value, scf::ForOp outer, IRMapping &mapping) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  if (!op || !outer->isProperAncestor(op))
    return value;
  for (Value operand : op->getOperands())
    cloneInto(b, operand, outer, mapping);
  b.clone(*op, mapping);
  return mapping.lookup(value);
}

} // namespace

std::optional<EdgeTable::Nest> EdgeTable::matchNest(Value value) {
  Nest nest;
  Value carried;
  while (auto loop = value.getDefiningOp<scf::ForOp>()) {
    if (loop.getNumResults() != 1 || (carried && loop.getInits().front() != carried) ||
        getConstantIntValue(loop.getLowerBound()) != 0 || getConstantIntValue(loop.getStep()) != 1)
      return std::nullopt;
    if (!nest.loops.empty() && nest.loops.front()->isAncestor(loop.getUpperBound().getParentRegion()->getParentOp()))
      return std::nullopt;
    nest.loops.push_back(loop);
    carried = loop.getRegionIterArg(0);
    value = loop.getBody()->getTerminator()->getOperand(0);
  }
  nest.insert = value.getDefiningOp<tensor::InsertOp>();
  if (nest.loops.empty() || !nest.insert || nest.insert.getDest() != carried)
    return std::nullopt;
  // Places come from the loops and from what stands outside, not from the table.
  bool readsTable = worklist(Values(nest.insert.getIndices()), [&](Value next, Values &list) {
    auto argument = dyn_cast<BlockArgument>(next);
    auto loop = argument ? dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp()) : scf::ForOp();
    if (loop && llvm::is_contained(nest.loops, loop) && next != loop.getInductionVar())
      return true;
    Operation *op = next.getDefiningOp();
    if (!op || !nest.loops.front()->isProperAncestor(op))
      return false;
    llvm::append_range(list, op->getOperands());
    return op->getNumRegions() != 0 || !isMemoryEffectFree(op);
  });
  return readsTable ? std::nullopt : std::optional(std::move(nest));
}

std::optional<EdgeTable> EdgeTable::match(Value value, const SymbolTable &symbols, const WeightStore *weights) {
  ElementReader reader(value);
  EdgeTable table;
  table.value = value;
  while (std::optional<Nest> nest = matchNest(value)) {
    value = nest->loops.front().getInits().front();
    table.nests.insert(table.nests.begin(), std::move(*nest));
  }
  table.start = value;
  table.base = table.nests.empty() ? TypedAttr() : Constants(reader, &symbols, weights).of(reader.somewhere(value));
  if (!table.base)
    return std::nullopt;
  for (const Nest &nest : table.nests) {
    tensor::InsertOp insert = nest.insert;
    auto after = [&](TypedAttr old) { // what is inserted where the tensor holds `old`
      Constants numbers(reader, &symbols, weights);
      for (Operation *user : insert.getDest().getUsers())
        if (auto extract = dyn_cast<tensor::ExtractOp>(user);
            extract && llvm::equal(extract.getIndices(), insert.getIndices()))
          numbers.assume(extract, old);
      return numbers.of(reader.scalar({}, insert.getScalar()));
    };
    TypedAttr once = after(table.base), twice = once ? after(once) : TypedAttr();
    if (!once || !twice || once == table.base || (table.mark && once != table.mark))
      return std::nullopt;
    if (once != twice) {
      // Loops that put the number, and others that add it: two edges are two, or one.
      if (table.nests.size() != 1 || !isZero(table.base) || !addsPositive(insert.getScalar(), once))
        return std::nullopt;
      table.sums = true;
    }
    table.mark = once;
  }
  return table;
}

bool EdgeTable::isMarked() const {
  auto number = dyn_cast<IntegerAttr>(mark);
  return number && number.getType().isInteger(8) && number.getValue().isOne() && isZero(base) && !sums;
}

SmallVector<OpFoldResult> EdgeTable::getSizes(OpBuilder &b) const { return madeSizes(b, value.getLoc(), start); }

SmallVector<Value> EdgeTable::Nest::again(OpBuilder &b, ValueRange init, EdgeBody body,
                                          llvm::function_ref<Value(OpBuilder &, unsigned)> count) const {
  IRMapping mapping;
  scf::ForOp outer = loops.front();
  auto emit = [&](auto &self, OpBuilder &b, Location loc, size_t depth, ValueRange carried) -> SmallVector<Value> {
    if (depth == loops.size()) {
      SmallVector<Value> place;
      for (Value index : tensor::InsertOp(insert).getIndices())
        place.push_back(cloneInto(b, index, outer, mapping));
      return body(b, loc, place, carried);
    }
    scf::ForOp from = loops[depth];
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
    Value turns = count ? count(b, depth) : from.getUpperBound();
    auto loop = scf::ForOp::create(b, loc, zero, turns, one, carried,
                                   [&](OpBuilder &b, Location loc, Value at, ValueRange inner) {
                                     mapping.map(from.getInductionVar(), at);
                                     scf::YieldOp::create(b, loc, self(self, b, loc, depth + 1, inner));
                                   });
    return SmallVector<Value>(loop.getResults());
  };
  return emit(emit, b, outer.getLoc(), 0, init);
}

SmallVector<Value> EdgeTable::forEachEdge(OpBuilder &b, ValueRange init, EdgeBody body) const {
  SmallVector<Value> carried(init);
  for (const Nest &nest : nests)
    carried = nest.again(b, carried, body);
  return carried;
}

Value EdgeTable::countEdges(OpBuilder &b) const {
  Location loc = value.getLoc();
  Value sum;
  for (const Nest &nest : nests) {
    Value product;
    for (scf::ForOp loop : nest.loops) {
      Value size = loop.getUpperBound();
      product = product ? b.createOrFold<arith::MulIOp>(loc, product, size) : size;
    }
    sum = sum ? b.createOrFold<arith::AddIOp>(loc, sum, product) : product;
  }
  return sum;
}

} // namespace attn
