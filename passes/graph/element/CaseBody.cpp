#include "passes/graph/element/Cases.h"

#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;

// What the body of a linalg op makes of an element.

namespace attn {
namespace {

CaseExprRef make(CaseExpr expr) { return std::make_shared<const CaseExpr>(std::move(expr)); }

/// The constant that `expr` is, or null.
Attribute getConstant(const CaseExpr &expr) {
  if (expr.kind == CaseExpr::Number)
    return expr.number;
  std::optional<int64_t> integer = expr.kind == CaseExpr::Integer ? expr.integer.getConstant() : std::nullopt;
  return integer ? IntegerAttr::get(expr.type, expr.type.isInteger(1) ? *integer & 1 : *integer) : IntegerAttr();
}

/// Whether an elementwise op gives elements of tensors as they are, or is of integers, which places are made of.
bool movesElements(linalg::LinalgOp op) {
  Value yielded = op.getBlock()->getTerminator()->getOperand(0);
  return isa<BlockArgument>(yielded) || !isa<FloatType>(yielded.getType()) ||
         yielded.getDefiningOp<tensor::ExtractOp>();
}

/// Whether sums and products of this type are followed as those of integers: small numbers of it do not wrap.
bool wrapsNot(Type type) { return type.isIndex() || type.isInteger(64); }

/// Whether an index is a size, or a product of sizes: no less than 0.
bool isSize(Value index) {
  if (auto product = index.getDefiningOp<arith::MulIOp>())
    return index.getType().isIndex() && isSize(product.getLhs()) && isSize(product.getRhs());
  std::optional<int64_t> number = getConstantIntValue(index);
  return index.getDefiningOp<tensor::DimOp>() || (number && *number >= 0 && index.getType().isIndex());
}

/// Numbers that are made of larger ones are not followed, so that none wraps.
constexpr int64_t kMaxNumber = int64_t{1} << 40;

bool isModest(const Linear &number) {
  auto fits = [](int64_t n) { return n > -kMaxNumber && n < kMaxNumber; };
  return fits(number.constant) && llvm::all_of(number.factors, fits);
}

/// The factor of a product by a constant, if it is small.
std::optional<int64_t> getFactor(const CaseExpr &expr) {
  std::optional<int64_t> number = expr.integer.getConstant();
  constexpr int64_t kMaxFactor = int64_t{1} << 20;
  return number && *number > -kMaxFactor && *number < kMaxFactor ? number : std::nullopt;
}

} // namespace

void CaseReader::readLinalg(linalg::LinalgOp op, Place place, const Guards &guards, Take take) {
  AffineMap written = op.getIndexingMapsArray().back();
  if (op->getNumResults() != 1 || !written.isProjectedPermutation())
    return take(guards, makeUnknown(getElementTypeOrSelf(op->getResult(0))));
  if (isa<linalg::FillOp>(op)) {
    CaseExprRef number = makeConstant(splatConstant(op->getResult(0)));
    return take(guards, number ? number : makeRead(op->getResult(0), place));
  }
  Point point = {op, SmallVector<Linear>(op.getNumLoops())};
  for (auto [n, expr] : llvm::enumerate(written.getResults()))
    point.loops[cast<AffineDimExpr>(expr).getPosition()] = place[n];
  if (isContraction(op))
    return readProduct(point, guards, take);
  if (!isPointwise(op) || (followed == Follow::moves && !movesElements(op)))
    return take(guards, makeRead(op->getResult(0), place));
  evaluate(op.getBlock()->getTerminator()->getOperand(0), point, guards, take);
}

void CaseReader::readOperand(OpOperand *operand, const Point &point, const Guards &guards, Take take) {
  linalg::LinalgOp op = point.op;
  SmallVector<Linear> place;
  for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults()) {
    std::optional<Linear> along = linearOf(expr, point.loops);
    if (!along)
      return take(guards, makeUnknown(getElementTypeOrSelf(operand->get())));
    place.push_back(*along);
  }
  llvm::SaveAndRestore<bool> isPoint(readsPoint, readsPoint && isPointwise(op) && movesElements(op));
  read(operand->get(), place, guards, take);
}

