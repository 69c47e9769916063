#ifndef PASSES_GRAPH_ELEMENT_SCOREBOUND_H
#define PASSES_GRAPH_ELEMENT_SCOREBOUND_H

#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>

namespace attn {

class WeightStore;

/// How large the numbers are that code puts into a bias: its constants and
/// weights count as they are, and what a run gives it, other than by float
/// inputs, as 1 (integers, positions, sums of products, as a score is one).
/// So a mask by (1 - m) * -1e4 is as large as 2e4, slopes times distances are as
/// large as the slopes, and an input that holds a mask has no bound.
class ScoreBound {
public:
  ScoreBound(const mlir::SymbolTable &symbols, const WeightStore *weights) : symbols(symbols), weights(weights) {}

  /// Of a tensor; nothing where it isn't known.
  std::optional<double> ofTensor(mlir::Value tensor);
  /// Of a scalar in the body of a linalg op or of an attention's region, whose
  /// arguments have been given a bound.
  std::optional<double> ofScalar(mlir::Value scalar);
  void setArgument(mlir::Value scalar, double bound) { known[scalar] = bound; }

private:
  std::optional<double> computeTensor(mlir::Value tensor);
  std::optional<double> computeScalar(mlir::Value scalar);
  std::optional<double> ofConstant(mlir::Value tensor);
  std::optional<double> ofLoop(mlir::Operation *loop);

  const mlir::SymbolTable &symbols;
  const WeightStore *weights;
  llvm::DenseMap<mlir::Value, std::optional<double>> known;
  unsigned depth = 0;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_SCOREBOUND_H
