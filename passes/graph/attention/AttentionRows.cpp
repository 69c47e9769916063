// What divides the rows of a built attention's result.

#include "passes/graph/attention/AttentionBuilder.h"

#include "passes/graph/MappedTensor.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {

/// What sum_j exp(s_j) v_j / sum_j exp(s_j) is divided by to be sum_j exp(s_j) v_j / (exp(sink) + sum_j exp(s_j)):
/// 1 + exp(sink - lse), `row` being the lse. Above the maximum, sink + max(s) - lse: exp(max(s) - lse) is the largest
/// weight, which `row` is then.
Value AttentionBuilder::sinkDivisor(OpBuilder &b, Value sink, Value row) {
  Type compute = match.computeType;
  sink = sink ? convertFloat(b, loc, sink, compute) : floatConstant(b, loc, compute, *match.sinkScore);
  Value one = floatConstant(b, loc, compute, 1);
  Value ratio = match.isSinkShifted ? arith::MulFOp::create(b, loc, math::ExpOp::create(b, loc, sink), row).getResult()
                                    : math::ExpOp::create(b, loc, arith::SubFOp::create(b, loc, sink, row)).getResult();
  Value total = arith::AddFOp::create(b, loc, one, ratio);
  if (!match.sink.value || !match.isSinkInMaximum)
    return total;
  Value high = arith::MaximumFOp::create(b, loc, sink, floatConstant(b, loc, compute, 0)); // inf - inf; 0 for others
  return arith::AddFOp::create(b, loc, total, arith::SubFOp::create(b, loc, high, high));
}

/// The result of `op` with its rows divided by what the sink adds, and by a function of the sum of each row's weights.
/// Where these are multiples of exp(s - max(s)), the largest weight of the softmax is what one of them became.
FailureOr<Value> AttentionBuilder::divideRows(AttentionOp op) {
  Block &weight = op.getWeight().front();
  if (hasSink() && !isMultipleOf(cast<YieldOp>(weight.back()).getValue(), weight.getArgument(0)))
    return fail("the weights are changed, and more is added to their divisor than their sum (a sink, an epsilon)", loc);
  SmallVector<Value> inputs(op->getResults());
  SmallVector<AffineMap> maps;
  for (unsigned n = 0; n != inputs.size(); ++n)
    maps.push_back(op.getMap(op.getNumOperands() + n));
  if (match.sink.value) {
    SmallVector<OpFoldResult> sizes = llvm::map_to_vector(units, [&](const Unit &unit) { return size(unit); });
    AffineMap map;
    if (failed(arrange(match.sink, {}, map, "attention sink")))
      return failure();
    MappedTensor plain = readPlainly(b, loc, match.sink.value, map, sizes);
    inputs.push_back(plain.value);
    maps.push_back(plain.map);
  }
  AffineMap loops = inverseAndBroadcastProjectedPermutation(op.getResultMap());
  for (AffineMap &map : maps)
    map = map.compose(loops);
  Type element = getElementTypeOrSelf(op.getResult());
  SmallVector<OpFoldResult> shape = tensor::getMixedSizes(b, loc, op.getResult());
  return elementwise(b, loc, shape, element, inputs, maps, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value result = convertFloat(b, loc, args.front(), match.computeType);
    ValueRange rows = args.slice(1, op.getExtraResults().size()); // in the order of addRows
    if (hasSink()) {
      Value divisor = sinkDivisor(b, match.sink.value ? args[inputs.size() - 1] : Value(), rows.front());
      result = arith::DivFOp::create(b, loc, result, divisor);
      rows = rows.drop_front();
    }
    if (match.divisor) {
      Value sum = rows.front();
      if (match.isShifted) {
        sum = arith::DivFOp::create(b, loc, sum, rows.back());
        result = arith::DivFOp::create(b, loc, result, rows.back());
      }
      result = arith::DivFOp::create(b, loc, result, cloneBody(b, match.divisor->front(), sum));
    }
    return convertFloat(b, loc, result, element);
  });
}

} // namespace attn
