#ifndef DIALECTS_ATTN_RECURRENTLAYER_H
#define DIALECTS_ATTN_RECURRENTLAYER_H

#include "dialects/attn/AttnOps.h"

#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace attn {

/// What attn.rnn, attn.gru and attn.lstm have in common: the ops as one type.
/// Absent operands are null; without a weight the input is projected.
struct RecurrentLayer {
  enum Cell { Rnn, Gru, Lstm };

  /// The view of `op`, or nullopt for another op.
  static std::optional<RecurrentLayer> get(mlir::Operation *op);

  mlir::Operation *op = nullptr;
  Cell cell = Rnn;
  mlir::Value input, weight, recurrence, bias, lengths, initialH, initialC, peephole;
  mlir::Value sequence, lastH, lastC; ///< the results
  Direction direction = Direction::forward;
  llvm::SmallVector<ActivationAttr> activations; ///< functions of the first direction, then of the second
  std::optional<double> clip;
  bool batchFirst = false, inputForget = false, linearBeforeReset = false, mirrored = false;

  int64_t numGates() const { return cell == Lstm ? 4 : cell == Gru ? 3 : 1; }
  int64_t numFunctions() const { return cell == Lstm ? 3 : cell == Gru ? 2 : 1; }
  int64_t numDirections() const { return direction == Direction::bidirectional ? 2 : 1; }
  /// Whether direction `d` of the layer begins at the end of the sequence.
  bool isReverse(int64_t d) const { return direction == Direction::reverse || d == 1; }
  /// Function `n` of direction `d`.
  ActivationAttr activation(int64_t d, int64_t n) const { return activations[d * numFunctions() + n]; }
  int64_t hiddenSize() const { return getType(recurrence).getDimSize(2); }
  int64_t inputSize() const { return getType(input).getDimSize(2); }
  mlir::Type elementType() const { return getType(input).getElementType(); }

  /// Positions of the dimensions of the input, the sequence and the states.
  unsigned stepDim() const { return batchFirst ? 1 : 0; }
  unsigned batchDim() const { return batchFirst ? 0 : 1; }
  unsigned sequenceDirectionDim() const { return batchFirst ? 2 : 1; }
  unsigned sequenceBatchDim() const { return batchFirst ? 0 : 2; }
  unsigned stateDirectionDim() const { return batchFirst ? 1 : 0; }

  /// What is wrong with the op by the constraints of RecurrentOps.td, told there.
  mlir::LogicalResult verify() const;
  /// Sizes of the results, from the operands.
  void reifyShapes(mlir::OpBuilder &b, mlir::ReifiedRankedShapedTypeDims &shapes) const;

private:
  static mlir::RankedTensorType getType(mlir::Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()); }
  mlir::LogicalResult verifyShape(llvm::StringRef name, mlir::Value value, llvm::ArrayRef<int64_t> expected) const;
};

/// input [`,` weight] `,` recurrence `:` their types
mlir::ParseResult parseLayerInputs(mlir::OpAsmParser &parser, mlir::OpAsmParser::UnresolvedOperand &input,
                                   std::optional<mlir::OpAsmParser::UnresolvedOperand> &weight,
                                   mlir::OpAsmParser::UnresolvedOperand &recurrence, mlir::Type &inputType,
                                   mlir::Type &weightType, mlir::Type &recurrenceType);
void printLayerInputs(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Value input, mlir::Value weight,
                      mlir::Value recurrence, mlir::Type inputType, mlir::Type weightType, mlir::Type recurrenceType);

} // namespace attn

#endif // DIALECTS_ATTN_RECURRENTLAYER_H
