#ifndef PASSES_GRAPH_ATTENTION_BANDMATCH_H
#define PASSES_GRAPH_ATTENTION_BANDMATCH_H

#include "dialects/attn/AttnOps.h"
#include "passes/graph/element/Cases.h"

#include "mlir/IR/PatternMatch.h"

namespace attn {

/// What a query and a key have: the score, what the weight becomes, and the value that it weighs.
struct BandTerm {
  CaseExprRef score, weight, value;
};

/// A softmax over the keys near each query, stored by their distance, and the sum of values by its weights: what makes
/// them is not the layout, but that each score is one of a query and the key at its distance, whatever is padded, cut
/// and skewed in between (Longformer's sliding chunks).
///
///     key = query + place + offset      at places 0 to `count` - 1 of the softmax, if there is such a key
///
/// Expressions read tensors at coordinates: the dimensions of `result`, the key (`getKey()`), the terms of products
/// and, where there are keys in front, the number of one of these (`getKey() + 1`).
struct Band : BandTerm {
  /// Keys that all queries see, at the first `size` places of the softmax (Longformer's global tokens).
  struct Front : BandTerm {
    mlir::OpFoldResult size;
    bool sharesQueries = false; ///< known to be those of the other keys
  };
  SoftmaxOp softmax;
  mlir::Value result;    ///< the weighted sum, or a view of it
  mlir::Type element;    ///< in which the sum is taken
  unsigned queryDim = 0; ///< of `result`, along which queries lie
  int64_t offset = 0, count = 0, numKeys = 0;
  llvm::SmallVector<int>
      dims; ///< of `result` along the dimensions of the softmax; -1 for those of size 1, and for keys
  llvm::SmallVector<Linear> coordinates;
  std::optional<Front> front;

  /// Whether what is read is that of a key.
  bool namesKey(const CaseExpr &read) const;
  unsigned getKey() const { return mlir::cast<mlir::RankedTensorType>(result.getType()).getRank(); }
};

/// The one product in `expr`; null where there is none, or more.
const CaseExpr *findProduct(const CaseExpr &expr);
/// Of the sum that a product is.
int64_t countTerms(const CaseExpr &product);

/// A sum of values by weights: what reads the weights, and the sum or a view of it.
struct WeightedSum {
  mlir::OpOperand *weights = nullptr;
  mlir::Value result;
};
/// The sum over keys in front, and how many they are.
struct FrontSum : WeightedSum {
  mlir::OpFoldResult size;
};

/// The band of `sum`, by weights that come from `softmax`, and what is in `front` of it, if anything: both results are
/// added. Counts the steps of reading down, and gives up without any.
std::optional<Band> matchBand(SoftmaxOp softmax, const WeightedSum &sum, const std::optional<FrontSum> &front,
                              const mlir::SymbolTable &symbols, const WeightStore *store, CaseReader::Shared &shared);

/// Writes a band as an attention over all keys that hides those outside of it; keys in front lie before the others. The
/// weighted sum; null where something is read that has no loop.
mlir::Value writeBand(mlir::RewriterBase &b, const Band &band);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_BANDMATCH_H
