#include "passes/graph/element/PositionReader.h"
#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"

#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace attn {
namespace {

/// Chains of exporters are some dozens of ops long; a concatenation reads each of its pieces.
constexpr unsigned kMaxSteps = 4096;
/// No sum of a few such multiples of places in a tensor wraps, in 32 bits either.
constexpr int64_t kMaxOffset = int64_t{1} << 24, kMaxFactor = 4;

int64_t numberOf(IntegerAttr integer) {
  return integer.getType().isInteger(1) ? int64_t{integer.getValue().isOne()} : integer.getInt();
}

/// Integers in which no sum of places wraps.
bool isWide(Type type) { return type.isIndex() || (type.isInteger() && type.getIntOrFloatBitWidth() >= 32); }

/// The sizes of a tensor, as far as the op that makes it says them.
SmallVector<OpFoldResult> sizesOf(Value tensor) {
  Operation *op = tensor.getDefiningOp();
  if (auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op)) {
    unsigned result = cast<OpResult>(tensor).getResultNumber();
    return sizesOf(linalgOp.getDpsInitOperand(result)->get());
  }
  if (auto empty = dyn_cast_or_null<tensor::EmptyOp>(op))
    return empty.getMixedSizes();
  if (auto slice = dyn_cast_or_null<tensor::ExtractSliceOp>(op))
    return slice.getType().getRank() == slice.getSourceType().getRank() ? slice.getMixedSizes()
                                                                        : SmallVector<OpFoldResult>();
  if (auto insert = dyn_cast_or_null<tensor::InsertSliceOp>(op))
    return sizesOf(insert.getDest());
  if (auto expand = dyn_cast_or_null<tensor::ExpandShapeOp>(op))
    return expand.getMixedOutputShape();
  return {};
}

bool hasUnitStrides(ArrayRef<OpFoldResult> strides) {
  return llvm::all_of(strides, [](OpFoldResult stride) { return isConstantIntValue(stride, 1); });
}

/// The one dimension of `dims` that is not of size 1, or none of them; nothing where there are more.
std::optional<std::optional<int64_t>> onlyDim(RankedTensorType type, ArrayRef<int64_t> dims) {
  std::optional<int64_t> only;
  for (int64_t dim : dims)
    if (type.getDimSize(dim) != 1) {
      if (only)
        return std::nullopt;
      only = dim;
    }
  return only;
}

} // namespace

PositionReader::PositionReader(Value root)
    : root(root), extents(sizesOf(root)), numDims(cast<RankedTensorType>(root.getType()).getRank()) {}

AffineExpr PositionReader::constant(int64_t value) { return getAffineConstantExpr(value, root.getContext()); }

PositionReader::Expr PositionReader::simplify(AffineExpr expr) {
  expr = simplifyAffineExpr(expr, numDims, 0);
  SmallVector<int64_t> flat;
  if (failed(getFlattenedAffineExpr(expr, numDims, 0, &flat)) || flat.size() != numDims + 1 ||
      std::abs(flat.back()) > kMaxOffset ||
      llvm::any_of(ArrayRef(flat).drop_back(), [](int64_t factor) { return std::abs(factor) > kMaxFactor; }))
    return std::nullopt;
  return expr;
}

/// An element of these sizes is there, so none of them is 0.
void PositionReader::assumePresent(ArrayRef<OpFoldResult> sizes) {
  SmallVector<Value> front;
  for (OpFoldResult size : sizes)
    if (auto value = dyn_cast<Value>(size))
      front.push_back(value);
  while (!front.empty()) {
    Value value = front.pop_back_val();
    if (!present.insert(value).second)
      continue;
    if (auto least = value.getDefiningOp<arith::MinSIOp>())
      llvm::append_values(front, least.getLhs(), least.getRhs());
  }
}

