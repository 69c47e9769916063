#ifndef PASSES_GRAPH_ATTENTIONMATCH_H
#define PASSES_GRAPH_ATTENTIONMATCH_H

#include "dialects/attn/AttnOps.h"
#include "passes/graph/Access.h"

#include "mlir/IR/PatternMatch.h"
#include <memory>
#include <string>

// One attention found around a softmax, by dataflow: from the contraction that
// sums the weights back to the softmax (weight region), from the softmax back
// to the contraction that makes the scores (score region), and from the two
// contractions' operands back to the tensors they are views of.

namespace attn {

/// Why a softmax is not part of an attention: the first constraint that failed
/// and the op at which it did.
struct Miss {
  std::string reason;
  mlir::Location location;
};

struct AttentionMatch {
  /// A tensor (or, for a capture, possibly a scalar that stands outside of the
  /// regions) and how a point of the loop nest reads it.
  struct Operand {
    mlir::Value value;
    Access access;
  };

  AtomSpace space;
  Operand query, key, value;
  llvm::SmallVector<Operand> captures;
  /// Regions not yet attached: their arguments are the f32 score (weight) and
  /// the captures of that region, as positions in `captures`.
  std::unique_ptr<mlir::Region> score, weight;
  llvm::SmallVector<unsigned> scoreCaptures, weightCaptures;
  /// attn.index ops in the regions whose dimension is not assigned yet, each
  /// with the atoms that it numbers.
  llvm::SmallVector<std::pair<IndexOp, Atoms>> indices;
  Atoms keys;   ///< summed by the softmax and by the second contraction
  Atoms widths; ///< summed by the first contraction
  /// What the attention replaces: the second contraction's result, followed
  /// through views, and how the loop nest writes it.
  Operand result;
  MaskedRows maskedRows = MaskedRows::nan;
};

/// The contractions to which weights made by `softmax` flow through elementwise
/// ops and views, each with the operand that is the weights.
llvm::SmallVector<mlir::OpOperand *> findWeightedSums(SoftmaxOp softmax);

/// Matches the attention of `softmax` whose weights are `weights`, an operand
/// of a contraction. Changes no IR.
mlir::FailureOr<AttentionMatch> matchAttention(SoftmaxOp softmax, mlir::OpOperand &weights, Miss &miss);

/// Replaces `match.result` by an attn.attention.
mlir::FailureOr<AttentionOp> buildAttention(mlir::RewriterBase &rewriter, AttentionMatch &match, Miss &miss);

/// Folds the regions of a fresh attention: roundings to a half type and back,
/// a NaN guard (which becomes masked_rows zero), a weight region that is the
/// identity.
void simplifyRegions(mlir::RewriterBase &rewriter, AttentionOp op);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTIONMATCH_H
