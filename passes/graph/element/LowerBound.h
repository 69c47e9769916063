#ifndef PASSES_GRAPH_ELEMENT_LOWERBOUND_H
#define PASSES_GRAPH_ELEMENT_LOWERBOUND_H

#include "passes/graph/element/Element.h"

namespace attn {

/// A number that an element is not below, as far as a few ops show; NaN is none.
class LowerBound final : public ElementDomain<double> {
public:
  explicit LowerBound(ElementReader &reader);

private:
  double compute(const Element &element) override;
  double ofSum(const Element &element);
  double ofProduct(const Element &element);
  double ofChosen(const Element &select, bool isTrue);
  std::optional<double> constantOperand(const Element &element, unsigned n);
  bool isSame(const Element &a, const Element &b) { return reader.resolve(a) == reader.resolve(b); }

  unsigned steps = 0;
};

/// Whether no element of `tensor` is below 0.
bool isNonNegative(mlir::Value tensor);

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_LOWERBOUND_H
