#include "passes/graph/attention/AttentionBuilder.h"

#include "passes/graph/MappedTensor.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace attn {
namespace {

using Operand = AttentionMatch::Operand;

Value expandTo(OpBuilder &b, Location loc, Value value, ArrayRef<ReassociationIndices> groups,
               ArrayRef<OpFoldResult> sizes) {
  SmallVector<int64_t> shape;
  for (OpFoldResult size : sizes)
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  auto type = RankedTensorType::get(shape, getElementTypeOrSelf(value));
  // A group of one dimension keeps what its type knows. Where a size is known and the type does not say so, the type
  // must: MLIR takes a constant size of a dynamic dimension for an operand.
  SmallVector<int64_t> known(shape);
  for (auto [n, group] : llvm::enumerate(groups))
    if (int64_t size = cast<RankedTensorType>(value.getType()).getDimSize(n);
        group.size() == 1 && !ShapedType::isDynamic(size))
      known[group.front()] = size;
  SmallVector<OpFoldResult> exact(sizes);
  for (auto [n, size] : llvm::enumerate(known))
    if (!ShapedType::isDynamic(size))
      exact[n] = b.getIndexAttr(size);
  type = RankedTensorType::get(known, getElementTypeOrSelf(value));
  // A dimension that is static in the group must be static in the source.
  SmallVector<int64_t> source;
  for (ArrayRef<int64_t> group : groups) {
    int64_t product = 1;
    for (int64_t n : group)
      product =
          ShapedType::isDynamic(product) || ShapedType::isDynamic(known[n]) ? ShapedType::kDynamic : product * known[n];
    source.push_back(product);
  }
  auto sourceType = RankedTensorType::get(source, getElementTypeOrSelf(value));
  if (value.getType() != sourceType)
    value = tensor::CastOp::create(b, loc, sourceType, value);
  return tensor::ExpandShapeOp::create(b, loc, type, value, groups, exact);
}

} // namespace

