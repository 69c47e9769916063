#ifndef PASSES_GRAPH_ELEMENT_ELEMENT_H
#define PASSES_GRAPH_ELEMENT_ELEMENT_H

#include "dialects/attn/AttnOps.h"
#include "passes/graph/element/Access.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineMap.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <utility>

// What one element of a tensor is, as an expression of what it is computed from.
//
// An element is a value and the place at which it is read. A reader follows it to the op that computes it: through
// views, bodies of elementwise ops, slices and the captures of an attention. What the operands of that op are is asked
// in the same way, so an analysis (a domain) is one rule for each scalar op, and knows nothing of layouts.
//
//     %1 = expand_shape %x ..., %2 = transpose %1, generic reads %2: exp(%in)
//     the element of the result at (d0, d1)  ->  exp  ->  %x at (d1, d0)
//
// Affine maps are unique, so two reads of one element are equal, and a table of elements is a table of expressions.
// So are two reads through reshapes: a place that is cut in digits and joined again is that place.

namespace attn {

/// An element of a tensor, or a scalar in the body of an op at a point of its loops. `at` makes the tensor's
/// coordinates, or the loops, of those of the root and of inner places.
struct Element {
  mlir::Value value;
  mlir::AffineMap at;

  friend bool operator==(const Element &a, const Element &b) { return a.value == b.value && a.at == b.at; }
  /// What computes it: an op of a body, or the op whose result is not looked into; null for an argument.
  mlir::Operation *getOp() const { return value.getDefiningOp(); }
};

class ElementReader {
public:
  /// A place along a dimension that no affine expression of the root's coordinates says. Two reads of it are one place.
  struct Inner {
    mlir::Operation *op = nullptr;    ///< what makes it
    unsigned number = 0;              ///< which of those that `op` makes
    mlir::AffineMap from = {};        ///< made of these, where they are given
    mlir::OpFoldResult offset = {};   ///< it is this index
    std::optional<Extent> width = {}; ///< it is row * width + column, where `from` is (row, column)
    /// It is a digit of `from`: that divided by this, and modulo its size but for the leading one.
    std::optional<Extent> divisor = {}, size = {};
    bool operator==(const Inner &other) const;
  };

  /// Elements of `root` by its coordinates, or scalars in the regions of an attention by its dimensions.
  explicit ElementReader(mlir::Value root);
  explicit ElementReader(AttentionOp root);

  /// The element of the root at its own coordinates, or the scalar of the attention's region.
  Element at(mlir::Value value);
  Element at(mlir::Value tensor, llvm::ArrayRef<mlir::AffineExpr> places);

  /// Does not follow `value` any further.
  void stopAt(mlir::Value value) { stops.insert(value); }
  /// What `element` is one step nearer to what computes it, if it is not there.
  std::optional<Element> step(const Element &element);
  /// `element`, followed to what computes it. `passes` is called with each tensor on the way.
  Element resolve(Element element, llvm::function_ref<void(mlir::Value)> passes = nullptr);
  /// The same, also through changes between float types.
  Element strip(Element element);
  /// What computes a condition: bools of the graph are bytes, and what reads them tests that they are not 0.
  Element condition(Element element);
  /// The element of a tensor that `element`, in a body, is but for changes between float types.
  std::optional<Element> tensor(Element element);
  /// Whether both are one element.
  bool isSame(const Element &a, const Element &b);

  /// Operand `n` of the op in a body that computes `element`.
  Element operand(const Element &element, unsigned n) { return scalar(element, element.getOp()->getOperand(n)); }
  /// `value`, which the body or region around `element` reads at the same point.
  Element scalar(const Element &element, mlir::Value value);
  /// The elements of tensors that the op behind `element` reads to compute it: of each part of a concatenation, of each
  /// input of a reduction at a point of its loops, of the tensor of an extract at some place.
  llvm::SmallVector<Element> sources(const Element &element);

  /// Some element of `tensor`.
  Element somewhere(mlir::Value tensor);

  mlir::AffineExpr inner(const Inner &place);
  /// Along a dimension of size 1 of the root, or such a loop of a reduction.
  bool isUnit(mlir::AffineExpr place) const;
  /// `place`, or 0 where it is the only one.
  mlir::AffineExpr plain(mlir::AffineExpr place) const;
  /// What an inner place is; null for a coordinate of the root.
  const Inner *getInner(mlir::AffineExpr place) const;
  unsigned numPlaces() const { return rank + inners.size(); }
  unsigned numRootPlaces() const { return rank; }

protected:
  /// A slice is another tensor.
  void stopAtSlices() { followsSlices = false; }
  /// The place of which both are digits beside each other.
  std::optional<mlir::AffineExpr> joinDigits(mlir::AffineExpr major, mlir::AffineExpr minor);

private:
  Element slice(mlir::tensor::ExtractSliceOp op, const Element &element);
  Element expand(mlir::tensor::ExpandShapeOp op, const Element &element);
  Element collapse(mlir::tensor::CollapseShapeOp op, const Element &element);
  /// Places along dimensions of these extents of which `whole` is the one along all of them.
  llvm::SmallVector<mlir::AffineExpr> cut(mlir::AffineExpr whole, llvm::ArrayRef<Extent> extents);
  mlir::AffineExpr join(mlir::AffineExpr row, mlir::AffineExpr column, const Extent &width);

  mlir::MLIRContext *context;
  unsigned rank;
  llvm::SmallVector<int64_t> shape; ///< of the root, if it is a tensor
  llvm::SmallVector<Inner> inners;
  llvm::DenseSet<mlir::Value> stops;
  bool followsSlices = true;
};

/// An analysis: a fact for each element. Elements that are computed in more than kMaxDepth steps have the fact
/// `unknown`.
template <typename Fact> class ElementDomain {
public:
  Fact of(const Element &element) {
    Element e = reader.resolve(element);
    auto key = std::pair(e.value, e.at);
    if (auto it = known.find(key); it != known.end())
      return it->second;
    if (depth == kMaxDepth)
      return unknown;
    ++depth;
    auto given = assumed.find(e.value);
    Fact fact = given != assumed.end() ? given->second : compute(e);
    --depth;
    known.insert({key, fact});
    return fact;
  }

  /// Takes `scalar`, of a body or a region of the reader's attention, to be this, whatever makes it.
  void assume(mlir::Value scalar, Fact fact) {
    reader.stopAt(scalar);
    assumed.insert_or_assign(scalar, fact);
  }

protected:
  ElementDomain(ElementReader &reader, Fact unknown) : reader(reader), unknown(unknown) {}
  ~ElementDomain() = default;

  /// The rule of the op that computes `element`, which is resolved.
  virtual Fact compute(const Element &element) = 0;
  Fact ofOperand(const Element &element, unsigned n) { return of(reader.operand(element, n)); }

  ElementReader &reader;
  const Fact unknown;

private:
  static constexpr unsigned kMaxDepth = 200;
  llvm::DenseMap<std::pair<mlir::Value, mlir::AffineMap>, Fact> known;
  llvm::DenseMap<mlir::Value, Fact> assumed;
  unsigned depth = 0;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_ELEMENT_H
