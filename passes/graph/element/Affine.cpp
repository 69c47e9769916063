#include "passes/graph/element/Affine.h"

#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/ConstantTable.h"

#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace attn {
namespace {

/// Chains of exporters are some dozens of ops long; a concatenation reads each of its pieces.
constexpr unsigned kMaxSteps = 4096;
/// Each number of a larger table is looked at too often.
constexpr int64_t kMaxStored = int64_t{1} << 14;
/// No sum of a few such multiples of places in a tensor wraps, in 32 bits either; nor of ones that get no farther.
constexpr int64_t kMaxOffset = int64_t{1} << 24, kMaxFactor = 4, kMaxReach = int64_t{1} << 27;

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
  if (auto slice = dyn_cast_or_null<tensor::ExtractSliceOp>(op)) {
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    SmallVector<OpFoldResult> sizes;
    for (auto [dim, size] : llvm::enumerate(slice.getMixedSizes()))
      if (!dropped.test(dim))
        sizes.push_back(size);
    return sizes;
  }
  if (auto insert = dyn_cast_or_null<tensor::InsertSliceOp>(op))
    return sizesOf(insert.getDest());
  if (auto expand = dyn_cast_or_null<tensor::ExpandShapeOp>(op))
    return expand.getMixedOutputShape();
  return {};
}

} // namespace

Affine::Affine(Value root, const SymbolTable &symbols, const WeightStore *weights)
    : root(root), reader(root), symbols(symbols), weights(weights), extents(sizesOf(root)) {}

AffineExpr Affine::constant(int64_t value) { return getAffineConstantExpr(value, root.getContext()); }

/// The last place along dimension `n` of the root, where its size is known.
std::optional<int64_t> Affine::lastPlace(unsigned n) {
  auto type = cast<RankedTensorType>(root.getType());
  bool isKnown = n < type.getRank() && !type.isDynamicDim(n);
  return isKnown ? std::optional(std::max<int64_t>(type.getDimSize(n) - 1, 0)) : std::nullopt;
}

Affine::Expr Affine::simplify(AffineExpr expr) {
  unsigned numDims = reader.numPlaces();
  expr = simplifyAffineExpr(expr, numDims, 0);
  SmallVector<int64_t> flat;
  if (failed(getFlattenedAffineExpr(expr, numDims, 0, &flat)) || flat.size() != numDims + 1 ||
      std::abs(flat.back()) > kMaxOffset)
    return std::nullopt;
  for (auto [n, factor] : llvm::enumerate(ArrayRef(flat).drop_back())) {
    std::optional<int64_t> last = lastPlace(n);
    if (std::abs(factor) > kMaxFactor && (!last || std::abs(factor) > kMaxReach / std::max<int64_t>(*last, 1)))
      return std::nullopt;
  }
  return expr;
}

/// An element of these sizes is there, so none of them is 0.
void Affine::assumePresent(ArrayRef<OpFoldResult> sizes) {
  Values values;
  for (OpFoldResult size : sizes)
    if (auto value = dyn_cast<Value>(size))
      values.push_back(value);
  worklist(values, [&](Value value, Values &list) {
    auto least = value.getDefiningOp<arith::MinSIOp>();
    if (present.insert(value).second && least)
      llvm::append_values(list, least.getLhs(), least.getRhs());
    return false;
  });
}

