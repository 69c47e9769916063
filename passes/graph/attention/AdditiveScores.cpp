// Scores that are sums of a term of the query and a term of the key.

#include "passes/graph/attention/ScoreMatcher.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/RegionWriter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace attn {

Value getSummand(Operation *op) {
  auto sum = dyn_cast_or_null<linalg::LinalgOp>(op);
  if (!sum || !sum.hasPureTensorSemantics() || sum.getNumDpsInputs() != 1 || sum.getNumDpsInits() != 1 ||
      sum.getNumReductionLoops() == 0 || sum.getNumReductionLoops() + sum.getNumParallelLoops() != sum.getNumLoops() ||
      !isZeroFill(sum.getDpsInits()[0]))
    return {};
  Block &body = *sum.getBlock();
  BlockArgument total = body.getArgument(1);
  auto add = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  bool isPure = llvm::all_of(body.without_terminator(), [&](Operation &inner) {
    return inner.getNumRegions() == 0 && isMemoryEffectFree(&inner) && !isa<linalg::IndexOp>(inner) &&
           llvm::all_of(inner.getOperands(), [&](Value operand) {
             return operand.getParentBlock() == &body || isa_and_nonnull<arith::ConstantOp>(operand.getDefiningOp());
           });
  });
  if (!add || !isPure || !total.hasOneUse() || (add.getLhs() != total && add.getRhs() != total))
    return {};
  return add.getLhs() == total ? add.getRhs() : add.getLhs();
}

/// Lets `activation` yield what `product` sums of it: its square where a tensor is contracted with itself.
static void yieldSummand(Region &activation, linalg::LinalgOp product) {
  Operation *yield = activation.front().getTerminator();
  Value value = yield->getOperand(0);
  OpBuilder b(yield);
  Location loc = product.getLoc();
  Value summand = getSummand(product);
  if (!summand) {
    yield->setOperand(0, arith::MulFOp::create(b, loc, value, value));
    return;
  }
  IRMapping mapping;
  BlockArgument element = product.getBlock()->getArgument(0);
  mapping.map(element, convertFloat(b, loc, value, element.getType()));
  for (Operation &inner : product.getBlock()->without_terminator())
    if (!llvm::is_contained(inner.getOperands(), product.getBlock()->getArgument(1)))
      b.clone(inner, mapping);
  yield->setOperand(0, convertFloat(b, loc, mapping.lookupOrDefault(summand), value.getType()));
}

static bool yieldsSquare(Region &activation) {
  BlockArgument sum = activation.getArgument(0);
  auto square = activation.front().getTerminator()->getOperand(0).getDefiningOp<arith::MulFOp>();
  return square && square.getLhs() == sum && square.getRhs() == sum;
}

/// The squares of a sum of query and key are those of what the query is less the negated key, and of its negative.
static void takeDistance(AttentionMatch &match) {
  match.kind = ScoreKind::distance;
  match.activation.reset();
  bool isTurned = match.queryTerms.front().isNegated;
  for (AttentionMatch::Operand &term : match.queryTerms)
    term.isNegated ^= isTurned;
  for (AttentionMatch::Operand &term : match.keyTerms)
    term.isNegated ^= !isTurned;
}

/// The one tensor from which an elementwise op computes `tensor` with nothing
/// but constants, or of which it is a view.
std::optional<AttentionMatch::Operand> ScoreMatcher::onlyInput(const Operand &tensor) {
  Operand source = tensor;
  if (isView(source.value.getDefiningOp()))
    return space.stepUp(source.value, source.access) ? std::optional(source) : std::nullopt;
  auto op = source.value.getDefiningOp<linalg::LinalgOp>();
  if (!op || !isPointwise(op))
    return std::nullopt;
  OpOperand *only = nullptr;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (splatConstant(input->get()))
      continue;
    if (only || !isa<RankedTensorType>(input->get().getType()))
      return std::nullopt;
    only = input;
  }
  if (!only)
    return std::nullopt;
  std::optional<Access> read = space.readInput(*only, source.access);
  return read ? std::optional(Operand{only->get(), *read}) : std::nullopt;
}

