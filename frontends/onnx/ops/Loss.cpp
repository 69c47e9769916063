#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.

using namespace mlir;

namespace attn::onnx {
namespace {

struct Losses {
  Tensor loss, weight; // one a target; the weight is 0 where it is ignored
};

/// -input[n, target, ...] * weight[target] for each target.
FailureOr<Losses> lossOfTargets(Node &n, const Tensor &input, const Tensor &target) {
  if (input.rank() < 2 || target.rank() != input.rank() - 1)
    return n.error() << "expects an input of rank at least 2 and targets of one rank less, has ranks " << input.rank()
                     << " and " << target.rank();
  if (target.dtype != DType::I64 && target.dtype != DType::I32)
    return n.error() << "targets are " << dtypeName(target.dtype) << ", expected int32 or int64";
  for (int64_t d = 0; d < target.rank(); ++d)
    if (failed(n.requireEqual(target.shape[d], input.shape[d ? d + 1 : 0], "{0} targets for {1} inputs")))
      return failure();
  Value weights;
  if (n.hasInput(2)) {
    if (failed(expectSameDType(n, 0, 2)))
      return failure();
    if (n.input(2).rank() != 1)
      return n.error() << "expects weights of rank 1, has rank " << n.input(2).rank();
    if (failed(n.requireEqual(n.input(2).shape[0], input.shape[1], "there are {0} weights for {1} classes")))
      return failure();
    weights = n.value(2);
  }
  bool ignores = n.hasAttr("ignore_index");
  int64_t ignored = n.intAttr("ignore_index", 0);
  DType wide = computeDType(input.dtype);
  Value source = n.value(input), labels = n.value(target);
  Value classes = n.symbols().materialize(n.builder(), n.loc(), input.shape[1]);
  auto make = [&](bool isLoss) {
    Tensor t;
    t.dtype = wide;
    t.shape = target.shape;
    t.value = n.generate(wide, t.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
      Num label = load(b, loc, labels, target.dtype, at);
      std::optional<Num> skip;
      if (ignores) {
        skip = label == label.constant(ignored);
        label = select(*skip, label.constant(0), label);
      }
      Value row = checkedIndex(n, b, loc, label.value(), classes);
      Num weight = constantNum(b, loc, wide, 1.0);
      if (weights)
        weight = convert(load(b, loc, weights, input.dtype, row), wide);
      if (isLoss) {
        SmallVector<Value> place(at);
        place.insert(place.begin() + 1, row);
        weight = -convert(load(b, loc, source, input.dtype, place), wide) * weight;
      }
      return (skip ? select(*skip, weight.constant(0.0), weight) : weight).value();
    });
    return t;
  };
  return Losses{make(true), make(false)};
}

LogicalResult setLoss(Node &n, const Tensor &input, const Tensor &target) {
  std::string reduction = n.stringAttr("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    return n.error() << "reduction '" << reduction << "' is none of none, sum and mean";
  FailureOr<Losses> losses = lossOfTargets(n, input, target);
  if (failed(losses))
    return failure();
  FailureOr<Tensor> result = losses->loss;
  SmallVector<int64_t> dims = dimsFrom(0, target.rank());
  if (reduction != "none")
    result = reduce(n, Combine::Sum, losses->loss, dims);
  if (reduction == "mean")
    result = formula(n, result->dtype, {*result, reduce(n, Combine::Sum, losses->weight, dims)},
                     [](ArrayRef<Num> v) { return v[0] / v[1]; });
  if (failed(result))
    return failure();
  n.setOutput(0, n.cast(*result, input.dtype));
  return success();
}

LogicalResult importNegativeLogLikelihoodLoss(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)))
    return failure();
  return setLoss(n, n.input(0), n.input(1));
}

LogicalResult importSoftmaxCrossEntropyLoss(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  if (x.rank() < 2)
    return n.error() << "expects scores of rank at least 2, has rank " << x.rank();
  Tensor logs;
  logs.dtype = x.dtype;
  logs.shape = x.shape;
  Value v = SoftmaxOp::create(n.builder(), n.loc(), n.value(x), 1, /*log=*/true);
  logs.value = v;
  n.setOutput(1, logs);
  return setLoss(n, logs, n.input(1));
}

} // namespace

void registerLossOps(OpRegistry &registry) {
  registry.add("NegativeLogLikelihoodLoss", {12, 13, 22}, importNegativeLogLikelihoodLoss);
  registry.add("SoftmaxCrossEntropyLoss", {12, 13}, importSoftmaxCrossEntropyLoss);
}

} // namespace attn::onnx
