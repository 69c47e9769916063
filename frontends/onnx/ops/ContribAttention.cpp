#include "frontends/onnx/ops/ContribAttention.h"
#include "frontends/onnx/ops/Concatenate.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Quantize.h"
#include "frontends/onnx/ops/Reduce.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

// Attention and MultiHeadAttention of ONNX Runtime (com.microsoft): how they
// pack their operands, and what masks they take.

using namespace mlir;

namespace attn::onnx {
FailureOr<HeadTensor> splitHeads(Node &n, const Tensor &t, int64_t heads) {
  if (t.rank() != 3)
    return n.error() << "expects an operand of rank 3, has rank " << t.rank();
  Expr width = n.symbols().floorDiv(t.shape[2], heads);
  if (failed(n.requireEqual(width * Expr(heads), t.shape[2], "heads cover {0} of {1} elements")))
    return failure();
  FailureOr<Tensor> view = n.reshape(t, {t.shape[0], t.shape[1], Expr(heads), width});
  if (failed(view))
    return failure();
  return HeadTensor{*view, true};
}

FailureOr<int64_t> readHeadCount(Node &n, StringRef name) {
  int64_t heads = n.intAttr(name, 0);
  if (heads < 1 || heads > (1 << 20))
    return n.error() << "expects " << name << " of at least 1, has " << heads;
  return heads;
}

FailureOr<Expr> readNumber(Node &n, size_t input, StringRef name) {
  const Tensor &t = n.input(input);
  if ((t.dtype != DType::I32 && t.dtype != DType::I64) || t.rank() > 1)
    return n.error() << "expects " << name << " (input " << input << ") as one integer, has " << dtypeName(t.dtype)
                     << " of rank " << t.rank();
  std::string message = (name + " (input " + std::to_string(input) + ") has {0} numbers, expected {1}").str();
  if (t.rank() == 1 && failed(n.requireEqual(t.shape[0], Expr(1), message)))
    return failure();
  std::optional<SmallVector<Expr>> given = t.rank() ? exprsOfLength(n, input, 1) : n.exprs(input);
  if (!given)
    return failure();
  return given->front();
}

FailureOr<double> readScale(Node &n, AttentionOperands &o) {
  double scale = n.floatAttr("scale", 0.0);
  return scale != 0 ? scale : defaultScale(n, o);
}

/// The run has a mask of B or of 3B + 2 numbers.
static void requireLengths(Node &n, const Expr &numbers, const Expr &batch) {
  Symbols &symbols = n.symbols();
  Expr fits = symbols.select(symbols.equal(numbers, batch), Expr(1), symbols.equal(numbers, batch * Expr(3) + Expr(2)));
  n.require(fits, "a mask of {0} numbers for a batch of {1}", {numbers, batch});
}

/// What an int32 mask adds to the scores: mask_filter_value (finite, so it
/// takes part) where a key is masked.
static FailureOr<Tensor> maskBias(Node &n, const Tensor &mask, const AttentionSizes &sizes) {
  double filter = n.floatAttr("mask_filter_value", -10000.0);
  if (mask.dtype != DType::I32 && mask.dtype != DType::I64 && mask.dtype != DType::Bool)
    return n.error() << "expects an int32 mask, has " << dtypeName(mask.dtype);
  if (mask.rank() == 2 || mask.rank() == 3) { // [B, T] or [B, S, T], 0 where masked
    SmallVector<Expr, 4> shape{mask.shape[0], Expr(1), Expr(1), mask.shape.back()};
    if (mask.rank() == 3)
      shape[2] = mask.shape[1];
    FailureOr<Tensor> view = n.reshape(mask, shape);
    if (failed(view))
      return failure();
    return formula(n, DType::F32, *view, [&](ArrayRef<Num> v) {
      Num off = constantNum(v[0].builder(), v[0].location(), DType::F32, filter);
      Num keep = v[0].dtype() == DType::Bool ? v[0] : v[0] != v[0].constant(0);
      return select(keep, off.constant(0.0), off);
    });
  }
  if (mask.rank() != 1)
    return n.unsupported() << "a mask of rank " << mask.rank();
  // [B]: the number of keys; [2B]: the end of the keys, then their begin; [3B + 2]: the number of keys, and where
  // queries and keys without padding would lie.
  const Expr &numbers = mask.shape[0];
  bool pairs = n.symbols().isEqual(numbers, sizes.batch * Expr(2)) == true && !numbers.is(0);
  std::optional<bool> isLong = n.symbols().isEqual(numbers, sizes.batch * Expr(3) + Expr(2));
  std::optional<bool> isShort = n.symbols().isEqual(numbers, sizes.batch);
  if (!pairs && isLong == false && isShort == false)
    return n.unsupported() << "a mask of " << n.symbols().print(numbers) << " numbers for a batch of "
                           << n.symbols().print(sizes.batch);
  if (!pairs && isLong != true && isShort != true)
    requireLengths(n, numbers, sizes.batch);
  Value ends = n.value(mask), batch = n.symbols().materialize(n.builder(), n.loc(), sizes.batch);
  Tensor bias;
  bias.dtype = DType::F32;
  bias.shape.append({sizes.batch, Expr(1), Expr(1), sizes.keys});
  bias.value = n.generate(DType::F32, bias.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num key = fromIndex(b, loc, mask.dtype, at[3]), off = constantNum(b, loc, DType::F32, filter);
    Num inside = key < load(b, loc, ends, mask.dtype, at[0]);
    if (pairs) {
      Value second = arith::AddIOp::create(b, loc, at[0], batch);
      inside = inside & (key >= load(b, loc, ends, mask.dtype, second));
    }
    return select(inside, off.constant(0.0), off).value();
  });
  return bias;
}

