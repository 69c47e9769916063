#ifndef PASSES_GRAPH_MASKS_SIMPLIFYREGIONS_H
#define PASSES_GRAPH_MASKS_SIMPLIFYREGIONS_H

#include "dialects/attn/AttnOps.h"

#include "mlir/IR/PatternMatch.h"

namespace attn {

/// Folds the regions of a fresh attention: roundings to a half type and back,
/// a NaN guard (which becomes masked_rows zero), a weight region that is the
/// identity.
void simplifyRegions(mlir::RewriterBase &rewriter, AttentionOp op);

} // namespace attn

#endif // PASSES_GRAPH_MASKS_SIMPLIFYREGIONS_H
