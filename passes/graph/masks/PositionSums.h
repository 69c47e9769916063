#ifndef PASSES_GRAPH_MASKS_POSITIONSUMS_H
#define PASSES_GRAPH_MASKS_POSITIONSUMS_H

#include "passes/graph/element/Element.h"

namespace attn {

/// i * query + j * key + constant + scale * capture
struct PositionSum {
  /// Constants beyond are left alone, so that sums stay far from overflow.
  static constexpr int64_t kLimit = int64_t(1) << 36;

  int64_t i = 0, j = 0, constant = 0, scale = 0;
  mlir::BlockArgument capture;
};

/// Integers of a score region as sums of positions, a constant and a multiple of one capture.
class PositionSums final : public ElementDomain<std::optional<PositionSum>> {
public:
  explicit PositionSums(ElementReader &reader) : ElementDomain(reader, std::nullopt) {}

private:
  std::optional<PositionSum> compute(const Element &element) override;
  std::optional<PositionSum> ofSum(const Element &element);
};

} // namespace attn

#endif // PASSES_GRAPH_MASKS_POSITIONSUMS_H
