#ifndef PASSES_GRAPH_MASKMINING_H
#define PASSES_GRAPH_MASKMINING_H

#include "dialects/attn/AttnOps.h"

#include "llvm/ADT/SmallVector.h"

namespace attn {

/// One term of a mask that a score region is proved to apply by -inf: every key
/// that the term hides has a score of -inf. `capture` is the block argument of
/// the score region from which a dynamic term gets its operand, as
/// `scale * capture + constant`; null where the term takes none.
struct ProvedTerm {
  mlir::Attribute term;
  mlir::BlockArgument capture;
  int64_t scale = 1, constant = 0;
};

/// What the score region of `op` does to hide keys.
struct ProvedMask {
  llvm::SmallVector<ProvedTerm> terms;
  /// Some condition for -inf is not proved to be one of these terms.
  bool hasOther = false;
};

/// Reads the selects and the sums at the end of the score region.
ProvedMask proveMask(AttentionOp op);

} // namespace attn

#endif // PASSES_GRAPH_MASKMINING_H