LogicalResult readWidths(Node &n, const Expr &all, SmallVector<Expr, 3> &widths) {
  if (std::optional<SmallVector<int64_t>> given = n.intsAttr("qkv_hidden_sizes")) {
    if (given->size() != 3)
      return n.error() << "expects 3 qkv_hidden_sizes, has " << given->size();
    widths.assign(given->begin(), given->end());
  } else {
    widths.assign(3, n.symbols().floorDiv(all, 3));
  }
  return n.requireEqual(widths[0] + widths[1] + widths[2], all, "query, key and value have {0} columns of {1}");
}

FailureOr<Tensor> addBias(Node &n, size_t i, const Tensor &t, const Expr &begin) {
  const Tensor &bias = n.input(i);
  if (bias.rank() != 1 || bias.dtype != t.dtype)
    return n.error() << "expects a bias of rank 1 and type " << dtypeName(t.dtype) << ", has rank " << bias.rank()
                     << " and type " << dtypeName(bias.dtype);
  const Expr &columns = t.shape.back();
  if (failed(n.requireAtMost(begin + columns, bias.shape[0], "a bias of {1} numbers for {0} columns")))
    return failure();
  return formula(n, t.dtype, {t, n.slice(bias, 0, begin, columns)}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
}

LogicalResult expectPast(Node &n, const Tensor &past, const Tensor &next) {
  if (past.rank() != 4 || past.dtype != next.dtype)
    return n.error() << "expects a past of rank 4 and type " << dtypeName(next.dtype) << ", has rank " << past.rank()
                     << " and type " << dtypeName(past.dtype);
  for (int64_t d : {0, 1, 3})
    if (failed(n.requireEqual(past.shape[d], next.shape[d], "sizes {0} of the past and {1} differ")))
      return failure();
  return success();
}

FailureOr<HeadTensor> withPast(Node &n, const Tensor &past, const HeadTensor &t) {
  Tensor next = headsOutside(n, t);
  if (failed(expectPast(n, past, next)))
    return failure();
  SmallVector<Expr, 4> shape(next.shape);
  shape[2] = past.shape[2] + next.shape[2];
  return HeadTensor{concatenate(n, {past, next}, 2, shape), false};
}

LogicalResult addMasks(Node &n, ScoreRule &rule, size_t mask, size_t bias, const AttentionSizes &sizes) {
  std::optional<Tensor> all;
  if (n.hasInput(mask)) {
    FailureOr<Tensor> added = maskBias(n, n.input(mask), sizes);
    if (failed(added))
      return failure();
    all = *added;
  }
  if (n.hasInput(bias)) {
    if (failed(expectFloat(n, bias)))
      return failure();
    FailureOr<Tensor> sum = n.input(bias);
    if (all)
      sum = formula(n, DType::F32, {*all, n.input(bias)},
                    [](ArrayRef<Num> v) { return v[0] + convert(v[1], DType::F32); });
    if (failed(sum))
      return failure();
    all = *sum;
  }
  return all ? rule.addMask(n, *all, sizes) : success();
}

namespace {

/// Query, key and value attended to under the mask of input `mask` and the bias
/// of input `bias`, to no later key where the node is unidirectional.
LogicalResult attendMasked(Node &n, const HeadTensor (&parts)[3], const Expr &past, size_t mask, size_t bias = 5) {
  AttentionOperands o{parts[0], parts[1], parts[2], true, 1, past, {}, std::nullopt, std::nullopt};
  if (failed(checkSizes(n, o)))
    return failure();
  FailureOr<double> scale = readScale(n, o);
  if (failed(scale))
    return failure();
  ScoreRule rule = ScoreRule::scaled(*scale);
  if (failed(addMasks(n, rule, mask, bias, o.sizes)))
    return failure();
  if (n.intAttr("unidirectional", 0))
    rule.addWindow(-1, 0, past.is(0) ? std::nullopt : std::optional(scalarTensor(DType::I64, past)));
  FailureOr<Tensor> y = attend(n, o, rule);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  if (!n.hasOutput(3)) // qk, of MultiHeadAttention
    return success();
  FailureOr<Tensor> scores = maskedScores(n, o, rule);
  if (succeeded(scores) && n.intAttr("unidirectional", 0)) { // what it hides is the least number, and no infinity
    auto type = cast<FloatType>(elementType(n.builder().getContext(), scores->dtype));
    double least = llvm::APFloat::getLargest(type.getFloatSemantics(), /*Negative=*/true).convertToDouble();
    scores = formula(n, scores->dtype, *scores, [&](ArrayRef<Num> v) { return maximum(v[0], v[0].constant(least)); });
  }
  if (failed(scores))
    return failure();
  n.setOutput(3, *scores);
  return success();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Row `i` of a cache [2, B, N, P, D].
FailureOr<Tensor> cacheRow(Node &n, const Tensor &cache, int64_t i) {
  if (cache.rank() != 5)
    return n.error() << "expects a past of rank 5, has rank " << cache.rank();
  if (failed(n.requireEqual(cache.shape[0], 2, "a past has {0} parts, expected {1}")))
    return failure();
  SmallVector<Expr, 4> shape(cache.shape.begin() + 1, cache.shape.end());
  return n.reshape(n.slice(cache, 0, i, 1), shape);
}

/// [2, ...] of two tensors.
FailureOr<Tensor> stacked(Node &n, const Tensor &first, const Tensor &second) {
  SmallVector<Expr, 4> shape(first.shape);
  shape.insert(shape.begin(), Expr(1));
  FailureOr<Tensor> a = n.reshape(first, shape), b = n.reshape(second, shape);
  if (failed(a) || failed(b))
    return failure();
  shape[0] = 2;
  return concatenate(n, {*a, *b}, 0, shape);
}

/// Numbers of inputs that Attention and QAttention have at different places.
struct AttentionInputs {
  size_t mask, past, scoreBias;
};

LogicalResult expectProjection(Node &n) {
  for (StringRef name : {"do_rotary", "past_present_share_buffer"})
    if (n.intAttr(name, 0))
      return n.unsupported() << name << " = 1";
  if (n.input(0).rank() != 3 || n.input(1).rank() != 2)
    return n.error() << "expects an input of rank 3 and weights of rank 2, has ranks " << n.input(0).rank() << " and "
                     << n.input(1).rank();
  return success();
}

/// The attention of `projected`, the product of inputs 0 and 1, and the bias, input 2.
LogicalResult attendProjected(Node &n, const Tensor &projected, const AttentionInputs &inputs) {
  FailureOr<int64_t> heads = readHeadCount(n, "num_heads");
  SmallVector<Expr, 3> widths;
  if (failed(heads) || failed(readWidths(n, n.input(1).shape[1], widths)))
    return failure();
  HeadTensor parts[3];
  Expr begin(0);
  for (auto [part, width] : llvm::zip_equal(parts, widths)) {
    FailureOr<Tensor> own = n.slice(projected, projected.rank() - 1, begin, width);
    if (n.hasInput(2))
      own = addBias(n, 2, *own, begin);
    if (failed(own))
      return failure();
    FailureOr<HeadTensor> split = splitHeads(n, *own, *heads);
    if (failed(split))
      return failure();
    part = *split;
    begin = begin + width;
  }
  Expr past(0);
  if (n.hasInput(inputs.past)) {
    const Tensor &cache = n.input(inputs.past);
    past = cache.rank() == 5 ? cache.shape[3] : Expr(0);
    for (int64_t i : {0, 1}) {
      FailureOr<Tensor> row = cacheRow(n, cache, i);
      if (failed(row))
        return failure();
      FailureOr<HeadTensor> whole = withPast(n, *row, parts[i + 1]);
      if (failed(whole))
        return failure();
      parts[i + 1] = *whole;
    }
  }
  if (n.hasOutput(1)) {
    FailureOr<Tensor> present = stacked(n, headsOutside(n, parts[1]), headsOutside(n, parts[2]));
    if (failed(present))
      return failure();
    n.setOutput(1, *present);
  }
  return attendMasked(n, parts, past, inputs.mask, inputs.scoreBias);
}

LogicalResult importAttention(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)) ||
      failed(expectProjection(n)))
    return failure();
  FailureOr<Tensor> projected = matmul(n, n.input(0), n.input(1), n.input(0).dtype);
  return failed(projected) ? failure() : attendProjected(n, *projected, {/*mask=*/3, /*past=*/4, /*scoreBias=*/5});
}

