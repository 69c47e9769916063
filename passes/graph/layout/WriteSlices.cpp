#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/Affine.h"
#include "passes/graph/element/ConstantTable.h"
#include "passes/graph/element/EdgeTable.h"

#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_WRITESLICESPASS
#include "passes/Passes.h.inc"

namespace {

using Nest = EdgeTable::Nest;

/// Products of such numbers do not wrap.
constexpr int64_t kMaxStart = int64_t{1} << 40, kMaxStep = int64_t{1} << 20;
/// Elements from which on a row is worth a loop of its own.
constexpr int64_t kLeastRow = 8;

/// Where elements go along one dimension: from `start` on, which is made of `offsets`, and a step further with each
/// turn of a loop.
struct WrittenDim {
  AffineExpr start;
  SmallVector<Value> offsets;
  int64_t step = 1;
  std::optional<unsigned> loop;
  CheckIndexOp check;  ///< of the place, if it is not known to be one
  bool isOpen = false; ///< only a run can check it
};

/// The outer loop; of one element that is put without a loop, the insertion.
Operation *getRoot(const Nest &nest) {
  tensor::InsertOp insert = nest.insert;
  return nest.loops.empty() ? insert.getOperation() : scf::ForOp(nest.loops.front()).getOperation();
}

bool isOutside(Value value, const Nest &nest) {
  return !getRoot(nest)->isAncestor(value.getParentRegion()->getParentOp());
}

std::optional<unsigned> findLoop(Value index, const Nest &nest) {
  auto *loop = llvm::find_if(nest.loops, [&](scf::ForOp loop) { return loop.getInductionVar() == index; });
  return loop == nest.loops.end() ? std::nullopt : std::optional<unsigned>(loop - nest.loops.begin());
}

/// What a nest writes: the elements of a tensor that has a dimension for each loop, in their order, and others of
/// size 1.
struct Source {
  Value tensor;
  SmallVector<bool> hasLoop; ///< for each dimension

  /// One of `loops`, numbers for each of them, per dimension of the tensor, or `one`.
  SmallVector<OpFoldResult> spread(ArrayRef<OpFoldResult> loops, OpFoldResult one) const {
    SmallVector<OpFoldResult> result;
    for (bool has : hasLoop) {
      result.push_back(has ? loops.front() : one);
      loops = loops.drop_front(has);
    }
    return result;
  }
};

std::optional<Source> findSource(const Nest &nest) {
  tensor::InsertOp insert = nest.insert;
  Value scalar = insert.getScalar();
  // A bool is read as a bit of a byte that is 0 or 1.
  auto byte = scalar.getDefiningOp<arith::ExtUIOp>();
  if (auto test = byte ? byte.getIn().getDefiningOp<arith::CmpIOp>() : arith::CmpIOp();
      test && test.getPredicate() == arith::CmpIPredicate::ne && matchPattern(test.getRhs(), m_Zero()) &&
      test.getLhs().getType() == scalar.getType())
    scalar = test.getLhs();
  auto read = scalar.getDefiningOp<tensor::ExtractOp>();
  if (!read || !isOutside(read.getTensor(), nest))
    return std::nullopt;
  Source source{read.getTensor(), {}};
  unsigned loops = 0;
  for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
    bool hasLoop = findLoop(index, nest) == loops;
    if (!hasLoop && (!isConstantIntValue(index, 0) || read.getTensor().getType().getDimSize(dim) != 1))
      return std::nullopt;
    loops += hasLoop;
    source.hasLoop.push_back(hasLoop);
  }
  return loops == nest.loops.size() ? std::optional(source) : std::nullopt;
}

