#ifndef PASSES_GRAPH_ATTENTION_ATTENTIONBUILDER_H
#define PASSES_GRAPH_ATTENTION_ATTENTIONBUILDER_H

#include "builders/Term.h"
#include "passes/graph/attention/AttentionMatch.h"

namespace attn {

/// Several atoms that are one dimension of the attention: they stand side by
/// side, in this order, wherever the last of them stands.
using Unit = Atoms;

/// All atoms of `access`, in the order of its dimensions.
Atoms flatten(const Access &access);

/// Assigns atoms to the dimensions b, h, i, j, d, e, and builds the op on operands that have these.
class AttentionBuilder {
public:
  AttentionBuilder(mlir::RewriterBase &b, AttentionMatch &match, Miss &miss)
      : b(b), match(match), miss(miss), loc(match.result.value.getLoc()) {}

  mlir::FailureOr<AttentionOp> build();

private:
  using A = AttentionOp;
  using Operand = AttentionMatch::Operand;

  mlir::LogicalResult fail(const llvm::Twine &reason, mlir::Location location) { return miss.set(reason, location); }
  bool hasSink() const { return match.sink.value || match.sinkScore; }

  // AttentionBuild.cpp
  mlir::LogicalResult makeOperands();
  mlir::LogicalResult placeOperands(AttentionParts &parts);
  void addResult(AttentionParts &parts, llvm::ArrayRef<unsigned> dims, mlir::Type element);
  void addRows(AttentionParts &parts, llvm::ArrayRef<unsigned> dims);
  std::optional<llvm::SmallVector<unsigned>> addWeights(AttentionParts &parts);
  void moveRegions(AttentionOp op);

  // AttentionDims.cpp
  struct Classes;
  mlir::LogicalResult classify();
  mlir::LogicalResult readOperands(Classes &of);
  mlir::LogicalResult sortAtoms(Classes &of);
  void joinRows(Classes &of);
  void joinBatch(Classes &of);
  mlir::LogicalResult nameBatch(llvm::ArrayRef<Unit> batch);
  bool mergeUnits(llvm::SmallVector<Unit> &units, bool divided, bool ofKnownSize = false);
  void mergeAll(llvm::SmallVector<Unit> &units, bool divided = false);
  bool widenCaptures(llvm::ArrayRef<Unit> classUnits, size_t firstCapture);
  bool transposeScores(llvm::ArrayRef<Unit> classUnits);
  mlir::LogicalResult unify(llvm::SmallVector<Unit> &units, AttentionOp::Dim dim, llvm::StringRef what);
  std::optional<std::pair<unsigned, Atoms>> segment(llvm::ArrayRef<unsigned> atoms, size_t at) const;

  // AttentionOperands.cpp
  mlir::LogicalResult sumTerms(llvm::ArrayRef<Operand> terms, Operand &sum, llvm::StringRef what);
  mlir::Value repeated(mlir::Value tensor, unsigned dim, llvm::ArrayRef<unsigned> atoms);
  void repeatQuery();
  void repeatCaptures();
  void sumRepeatedCaptures();
  mlir::Value onesOf(mlir::OpFoldResult size, mlir::Type element);

  // AttentionPlace.cpp
  struct Pieces;
  mlir::LogicalResult arrange(Operand &operand, llvm::ArrayRef<unsigned> mustName, mlir::AffineMap &map,
                              llvm::StringRef what);
  mlir::LogicalResult cut(const Operand &operand, Pieces &found, llvm::StringRef what);
  void nameUnit(Pieces &found, unsigned dim, mlir::RankedTensorType type);
  void joinNeighbours(Operand &operand, Pieces &found);
  mlir::FailureOr<mlir::AffineExpr> placeOf(unsigned dim, const Atoms &atoms);
  mlir::LogicalResult assignIndices();
  std::optional<llvm::SmallVector<unsigned>> wholeDims(const Access &access) const;
  mlir::Value toTarget(mlir::Value value, llvm::ArrayRef<unsigned> dims, const Operand &target);

  // AttentionRows.cpp
  Num sinkDivisor(const std::optional<Num> &given, const Num &row);
  mlir::FailureOr<mlir::Value> divideRows(AttentionOp op);

  // AttentionAxes.cpp
  Atoms rowsOfSearch(const Access &access) const;
  bool sharesKeys(unsigned dim) const;
  std::optional<llvm::SmallVector<Atoms>> findAxes(const Access &access) const;
  mlir::ArrayAttr axesOfWeights(llvm::ArrayRef<mlir::AffineMap> maps);

  const Extent &extent(unsigned atom) const { return match.space.getExtent(atom); }
  mlir::OpFoldResult size(llvm::ArrayRef<unsigned> atoms) {
    Extent product(1);
    for (unsigned atom : atoms)
      product = product * extent(atom);
    return product.materialize(b, loc);
  }

  mlir::RewriterBase &b;
  AttentionMatch &match;
  Miss &miss;
  mlir::Location loc;
  llvm::SmallVector<Atoms> sequences; ///< atoms of every operand in memory order, then of every index
  Unit units[6];
  /// Captures that are repeated along one more dimension, in this order.
  struct Widening {
    unsigned capture;
    unsigned dim; ///< the new one
    Unit atoms;
  };
  llvm::SmallVector<Widening> widenings;
  std::optional<llvm::SmallVector<int64_t>> scoreOrder; ///< the order of dimensions that given scores are brought into
};

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_ATTENTIONBUILDER_H
