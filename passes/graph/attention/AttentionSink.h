#ifndef PASSES_GRAPH_ATTENTION_ATTENTIONSINK_H
#define PASSES_GRAPH_ATTENTION_ATTENTIONSINK_H

#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/Rows.h"

// A sink: one more score of each row, whose key has no value.

namespace attn {

/// `softmax` of scores and one column that is cut off afterwards. The row's maximum may have been subtracted from the
/// scores alone.
std::optional<Normalization> findSink(SoftmaxOp softmax);

/// `result` = exp(x - m) / (exp(c - m) + sum(exp(x - m))): c a number or a tensor, m the maximum of the row of x, or of
/// it and c, or, where c is a number that is not far below, of it and a finite one.
std::optional<Normalization> findShiftedSink(RowReader &rows, mlir::Value result, const Quotient &quotient);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_ATTENTIONSINK_H
