#ifndef PASSES_GRAPH_MASKS_EDGELISTS_H
#define PASSES_GRAPH_MASKS_EDGELISTS_H

#include "passes/graph/element/EdgeTable.h"

namespace attn {

/// Adjacency lists, tensor<queries x width x i32>, of the graph whose edges `table` holds: dimension `queries` of the
/// table is that of the lists, the other one that of the keys. Each list ascends, without repetitions, and -1 fills it
/// up to the longest one. It takes time and memory for the edges, the nodes and the lists, not for the table.
mlir::Value listEdges(const EdgeTable &table, unsigned queries, mlir::OpBuilder &b);

} // namespace attn

#endif // PASSES_GRAPH_MASKS_EDGELISTS_H