/// What `table`, stored integers, holds by its places, `fixed` along some dimensions.
std::optional<AffineExpr> readStored(Value tensor, const ConstantTable &table, ArrayRef<std::optional<int64_t>> fixed) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(tensor.getType()).getShape();
  SmallVector<int64_t> moving;
  for (auto [size, at] : llvm::zip_equal(shape, fixed))
    moving.push_back(at ? 1 : size);
  auto number = [&](int64_t n) {
    int64_t place = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0; stride *= shape[d], n /= moving[d])
      place += (fixed[d] ? *fixed[d] : n % moving[d]) * stride;
    return table.integerAt(place);
  };
  std::optional<SmallVector<int64_t>> steps = findSteps(moving, number);
  if (!steps)
    return std::nullopt;
  AffineExpr sum = getAffineConstantExpr(number(0), tensor.getContext());
  for (auto [n, step] : llvm::enumerate(*steps))
    sum = sum + getAffineDimExpr(n, tensor.getContext()) * step;
  return sum;
}

class SliceWriter {
public:
  SliceWriter(RewriterBase &b, const SymbolTable &symbols, const WeightStore *weights)
      : b(b), symbols(symbols), weights(weights) {}

  /// Puts the insertion of a slice in the place of `nest`, if that is one.
  bool writeSlice(const Nest &nest, const Source &source);
  /// Writes rows in the place of the innermost loops, if they go over whole ones.
  bool writeRows(const Nest &nest, const Source &source);

private:
  std::optional<WrittenDim> findPlace(Value index, const Nest &nest);
  std::optional<AffineExpr> readNumbers(Value tensor, ArrayRef<std::optional<int64_t>> fixed,
                                        SmallVectorImpl<Value> &offsets);
  static bool isWithin(WrittenDim &place, const Nest &nest);
  Value moveBefore(Value value, Operation *loop);

  RewriterBase &b;
  const SymbolTable &symbols;
  const WeightStore *weights;
};

std::optional<AffineExpr> SliceWriter::readNumbers(Value tensor, ArrayRef<std::optional<int64_t>> fixed,
                                                   SmallVectorImpl<Value> &offsets) {
  auto type = cast<RankedTensorType>(tensor.getType());
  for (auto [size, at] : llvm::zip_equal(type.getShape(), fixed))
    if (at && (*at < 0 || *at >= size)) // of an open size, too
      return std::nullopt;
  ConstantTable table = ConstantTable::read(tensor, symbols, weights);
  if (!table.bytes.empty() && !type.getElementType().isInteger(64)) // weights of other types can be replaced
    return std::nullopt;
  return table.bytes.empty() ? Affine(tensor, symbols, weights).read(fixed, &offsets)
                             : readStored(tensor, table, fixed);
}

/// Whether `place` is one of the tensor's at each turn; a negative one counts from the end.
bool SliceWriter::isWithin(WrittenDim &place, const Nest &nest) {
  auto start = dyn_cast<AffineConstantExpr>(place.start);
  OpFoldResult turns = IntegerAttr::get(IndexType::get(place.start.getContext()), 1);
  if (place.loop)
    turns = getAsOpFoldResult(scf::ForOp(nest.loops[*place.loop]).getUpperBound());
  Value limit = place.check.getSize();
  std::optional<int64_t> count = getConstantIntValue(turns), size = getConstantIntValue(limit);
  if (start && count && size) {
    int64_t first = start.getValue(), last = first + place.step * (*count - 1);
    if (*count > 0 && last < 0 && first >= -*size && !place.check.getNonnegative())
      place.start = getAffineConstantExpr(first += *size, place.start.getContext()), last += *size;
    return *count == 0 || (first >= 0 && last < *size);
  }
  // Of no element, if anything; or counted from an end that only the run knows, if not from before it.
  if (start && ((size && start.getValue() >= *size) || start.getValue() < 0))
    return false;
  bool isWhole =
      start && start.getValue() == 0 && place.step == 1 && Extent::of(turns) == Extent::of(OpFoldResult(limit));
  place.isOpen = !isWhole;
  // A check of its own stands at the top of an entry.
  return isWhole || isa<func::FuncOp>(getRoot(nest)->getParentOp());
}