/// Makes `operand` a tensor with one dimension of the attention a dimension,
/// by reshapes that move nothing, and its map. Dimensions in `mustName` that
/// it lacks have size 1 and take a unit dimension.
LogicalResult AttentionBuilder::arrange(Operand &operand, ArrayRef<unsigned> mustName, AffineMap &map, StringRef what) {
  if (!isa<RankedTensorType>(operand.value.getType())) {
    Value scalar = operand.value;
    if (scalar.getType().isIndex())
      scalar = arith::IndexCastOp::create(b, loc, b.getI64Type(), scalar);
    operand.value =
        tensor::FromElementsOp::create(b, loc, RankedTensorType::get({}, scalar.getType()), ValueRange(scalar));
  }
  // One dimension a run of atoms.
  struct Piece {
    std::optional<unsigned> dim;
    Atoms atoms;
  };
  SmallVector<Piece> pieces;
  SmallVector<ReassociationIndices> groups;
  SmallVector<OpFoldResult> sizes;
  bool expands = false;
  for (auto [n, atoms] : llvm::enumerate(operand.access)) {
    groups.emplace_back();
    size_t at = 0;
    do {
      groups.back().push_back(pieces.size());
      if (atoms.empty()) {
        pieces.push_back({std::nullopt, {}});
        sizes.push_back(b.getIndexAttr(1));
        break;
      }
      auto run = segment(atoms, at);
      if (!run)
        return fail("the " + what + " has a dimension of its own", operand.value.getLoc());
      at += run->second.size();
      pieces.push_back({run->first, run->second});
      sizes.push_back(size(run->second));
    } while (at < atoms.size());
    expands |= groups.back().size() > 1;
  }
  // The unit dimension that stands for a dimension of size 1: the last one
  // that the operand has, or a new one at its end.
  for (unsigned dim : mustName) {
    if (!units[dim].empty())
      continue;
    bool named = false;
    for (size_t n = pieces.size(); n != 0 && !named; --n)
      if (!pieces[n - 1].dim && cast<RankedTensorType>(operand.value.getType()).getRank() == int64_t(pieces.size()) &&
          cast<RankedTensorType>(operand.value.getType()).getDimSize(n - 1) == 1) {
        pieces[n - 1].dim = dim;
        named = true;
      }
    if (named)
      continue;
    if (!groups.empty())
      groups.back().push_back(pieces.size());
    pieces.push_back({dim, {}});
    sizes.push_back(b.getIndexAttr(1));
    expands = true;
  }
  if (expands)
    operand.value = expandTo(b, loc, operand.value, groups, sizes);

  // Neighbours of one dimension become one.
  SmallVector<ReassociationIndices> joined;
  SmallVector<Piece> whole;
  for (auto [n, piece] : llvm::enumerate(pieces)) {
    if (!whole.empty() && piece.dim && whole.back().dim == piece.dim) {
      joined.back().push_back(n);
      llvm::append_range(whole.back().atoms, piece.atoms);
      continue;
    }
    joined.push_back({static_cast<int64_t>(n)});
    whole.push_back(piece);
  }
  if (joined.size() != pieces.size())
    operand.value = tensor::CollapseShapeOp::create(b, loc, operand.value, joined);

  SmallVector<AffineExpr> exprs;
  for (const Piece &piece : whole) {
    if (!piece.dim) {
      exprs.push_back(b.getAffineConstantExpr(0));
      continue;
    }
    AffineExpr expr = b.getAffineDimExpr(*piece.dim);
    const Unit &unit = units[*piece.dim];
    if (piece.atoms != unit) {
      // h = (group, member): read at the group.
      if (*piece.dim != AttentionOp::H || piece.atoms.size() >= unit.size() ||
          ArrayRef(unit).take_front(piece.atoms.size()) != ArrayRef(piece.atoms))
        return fail("the " + what + " has part of a dimension", operand.value.getLoc());
      int64_t divisor = 1;
      for (unsigned atom : ArrayRef(unit).drop_front(piece.atoms.size()))
        divisor *= *extent(atom).constant();
      expr = expr.floorDiv(divisor);
    }
    exprs.push_back(expr);
  }
  map = AffineMap::get(6, 0, exprs, b.getContext());
  return success();
}

LogicalResult AttentionBuilder::assignIndices() {
  for (auto &[index, atoms] : match.indices) {
    match.space.resolve(atoms);
    if (atoms.empty()) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(index);
      index.getResult().replaceAllUsesWith(arith::ConstantIndexOp::create(b, index.getLoc(), 0));
      index.erase();
      continue;
    }
    auto run = segment(atoms, 0);
    if (!run || run->second != atoms || units[run->first] != atoms || run->first > AttentionOp::J)
      return fail("the region uses the index of part of a dimension", loc);
    index.setDim(run->first);
  }
  return success();
}

/// The dimensions of the attention in the order of `access`, where it takes each whole.
std::optional<SmallVector<unsigned>> AttentionBuilder::wholeDims(const Access &access) const {
  Atoms order = flatten(access);
  SmallVector<unsigned> dims;
  for (size_t at = 0; at < order.size();) {
    auto run = segment(order, at);
    if (!run || run->second != units[run->first])
      return std::nullopt;
    at += run->second.size();
    dims.push_back(run->first);
  }
  return dims;
}

