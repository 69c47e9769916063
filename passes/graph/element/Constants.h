#ifndef PASSES_GRAPH_ELEMENT_CONSTANTS_H
#define PASSES_GRAPH_ELEMENT_CONSTANTS_H

#include "passes/graph/element/Element.h"

#include "mlir/IR/SymbolTable.h"

namespace attn {

class WeightStore;

/// What `op` folds to where its operands are these constants, null for those that are none: a constant, another value,
/// or null. The op stays as it is.
mlir::OpFoldResult foldAt(mlir::Operation *op, llvm::ArrayRef<mlir::Attribute> operands);

/// The one number that an element is wherever it stands, or null. Weights are looked into where `symbols` are given.
class Constants final : public ElementDomain<mlir::TypedAttr> {
public:
  explicit Constants(ElementReader &reader, const mlir::SymbolTable *symbols = nullptr,
                     const WeightStore *weights = nullptr)
      : ElementDomain(reader, mlir::TypedAttr()), symbols(symbols), weights(weights) {}

private:
  mlir::TypedAttr compute(const Element &element) override;
  mlir::TypedAttr ofTable(mlir::Value tensor);

  const mlir::SymbolTable *symbols;
  const WeightStore *weights;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_CONSTANTS_H
