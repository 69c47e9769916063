#ifndef FRONTENDS_SEARCH_STATEBRANCHES_H
#define FRONTENDS_SEARCH_STATEBRANCHES_H

#include "frontends/search/StepRoles.h"

namespace attn {

/// Fails, with a diagnostic at `step`, where an input that is one value for the whole search chooses between branches
/// of which only one reads a state, as `use_cache_branch` of a merged decoder does: with one value each step forgets
/// what was before, with the other the first step reads a state that is none.
mlir::LogicalResult checkStateBranches(mlir::func::FuncOp step, const StepRoles &roles, const SearchOptions &options);

} // namespace attn

#endif // FRONTENDS_SEARCH_STATEBRANCHES_H