/// `value` with dimensions `dims` of the attention as the tensor `into`, which
/// it replaces.
Value AttentionBuilder::toTarget(Value value, ArrayRef<unsigned> dims, const Operand &into) {
  auto target = cast<RankedTensorType>(into.value.getType());
  // Expand each dimension into the runs that the target's dimensions take.
  SmallVector<ReassociationIndices> expand(dims.size()), collapse, unit;
  SmallVector<OpFoldResult> runSizes, targetSizes;
  SmallVector<unsigned> runOf; // target dimension of each run, or -1 of a dimension of size 1
  for (auto [n, dim] : llvm::enumerate(dims)) {
    ArrayRef<unsigned> atoms = units[dim];
    if (atoms.empty()) {
      expand[n].push_back(runSizes.size());
      runSizes.push_back(b.getIndexAttr(1));
      runOf.push_back(-1);
    }
    for (size_t at = 0; at < atoms.size();) {
      auto owner = [&](unsigned atom) {
        return llvm::find_if(into.access, [&](const Atoms &list) { return llvm::is_contained(list, atom); }) -
               into.access.begin();
      };
      unsigned place = owner(atoms[at]);
      Atoms run;
      for (; at < atoms.size() && static_cast<unsigned>(owner(atoms[at])) == place; ++at)
        run.push_back(atoms[at]);
      expand[n].push_back(runSizes.size());
      runSizes.push_back(size(run));
      runOf.push_back(place);
    }
  }
  if (runSizes.size() != dims.size())
    value = expandTo(b, loc, value, expand, runSizes);
  // Join the runs of one target dimension; a dimension of size 1 joins what
  // stands before it (or after, at the front).
  unsigned last = -1;
  for (auto [n, place] : llvm::enumerate(runOf)) {
    bool joins = !collapse.empty() && (place == unsigned(-1) || last == unsigned(-1) || place == last);
    if (joins)
      collapse.back().push_back(n);
    else
      collapse.push_back({static_cast<int64_t>(n)});
    if (place != unsigned(-1))
      last = place;
  }
  if (last == unsigned(-1))
    collapse.clear();
  if (collapse.size() != runOf.size())
    value = tensor::CollapseShapeOp::create(b, loc, value, collapse);
  // Put back the target's unit dimensions.
  int64_t group = -1;
  unit.resize(collapse.size());
  for (auto [n, atoms] : llvm::enumerate(into.access)) {
    group += !atoms.empty();
    targetSizes.push_back(atoms.empty() ? OpFoldResult(b.getIndexAttr(1)) : size(atoms));
    if (!unit.empty())
      unit[std::max<int64_t>(group, 0)].push_back(n);
  }
  if (targetSizes.size() != collapse.size())
    value = expandTo(b, loc, value, unit, targetSizes);
  if (value.getType() != target)
    value = tensor::CastOp::create(b, loc, target, value);
  return value;
}

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
  sum.value = elementwise(b, loc, shape, getElementTypeOrSelf(inputs.front()), inputs, maps,
                          [&](OpBuilder &b, Location loc, ValueRange args) {
                            Value total = args.front();
                            if (terms.front().isNegated)
                              total = arith::NegFOp::create(b, loc, total);
                            // The last argument is the init.
                            for (auto [arg, term] : llvm::zip(args.drop_front().drop_back(), terms.drop_front()))
                              total = term.isNegated ? arith::SubFOp::create(b, loc, total, arg).getResult()
                                                     : arith::AddFOp::create(b, loc, total, arg).getResult();
                            return total;
                          });
  return success();
}

/// Repeats a query that is the same for every i; only a mask differs.
void AttentionBuilder::repeatQuery() {
  match.space.resolve(match.query.access);
  Atoms named = flatten(match.query.access);
  if (units[AttentionOp::I].empty() || llvm::is_contained(named, units[AttentionOp::I].front()))
    return;
  Value query = match.query.value;
  SmallVector<OpFoldResult> sizes{size(units[AttentionOp::I])};
  llvm::append_range(sizes, tensor::getMixedSizes(b, loc, query));
  AffineMap map = b.getMultiDimIdentityMap(sizes.size()).dropResult(0);
  match.query.value = elementwise(b, loc, sizes, getElementTypeOrSelf(query), query, map,
                                  [](OpBuilder &, Location, ValueRange args) { return args.front(); });
  match.query.access.insert(match.query.access.begin(), units[AttentionOp::I]);
}

