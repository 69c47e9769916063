// Operands of an attention that the graph does not have as they are: sums, repetitions, ones.

#include "passes/graph/attention/AttentionBuilder.h"

#include "passes/graph/Formulas.h"
#include "passes/graph/MappedTensor.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {

/// Makes `sum` the sum of `terms`: a tensor with a dimension for each one of
/// the attention that a term names.
LogicalResult AttentionBuilder::sumTerms(ArrayRef<Operand> terms, Operand &sum, StringRef what) {
  if (terms.size() == 1 && !terms.front().isNegated) {
    sum = terms.front();
    return success();
  }
  SmallVector<OpFoldResult> sizes, shape;
  for (const Unit &unit : units)
    sizes.push_back(size(unit));
  SmallVector<MappedTensor> plain;
  SmallVector<unsigned> dims;
  for (Operand term : terms) {
    AffineMap map;
    if (failed(arrange(term, {}, map, what)))
      return failure();
    plain.push_back(readPlainly(b, loc, term.value, map, sizes));
    for (AffineExpr expr : plain.back().map.getResults())
      if (unsigned dim = *AttentionOp::getNamedDim(expr); !llvm::is_contained(dims, dim))
        dims.push_back(dim);
  }
  SmallVector<int64_t> loops(AttentionOp::kDims, 0);
  for (auto [n, dim] : llvm::enumerate(dims)) {
    loops[dim] = n;
    shape.push_back(sizes[dim]);
    sum.access.push_back(units[dim]);
  }
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (const MappedTensor &term : plain) {
    SmallVector<AffineExpr> exprs;
    for (AffineExpr expr : term.map.getResults())
      exprs.push_back(b.getAffineDimExpr(loops[*AttentionOp::getNamedDim(expr)]));
    inputs.push_back(term.value);
    maps.push_back(AffineMap::get(dims.size(), 0, exprs, b.getContext()));
  }
  sum.value =
      elementwise(b, loc, shape, getElementTypeOrSelf(inputs.front()), inputs, maps, formula([&](ArrayRef<Num> x) {
                    Num total = terms.front().isNegated ? -x[0] : x[0];
                    for (auto [summand, term] : llvm::zip_equal(x.drop_front(), terms.drop_front()))
                      total = term.isNegated ? total - summand : total + summand;
                    return total;
                  }));
  return success();
}

/// `tensor` repeated along one more dimension, of `atoms`.
Value AttentionBuilder::repeated(Value tensor, unsigned dim, ArrayRef<unsigned> atoms) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  sizes.insert(sizes.begin() + dim, size(atoms));
  return rearranged(b, loc, tensor, sizes, b.getMultiDimIdentityMap(sizes.size()).dropResult(dim));
}

/// Repeats a query that is the same for every i; only a mask differs.
void AttentionBuilder::repeatQuery() {
  match.space.resolve(match.query.access);
  Atoms named = flatten(match.query.access);
  if (units[AttentionOp::I].empty() || llvm::is_contained(named, units[AttentionOp::I].front()))
    return;
  match.query.value = repeated(match.query.value, 0, units[AttentionOp::I]);
  match.query.access.insert(match.query.access.begin(), units[AttentionOp::I]);
}

/// Each capture that classify has widened, with the dimension that it lacked.
void AttentionBuilder::repeatCaptures() {
  for (const Widening &widening : widenings) {
    Value &value = match.captures[widening.capture].value;
    value = repeated(value, widening.dim, widening.atoms);
  }
}

/// (s + a) + b becomes s + (a + b) where both captures are repeated to one shape: half as much is read for each score.
void AttentionBuilder::sumRepeatedCaptures() {
  Block &block = match.score->front();
  auto findRepeated = [&](Value value) -> std::optional<unsigned> {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getArgNumber() == 0 || !argument.hasOneUse())
      return std::nullopt;
    unsigned number = match.scoreCaptures[argument.getArgNumber() - 1];
    bool isRepeated = llvm::any_of(widenings, [&](const Widening &widening) { return widening.capture == number; });
    // One that is known now may be a mask, which a sum would hide.
    if (!isRepeated || isStatic(match.captures[number].value) || llvm::is_contained(match.weightCaptures, number))
      return std::nullopt;
    return number;
  };
  for (auto outer : llvm::make_early_inc_range(block.getOps<arith::AddFOp>())) {
    // As the right operand: the left one is what the score is until then.
    auto takeRepeated = [&](arith::AddFOp add) {
      if (findRepeated(add.getLhs()))
        add->setOperands({add.getRhs(), add.getLhs()});
      return findRepeated(add.getRhs());
    };
    std::optional<unsigned> last = takeRepeated(outer), first;
    auto inner = outer.getLhs().getDefiningOp<arith::AddFOp>();
    if (last && inner && inner->hasOneUse())
      first = takeRepeated(inner);
    if (!first || match.captures[*first].access != match.captures[*last].access)
      continue;
    Value &sum = match.captures[*first].value;
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, sum);
    AffineMap map = b.getMultiDimIdentityMap(sizes.size());
    sum = elementwise(b, loc, sizes, getElementTypeOrSelf(sum), {sum, match.captures[*last].value}, {map, map},
                      formula([](ArrayRef<Num> x) { return x[0] + x[1]; }));
    // The last one is read no more.
    unsigned place = cast<BlockArgument>(outer.getRhs()).getArgNumber();
    outer.getResult().replaceAllUsesWith(inner.getResult());
    outer.erase();
    block.eraseArgument(place);
    match.scoreCaptures.erase(match.scoreCaptures.begin() + place - 1);
    match.captures.erase(match.captures.begin() + *last);
    llvm::erase_if(widenings, [&](const Widening &widening) { return widening.capture == *last; });
    auto renumber = [&](unsigned &number) { number -= number > *last; };
    llvm::for_each(match.scoreCaptures, renumber);
    llvm::for_each(match.weightCaptures, renumber);
    for (Widening &widening : widenings)
      renumber(widening.capture);
  }
}

/// A vector of ones.
Value AttentionBuilder::onesOf(OpFoldResult size, Type element) {
  FloatAttr one = b.getFloatAttr(element, 1);
  if (std::optional<int64_t> known = getConstantIntValue(size))
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(RankedTensorType::get({*known}, element), one));
  return elementwise(b, loc, size, element, {}, {}, [&](OpBuilder &b, Location loc, ValueRange) -> Value {
    return arith::ConstantOp::create(b, loc, one);
  });
}

} // namespace attn
