#include "dialects/attn/ScoreKinds.h"
#include "passes/graph/MappedTensor.h"
#include "passes/graph/Structured.h"
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
  // The last argument is the init's element.
  auto onInputs = [&](OpBuilder &b, Location loc, ValueRange args) { return body(b, loc, args.drop_back()); };
  return {elementwise(b, loc, pick(over), element, values, maps, onInputs), mapOf(b, over)};
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
  ScoreFormula formula = getScoreFormula(op.getKind());
  if (!formula.hasKey)
    return query;
  SmallVector<Operand> inputs{query, key};
  if (formula.hasAlignment)
    inputs.push_back(alignment);
  // The product has the dimensions that its operands name.
  SmallVector<unsigned> productDims;
  for (unsigned dim : dims)
    if (llvm::any_of(inputs, [&](const Operand &input) { return names(input.map, dim); }))
      productDims.push_back(dim);
  if (formula.isProduct)
    return contract(query, key, productDims);
  return reduce(productDims, compute, 0, inputs, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    auto input = [&](unsigned n) { return convertFloat(b, loc, args[n], compute); };
    ScoreElements at{input(0), input(1), formula.hasAlignment ? input(2) : Value()};
    auto [x, y] = makeScoreFactors(op.getKind(), b, loc, at, [&](Value sum) {
      return op.getActivation().empty() ? sum : cloneRegion(op.getActivation(), b, sum, {});
    });
    return arith::AddFOp::create(b, loc, args.back(), arith::MulFOp::create(b, loc, x, y));
  });
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
  return pointwise(dims, compute, {scores, *visible}, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value hidden = floatConstant(b, loc, compute, hiddenScore);
    return arith::SelectOp::create(b, loc, isSet(b, loc, args[1]), args[0], hidden);
  });
}

/// In rows that have no score, the hidden keys get theirs from the masked region.
Operand AttentionDecomposer::letHiddenKeysIn(const Operand &scores, const Operand &masked) {
  SmallVector<unsigned> rowDims(dims);
  rowDims.pop_back(); // j
  bool isSoftmax = op.getNormalizer() == Normalizer::softmax;
  Operand row =
      reduce(rowDims, compute, hiddenScore, masked, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
        if (isSoftmax)
          return arith::MaximumFOp::create(b, loc, args[0], args[1]);
        return arith::AddFOp::create(b, loc, args[0], args[1]);
      });
  SmallVector<Operand> inputs{scores};
  llvm::append_range(inputs, captures);
  inputs.append({masked, *visible, row});
  return pointwise(dims, compute, inputs, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value score = op.getMasked().empty() ? args[0] : cloneRegion(op.getMasked(), b, args.drop_back(3), dims);
    ValueRange rest = args.take_back(3);
    Value isEmpty =
        arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, rest[2], floatConstant(b, loc, compute, hiddenScore));
    Value isHidden = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, rest[1],
                                           arith::ConstantIntOp::create(b, loc, rest[1].getType(), 0));
    Value takes = arith::AndIOp::create(b, loc, isEmpty, isHidden);
    return arith::SelectOp::create(b, loc, takes, score, rest[0]);
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
      return pointwise(dims, to, x,
                       [&](OpBuilder &b, Location loc, ValueRange args) { return convertFloat(b, loc, args[0], to); });
    };
    Operand rounded = convert(scores, softmaxType);
    Value weights = emitSoftmax(b, loc, rounded.value, keyPosition, softmaxType, /*log=*/false, op.getMaskedRows());
    return convert({weights, mapOf(b, dims)}, compute);
  }
  SmallVector<unsigned> rowDims(dims);
  rowDims.pop_back();
  Operand sum = reduce(rowDims, compute, 0, scores, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    return arith::AddFOp::create(b, loc, args[0], args[1]);
  });
  Value count = getValueOrCreateConstantIndexOp(b, loc, sizes[Dim::J]);
  return pointwise(dims, compute, {scores, sum}, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value quotient = arith::DivFOp::create(b, loc, args[0], args[1]);
    if (op.getMaskedRows() != MaskedRows::zero && op.getMaskedRows() != MaskedRows::uniform)
      return quotient;
    Value nought = floatConstant(b, loc, compute, 0), weight = nought;
    if (op.getMaskedRows() == MaskedRows::uniform) {
      Value n = arith::SIToFPOp::create(b, loc, compute, arith::IndexCastOp::create(b, loc, b.getI64Type(), count));
      weight = arith::DivFOp::create(b, loc, floatConstant(b, loc, compute, 1), n);
    }
    Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[1], nought);
    return arith::SelectOp::create(b, loc, isEmpty, weight, quotient);
  });
}

