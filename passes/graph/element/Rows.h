#ifndef PASSES_GRAPH_ELEMENT_ROWS_H
#define PASSES_GRAPH_ELEMENT_ROWS_H

#include "passes/graph/Structured.h"
#include "passes/graph/element/Element.h"

// Elements beside a reduction of their own rows: x / sum(x), x - max(x), x - log(sum(exp(x))).

namespace attn {

/// Places that together say where along a row an element stands, the most significant first.
using Places = llvm::SmallVector<mlir::AffineExpr, 4>;

/// What computes `element`, if it is an `Op` in a body.
template <typename Op> Op getAs(const Element &element) {
  bool isTensor = llvm::isa<mlir::RankedTensorType>(element.value.getType());
  return isTensor ? Op() : llvm::dyn_cast_or_null<Op>(element.getOp());
}

/// The float that `element` is at each place.
inline std::optional<double> numberOf(const Element &element) { return numberOf(element.value); }

/// Elements of two tensors: x / y.
struct Quotient {
  Element numerator, denominator;
};

/// Elements of which a row is a sum: the tensor of the sums, and the places that it combines.
struct Total {
  mlir::Value sum;
  Places keys;
};

/// What a reduction combines, and its loops over it.
struct Reduced {
  Element element;
  Places loops;
};

/// Reads elements through changes between float types, and finds what combines their rows. The row of a slice is not
/// that of the tensor.
class RowReader : public ElementReader {
public:
  explicit RowReader(mlir::Value root) : ElementReader(root), root(root) { stopAtSlices(); }

  /// Operand `n` of the op in a body that computes `element`.
  Element of(const Element &element, unsigned n) { return strip(operand(element, n)); }
  /// The element of the root, if an op computes it in the body of the op whose result the root is.
  std::optional<Element> own();
  /// Whether a tensor is read element for element, and has the type of the root.
  bool isWhole(const Element &tensor) { return tensor == at(tensor.value) && tensor.value.getType() == root.getType(); }
  /// The element of another tensor that `element` is, if its tensor is a view.
  std::optional<Element> throughView(const Element &element);
  /// The element that views, which `views` gets, the last one first, make `element` of.
  Element throughViews(Element element, llvm::SmallVectorImpl<mlir::Operation *> *views = nullptr);

  /// The root as x / y, x * (1 / y) or x * y^-1, x being operand `side` of its division (0) or product (0, 1).
  std::optional<Quotient> quotient(unsigned side);

  /// What `element`, of a reduction or of a product with ones, combines.
  std::optional<Reduced> reduced(const Element &element, Combiner combiner);
  /// The places of `term` along which `element` combines its row.
  std::optional<Places> combined(const Element &element, const Element &term, Combiner combiner);
  /// Whether `element` combines the row of `term` along `keys`.
  bool combines(const Element &element, const Element &term, Combiner combiner, const Places &keys) {
    std::optional<Places> found = combined(element, term, combiner);
    return found && *found == keys;
  }
  /// The places among `mine` where `theirs`, which are alike otherwise, have all of `summed`.
  std::optional<Places> replaced(mlir::AffineMap theirs, mlir::AffineMap mine, llvm::ArrayRef<mlir::AffineExpr> summed);
  /// The sum of the row of `term` from which elementwise ops compute `element`.
  std::optional<Total> total(const Element &element, const Element &term);
  /// Whether `shift` is the maximum of the row of `term` where that is finite.
  bool isFiniteMaximum(const Element &shift, const Element &term, const Places &keys);
  /// Where `logs` is the log of the sum of the exponentials of the row of `term`, none of which overflows: taken with
  /// the maximum subtracted, or of what is not above 0.
  std::optional<Places> logSumExp(const Element &logs, const Element &term);

  /// The first of the dimensions of a tensor read at `at` that together have `keys`, and how many they are.
  std::optional<std::pair<int64_t, int64_t>> findDims(mlir::AffineMap at, const Places &keys);
  /// The dimension of the root that has `keys`.
  std::optional<int64_t> findDim(const Places &keys);
  /// The places that make `place`; none for the one place along a dimension of size 1.
  Places parts(llvm::ArrayRef<mlir::AffineExpr> places);

  /// Whether one of `keys` is among the places of `at`.
  bool names(mlir::AffineMap at, const Places &keys);

private:
  bool asksWhetherFinite(const Element &condition, const Element &term, unsigned depth = 12);
  std::optional<Places> finiteMaximum(const Element &shift, const Element &term);
  std::optional<Total> total(Element element, const Element &term, llvm::DenseSet<mlir::Value> &seen);
  void addParts(mlir::AffineExpr place, Places &found);
  bool isShared(mlir::AffineExpr place, mlir::AffineExpr key);

  mlir::Value root;
};

/// What `views`, the last one first, make of `from`, made of `to` instead.
mlir::Value viewAgain(mlir::OpBuilder &b, llvm::ArrayRef<mlir::Operation *> views, mlir::Value from, mlir::Value to);

/// What is x in `shift`, x - max(x) along `dim` (`side` 0) or max(x) - x (1), or null.
mlir::Value findUnshifted(mlir::Value shift, unsigned side, int64_t dim);

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_ROWS_H
