#ifndef PASSES_GRAPH_MASKS_MASKMINING_H
#define PASSES_GRAPH_MASKS_MASKMINING_H

#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"
#include <string>

namespace attn {

/// A finite constant at or below this one, added or put in the place of a
/// score, is taken as a mask.
constexpr double kFiniteMask = -1e4;

/// One term of a mask that a score region is proved to apply. A term that takes
/// an operand gets `scale * capture + constant`; `capture` is a block argument
/// of the score region, or null where the operand is the constant.
struct ProvedTerm {
  mlir::Attribute term;
  mlir::BlockArgument capture;
  int64_t scale = 1, constant = 0;
  /// Of a capture of floats: how it is rounded first, and whether NaN shows all keys, or none.
  bool roundsUp = false, showsNaN = false;
};

/// One step on the way from the score to what the region yields that hides keys.
struct MaskStep {
  enum Kind {
    Select, ///< select(condition, score, fill), or the other way round
    Bias,   ///< score + select(condition, bias, fill), or the other way round
    Clamp,  ///< maximum(score, fill)
  };
  Kind kind;
  mlir::Operation *op;          ///< the select or the maximum
  double fill;                  ///< in the score that the region yields, which may be scaled after `op`
  bool hidesTrue = false;       ///< the condition of `op` is true where it hides
  mlir::FloatType rounded = {}; ///< the type, if any, to which the sum of score and bias is rounded
};

/// What the score region of `op` does to hide keys.
struct ProvedMask {
  llvm::SmallVector<ProvedTerm> terms;
  /// Some condition that hides is not proved to be one of these terms.
  bool hasOther = false;
  /// In the order in which the region applies them, the last one first.
  llvm::SmallVector<MaskStep> steps;
  /// Conditions that are terms (with 1: hidden where they hold).
  llvm::DenseSet<std::pair<mlir::Value, unsigned>> conditions;
};

/// Reads the selects and the sums at the end of the score region, those that
/// hide by -inf and, with `takesFinite`, those that do by a constant of at most
/// kFiniteMask.
ProvedMask proveMask(AttentionOp op, bool takesFinite = false);

/// Whether keys that the score region of `op` hides may become hidden by terms.
bool canTakeTerms(AttentionOp op);

/// Whether a softmax or the mask of an attention reads `value`, through
/// elementwise ops, views and slices.
bool reachesScores(mlir::Value value);

/// Drops the captures that no region of `op` reads any more, which only told hidden keys apart.
AttentionOp dropUnusedCaptures(mlir::RewriterBase &rewriter, AttentionOp op);

/// What hides keys, joined by '+': the terms of the op and those that the score
/// region is proved to apply (causal, window, prefix, lengths, blocks, dense),
/// `dense` for other values of captures that name the key position, `computed`
/// for other tests on positions; `none`.
std::string nameMask(AttentionOp op);

} // namespace attn

#endif // PASSES_GRAPH_MASKS_MASKMINING_H
