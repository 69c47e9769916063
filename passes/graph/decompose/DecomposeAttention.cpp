#include "dialects/attn/ScoreKinds.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/MappedTensor.h"
#include "passes/graph/decompose/AttentionDecomposer.h"
#include "passes/graph/decompose/Decompose.h"
#include "passes/graph/decompose/DecomposeMask.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {
namespace {

using Operand = MappedTensor;
using Dim = AttentionOp::Dim;

bool names(AffineMap map, unsigned dim) { return AttentionOp::names(map, dim); }

} // namespace

AffineMap mapOf(Builder &b, ArrayRef<unsigned> dims) {
  SmallVector<AffineExpr> exprs;
  for (unsigned dim : dims)
    exprs.push_back(b.getAffineDimExpr(dim));
  return AffineMap::get(AttentionOp::kDims, 0, exprs, b.getContext());
}

AffineMap AttentionDecomposer::renumber(AffineMap map, ArrayRef<unsigned> loops) const {
  SmallVector<AffineExpr> exprs;
  for (AffineExpr expr : map.getResults()) {
    auto at = llvm::find(loops, *AttentionOp::getNamedDim(expr));
    exprs.push_back(b.getAffineDimExpr(at - loops.begin()));
  }
  return AffineMap::get(loops.size(), 0, exprs, b.getContext());
}

Operand AttentionDecomposer::pointwise(ArrayRef<unsigned> over, Type element, ArrayRef<Operand> inputs,
                                       ScalarBody body) {
  SmallVector<Value> values;
  SmallVector<AffineMap> maps;
  for (const Operand &input : inputs) {
    values.push_back(input.value);
    maps.push_back(renumber(input.map, over));
  }
  return {elementwise(b, loc, pick(over), element, values, maps, body), mapOf(b, over)};
}

Operand AttentionDecomposer::reduce(ArrayRef<unsigned> kept, Type element, double init, ArrayRef<Operand> inputs,
                                    ScalarBody body) {
  SmallVector<unsigned> loops;
  for (unsigned dim = 0; dim != AttentionOp::kDims; ++dim)
    if (llvm::is_contained(kept, dim) ||
        llvm::any_of(inputs, [&](const Operand &input) { return names(input.map, dim); }))
      loops.push_back(dim);
  SmallVector<Value> values;
  SmallVector<AffineMap> maps;
  for (const Operand &input : inputs) {
    values.push_back(input.value);
    maps.push_back(renumber(input.map, loops));
  }
  Value start = filledTensor(b, loc, pick(kept), element, init);
  return {reduction(b, loc, values, maps, start, renumber(mapOf(b, kept), loops), body), mapOf(b, kept)};
}

Operand AttentionDecomposer::maximumOf(ArrayRef<unsigned> kept, const Operand &input) {
  return reduce(kept, compute, -kInfinity, input, formula([](ArrayRef<Num> x) { return maximum(x[0], x[1]); }));
}

/// sum over the dimensions not in `resultDims` of lhs * rhs.
Operand AttentionDecomposer::contract(const Operand &lhs, const Operand &rhs, ArrayRef<unsigned> resultDims) {
  // Loops that nobody names are not allowed: number those that are.
  SmallVector<unsigned> loops;
  for (unsigned dim = 0; dim != AttentionOp::kDims; ++dim)
    if (names(lhs.map, dim) || names(rhs.map, dim))
      loops.push_back(dim);
  Value product =
      contraction(b, loc, pick(resultDims), compute, lhs.value, rhs.value,
                  {renumber(lhs.map, loops), renumber(rhs.map, loops), renumber(mapOf(b, resultDims), loops)});
  return {product, mapOf(b, resultDims)};
}

