#ifndef PASSES_GRAPH_ELEMENT_EDGETABLE_H
#define PASSES_GRAPH_ELEMENT_EDGETABLE_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>

namespace attn {

class WeightStore;

/// A tensor of one number, into which loops have put another one at computed places: the adjacency matrix of a graph
/// whose edges are a list, as ONNX's scatters make it.
class EdgeTable {
public:
  using EdgeBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::OpBuilder &, mlir::Location,
                                                                     mlir::ValueRange place, mlir::ValueRange carried)>;
  /// Loops from 0 in steps of 1, the outer one first, around one insertion.
  struct Nest {
    llvm::SmallVector<mlir::scf::ForOp> loops;
    mlir::tensor::InsertOp insert;

    /// The same loops again, each for all of its turns or as many as `count` says, with `body` for the place of each
    /// insertion.
    llvm::SmallVector<mlir::Value>
    again(mlir::OpBuilder &b, mlir::ValueRange init, EdgeBody body,
          llvm::function_ref<mlir::Value(mlir::OpBuilder &, unsigned loop)> count = nullptr) const;
  };
  /// The loops that make `value`; the places of what they put do not depend on what they put.
  static std::optional<Nest> matchNest(mlir::Value value);

  /// What `value` holds, or none where it is made otherwise, or of other numbers.
  static std::optional<EdgeTable> match(mlir::Value value, const mlir::SymbolTable &symbols,
                                        const WeightStore *weights);

  mlir::Value getValue() const { return value; }
  mlir::TypedAttr getBase() const { return base; } ///< where no edge is
  mlir::TypedAttr getMark() const { return mark; } ///< where one is
  /// Edges add the mark, above a base of 0: an entry is a multiple of it.
  bool addsUp() const { return sums; }
  /// Bytes, 1 where an edge is.
  bool isMarked() const;

  /// Of the table; they do not read its value, which then need not be stored for them.
  llvm::SmallVector<mlir::OpFoldResult> getSizes(mlir::OpBuilder &b) const;
  /// The same loops again, with `body` for each edge, which gets its place in the table. Edges may repeat.
  llvm::SmallVector<mlir::Value> forEachEdge(mlir::OpBuilder &b, mlir::ValueRange init, EdgeBody body) const;
  /// How often forEachEdge comes to its body.
  mlir::Value countEdges(mlir::OpBuilder &b) const;

private:
  mlir::Value value, start; ///< behind the loops, and before
  mlir::TypedAttr base, mark;
  bool sums = false;
  llvm::SmallVector<Nest> nests; ///< in the order in which they run
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_EDGETABLE_H
