#ifndef PASSES_GRAPH_DECOMPOSE_DECOMPOSE_H
#define PASSES_GRAPH_DECOMPOSE_DECOMPOSE_H

#include "builders/Operators.h"
#include "dialects/attn/AttnOps.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/PatternMatch.h"
#include <limits>

namespace attn {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// softmax over `dim` of `input`, taken and given in the accumulator's
/// precision inside; a row of -inf only becomes what `maskedRows` says (as nan
/// for finite: its rows hold what takes part already).
mlir::Value emitSoftmax(mlir::OpBuilder &b, mlir::Location loc, mlir::Value input, int64_t dim,
                        mlir::Type resultElement, bool log, MaskedRows maskedRows);

/// Whether `x` comes before `y` in descending order, NaN first.
Mask exceeds(const Num &x, const Num &y);

/// Replaces `op` by an attention that gives whole what `op` gives reduced, and
/// linalg that reduces it. Returns the attention that stands there then: `op`
/// itself where nothing is reduced.
AttentionOp reduceExtraResults(AttentionOp op, mlir::RewriterBase &rewriter);

/// attn.attention -> linalg on tensors.
void populateDecomposeAttentionPatterns(mlir::RewritePatternSet &patterns);

/// attn.rnn, attn.gru and attn.lstm -> linalg in an scf.for over the steps.
void populateDecomposeRecurrentPatterns(mlir::RewritePatternSet &patterns);

/// attn.integer_product -> one linalg.generic that sums products of the differences.
void populateDecomposeProductPatterns(mlir::RewritePatternSet &patterns);

/// attn.dequantize_blocks -> an elementwise op, attn.block_product -> it and a contraction.
void populateDecomposeBlockPatterns(mlir::RewritePatternSet &patterns);

/// attn.top_k -> linalg that compares each element with each other of its row.
void populateDecomposeTopKPatterns(mlir::RewritePatternSet &patterns);

/// attn.segment_attention -> loops over the lists, and a softmax for each.
void populateDecomposeSegmentPatterns(mlir::RewritePatternSet &patterns);

} // namespace attn

#endif // PASSES_GRAPH_DECOMPOSE_DECOMPOSE_H
