#include "dialects/attn/RecurrentLayer.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace attn {

template <typename Op> static RecurrentLayer viewOf(Op op, RecurrentLayer::Cell cell) {
  RecurrentLayer layer;
  layer.op = op;
  layer.cell = cell;
  layer.input = op.getInput();
  layer.weight = op.getWeight();
  layer.recurrence = op.getRecurrence();
  layer.bias = op.getBias();
  layer.lengths = op.getLengths();
  layer.initialH = op.getInitialH();
  layer.sequence = op.getSequence();
  layer.lastH = op.getLastH();
  layer.direction = op.getDirection();
  layer.activations = llvm::to_vector(op.getActivations().template getAsRange<ActivationAttr>());
  if (FloatAttr clip = op.getClipAttr())
    layer.clip = clip.getValueAsDouble();
  layer.batchFirst = op.getBatchFirst();
  return layer;
}

std::optional<RecurrentLayer> RecurrentLayer::get(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<RecurrentLayer>>(op)
      .Case<RnnOp>([](RnnOp rnn) { return viewOf(rnn, Rnn); })
      .Case<GruOp>([](GruOp gru) {
        RecurrentLayer layer = viewOf(gru, Gru);
        layer.linearBeforeReset = gru.getLinearBeforeReset();
        layer.mirrored = gru.getMirrored();
        return layer;
      })
      .Case<LstmOp>([](LstmOp lstm) {
        RecurrentLayer layer = viewOf(lstm, Lstm);
        layer.initialC = lstm.getInitialC();
        layer.peephole = lstm.getPeephole();
        layer.lastC = lstm.getLastC();
        layer.inputForget = lstm.getInputForget();
        return layer;
      })
      .Default(std::nullopt);
}

LogicalResult RecurrentLayer::verifyShape(StringRef name, Value value, ArrayRef<int64_t> expected) const {
  if (!value)
    return success();
  RankedTensorType type = getType(value);
  // C1, C3
  bool isLengths = name == "lengths";
  if (isLengths && !type.getElementType().isInteger(32))
    return op->emitOpError("expects lengths of i32, got ") << type.getElementType();
  if (!isLengths && type.getElementType() != elementType())
    return op->emitOpError("expects ") << name << " of " << elementType() << " as the input, got "
                                       << type.getElementType();
  // C2
  if (failed(verifyCompatibleShape(type.getShape(), expected)))
    return op->emitOpError("expects ") << name << " of type " << RankedTensorType::get(expected, type.getElementType())
                                       << ", got " << type;
  return success();
}

LogicalResult RecurrentLayer::verify() const {
  // C1
  if (!isa<FloatType>(elementType()))
    return op->emitOpError("expects a float element type, got ") << elementType();
  // C2
  for (auto [name, value] : {std::pair("input", input), std::pair("weight", weight), {"recurrence", recurrence}})
    if (value && getType(value).getRank() != 3)
      return op->emitOpError("expects ") << name << " of rank 3, got " << getType(value);
  int64_t hidden = hiddenSize();
  if (ShapedType::isDynamic(hidden) || hidden == 0)
    return op->emitOpError("expects a static number of units greater than 0, got ") << getType(recurrence);
  int64_t steps = getType(input).getDimSize(stepDim()), batch = getType(input).getDimSize(batchDim());
  int64_t directions = numDirections(), rows = numGates() * hidden;
  SmallVector<int64_t> state{directions, batch, hidden}, whole{steps, directions, batch, hidden};
  if (batchFirst) {
    state = {batch, directions, hidden};
    whole = {batch, steps, directions, hidden};
  }
  if (!weight && ShapedType::isDynamic(inputSize()))
    return op->emitOpError("expects a static number of columns of a projected input, got ") << getType(input);
  int64_t width = weight ? inputSize() : directions * rows;
  if (failed(verifyShape("input", input, batchFirst ? ArrayRef{batch, steps, width} : ArrayRef{steps, batch, width})) ||
      failed(verifyShape("weight", weight, {directions, rows, width})) ||
      failed(verifyShape("recurrence", recurrence, {directions, rows, hidden})) ||
      failed(verifyShape("bias", bias, {directions, 2 * rows})) || failed(verifyShape("lengths", lengths, {batch})) ||
      failed(verifyShape("initial_h", initialH, state)) || failed(verifyShape("initial_c", initialC, state)) ||
      failed(verifyShape("peephole", peephole, {directions, 3 * hidden})) ||
      failed(verifyShape("the sequence", sequence, whole)) || failed(verifyShape("last_h", lastH, state)) ||
      failed(verifyShape("last_c", lastC, state)))
    return failure();
  // C4
  int64_t functions = directions * numFunctions();
  if (static_cast<int64_t>(activations.size()) != functions)
    return op->emitOpError("expects ") << functions << " activations, got " << activations.size();
  // C5
  if (clip && !(*clip > 0))
    return op->emitOpError("expects clip to be greater than 0, got ") << *clip;
  return success();
}

void RecurrentLayer::reifyShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) const {
  Location loc = op->getLoc();
  OpFoldResult steps = tensor::getMixedSize(b, loc, input, stepDim());
  OpFoldResult batch = tensor::getMixedSize(b, loc, input, batchDim());
  OpFoldResult directions = b.getIndexAttr(numDirections()), hidden = b.getIndexAttr(hiddenSize());
  SmallVector<OpFoldResult> whole{steps, directions, batch, hidden}, state{directions, batch, hidden};
  if (batchFirst) {
    whole = {batch, steps, directions, hidden};
    state = {batch, directions, hidden};
  }
  shapes.push_back(whole);
  shapes.push_back(state);
  if (cell == Lstm)
    shapes.push_back(state);
}

} // namespace attn
