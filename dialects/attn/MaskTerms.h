#ifndef DIALECTS_ATTN_MASKTERMS_H
#define DIALECTS_ATTN_MASKTERMS_H

#include "mlir/IR/Attributes.h"
#include "llvm/ADT/SmallVector.h"
#include <utility>

// What the terms of an attention's mask say of positions. Whoever shows or hides keys asks here and names no term, so
// that a new term is told to one file.

namespace attn {

/// The last key that a query sees (or the first one): `offset`, plus the operand if the term takes one, plus the query,
/// rounded down to a multiple of `step`, if the bound moves with it.
struct KeyBound {
  bool isUpper = true;
  bool movesWithQuery = false;
  int64_t offset = 0;
  int64_t step = 1;
};

/// How a term joins the others.
enum class MaskJoin {
  always, ///< hides what it does not show
  near,   ///< hides it, but for the keys of a prefix
  prefix, ///< shows keys in spite of those
};

/// The bounds that `term` sets; none where it is a table, of blocks or of keys, or its sides are open.
llvm::SmallVector<KeyBound, 2> getKeyBounds(mlir::Attribute term);
bool isTable(mlir::Attribute term);
MaskJoin getMaskJoin(mlir::Attribute term);
/// What reports call it.
llvm::StringRef getMaskName(mlir::Attribute term);
/// Whether what `term` shows depends on the place of the query beside the others.
bool dependsOnQuery(mlir::Attribute term);
/// Of a term that moves with the query and takes no operand: the one whose operand, plus the number, says at which
/// place queries begin.
std::pair<mlir::Attribute, int64_t> countFromOperand(mlir::Attribute term);

} // namespace attn

#endif // DIALECTS_ATTN_MASKTERMS_H
