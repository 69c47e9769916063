#include "passes/graph/element/Rows.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;

namespace attn {

std::optional<Element> RowReader::own() {
  Operation *op = root.getDefiningOp();
  Element element = strip(at(root));
  bool isOwn = isPointwise(op) && !isa<RankedTensorType>(element.value.getType()) && element.getOp() &&
               element.getOp()->getParentOp() == op;
  return isOwn ? std::optional(element) : std::nullopt;
}

std::optional<Element> RowReader::throughView(const Element &element) {
  std::optional<Element> source = element;
  if (!isView(element.value.getDefiningOp()))
    return std::nullopt;
  do
    source = step(*source);
  while (source && !isa<RankedTensorType>(source->value.getType()));
  return source;
}

Element RowReader::throughViews(Element element, SmallVectorImpl<Operation *> *views) {
  while (std::optional<Element> source = throughView(element)) {
    if (views)
      views->push_back(element.value.getDefiningOp());
    element = *source;
  }
  return element;
}

Value viewAgain(OpBuilder &b, ArrayRef<Operation *> views, Value from, Value to) {
  for (Operation *view : llvm::reverse(views)) {
    IRMapping mapping;
    mapping.map(from, to);
    from = view->getResult(0);
    to = b.clone(*view, mapping)->getResult(0);
  }
  return to;
}

std::optional<Quotient> RowReader::quotient(unsigned side) {
  std::optional<Element> whole = own();
  bool isProduct = whole && getAs<arith::MulFOp>(*whole);
  if (!isProduct && (side == 1 || !whole || !getAs<arith::DivFOp>(*whole)))
    return std::nullopt;
  std::optional<Element> numerator = tensor(operand(*whole, side)), denominator = tensor(operand(*whole, 1 - side));
  if (isProduct && denominator) { // x * (1 / y), x * y^-1
    Element inverse = strip(*denominator);
    if (getAs<arith::DivFOp>(inverse) && numberOf(of(inverse, 0)) == 1)
      denominator = tensor(operand(inverse, 1));
    else if (getAs<math::PowFOp>(inverse) && numberOf(of(inverse, 1)) == -1)
      denominator = tensor(operand(inverse, 0));
    else
      return std::nullopt;
  }
  return numerator && denominator && numerator->at == at(root).at ? std::optional(Quotient{*numerator, *denominator})
                                                                  : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

void RowReader::addParts(AffineExpr place, Places &found) {
  if (plain(place) == getAffineConstantExpr(0, place.getContext()))
    return;
  if (const Inner *inner = getInner(place); inner && inner->width) {
    AffineMap from = inner->from;
    for (AffineExpr part : from.getResults())
      addParts(part, found);
    return;
  }
  // Digits beside each other are one.
  std::optional<AffineExpr> digits = found.empty() ? std::nullopt : joinDigits(found.back(), place);
  if (!digits)
    return found.push_back(place);
  found.pop_back();
  addParts(*digits, found);
}

Places RowReader::parts(ArrayRef<AffineExpr> places) {
  Places found;
  for (AffineExpr place : places)
    addParts(place, found);
  return found;
}

std::optional<std::pair<int64_t, int64_t>> RowReader::findDims(AffineMap at, const Places &keys) {
  ArrayRef<AffineExpr> places = at.getResults();
  for (size_t count = 1; count <= places.size(); ++count)
    for (size_t first = 0; first + count <= places.size(); ++first)
      if (keys == Places(places.slice(first, count)) || parts(places.slice(first, count)) == keys)
        return std::pair(first, count);
  return std::nullopt;
}

std::optional<int64_t> RowReader::findDim(const Places &keys) {
  auto dims = findDims(at(root).at, keys);
  return dims && dims->second == 1 ? std::optional(dims->first) : std::nullopt;
}

/// Whether `place` says something of `key`, as a digit of it or joined with another place.
bool RowReader::isShared(AffineExpr place, AffineExpr key) {
  WalkResult found = place.walk([&](AffineExpr expr) {
    const Inner *inner = getInner(expr);
    bool isMade = inner && (inner->width || inner->divisor) &&
                  llvm::any_of(inner->from.getResults(), [&](AffineExpr from) { return isShared(from, key); });
    return expr == key || isMade ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found.wasInterrupted();
}

bool RowReader::names(AffineMap at, const Places &keys) {
  return llvm::any_of(keys, [&](AffineExpr key) {
    return llvm::any_of(at.getResults(), [&](AffineExpr place) { return isShared(place, key); });
  });
}

std::optional<Places> RowReader::replaced(AffineMap theirs, AffineMap mine, ArrayRef<AffineExpr> summed) {
  auto isSummed = [&](AffineExpr place) {
    return llvm::any_of(summed, [&](AffineExpr loop) { return isShared(place, loop); });
  };
  SmallVector<AffineExpr> loops = llvm::filter_to_vector(summed, [&](AffineExpr loop) { return !isUnit(loop); });
  Places keys, placed, others;
  for (auto [other, own] : llvm::zip_equal(theirs.getResults(), mine.getResults())) {
    if (loops.empty() && isSummed(other)) { // the only one of its row
      keys.push_back(own);
    } else if (parts(other) == parts(own)) {
      others.push_back(own);
    } else if (isSummed(other)) {
      llvm::append_range(keys, parts(own));
      llvm::append_range(placed, parts(other));
    } else {
      return std::nullopt;
    }
  }
  if (loops.empty())
    return keys.size() == 1 && isa<AffineDimExpr>(keys.front()) ? std::optional(keys) : std::nullopt;
  keys = parts(keys);
  placed = parts(placed);
  if (keys.empty() || placed.size() != loops.size() ||
      !std::is_permutation(placed.begin(), placed.end(), loops.begin()))
    return std::nullopt;
  // A key that also stands elsewhere is a diagonal.
  auto isElsewhere = [&](AffineExpr key) {
    return llvm::count(keys, key) != 1 ||
           llvm::any_of(others, [&](AffineExpr other) { return isShared(other, key) || isShared(key, other); });
  };
  bool isRow = llvm::all_of(keys, llvm::IsaPred<AffineDimExpr>) && llvm::none_of(keys, isElsewhere);
  return isRow ? std::optional(keys) : std::nullopt;
}

std::optional<Reduced> RowReader::reduced(const Element &element, Combiner combiner) {
  auto op = element.value.getDefiningOp<linalg::LinalgOp>();
  bool isProduct = combiner == Combiner::sum && isContraction(op) && isZeroFill(op.getDpsInits()[0]);
  if (!isProduct && getReduction(op) != combiner)
    return std::nullopt;
  SmallVector<Element> read = sources(element);
  if (isProduct) // with ones
    llvm::erase_if(read, [&](const Element &factor) { return numberOf(strip(factor)) == 1; });
  if (read.size() != 1)
    return std::nullopt;
  Reduced found{strip(read.front()), {}};
  SmallVector<unsigned> loops;
  op.getReductionDims(loops);
  for (unsigned loop : loops)
    found.loops.push_back(inner({op, loop, element.at}));
  return found;
}

std::optional<Places> RowReader::combined(const Element &element, const Element &term, Combiner combiner) {
  std::optional<Reduced> found = reduced(strip(element), combiner);
  Element own = strip(term);
  return found && found->element.value == own.value ? replaced(found->element.at, own.at, found->loops) : std::nullopt;
}

/// A divisor is made of its sum in few steps.
constexpr unsigned kMostTerms = 256;

std::optional<Total> RowReader::total(Element element, const Element &term, llvm::DenseSet<Value> &seen) {
  element = strip(element);
  if (!seen.insert(element.value).second || seen.size() > kMostTerms)
    return std::nullopt;
  if (std::optional<Places> keys = combined(element, term, Combiner::sum))
    return Total{element.value, *keys};
  Operation *op = element.getOp();
  if (!op || isa<RankedTensorType>(element.value.getType()) || op->getNumRegions() != 0 ||
      !isa<linalg::LinalgOp>(op->getParentOp()))
    return std::nullopt;
  for (unsigned n = op->getNumOperands(); n-- > 0;)
    if (std::optional<Total> found = total(operand(element, n), term, seen))
      return found;
  return std::nullopt;
}

std::optional<Total> RowReader::total(const Element &element, const Element &term) {
  llvm::DenseSet<Value> seen;
  return total(element, term, seen);
}

//===----------------------------------------------------------------------===//
// Maxima
//===----------------------------------------------------------------------===//

Value findUnshifted(Value shift, unsigned side, int64_t dim) {
  if (!isPointwise(shift.getDefiningOp()))
    return {};
  RowReader rows(shift);
  std::optional<Element> difference = rows.own();
  if (!difference || !getAs<arith::SubFOp>(*difference))
    return {};
  std::optional<Element> scores = rows.tensor(rows.operand(*difference, side));
  std::optional<Places> keys = scores && rows.isWhole(*scores)
                                   ? rows.combined(rows.operand(*difference, 1 - side), *scores, Combiner::maximum)
                                   : std::nullopt;
  return keys && rows.findDim(*keys) == dim ? scores->value : Value();
}

/// Whether `condition` asks of nothing but the maximum of the row of `term`, and no more than whether that is infinite
/// or NaN: all other numbers give one answer.
bool RowReader::asksWhetherFinite(const Element &condition, const Element &term, unsigned depth) {
  if (std::optional<double> number = numberOf(condition))
    return std::isinf(*number);
  if (splatConstant(condition.value) || combined(condition, term, Combiner::maximum))
    return true;
  Operation *op = isa<RankedTensorType>(condition.value.getType()) ? nullptr : condition.getOp();
  if (!isa_and_nonnull<arith::CmpFOp, arith::CmpIOp, math::AbsFOp, arith::XOrIOp, arith::AndIOp, arith::OrIOp,
                       arith::ExtUIOp, arith::TruncIOp, arith::UIToFPOp>(op) ||
      depth == 0)
    return false;
  return llvm::all_of(llvm::seq(op->getNumOperands()),
                      [&](unsigned n) { return asksWhetherFinite(of(condition, n), term, depth - 1); });
}

/// Where `shift` is the maximum of the row of `term`, or is where that is finite; the choice may be spelled as a sum of
/// products with 1 and 0.
std::optional<Places> RowReader::finiteMaximum(const Element &shift, const Element &term) {
  if (isa<RankedTensorType>(shift.value.getType()))
    return combined(shift, term, Combiner::maximum);
  auto isZero = [&](const Element &x) {
    return getAs<arith::MulFOp>(x) ? numberOf(of(x, 0)) == 0 || numberOf(of(x, 1)) == 0 : numberOf(x) == 0;
  };
  if (getAs<arith::SelectOp>(shift)) {
    if (!asksWhetherFinite(of(shift, 0), term))
      return std::nullopt;
    std::optional<Places> found = finiteMaximum(of(shift, 1), term);
    return found ? found : finiteMaximum(of(shift, 2), term);
  }
  bool isSum = static_cast<bool>(getAs<arith::AddFOp>(shift));
  for (unsigned n : {0, 1})
    if (isSum || getAs<arith::MulFOp>(shift)) {
      Element other = of(shift, 1 - n);
      if (isSum ? isZero(other) : getAs<arith::UIToFPOp>(other) && asksWhetherFinite(of(other, 0), term))
        if (std::optional<Places> found = finiteMaximum(of(shift, n), term))
          return found;
    }
  return std::nullopt;
}

bool RowReader::isFiniteMaximum(const Element &shift, const Element &term, const Places &keys) {
  std::optional<Places> found = finiteMaximum(strip(shift), term);
  return found && *found == keys;
}

std::optional<Places> RowReader::logSumExp(const Element &logs, const Element &term) {
  Element result = strip(logs), own = strip(term);
  auto findExponents = [&](const Element &log) {
    std::optional<Reduced> sum = reduced(of(log, 0), Combiner::sum);
    if (sum && !getAs<math::ExpOp>(sum->element))
      sum.reset();
    if (sum)
      sum->element = of(sum->element, 0);
    return sum;
  };
  auto findRow = [&](const Element &element, const Places &summed) {
    return element.value == own.value ? replaced(element.at, own.at, summed) : std::nullopt;
  };
  if (getAs<math::LogOp>(result)) { // log(sum(exp(y))), y = x - max(x)
    std::optional<Reduced> exponents = findExponents(result);
    std::optional<Places> keys = exponents ? findRow(exponents->element, exponents->loops) : std::nullopt;
    bool isBelowMaximum =
        keys && getAs<arith::SubFOp>(own) && combines(operand(own, 1), operand(own, 0), Combiner::maximum, *keys);
    return isBelowMaximum ? keys : std::nullopt;
  }
  // log(sum(exp(x - max(x)))) + max(x); without the maximum, exponentials may overflow
  for (unsigned n : {0, 1}) {
    if (!getAs<arith::AddFOp>(result))
      break;
    Element log = of(result, n), shift = of(result, 1 - n);
    std::optional<Places> highest = getAs<math::LogOp>(log) ? finiteMaximum(shift, term) : std::nullopt;
    std::optional<Reduced> exponents = highest ? findExponents(log) : std::nullopt;
    if (!exponents || !getAs<arith::SubFOp>(exponents->element) || !isSame(of(exponents->element, 1), shift))
      continue;
    if (findRow(of(exponents->element, 0), exponents->loops) == highest)
      return highest;
  }
  return std::nullopt;
}

} // namespace attn
