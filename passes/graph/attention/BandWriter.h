#ifndef PASSES_GRAPH_ATTENTION_BANDWRITER_H
#define PASSES_GRAPH_ATTENTION_BANDWRITER_H

#include "passes/graph/attention/BandMatch.h"

#include "mlir/IR/PatternMatch.h"

namespace attn {

/// Writes a band as an attention over all keys that hides those outside of it; keys in front lie before the others. The
/// weighted sum; null where something is read that has no loop.
mlir::Value writeBand(mlir::RewriterBase &b, const Band &band);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_BANDWRITER_H
