#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn::onnx {

Value toIndex(const Num &integer) {
  OpBuilder &b = integer.builder();
  return b.createOrFold<arith::IndexCastOp>(integer.location(), b.getIndexType(), integer.value());
}

Num toInteger(OpBuilder &b, Location loc, Value index) { return fromIndex(b, loc, DType::I64, index); }

Num clampedInteger(const Num &x, const Num &low, const Num &high) {
  Num least = convert(low, x.dtype()), most = convert(high, x.dtype());
  Num inside = select(x > least, select(x < most, x, most), least); // a NaN is not greater
  // Rounded bounds may lie beyond the integers.
  return maximum(low, minimum(high, convert(inside, DType::I64)));
}

SmallVector<Num, 4> cubicWeights(const Num &t, double a) {
  auto outer = [&](const Num &x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  auto inner = [&](const Num &x) { return ((a + 2) * x - (a + 3)) * x * x + 1.0; };
  return {outer(t + 1.0), inner(t), inner(1.0 - t), outer(2.0 - t)};
}

SmallVector<Tap, 4> linearTaps(const Num &x, const Num &length) {
  Num zero = length.constant(0), last = length - length.constant(1);
  // Far outside there is nothing, wherever; so a NaN is there, too.
  Num base = floor(x), first = clampedInteger(base, length.constant(-2), length + length.constant(2));
  Num fraction = select(isNaN(x), x.constant(0), x - base);
  SmallVector<Tap, 4> taps;
  for (auto [k, weight] : llvm::enumerate(SmallVector<Num, 2>{1.0 - fraction, fraction})) {
    Num at = first + first.constant(int64_t(k));
    Num inside = (at >= zero) & (at < length);
    taps.push_back({maximum(zero, minimum(at, last)), select(inside, weight, weight.constant(0))});
  }
  return taps;
}

Num interpolate(Value source, DType dtype, ArrayRef<Value> lead, ArrayRef<SmallVector<Tap, 4>> taps,
                ArrayRef<Value> trail) {
  const Num &any = taps[0][0].weight;
  if (taps.size() == 1) {
    std::optional<Num> sum;
    for (const Tap &tap : taps[0]) {
      SmallVector<Value> at(lead);
      at.push_back(toIndex(tap.index));
      llvm::append_range(at, trail);
      Value element = tensor::ExtractOp::create(any.builder(), any.location(), source, at);
      Num term = convert(Num(any.builder(), any.location(), dtype, element), any.dtype()) * tap.weight;
      sum = sum ? *sum + term : term;
    }
    return *sum;
  }
  std::optional<Num> sum;
  for (const Tap &tap : taps[0]) {
    SmallVector<Value> at(lead);
    at.push_back(toIndex(tap.index));
    Num term = interpolate(source, dtype, at, taps.drop_front(), trail) * tap.weight;
    sum = sum ? *sum + term : term;
  }
  return *sum;
}

} // namespace attn::onnx
