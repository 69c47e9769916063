#include "frontends/onnx/ops/Blocks.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Narrow.h"
#include "frontends/onnx/ops/Quantize.h"
#include "frontends/onnx/ops/Reduce.h"
#include "frontends/onnx/ops/Taps.h"
#include "frontends/onnx/ops/Window.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>
#include <cstring>

// Numbers as scaled integers: QuantizeLinear and its relatives, and the
// operators that compute on them. Sums are int32, as in the specification.

using namespace mlir;

namespace attn::onnx {
namespace {

//===----------------------------------------------------------------------===//
// Scales and zero points
//===----------------------------------------------------------------------===//

/// Repeats each entry of dimension `dim` `block` times, to `size` in all.
FailureOr<Tensor> blockwise(Node &n, const Tensor &t, int64_t dim, int64_t block, const Expr &size) {
  SmallVector<Expr, 4> apart(t.shape), wide, whole(t.shape);
  apart.insert(apart.begin() + dim + 1, Expr(1));
  wide = apart;
  wide[dim + 1] = Expr(block);
  whole[dim] = t.shape[dim] * Expr(block);
  Expr blocks = n.symbols().ceilDiv(size, block);
  if (failed(n.requireEqual(t.shape[dim], blocks, "{0} scales or zero points for {1} blocks of a dimension")))
    return failure();
  FailureOr<Tensor> view = n.reshape(t, apart);
  if (succeeded(view))
    view = n.reshape(n.expand(*view, wide), whole);
  if (failed(view))
    return failure();
  return n.slice(*view, dim, 0, size);
}

/// Input `i` (a scale or a zero point) in a shape that broadcasts to `x`: one
/// for all, one a slice of `axis`, or one a block of it.
FailureOr<Tensor> parameter(Node &n, size_t i, const Tensor &x) {
  const Tensor &t = n.input(i);
  if (t.rank() == 0)
    return t;
  if (t.rank() == 1 && t.shape[0].is(1))
    return n.reshape(t, {});
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", 1), x.rank());
  if (failed(axis))
    return failure();
  int64_t block = n.intAttr("block_size", 0);
  if (block > 0)
    return blockwise(n, t, *axis, block, x.shape[*axis]);
  if (t.rank() != 1)
    return n.error() << "expects input " << i << " of rank 0 or 1, has rank " << t.rank();
  if (failed(n.requireBroadcast(t.shape[0], x.shape[*axis], "{0} scales or zero points for a dimension of size {1}")))
    return failure();
  SmallVector<Expr, 4> shape(x.rank() - *axis, Expr(1));
  shape[0] = t.shape[0];
  return n.reshape(t, shape);
}

} // namespace

bool isQuantized(DType dtype) {
  return dtype == DType::U8 || dtype == DType::I8 || dtype == DType::U16 || dtype == DType::I16;
}

Num saturated(const Num &x, const std::optional<Num> &zero, DType to) {
  Num shifted = roundEven(x);
  if (zero)
    shifted = shifted + convert(*zero, shifted.dtype());
  if (isNarrow(to)) {
    int64_t count = int64_t(1) << dtypeBits(to), least = isSigned(to) ? -count / 2 : 0;
    Num low = constantNum(x.builder(), x.location(), DType::I64, least);
    return narrowed(clampedInteger(shifted, low, low.constant(least + count - 1)), to, true);
  }
  // Bounds of 16 bits are exact as floats, so that one conversion to 32 bits follows, which vectors have.
  Num limits = constantNum(x.builder(), x.location(), to, int64_t(0));
  Num low = convert(limits.lowest(), shifted.dtype()), high = convert(limits.highest(), shifted.dtype());
  Num inside = select(shifted > low, select(shifted < high, shifted, high), low); // a NaN is not greater
  OpBuilder &b = x.builder();
  Value word = b.createOrFold<arith::FPToSIOp>(x.location(), b.getI32Type(), inside.value());
  return convert(Num(b, x.location(), DType::I32, word), to);
}

namespace {

/// Blocks have scales and zero points in a tensor of the operand's rank.
LogicalResult expectBlocked(Node &n) {
  int64_t block = n.intAttr("block_size", 0), rank = n.input(0).rank();
  if (block < 0)
    return n.error() << "expects a block_size from 0 on, has " << block;
  for (size_t i : {1, 2})
    if (block > 0 && n.hasInput(i) && n.input(i).rank() != rank)
      return n.error() << "has block_size " << block << ", so input " << i << " has to be of rank " << rank << ", not "
                       << n.input(i).rank();
  return success();
}

/// The scale or zero point of each of a weight's elements, in their order: `count` of them, each for `run` elements.
struct Spread {
  std::vector<char> bytes;
  int64_t count = 1, run = 1;
  template <typename T> T at(int64_t element) const {
    T value;
    std::memcpy(&value, bytes.data() + element / run % count * sizeof(T), sizeof(T));
    return value;
  }
};

/// Input `i` of a quantised weight of `shape`, one for all or one a slice of `axis`; nothing where it is not known.
std::optional<Spread> spread(Node &n, size_t i, ArrayRef<int64_t> shape) {
  const Tensor &t = n.input(i);
  std::optional<std::vector<char>> bytes = n.constantBytes(t);
  if (!bytes)
    return std::nullopt;
  Spread result;
  result.bytes = std::move(*bytes);
  result.count = static_cast<int64_t>(result.bytes.size()) / dtypeBytes(t.dtype);
  if (result.count == 1)
    return result;
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", 1), shape.size());
  if (failed(axis) || t.rank() != 1 || result.count != shape[*axis])
    return std::nullopt;
  for (int64_t size : shape.drop_front(*axis + 1))
    result.run *= size;
  return result;
}

/// A weight that the model stores as floats and quantises: its bytes, computed here, not in each run. Nothing where it
/// is no weight, or its parameters are not known.
std::optional<Tensor> quantizedWeight(Node &n, const Tensor &x, DType to) {
  bool isByte = to == DType::U8 || to == DType::I8;
  if (!isByte || x.dtype != DType::F32 || n.input(1).dtype != DType::F32 || n.intAttr("block_size", 0) > 0)
    return std::nullopt;
  std::optional<std::vector<char>> floats = n.weightBytes(x);
  if (!floats)
    return std::nullopt;
  SmallVector<int64_t> shape;
  for (const Expr &size : x.shape)
    shape.push_back(*size.constant());
  std::optional<Spread> scales = spread(n, 1, shape), zeros;
  if (!scales || (n.hasInput(2) && !(zeros = spread(n, 2, shape))))
    return std::nullopt;
  float low = to == DType::U8 ? 0 : -128, high = low + 255;
  std::vector<char> bytes(floats->size() / sizeof(float));
  for (size_t at = 0; at < bytes.size(); ++at) {
    float value;
    std::memcpy(&value, floats->data() + at * sizeof(float), sizeof(float));
    float shifted = std::nearbyint(value / scales->at<float>(at));
    if (zeros)
      shifted +=
          to == DType::U8 ? static_cast<float>(zeros->at<uint8_t>(at)) : static_cast<float>(zeros->at<int8_t>(at));
    float inside = shifted > low ? shifted < high ? shifted : high : low; // a NaN is not greater
    bytes[at] = static_cast<char>(static_cast<int>(inside));
  }
  return n.constantTensor(to, shape, bytes);
}

LogicalResult importQuantizeLinear(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 1)) || failed(expectBlocked(n)))
    return failure();
  warnOfScales(n, /*divides=*/true);
  const Tensor &x = n.input(0);
  DType to = DType::U8;
  if (int64_t given = n.intAttr("output_dtype", 0)) {
    std::optional<DType> known = dtypeFromProto(given);
    if (!known)
      return n.unsupported() << "output type " << given;
    to = *known;
  }
  if (n.hasInput(2))
    to = n.input(2).dtype;
  if ((!isQuantized(to) && !isNarrow(to)) || to == DType::F8E8M0)
    return n.error() << "expects an integer type of at most 16 bits or a float of 8 or 4 to quantise to, has "
                     << dtypeName(to);
  bool saturate = n.intAttr("saturate", 1) != 0;
  if (std::optional<Tensor> bytes = quantizedWeight(n, x, to)) {
    n.setOutput(0, *bytes);
    return success();
  }
  FailureOr<Tensor> scale = parameter(n, 1, x);
  if (failed(scale))
    return failure();
  std::vector<Tensor> operands{x, *scale};
  if (n.hasInput(2)) {
    FailureOr<Tensor> zero = parameter(n, 2, x);
    if (failed(zero))
      return failure();
    operands.push_back(*zero);
  }
  return setFormula(n, to, operands, [&](ArrayRef<Num> v) {
    Num ratio = convert(v[0], v[1].dtype()) / v[1];
    // The quotient of half floats is a half float.
    if (computeDType(scale->dtype) != scale->dtype && x.dtype == scale->dtype)
      ratio = convert(convert(ratio, scale->dtype), v[1].dtype());
    if (isNarrowFloat(to))
      return narrowed(ratio, to, saturate);
    return saturated(ratio, v.size() > 2 ? std::optional(v[2]) : std::nullopt, to);
  });
}