void CaseReader::readProduct(const Point &point, const Guards &guards, Take take) {
  linalg::LinalgOp op = point.op;
  Type type = getElementTypeOrSelf(op->getResult(0));
  SmallVector<unsigned> reduced;
  op.getReductionDims(reduced);
  if (reduced.size() != 1 || !isZeroFill(op.getDpsInits()[0]))
    return take(guards, makeUnknown(type));
  OpOperand *lhs = op.getDpsInputOperand(0), *rhs = op.getDpsInputOperand(1);
  std::optional<int64_t> size = SmallVector<int64_t>(op.getStaticLoopRanges())[reduced.front()];
  if (size == 1 && type == getElementTypeOrSelf(lhs->get()) && type == getElementTypeOrSelf(rhs->get())) {
    // Of one term, one factor of which is 1: the other.
    Point only = point;
    only.loops[reduced.front()] = Linear{0};
    return readOperand(lhs, only, guards, [&](const Guards &here, const CaseExprRef &a) {
      readOperand(rhs, only, here, [&](const Guards &there, const CaseExprRef &b) {
        auto isOne = [](const CaseExpr &e) { return e.kind == CaseExpr::Number && e.number.getValueAsDouble() == 1; };
        return isOne(*a) ? take(there, b) : isOne(*b) ? take(there, a) : take(there, makeUnknown(type));
      });
    });
  }
  if (ShapedType::isDynamic(*size) || followed != Follow::all)
    return take(guards, makeUnknown(type));
  auto *known = llvm::find_if(summed, [&](const auto &entry) { return entry.first == op; });
  unsigned variable = sizes.size();
  if (known != summed.end())
    variable = known->second;
  else {
    sizes.push_back(Linear{*size});
    summed.emplace_back(op, variable);
    if (!coordinates.empty())
      coordinates.push_back({Linear::variable(variable), Linear{*size}});
  }
  Guards inside = guards;
  inside.addRange(Linear::variable(variable), Linear{*size});
  Point term = point;
  term.loops[reduced.front()] = Linear::variable(variable);
  llvm::SaveAndRestore<SmallVector<Coordinate>> outer(coordinates);
  llvm::append_range(coordinates, ofProducts);
  // All terms are one kind of case, or it is none that can be told.
  CaseExprRef product;
  bool isOne = true;
  Guards holds = guards; // what is known of the place, if there is one case
  readOperand(lhs, term, inside, [&](const Guards &here, const CaseExprRef &a) {
    readOperand(rhs, term, here, [&](const Guards &there, const CaseExprRef &b) {
      CaseExpr next = {.kind = CaseExpr::Product, .type = type, .op = op, .summed = variable, .operands = {a, b}};
      if (product && !isSame(*product, next, there))
        isOne = false;
      holds = product ? guards : there;
      product = product ? product : make(next);
    });
  });
  if (!hasFailed)
    take(holds, product && isOne ? product : makeUnknown(type));
}

void CaseReader::evaluate(Value scalar, const Point &point, const Guards &guards, Take take) {
  if (hasFailed)
    return;
  if (shared.numSteps == 0)
    return fail();
  --shared.numSteps;
  linalg::LinalgOp op = point.op;
  auto argument = dyn_cast<BlockArgument>(scalar);
  if (argument && argument.getOwner() == op.getBlock())
    return op.isDpsInput(op.getMatchingOpOperand(argument))
               ? readOperand(op.getMatchingOpOperand(argument), point, guards, take)
               : take(guards, makeUnknown(scalar.getType()));
  if (CaseExprRef constant = makeConstant(splatConstant(scalar)))
    return take(guards, constant);
  // A size, for what a body takes from outside.
  if (isSize(scalar) && scalar.getParentBlock() != op.getBlock())
    return take(guards, makeInteger(scalar.getType(), getSize(OpFoldResult(scalar))));
  Operation *computes = scalar.getDefiningOp();
  if (!computes || computes->getBlock() != op.getBlock() || computes->getNumResults() != 1 ||
      computes->getNumRegions() != 0)
    return take(guards, makeUnknown(scalar.getType()));
  if (auto index = dyn_cast<linalg::IndexOp>(computes))
    return take(guards, makeInteger(index.getType(), point.loops[index.getDim()]));
  evaluateOp(computes, point, guards, take);
}

void CaseReader::evaluateAll(ValueRange scalars, const Point &point, const Guards &guards,
                             SmallVector<CaseExprRef> &done, TakeAll take) {
  if (scalars.empty())
    return take(guards, done);
  evaluate(scalars.front(), point, guards, [&](const Guards &here, const CaseExprRef &expr) {
    done.push_back(expr);
    evaluateAll(scalars.drop_front(), point, here, done, take);
    done.pop_back();
  });
}

