#include "passes/graph/attention/ScoreMatcher.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/RegionWriter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace attn {

/// Whether `access` names every atom of `atoms`.
static bool covers(const Access &access, ArrayRef<unsigned> atoms) {
  return llvm::all_of(atoms, [&](unsigned atom) { return names(access, atom); });
}

/// Writes the score region from `scores`, and finds how they are read.
FailureOr<Access> ScoreMatcher::writeScore(Value scores, bool capturesThem) {
  RegionWriter writer(match, scores, kScores, match.scoreCaptures, miss);
  writer.capturesOfTarget = capturesThem;
  FailureOr<std::unique_ptr<Region>> region = writer.write(softmax.input, access);
  if (failed(region))
    return failure();
  match.score = std::move(*region);
  return *writer.targetAccess;
}

/// Writes the score region from `product`, and finds how its operands are read.
LogicalResult ScoreMatcher::readProduct(linalg::LinalgOp product, bool isRepeated, Operand (&operands)[2]) {
  FailureOr<Access> result = writeScore(product->getResult(0));
  if (failed(result))
    return failure();
  if (!isZeroFill(product.getDpsInits()[0]))
    return fail("the scores' contraction accumulates onto other values", product.getLoc());
  resolve(*result);
  for (unsigned atom : allAtoms())
    if (!names(*result, atom) && (!isRepeated || !match.isRow(atom)))
      return fail("the scores' contraction is not made for each query and key", product.getLoc());

  SmallVector<Atoms> loops = AtomSpace::loopAtoms(product, *result);
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
    std::optional<Access> source = space.readInput(*op.getDpsInputOperand(0), operand.access);
    if (!source)
      return;
    scale *= *factor;
    operand = {op->getOperand(0), *source};
  }
}

static void scaleScore(Region &region, double scale) {
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
  auto namesRow = [&](const Operand &operand) {
    return namesAny(operand.access,
                    [&](unsigned atom) { return match.isRow(atom) && !llvm::is_contained(match.widths, atom); });
  };
  bool first = covers(operands[0].access, match.keys), second = covers(operands[1].access, match.keys);
  if (match.keys.empty()) { // one key: what depends on the query's position is the query
    first = namesRow(operands[1]);
    second = !first;
  }
  if (first == second)
    return fail(first ? "both operands of the scores' contraction depend on the key position"
                      : "the scores' contraction does not depend on the key position",
                product.getLoc());
  match.repeatsQuery = isRepeated;
  match.query = operands[first ? 1 : 0];
  match.key = operands[first ? 0 : 1];
  // Heads mixed before the softmax: weights times scores. Keys of their own for each row would be those scores.
  if (!namesRow(match.query) && namesRow(match.key) && isOfProduct(match.key.value))
    return fail("a contraction mixes scores before the softmax (talking heads)", product.getLoc());
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
    if (!match.wholeScores && space.stepUp(source.value, source.access))
      sources.push_back(source);
  } else if (auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op); linalgOp && isPointwise(op)) {
    for (OpOperand *input : linalgOp.getDpsInputOperands()) {
      if (!isa<FloatType>(getElementTypeOrSelf(input->get().getType())) || splatConstant(input->get()) ||
          !isa<RankedTensorType>(input->get().getType()))
        continue;
      if (std::optional<Access> read = space.readInput(*input, at.access))
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

/// Whether the region from `scores` to the softmax reads, beside what it computes elementwise, what one of `later`
/// gives, or `scores` where it compares what it makes of them.
bool ScoreMatcher::comparesAgain(const Operand &scores, ArrayRef<Operand> later) {
  SetVector<Value> front, origins;
  front.insert(softmax.input);
  auto isComparison = [](Operation &inner) { return isa<arith::CmpFOp>(inner); };
  bool comparesMade = false;
  for (size_t n = 0; n != front.size(); ++n) {
    Operation *op = front[n].getDefiningOp();
    if (front[n] == scores.value || !op)
      continue;
    if (auto compare = dyn_cast<linalg::LinalgOp>(op); compare && llvm::any_of(*compare.getBlock(), isComparison))
      comparesMade |= !llvm::is_contained(op->getOperands(), scores.value);
    if (!isPerElement(op))
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
  // A capture made of them: a threshold, say, below which scores are hidden.
  FailureOr<Access> read = writeScore(match.query.value, match.normalizer == Normalizer::softmax);
  if (failed(read))
    return failure();
  match.query.access = *read;
  if (!match.wholeScores)
    space.walkUp(match.query.value, match.query.access);
  return success();
}

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
