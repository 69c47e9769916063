#ifndef PASSES_GRAPH_ATTENTION_SEGMENTMATCHER_H
#define PASSES_GRAPH_ATTENTION_SEGMENTMATCHER_H

#include "passes/graph/attention/SegmentMatch.h"

namespace attn {

/// How matchSegmentAttention goes about it: SegmentReads.cpp says what is read where, SegmentMatch.cpp what it means.
class SegmentMatcher {
public:
  SegmentMatcher(const Scatter &sums, mlir::tensor::ExtractOp update)
      : sums(sums), update(update), updates(beforeJoin(sums, update.getTensor())), reader(updates),
        rank(updatesType().getRank()) {}

  std::optional<SegmentMatch> match(mlir::linalg::LinalgOp &softmax, Miss &miss);

private:
  /// What a scatter reads and writes at some place of its result.
  struct Visit {
    Scatter scatter;
    Element node;
    std::optional<Element> update; ///< none for a number
  };
  /// An element that is read at a computed row.
  struct Gathered {
    Element element; ///< of the tensor, at an inner place along one dimension
    Element index;
    CheckIndexOp check;
    unsigned dim;
  };

  mlir::AffineExpr coordinate(unsigned n) { return mlir::getAffineDimExpr(n, updates.getContext()); }
  mlir::AffineExpr coordinate(llvm::ArrayRef<int64_t> joined);
  mlir::RankedTensorType updatesType() { return mlir::cast<mlir::RankedTensorType>(updates.getType()); }
  mlir::AffineExpr zero() { return mlir::getAffineConstantExpr(0, updates.getContext()); }
  static mlir::Value beforeJoin(const Scatter &sums, mlir::Value tensor);
  llvm::SmallVector<mlir::ReassociationIndices> joins();
  std::optional<Element> beforeJoin(const Element &element);
  bool readSums();
  void takeFactors(const Element &element, mlir::linalg::LinalgOp owner);
  std::optional<Visit> visit(const Element &element);
  std::optional<Element> readIn(llvm::ArrayRef<mlir::scf::ForOp> loops, llvm::ArrayRef<mlir::AffineExpr> at,
                                mlir::Value integer);
  Element integerIn(const Element &element, mlir::Value integer);
  std::optional<Gathered> gather(const Element &element);
  bool isOfNodes(CheckIndexOp check);
  std::optional<Gathered> readOfNode(const Element &element);
  std::optional<Element> peelEpsilon(ElementReader &in, const Element &divisor);
  bool takeSum(const Element &divisor);
  bool takeSumAt(const Element &element);
  bool takeQuotient();
  std::optional<double> startAt(const Element &element);
  void takeScores(const Element &exponential);
  void takeShift(const Element &difference);
  std::optional<Element> storedTensor(const Element &element);
  bool takeValues();
  bool readsEdgesAlone(const Element &element);
  bool takeHeads();
  std::string whyUsedElsewhere();

  Scatter sums;
  mlir::tensor::ExtractOp update; ///< that loops sum
  const mlir::Value updates;      ///< its tensor, or the one of which that joins dimensions
  ElementReader reader;
  const unsigned rank;
  SegmentMatch found;
  struct Factor {
    Element element;
    mlir::linalg::LinalgOp owner; ///< the op that multiplies or divides by it
  };
  llvm::SmallVector<Factor> factors, divisors;
  std::optional<Element> exponential;
  double epsilon = 0;
  bool isShifted = false;
  std::optional<double> start; ///< of the maxima
};

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_SEGMENTMATCHER_H