void CaseReader::evaluateOp(Operation *op, const Point &point, const Guards &guards, Take take) {
  SmallVector<CaseExprRef> done;
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    // Only what is chosen, where that is known.
    return evaluate(select.getCondition(), point, guards, [&](const Guards &here, const CaseExprRef &condition) {
      if (std::optional<int64_t> is =
              condition->kind == CaseExpr::Integer ? condition->integer.getConstant() : std::nullopt)
        return evaluate(*is ? select.getTrueValue() : select.getFalseValue(), point, here, take);
      SmallVector<CaseExprRef> operands = {condition};
      evaluateAll({select.getTrueValue(), select.getFalseValue()}, point, here, operands,
                  [&](const Guards &there, ArrayRef<CaseExprRef> all) { take(there, applyOp(op, all)); });
    });
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    // Indices are looked into, wherever they are read.
    llvm::SaveAndRestore<bool> index(readsIndex, true);
    return evaluateAll(extract.getIndices(), point, guards, done,
                       [&, outer = index.get()](const Guards &here, ArrayRef<CaseExprRef> indices) {
                         llvm::SaveAndRestore<bool> element(readsIndex, outer);
                         readGathered(extract, indices, here, take);
                       });
  }
  evaluateAll(op->getOperands(), point, guards, done, [&](const Guards &here, ArrayRef<CaseExprRef> operands) {
    if (isa<arith::CmpIOp>(op) &&
        llvm::all_of(operands, [](const CaseExprRef &operand) { return operand->kind == CaseExpr::Integer; }))
      return compare(op, operands, here, take);
    CaseExprRef integer = computeInteger(op, operands, here);
    take(here, integer ? integer : applyOp(op, operands));
  });
}

void CaseReader::readGathered(tensor::ExtractOp op, ArrayRef<CaseExprRef> indices, const Guards &guards, Take take) {
  SmallVector<Linear> place;
  bool isProved = true;
  for (const CaseExprRef &index : indices) {
    bool isChecked = index->kind == CaseExpr::Apply && isa<CheckIndexOp>(index->op);
    const CaseExpr &along = isChecked ? *index->operands.front() : *index;
    if (along.kind != CaseExpr::Integer)
      return take(guards, makeUnknown(op.getType()));
    place.push_back(along.integer);
    isProved &= !isChecked;
  }
  if (isProved && !(stopsAtGathers && place.size() == 1 && isa<FloatType>(op.getType())))
    return read(op.getTensor(), place, guards, take);
  // A table of one number holds it wherever it is read.
  if (isProved && isa_and_nonnull<arith::ConstantOp, WeightOp>(op.getTensor().getDefiningOp())) {
    SmallVector<CaseExprRef> entries;
    readConstant(op.getTensor(), place, guards,
                 [&](const Guards &, const CaseExprRef &entry) { entries.push_back(entry); });
    if (entries.size() == 1 && entries.front()->kind == CaseExpr::Number)
      return take(guards, entries.front());
  }
  CaseExpr gathered = *makeRead(op.getTensor(), place);
  gathered.op = op;
  take(guards, std::make_shared<const CaseExpr>(std::move(gathered)));
}

CaseExprRef CaseReader::computeInteger(Operation *op, ArrayRef<CaseExprRef> operands, const Guards &guards) {
  Type type = op->getResult(0).getType();
  if (!llvm::all_of(operands, [](const CaseExprRef &operand) {
        return operand->kind == CaseExpr::Integer && isModest(operand->integer);
      }))
    return nullptr;
  const Linear &first = operands.front()->integer;
  if (isa<arith::IndexCastOp, arith::ExtUIOp>(op) || (isa<arith::ExtSIOp>(op) && !operands.front()->type.isInteger(1)))
    return isa<arith::ExtUIOp>(op) && !operands.front()->type.isInteger(1) && !guards.isAtLeastZero(first)
               ? nullptr
               : makeInteger(type, first);
  if (isa<arith::AddIOp>(op) && wrapsNot(type))
    return makeInteger(type, first + operands[1]->integer);
  if (isa<arith::SubIOp>(op) && wrapsNot(type))
    return makeInteger(type, first - operands[1]->integer);
  if (isa<arith::MulIOp>(op) && wrapsNot(type)) {
    if (std::optional<int64_t> factor = getFactor(*operands[1]))
      return makeInteger(type, first * *factor);
    if (std::optional<int64_t> factor = getFactor(*operands[0]))
      return makeInteger(type, operands[1]->integer * *factor);
  }
  // An index that is proved to be one needs no check.
  if (isa<CheckIndexOp>(op) && guards.isAtLeastZero(first) &&
      guards.isAtLeastZero(operands[1]->integer - first - Linear{1}))
    return operands.front();
  return nullptr;
}

