#include "passes/lowering/buffers/LaneChoice.h"
#include "passes/lowering/buffers/LaneReductions.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;

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
  return isRead && step ? static_cast<double>(2 * *step - 1) : 1.2 * used;
}

LaneChoice attn::chooseLanes(linalg::GenericOp op, ArrayRef<OpFoldResult> sizes, int64_t width) {
  LaneChoice choice{std::make_unique<BodyEmitter>(op, -1)};
  double best = static_cast<double>(choice.emitter->costOfBody());
  for (int64_t loop = static_cast<int64_t>(sizes.size()) - 1; loop >= 0; --loop) {
    int64_t size = getConstantIntValue(sizes[loop]).value_or(kUnknownSize);
    if (size < 2)
      continue;
    bool reduces = op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction;
    if (reduces && !canReduceAcrossLanes(op))
      continue;
    auto candidate = std::make_unique<BodyEmitter>(op, loop);
    if (!candidate->canVectorize() || hasUnsuitableOutput(op, *candidate, reduces))
      continue;
    double used = static_cast<double>(size) / llvm::divideCeil(size, width); // lanes that count
    double cost = candidate->costOfBody() + candidate->numGathers() * used + (reduces ? 0.5 : 0);
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      cost += costOfAccess(op, *candidate, i, used);
    if (cost / used < best) {
      best = cost / used;
      choice = {std::move(candidate), loop};
    }
  }
  return choice;
}
