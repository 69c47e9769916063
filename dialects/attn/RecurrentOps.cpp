#include "dialects/attn/AttnOps.h"
#include "dialects/attn/RecurrentLayer.h"

using namespace mlir;
using namespace attn;

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