/// `body` on `args` (no captures if it takes none), inside loops over `loops`.
Value AttentionDecomposer::cloneRegion(Region &body, OpBuilder &b, ValueRange args, ArrayRef<unsigned> loops) {
  IRMapping mapping;
  mapping.map(body.getArguments(), args.take_front(body.getNumArguments()));
  for (Operation &inner : body.front().without_terminator()) {
    auto index = dyn_cast<IndexOp>(inner);
    if (!index) {
      b.clone(inner, mapping);
      continue;
    }
    auto at = llvm::find(loops, unsigned(index.getDim()));
    Value value = at == loops.end() ? Value(arith::ConstantIndexOp::create(b, loc, 0))
                                    : Value(linalg::IndexOp::create(b, loc, at - loops.begin()));
    mapping.map(index.getResult(), value);
  }
  return mapping.lookupOrDefault(cast<YieldOp>(body.front().back()).getValue());
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

Operand AttentionDecomposer::rawScores() {
  ScoreFormula score = getScoreFormula(op.getKind());
  if (!score.hasKey)
    return query;
  SmallVector<Operand> inputs{query, key};
  if (score.hasAlignment)
    inputs.push_back(alignment);
  // The product has the dimensions that its operands name.
  SmallVector<unsigned> productDims;
  for (unsigned dim : dims)
    if (llvm::any_of(inputs, [&](const Operand &input) { return names(input.map, dim); }))
      productDims.push_back(dim);
  if (score.isProduct)
    return contract(query, key, productDims);
  return reduce(productDims, compute, 0, inputs, formula([&](Code &k, ArrayRef<Num> args) {
                  auto input = [&](unsigned n) { return convert(args[n], compute); };
                  ScoreElements at{input(0), input(1), score.hasAlignment ? input(2) : Value()};
                  auto [x, y] = makeScoreFactors(op.getKind(), k.b, loc, at, [&](Value sum) {
                    return op.getActivation().empty() ? sum : cloneRegion(op.getActivation(), k.b, sum, {});
                  });
                  return args.back() + k.asNum(x) * k.asNum(y);
                }));
}

Operand AttentionDecomposer::regionScores(const Operand &raw) {
  SmallVector<Operand> inputs{raw};
  llvm::append_range(inputs, captures);
  return pointwise(dims, compute, inputs, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    SmallVector<Value> values(args);
    values.front() = convertFloat(b, loc, values.front(), compute);
    return cloneRegion(op.getScore(), b, values, dims);
  });
}

Operand AttentionDecomposer::maskScores(const Operand &scores) {
  if (!visible)
    return scores;
  return pointwise(dims, compute, {scores, *visible}, formula([&](Code &k, ArrayRef<Num> x) {
                     return select(x[1] != 0, x[0], k.number(compute, hiddenScore));
                   }));
}

/// In rows that have no score, the hidden keys get theirs from the masked region.
Operand AttentionDecomposer::letHiddenKeysIn(const Operand &scores, const Operand &masked) {
  ArrayRef<unsigned> rowDims = ArrayRef(dims).drop_back(); // j
  bool isSoftmax = op.getNormalizer() == Normalizer::softmax;
  Operand row = reduce(rowDims, compute, hiddenScore, masked,
                       formula([&](ArrayRef<Num> x) { return isSoftmax ? maximum(x[0], x[1]) : x[0] + x[1]; }));
  SmallVector<Operand> inputs{scores};
  llvm::append_range(inputs, captures);
  inputs.append({masked, *visible, row});
  return pointwise(dims, compute, inputs, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Code k(b, loc);
    ValueRange rest = args.take_back(3);
    Num score = k.asNum(args[0]), masked = k.asNum(rest[0]), isVisible = k.asNum(rest[1]), row = k.asNum(rest[2]);
    if (!op.getMasked().empty())
      score = k.asNum(cloneRegion(op.getMasked(), b, args.drop_back(3), dims));
    return select((row == hiddenScore) & (isVisible == 0), score, masked);
  });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Operand AttentionDecomposer::normalize(const Operand &scores) {
  if (op.getNormalizer() == Normalizer::none)
    return scores;
  int64_t keyPosition = dims.size() - 1;
  if (op.getNormalizer() == Normalizer::softmax) {
    Type softmaxType = op.getSoftmaxType().value_or(compute);
    auto convert = [&](Operand x, Type to) {
      if (getElementTypeOrSelf(x.value) == to)
        return x;
      return pointwise(dims, to, x, formula([&](ArrayRef<Num> x) { return attn::convert(x[0], to); }));
    };
    Operand rounded = convert(scores, softmaxType);
    Value weights = emitSoftmax(b, loc, rounded.value, keyPosition, softmaxType, /*log=*/false, op.getMaskedRows());
    return convert({weights, mapOf(b, dims)}, compute);
  }
  ArrayRef<unsigned> rowDims = ArrayRef(dims).drop_back();
  Operand sum = reduce(rowDims, compute, 0, scores, formula([](ArrayRef<Num> x) { return x[0] + x[1]; }));
  Value count = getValueOrCreateConstantIndexOp(b, loc, sizes[Dim::J]);
  return pointwise(dims, compute, {scores, sum}, formula([&](Code &k, ArrayRef<Num> x) {
                     Num quotient = x[0] / x[1];
                     if (op.getMaskedRows() != MaskedRows::zero && op.getMaskedRows() != MaskedRows::uniform)
                       return quotient;
                     Num weight = k.number(compute, 0.0);
                     if (op.getMaskedRows() == MaskedRows::uniform)
                       weight = 1.0 / convert(toNum(k.asIndex(count), k.b.getI64Type()), compute);
                     return select(x[1] == 0.0, weight, quotient);
                   }));
}