/// Input 0, integers of up to 8 bits, with the scales and zero points of blocks.
LogicalResult dequantizeCodes(Node &n, int64_t block) {
  const Tensor &x = n.input(0);
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", 1), x.rank());
  if (failed(axis) || (n.hasInput(2) && failed(expectSameDType(n, 0, 2))))
    return failure();
  Blocks blocks{x, n.input(1), {}, *axis, block, dtypeBits(x.dtype)};
  if (n.hasInput(2))
    blocks.zeros = n.input(2);
  FailureOr<Tensor> y = dequantizeBlocks(n, blocks);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

/// Whether input 0 is a matrix of float8e4m3fn that the model stores, less nothing, with scales of the result's type.
bool isStoredE4M3(Node &n, DType to) {
  const Tensor &x = n.input(0);
  if (x.dtype != DType::F8E4M3FN || x.rank() != 2 || x.weight.empty() || to != n.input(1).dtype)
    return false;
  if (!n.hasInput(2))
    return true;
  std::optional<std::vector<char>> zeros = n.constantBytes(n.input(2));
  return zeros && llvm::all_of(*zeros, [](char zero) { return zero == 0; });
}

/// Such a matrix: with a scale for each row or column, or one for all, each of these is one block.
LogicalResult dequantizeE4M3(Node &n, int64_t block) {
  const Tensor &x = n.input(0), &scale = n.input(1);
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", 1), x.rank());
  if (failed(axis))
    return failure();
  Blocks blocks{x, scale, {}, *axis, block, 8, 0, /*isE4M3=*/true};
  if (block == 0) {
    bool isOne = scale.rank() == 0 || scale.shape[0].is(1);
    blocks.axis = isOne ? 0 : 1 - *axis;
    blocks.block = std::max<int64_t>(x.shape[blocks.axis].constant().value_or(1), 1);
    SmallVector<Expr, 4> shape(x.shape), own;
    shape[blocks.axis] = Expr(1);
    own = shape;
    if (isOne)
      own[1] = Expr(1);
    FailureOr<Tensor> scales = n.reshape(scale, own);
    if (failed(scales))
      return failure();
    blocks.scales = n.expand(*scales, shape);
  }
  FailureOr<Tensor> y = dequantizeBlocks(n, blocks);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

LogicalResult importDequantizeLinear(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 1)) || failed(expectBlocked(n)))
    return failure();
  warnOfScales(n, /*divides=*/false);
  const Tensor &x = n.input(0);
  if (isFloat(x.dtype) || x.dtype == DType::Bool)
    return n.error() << "expects quantised numbers, has " << dtypeName(x.dtype);
  DType to = n.input(1).dtype;
  if (int64_t given = n.intAttr("output_dtype", 0))
    to = dtypeFromProto(given).value_or(to);
  bool isCode = (isNarrow(x.dtype) && !isNarrowFloat(x.dtype)) || x.dtype == DType::I8 || x.dtype == DType::U8;
  int64_t block = n.intAttr("block_size", 0);
  if (isCode && block > 0 && to == n.input(1).dtype)
    return dequantizeCodes(n, block);
  bool isOneScaleEach = block > 0 || n.input(1).rank() <= 1;
  if (isStoredE4M3(n, to) && isOneScaleEach)
    return dequantizeE4M3(n, block);
  FailureOr<Tensor> scale = parameter(n, 1, x);
  if (failed(scale))
    return failure();
  std::vector<Tensor> operands{x, *scale};
  if (n.hasInput(2)) {
    FailureOr<Tensor> zero = parameter(n, 2, x);
    if (failed(zero) || failed(expectSameDType(n, 0, 2)))
      return failure();
    operands.push_back(*zero);
  }
  return setFormula(n, to, operands, [&](ArrayRef<Num> v) {
    DType wide = v[1].dtype();
    Num value = convert(v[0], wide);
    if (v.size() > 2)
      value = value - convert(v[2], wide);
    return value * v[1];
  });
}

} // namespace

