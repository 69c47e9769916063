#ifndef PASSES_GRAPH_ELEMENT_POSITIONQUOTIENT_H
#define PASSES_GRAPH_ELEMENT_POSITIONQUOTIENT_H

#include "dialects/attn/AttnOps.h"
#include <optional>

namespace attn {

/// floor(position / divisor), where the position is that of dimension `dim` of an attention.
struct PositionQuotient {
  unsigned dim;
  int64_t divisor;

  /// What `scalar`, of a region of `op`, is proved to be: an integer division
  /// by a positive constant, or the floor of one in f32 or f64 of positions
  /// that are so few that it is exact. Tensors that hold such numbers are
  /// followed to where they are made.
  static std::optional<PositionQuotient> find(AttentionOp op, mlir::Value scalar);
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_POSITIONQUOTIENT_H