/// What an index outside of any loop is.
std::optional<int64_t> PositionReader::number(Value value) {
  if (std::optional<int64_t> known = getConstantIntValue(value))
    return known;
  Operation *op = value.getDefiningOp();
  if (!isa_and_nonnull<arith::MinSIOp, arith::AddIOp, arith::SubIOp>(op) || ++steps > kMaxSteps)
    return std::nullopt;
  std::optional<int64_t> a = number(op->getOperand(0)), b = number(op->getOperand(1));
  if (isa<arith::MinSIOp>(op)) {
    for (unsigned side : {0, 1})
      if ((side ? b : a) == 1 && present.contains(op->getOperand(1 - side)))
        return 1;
    return a && b ? std::optional(std::min(*a, *b)) : std::nullopt;
  }
  if (!a || !b || std::abs(*a) > kMaxOffset || std::abs(*b) > kMaxOffset)
    return std::nullopt;
  return isa<arith::AddIOp>(op) ? *a + *b : *a - *b;
}

PositionReader::Expr PositionReader::sliced(tensor::ExtractSliceOp slice, ArrayRef<AffineExpr> at) {
  if (!hasUnitStrides(slice.getMixedStrides()))
    return std::nullopt;
  assumePresent(slice.getMixedSizes());
  assumePresent(sizesOf(slice.getSource()));
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  Exprs source;
  for (auto [dim, offset] : llvm::enumerate(slice.getMixedOffsets())) {
    auto value = dyn_cast<Value>(offset);
    std::optional<int64_t> start = value ? number(value) : getConstantIntValue(offset);
    if (!start)
      return std::nullopt;
    AffineExpr place = constant(0);
    if (!dropped.test(dim)) {
      place = at.front();
      at = at.drop_front();
    }
    source.push_back(place + *start);
  }
  return element(slice.getSource(), source);
}

/// An element of a concatenation: of the piece in which it is known to lie, or what all pieces say alike.
PositionReader::Expr PositionReader::joined(tensor::InsertSliceOp insert, ArrayRef<AffineExpr> at) {
  if (!hasUnitStrides(insert.getMixedStrides()) || insert.getSourceType().getRank() != insert.getType().getRank())
    return std::nullopt;
  llvm::DenseSet<Value> outside = present;
  assumePresent(insert.getMixedSizes());
  Exprs inner;
  Sizes sizes = insert.getMixedSizes(), all = sizesOf(insert.getDest());
  bool isInside = true;
  for (auto [n, offset] : llvm::enumerate(insert.getMixedOffsets())) {
    auto value = dyn_cast<Value>(offset);
    std::optional<int64_t> start = value ? number(value) : getConstantIntValue(offset);
    if (!start)
      return std::nullopt;
    std::optional<int64_t> size = getConstantIntValue(sizes[n]);
    auto place = dyn_cast<AffineConstantExpr>(at[n]);
    bool isKnown = place && size, isWhole = start == 0 && !all.empty() && isEqualConstantIntOrValue(sizes[n], all[n]);
    if (isKnown && (place.getValue() < *start || place.getValue() >= *start + *size)) {
      present = std::move(outside);
      return element(insert.getDest(), Exprs(at));
    }
    isInside &= isKnown || isWhole;
    inner.push_back(at[n] - *start);
  }
  Expr piece = element(insert.getSource(), inner);
  present = std::move(outside);
  // Elements that nobody wrote may be anything.
  if (!piece || isInside || insert.getDest().getDefiningOp<tensor::EmptyOp>())
    return piece;
  Expr other = element(insert.getDest(), Exprs(at));
  return other == piece ? piece : std::nullopt;
}