/// The terms of a sum or difference of tensors; one of terms of one side stays one term.
void ScoreMatcher::collectTerms(Operand sum, SmallVectorImpl<Operand> &terms) {
  space.walkUp(sum.value, sum.access);
  auto op = sum.value.getDefiningOp<linalg::LinalgOp>();
  Operation *add = op && isPointwise(op) ? op.getBlock()->getTerminator()->getOperand(0).getDefiningOp() : nullptr;
  if (!isa_and_nonnull<arith::AddFOp, arith::SubFOp>(add))
    add = nullptr;
  SmallVector<Operand> inner;
  for (unsigned n = 0; add && n != 2; ++n) {
    auto argument = dyn_cast<BlockArgument>(add->getOperand(n));
    OpOperand *input = argument && argument.getOwner() == op.getBlock() ? op.getMatchingOpOperand(argument) : nullptr;
    std::optional<Access> read;
    if (input && op.isDpsInput(input) && isa<RankedTensorType>(input->get().getType()))
      read = space.readInput(*input, sum.access);
    if (!read) {
      add = nullptr;
      break;
    }
    size_t before = inner.size();
    collectTerms({input->get(), *read}, inner);
    for (Operand &term : MutableArrayRef(inner).drop_front(before))
      term.isNegated ^= n == 1 && isa<arith::SubFOp>(add);
  }
  unsigned keyed = llvm::count_if(inner, [&](Operand &term) {
    resolve(term.access);
    return namesAny(term.access, [&](unsigned atom) { return match.isKey(atom); });
  });
  if (add && (match.keys.empty() || (keyed != 0 && keyed != inner.size())))
    llvm::append_range(terms, inner);
  else
    terms.push_back(sum);
}

/// Splits the terms of `sum` between query and key.
LogicalResult ScoreMatcher::sortTerms(const Operand &sum) {
  SmallVector<Operand> terms;
  collectTerms(sum, terms);
  Type element = getElementTypeOrSelf(match.value.value);
  for (Operand &term : terms) {
    resolve(term.access);
    if (getElementTypeOrSelf(term.value) != element)
      return fail("terms of the score and values differ in element type", term.value.getLoc());
    bool key = namesAny(term.access, [&](unsigned atom) { return match.isKey(atom); });
    auto isOwnRow = [&](unsigned atom) { return match.isRow(atom) && !llvm::is_contained(match.widths, atom); };
    if (key && namesAny(term.access, isOwnRow))
      return fail("a term of the score depends on both query and key", term.value.getLoc());
    (key ? match.keyTerms : match.queryTerms).push_back(term);
  }
  // With one key any term can be its own; one that is not for each query is.
  if (match.keys.empty()) {
    auto isFree = [&](Operand &term) {
      return !isStatic(term.value) && !namesAny(term.access, [&](unsigned atom) {
        return match.isRow(atom) && !llvm::is_contained(match.widths, atom);
      });
    };
    auto *free = llvm::find_if(match.queryTerms, isFree);
    if (free != match.queryTerms.end()) {
      match.keyTerms.push_back(*free);
      match.queryTerms.erase(free);
    }
  }
  if (match.keyTerms.empty() || match.queryTerms.empty())
    return fail("the score is no sum of a term of the query and a term of the key", sum.value.getLoc());
  return success();
}

void ScoreMatcher::walkUpTerms() {
  for (SmallVector<Operand> *terms : {&match.queryTerms, &match.keyTerms})
    for (Operand &term : *terms)
      space.walkUp(term.value, term.access);
}

