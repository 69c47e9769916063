// What divides the rows of a built attention's result.

#include "passes/graph/attention/AttentionBuilder.h"

#include "passes/graph/MappedTensor.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace attn {

/// sum_j exp(s_j) v_j / (exp(sink) + sum_j exp(s_j)): the result of `op` times 1 / (1 + exp(sink - lse)). Above the
/// maximum, sink + max(s) - lse: exp(max(s) - lse) is the largest weight.
FailureOr<Value> AttentionBuilder::scaleBySink(AttentionOp op, ArrayRef<unsigned> dims) {
  Block &weight = op.getWeight().front();
  if (!isMultipleOf(cast<YieldOp>(weight.back()).getValue(), weight.getArgument(0)))
    return fail("the weights are changed, and more is added to their divisor than their sum (a sink, an epsilon)", loc);
  SmallVector<OpFoldResult> sizes, shape = tensor::getMixedSizes(b, loc, op.getResult());
  for (const Unit &unit : units)
    sizes.push_back(size(unit));
  SmallVector<AffineExpr> place(AttentionOp::kDims, b.getAffineConstantExpr(0));
  for (auto [n, dim] : llvm::enumerate(dims))
    place[dim] = b.getAffineDimExpr(n);
  auto inLoops = [&](AffineMap map) { return map.replaceDimsAndSymbols(place, {}, dims.size(), 0); };
  SmallVector<Value> inputs{op.getResult(), op.getExtraResults().front()};
  SmallVector<AffineMap> maps{inLoops(op.getResultMap()), inLoops(op.getExtraMap(0))};
  if (match.sink.value) {
    AffineMap map;
    if (failed(arrange(match.sink, {}, map, "attention sink")))
      return failure();
    MappedTensor plain = readPlainly(b, loc, match.sink.value, map, sizes);
    inputs.push_back(plain.value);
    maps.push_back(inLoops(plain.map));
  }
  Type element = getElementTypeOrSelf(op.getResult());
  return elementwise(b, loc, shape, element, inputs, maps, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Type compute = match.computeType;
    Value sink =
        match.sink.value ? convertFloat(b, loc, args[2], compute) : floatConstant(b, loc, compute, *match.sinkScore);
    Value one = floatConstant(b, loc, compute, 1);
    Value ratio = match.isSinkShifted
                      ? arith::MulFOp::create(b, loc, math::ExpOp::create(b, loc, sink), args[1]).getResult()
                      : math::ExpOp::create(b, loc, arith::SubFOp::create(b, loc, sink, args[1])).getResult();
    Value total = arith::AddFOp::create(b, loc, one, ratio);
    if (match.sink.value && match.isSinkInMaximum) { // inf - inf; 0 for any other sink
      Value high = arith::MaximumFOp::create(b, loc, sink, floatConstant(b, loc, compute, 0));
      total = arith::AddFOp::create(b, loc, total, arith::SubFOp::create(b, loc, high, high));
    }
    Value scaled = arith::DivFOp::create(b, loc, convertFloat(b, loc, args[0], compute), total);
    return convertFloat(b, loc, scaled, element);
  });
}

/// The result of `op` divided by a function of the sum of each row's weights. Where those are multiples of
/// exp(s - max(s)), the largest weight of the softmax is what one of them became.
Value AttentionBuilder::divideRows(AttentionOp op, ArrayRef<unsigned> dims) {
  SmallVector<AffineExpr> place(AttentionOp::kDims, b.getAffineConstantExpr(0));
  for (auto [n, dim] : llvm::enumerate(dims))
    place[dim] = b.getAffineDimExpr(n);
  SmallVector<Value> inputs{op.getResult()};
  llvm::append_range(inputs, op.getExtraResults());
  SmallVector<AffineMap> maps;
  for (unsigned n = 0; n != inputs.size(); ++n)
    maps.push_back(op.getMap(op.getNumOperands() + n).replaceDimsAndSymbols(place, {}, dims.size(), 0));
  Type element = getElementTypeOrSelf(op.getResult());
  SmallVector<OpFoldResult> shape = tensor::getMixedSizes(b, loc, op.getResult());
  return elementwise(b, loc, shape, element, inputs, maps, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value sum = args[1], result = convertFloat(b, loc, args[0], match.computeType);
    if (match.isShifted) {
      sum = arith::DivFOp::create(b, loc, sum, args[2]);
      result = arith::DivFOp::create(b, loc, result, args[2]);
    }
    IRMapping mapping;
    Block &body = match.divisor->front();
    mapping.map(body.getArgument(0), sum);
    for (Operation &inner : body.without_terminator())
      b.clone(inner, mapping);
    Value divisor = mapping.lookup(cast<YieldOp>(body.back()).getValue());
    return convertFloat(b, loc, arith::DivFOp::create(b, loc, result, divisor), element);
  });
}

} // namespace attn
