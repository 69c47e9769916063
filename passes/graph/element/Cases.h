#ifndef PASSES_GRAPH_ELEMENT_CASES_H
#define PASSES_GRAPH_ELEMENT_CASES_H

#include "passes/graph/element/Access.h"
#include "passes/graph/element/ConstantTable.h"
#include "passes/graph/element/Guards.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <memory>
#include <optional>

// What one element of a tensor is, case by case: which of several tensors it comes from, and where it lies there, may
// depend on its place. A matrix that is padded, given rows of another length and cut (the skew by which sliding windows
// are made) is the same matrix at other places; which, depends on where a row wraps around.
//
//     %1 = insert_slice %x into %fill[1, 0]      the element at (i, j) is, where i >= 1, %x at (i - 1, j), else 0
//
// Places are linear in variables, and so are the guards of a case. A coordinate that is divided by a number which it
// is no multiple of is cut in two variables: the reader asks for this (`getCut`), and the reading starts again.

namespace attn {

/// An element, as what it is computed from.
struct CaseExpr {
  enum Kind {
    Number,  ///< a float constant
    Integer, ///< of an integer type (or a bool as 0 or 1): linear in the variables
    Read,    ///< `tensor` at `place`, not looked into; `op` is the one that gathers it by an index, if any
    Apply,   ///< `op`, of a body, on the operands
    Product, ///< the sum of lhs * rhs over variable `summed`; `op` is the contraction
    Unknown, ///< something that is not looked into; no two are the same
  };
  Kind kind;
  mlir::Type type;
  mlir::FloatAttr number = {};
  Linear integer = {};
  mlir::Value tensor = {};
  llvm::SmallVector<Linear, 4> place = {};
  mlir::Operation *op = nullptr;
  unsigned summed = 0;
  llvm::SmallVector<std::shared_ptr<const CaseExpr>, 2> operands = {};
};
using CaseExprRef = std::shared_ptr<const CaseExpr>;

class CaseReader {
public:
  /// Takes a case; cases that are known to hold nowhere are left out.
  using Take = llvm::function_ref<void(const Guards &, const CaseExprRef &)>;
  using Place = llvm::ArrayRef<Linear>;

  /// A coordinate of the root is to be two: the digits of it by `base`.
  struct Cut {
    unsigned variable;
    int64_t base;
  };

  /// A table whose entries are the same along lines, and change few times from line to line: by row, by column, or by
  /// their difference or sum. Along other dimensions it repeats.
  struct Runs {
    llvm::SmallVector<unsigned, 2> dims;                    ///< of rows and columns
    int64_t rowStep = 0, columnStep = 0, firstLine = 0;     ///< line = firstLine + row * rowStep + column * columnStep
    llvm::SmallVector<std::pair<int64_t, int64_t>, 4> runs; ///< the first line of each, and an entry of it
  };
  /// What several readers of a function have in common.
  struct Shared {
    unsigned numSteps = 0; ///< that they may take together, counted down
    llvm::DenseMap<mlir::Value, std::optional<Runs>> runs;
  };

  CaseReader(const mlir::SymbolTable &symbols, const WeightStore *weights, Shared &shared)
      : symbols(symbols), weights(weights), shared(shared) {}

  /// A variable from 0 to below `size`, which `everywhere` then guards.
  unsigned addVariable(const Linear &size);
  /// The variables so far are those that may be cut.
  void closeCuttable() { numCuttable = sizes.size(); }
  /// The size of a dimension: a number, or a multiple of a variable that stands for an open size.
  Linear getSize(mlir::Value tensor, int64_t dim);
  Linear getSize(mlir::OpFoldResult size) { return linearOf(Extent::of(size)); }
  const Guards &everywhere() const { return common; }

  /// What is followed: only moves of elements, not what computes other numbers; all but the terms of products; all.
  enum class Follow { moves, elementwise, all };
  void follow(Follow what) { followed = what; }
  /// Does not look into flattened tensors that floats are gathered from either. Without this, only where an index may
  /// be none.
  void stopAtGathers(bool stops) { stopsAtGathers = stops; }
  /// A dimension of size 1 behind the insertion of one place may be a part of a tensor's: looks into such tensors.
  void lookIntoPoints(bool looks) { pointsAreParts = looks; }
  /// Does not look into `value`.
  void stopAt(mlir::Value value) { stops.insert(value); }
  /// A place that goes through all of a dimension of `size`.
  struct Coordinate {
    Linear place, size;
  };
  /// Does not look into tensors either that are read at one of these along each dimension, all of which it goes
  /// through.
  void stopAtCoordinates(llvm::ArrayRef<Coordinate> all) {
    coordinates.assign(all.begin(), all.end());
    ofProducts.clear();
  }
  /// Nor, among the operands of products, at this one.
  void stopInProductsAt(const Coordinate &coordinate) { ofProducts.push_back(coordinate); }

  /// The cases of an element of `tensor` where `guards` hold, each with guards of its own, in some order. Cases that
  /// cannot be told make the reader fail.
  void read(mlir::Value tensor, Place place, const Guards &guards, Take take);
  void fail() { hasFailed = true; }
  bool isFailed() const { return hasFailed; }
  /// Why it failed, if a coordinate in two would help.
  std::optional<Cut> getCut() const { return cut; }

