#ifndef PASSES_GRAPH_MASKS_EDGELISTS_H
#define PASSES_GRAPH_MASKS_EDGELISTS_H

#include "passes/graph/element/EdgeTable.h"

namespace attn {

/// Edges in the order of their nodes: those of node n stand in `order` from ends[n - 1] (0 for the first) to ends[n].
/// Both are tensors of i64.
struct SortedEdges {
  mlir::Value order, ends;
};

/// `edges` edges by the node of each, below `nodes`; of one node they keep their order, and none is left out. It takes
/// time and memory for the edges and the nodes. `nodeOf` writes the node of an edge, where `b` stands.
SortedEdges sortEdges(mlir::OpBuilder &b, mlir::Location loc, mlir::Value edges, mlir::Value nodes,
                      llvm::function_ref<mlir::Value(mlir::Value)> nodeOf);

/// Adjacency lists, tensor<queries x width x i32>, of the graph whose edges `table` holds: dimension `queries` of the
/// table is that of the lists, the other one that of the keys. Each list ascends, without repetitions, and -1 fills it
/// up to the longest one. It takes time and memory for the edges, the nodes and the lists, not for the table.
mlir::Value listEdges(const EdgeTable &table, unsigned queries, mlir::OpBuilder &b);

} // namespace attn

#endif // PASSES_GRAPH_MASKS_EDGELISTS_H