/// What an index outside of any loop is.
std::optional<int64_t> Affine::number(Value value) {
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

/// An element of stored numbers, as 0, 1, 2, ... of a Range that an exporter folded.
Affine::Expr Affine::stored(const Element &element) {
  if (!getElementTypeOrSelf(element.value).isInteger(64)) // weights of other types can be replaced
    return std::nullopt;
  ConstantTable table = ConstantTable::read(element.value, symbols, weights);
  if (table.bytes.empty() || table.size() > kMaxStored)
    return std::nullopt;
  std::optional<SmallVector<int64_t>> steps = findSteps(cast<RankedTensorType>(element.value.getType()).getShape(),
                                                        [&](int64_t n) { return table.integerAt(n); });
  if (!steps || std::abs(table.integerAt(0)) > kMaxOffset)
    return std::nullopt;
  AffineExpr sum = constant(table.integerAt(0));
  for (auto [step, place] : llvm::zip_equal(*steps, element.at.getResults()))
    sum = sum + place * step;
  return simplify(sum);
}

/// An element of a concatenation: of the piece in which it is known to lie, or what all pieces say alike.
Affine::Expr Affine::joined(tensor::InsertSliceOp insert, const Element &element) {
  if (!insert.hasUnitStride() || insert.getSourceType().getRank() != insert.getType().getRank())
    return std::nullopt;
  llvm::DenseSet<Value> outside = present;
  assumePresent(insert.getMixedSizes());
  Exprs inner;
  SmallVector<OpFoldResult> sizes = insert.getMixedSizes(), all = sizesOf(insert.getDest());
  bool isInside = true;
  for (auto [n, offset] : llvm::enumerate(insert.getMixedOffsets())) {
    auto value = dyn_cast<Value>(offset);
    std::optional<int64_t> start = value ? number(value) : getConstantIntValue(offset);
    if (!start)
      return std::nullopt;
    std::optional<int64_t> size = getConstantIntValue(sizes[n]);
    AffineExpr at = element.at.getResult(n);
    auto place = dyn_cast<AffineConstantExpr>(at);
    bool isKnown = place && size, isWhole = start == 0 && !all.empty() && isEqualConstantIntOrValue(sizes[n], all[n]);
    if (isKnown && (place.getValue() < *start || place.getValue() >= *start + *size)) {
      present = std::move(outside);
      return of({insert.getDest(), element.at});
    }
    isInside &= isKnown || isWhole;
    inner.push_back(at - *start);
  }
  Expr piece = of(reader.at(insert.getSource(), inner));
  present = std::move(outside);
  // Elements that nobody wrote may be anything.
  if (!piece || isInside || insert.getDest().getDefiningOp<tensor::EmptyOp>())
    return piece;
  Expr other = of({insert.getDest(), element.at});
  return other == piece ? piece : std::nullopt;
}

/// A running sum: a loop that adds a constant to what it carries, from 0 on, and stores each sum, or what it carried
/// before (an exclusive one), one after the other.
Affine::Expr Affine::summed(scf::ForOp loop, const Element &element) {
  unsigned result = cast<OpResult>(element.value).getResultNumber();
  OperandRange yielded = loop.getBody()->getTerminator()->getOperands();
  auto store = yielded[result].getDefiningOp<tensor::InsertSliceOp>();
  if (!store || store.getDest() != loop.getRegionIterArg(result) || !store.hasUnitStride() ||
      store.getSourceType().getRank() != store.getType().getRank() || !isWide(store.getType().getElementType()) ||
      !isConstantIntValue(getAsOpFoldResult(loop.getLowerBound()), 0) ||
      !isConstantIntValue(getAsOpFoldResult(loop.getStep()), 1))
    return std::nullopt;
  // The slice that is stored stands where the loop is, and all of them are all of the tensor.
  std::optional<unsigned> along;
  SmallVector<OpFoldResult> stored = store.getMixedSizes(), all = sizesOf(loop.getInitArgs()[result]);
  for (auto [n, offset] : llvm::enumerate(store.getMixedOffsets())) {
    if (isConstantIntValue(offset, 0))
      continue;
    if (along || offset != OpFoldResult(loop.getInductionVar()) || !isConstantIntValue(stored[n], 1))
      return std::nullopt;
    along = n;
    stored[n] = getAsOpFoldResult(loop.getUpperBound());
  }
  if (!along || all.size() != stored.size() || !llvm::all_of_zip(stored, all, isEqualConstantIntOrValue))
    return std::nullopt;
  auto before = llvm::find(loop.getRegionIterArgs(), store.getSource());
  bool isExclusive = before != loop.getRegionIterArgs().end();
  unsigned position = isExclusive ? before - loop.getRegionIterArgs().begin()
                                  : llvm::find(yielded, store.getSource()) - yielded.begin();
  if (position == yielded.size())
    return std::nullopt;
  auto start = dyn_cast_or_null<IntegerAttr>(splatConstant(loop.getInitArgs()[position]));
  if (!start || !start.getValue().isZero())
    return std::nullopt;
  Exprs at(element.at.getResults());
  AffineExpr place = at[*along], sum = reader.inner({loop, position, element.at});
  at[*along] = constant(0);
  carried[loop.getRegionIterArg(position)] = sum;
  Expr next = of(reader.at(yielded[position], at));
  Expr step = next ? simplify(*next - sum) : std::nullopt;
  auto number = step ? dyn_cast<AffineConstantExpr>(*step) : AffineConstantExpr();
  if (!number || number.getValue() < 0) // a place, as which the sum is read, is 0 or more
    return std::nullopt;
  return simplify((isExclusive ? place : place + 1) * *step);
}

AffineExpr Affine::settle(AffineExpr expr) {
  for (unsigned n = reader.numRootPlaces(); n != reader.numPlaces(); ++n) {
    AffineExpr place = getAffineDimExpr(n, root.getContext());
    auto offset = dyn_cast_if_present<Value>(reader.getInner(place)->offset);
    if (std::optional<int64_t> start = offset && expr.isFunctionOfDim(n) ? number(offset) : std::nullopt)
      expr = expr.replace(place, constant(*start));
  }
  return expr;
}

/// 1 or 0 where the comparison of a difference with 0 comes out alike at all places, which are 0 or more.
Affine::Expr Affine::compared(arith::CmpIPredicate predicate, AffineExpr difference) {
  Expr simple = simplify(difference);
  SmallVector<int64_t> flat;
  if (!simple || failed(getFlattenedAffineExpr(*simple, reader.numPlaces(), 0, &flat)))
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

/// Whether `expr` is 0 or more and less than `size` at all places of a root of known sizes.
bool Affine::isWithin(AffineExpr expr, int64_t size) {
  SmallVector<int64_t> flat;
  if (failed(getFlattenedAffineExpr(expr, reader.numPlaces(), 0, &flat)) || flat.size() != reader.numPlaces() + 1)
    return false;
  int64_t least = flat.back(), most = least;
  for (auto [n, factor] : llvm::enumerate(ArrayRef(flat).drop_back())) {
    std::optional<int64_t> last = factor ? lastPlace(n) : 0;
    if (!last)
      return false;
    (factor < 0 ? least : most) += factor * *last;
  }
  return least >= 0 && most < size;
}

/// A checked index, if the check can't fail: a place of the root along a dimension of that size, or known bounds.
Affine::Expr Affine::checked(Value limit, Expr index) {
  if (!index)
    return std::nullopt;
  if (std::optional<int64_t> size = number(limit); size && isWithin(*index, *size))
    return index;
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
bool Affine::isSize(Value value, const Extent &size) {
  while (isa_and_nonnull<arith::IndexCastOp, arith::ExtSIOp>(value.getDefiningOp()) && isWide(value.getType()))
    value = value.getDefiningOp()->getOperand(0);
  return Extent::of(getAsOpFoldResult(value)) == size;
}

/// A size, which is 1 or more, compared with what is less.
Affine::Expr Affine::comparedSize(arith::CmpIOp compare) {
  IntegerAttr other;
  if (!matchPattern(compare.getRhs(), m_Constant(&other)) || numberOf(other) > 0 ||
      llvm::none_of(present, [&](Value size) { return isSize(compare.getLhs(), Extent::of(OpFoldResult(size))); }))
    return std::nullopt;
  using P = arith::CmpIPredicate;
  P predicate = compare.getPredicate();
  if (predicate == P::eq || predicate == P::slt || predicate == P::sle)
    return constant(0);
  return predicate == P::ne || predicate == P::sgt || predicate == P::sge ? Expr(constant(1)) : std::nullopt;
}

/// The row of a place that is divided by the width; a divisor may be guarded against 0 and -1.
Affine::Expr Affine::divided(const Element &division) {
  Expr whole = ofOperand(division, 0);
  const ElementReader::Inner *split = whole ? reader.getInner(*whole) : nullptr;
  if (!split || !split->width)
    return std::nullopt;
  AffineExpr row = split->from.getResult(0);
  Extent width = *split->width;
  Value divisor = division.getOp()->getOperand(1);
  if (auto guard = divisor.getDefiningOp<arith::SelectOp>()) {
    Expr isGuarded = of(reader.scalar(division, guard.getCondition()));
    if (!isGuarded || *isGuarded != constant(0))
      return std::nullopt;
    divisor = guard.getFalseValue();
  }
  return isSize(divisor, width) ? Expr(settle(row)) : std::nullopt;
}

/// A row times the width: the place without its column.
Affine::Expr Affine::multiplied(AffineExpr factor, Value other) {
  for (unsigned n = reader.numRootPlaces(); n != reader.numPlaces(); ++n) {
    AffineExpr place = getAffineDimExpr(n, root.getContext());
    const ElementReader::Inner *split = reader.getInner(place);
    if (split->width && settle(split->from.getResult(0)) == factor && isSize(other, *split->width))
      return simplify(place - settle(split->from.getResult(1)));
  }
  return std::nullopt;
}

/// Whether an index of the graph is checked on the way to `value`.
static bool mayFail(Value value) {
  llvm::SmallPtrSet<Operation *, 16> seen;
  return worklist(Values{value}, [&](Value next, Values &list) {
    Operation *op = next.getDefiningOp();
    if (auto argument = dyn_cast<BlockArgument>(next))
      op = argument.getOwner()->getParentOp();
    if (!op || isa<func::FuncOp>(op) || !seen.insert(op).second)
      return false;
    WalkResult found = op->walk([&](Operation *inner) {
      llvm::append_range(list, inner->getOperands());
      return isa<CheckIndexOp>(inner) ? WalkResult::interrupt() : WalkResult::advance();
    });
    return found.wasInterrupted() || seen.size() > kMaxSteps;
  });
}

Affine::Expr Affine::of(Element element) {
  if (++steps > kMaxSteps)
    return std::nullopt;
  element = reader.resolve(element, [&](Value tensor) { assumePresent(sizesOf(tensor)); });
  Exprs places;
  for (AffineExpr place : element.at.getResults())
    places.push_back(settle(place));
  element = reader.at(element.value, places);
  if (auto number = dyn_cast_or_null<IntegerAttr>(splatConstant(element.value)))
    return simplify(constant(numberOf(number)));
  if (auto sum = carried.find(element.value); sum != carried.end())
    return sum->second;
  Operation *op = element.getOp();
  if (!op || !isa<IntegerType, IndexType>(getElementTypeOrSelf(element.value)))
    return std::nullopt;
  if (isa<arith::ConstantOp, WeightOp>(op) && isa<RankedTensorType>(element.value.getType()))
    return stored(element);
  if (!isa<RankedTensorType>(element.value.getType()))
    return ofScalar(element);
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return joined(insert, element);
  auto loop = dyn_cast<scf::ForOp>(op);
  return loop ? summed(loop, element) : std::nullopt;
}

/// Of an op of a body, or of an index that stands outside of all.
Affine::Expr Affine::ofScalar(const Element &element) {
  Operation *op = element.getOp();
  Type type = element.value.getType();
  if (!isa<linalg::LinalgOp>(op->getParentOp())) {
    std::optional<int64_t> outer = type.isIndex() ? number(element.value) : std::nullopt;
    return outer ? simplify(constant(*outer)) : std::nullopt;
  }
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return element.at.getResult(index.getDim());
  if (isa<tensor::ExtractOp>(op))
    return extracted(element);
  if (auto check = dyn_cast<CheckIndexOp>(op))
    return checked(check.getSize(), of(reader.scalar(element, check.getIndex())));
  if (isa<arith::SelectOp>(op))
    return selected(element);
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(op) && !op->getOperand(0).getType().isInteger(1)) {
    Expr from = ofOperand(element, 0);
    if (isWide(op->getOperand(0).getType()) && isWide(type))
      return from;
    // A byte holds small constants; places may wrap in it.
    auto number = from ? dyn_cast<AffineConstantExpr>(*from) : AffineConstantExpr();
    return number && number.getValue() >= 0 && number.getValue() <= INT8_MAX ? from : std::nullopt;
  }
  if (isa<arith::ExtUIOp>(op)) {
    Expr narrow = ofOperand(element, 0);
    auto number = narrow ? dyn_cast<AffineConstantExpr>(*narrow) : AffineConstantExpr();
    return number && number.getValue() >= 0 ? narrow : std::nullopt;
  }
  if (isa<arith::DivSIOp>(op))
    return divided(element);
  return op->getNumOperands() == 2 ? ofPair(element) : std::nullopt;
}

Affine::Expr Affine::extracted(const Element &element) {
  auto extract = cast<tensor::ExtractOp>(element.getOp());
  Exprs at;
  for (Value index : extract.getIndices()) {
    Expr place = of(reader.scalar(element, index));
    if (!place)
      return std::nullopt;
    at.push_back(*place);
  }
  return of(reader.at(extract.getTensor(), at));
}

Affine::Expr Affine::selected(const Element &element) {
  Expr condition = ofOperand(element, 0);
  if (!condition || !isa<AffineConstantExpr>(*condition))
    return std::nullopt;
  unsigned chosen = *condition == constant(0) ? 2 : 1, other = 3 - chosen;
  // An index that is out of range on the other side is an error of the graph all the same.
  if (mayFail(element.getOp()->getOperand(other)) && !ofOperand(element, other))
    return std::nullopt;
  return ofOperand(element, chosen);
}

/// Of an op of two operands.
Affine::Expr Affine::ofPair(const Element &element) {
  Operation *op = element.getOp();
  Type type = element.value.getType();
  Expr a = ofOperand(element, 0), b = ofOperand(element, 1);
  if (!a || !b) {
    Expr known = a ? a : b;
    if (auto compare = dyn_cast<arith::CmpIOp>(op))
      return comparedSize(compare);
    if (known && isa<arith::MulIOp>(op))
      return multiplied(*known, op->getOperand(a ? 1 : 0));
    // One side decides.
    bool decides =
        known && type.isInteger(1) &&
        ((isa<arith::AndIOp>(op) && *known == constant(0)) || (isa<arith::OrIOp>(op) && *known == constant(1)));
    return decides ? known : std::nullopt;
  }
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    return compared(compare.getPredicate(), *a - *b);
  auto first = dyn_cast<AffineConstantExpr>(*a), second = dyn_cast<AffineConstantExpr>(*b);
  if (type.isInteger(1)) {
    if (!first || !second)
      return std::nullopt;
    if (isa<arith::AndIOp>(op))
      return constant(first.getValue() & second.getValue());
    if (isa<arith::OrIOp>(op))
      return constant(first.getValue() | second.getValue());
    return isa<arith::XOrIOp>(op) ? Expr(constant(first.getValue() ^ second.getValue())) : std::nullopt;
  }
  if (!isWide(type))
    return std::nullopt;
  if (isa<arith::AddIOp>(op))
    return simplify(*a + *b);
  if (isa<arith::SubIOp>(op))
    return simplify(*a - *b);
  return isa<arith::MulIOp>(op) && (first || second) ? simplify(*a * *b) : std::nullopt;
}

Affine::Expr Affine::read(ArrayRef<std::optional<int64_t>> fixed, SmallVectorImpl<Value> *offsets) {
  Exprs places;
  for (unsigned n = 0; n != reader.numRootPlaces(); ++n)
    places.push_back(n < fixed.size() && fixed[n] ? constant(*fixed[n]) : getAffineDimExpr(n, root.getContext()));
  Expr value = of(reader.at(root, places));
  value = value ? simplify(*value) : std::nullopt;
  for (unsigned n = reader.numRootPlaces(); value && n != reader.numPlaces(); ++n) {
    if (!value->isFunctionOfDim(n))
      continue;
    AffineExpr place = getAffineDimExpr(n, root.getContext());
    auto offset = offsets ? dyn_cast_if_present<Value>(reader.getInner(place)->offset) : Value();
    if (!offset)
      return std::nullopt;
    value = value->replace(place, getAffineSymbolExpr(offsets->size(), root.getContext()));
    offsets->push_back(offset);
  }
  return value;
}

} // namespace attn