FailureOr<Quantized> quantizeDynamically(Node &n, const Tensor &x) {
  SmallVector<int64_t> dims = dimsFrom(0, x.rank());
  Tensor most = reduce(n, Combine::Max, x, dims), least = reduce(n, Combine::Min, x, dims);
  auto span = [](ArrayRef<Num> v) {
    Num zero = v[0].constant(0);
    return atLeast(v[0], zero) - atMost(v[1], zero);
  };
  FailureOr<Tensor> scale = formula(n, DType::F32, {most, least}, [&](ArrayRef<Num> v) {
    Num range = span(v);
    return select(range == 0.0, range.constant(1), range) / 255.0;
  });
  if (failed(scale))
    return failure();
  FailureOr<Tensor> zero = formula(n, DType::U8, {least, *scale}, [](ArrayRef<Num> v) {
    return saturated(-atMost(v[0], v[0].constant(0)) / v[1], std::nullopt, DType::U8);
  });
  if (failed(zero))
    return failure();
  FailureOr<Tensor> bytes = formula(n, DType::U8, {x, *scale, *zero},
                                    [](ArrayRef<Num> v) { return saturated(v[0] / v[1], v[2], DType::U8); });
  if (failed(bytes))
    return failure();
  return Quantized{*bytes, *scale, *zero};
}

