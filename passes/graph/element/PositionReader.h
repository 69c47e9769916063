#ifndef PASSES_GRAPH_ELEMENT_POSITIONREADER_H
#define PASSES_GRAPH_ELEMENT_POSITIONREADER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineExpr.h"
#include "llvm/ADT/DenseSet.h"
#include <optional>

namespace attn {

/// Follows what an elementwise op, or a loop that adds up, makes to where it comes from, and says what an element is by
/// its place: a constant plus multiples of its coordinates. What is said holds of the elements that there are: a size
/// is taken to be 1 or more where a tensor that is read has it.
class PositionReader {
public:
  explicit PositionReader(mlir::Value root);

  /// What an element of `root` is, or nothing.
  std::optional<mlir::AffineExpr> read();

private:
  using Expr = std::optional<mlir::AffineExpr>;
  using Exprs = llvm::SmallVector<mlir::AffineExpr>;
  using Sizes = llvm::SmallVector<mlir::OpFoldResult>;

  Expr element(mlir::Value tensor, Exprs at);
  Expr sliced(mlir::tensor::ExtractSliceOp slice, llvm::ArrayRef<mlir::AffineExpr> at);
  Expr joined(mlir::tensor::InsertSliceOp insert, llvm::ArrayRef<mlir::AffineExpr> at);
  Expr summed(mlir::scf::ForOp loop, unsigned result, Exprs at);
  Expr scalar(mlir::Value value, mlir::linalg::LinalgOp op, llvm::ArrayRef<mlir::AffineExpr> loops);
  Expr checked(mlir::Value limit, Expr index);
  mlir::AffineExpr joinRows(mlir::AffineExpr row, mlir::AffineExpr column, mlir::OpFoldResult width);
  Expr divided(mlir::arith::DivSIOp division, mlir::linalg::LinalgOp op, llvm::ArrayRef<mlir::AffineExpr> loops);
  Expr multiplied(mlir::AffineExpr factor, mlir::Value other);
  Expr comparedSize(mlir::arith::CmpIOp compare);
  bool isSize(mlir::Value value, mlir::OpFoldResult size);
  Expr compared(mlir::arith::CmpIPredicate predicate, mlir::AffineExpr difference);
  Expr simplify(mlir::AffineExpr expr);
  std::optional<int64_t> number(mlir::Value value);
  void assumePresent(llvm::ArrayRef<mlir::OpFoldResult> sizes);
  mlir::AffineExpr constant(int64_t value);

  /// A place in a dimension that is split into rows: row * width + column, for which `place`, a dimension of its own,
  /// stands.
  struct Split {
    mlir::AffineExpr place, row, column;
    mlir::OpFoldResult width;
  };

  mlir::Value root;
  Sizes extents;                       ///< of `root`
  unsigned numDims;                    ///< its dimensions, and one place of each sum or split that is looked into
  llvm::DenseSet<mlir::Value> present; ///< sizes that are 1 or more
  llvm::SmallVector<Split> splits;     ///< no two alike
  unsigned steps = 0;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_POSITIONREADER_H