void CaseReader::splitAtZero(const Linear &number, const Guards &guards, Take take, const CaseExprRef &below,
                             const CaseExprRef &above) {
  Guards before = guards, after = guards;
  before.add(number * -1 - Linear{1});
  after.add(number);
  if (!before.isEmpty())
    take(before, below);
  if (!after.isEmpty())
    take(after, above);
}

void CaseReader::compare(Operation *op, ArrayRef<CaseExprRef> operands, const Guards &guards, Take take) {
  Type type = op->getResult(0).getType();
  if (!isModest(operands[0]->integer) || !isModest(operands[1]->integer))
    return take(guards, makeUnknown(type));
  Linear more = operands[0]->integer - operands[1]->integer;
  CaseExprRef no = makeInteger(type, Linear{0}), yes = makeInteger(type, Linear{1});
  auto isKnown = [&](bool holds) { take(guards, holds ? yes : no); };
  arith::CmpIPredicate predicate = cast<arith::CmpIOp>(op).getPredicate();
  std::optional<int64_t> known = more.getConstant();
  switch (predicate) {
  case arith::CmpIPredicate::slt:
    return known ? isKnown(*known < 0) : splitAtZero(more, guards, take, yes, no);
  case arith::CmpIPredicate::sge:
    return known ? isKnown(*known >= 0) : splitAtZero(more, guards, take, no, yes);
  case arith::CmpIPredicate::sle:
    return known ? isKnown(*known <= 0) : splitAtZero(more - Linear{1}, guards, take, yes, no);
  case arith::CmpIPredicate::sgt:
    return known ? isKnown(*known > 0) : splitAtZero(more - Linear{1}, guards, take, no, yes);
  case arith::CmpIPredicate::eq:
  case arith::CmpIPredicate::ne: {
    bool isEqual = predicate == arith::CmpIPredicate::eq;
    if (known)
      return isKnown((*known == 0) == isEqual);
    const CaseExprRef &at = isEqual ? yes : no, &beside = isEqual ? no : yes;
    auto above = [&](const Guards &here, const CaseExprRef &) {
      splitAtZero(more - Linear{1}, here, take, at, beside);
    };
    auto either = [&](const Guards &here, const CaseExprRef &is) { is ? take(here, is) : above(here, is); };
    return splitAtZero(more, guards, either, beside, nullptr);
  }
  default:
    return take(guards, makeUnknown(type));
  }
}

CaseExprRef CaseReader::applyOp(Operation *op, ArrayRef<CaseExprRef> operands) {
  auto is = [](const CaseExpr &e, double number) {
    return e.kind == CaseExpr::Number && e.number.getValueAsDouble() == number;
  };
  if (isa<arith::MulFOp>(op) && is(*operands[1], 1))
    return operands[0];
  if (isa<arith::MulFOp>(op) && is(*operands[0], 1))
    return operands[1];
  // What was widened rounds to itself.
  if (isa<arith::TruncFOp>(op) && operands[0]->kind == CaseExpr::Apply && isa<arith::ExtFOp>(operands[0]->op) &&
      operands[0]->operands[0]->type == op->getResult(0).getType())
    return operands[0]->operands[0];
  static const Guards anywhere;
  if (isa<arith::SelectOp>(op) && isSame(*operands[1], *operands[2], anywhere))
    return operands[1];
  SmallVector<Attribute> constants;
  for (const CaseExprRef &operand : operands)
    constants.push_back(getConstant(*operand));
  OpFoldResult folded =
      llvm::all_of(constants, [](Attribute a) { return bool(a); }) ? foldAt(op, constants) : OpFoldResult();
  for (auto [operand, value] : llvm::zip_equal(operands, op->getOperands()))
    if (folded == OpFoldResult(value))
      return operand;
  if (CaseExprRef constant = makeConstant(dyn_cast_if_present<Attribute>(folded)))
    return constant;
  return make({.kind = CaseExpr::Apply,
               .type = op->getResult(0).getType(),
               .op = op,
               .operands = SmallVector<CaseExprRef, 2>(operands)});
}

} // namespace attn