std::optional<WrittenDim> SliceWriter::findPlace(Value index, const Nest &nest) {
  WrittenDim place;
  place.start = b.getAffineConstantExpr(getConstantIntValue(index).value_or(0));
  place.loop = findLoop(index, nest);
  if (place.loop || getConstantIntValue(index))
    return place;
  place.check = index.getDefiningOp<CheckIndexOp>();
  if (std::optional<int64_t> known = place.check ? getConstantIntValue(place.check.getIndex()) : std::nullopt) {
    place.start = b.getAffineConstantExpr(*known);
    return isOutside(place.check.getSize(), nest) && isWithin(place, nest) ? std::optional(place) : std::nullopt;
  }
  auto number = place.check ? place.check.getIndex().getDefiningOp<arith::IndexCastOp>() : arith::IndexCastOp();
  auto read = number ? number.getIn().getDefiningOp<tensor::ExtractOp>() : tensor::ExtractOp();
  if (!read || !isOutside(read.getTensor(), nest) || !isOutside(place.check.getSize(), nest))
    return std::nullopt;
  SmallVector<std::optional<int64_t>> fixed;
  SmallVector<unsigned> loops;
  for (Value at : read.getIndices()) {
    std::optional<unsigned> loop = findLoop(at, nest);
    fixed.push_back(getConstantIntValue(at));
    if (!loop && !fixed.back())
      return std::nullopt;
    loops.push_back(loop.value_or(0));
  }
  std::optional<AffineExpr> numbers = readNumbers(read.getTensor(), fixed, place.offsets);
  SmallVector<int64_t> factors;
  unsigned rank = fixed.size();
  if (!numbers || failed(getFlattenedAffineExpr(*numbers, rank, place.offsets.size(), &factors)) ||
      factors.size() != rank + place.offsets.size() + 1 || std::abs(factors.back()) > kMaxStart)
    return std::nullopt;
  for (unsigned n = 0; n != rank; ++n) {
    if (fixed[n] || factors[n] == 0 || getConstantIntValue(scf::ForOp(nest.loops[loops[n]]).getUpperBound()) == 1)
      continue;
    if (place.loop || factors[n] < 0 || factors[n] > kMaxStep)
      return std::nullopt;
    place.loop = loops[n];
    place.step = factors[n];
  }
  place.start = b.getAffineConstantExpr(factors.back());
  for (unsigned n = 0; n != place.offsets.size(); ++n) {
    if (factors[rank + n] < 0 || factors.back() < 0)
      return std::nullopt;
    place.start = place.start + b.getAffineSymbolExpr(n) * factors[rank + n];
  }
  return isWithin(place, nest) ? std::optional(place) : std::nullopt;
}