/// A running sum: a loop that adds a slice of a tensor to what it carries, and stores each sum, or what it carried
/// before (an exclusive one). Of a tensor whose elements are all one number.
PositionReader::Expr PositionReader::summed(scf::ForOp loop, unsigned result, Exprs at) {
  Block &body = *loop.getBody();
  auto yielded = [&](unsigned n) { return body.getTerminator()->getOperand(n); };
  auto store = yielded(result).getDefiningOp<tensor::InsertSliceOp>();
  if (!store || store.getDest() != loop.getRegionIterArg(result) ||
      !isConstantIntValue(getAsOpFoldResult(loop.getLowerBound()), 0) ||
      !isConstantIntValue(getAsOpFoldResult(loop.getStep()), 1))
    return std::nullopt;
  auto before = dyn_cast<BlockArgument>(store.getSource());
  if (before && (before.getOwner() != &body || before.getArgNumber() == 0))
    return std::nullopt;
  Value next = before ? yielded(before.getArgNumber() - 1) : store.getSource();
  auto add = next.getDefiningOp<linalg::GenericOp>();
  if (!add || add->getBlock() != &body || add.getNumDpsInputs() != 1 || add.getNumDpsInits() != 1 ||
      add.getNumParallelLoops() != add.getNumLoops() ||
      !llvm::all_of(add.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return std::nullopt;
  auto carried = dyn_cast<BlockArgument>(add.getDpsInitOperand(0)->get());
  auto slice = add.getDpsInputs()[0].getDefiningOp<tensor::ExtractSliceOp>();
  Block &inner = *add.getBlock();
  auto sum = inner.getTerminator()->getOperand(0).getDefiningOp<arith::AddIOp>();
  if (!carried || (before && before != carried) || carried.getOwner() != &body || carried.getArgNumber() == 0 ||
      !slice || !sum || llvm::range_size(inner) != 2 || sum.getLhs() == sum.getRhs() ||
      !isa<BlockArgument>(sum.getLhs()) || !isa<BlockArgument>(sum.getRhs()) ||
      yielded(carried.getArgNumber() - 1) != add.getResult(0) || !loop.isDefinedOutsideOfLoop(slice.getSource()))
    return std::nullopt;
  TypedAttr start = splatConstant(loop.getInitArgs()[carried.getArgNumber() - 1]);
  if (!start || start != Builder(root.getContext()).getZeroAttr(start.getType()))
    return std::nullopt;
  // Both the slice that is read and the one that is stored stand where the loop is; what is stored is all of the
  // tensor.
  std::optional<unsigned> along;
  auto standsAlong = [&](ArrayRef<OpFoldResult> offsets, ArrayRef<OpFoldResult> sizes) {
    for (auto [n, offset] : llvm::enumerate(offsets)) {
      if (offset != OpFoldResult(loop.getInductionVar())) {
        if (!isConstantIntValue(offset, 0))
          return false;
      } else if (!isConstantIntValue(sizes[n], 1) || (along && *along != n)) {
        return false;
      } else {
        along = n;
      }
    }
    return along.has_value();
  };
  if (!hasUnitStrides(store.getMixedStrides()) || !hasUnitStrides(slice.getMixedStrides()) ||
      slice.getType().getRank() != slice.getSourceType().getRank() ||
      store.getSourceType().getRank() != store.getType().getRank() ||
      !standsAlong(store.getMixedOffsets(), store.getMixedSizes()) ||
      !standsAlong(slice.getMixedOffsets(), slice.getMixedSizes()))
    return std::nullopt;
  Sizes stored = store.getMixedSizes(), all = sizesOf(loop.getInitArgs()[result]);
  if (all.size() != stored.size() || !isWide(store.getType().getElementType()))
    return std::nullopt;
  stored[*along] = getAsOpFoldResult(loop.getUpperBound());
  for (auto [part, size] : llvm::zip(stored, all))
    if (!isEqualConstantIntOrValue(part, size))
      return std::nullopt;
  AffineExpr place = at[*along];
  at[*along] = getAffineDimExpr(numDims++, root.getContext());
  Expr term = element(slice.getSource(), at);
  if (!term || !isa<AffineConstantExpr>(*term))
    return std::nullopt;
  return simplify((before ? place : place + 1) * *term);
}

PositionReader::Expr PositionReader::element(Value tensor, Exprs at) {
  if (++steps > kMaxSteps || !isa<IntegerType>(getElementTypeOrSelf(tensor)))
    return std::nullopt;
  if (auto splat = dyn_cast_or_null<IntegerAttr>(splatConstant(tensor)))
    return simplify(constant(numberOf(splat)));
  Operation *op = tensor.getDefiningOp();
  if (!op)
    return std::nullopt;
  assumePresent(sizesOf(tensor));
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    return element(cast.getSource(), at);
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    Exprs source;
    for (const ReassociationIndices &group : expand.getReassociationIndices()) {
      std::optional<std::optional<int64_t>> dim = onlyDim(expand.getResultType(), group);
      if (!dim && group.size() == 2) {
        OpFoldResult width = expand.getMixedOutputShape()[group[1]];
        source.push_back(joinRows(at[group[0]], at[group[1]], width));
        continue;
      }
      if (!dim)
        return std::nullopt;
      source.push_back(*dim ? at[**dim] : constant(0));
    }
    return element(expand.getSrc(), source);
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    Exprs source(collapse.getSrcType().getRank(), constant(0));
    for (auto [n, group] : llvm::enumerate(collapse.getReassociationIndices())) {
      std::optional<std::optional<int64_t>> dim = onlyDim(collapse.getSrcType(), group);
      if (!dim)
        return std::nullopt;
      if (*dim)
        source[**dim] = at[n];
    }
    return element(collapse.getSrc(), source);
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return sliced(slice, at);
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return joined(insert, at);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return summed(loop, cast<OpResult>(tensor).getResultNumber(), at);
  if (!isPointwise(op))
    return std::nullopt;
  auto linalgOp = cast<linalg::LinalgOp>(op);
  AffineMap written = linalgOp.getMatchingIndexingMap(linalgOp.getDpsInitOperand(0));
  Exprs loops(at.size());
  for (auto [n, expr] : llvm::enumerate(written.getResults()))
    loops[cast<AffineDimExpr>(expr).getPosition()] = at[n];
  return scalar(linalgOp.getBlock()->getTerminator()->getOperand(0), linalgOp, loops);
}

/// 1 or 0 where the comparison of a difference with 0 comes out alike at all places, which are 0 or more.
PositionReader::Expr PositionReader::compared(arith::CmpIPredicate predicate, AffineExpr difference) {
  Expr simple = simplify(difference);
  SmallVector<int64_t> flat;
  if (!simple || failed(getFlattenedAffineExpr(*simple, numDims, 0, &flat)))
    return std::nullopt;
  auto factors = ArrayRef(flat).drop_back();
  bool isLeast = llvm::all_of(factors, [](int64_t factor) { return factor >= 0; });
  bool isMost = llvm::all_of(factors, [](int64_t factor) { return factor <= 0; });
  int64_t bound = flat.back();
  auto all = [&](bool isPositive, bool orZero) {
    return isPositive ? isLeast && bound >= !orZero : isMost && bound <= -!orZero;
  };
  using P = arith::CmpIPredicate;
  auto decide = [&](bool holds, bool fails) -> Expr { return holds || fails ? Expr(constant(holds)) : std::nullopt; };
  bool isZero = isLeast && isMost && bound == 0, isOther = all(true, false) || all(false, false);
  switch (predicate) {
  case P::eq:
    return decide(isZero, isOther);
  case P::ne:
    return decide(isOther, isZero);
  case P::slt:
    return decide(all(false, false), all(true, true));
  case P::sle:
    return decide(all(false, true), all(true, false));
  case P::sgt:
    return decide(all(true, false), all(false, true));
  case P::sge:
    return decide(all(true, true), all(false, false));
  default:
    return std::nullopt;
  }
}

/// A checked index, if the check can't fail: a place of the root along a dimension of that size.
PositionReader::Expr PositionReader::checked(Value limit, Expr index) {
  if (!index)
    return std::nullopt;
  if (auto place = dyn_cast<AffineConstantExpr>(*index)) {
    std::optional<int64_t> size = number(limit);
    bool isFirst = place.getValue() == 0 && present.contains(limit);
    return place.getValue() >= 0 && (isFirst || (size && place.getValue() < *size)) ? index : std::nullopt;
  }
  auto loop = dyn_cast<AffineDimExpr>(*index);
  if (!loop || loop.getPosition() >= extents.size())
    return std::nullopt;
  return isEqualConstantIntOrValue(extents[loop.getPosition()], getAsOpFoldResult(limit)) ? index : std::nullopt;
}

/// Whether `value`, an integer, is `size`.
bool PositionReader::isSize(Value value, OpFoldResult size) {
  while (isa_and_nonnull<arith::IndexCastOp, arith::ExtSIOp>(value.getDefiningOp()) && isWide(value.getType()))
    value = value.getDefiningOp()->getOperand(0);
  return isEqualConstantIntOrValue(getAsOpFoldResult(value), size);
}

/// A size, which is 1 or more, compared with what is less.
PositionReader::Expr PositionReader::comparedSize(arith::CmpIOp compare) {
  IntegerAttr other;
  if (!matchPattern(compare.getRhs(), m_Constant(&other)) || numberOf(other) > 0 ||
      llvm::none_of(present, [&](Value size) { return isSize(compare.getLhs(), size); }))
    return std::nullopt;
  using P = arith::CmpIPredicate;
  P predicate = compare.getPredicate();
  if (predicate == P::eq || predicate == P::slt || predicate == P::sle)
    return constant(0);
  return predicate == P::ne || predicate == P::sgt || predicate == P::sge ? Expr(constant(1)) : std::nullopt;
}

AffineExpr PositionReader::joinRows(AffineExpr row, AffineExpr column, OpFoldResult width) {
  for (const Split &split : splits)
    if (split.row == row && split.column == column && isEqualConstantIntOrValue(split.width, width))
      return split.place;
  splits.push_back({getAffineDimExpr(numDims++, root.getContext()), row, column, width});
  return splits.back().place;
}

/// The row of a place that is divided by the width; a divisor may be guarded against 0 and -1.
PositionReader::Expr PositionReader::divided(arith::DivSIOp division, linalg::LinalgOp op, ArrayRef<AffineExpr> loops) {
  Expr whole = scalar(division.getLhs(), op, loops);
  auto *found = llvm::find_if(splits, [&](const Split &known) { return whole && known.place == *whole; });
  if (found == splits.end())
    return std::nullopt;
  Split split = *found;
  Value divisor = division.getRhs();
  if (auto guard = divisor.getDefiningOp<arith::SelectOp>()) {
    Expr isGuarded = scalar(guard.getCondition(), op, loops);
    if (!isGuarded || *isGuarded != constant(0))
      return std::nullopt;
    divisor = guard.getFalseValue();
  }
  return isSize(divisor, split.width) ? Expr(split.row) : std::nullopt;
}

/// A row times the width: the place without its column.
PositionReader::Expr PositionReader::multiplied(AffineExpr factor, Value other) {
  for (const Split &split : splits)
    if (split.row == factor && isSize(other, split.width))
      return simplify(split.place - split.column);
  return std::nullopt;
}

/// Whether an index of the graph is checked on the way to `value`.
static bool mayFail(Value value) {
  SmallVector<Value> front{value};
  llvm::SmallPtrSet<Operation *, 16> seen;
  while (!front.empty()) {
    Value next = front.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (auto argument = dyn_cast<BlockArgument>(next))
      op = argument.getOwner()->getParentOp();
    if (isa_and_nonnull<func::FuncOp>(op) || !op || !seen.insert(op).second)
      continue;
    if (seen.size() > kMaxSteps)
      return true;
    WalkResult found = op->walk([&](Operation *inner) {
      llvm::append_range(front, inner->getOperands());
      return isa<CheckIndexOp>(inner) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (found.wasInterrupted())
      return true;
  }
  return false;
}

PositionReader::Expr PositionReader::scalar(Value value, linalg::LinalgOp op, ArrayRef<AffineExpr> loops) {
  if (++steps > kMaxSteps)
    return std::nullopt;
  auto read = [&](Value operand) { return scalar(operand, op, loops); };
  if (auto argument = dyn_cast<BlockArgument>(value); argument && argument.getOwner() == op.getBlock()) {
    OpOperand *input = op.getMatchingOpOperand(argument);
    if (!op.isDpsInput(input) || !isa<RankedTensorType>(input->get().getType()))
      return std::nullopt;
    Exprs at;
    for (AffineExpr expr : op.getMatchingIndexingMap(input).getResults())
      at.push_back(expr.replaceDims(loops));
    return element(input->get(), at);
  }
  Attribute known;
  if (matchPattern(value, m_Constant(&known))) {
    auto integer = dyn_cast<IntegerAttr>(known);
    return integer ? simplify(constant(numberOf(integer))) : std::nullopt;
  }
  Operation *inner = value.getDefiningOp();
  if (!inner || inner->getBlock() != op.getBlock()) {
    std::optional<int64_t> outer = value.getType().isIndex() ? number(value) : std::nullopt;
    return outer ? simplify(constant(*outer)) : std::nullopt;
  }
  if (auto index = dyn_cast<linalg::IndexOp>(inner))
    return loops[index.getDim()];
  if (auto extract = dyn_cast<tensor::ExtractOp>(inner)) {
    Exprs at;
    for (Value index : extract.getIndices()) {
      Expr place = read(index);
      if (!place)
        return std::nullopt;
      at.push_back(*place);
    }
    return element(extract.getTensor(), at);
  }
  if (auto check = dyn_cast<CheckIndexOp>(inner))
    return checked(check.getSize(), read(check.getIndex()));
  if (auto select = dyn_cast<arith::SelectOp>(inner)) {
    Expr condition = read(select.getCondition());
    if (!condition || !isa<AffineConstantExpr>(*condition))
      return std::nullopt;
    Value chosen = select.getTrueValue(), other = select.getFalseValue();
    if (*condition == constant(0))
      std::swap(chosen, other);
    // An index that is out of range on the other side is an error of the graph all the same.
    return mayFail(other) && !read(other) ? std::nullopt : read(chosen);
  }
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(inner) && !inner->getOperand(0).getType().isInteger(1)) {
    Expr from = read(inner->getOperand(0));
    if (isWide(inner->getOperand(0).getType()) && isWide(value.getType()))
      return from;
    // A byte holds small constants; places may wrap in it.
    auto number = from ? dyn_cast<AffineConstantExpr>(*from) : AffineConstantExpr();
    return number && number.getValue() >= 0 && number.getValue() <= INT8_MAX ? from : std::nullopt;
  }
  if (isa<arith::ExtUIOp>(inner)) {
    Expr narrow = read(inner->getOperand(0));
    return narrow && isa<AffineConstantExpr>(*narrow) && cast<AffineConstantExpr>(*narrow).getValue() >= 0
               ? narrow
               : std::nullopt;
  }
  if (inner->getNumOperands() != 2)
    return std::nullopt;
  if (auto division = dyn_cast<arith::DivSIOp>(inner))
    return divided(division, op, loops);
  Expr a = read(inner->getOperand(0)), b = read(inner->getOperand(1));
  if (!a || !b) {
    Expr known = a ? a : b;
    if (auto compare = dyn_cast<arith::CmpIOp>(inner))
      return comparedSize(compare);
    if (known && isa<arith::MulIOp>(inner))
      return multiplied(*known, inner->getOperand(a ? 1 : 0));
    // One side decides.
    bool decides =
        value.getType().isInteger(1) && known &&
        ((isa<arith::AndIOp>(inner) && *known == constant(0)) || (isa<arith::OrIOp>(inner) && *known == constant(1)));
    return decides ? known : std::nullopt;
  }
  if (auto compare = dyn_cast<arith::CmpIOp>(inner))
    return compared(compare.getPredicate(), *a - *b);
  auto first = dyn_cast<AffineConstantExpr>(*a), second = dyn_cast<AffineConstantExpr>(*b);
  if (value.getType().isInteger(1)) {
    if (!first || !second)
      return std::nullopt;
    if (isa<arith::AndIOp>(inner))
      return constant(first.getValue() & second.getValue());
    if (isa<arith::OrIOp>(inner))
      return constant(first.getValue() | second.getValue());
    return isa<arith::XOrIOp>(inner) ? Expr(constant(first.getValue() ^ second.getValue())) : std::nullopt;
  }
  if (!isWide(value.getType()))
    return std::nullopt;
  if (isa<arith::AddIOp>(inner))
    return simplify(*a + *b);
  if (isa<arith::SubIOp>(inner))
    return simplify(*a - *b);
  return isa<arith::MulIOp>(inner) && (first || second) ? simplify(*a * *b) : std::nullopt;
}

PositionReader::Expr PositionReader::read() {
  Exprs place;
  for (unsigned n = 0; n != numDims; ++n)
    place.push_back(getAffineDimExpr(n, root.getContext()));
  Expr value = element(root, place);
  value = value ? simplify(*value) : std::nullopt;
  for (unsigned n = place.size(); value && n != numDims; ++n)
    if (value->isFunctionOfDim(n))
      return std::nullopt;
  return value;
}

} // namespace attn