/// Each capture that classify has widened, with the dimension that it lacked.
void AttentionBuilder::repeatCaptures() {
  for (const Widening &widening : widenings) {
    Value &value = match.captures[widening.capture].value;
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, value);
    sizes.insert(sizes.begin() + widening.dim, size(widening.atoms));
    AffineMap map = b.getMultiDimIdentityMap(sizes.size()).dropResult(widening.dim);
    value = elementwise(b, loc, sizes, getElementTypeOrSelf(value), value, map,
                        [](OpBuilder &, Location, ValueRange args) { return args.front(); });
  }
}

/// (s + a) + b becomes s + (a + b) where both captures are repeated to one shape: half as much is read for each score.
void AttentionBuilder::sumRepeatedCaptures() {
  Block &block = match.score->front();
  auto repeated = [&](Value value) -> std::optional<unsigned> {
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
      if (repeated(add.getLhs()))
        add->setOperands({add.getRhs(), add.getLhs()});
      return repeated(add.getRhs());
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
                      [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                        return arith::AddFOp::create(b, loc, args[0], args[1]);
                      });
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

FailureOr<AttentionOp> AttentionBuilder::build() {
  Type element = getElementTypeOrSelf(match.result.value);
  for (const Operand *operand : {&match.query, &match.key, &match.value, &match.alignment})
    if (operand->value && (getElementTypeOrSelf(operand->value) != element || !isa<FloatType>(element)))
      return fail("query, key, value and result differ in element type", operand->value.getLoc());
  if (failed(classify()) || failed(assignIndices()))
    return failure();

  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(match.result.value.getDefiningOp());
  using A = AttentionOp;
  bool isAdditive = match.kind == ScoreKind::additive, isGiven = match.kind == ScoreKind::given;
  if (isAdditive &&
      (failed(sumTerms(match.queryTerms, match.query, "query")) || failed(sumTerms(match.keyTerms, match.key, "key"))))
    return failure();
  if (match.repeatsQuery)
    repeatQuery();
  repeatCaptures();
  sumRepeatedCaptures();
  AttentionParts parts;
  parts.kind = match.kind;
  parts.maskedRows = match.maskedRows;
  parts.normalizer = match.normalizer;
  auto place = [&](Operand &operand, ArrayRef<unsigned> mustName, StringRef what, Value &into) -> LogicalResult {
    if (failed(arrange(operand, mustName, parts.maps.emplace_back(), what)))
      return failure();
    into = operand.value;
    return success();
  };
  SmallVector<unsigned> queryNames{A::I, A::D};
  if (isAdditive)
    queryNames = {A::D};
  else if (isGiven)
    queryNames = {A::J};
  if (failed(place(match.query, queryNames, isGiven ? "scores" : "query", parts.query)) ||
      (!isGiven && failed(place(match.key, {A::J, A::D}, "key", parts.key))) ||
      failed(place(match.value, {A::J, A::E}, "value", parts.value)))
    return failure();
  if (isAdditive && !match.alignment.value)
    match.alignment = {onesOf(size(units[A::D]), element), {units[A::D]}};
  if (isAdditive && failed(place(match.alignment, {A::D}, "alignment", parts.alignment)))
    return failure();
  for (Operand &capture : match.captures)
    if (failed(place(capture, {}, "captured tensor", parts.captures.emplace_back())))
      return failure();

  // The result: whole dimensions in the target's order, then e and i where they have size 1.
  std::optional<SmallVector<unsigned>> whole = wholeDims(match.result.access);
  if (!whole)
    return fail("the result has part of a dimension", loc);
  SmallVector<unsigned> dims = *whole;
  SmallVector<AffineExpr> exprs;
  SmallVector<int64_t> shape;
  for (unsigned dim : {A::I, A::E})
    if (units[dim].empty())
      dims.push_back(dim);
  for (unsigned dim : dims) {
    exprs.push_back(b.getAffineDimExpr(dim));
    shape.push_back(getConstantIntValue(size(units[dim])).value_or(ShapedType::kDynamic));
  }
  parts.maps.push_back(AffineMap::get(AttentionOp::kDims, 0, exprs, b.getContext()));
  parts.types.push_back(RankedTensorType::get(shape, element));

  bool hasSink = match.sink.value || match.sinkScore;
  // One number a row.
  SmallVector<AffineExpr> rowExprs;
  SmallVector<int64_t> rowShape;
  for (auto [expr, extent] : llvm::zip_equal(exprs, shape))
    if (expr != b.getAffineDimExpr(A::E)) {
      rowExprs.push_back(expr);
      rowShape.push_back(extent);
    }
  auto addRows = [&](ExtraSource source, Reduction reduction) {
    parts.extras.push_back(ExtraAttr::get(b.getContext(), source, reduction));
    parts.maps.push_back(AffineMap::get(AttentionOp::kDims, 0, rowExprs, b.getContext()));
    parts.types.push_back(RankedTensorType::get(rowShape, match.computeType));
  };
  if (hasSink) // what the sink is compared with
    match.isSinkShifted ? addRows(ExtraSource::weights, Reduction::max) : addRows(ExtraSource::lse, Reduction::none);
  if (match.divisor)
    addRows(ExtraSource::final_weights, Reduction::sum);
  if (match.isShifted)
    addRows(ExtraSource::weights, Reduction::max);
  std::optional<SmallVector<unsigned>> weightDims;
  match.space.resolve(match.weights.access);
  if (!hasSink && !match.divisor && !match.weightUses.empty())
    weightDims = wholeDims(match.weights.access);
  // Not of weights that are the same along a batch dimension, which a result would repeat.
  if (weightDims && llvm::any_of(std::array{A::B, A::H}, [&](unsigned dim) {
        return !units[dim].empty() && !llvm::is_contained(*weightDims, dim);
      }))
    weightDims.reset();
  if (weightDims) {
    for (unsigned dim : {A::I, A::J})
      if (units[dim].empty())
        weightDims->push_back(dim);
    SmallVector<AffineExpr> weightExprs;
    SmallVector<int64_t> weightShape;
    for (unsigned dim : *weightDims) {
      weightExprs.push_back(b.getAffineDimExpr(dim));
      weightShape.push_back(getConstantIntValue(size(units[dim])).value_or(ShapedType::kDynamic));
    }
    parts.extras.push_back(ExtraAttr::get(b.getContext(), ExtraSource::weights, Reduction::none));
    parts.maps.push_back(AffineMap::get(AttentionOp::kDims, 0, weightExprs, b.getContext()));
    parts.types.push_back(RankedTensorType::get(weightShape, getElementTypeOrSelf(match.weights.value)));
  }
  parts.axes = axesOfWeights(parts.maps);
  auto op = AttentionOp::create(b, loc, parts);
  // Both regions take every capture.
  auto adopt = [&](Region &into, Region &from, ArrayRef<unsigned> used) {
    into.takeBody(from);
    Block &block = into.front();
    SmallVector<BlockArgument> old(block.getArguments().drop_front());
    SmallVector<Value> fresh;
    for (Value capture : parts.captures)
      fresh.push_back(block.addArgument(getElementTypeOrSelf(capture), loc));
    for (auto [argument, number] : llvm::zip_equal(old, used))
      argument.replaceAllUsesWith(fresh[number]);
    block.eraseArguments(1, old.size());
  };
  adopt(op.getScore(), *match.score, match.scoreCaptures);
  adopt(op.getWeight(), *match.weight, match.weightCaptures);
  if (match.activation)
    op.getActivation().takeBody(*match.activation);
  Value result = op.getResult();
  if (hasSink) {
    FailureOr<Value> scaled = scaleBySink(op, dims);
    if (failed(scaled)) {
      b.eraseOp(op);
      return failure();
    }
    result = *scaled;
  }
  if (match.divisor)
    result = divideRows(op, dims);
  b.replaceAllUsesWith(match.result.value, toTarget(result, dims, match.result));
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