FailureOr<Tensor> alongDim(Node &n, size_t i, int64_t dim, int64_t rank) {
  const Tensor &t = n.input(i);
  if (t.rank() != 1)
    return t;
  SmallVector<Expr, 4> shape;
  if (!t.shape[0].is(1)) {
    shape.assign(std::max<int64_t>(rank - dim, 1), Expr(1));
    shape[0] = t.shape[0];
  }
  return n.reshape(t, shape);
}

FailureOr<Tensor> requantized(Node &n, const Tensor &sum, const Tensor &scaleA, const Tensor &scaleB, size_t scaleY,
                              size_t zeroY, DType fallback, int64_t dim) {
  FailureOr<Tensor> outScale = alongDim(n, scaleY, dim, sum.rank());
  if (failed(outScale))
    return failure();
  std::vector<Tensor> operands{sum, scaleA, scaleB, *outScale};
  DType to = fallback;
  if (n.hasInput(zeroY)) {
    FailureOr<Tensor> zero = alongDim(n, zeroY, dim, sum.rank());
    if (failed(zero))
      return failure();
    to = zero->dtype;
    operands.push_back(*zero);
  }
  if (!isQuantized(to))
    return n.error() << "expects a result of 8 or 16 bits, has " << dtypeName(to);
  return formula(n, to, operands, [&](ArrayRef<Num> v) {
    // An int32 sum is exact in f64 only.
    DType wide = sum.dtype == DType::I32 ? DType::F64 : DType::F32;
    Num factor = convert(v[1], wide) * convert(v[2], wide) / convert(v[3], wide);
    return saturated(convert(v[0], wide) * factor, v.size() > 4 ? std::optional(v[4]) : std::nullopt, to);
  });
}