/// A decoder's step with its own projection. Buffers that past and present share have an order of their own.
LogicalResult importDecoderMaskedSelfAttention(Node &n) {
  for (size_t i : {7, 8})
    if (n.hasInput(i))
      return n.unsupported() << "input " << i << " (beam_width or cache_indirection)";
  return importAttention(n);
}

/// QAttention: the projection is a product of integers, all behind it is in f32.
LogicalResult importQAttention(Node &n) {
  if (failed(expectInputs(n, 5)) || failed(expectFloat(n, 3)) || failed(expectSameDType(n, 3, 4)) ||
      failed(expectProjection(n)))
    return failure();
  FailureOr<Tensor> x = withoutZeroPoint(n, n.input(0), 6, -1), w = withoutZeroPoint(n, n.input(1), 7, 1);
  if (failed(x) || failed(w))
    return failure();
  FailureOr<Tensor> sum = matmul(n, *x, *w, DType::I32);
  FailureOr<Tensor> scaleX = alongDim(n, 3, 0, 3), scaleW = alongDim(n, 4, 2, 3);
  if (failed(sum) || failed(scaleX) || failed(scaleW))
    return failure();
  FailureOr<Tensor> projected = formula(n, scaleX->dtype, {*sum, *scaleX, *scaleW},
                                        [](ArrayRef<Num> v) { return convert(v[0], v[1].dtype()) * (v[1] * v[2]); });
  constexpr size_t kNone = 9; // it takes 0 to 8
  return failed(projected) ? failure() : attendProjected(n, *projected, {/*mask=*/5, /*past=*/8, kNone});
}