/// Of the operands of a contraction the first one becomes the vector over the width, or a constant vector for each
/// head.
LogicalResult ScoreMatcher::takeAlignment(Operand (&operands)[2], linalg::LinalgOp product) {
  auto isOther = [&](unsigned atom) { return !llvm::is_contained(match.widths, atom); };
  auto isVector = [&](const Operand &operand) {
    return !namesAny(operand.access,
                     [&](unsigned atom) { return match.isKey(atom) || (!isStatic(operand.value) && isOther(atom)); });
  };
  // Of one query and one key, both operands are vectors: a constant one is the alignment.
  if (!isVector(operands[0]) || (isVector(operands[1]) && !isStatic(operands[0].value) && isStatic(operands[1].value)))
    std::swap(operands[0], operands[1]);
  if (!isVector(operands[0]))
    return fail("no operand of the scores' contraction is a vector over the width", product.getLoc());
  match.alignment = operands[0];
  space.walkUp(match.alignment.value, match.alignment.access);
  return success();
}

LogicalResult ScoreMatcher::matchAdditive(linalg::LinalgOp product) {
  Operand operands[2];
  if (failed(readProduct(product, /*isRepeated=*/false, operands)))
    return failure();
  match.kind = ScoreKind::additive;
  resolve(operands[0].access);
  resolve(operands[1].access);
  // sum_d x_d * x_d, or a sum of one tensor: nothing is aligned.
  bool isOwn = product.getNumDpsInputs() == 1 ||
               (operands[0].value == operands[1].value && operands[0].access == operands[1].access);
  if (isOwn)
    operands[1] = operands[0];
  else if (failed(takeAlignment(operands, product)))
    return failure();

  // The activation: what computes the other operand from a sum.
  Operand sum = operands[1];
  while (std::optional<Operand> source = onlyInput(sum))
    sum = *source;
  if (failed(sortTerms(sum)))
    return failure();
  if (llvm::all_of(match.queryTerms, [](const Operand &term) { return isStatic(term.value); }))
    return fail("the score does not depend on a query", product.getLoc());
  SmallVector<unsigned> captured;
  RegionWriter writer(match, sum.value, "the sum of query and key and their contraction", captured, miss);
  FailureOr<std::unique_ptr<Region>> activation = writer.write(operands[1].value, operands[1].access);
  if (failed(activation))
    return failure();
  if (!captured.empty())
    return fail("the activation depends on more than the sum of query and key", product.getLoc());
  match.activation = std::move(*activation);
  if (isOwn)
    yieldSummand(*match.activation, product);
  if (isOwn && yieldsSquare(*match.activation))
    takeDistance(match);
  for (const SmallVector<Operand> *terms : {&match.queryTerms, &match.keyTerms})
    for (unsigned atom : match.widths)
      if (llvm::none_of(*terms, [&](const Operand &term) { return names(term.access, atom); }))
        return fail("a term of the score is the same over the width", product.getLoc());
  walkUpTerms();
  return success();
}

LogicalResult ScoreMatcher::matchRankOne() {
  match.kind = ScoreKind::additive;
  SmallVector<Operand> found;
  DenseSet<Value> seen;
  findScores({softmax.input, access}, getElementTypeOrSelf(match.value.value), found, seen);
  auto isSum = [&](const Operand &sum) {
    match.queryTerms.clear();
    match.keyTerms.clear();
    if (failed(sortTerms(sum)))
      return false;
    auto isFree = [](const Operand &term) { return !isStatic(term.value); };
    bool hasRows = llvm::any_of(allAtoms(), [&](unsigned atom) { return match.isRow(atom); });
    auto isQuery = [&](const Operand &term) {
      return isFree(term) && (!hasRows || namesAny(term.access, [&](unsigned atom) { return match.isRow(atom); }));
    };
    if (llvm::any_of(match.queryTerms, isQuery) && llvm::any_of(match.keyTerms, isFree))
      return true;
    miss = {"the score does not depend on the query's position", softmax.location};
    return false;
  };
  auto *sum = llvm::find_if(found, isSum);
  if (sum == found.end())
    return found.empty() ? fail("scores and values differ in element type", softmax.location) : failure();
  if (failed(writeScore(sum->value)))
    return failure();
  walkUpTerms();
  return success();
}

} // namespace attn
