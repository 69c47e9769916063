#ifndef PASSES_GRAPH_ATTENTION_SCOREMATCHER_H
#define PASSES_GRAPH_ATTENTION_SCOREMATCHER_H

#include "passes/graph/attention/AttentionMatch.h"

#include "llvm/ADT/DenseSet.h"

namespace attn {

/// Matches what is before a softmax for one source of scores.
class ScoreMatcher {
public:
  ScoreMatcher(AttentionMatch &match, const Normalization &softmax, const Access &access, Miss &miss)
      : match(match), space(match.space), softmax(softmax), access(access), miss(miss) {}

  mlir::LogicalResult matchDot(mlir::linalg::LinalgOp product, bool isRepeated);
  /// sum_d a_d * activation(query + key); a sum without a_d, of squares for instance, has ones.
  mlir::LogicalResult matchAdditive(mlir::linalg::LinalgOp product);
  /// activation(query + key), of numbers.
  mlir::LogicalResult matchRankOne();
  mlir::LogicalResult matchGiven();

private:
  using Operand = AttentionMatch::Operand;
  static constexpr llvm::StringLiteral kScores = "the scores and the softmax";

  mlir::LogicalResult fail(const llvm::Twine &reason, mlir::Location location) { return miss.set(reason, location); }
  void resolve(Access &read) {
    match.resolve(read);
    space.resolve(access);
  }
  Atoms allAtoms() {
    resolve(access);
    Atoms atoms;
    for (const Atoms &list : access)
      llvm::append_range(atoms, list);
    return atoms;
  }

  mlir::LogicalResult takeAlignment(Operand (&operands)[2], mlir::linalg::LinalgOp product);
  mlir::LogicalResult readProduct(mlir::linalg::LinalgOp product, bool isRepeated, Operand (&operands)[2]);
  mlir::FailureOr<Access> writeScore(mlir::Value scores, bool capturesThem = false);
  void walkUpTerms();
  std::optional<Operand> onlyInput(const Operand &tensor);
  void collectTerms(Operand sum, llvm::SmallVectorImpl<Operand> &terms);
  mlir::LogicalResult sortTerms(const Operand &sum);
  void findScores(Operand at, mlir::Type element, llvm::SmallVectorImpl<Operand> &found,
                  llvm::DenseSet<mlir::Value> &seen);
  void walkUpScaled(Operand &operand, double &scale);
  bool comparesAgain(const Operand &scores, llvm::ArrayRef<Operand> later);

  AttentionMatch &match;
  AtomSpace &space;
  const Normalization &softmax;
  Access access;
  Miss &miss;
};

/// What `op`, which starts from 0, sums over its reduction loops of its one input: a scalar in its body, or null.
mlir::Value getSummand(mlir::Operation *op);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_SCOREMATCHER_H
