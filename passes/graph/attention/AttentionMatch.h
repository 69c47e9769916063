#ifndef PASSES_GRAPH_ATTENTION_ATTENTIONMATCH_H
#define PASSES_GRAPH_ATTENTION_ATTENTIONMATCH_H

#include "dialects/attn/ScoreKinds.h"
#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/Access.h"

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

  /// Gives failure.
  mlir::LogicalResult set(const llvm::Twine &why, mlir::Location at) {
    reason = why.str();
    location = at;
    return mlir::failure();
  }
};

struct AttentionMatch {
  /// A tensor (or, for a capture, possibly a scalar that stands outside of the
  /// regions) and how a point of the loop nest reads it.
  struct Operand {
    mlir::Value value;
    Access access;
    bool isNegated = false; ///< of a term of a sum
  };

  ScoreKind kind = ScoreKind::dot;
  /// Captures stay the tensors that they are in the graph: neither followed
  /// through views nor computed in the region.
  bool wholeCaptures = false;
  /// Value, key and query of a product are not followed through views either.
  bool wholeOperands = false;
  /// Nor are given scores.
  bool wholeScores = false;
  /// Given scores may be, and are, transposed.
  bool transposesScores = false;
  /// The query may lack the dimension i, which only captures then have.
  bool repeatsQuery = false;
  AtomSpace space;
  /// What regions compute in.
  mlir::FloatType computeType;
  /// `query` holds the scores when they are given, and there is no key then.
  Operand query, key, value;
  /// Of a score of a sum of query and key, which are sums of these; `alignment`
  /// is null where all elements count alike, or where the sum itself is the score.
  llvm::SmallVector<Operand> queryTerms, keyTerms;
  Operand alignment;
  llvm::SmallVector<Operand> captures;
  /// Regions not yet attached: their arguments are the score (weight) and the
  /// captures of that region, as positions in `captures`.
  std::unique_ptr<mlir::Region> score, weight, activation;
  llvm::SmallVector<unsigned> scoreCaptures, weightCaptures;
  /// attn.index ops in the regions whose dimension is not assigned yet, each
  /// with the atoms that it numbers.
  llvm::SmallVector<std::pair<IndexOp, Atoms>> indices;
  Atoms keys;   ///< summed by the softmax and by the second contraction
  Atoms widths; ///< summed by the first contraction
  /// What the attention replaces: the second contraction's result, followed
  /// through views, and how the loop nest writes it.
  Operand result;
  /// What the normaliser gives, and its uses that the attention's weights, as an
  /// extra result, take over.
  Operand weights;
  llvm::SmallVector<mlir::OpOperand *> weightUses;
  MaskedRows maskedRows = MaskedRows::nan;
  Normalizer normalizer = Normalizer::softmax;
  /// One more score of each row, without a value; a null value where it is constant or there is none.
  Operand sink;
  std::optional<double> sinkScore;
  bool isSinkShifted = false; ///< it stands above the maximum of the other scores of its row
  bool isSinkInMaximum = false;
  /// What the result of each row is divided by: a function of the sum of its weights (of what they are multiples of
  /// exp(score - max(score)), with `isShifted`).
  std::unique_ptr<mlir::Region> divisor;
  bool isShifted = false;

  bool isKey(unsigned atom) const { return llvm::is_contained(keys, atom); }
  /// An atom that numbers queries: neither key, nor one that a value has.
  bool isRow(unsigned atom) const { return !isKey(atom) && !names(value.access, atom); }
  /// `read` and what it is compared with, in the atoms that there are now.
  void resolve(Access &read) {
    space.resolve(read);
    space.resolve(keys);
    space.resolve(widths);
    space.resolve(value.access);
  }
};

/// What a match follows through views. Where less is followed, more is copied.
///
///                captures   key and query   value       given scores   result
///     everything    x             x           x              x           x
///     operands                    x           x              x           x
///     values                      x       some views                     x
///     result                                                 x           x
///     captures      x                                        x
///     nothing                                                x
///     transposed                                 transposed, where that brings batch dimensions side by side
enum class Follow { everything, operands, values, result, captures, nothing, transposed };

/// What could be the score of a softmax.
struct ScoreSource {
  ScoreKind kind;
  mlir::linalg::LinalgOp product; ///< the contraction, or the sum, over the width; null: a sum of two terms, or given
  bool isRepeated = false;        ///< its product lacks the query's dimension, along which only a mask differs
};

/// The contractions to which `weights` flow through elementwise
/// ops and views, each with the operand that is the weights.
llvm::SmallVector<mlir::OpOperand *> findWeightedSums(mlir::Value weights);

/// Of how many views, one of the other, the values that `weights` weigh are made.
unsigned countValueViews(mlir::OpOperand &weights);

/// Where the scores of `softmax` may come from, the best first; `given` is last.
llvm::SmallVector<ScoreSource> findScoreSources(const Normalization &softmax);

/// Matches the attention of `softmax` whose weights are `weights`, an operand
/// of a contraction, and whose scores come from `source`. Changes no IR. The value is followed through `valueViews` at
/// most.
mlir::FailureOr<AttentionMatch> matchAttention(const Normalization &softmax, mlir::OpOperand &weights,
                                               const ScoreSource &source, Follow follow, Miss &miss,
                                               unsigned valueViews = ~0u);

/// The part of it that is before the softmax, whose input is read at `access`;
/// `match` holds what the weighted sum gave.
mlir::LogicalResult matchScores(AttentionMatch &match, const Normalization &softmax, const Access &access,
                                const ScoreSource &source, Miss &miss);

/// Gives each loop that `operand` names and that has no atoms yet a new one;
/// returns how the operand is read.
std::optional<Access> nameLoops(AtomSpace &space, mlir::Value operand, mlir::AffineMap map,
                                llvm::SmallVector<Atoms> &loops, llvm::SmallVector<bool> &known);

/// Whether `value`, in a region, is `weight` times what does not depend on it.
bool isMultipleOf(mlir::Value value, mlir::Value weight);

/// Replaces `match.result` by an attn.attention.
mlir::FailureOr<AttentionOp> buildAttention(mlir::RewriterBase &rewriter, AttentionMatch &match, Miss &miss);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_ATTENTIONMATCH_H
