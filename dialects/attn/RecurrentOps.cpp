#include "dialects/attn/AttnOps.h"
#include "dialects/attn/RecurrentLayer.h"

using namespace mlir;
using namespace attn;

using Unresolved = OpAsmParser::UnresolvedOperand;

ParseResult attn::parseLayerInputs(OpAsmParser &parser, Unresolved &input, std::optional<Unresolved> &weight,
                                   Unresolved &recurrence, Type &inputType, Type &weightType, Type &recurrenceType) {
  SmallVector<Unresolved> operands;
  SmallVector<Type> types;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseOperandList(operands) || parser.parseColonTypeList(types))
    return failure();
  if ((operands.size() != 2 && operands.size() != 3) || types.size() != operands.size())
    return parser.emitError(location, "expects an input, a weight if there is one, a recurrence and their types");
  input = operands.front();
  recurrence = operands.back();
  inputType = types.front();
  recurrenceType = types.back();
  if (operands.size() == 3) {
    weight = operands[1];
    weightType = types[1];
  }
  return success();
}

void attn::printLayerInputs(OpAsmPrinter &printer, Operation *, Value input, Value weight, Value recurrence, Type, Type,
                            Type) {
  SmallVector<Value> operands{input, recurrence};
  if (weight)
    operands.insert(operands.begin() + 1, weight);
  printer << operands << " : " << ValueRange(operands).getTypes();
}

// Constraints and shapes are those of the view.

LogicalResult RnnOp::verify() { return RecurrentLayer::get(*this)->verify(); }
LogicalResult GruOp::verify() { return RecurrentLayer::get(*this)->verify(); }
LogicalResult LstmOp::verify() { return RecurrentLayer::get(*this)->verify(); }

static LogicalResult reify(Operation *op, OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  RecurrentLayer::get(op)->reifyShapes(b, shapes);
  return success();
}

LogicalResult RnnOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  return reify(*this, b, shapes);
}
LogicalResult GruOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  return reify(*this, b, shapes);
}
LogicalResult LstmOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  return reify(*this, b, shapes);
}
