#ifndef PASSES_GRAPH_ELEMENT_MAGNITUDE_H
#define PASSES_GRAPH_ELEMENT_MAGNITUDE_H

#include "passes/graph/element/Element.h"

#include "mlir/IR/SymbolTable.h"

namespace attn {

class WeightStore;

/// How large the numbers are that code puts into a bias: its constants and
/// weights count as they are, and what a run gives it, other than by float
/// inputs, as 1 (integers, positions, sums of products, as a score is one).
/// So a mask by (1 - m) * -1e4 is as large as 2e4, slopes times distances are as
/// large as the slopes, and an input that holds a mask has no bound.
class Magnitude final : public ElementDomain<std::optional<double>> {
public:
  Magnitude(ElementReader &reader, const mlir::SymbolTable &symbols, const WeightStore *weights)
      : ElementDomain(reader, std::nullopt), symbols(symbols), weights(weights) {}

private:
  std::optional<double> compute(const Element &element) override;
  std::optional<double> ofScalar(const Element &element);
  std::optional<double> ofTable(mlir::Value tensor);
  std::optional<double> ofLoop(mlir::Operation *loop);

  const mlir::SymbolTable &symbols;
  const WeightStore *weights;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_MAGNITUDE_H