bool SliceWriter::writeSlice(const Nest &nest, const Source &source) {
  SmallVector<WrittenDim> places;
  SmallVector<OpFoldResult> turns;
  llvm::SmallBitVector moves(nest.loops.size());
  for (scf::ForOp loop : nest.loops)
    turns.push_back(getAsOpFoldResult(loop.getUpperBound()));
  tensor::InsertOp insert = nest.insert;
  for (Value index : insert.getIndices()) {
    std::optional<WrittenDim> place = findPlace(index, nest);
    if (!place || (place->loop && moves.test(*place->loop))) // along a diagonal
      return false;
    if (place->loop)
      moves.set(*place->loop);
    places.push_back(*place);
  }
  // Several turns that write one element: the last one wins.
  for (unsigned n = 0; n != turns.size(); ++n)
    if (!moves.test(n) && !isConstantIntValue(turns[n], 1))
      return false;

  Operation *root = getRoot(nest);
  Value written = nest.loops.empty() ? insert.getDest() : scf::ForOp(nest.loops.front()).getInits().front();
  Location loc = insert.getLoc();
  b.setInsertionPoint(root);
  if (llvm::any_of(turns, [](OpFoldResult count) { return isConstantIntValue(count, 0); })) {
    b.replaceOp(root, written);
    return true;
  }
  SmallVector<OpFoldResult> offsets, sizes, strides;
  SmallVector<int64_t> order; // of the loops that move, by the dimensions that they move along
  SmallVector<int64_t> shape;
  for (WrittenDim &place : places) {
    Value start = affine::expandAffineExpr(b, loc, place.start, {}, place.offsets);
    offsets.push_back(getAsOpFoldResult(start));
    sizes.push_back(place.loop ? turns[*place.loop] : OpFoldResult(b.getIndexAttr(1)));
    strides.push_back(b.getIndexAttr(place.step));
    if (place.loop)
      order.push_back(llvm::count_if(llvm::seq(*place.loop), [&](unsigned n) { return moves.test(n); }));
    if (!place.isOpen)
      continue;
    Value count = getValueOrCreateConstantIndexOp(b, loc, sizes.back());
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
    Value way = arith::MulIOp::create(b, loc, arith::SubIOp::create(b, loc, count, one),
                                      arith::ConstantIndexOp::create(b, loc, place.step));
    Value last = arith::AddIOp::create(b, loc, start, way), size = place.check.getSize();
    Value holds = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, last, size);
    for (OpFoldResult turn : turns) // without turns there is no place
      if (auto number = dyn_cast<Value>(turn))
        holds =
            arith::OrIOp::create(b, loc, holds, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, number, zero));
    RequireOp::create(b, loc, holds, place.check.getRunMessage(), ValueRange{last, size});
  }
  for (unsigned n : moves.set_bits())
    shape.push_back(getConstantIntValue(turns[n]).value_or(ShapedType::kDynamic));
  Type element = getElementTypeOrSelf(source.tensor);
  OpFoldResult one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> from(source.hasLoop.size(), b.getIndexAttr(0)), unit(source.hasLoop.size(), one);
  Value part = tensor::ExtractSliceOp::create(b, loc, RankedTensorType::get(shape, element), source.tensor, from,
                                              source.spread(turns, one), unit);
  if (!llvm::is_sorted(order)) {
    part = transposed(b, loc, part, order);
  }
  remark::passed(loc, remark::RemarkOpts::name("Slice").category("attn-write-slices"))
      << "elements are written as a slice";
  b.replaceOpWithNewOp<tensor::InsertSliceOp>(root, part, written, offsets, sizes, strides);
  return true;
}

/// `value`, computed before `loop`, on which it does not depend.
Value SliceWriter::moveBefore(Value value, Operation *loop) {
  Operation *op = value.getDefiningOp();
  if (!op || !loop->isProperAncestor(op))
    return value;
  for (Value operand : op->getOperands())
    moveBefore(operand, loop);
  b.moveOpBefore(op, loop);
  return value;
}