Value AttentionDecomposer::takesPart(OpBuilder &b, Value isVisible, Value weight) {
  Value nought = floatConstant(b, loc, compute, 0);
  Value isWeight = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, weight, nought);
  return arith::OrIOp::create(b, loc, isSet(b, loc, isVisible), isWeight);
}

Operand AttentionDecomposer::weightRegion(const Operand &weights) {
  if (op.getWeight().empty())
    return weights;
  SmallVector<Operand> inputs{weights};
  llvm::append_range(inputs, captures);
  if (visible)
    inputs.push_back(*visible);
  return pointwise(dims, compute, inputs, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value weight = cloneRegion(op.getWeight(), b, args, dims);
    if (!visible)
      return weight;
    return arith::SelectOp::create(b, loc, takesPart(b, args.back(), args[0]), weight,
                                   floatConstant(b, loc, compute, 0));
  });
}

Operand AttentionDecomposer::weightedSum(const Operand &weights) {
  SmallVector<unsigned> resultDims;
  for (AffineExpr expr : op.getResultMap().getResults())
    if (std::optional<unsigned> dim = AttentionOp::getNamedDim(expr))
      resultDims.push_back(*dim);
  if (!visible)
    return contract(weights, value, resultDims);
  return reduce(resultDims, compute, 0, {weights, value, *visible},
                [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                  Value v = convertFloat(b, loc, args[1], compute);
                  Value term = arith::MulFOp::create(b, loc, args[0], v);
                  Value sum = arith::AddFOp::create(b, loc, args[3], term);
                  return arith::SelectOp::create(b, loc, takesPart(b, args[2], args[0]), sum, args[3]);
                });
}

//===----------------------------------------------------------------------===//
// Extra results
//===----------------------------------------------------------------------===//

Operand AttentionDecomposer::logSumExp(const Operand &scores) {
  SmallVector<unsigned> rowDims(dims);
  rowDims.pop_back();
  Operand max = reduce(rowDims, compute, -kInfinity, scores, [](OpBuilder &b, Location loc, ValueRange args) -> Value {
    return arith::MaximumFOp::create(b, loc, args[0], args[1]);
  });
  // An infinite maximum is not subtracted from itself.
  auto guarded = [&](OpBuilder &b, Location loc, Value max) -> Value {
    Value magnitude = math::AbsFOp::create(b, loc, max);
    Value isInfinite =
        arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, magnitude, floatConstant(b, loc, compute, kInfinity));
    return arith::SelectOp::create(b, loc, isInfinite, floatConstant(b, loc, compute, 0), max);
  };
  Operand sum = reduce(rowDims, compute, 0, {scores, max}, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value x = arith::SubFOp::create(b, loc, args[0], guarded(b, loc, args[1]));
    return arith::AddFOp::create(b, loc, args[2], math::ExpOp::create(b, loc, x));
  });
  return pointwise(rowDims, compute, {max, sum}, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value log = math::LogOp::create(b, loc, args[1]);
    return arith::AddFOp::create(b, loc, guarded(b, loc, args[0]), log);
  });
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
      Value hidden = op.getMasked().empty() ? args[0] : cloneRegion(op.getMasked(), b, args.drop_back(), dims);
      return arith::SelectOp::create(b, loc, isSet(b, loc, args.back()), args[0], hidden);
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
