#ifndef PASSES_GRAPH_ATTENTION_SEGMENTMATCH_H
#define PASSES_GRAPH_ATTENTION_SEGMENTMATCH_H

#include "dialects/attn/SegmentAttentionOp.h"
#include "passes/graph/attention/AttentionMatch.h"
#include "passes/graph/element/Element.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

// An attention over the edges of each node, found from the loops that add weighted values at the nodes: back to the
// quotient that makes the weights, from there to the sums of exponentials and to the maxima, which loops have made at
// the same nodes.

namespace attn {

/// Loops that combine updates, a tensor or a number, with what stands at computed places of a tensor: at each update's
/// node along one dimension, and where the update itself stands along the others.
struct Scatter {
  enum Kind { sum, maximum, minimum, replacement };
  static std::optional<Scatter> match(mlir::Value value);

  mlir::scf::ForOp outer;
  llvm::SmallVector<mlir::scf::ForOp> loops;
  mlir::tensor::InsertOp insert;
  Kind kind;
  mlir::Value update; ///< the scalar
  mlir::Value init;
  unsigned nodeDim; ///< of the result
};

struct SegmentMatch {
  mlir::scf::ForOp loops;         ///< that sum values
  mlir::Value result;             ///< of the loops, or their quotient
  mlir::linalg::LinalgOp softmax; ///< the quotient
  mlir::Value edges, nodes;       ///< how many
  CheckIndexOp nodeCheck;         ///< of the node of an edge
  /// Tensors, and where an edge's elements stand in them, of (edge, dimensions of the updates).
  Element node, scores, values;
  std::optional<Element> row; ///< of the values; or the values are those of edges
  CheckIndexOp rowCheck;
  llvm::SmallVector<unsigned> heads; ///< dimensions of the updates that scores have, too
  unsigned edgeDim;                  ///< of the updates and of the result
  llvm::SmallVector<int64_t> sizes;  ///< of the updates; the result may have dimensions that are joined
  double epsilon = 0;
  std::optional<double> floor;
};

/// The attention whose result `loops` make. Where there is none, `softmax` becomes the quotient of which `miss` says
/// why, or what may be it.
std::optional<SegmentMatch> matchSegmentAttention(mlir::scf::ForOp loops, mlir::linalg::LinalgOp &softmax, Miss &miss);

/// Lists of edges, by the tensor of the nodes, how it is read, and the number of nodes.
using SegmentLists = llvm::DenseMap<std::tuple<mlir::Value, mlir::AffineMap, mlir::Value, mlir::Block *>,
                                    std::pair<mlir::Value, mlir::Value>>;

/// Replaces `match.result` by an attn.segment_attention.
SegmentAttentionOp buildSegmentAttention(mlir::RewriterBase &rewriter, const SegmentMatch &match, SegmentLists &lists);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_SEGMENTMATCH_H
