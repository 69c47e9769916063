#include "frontends/onnx/ops/Concatenate.h"
#include "frontends/onnx/ops/ContribAttention.h"
#include "frontends/onnx/ops/Families.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// DecoderMaskedMultiHeadAttention of ONNX Runtime (com.microsoft): a decoder's step, whose query is one token.

using namespace mlir;

namespace attn::onnx {
namespace {

/// Numbers of the inputs.
enum Input { Query, Key, Value_, Mask, ScoreBias, PastKey, PastValue, PastLength, BeamWidth, Indirection, Bias };

LogicalResult refuseDecodingForms(Node &n) {
  if (n.hasInput(Indirection))
    return n.unsupported() << "input 9 (cache_indirection): a search of attnc orders its cache itself";
  if (n.hasOutput(3) || n.intAttr("output_qk", 0))
    return n.unsupported() << "the output qk";
  return success();
}

/// Query, key and value [B, 1, C], from one packed tensor or three, each with its bias.
FailureOr<SmallVector<Tensor, 3>> projections(Node &n) {
  const Tensor &x = n.input(Query);
  if (x.rank() != 3)
    return n.error() << "expects a query of rank 3, has rank " << x.rank();
  SmallVector<Tensor, 3> parts;
  if (!n.hasInput(Key)) {
    Expr width = n.symbols().floorDiv(x.shape[2], 3);
    if (failed(n.requireEqual(width * Expr(3), x.shape[2], "thirds cover {0} of {1} elements")))
      return failure();
    for (int64_t i : {0, 1, 2})
      parts.push_back(n.slice(x, 2, width * Expr(i), width));
  } else {
    if (!n.hasInput(Value_))
      return n.error() << "has a key and no value";
    parts.append({x, n.input(Key), n.input(Value_)});
  }
  if (!n.hasInput(Bias))
    return parts;
  Expr begin(0);
  for (Tensor &part : parts) {
    if (part.rank() != 3) // a key of another sequence has its bias
      continue;
    FailureOr<Tensor> biased = addBias(n, Bias, part, begin);
    if (failed(biased))
      return failure();
    begin = begin + part.shape[2];
    part = *biased;
  }
  return parts;
}

/// The cache behind the step, and the keys that it has then: `past` is a buffer of which the first `length` rows count,
/// where that is given, else all of it is.
struct Cache {
  Tensor present;
  HeadTensor keys;
};

FailureOr<Cache> appended(Node &n, const Tensor &past, const HeadTensor &t, const std::optional<Expr> &length) {
  Tensor next = headsOutside(n, t);
  if (!length) {
    FailureOr<HeadTensor> keys = withPast(n, past, t);
    return failed(keys) ? FailureOr<Cache>() : Cache{keys->tensor, *keys};
  }
  if (failed(expectPast(n, past, next)))
    return failure();
  Expr all = *length + next.shape[2];
  if (failed(n.requireAtMost(0, *length, "past_sequence_length is {1}")) ||
      failed(n.requireAtMost(all, past.shape[2], "a past of {1} rows has no room for {0}")))
    return failure();
  OpBuilder &b = n.builder();
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)), strides(4, b.getIndexAttr(1)), sizes;
  offsets[2] = n.symbols().size(b, n.loc(), *length);
  for (const Expr &size : next.shape)
    sizes.push_back(n.symbols().size(b, n.loc(), size));
  Tensor present = past;
  present.elements.reset();
  present.weight.clear();
  present.value = tensor::InsertSliceOp::create(b, n.loc(), n.value(next), n.value(past), offsets, sizes, strides);
  return Cache{present, {n.slice(present, 2, 0, all), false}};
}

LogicalResult importDecoderMaskedAttention(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, Query)) || failed(refuseDecodingForms(n)))
    return failure();
  FailureOr<int64_t> heads = readHeadCount(n, "num_heads");
  FailureOr<SmallVector<Tensor, 3>> operands = failed(heads) ? FailureOr<SmallVector<Tensor, 3>>() : projections(n);
  if (failed(operands) ||
      failed(n.requireEqual((*operands)[0].shape[1], 1, "there are {0} queries, the operator takes {1}")))
    return failure();
  bool isCross = (*operands)[1].rank() == 4, isShared = n.intAttr("past_present_share_buffer", 0) != 0;
  if (!isCross && n.hasInput(PastKey) != n.hasInput(PastValue))
    return n.error() << "expects past_key and past_value together, has one";
  std::optional<Expr> length;
  if (isShared && !isCross) {
    if (!n.hasInput(PastLength))
      return n.error() << "expects past_sequence_length (input 7) beside past_present_share_buffer = 1";
    FailureOr<Expr> given = readNumber(n, PastLength, "past_sequence_length");
    if (failed(given))
      return failure();
    length = *given;
  }
  SmallVector<HeadTensor, 3> parts;
  for (auto [i, t] : llvm::enumerate(*operands)) {
    FailureOr<HeadTensor> part = t.rank() == 4 ? HeadTensor{t, false} : splitHeads(n, t, *heads);
    if (failed(part))
      return failure();
    if (i > 0 && !isCross && n.hasInput(PastKey)) {
      FailureOr<Cache> cache = appended(n, n.input(i == 1 ? PastKey : PastValue), *part, length);
      if (failed(cache))
        return failure();
      n.setOutput(i, cache->present);
      part = cache->keys;
    } else if (i > 0 && n.hasOutput(i)) {
      n.setOutput(i, headsOutside(n, *part));
    }
    parts.push_back(*part);
  }
  AttentionOperands o{parts[0], parts[1], parts[2], true, 1, std::nullopt, {}, std::nullopt, std::nullopt};
  if (failed(checkSizes(n, o)))
    return failure();
  FailureOr<double> scale = readScale(n, o);
  if (failed(scale))
    return failure();
  ScoreRule rule = ScoreRule::scaled(*scale);
  FailureOr<Tensor> y = failure();
  if (succeeded(addMasks(n, rule, Mask, ScoreBias, o.sizes)))
    y = attend(n, o, rule);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerContribDecodingOps(OpRegistry &registry) {
  registry.add("DecoderMaskedMultiHeadAttention", {1}, importDecoderMaskedAttention, "com.microsoft");
}

} // namespace attn::onnx
