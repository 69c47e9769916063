#include "passes/graph/element/Constants.h"

#include "passes/graph/Structured.h"
#include "passes/graph/element/ConstantTable.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/OwningOpRef.h"

using namespace mlir;

namespace attn {

OpFoldResult foldAt(Operation *op, ArrayRef<Attribute> operands) {
  OwningOpRef<Operation *> copy(op->clone()); // folding may change operands
  SmallVector<OpFoldResult> folded;
  return succeeded(copy->fold(operands, folded)) && folded.size() == 1 ? folded.front() : OpFoldResult();
}

TypedAttr Constants::ofTable(Value tensor) {
  ConstantTable table = symbols ? ConstantTable::read(tensor, *symbols, weights) : ConstantTable();
  if (table.bytes.empty())
    return {};
  for (int64_t n = 1; n < table.size(); ++n)
    if (table.bitsAt(n) != table.bitsAt(0))
      return {};
  return table.attributeAt(0);
}

TypedAttr Constants::compute(const Element &element) {
  if (TypedAttr constant = splatConstant(element.value))
    return constant;
  if (isa<RankedTensorType>(element.value.getType()))
    return ofTable(element.value);
  Operation *op = element.getOp();
  if (isa_and_nonnull<tensor::ExtractOp>(op))
    return of(reader.sources(element).front());
  if (!op || !isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) || op->getNumResults() != 1)
    return {};
  SmallVector<Attribute> operands;
  for (unsigned n = 0; n != op->getNumOperands(); ++n)
    operands.push_back(ofOperand(element, n));
  OpFoldResult folded = foldAt(op, operands);
  if (auto same = dyn_cast_if_present<Value>(folded))
    return of(reader.scalar(element, same));
  return dyn_cast_if_present<TypedAttr>(dyn_cast_if_present<Attribute>(folded));
}

} // namespace attn
