#ifndef PASSES_GRAPH_ATTENTION_NORMALIZATION_H
#define PASSES_GRAPH_ATTENTION_NORMALIZATION_H

#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"
#include <optional>
#include <string>

namespace attn {

/// On a softmax: what of its scores was taken for granted where ops of the graph became it.
inline constexpr llvm::StringLiteral kAssumesAttr = "attn.assumes";

/// What makes weights of scores: a softmax, the quotient of values that are not
/// negative and their sum, or nothing (a gate: `input` is `result`).
struct Normalization {
  /*implicit*/ Normalization(SoftmaxOp softmax)
      : input(softmax.getInput()), result(softmax.getResult()), dim(softmax.getDim()), location(softmax.getLoc()),
        isLog(softmax.getLog()) {
    if (auto assumes = softmax->getAttrOfType<mlir::StringAttr>(kAssumesAttr))
      assumption = assumes.str();
  }
  Normalization(Normalizer kind, mlir::Value input, mlir::Value result, int64_t dim)
      : kind(kind), input(input), result(result), dim(dim), location(result.getLoc()) {}

  Normalizer kind = Normalizer::softmax;
  mlir::Value input, result;
  int64_t dim; ///< of both; of no meaning for a gate
  mlir::Location location;
  bool isLog = false;
  /// One more score of each row whose key has no value (an attention sink): a tensor, each dimension of which stands at
  /// one of the result or (-1) has size 1, or a constant.
  mlir::Value sink;
  llvm::SmallVector<int64_t> sinkDims;
  std::optional<double> sinkScore;
  /// The sink is a score above the row's maximum, which was subtracted from the others before it came beside them.
  bool isSinkShifted = false;
  /// A row without a score above -inf is NaN in spite of the sink: its maximum, which is subtracted, is -inf.
  bool isSinkLost = false;
  /// A sink of infinity makes its row NaN: it is subtracted from itself.
  bool isSinkInMaximum = false;
  /// Weights `result` = x / f(sum(x)), f more than the sum itself: x, what f gives, and the sum. The normaliser then
  /// makes `base`, of which x is a multiple (x itself where nothing normalises), up to a factor of the row where `base`
  /// is exp(input - max(input)).
  mlir::Value terms, divisor, total, base;
  bool isShifted = false;
  /// Why it is no normaliser of an attention, though it looks like one.
  std::string flaw;
  /// What was taken for granted where the graph's ops became this softmax; "" for nothing.
  std::string assumption;
};

/// `op` as x / sum(x) with x >= 0, exp(x) / (c + sum(exp(x))), exp(x - m) / (exp(c - m) + sum(exp(x - m))) with m the
/// maximum of the row, of it and c, or of it and a number, or x / f(sum(x)). A flaw is set where the denominator holds
/// the sum of x and something else.
std::optional<Normalization> findSumNormalization(mlir::linalg::LinalgOp op);

/// Weights of `sum`, a contraction, that are a function >= 0 of a contraction of
/// two tensors that a run computes, as in sigmoid attention.
mlir::OpOperand *findGate(mlir::linalg::LinalgOp sum);

/// Whether `value` is not negative, but for what it is multiplied by (in up to `depth` products), as a mask.
bool isMultipleOfNonNegative(mlir::Value value, unsigned depth = 4);

/// `op` = (x v) / f(sum(x)), x v a contraction over the dimension of the sum: the division comes first then.
/// exp(s) v / sum(exp(s)) becomes a softmax and a weighted sum so.
mlir::LogicalResult divideFirst(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp op);

/// `op` = w m / sum(w m), w a softmax and m zeros and ones, and the select of 0 for rows whose sum is 0 behind it: a
/// softmax of the scores of which m hides some. Assumes that no hidden score is so much above the others of its row
/// that their weights vanish, which the softmax notes.
mlir::LogicalResult raiseRenormalized(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp op);

/// Whether the graph does something about rows whose `exponentials` are all 0 or overflow: their sum or the quotient is
/// compared, or what becomes of them is asked whether it is a number.
bool hasGuard(mlir::Value exponentials);

/// Whether `value` is the same in every run, but for its sizes.
bool isStatic(mlir::Value value);

/// Whether elementwise ops and views make `value` of a product of two tensors that a run computes, as scores are.
bool isOfProduct(mlir::Value value);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_NORMALIZATION_H
