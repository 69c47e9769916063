#include "passes/graph/attention/AttentionBuilder.h"

#include "passes/graph/Structured.h"

using namespace mlir;

namespace attn {

/// Makes the operands that the graph does not have as they are.
LogicalResult AttentionBuilder::makeOperands() {
  if (!match.queryTerms.empty() &&
      (failed(sumTerms(match.queryTerms, match.query, "query")) || failed(sumTerms(match.keyTerms, match.key, "key"))))
    return failure();
  if (match.repeatsQuery)
    repeatQuery();
  if (scoreOrder)
    match.query.value = transposed(b, loc, match.query.value, *scoreOrder);
  repeatCaptures();
  sumRepeatedCaptures();
  return success();
}

/// Gives `parts` the operands and their maps.
LogicalResult AttentionBuilder::placeOperands(AttentionParts &parts) {
  ScoreFormula formula = getScoreFormula(match.kind);
  auto place = [&](Operand &operand, ArrayRef<unsigned> mustName, StringRef what, Value &into) -> LogicalResult {
    if (failed(arrange(operand, mustName, parts.maps.emplace_back(), what)))
      return failure();
    into = operand.value;
    return success();
  };
  if (failed(place(match.query, formula.getQueryDims(), formula.hasKey ? "query" : "scores", parts.query)) ||
      (formula.hasKey && failed(place(match.key, {A::J, A::D}, "key", parts.key))) ||
      failed(place(match.value, {A::J, A::E}, "value", parts.value)))
    return failure();
  if (formula.hasAlignment && !match.alignment.value)
    match.alignment = {onesOf(size(units[A::D]), getElementTypeOrSelf(match.result.value)), {units[A::D]}};
  if (formula.hasAlignment && failed(place(match.alignment, {A::D}, "alignment", parts.alignment)))
    return failure();
  for (Operand &capture : match.captures)
    if (failed(place(capture, {}, "captured tensor", parts.captures.emplace_back())))
      return failure();
  return success();
}

/// Adds a result over `dims` to `parts`.
void AttentionBuilder::addResult(AttentionParts &parts, ArrayRef<unsigned> dims, Type element) {
  SmallVector<AffineExpr> exprs;
  SmallVector<int64_t> shape;
  for (unsigned dim : dims) {
    exprs.push_back(b.getAffineDimExpr(dim));
    shape.push_back(getConstantIntValue(size(units[dim])).value_or(ShapedType::kDynamic));
  }
  parts.maps.push_back(AffineMap::get(A::kDims, 0, exprs, b.getContext()));
  parts.types.push_back(RankedTensorType::get(shape, element));
}

/// Adds to `parts` the numbers of each row that the result, which is over `dims`, is divided by.
void AttentionBuilder::addRows(AttentionParts &parts, ArrayRef<unsigned> dims) {
  SmallVector<unsigned> rows = llvm::filter_to_vector(dims, [](unsigned dim) { return dim != A::E; });
  auto add = [&](ExtraSource source, Reduction reduction) {
    parts.extras.push_back(ExtraAttr::get(b.getContext(), source, reduction));
    addResult(parts, rows, match.computeType);
  };
  if (hasSink()) // what the sink is compared with
    match.isSinkShifted ? add(ExtraSource::weights, Reduction::max) : add(ExtraSource::lse, Reduction::none);
  if (match.divisor)
    add(ExtraSource::final_weights, Reduction::sum);
  if (match.isShifted)
    add(ExtraSource::weights, Reduction::max);
}

/// Adds the weights to `parts` where they are used elsewhere, too: their dimensions, or nothing.
std::optional<SmallVector<unsigned>> AttentionBuilder::addWeights(AttentionParts &parts) {
  match.space.resolve(match.weights.access);
  if (hasSink() || match.divisor || match.weightUses.empty())
    return std::nullopt;
  std::optional<SmallVector<unsigned>> dims = wholeDims(match.weights.access);
  // Not of weights that are the same along a batch dimension, which a result would repeat.
  if (!dims || llvm::any_of(std::array{A::B, A::H},
                            [&](unsigned dim) { return !units[dim].empty() && !llvm::is_contained(*dims, dim); }))
    return std::nullopt;
  for (unsigned dim : {A::I, A::J})
    if (units[dim].empty())
      dims->push_back(dim);
  parts.extras.push_back(ExtraAttr::get(b.getContext(), ExtraSource::weights, Reduction::none));
  addResult(parts, *dims, getElementTypeOrSelf(match.weights.value));
  return dims;
}

/// Moves the regions of the match into `op`: both take every capture.
void AttentionBuilder::moveRegions(AttentionOp op) {
  auto adopt = [&](Region &into, Region &from, ArrayRef<unsigned> used) {
    into.takeBody(from);
    Block &block = into.front();
    SmallVector<BlockArgument> old(block.getArguments().drop_front());
    SmallVector<Value> fresh;
    for (Value capture : op.getCaptures())
      fresh.push_back(block.addArgument(getElementTypeOrSelf(capture), loc));
    for (auto [argument, number] : llvm::zip_equal(old, used))
      argument.replaceAllUsesWith(fresh[number]);
    block.eraseArguments(1, old.size());
  };
  adopt(op.getScore(), *match.score, match.scoreCaptures);
  adopt(op.getWeight(), *match.weight, match.weightCaptures);
  if (match.activation)
    op.getActivation().takeBody(*match.activation);
}

FailureOr<AttentionOp> AttentionBuilder::build() {
  Type element = getElementTypeOrSelf(match.result.value);
  for (const Operand *operand : {&match.query, &match.key, &match.value, &match.alignment})
    if (operand->value && (getElementTypeOrSelf(operand->value) != element || !isa<FloatType>(element)))
      return fail("query, key, value and result differ in element type", operand->value.getLoc());
  if (failed(classify()) || failed(assignIndices()))
    return failure();

  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(match.result.value.getDefiningOp());
  AttentionParts parts;
  parts.kind = match.kind;
  parts.maskedRows = match.maskedRows;
  parts.normalizer = match.normalizer;
  if (failed(makeOperands()) || failed(placeOperands(parts)))
    return failure();
  // The result: whole dimensions in the target's order, then e and i where they have size 1.
  std::optional<SmallVector<unsigned>> whole = wholeDims(match.result.access);
  if (!whole)
    return fail("the result has part of a dimension", loc);
  SmallVector<unsigned> dims = *whole;
  for (unsigned dim : {A::I, A::E})
    if (units[dim].empty())
      dims.push_back(dim);
  addResult(parts, dims, element);
  addRows(parts, dims);
  std::optional<SmallVector<unsigned>> weightDims = addWeights(parts);
  parts.axes = axesOfWeights(parts.maps);
  auto op = AttentionOp::create(b, loc, parts);
  moveRegions(op);

  FailureOr<Value> result = hasSink() || match.divisor ? divideRows(op) : FailureOr<Value>(op.getResult());
  if (failed(result)) {
    b.eraseOp(op);
    return failure();
  }
  b.replaceAllUsesWith(match.result.value, toTarget(*result, dims, match.result));
  if (weightDims) {
    Value weights = toTarget(op.getExtraResults().front(), *weightDims, match.weights);
    for (OpOperand *use : match.weightUses)
      b.modifyOpInPlace(use->getOwner(), [&] { use->set(weights); });
  }
  return op;
}

FailureOr<AttentionOp> buildAttention(RewriterBase &rewriter, AttentionMatch &match, Miss &miss) {
  return AttentionBuilder(rewriter, match, miss).build();
}

} // namespace attn
