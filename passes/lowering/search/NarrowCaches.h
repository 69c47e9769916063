#ifndef PASSES_LOWERING_SEARCH_NARROWCACHES_H
#define PASSES_LOWERING_SEARCH_NARROWCACHES_H

#include "passes/lowering/search/CacheValues.h"
#include "passes/lowering/search/SearchKernels.h"

namespace attn {

/// Stores caches of keys and values as attn.narrow_rows says, in rows of `element`, where attentions for which
/// `findObstacle` finds nothing alone read them; states of entries are of i8 alone; `target` makes the kernels that
/// move rows. The module's kCacheReportAttr and remarks of `category` say what became of each.
void narrowCaches(mlir::ModuleOp module, mlir::Type element, const SearchKernels &target,
                  AttentionObstacle findObstacle, llvm::StringRef category);

} // namespace attn

#endif // PASSES_LOWERING_SEARCH_NARROWCACHES_H