Mask AttentionDecomposer::takesPart(const Num &isVisible, const Num &weight) {
  return (isVisible != 0) | (weight != 0.0);
}

Operand AttentionDecomposer::weightRegion(const Operand &weights) {
  if (op.getWeight().empty())
    return weights;
  SmallVector<Operand> inputs{weights};
  llvm::append_range(inputs, captures);
  if (visible)
    inputs.push_back(*visible);
  return pointwise(dims, compute, inputs, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Code k(b, loc);
    Num weight = k.asNum(cloneRegion(op.getWeight(), b, args, dims));
    if (!visible)
      return weight;
    return select(takesPart(k.asNum(args.back()), k.asNum(args[0])), weight, k.number(compute, 0.0));
  });
}

Operand AttentionDecomposer::weightedSum(const Operand &weights) {
  SmallVector<unsigned> resultDims;
  for (AffineExpr expr : op.getResultMap().getResults())
    if (std::optional<unsigned> dim = AttentionOp::getNamedDim(expr))
      resultDims.push_back(*dim);
  if (!visible)
    return contract(weights, value, resultDims);
  return reduce(resultDims, compute, 0, {weights, value, *visible}, formula([&](ArrayRef<Num> x) {
                  Num sum = x[3] + x[0] * convert(x[1], compute);
                  return select(takesPart(x[2], x[0]), sum, x[3]);
                }));
}

//===----------------------------------------------------------------------===//
// Extra results
//===----------------------------------------------------------------------===//

Operand AttentionDecomposer::logSumExp(const Operand &scores) {
  ArrayRef<unsigned> rowDims = ArrayRef(dims).drop_back();
  Operand max = maximumOf(rowDims, scores);
  // An infinite maximum is not subtracted from itself.
  auto guarded = [](const Num &max) { return select(abs(max) == kInfinity, constantLike(max, 0.0), max); };
  Operand sum = reduce(rowDims, compute, 0, {scores, max},
                       formula([&](ArrayRef<Num> x) { return x[2] + exp(x[0] - guarded(x[1])); }));
  return pointwise(rowDims, compute, {max, sum}, formula([&](ArrayRef<Num> x) {
                     Num log = attn::log(x[1]);
                     return guarded(x[0]) + log;
                   }));
}

SmallVector<Value> AttentionDecomposer::decompose() {
  query = simplify(op.getQuery(), op.getQueryMap());
  if (op.getKey())
    key = simplify(op.getKey(), op.getKeyMap());
  value = simplify(op.getValue(), op.getValueMap());
  if (op.getAlignment())
    alignment = simplify(op.getAlignment(), op.getAlignmentMap());
  for (auto [n, capture] : llvm::enumerate(op.getCaptures()))
    captures.push_back(simplify(capture, op.getCaptureMap(n)));
  if (!op.getMask().empty())
    visible = emitVisibility(b, loc, op, sizes);
  hiddenScore = op.getNormalizer() == Normalizer::softmax ? -kInfinity : 0;

  Operand raw = rawScores(), scores = regionScores(raw), masked = maskScores(scores), taken = masked;
  Operand maskedResult = masked;
  if (visible && op.getMaskedRows() == MaskedRows::finite) {
    taken = letHiddenKeysIn(scores, masked);
    // The graph's own masked scores have the additive constants in every row.
    SmallVector<Operand> inputs{scores};
    llvm::append_range(inputs, captures);
    inputs.push_back(*visible);
    maskedResult = pointwise(dims, compute, inputs, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
      Code k(b, loc);
      Num score = k.asNum(args[0]), hidden = score;
      if (!op.getMasked().empty())
        hidden = k.asNum(cloneRegion(op.getMasked(), b, args.drop_back(), dims));
      return select(k.asNum(args.back()) != 0, score, hidden);
    });
  }
  Operand weights = normalize(taken), final = weightRegion(weights);

  SmallVector<Value> results{finish(weightedSum(final), op.getResult().getType(), op.getResultMap())};
  for (unsigned n = 0; n != op.getExtraResults().size(); ++n) {
    const Operand sources[] = {taken, raw, scores, maskedResult, weights, final};
    ExtraSource source = op.getExtra(n).getSource();
    Operand from = sources[unsigned(source)];
    results.push_back(finishExtra(n, source == ExtraSource::lse ? logSumExp(from) : from));
  }
  return results;
}
namespace {

struct DecomposeAttention : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &b) const override {
    b.replaceOp(op, AttentionDecomposer(op, b).decompose());
    return success();
  }
};

} // namespace

void populateDecomposeAttentionPatterns(RewritePatternSet &patterns) {
  patterns.add<DecomposeAttention>(patterns.getContext());
}

} // namespace attn
