#ifndef FRONTENDS_SEARCH_OWNSTATES_H
#define FRONTENDS_SEARCH_OWNSTATES_H

#include "frontends/search/StatePairs.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/ArrayRef.h"

namespace attn {

/// Lets the library keep, from run to run, the inputs of each entry that are
/// outputs of the run before: `pairs` and no others, or if there are none, those
/// found by their names. Errors go to the context's diagnostic handler: a pair
/// that no entry has, no pairs at all.
mlir::LogicalResult ownStates(mlir::ModuleOp module, llvm::ArrayRef<StatePair> pairs);

} // namespace attn

#endif // FRONTENDS_SEARCH_OWNSTATES_H
