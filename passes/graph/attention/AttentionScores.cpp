#include "passes/graph/attention/AttentionMatch.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/RegionWriter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace attn {
namespace {

using Operand = AttentionMatch::Operand;

constexpr StringLiteral kScores = "the scores and the softmax";

bool namesAny(const Access &access, llvm::function_ref<bool(unsigned)> test) {
  return llvm::any_of(access, [&](const Atoms &atoms) { return llvm::any_of(atoms, test); });
}

bool names(const Access &access, unsigned atom) {
  return namesAny(access, [&](unsigned other) { return other == atom; });
}

/// Whether `access` names every atom of `atoms`.
bool covers(const Access &access, ArrayRef<unsigned> atoms) {
  return llvm::all_of(atoms, [&](unsigned atom) { return names(access, atom); });
}

/// What `op`, which starts from 0, sums over its reduction loops of its one input: a scalar in its body, or null.
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
void yieldSummand(Region &activation, linalg::LinalgOp product) {
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

/// Matches what is before a softmax for one source of scores.
class ScoreMatcher {
public:
  ScoreMatcher(AttentionMatch &match, const Normalization &softmax, const Access &access, Miss &miss)
      : match(match), space(match.space), softmax(softmax), access(access), miss(miss) {}

  LogicalResult matchDot(linalg::LinalgOp product, bool isRepeated);
  LogicalResult matchAdditive(linalg::LinalgOp product);
  LogicalResult matchRankOne();
  LogicalResult matchGiven();

private:
  LogicalResult fail(const Twine &reason, Location location) {
    miss = {reason.str(), location};
    return failure();
  }
  bool isKey(unsigned atom) { return llvm::is_contained(match.keys, atom); }
  /// An atom that numbers queries: neither key, nor one that a value has.
  bool isRow(unsigned atom) { return !isKey(atom) && !names(match.value.access, atom); }
  void resolve(Access &read) {
    space.resolve(read);
    space.resolve(access);
    space.resolve(match.keys);
    space.resolve(match.widths);
    space.resolve(match.value.access);
  }
  Atoms allAtoms() {
    resolve(access);
    Atoms atoms;
    for (const Atoms &list : access)
      llvm::append_range(atoms, list);
    return atoms;
  }

  LogicalResult takeAlignment(Operand (&operands)[2], linalg::LinalgOp product);
  LogicalResult readProduct(linalg::LinalgOp product, bool isRepeated, Operand (&operands)[2]);
  std::optional<Operand> onlyInput(const Operand &tensor);
  void collectTerms(Operand sum, SmallVectorImpl<Operand> &terms);
  LogicalResult sortTerms(const Operand &sum);
  void findScores(Operand at, Type element, SmallVectorImpl<Operand> &found, DenseSet<Value> &seen);
  void walkUpScaled(Operand &operand, double &scale);
  bool comparesAgain(const Operand &scores, ArrayRef<Operand> later);

  AttentionMatch &match;
  AtomSpace &space;
  const Normalization &softmax;
  Access access;
  Miss &miss;
};

/// Writes the score region from `product`, and finds how its operands are read.
LogicalResult ScoreMatcher::readProduct(linalg::LinalgOp product, bool isRepeated, Operand (&operands)[2]) {
  RegionWriter writer(match, product->getResult(0), kScores, match.scoreCaptures, miss);
  FailureOr<std::unique_ptr<Region>> region = writer.write(softmax.input, access);
  if (failed(region))
    return failure();
  match.score = std::move(*region);
  if (!isZeroFill(product.getDpsInits()[0]))
    return fail("the scores' contraction accumulates onto other values", product.getLoc());
  resolve(*writer.targetAccess);
  for (unsigned atom : allAtoms())
    if (!names(*writer.targetAccess, atom) && (!isRepeated || !isRow(atom)))
      return fail("the scores' contraction is not made for each query and key", product.getLoc());

  SmallVector<Atoms> loops = AtomSpace::loopAtoms(product, *writer.targetAccess);
  SmallVector<bool> known(product.getNumLoops(), false);
  SmallVector<unsigned> sums;
  product.getReductionDims(sums);
  for (unsigned loop = 0; loop != loops.size(); ++loop)
    known[loop] = !llvm::is_contained(sums, loop);
  for (unsigned n = 0, inputs = product.getNumDpsInputs(); n != inputs; ++n) {
    Value operand = product->getOperand(n);
    std::optional<Access> read = nameLoops(space, operand, product.getIndexingMapsArray()[n], loops, known);
    if (!read)
      return fail("the scores' contraction is not over plain dimensions", product.getLoc());
    operands[n] = {operand, *read};
  }
  for (unsigned sum : sums)
    llvm::append_range(match.widths, loops[sum]);
  return success();
}

/// Follows an operand of the score contraction through views and through
/// multiplication by constants, which it collects: (c q) . k = c (q . k).
void ScoreMatcher::walkUpScaled(Operand &operand, double &scale) {
  while (true) {
    if (!match.wholeOperands)
      space.walkUp(operand.value, operand.access);
    auto op = operand.value.getDefiningOp<linalg::LinalgOp>();
    std::optional<double> factor = op ? constantFactor(op) : std::nullopt;
    if (!factor)
      return;
    std::optional<Access> source = AtomSpace::operandAccess(op.getMatchingIndexingMap(op.getDpsInputOperand(0)),
                                                            AtomSpace::loopAtoms(op, operand.access));
    if (!source)
      return;
    scale *= *factor;
    operand = {op->getOperand(0), *source};
  }
}

void scaleScore(Region &region, double scale) {
  Block &block = region.front();
  BlockArgument score = block.getArgument(0);
  OpBuilder b(score.getContext()); // the region has no parent to ask
  b.setInsertionPointToStart(&block);
  Value factor = floatConstant(b, score.getLoc(), score.getType(), scale);
  Value product = arith::MulFOp::create(b, score.getLoc(), score, factor);
  score.replaceAllUsesExcept(product, product.getDefiningOp());
}

LogicalResult ScoreMatcher::matchDot(linalg::LinalgOp product, bool isRepeated) {
  Operand operands[2];
  if (failed(readProduct(product, isRepeated, operands)))
    return failure();
  resolve(operands[0].access);
  resolve(operands[1].access);
  bool first = covers(operands[0].access, match.keys), second = covers(operands[1].access, match.keys);
  if (match.keys.empty()) { // one key: what depends on the query's position is the query
    first = namesAny(operands[1].access,
                     [&](unsigned atom) { return isRow(atom) && !llvm::is_contained(match.widths, atom); });
    second = !first;
  }
  if (first == second)
    return fail(first ? "both operands of the scores' contraction depend on the key position"
                      : "the scores' contraction does not depend on the key position",
                product.getLoc());
  match.repeatsQuery = isRepeated;
  match.query = operands[first ? 1 : 0];
  match.key = operands[first ? 0 : 1];
  // w . k with a term of the query added: a sum of two terms says more.
  if (!isRepeated && isStatic(match.query.value) && llvm::any_of(match.scoreCaptures, [&](unsigned n) {
        const Operand &capture = match.captures[n];
        return isa<FloatType>(getElementTypeOrSelf(capture.value.getType())) && !isStatic(capture.value);
      }))
    return fail("the query is a constant, but not the only term beside the key", product.getLoc());
  if (match.keys.empty() && isStatic(match.key.value))
    return fail("the score does not depend on a key", product.getLoc());
  double scale = 1;
  walkUpScaled(match.query, scale);
  walkUpScaled(match.key, scale);
  if (scale != 1)
    scaleScore(*match.score, scale);
  return success();
}

/// The one tensor from which an elementwise op computes `tensor` with nothing
/// but constants, or of which it is a view.
std::optional<Operand> ScoreMatcher::onlyInput(const Operand &tensor) {
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
  space.resolve(source.access);
  std::optional<Access> read =
      AtomSpace::operandAccess(op.getMatchingIndexingMap(only), AtomSpace::loopAtoms(op, source.access));
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
    if (input && op.isDpsInput(input) && isa<RankedTensorType>(input->get().getType())) {
      space.resolve(sum.access);
      read = AtomSpace::operandAccess(op.getMatchingIndexingMap(input), AtomSpace::loopAtoms(op, sum.access));
    }
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
    return namesAny(term.access, [&](unsigned atom) { return isKey(atom); });
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
    bool key = namesAny(term.access, [&](unsigned atom) { return isKey(atom); });
    auto isOwnRow = [&](unsigned atom) { return isRow(atom) && !llvm::is_contained(match.widths, atom); };
    if (key && namesAny(term.access, isOwnRow))
      return fail("a term of the score depends on both query and key", term.value.getLoc());
    (key ? match.keyTerms : match.queryTerms).push_back(term);
  }
  // With one key any term can be its own; one that is not for each query is.
  if (match.keys.empty()) {
    auto isFree = [&](Operand &term) {
      return !isStatic(term.value) && !namesAny(term.access, [&](unsigned atom) {
        return isRow(atom) && !llvm::is_contained(match.widths, atom);
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

/// Of the operands of a contraction the first one becomes the vector over the width, or a constant vector for each
/// head.
LogicalResult ScoreMatcher::takeAlignment(Operand (&operands)[2], linalg::LinalgOp product) {
  auto isOther = [&](unsigned atom) { return !llvm::is_contained(match.widths, atom); };
  auto isVector = [&](const Operand &operand) {
    return !namesAny(operand.access,
                     [&](unsigned atom) { return isKey(atom) || (!isStatic(operand.value) && isOther(atom)); });
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

/// sum_d a_d * activation(query + key); a sum without a_d, of squares for instance, has ones.
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
  for (const SmallVector<Operand> &terms : {match.queryTerms, match.keyTerms})
    for (unsigned atom : match.widths)
      if (llvm::none_of(terms, [&](const Operand &term) { return names(term.access, atom); }))
        return fail("a term of the score is the same over the width", product.getLoc());
  for (SmallVector<Operand> *terms : {&match.queryTerms, &match.keyTerms})
    for (Operand &term : *terms)
      space.walkUp(term.value, term.access);
  return success();
}

/// The tensors of type `element` with an element for each query and key which elementwise ops turn into the
/// softmax's input, the farthest first.
void ScoreMatcher::findScores(Operand at, Type element, SmallVectorImpl<Operand> &found, DenseSet<Value> &seen) {
  if (!seen.insert(at.value).second)
    return;
  resolve(at.access);
  Operation *op = at.value.getDefiningOp();
  SmallVector<Operand> sources;
  if (isView(op)) {
    Operand source = at;
    if (space.stepUp(source.value, source.access))
      sources.push_back(source);
  } else if (auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op); linalgOp && isPointwise(op)) {
    for (OpOperand *input : linalgOp.getDpsInputOperands()) {
      if (!isa<FloatType>(getElementTypeOrSelf(input->get().getType())) || splatConstant(input->get()) ||
          !isa<RankedTensorType>(input->get().getType()))
        continue;
      resolve(at.access);
      if (std::optional<Access> read = AtomSpace::operandAccess(linalgOp.getMatchingIndexingMap(input),
                                                                AtomSpace::loopAtoms(linalgOp, at.access)))
        sources.push_back({input->get(), *read});
    }
  }
  for (const Operand &source : sources) {
    // Not one that is only repeated for each query and key.
    Operand origin = source;
    space.walkUp(origin.value, origin.access);
    if (covers(origin.access, allAtoms()))
      findScores(source, element, found, seen);
  }
  if (getElementTypeOrSelf(at.value) == element)
    found.push_back(at);
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
    bool hasRows = llvm::any_of(allAtoms(), [&](unsigned atom) { return isRow(atom); });
    auto isQuery = [&](const Operand &term) {
      return isFree(term) && (!hasRows || namesAny(term.access, [&](unsigned atom) { return isRow(atom); }));
    };
    if (llvm::any_of(match.queryTerms, isQuery) && llvm::any_of(match.keyTerms, isFree))
      return true;
    miss = {"the score does not depend on the query's position", softmax.location};
    return false;
  };
  auto *sum = llvm::find_if(found, isSum);
  if (sum == found.end())
    return found.empty() ? fail("scores and values differ in element type", softmax.location) : failure();
  RegionWriter writer(match, sum->value, kScores, match.scoreCaptures, miss);
  FailureOr<std::unique_ptr<Region>> region = writer.write(softmax.input, access);
  if (failed(region))
    return failure();
  match.score = std::move(*region);
  for (SmallVector<Operand> *terms : {&match.queryTerms, &match.keyTerms})
    for (Operand &term : *terms)
      space.walkUp(term.value, term.access);
  return success();
}

/// Whether the region from `scores` to the softmax reads, beside what it computes elementwise, what one of `later`
/// gives, or `scores` where it compares what it makes of them.
bool ScoreMatcher::comparesAgain(const Operand &scores, ArrayRef<Operand> later) {
  SetVector<Value> front, origins;
  front.insert(softmax.input);
  auto isElementwise = [](Operation *op) { return op && (isView(op) || isPointwise(op)); };
  auto isComparison = [](Operation &inner) { return isa<arith::CmpFOp>(inner); };
  bool comparesMade = false;
  for (size_t n = 0; n != front.size(); ++n) {
    Operation *op = front[n].getDefiningOp();
    if (front[n] == scores.value || !op)
      continue;
    if (auto compare = dyn_cast<linalg::LinalgOp>(op); compare && llvm::any_of(*compare.getBlock(), isComparison))
      comparesMade |= !llvm::is_contained(op->getOperands(), scores.value);
    if (!isElementwise(op))
      origins.insert(front[n]);
    else
      front.insert_range(op->getOperands());
  }
  for (size_t n = 0; n != origins.size(); ++n) {
    Value value = origins[n];
    if (llvm::any_of(later, [&](const Operand &at) { return at.value == value; }) ||
        (comparesMade && value == scores.value))
      return true;
    if (Operation *op = value.getDefiningOp(); op && value != scores.value)
      op->walk([&](Operation *inner) { origins.insert_range(inner->getOperands()); });
  }
  return false;
}

LogicalResult ScoreMatcher::matchGiven() {
  match.kind = ScoreKind::given;
  SmallVector<Operand> found;
  DenseSet<Value> seen;
  findScores({softmax.input, access}, getElementTypeOrSelf(match.value.value), found, seen);
  if (found.empty())
    return fail("scores and values differ in element type", softmax.location);
  const Operand *scores = llvm::find_if(found, [](const Operand &at) { return !isStatic(at.value); });
  if (scores == found.end())
    scores = found.begin();
  // A threshold that comes from what the region would compute again is compared with what it comes from: computed
  // again, a score that equals it can be rounded to either side.
  for (; scores + 1 != found.end() && comparesAgain(*scores, ArrayRef(scores + 1, found.end())); ++scores)
    ;
  match.query = *scores;
  RegionWriter writer(match, match.query.value, kScores, match.scoreCaptures, miss);
  // A threshold, say, below which scores are hidden.
  writer.capturesOfTarget = match.normalizer == Normalizer::softmax;
  FailureOr<std::unique_ptr<Region>> region = writer.write(softmax.input, access);
  if (failed(region))
    return failure();
  match.score = std::move(*region);
  match.query.access = *writer.targetAccess;
  space.walkUp(match.query.value, match.query.access);
  return success();
}

} // namespace

SmallVector<ScoreSource> findScoreSources(const Normalization &softmax) {
  // Contractions from which the scores are computed by elementwise ops and
  // views, the nearest first.
  SmallVector<ScoreSource> sources;
  worklist(Values{softmax.input}, [&](Value value, Values &list) {
    Operation *op = value.getDefiningOp();
    if (isContraction(op)) {
      sources.push_back({ScoreKind::additive, cast<linalg::LinalgOp>(op)});
      sources.push_back({ScoreKind::dot, cast<linalg::LinalgOp>(op)});
    } else if (getSummand(op)) {
      sources.push_back({ScoreKind::additive, cast<linalg::LinalgOp>(op)});
    } else {
      followTensors(op, list);
    }
    return false;
  });
  SmallVector<ScoreSource> products(sources);
  sources.push_back({ScoreKind::additive, {}});
  for (const ScoreSource &source : products)
    if (source.kind == ScoreKind::dot)
      sources.push_back({ScoreKind::dot, source.product, /*isRepeated=*/true});
  sources.push_back({ScoreKind::given, {}});
  return sources;
}

LogicalResult matchScores(AttentionMatch &match, const Normalization &softmax, const Access &access,
                          const ScoreSource &source, Miss &miss) {
  ScoreMatcher matcher(match, softmax, access, miss);
  if (!source.product)
    return source.kind == ScoreKind::given ? matcher.matchGiven() : matcher.matchRankOne();
  return source.kind == ScoreKind::dot ? matcher.matchDot(source.product, source.isRepeated)
                                       : matcher.matchAdditive(source.product);
}

} // namespace attn
