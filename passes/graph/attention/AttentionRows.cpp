// What divides the rows of a built attention's result.

#include "passes/graph/attention/AttentionBuilder.h"

#include "passes/graph/Formulas.h"
#include "passes/graph/MappedTensor.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {

/// What sum_j exp(s_j) v_j / sum_j exp(s_j) is divided by to be sum_j exp(s_j) v_j / (exp(sink) + sum_j exp(s_j)):
/// 1 + exp(sink - lse), `row` being the lse. Above the maximum, sink + max(s) - lse: exp(max(s) - lse) is the largest
/// weight, which `row` is then.
Num AttentionBuilder::sinkDivisor(const std::optional<Num> &given, const Num &row) {
  Num sink = given ? convert(*given, match.computeType) : constantLike(row, *match.sinkScore);
  Num total = 1.0 + (match.isSinkShifted ? exp(sink) * row : exp(sink - row));
  if (!given || !match.isSinkInMaximum)
    return total;
  Num high = maximum(sink, 0.0);
  return total + (high - high); // inf - inf; 0 for any other sink
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
  return elementwise(b, loc, shape, element, inputs, maps, formula([&](Code &k, ArrayRef<Num> x) {
                       Num result = convert(x.front(), match.computeType);
                       ArrayRef<Num> rows = x.slice(1, op.getExtraResults().size()); // in the order of addRows
                       if (hasSink()) {
                         std::optional<Num> sink =
                             match.sink.value ? std::optional(x[inputs.size() - 1]) : std::nullopt;
                         result = result / sinkDivisor(sink, rows.front());
                         rows = rows.drop_front();
                       }
                       if (match.divisor) {
                         Num sum = match.isShifted ? rows.front() / rows.back() : rows.front();
                         if (match.isShifted)
                           result = result / rows.back();
                         result = result / k.asNum(cloneBody(k.b, match.divisor->front(), sum.value()));
                       }
                       return convert(result, element);
                     }));
}

} // namespace attn
