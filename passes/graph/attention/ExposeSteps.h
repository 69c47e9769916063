#ifndef PASSES_GRAPH_ATTENTION_EXPOSESTEPS_H
#define PASSES_GRAPH_ATTENTION_EXPOSESTEPS_H

#include "dialects/attn/SearchOp.h"

namespace attn {

/// The trace of the search in whose loop `op` stands, null where it stands elsewhere.
TraceOp traceAround(mlir::Operation *op);

/// What the tokens of a search attended to. `shown` is a value of a step, with the rows in dimension 0 and queries in
/// `queryAxis`, behind which no more than one dimension stands; its size may differ from step to step. The loop keeps
/// the last query of each step, and behind the loop stands, for each token, that of the row in which it was chosen:
/// `shown` with the dimensions of `trace.rows` but for the last one in the place of the rows, and tokens in that of
/// queries. 0 behind a step's last key, where there is no token, and where it was chosen before the loop.
///
/// A run ends with a message that names `output` where a step shows other rows than those of its tokens.
mlir::Value exposeSteps(TraceOp trace, mlir::Value shown, unsigned queryAxis, llvm::StringRef output);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_EXPOSESTEPS_H
