#ifndef PASSES_GRAPH_ELEMENT_AFFINE_H
#define PASSES_GRAPH_ELEMENT_AFFINE_H

#include "passes/graph/element/Element.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/AffineExpr.h"

namespace attn {

/// What an element of a tensor of integers is by its place: a constant plus multiples of its coordinates. What is said
/// holds of the elements that there are: a size is taken to be 1 or more where a tensor that is read has it. Such sizes
/// are those of the way to an element, so there is no table of facts.
class Affine {
public:
  explicit Affine(mlir::Value root);

  /// What an element of `root` is, or nothing.
  std::optional<mlir::AffineExpr> read();

private:
  using Expr = std::optional<mlir::AffineExpr>;
  using Exprs = llvm::SmallVector<mlir::AffineExpr>;

  Expr of(Element element);
  Expr ofScalar(const Element &element);
  Expr ofOperand(const Element &element, unsigned n) { return of(reader.operand(element, n)); }
  Expr ofPair(const Element &element);
  Expr joined(mlir::tensor::InsertSliceOp insert, const Element &element);
  Expr summed(mlir::scf::ForOp loop, const Element &element);
  Expr selected(const Element &element);
  Expr extracted(const Element &element);
  Expr checked(mlir::Value limit, Expr index);
  Expr divided(const Element &division);
  Expr multiplied(mlir::AffineExpr factor, mlir::Value other);
  Expr comparedSize(mlir::arith::CmpIOp compare);
  Expr compared(mlir::arith::CmpIPredicate predicate, mlir::AffineExpr difference);
  bool isSize(mlir::Value value, const Extent &size);
  Expr simplify(mlir::AffineExpr expr);
  /// `expr` with what is known of the offsets in it.
  mlir::AffineExpr settle(mlir::AffineExpr expr);
  std::optional<int64_t> number(mlir::Value value);
  void assumePresent(llvm::ArrayRef<mlir::OpFoldResult> sizes);
  mlir::AffineExpr constant(int64_t value);

  mlir::Value root;
  ElementReader reader;
  llvm::SmallVector<mlir::OpFoldResult> extents; ///< of `root`
  llvm::DenseSet<mlir::Value> present;           ///< sizes that are 1 or more
  /// What a loop carries, as a place of its own: a sum that is looked into.
  llvm::DenseMap<mlir::Value, mlir::AffineExpr> carried;
  unsigned steps = 0;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_AFFINE_H
