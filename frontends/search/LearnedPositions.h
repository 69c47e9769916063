#ifndef FRONTENDS_SEARCH_LEARNEDPOSITIONS_H
#define FRONTENDS_SEARCH_LEARNEDPOSITIONS_H

#include "frontends/search/BuildSearch.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Where the parts of a search look a position up in a table of as many rows as the model has positions, an index that
/// is out of range is called what it is: more tokens than the model has positions for. Warns where the greatest length
/// lets each run get there.
void nameLearnedPositions(llvm::ArrayRef<mlir::func::FuncOp> parts, const SearchOptions &options);

} // namespace attn

#endif // FRONTENDS_SEARCH_LEARNEDPOSITIONS_H
