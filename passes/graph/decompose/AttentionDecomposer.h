#ifndef PASSES_GRAPH_DECOMPOSE_ATTENTIONDECOMPOSER_H
#define PASSES_GRAPH_DECOMPOSE_ATTENTIONDECOMPOSER_H

#include "builders/Operators.h"
#include "dialects/attn/AttnOps.h"
#include "passes/graph/MappedTensor.h"
#include "passes/graph/Structured.h"

namespace attn {

/// Writes an attn.attention as linalg (DecomposeAttention.cpp), and its extra
/// results (DecomposeExtras.cpp). A MappedTensor here has a map from the op's
/// six dimensions; every result is a plain dimension.
class AttentionDecomposer {
public:
  AttentionDecomposer(AttentionOp op, mlir::RewriterBase &b)
      : op(op), b(b), loc(op.getLoc()), compute(op.getComputeType()), sizes(op.getIterationSizes(b, loc)) {
    for (unsigned dim : {AttentionOp::B, AttentionOp::H, AttentionOp::I, AttentionOp::J})
      if (op.isNamed(dim))
        dims.push_back(dim);
  }

  llvm::SmallVector<mlir::Value> decompose();
  /// Makes the reduced extra results from whole ones, of a new attention that takes op's regions.
  llvm::SmallVector<mlir::Value> reduceExtras();

private:
  MappedTensor simplify(mlir::Value value, mlir::AffineMap map) { return readPlainly(b, loc, value, map, sizes); }
  llvm::SmallVector<mlir::OpFoldResult> pick(llvm::ArrayRef<unsigned> dims) const {
    llvm::SmallVector<mlir::OpFoldResult> picked;
    for (unsigned dim : dims)
      picked.push_back(sizes[dim]);
    return picked;
  }
  /// `map` from loops over `loops`, in their order, instead of the six dimensions.
  mlir::AffineMap renumber(mlir::AffineMap map, llvm::ArrayRef<unsigned> loops) const;
  /// One loop point a point of `over`: `body` on elements of `inputs`.
  MappedTensor pointwise(llvm::ArrayRef<unsigned> over, mlir::Type element, llvm::ArrayRef<MappedTensor> inputs,
                         ScalarBody body);
  /// Reduces over the dimensions that `kept` lacks and an input names.
  MappedTensor reduce(llvm::ArrayRef<unsigned> kept, mlir::Type element, double init,
                      llvm::ArrayRef<MappedTensor> inputs, ScalarBody body);
  MappedTensor maximumOf(llvm::ArrayRef<unsigned> kept, const MappedTensor &input);
  MappedTensor contract(const MappedTensor &lhs, const MappedTensor &rhs, llvm::ArrayRef<unsigned> resultDims);
  mlir::Value cloneRegion(mlir::Region &body, mlir::OpBuilder &b, mlir::ValueRange args,
                          llvm::ArrayRef<unsigned> loops);

  MappedTensor rawScores();
  MappedTensor regionScores(const MappedTensor &raw);
  MappedTensor maskScores(const MappedTensor &scores);
  MappedTensor letHiddenKeysIn(const MappedTensor &scores, const MappedTensor &masked);
  MappedTensor normalize(const MappedTensor &scores);
  MappedTensor weightRegion(const MappedTensor &weights);
  MappedTensor weightedSum(const MappedTensor &weights);
  MappedTensor logSumExp(const MappedTensor &scores);
  /// Whether a key takes part: visible, or of a row where hidden keys have a weight.
  Mask takesPart(const Num &isVisible, const Num &weight);

  mlir::Value finish(const MappedTensor &result, mlir::Type type, mlir::AffineMap map);
  mlir::Value finishExtra(unsigned n, const MappedTensor &source);
  MappedTensor extra(ExtraAttr attr, MappedTensor source, llvm::ArrayRef<unsigned> kept, mlir::RankedTensorType type);
  MappedTensor argmax(const MappedTensor &source, llvm::ArrayRef<unsigned> kept, mlir::Type element);
  MappedTensor topK(ExtraAttr attr, const MappedTensor &source, llvm::ArrayRef<unsigned> kept,
                    mlir::RankedTensorType type);

  AttentionOp op;
  mlir::RewriterBase &b;
  mlir::Location loc;
  mlir::FloatType compute;
  llvm::SmallVector<mlir::OpFoldResult> sizes;
  llvm::SmallVector<unsigned> dims; ///< those of b, h, i, j that exist
  MappedTensor query, key, value, alignment;
  llvm::SmallVector<MappedTensor> captures;
  std::optional<MappedTensor> visible; ///< i8, when there is a mask
  double hiddenScore = 0;
};

/// Reads `dims` of the six dimensions.
mlir::AffineMap mapOf(mlir::Builder &b, llvm::ArrayRef<unsigned> dims);

} // namespace attn

#endif // PASSES_GRAPH_DECOMPOSE_ATTENTIONDECOMPOSER_H
