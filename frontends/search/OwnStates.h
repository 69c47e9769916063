#ifndef FRONTENDS_SEARCH_OWNSTATES_H
#define FRONTENDS_SEARCH_OWNSTATES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/ArrayRef.h"
#include <string>
#include <utility>

namespace attn {

/// Lets the library keep, from run to run, the inputs of each entry that are
/// outputs of the run before: the pairs that `pairs` names, and those found by
/// their names. Errors go to the context's diagnostic handler: a pair that no
/// entry has, no pairs at all.
mlir::LogicalResult ownStates(mlir::ModuleOp module, llvm::ArrayRef<std::pair<std::string, std::string>> pairs);

} // namespace attn

#endif // FRONTENDS_SEARCH_OWNSTATES_H