//===----------------------------------------------------------------------===//
// MultiHeadAttention
//===----------------------------------------------------------------------===//

/// Part `i` of `count` of [B, S, N, count, D], heads inside.
FailureOr<HeadTensor> packedPart(Node &n, const Tensor &t, int64_t i, int64_t count) {
  if (t.rank() != 5 || failed(n.requireEqual(t.shape[3], count, "{0} parts are packed, expected {1}")))
    return t.rank() != 5 ? n.error() << "expects packed operands of rank 5, has rank " << t.rank() : failure();
  FailureOr<Tensor> view = n.reshape(n.slice(t, 3, i, 1), {t.shape[0], t.shape[1], t.shape[2], t.shape[4]});
  if (failed(view))
    return failure();
  return HeadTensor{*view, true};
}

/// Query, key or value `i` of a MultiHeadAttention, its bias added.
FailureOr<HeadTensor> multiHeadPart(Node &n, int64_t i, int64_t heads, Expr &biasBegin) {
  auto unbiased = [&](FailureOr<HeadTensor> t) -> FailureOr<HeadTensor> {
    if (n.hasInput(3))
      return n.unsupported() << "a bias of packed operands";
    return t;
  };
  if (n.input(0).rank() == 5)
    return unbiased(packedPart(n, n.input(0), i, 3));
  if (i > 0 && n.hasInput(1) && n.input(1).rank() == 5)
    return unbiased(packedPart(n, n.input(1), i - 1, 2));
  if (!n.hasInput(i))
    return n.error() << "has no input " << i;
  const Tensor &t = n.input(i);
  if (t.rank() == 4) // heads outside, and the bias is in it
    return HeadTensor{t, false};
  if (t.rank() != 3)
    return n.error() << "expects input " << i << " of rank 3 to 5, has rank " << t.rank();
  FailureOr<Tensor> whole = t;
  if (n.hasInput(3)) {
    whole = addBias(n, 3, t, biasBegin);
    biasBegin = biasBegin + t.shape[2];
  }
  if (failed(whole))
    return failure();
  return splitHeads(n, *whole, heads);
}

