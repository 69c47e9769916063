#ifndef FRONTENDS_GRAPH_LAYERS_MASKS_H
#define FRONTENDS_GRAPH_LAYERS_MASKS_H

#include "frontends/graph/Layer.h"

namespace attn::graph {

/// What the keys of an attention are hidden by: the fields `causal`, `lengths`,
/// `mask` and `window` of a layer.
class AttentionMask {
public:
  /// Scores are [batch, queries, keys]; the first of the keys in time stand
  /// `past` in front of the first query.
  AttentionMask(Layer &l, Expr queries, Expr keys, Expr past) : l(l), queries(queries), keys(keys), past(past) {}

  /// Reads the fields; `query` is [batch, queries, width], for a window whose
  /// centre is predicted from it.
  void read(const std::optional<Tensor> &query, DType dtype);

  /// The normalised `scores` (rank 3, or 4 with heads second), hidden keys
  /// having weight 0. A row that sees nothing is all zeros.
  Tensor normalise(Tensor scores);

private:
  void readWindow(const Json &window, const std::optional<Tensor> &query, DType dtype);
  Tensor predictCentre(const Tensor &query, DType dtype);
  void hide(const Tensor &visible); // a bool tensor of rank 2 or 3
  Tensor withHeads(const Tensor &t, int64_t rank);

  Layer &l;
  Expr queries, keys, past;
  std::optional<Tensor> visible;  // bool [batch or 1, queries or 1, keys]
  std::optional<Tensor> gaussian; // in its shape
  bool mayHideAll = false;
};

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_LAYERS_MASKS_H
