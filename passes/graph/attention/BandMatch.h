#ifndef PASSES_GRAPH_ATTENTION_BANDMATCH_H
#define PASSES_GRAPH_ATTENTION_BANDMATCH_H

#include "dialects/attn/AttnOps.h"
#include "passes/graph/element/Cases.h"

namespace attn {

/// A softmax over the keys near each query, stored by their distance, and the sum of values by its weights: what makes
/// them is not the layout, but that each score is one of a query and the key at its distance, whatever is padded, cut
/// and skewed in between (Longformer's sliding chunks).
///
///     key = query + place + offset      at places 0 to `count` - 1 of the softmax, if there is such a key
///
/// Expressions read tensors at coordinates: the dimensions of `result`, the key (`getKey()`) and the terms of products.
struct Band {
  SoftmaxOp softmax;
  mlir::Value result;    ///< the weighted sum, or a view of it
  unsigned queryDim = 0; ///< of `result`, along which queries lie
  int64_t offset = 0, count = 0, numKeys = 0;
  llvm::SmallVector<int>
      dims; ///< of `result` along the dimensions of the softmax; -1 for those of size 1, and for keys
  llvm::SmallVector<Linear> coordinates;
  CaseExprRef score, weight, value;

  unsigned getKey() const { return mlir::cast<mlir::RankedTensorType>(result.getType()).getRank(); }
};

/// The band of the sum that reads `weights`, which come from `softmax`; `result` is the sum or a view of it. Counts the
/// steps of reading down, and gives up without any.
std::optional<Band> matchBand(SoftmaxOp softmax, mlir::OpOperand &weights, mlir::Value result,
                              const mlir::SymbolTable &symbols, const WeightStore *store, CaseReader::Shared &shared);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_BANDMATCH_H