  /// Whether both are the same where `guards` hold.
  bool isSame(const CaseExpr &a, const CaseExpr &b, const Guards &guards);
  /// `expr` with `number` in the place of what is read of `tensor`.
  CaseExprRef substitute(const CaseExprRef &expr, mlir::Value tensor, const CaseExprRef &number);

  static CaseExprRef makeNumber(mlir::FloatAttr number);
  /// A float, an integer, or a bool; null for other attributes.
  static CaseExprRef makeConstant(mlir::Attribute constant);
  static CaseExprRef makeInteger(mlir::Type type, const Linear &value);
  static CaseExprRef makeRead(mlir::Value tensor, Place place);
  static CaseExprRef makeUnknown(mlir::Type type);

private:
  using TakePlace = llvm::function_ref<void(const Guards &, Place)>;
  using TakeParts = llvm::function_ref<void(const Guards &, const Linear &quotient, const Linear &rest)>;
  using TakeAll = llvm::function_ref<void(const Guards &, llvm::ArrayRef<CaseExprRef>)>;

  /// The places of the loops of a linalg op, and the op.
  struct Point {
    mlir::linalg::LinalgOp op;
    llvm::SmallVector<Linear> loops;
  };

  /// Which coordinates the places of an element are, 0 along dimensions of size 1; none where one is no coordinate.
  std::optional<llvm::SmallVector<Linear>> findCoordinates(mlir::Value tensor, Place place, const Guards &guards);

  void readSlice(mlir::tensor::ExtractSliceOp op, Place place, const Guards &guards, Take take);
  void readInserted(mlir::tensor::InsertSliceOp op, Place place, const Guards &guards, Take take);
  void readExpanded(mlir::tensor::ExpandShapeOp op, Place place, const Guards &guards, Take take);
  void readCollapsed(mlir::tensor::CollapseShapeOp op, Place place, const Guards &guards, Take take);
  void readGroups(mlir::tensor::CollapseShapeOp op, llvm::ArrayRef<mlir::ReassociationIndices> groups, Place place,
                  llvm::SmallVector<Linear> &source, const Guards &guards, Take take);
  void readLinalg(mlir::linalg::LinalgOp op, Place place, const Guards &guards, Take take);
  void readProduct(const Point &point, const Guards &guards, Take take);
  void readGathered(mlir::tensor::ExtractOp op, llvm::ArrayRef<CaseExprRef> indices, const Guards &guards, Take take);
  void readConstant(mlir::Value tensor, Place place, const Guards &guards, Take take);
  static std::optional<Runs> findRuns(mlir::Value tensor, const ConstantTable &table);
  /// Entries that are the same along lines of the table.
  void readRuns(mlir::Value tensor, const ConstantTable &table, Place place, const Guards &guards, Take take);
  /// An operand of the op at a point of its loops.
  void readOperand(mlir::OpOperand *operand, const Point &point, const Guards &guards, Take take);

  void evaluate(mlir::Value scalar, const Point &point, const Guards &guards, Take take);
  void evaluateAll(mlir::ValueRange scalars, const Point &point, const Guards &guards,
                   llvm::SmallVector<CaseExprRef> &done, TakeAll take);
  void evaluateOp(mlir::Operation *op, const Point &point, const Guards &guards, Take take);
  void compare(mlir::Operation *op, llvm::ArrayRef<CaseExprRef> operands, const Guards &guards, Take take);
  /// The integer that an op on integers gives; null where it is not linear.
  CaseExprRef computeInteger(mlir::Operation *op, llvm::ArrayRef<CaseExprRef> operands, const Guards &guards);
  CaseExprRef applyOp(mlir::Operation *op, llvm::ArrayRef<CaseExprRef> operands);

  /// Cuts a place into those along dimensions of these sizes, of which but one are numbers.
  void delinearize(const Linear &whole, llvm::ArrayRef<Linear> extents, const Guards &guards, TakePlace take);
  void divide(const Linear &number, int64_t divisor, const Guards &guards, TakeParts take);
  void splitAtZero(const Linear &number, const Guards &guards, Take take, const CaseExprRef &below,
                   const CaseExprRef &above);
  std::optional<Cut> findCut(const Linear &number, int64_t divisor) const;
  Linear linearOf(const Extent &extent);
  std::optional<Linear> linearOf(mlir::AffineExpr expr, llvm::ArrayRef<Linear> loops);

  const mlir::SymbolTable &symbols;
  const WeightStore *weights;
  Shared &shared;
  Guards common;
  llvm::SmallVector<Linear> sizes; ///< of the variables
  llvm::SmallVector<std::pair<Extent, unsigned>> openSizes;
  llvm::SmallVector<std::pair<mlir::Operation *, unsigned>> summed;
  llvm::DenseSet<mlir::Value> stops;
  llvm::SmallVector<Coordinate> coordinates, ofProducts;
  std::optional<Cut> cut;
  Follow followed = Follow::all;
  bool hasFailed = false, stopsAtGathers = false, pointsAreParts = false;
  bool readsIndex = false; ///< what is read is an index
  bool readsPoint = false; ///< what is read is one place along a dimension, which does not tell which
  unsigned depth = 0, numCuttable = 0;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_CASES_H
