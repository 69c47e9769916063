#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Quantize.h"

// Products of com.microsoft on quantised operands: what ONNX Runtime's optimiser
// makes of MatMulInteger and of QLinearMatMul with what stands around them.

using namespace mlir;

namespace attn::onnx {
namespace {

/// sum * (scale a * scale b) + bias, as output 0; `bias` is an input's number.
LogicalResult setScaled(Node &n, const Tensor &sum, const Tensor &scaleA, const Tensor &scaleB, size_t bias) {
  std::vector<Tensor> operands{sum, scaleA, scaleB};
  if (n.hasInput(bias)) {
    if (n.input(bias).dtype != scaleB.dtype)
      return n.error() << "expects a bias of the scales' type, has " << dtypeName(n.input(bias).dtype) << " and "
                       << dtypeName(scaleB.dtype);
    operands.push_back(n.input(bias));
  }
  return setFormula(n, scaleB.dtype, operands, [](ArrayRef<Num> v) {
    Num scaled = convert(v[0], v[1].dtype()) * (v[1] * v[2]);
    return v.size() > 3 ? scaled + v[3] : scaled;
  });
}

/// DynamicQuantizeMatMul: a quantised as DynamicQuantizeLinear does, times b, as f32.
LogicalResult importDynamicQuantizeMatMul(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)) || failed(expectFloat(n, 2)))
    return failure();
  const Tensor &b = n.input(1);
  FailureOr<Quantized> a = quantizeDynamically(n, n.input(0));
  if (failed(a))
    return failure();
  FailureOr<Tensor> left = formula(n, DType::I32, {a->bytes, a->zero}, [](ArrayRef<Num> v) {
    return convert(v[0], DType::I32) - convert(v[1], DType::I32);
  });
  FailureOr<Tensor> right = withoutZeroPoint(n, b, 3, b.rank() - 1);
  if (failed(left) || failed(right))
    return failure();
  FailureOr<Tensor> sum = matmul(n, *left, *right, DType::I32);
  if (failed(sum))
    return failure();
  FailureOr<Tensor> scale = alongDim(n, 2, sum->rank() - 1, sum->rank());
  return failed(scale) ? failure() : setScaled(n, *sum, a->scale, *scale, 4);
}

/// MatMulIntegerToFloat: MatMulInteger, scaled.
LogicalResult importMatMulIntegerToFloat(Node &n) {
  if (failed(expectInputs(n, 4)) || failed(expectFloat(n, 2)) || failed(expectSameDType(n, 2, 3)))
    return failure();
  const Tensor &a = n.input(0), &b = n.input(1), &scale = n.input(2);
  if (scale.rank() > 1 || (scale.rank() == 1 && !scale.shape[0].is(1)))
    return n.unsupported() << "scales of A that are more than one number";
  FailureOr<Tensor> left = withoutZeroPoint(n, a, 4, a.rank() - 2), right = withoutZeroPoint(n, b, 5, b.rank() - 1);
  if (failed(left) || failed(right))
    return failure();
  FailureOr<Tensor> sum = matmul(n, *left, *right, DType::I32);
  if (failed(sum))
    return failure();
  FailureOr<Tensor> scaleA = alongDim(n, 2, 0, sum->rank()), scaleB = alongDim(n, 3, sum->rank() - 1, sum->rank());
  if (failed(scaleA) || failed(scaleB))
    return failure();
  return setScaled(n, *sum, *scaleA, *scaleB, 6);
}

/// QGemm: alpha * (A - za) (B - zb) + C, where C holds multiples of alpha * scale a * scale b; quantised again where
/// there is a scale for the result.
LogicalResult importQGemm(Node &n) {
  if (failed(expectInputs(n, 6)) || failed(expectFloat(n, 1)) || failed(expectFloat(n, 4)))
    return failure();
  const Tensor &a = n.input(0), &b = n.input(3);
  if (a.rank() != 2 || b.rank() != 2)
    return n.error() << "expects matrices, has ranks " << a.rank() << " and " << b.rank();
  bool transA = n.intAttr("transA", 0) != 0, transB = n.intAttr("transB", 0) != 0;
  FailureOr<Tensor> left = withoutZeroPoint(n, a, 2, -1), right = withoutZeroPoint(n, b, 5, transB ? 0 : 1);
  if (failed(left) || failed(right))
    return failure();
  constexpr Label kRow = 0, kColumn = 1, kInner = 2;
  LabelledTensor rows{*left, {transA ? kInner : kRow, transA ? kRow : kInner}};
  LabelledTensor columns{*right, {transB ? kColumn : kInner, transB ? kInner : kColumn}};
  FailureOr<Tensor> sum = contractLabels(n, DType::I32, rows, columns, {kRow, kColumn});
  if (n.hasInput(6) && n.input(6).dtype != DType::I32)
    return n.error() << "expects C in int32, has " << dtypeName(n.input(6).dtype);
  if (succeeded(sum) && n.hasInput(6))
    sum = formula(n, DType::I32, {*sum, n.input(6)}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
  FailureOr<Tensor> scaleA = alongDim(n, 1, 0, 2), scaleB = alongDim(n, 4, 1, 2);
  if (failed(sum) || failed(scaleA) || failed(scaleB))
    return failure();
  if (double alpha = n.floatAttr("alpha", 1.0); alpha != 1)
    scaleA = formula(n, scaleA->dtype, {*scaleA}, [&](ArrayRef<Num> v) { return alpha * v[0]; });
  if (failed(scaleA))
    return failure();
  return n.hasInput(7) ? setRequantized(n, *sum, *scaleA, *scaleB, 7, 8, a.dtype, 1)
                       : setScaled(n, *sum, *scaleA, *scaleB, /*bias=*/9);
}

} // namespace

void registerContribQuantizedOps(OpRegistry &registry) {
  const char *domain = "com.microsoft";
  registry.add("DynamicQuantizeMatMul", {1}, importDynamicQuantizeMatMul, domain);
  registry.add("MatMulIntegerToFloat", {1}, importMatMulIntegerToFloat, domain);
  registry.add("QGemm", {1}, importQGemm, domain);
}

} // namespace attn::onnx