LogicalResult setRequantized(Node &n, const Tensor &sum, const Tensor &scaleA, const Tensor &scaleB, size_t scaleY,
                             size_t zeroY, DType fallback, int64_t dim) {
  FailureOr<Tensor> y = requantized(n, sum, scaleA, scaleB, scaleY, zeroY, fallback, dim);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

namespace {

LogicalResult importDynamicQuantizeLinear(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  FailureOr<Quantized> y = quantizeDynamically(n, n.input(0));
  if (failed(y))
    return failure();
  n.setOutput(0, y->bytes);
  n.setOutput(1, y->scale);
  n.setOutput(2, y->zero);
  return success();
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Whether both operands are bytes that the run computes, as scores and values of an attention are.
bool areComputedBytes(Node &n, const Tensor &a, const Tensor &b) {
  auto isByte = [](DType dtype) { return dtype == DType::U8 || dtype == DType::I8; };
  return isByte(a.dtype) && isByte(b.dtype) && !n.constantBytes(a) && !n.constantBytes(b);
}

LogicalResult importQLinearMatMul(Node &n) {
  if (failed(expectInputs(n, 8)))
    return failure();
  for (size_t i : {1, 4, 6})
    if (failed(expectFloat(n, i)))
      return failure();
  const Tensor &a = n.input(0), &b = n.input(3);
  FailureOr<Tensor> left = withoutZeroPoint(n, a, 2, a.rank() - 2);
  FailureOr<Tensor> right = withoutZeroPoint(n, b, 5, b.rank() - 1);
  if (failed(left) || failed(right))
    return failure();
  // Integers as f32 are what attentions are made of. Their sums are exact up to 2^24 (258 products of any bytes); a
  // larger one is rounded to 24 bits, as it is where it is scaled.
  DType summed = areComputedBytes(n, a, b) ? DType::F32 : DType::I32;
  for (FailureOr<Tensor> *operand : {&left, &right})
    if (summed == DType::F32)
      *operand = formula(n, summed, {**operand}, [](ArrayRef<Num> v) { return convert(v[0], DType::F32); });
  if (failed(left) || failed(right))
    return failure();
  FailureOr<Tensor> sum = matmul(n, *left, *right, summed);
  if (failed(sum))
    return failure();
  FailureOr<Tensor> scaleA = alongDim(n, 1, sum->rank() - 2, sum->rank());
  FailureOr<Tensor> scaleB = alongDim(n, 4, sum->rank() - 1, sum->rank());
  if (failed(scaleA) || failed(scaleB))
    return failure();
  return setRequantized(n, *sum, *scaleA, *scaleB, 6, 7, a.dtype, sum->rank() - 2);
}

LogicalResult importConvInteger(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  FailureOr<Tensor> x = withoutZeroPoint(n, n.input(0), 2, -1), w = withoutZeroPoint(n, n.input(1), 3, 0);
  if (failed(x) || failed(w))
    return failure();
  FailureOr<Tensor> y = convolve(n, *x, *w, [](const Tensor &sums, int64_t) { return sums; });
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

LogicalResult importQLinearConv(Node &n) {
  if (failed(expectInputs(n, 8)))
    return failure();
  for (size_t i : {1, 4, 6})
    if (failed(expectFloat(n, i)))
      return failure();
  bool isLast = n.intAttr("channels_last", 0) != 0; // of ONNX Runtime
  FailureOr<Tensor> x = withoutZeroPoint(n, isLast ? channelsFirst(n, n.input(0)) : n.input(0), 2, -1);
  FailureOr<Tensor> w = withoutZeroPoint(n, n.input(3), 5, 0);
  if (failed(x) || failed(w))
    return failure();
  FailureOr<Tensor> y = convolve(n, *x, *w, [&](Tensor sum, int64_t filters) -> FailureOr<Tensor> {
    int64_t rank = sum.rank();
    if (n.hasInput(8)) {
      FailureOr<Tensor> bias = uprightBias(n, n.input(8), n.input(3).shape[0], rank, filters);
      if (failed(bias))
        return failure();
      FailureOr<Tensor> total =
          formula(n, DType::I32, {sum, *bias}, [](ArrayRef<Num> v) { return v[0] + convert(v[1], DType::I32); });
      if (failed(total))
        return failure();
      sum = *total;
    }
    FailureOr<Tensor> scaleX = alongDim(n, 1, filters, rank), scaleW = alongDim(n, 4, filters, rank);
    if (failed(scaleX) || failed(scaleW))
      return failure();
    return requantized(n, sum, *scaleX, *scaleW, 6, 7, n.input(0).dtype, filters);
  });
  if (failed(y))
    return failure();
  n.setOutput(0, isLast ? channelsLast(n, *y) : *y);
  return success();
}

} // namespace

void registerQuantizationOps(OpRegistry &registry) {
  registry.add("QuantizeLinear", {10, 13, 19, 21, 23, 24, 25, 28}, importQuantizeLinear);
  registry.add("DequantizeLinear", {10, 13, 19, 21, 23, 24, 25, 28}, importDequantizeLinear);
  // Those of ONNX Runtime had more types than the standard's once.
  registry.add("QuantizeLinear", {1}, importQuantizeLinear, "com.microsoft");
  registry.add("DequantizeLinear", {1}, importDequantizeLinear, "com.microsoft");
  registry.add("DynamicQuantizeLinear", {11}, importDynamicQuantizeLinear);
  registry.add("QLinearMatMul", {10, 21}, importQLinearMatMul);
  registry.add("ConvInteger", {10}, importConvInteger);
  registry.add("QLinearConv", {10}, importQLinearConv);
  registry.add("QLinearConv", {1}, importQLinearConv, "com.microsoft");
}

} // namespace attn::onnx