bool SliceWriter::writeRows(const Nest &nest, const Source &source) {
  tensor::InsertOp insert = nest.insert;
  SmallVector<Value> indices(insert.getIndices());
  // The innermost loops that go along the last dimensions, and along no other one.
  size_t rows = 0;
  auto isFree = [&](Value index, scf::ForOp loop) {
    DenseSet<Value> visited;
    return index != loop.getInductionVar() && !isComputedFrom(index, loop.getInductionVar(), visited);
  };
  while (rows < nest.loops.size() && rows < indices.size()) {
    scf::ForOp loop = nest.loops[nest.loops.size() - 1 - rows];
    size_t dim = indices.size() - 1 - rows;
    if (indices[dim] != loop.getInductionVar() ||
        !llvm::all_of(ArrayRef(indices).take_front(dim), [&](Value index) { return isFree(index, loop); }))
      break;
    ++rows;
  }
  if (rows == 0 || rows == nest.loops.size())
    return false;
  size_t lead = nest.loops.size() - rows;
  SmallVector<int64_t> shape;
  for (scf::ForOp inner : ArrayRef(nest.loops).drop_front(lead))
    shape.push_back(getConstantIntValue(inner.getUpperBound()).value_or(ShapedType::kDynamic));
  if (!ShapedType::isDynamicShape(shape) && ShapedType::getNumElements(shape) < kLeastRow)
    return false;
  scf::ForOp loop = nest.loops[lead];
  Location loc = insert.getLoc();
  SmallVector<OpFoldResult> offsets, sizes, from, lengths;
  for (size_t n = 0; n != lead; ++n) {
    from.push_back(scf::ForOp(nest.loops[n]).getInductionVar());
    lengths.push_back(b.getIndexAttr(1));
  }
  for (Value index : ArrayRef(indices).drop_back(rows)) {
    offsets.push_back(getAsOpFoldResult(moveBefore(index, loop)));
    sizes.push_back(b.getIndexAttr(1));
  }
  for (scf::ForOp inner : ArrayRef(nest.loops).drop_front(lead)) {
    OpFoldResult length = getAsOpFoldResult(inner.getUpperBound());
    offsets.push_back(b.getIndexAttr(0));
    from.push_back(b.getIndexAttr(0));
    sizes.push_back(length);
    lengths.push_back(length);
  }
  b.setInsertionPoint(loop);
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> unit(source.hasLoop.size(), one), ones(offsets.size(), one);
  Value part =
      tensor::ExtractSliceOp::create(b, loc, RankedTensorType::get(shape, getElementTypeOrSelf(source.tensor)),
                                     source.tensor, source.spread(from, zero), source.spread(lengths, one), unit);
  b.replaceOpWithNewOp<tensor::InsertSliceOp>(loop, part, loop.getInits().front(), offsets, sizes, ones);
  return true;
}

struct WriteSlicesPass : impl::WriteSlicesPassBase<WriteSlicesPass> {
  using WriteSlicesPassBase::WriteSlicesPassBase;
  WriteSlicesPass(const WeightStore *weights, bool copiesRows) : weights(weights), copiesRows(copiesRows) {}

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<scf::ForOp> loops;
    getOperation().walk([&](scf::ForOp loop) {
      if (loop.getNumResults() == 1)
        loops.push_back(loop);
    });
    IRRewriter rewriter(&getContext());
    SliceWriter writer(rewriter, symbols, weights);
    // An inner loop of a nest makes what the outer one carries, and is no nest of its own: the outer one comes first.
    DenseSet<Operation *> done;
    for (scf::ForOp loop : llvm::reverse(loops)) {
      if (done.contains(loop))
        continue;
      std::optional<Nest> nest = EdgeTable::matchNest(loop.getResult(0));
      if (!nest)
        continue;
      done.insert(nest->loops.begin(), nest->loops.end());
      std::optional<Source> source = findSource(*nest);
      // One number that is put into a matrix may mark edges, which attn-raise-tables reads.
      if (!source || (nest->insert.getType().getRank() <= 2 && EdgeTable::match(loop.getResult(0), symbols, weights)))
        continue;
      if (!writer.writeSlice(*nest, *source) && copiesRows)
        writer.writeRows(*nest, *source);
    }
    // A nest of loops of one turn each is one insertion by now.
    for (auto insert : collect<tensor::InsertOp>(getOperation())) {
      Nest nest = {{}, insert};
      std::optional<Source> source =
          isa<func::FuncOp>(insert->getParentOp()) ? findSource(nest) : std::optional<Source>();
      if (source)
        writer.writeSlice(nest, *source);
    }
  }

private:
  const WeightStore *weights = nullptr;
  bool copiesRows = true;
};

} // namespace

std::unique_ptr<Pass> createWriteSlicesPass(const WeightStore *weights, bool copiesRows) {
  return std::make_unique<WriteSlicesPass>(weights, copiesRows);
}
} // namespace attn
