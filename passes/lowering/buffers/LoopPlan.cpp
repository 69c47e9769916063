#include "passes/lowering/buffers/LoopPlan.h"
#include "passes/lowering/buffers/LaneReductions.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;

// The greatest window of which rows are taken in groups: they share its weights and most of what it reads.
constexpr int64_t kMostTaps = 128;
// A lane that is gathered or scattered, in additions of one lane (Zen 4: a loop over rows that gathers and divides
// takes 1.6 ns per element one by one, and 3.3 with lanes that lie far apart).
constexpr double kGather = 4, kScatter = 8;

/// A parallel loop must tell the elements of each output apart, a reduction must not.
static bool hasUnsuitableOutput(linalg::GenericOp op, const BodyEmitter &candidate, bool reduces) {
  return llvm::any_of(op.getDpsInitsMutable(), [&](OpOperand &init) {
    return (candidate.accessOf(init.getOperandNumber()) == Access::Same) != reduces;
  });
}

/// What operand number `operand` adds to the costs of `used` elements at once. Neighbours are in the body's costs.
static double costOfAccess(linalg::GenericOp op, const BodyEmitter &candidate, unsigned operand, double used) {
  if (candidate.accessOf(operand) != Access::Strided)
    return candidate.accessOf(operand) == Access::Same ? -0.5 : 0;
  std::optional<int64_t> step = candidate.smallStep(operand);
  bool isRead = operand < op.getNumDpsInputs();
  return isRead && step ? static_cast<double>(2 * *step - 1) : (isRead ? kGather : kScatter) * used;
}

/// Picks the loop whose lanes cost least for one element.
void LoopPlan::chooseLanes() {
  int64_t width = target.getF32Lanes();
  emitter = std::make_unique<BodyEmitter>(op, -1);
  double best = static_cast<double>(emitter->costOfBody());
  for (int64_t loop = static_cast<int64_t>(sizes.size()) - 1; loop >= 0; --loop) {
    int64_t size = staticSize(loop).value_or(kUnknownSize);
    if (size < 2)
      continue;
    bool reduces = iterators[loop] == utils::IteratorType::reduction;
    if (reduces && !canReduceAcrossLanes(op))
      continue;
    auto candidate = std::make_unique<BodyEmitter>(op, loop);
    if (!candidate->canVectorize() || hasUnsuitableOutput(op, *candidate, reduces))
      continue;
    double used = static_cast<double>(size) / llvm::divideCeil(size, width); // lanes that count
    double cost = candidate->costOfBody() + kGather * candidate->numGathers() * used + (reduces ? 0.5 : 0);
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      cost += costOfAccess(op, *candidate, i, used);
    if (cost / used < best) {
      best = cost / used;
      emitter = std::move(candidate);
      vectorLoop = loop;
      lanes = width;
    }
  }
}

/// The loop of a row where there are no lanes: a parallel iteration for each of its elements would find all indices
/// by divisions. -1 where elements are sums.
int64_t LoopPlan::lastLoop() const {
  int64_t last = -1;
  for (auto [loop, iterator] : llvm::enumerate(iterators)) {
    if (iterator != utils::IteratorType::parallel)
      return -1;
    if (staticSize(static_cast<int64_t>(loop)) != 1)
      last = static_cast<int64_t>(loop);
  }
  return last;
}

/// Where rows are short, or points, those are many of which the outermost loops have enough: an iteration of a
/// parallel loop finds its indices by divisions, which took most of a copy in patches or in another order.
/// A window slides over rows in groups, which one iteration needs to have.
void LoopPlan::takeInner() {
  constexpr int64_t kEnough = 64, kEnoughWindows = 4;
  bool isLong = vectorLoop >= 0 && staticSize(vectorLoop).value_or(kUnknownSize) > kMostBlocks * lanes;
  if (isLong && !slides())
    return;
  int64_t rows = 1;
  size_t count = 0;
  while (count < outer.size() && rows < kEnough)
    rows *= std::min<int64_t>(staticSize(outer[count++]).value_or(1), kEnough); // an open one may be 1
  if (slides() && count && count == outer.size()) {
    int64_t last = staticSize(outer.back()).value_or(1);
    count -= rows >= last * kEnoughWindows;
  }
  inner.assign(outer.begin() + count, outer.end());
  outer.truncate(count);
}

bool LoopPlan::slides() const {
  int64_t taps = 1;
  for (unsigned loop : reductions)
    taps *= std::min(staticSize(loop).value_or(kMostTaps), kMostTaps);
  return taps > 1 && taps < kMostTaps && vectorLoop >= 0 && !vectorReduces && emitter->costOfBody() < kLongBody;
}

/// Where a window slides along `loop`, its own loop in that direction becomes the innermost one, and its terms stand
/// one after the other: rows of a group then read each row of the input once.
void LoopPlan::unrollTaps(unsigned loop) {
  constexpr int64_t kMost = 8;
  auto *taps = llvm::find_if(reductions, [&](unsigned tap) {
    return staticSize(tap).value_or(kMost + 1) <= kMost && llvm::any_of(op.getIndexingMapsArray(), [&](AffineMap map) {
             return llvm::any_of(map.getResults(), [&](AffineExpr place) {
               return place.isFunctionOfDim(loop) && place.isFunctionOfDim(tap);
             });
           });
  });
  if (taps == reductions.end())
    return;
  std::rotate(taps, taps + 1, reductions.end());
  unrollsTaps = true;
}

LoopPlan::LoopPlan(linalg::GenericOp op, TargetAttr target) : op(op), target(target) {
  OpBuilder b(op);
  for (Range range : cast<linalg::LinalgOp>(op.getOperation()).createLoopRanges(b, op.getLoc()))
    sizes.push_back(range.size);
  iterators = op.getIteratorTypesArray();
  chooseLanes();
  if (vectorLoop < 0)
    vectorLoop = lastLoop();
  masked = target.getIsa() == "avx512" && !emitter->mayTrap();
  for (size_t loop = 0; loop < sizes.size(); ++loop)
    if (static_cast<int64_t>(loop) != vectorLoop && staticSize(loop) != 1) // of one, there is no loop
      (iterators[loop] == utils::IteratorType::parallel ? outer : reductions).push_back(loop);
  vectorReduces = vectorLoop >= 0 && iterators[vectorLoop] == utils::IteratorType::reduction;
  takeInner();
  if (slides() && !inner.empty() && canReduceAcrossLanes(op))
    unrollTaps(inner.back());
}
