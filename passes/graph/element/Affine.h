#ifndef PASSES_GRAPH_ELEMENT_AFFINE_H
#define PASSES_GRAPH_ELEMENT_AFFINE_H

#include "passes/graph/element/Element.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/SymbolTable.h"

namespace attn {

class WeightStore;

/// What an element of a tensor of integers is by its place: a constant plus multiples of its coordinates. What is said
/// holds of the elements that there are: a size is taken to be 1 or more where a tensor that is read has it. Such sizes
/// are those of the way to an element, so there is no table of facts.
class Affine {
public:
  Affine(mlir::Value root, const mlir::SymbolTable &symbols, const WeightStore *weights);

  /// What an element of `root` is, or nothing. `fixed` says where it is along dimensions in which it does not move.
  /// With `offsets`, where a slice starts that only a run knows is a symbol; they get these, each 0 or more.
  std::optional<mlir::AffineExpr> read(llvm::ArrayRef<std::optional<int64_t>> fixed = {},
                                       llvm::SmallVectorImpl<mlir::Value> *offsets = nullptr);

  /// Whether the index of `check` is in range and not negative wherever the body of the elementwise op that makes
  /// `root`, in the order of its loops, has it.
  bool neverFails(CheckIndexOp check) { return of({check.getResult(), reader.at(root).at}).has_value(); }

private:
  using Expr = std::optional<mlir::AffineExpr>;
  using Exprs = llvm::SmallVector<mlir::AffineExpr>;

  Expr of(Element element);
  Expr ofScalar(const Element &element);
  Expr ofOperand(const Element &element, unsigned n) { return of(reader.operand(element, n)); }
  Expr ofPair(const Element &element);
  Expr stored(const Element &element);
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
  std::optional<int64_t> lastPlace(unsigned n);
  bool isWithin(mlir::AffineExpr expr, int64_t size);
  Expr simplify(mlir::AffineExpr expr);
  /// `expr` with what is known of the offsets in it.
  mlir::AffineExpr settle(mlir::AffineExpr expr);
  std::optional<int64_t> number(mlir::Value value);
  void assumePresent(llvm::ArrayRef<mlir::OpFoldResult> sizes);
  mlir::AffineExpr constant(int64_t value);

  mlir::Value root;
  ElementReader reader;
  const mlir::SymbolTable &symbols;
  const WeightStore *weights;
  llvm::SmallVector<mlir::OpFoldResult> extents; ///< of `root`
  llvm::DenseSet<mlir::Value> present;           ///< sizes that are 1 or more
  /// What a loop carries, as a place of its own: a sum that is looked into.
  llvm::DenseMap<mlir::Value, mlir::AffineExpr> carried;
  unsigned steps = 0;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_AFFINE_H