LogicalResult importMultiHeadAttention(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  for (size_t i : {8, 9})
    if (n.hasInput(i))
      return n.unsupported() << "input " << i << " (past_sequence_length or cache_indirection)";
  FailureOr<int64_t> heads = readHeadCount(n, "num_heads");
  if (failed(heads))
    return failure();
  HeadTensor parts[3];
  Expr begin(0);
  for (int64_t i : {0, 1, 2}) {
    FailureOr<HeadTensor> part = multiHeadPart(n, i, *heads, begin);
    if (failed(part))
      return failure();
    parts[i] = *part;
  }
  if (n.hasInput(6) != n.hasInput(7))
    return n.error() << "expects past_key and past_value together, has one";
  Expr past(0);
  for (int64_t i : {1, 2}) {
    if (n.hasInput(5 + i)) {
      FailureOr<HeadTensor> whole = withPast(n, n.input(5 + i), parts[i]);
      if (failed(whole))
        return failure();
      parts[i] = *whole;
      past = n.input(5 + i).shape[2];
    }
    if (n.hasOutput(i))
      n.setOutput(i, headsOutside(n, parts[i]));
  }
  return attendMasked(n, parts, past, 4);
}

} // namespace

void registerContribAttentionOps(OpRegistry &registry) {
  registry.add("Attention", {1}, importAttention, "com.microsoft");
  registry.add("DecoderMaskedSelfAttention", {1}, importDecoderMaskedSelfAttention, "com.microsoft");
  registry.add("QAttention", {1}, importQAttention, "com.microsoft");
  registry.add("MultiHeadAttention", {1}, importMultiHeadAttention, "com.microsoft");
}

} // namespace attn::onnx
