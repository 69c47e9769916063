#ifndef PASSES_GRAPH_ELEMENT_ACCESS_H
#define PASSES_GRAPH_ELEMENT_ACCESS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

// How a point of a loop nest reads a tensor, followed upwards through views.
//
// The loops are "atoms". Each dimension of a tensor is read at a list of atoms,
// the most significant first: [b, h] reads at b * |h| + h. With that, every
// transpose permutes lists, expand_shape joins lists, collapse_shape cuts one
// (splitting an atom where a cut falls inside it), and a broadcast drops lists.
// So however an exporter has spelled a head split, a merge of batch and heads
// or a transposed key, the source is found with its layout, and no chain of
// ops has to be enumerated:
//
//     %0 = expand_shape %x [[0], [1], [2, 3]]     [b][s][h d]     <- found
//     %1 = transpose %0 [0, 2, 1, 3]              [b][s][h][d]
//     %2 = collapse_shape %1 [[0, 1], [2], [3]]   [b][h][s][d]
//     contract reads %2 as (n, s, d)              [n][s][d], n splits into b, h
//
// A dimension of static size 1 has the empty list.

namespace attn {

/// A number of elements: a constant times sizes known by name. Two extents are
/// equal when they are proved to be.
class Extent {
public:
  Extent() = default;
  explicit Extent(int64_t constant) : factor(constant) {}
  /// Size of a dimension of `tensor`, traced to where it comes from; entry
  /// arguments' dimensions of one name (attn.dims) are one size.
  static Extent of(mlir::Value tensor, int64_t dim);
  static Extent of(mlir::OpFoldResult size);

  bool isOne() const { return factor == 1 && symbols.empty(); }
  /// The constant that the sizes known by name are multiplied by.
  int64_t getFactor() const { return factor; }
  std::optional<int64_t> constant() const { return symbols.empty() ? std::optional(factor) : std::nullopt; }
  friend Extent operator*(const Extent &a, const Extent &b);
  friend bool operator==(const Extent &a, const Extent &b);
  /// Whether this one is `b` + `count`, where it can be proved.
  bool isMoreBy(int64_t count, const Extent &b) const;
  /// The extent that times `b` is this one, where it can be proved.
  std::optional<Extent> dividedBy(const Extent &b) const;
  mlir::OpFoldResult materialize(mlir::OpBuilder &b, mlir::Location loc) const;

private:
  /// Dimension `dim` of a tensor, or (dim < 0) an index value.
  struct Symbol {
    mlir::Value value;
    int64_t dim;
    bool operator==(const Symbol &other) const { return value == other.value && dim == other.dim; }
  };
  int64_t factor = 1;
  llvm::SmallVector<Symbol, 2> symbols;
};

using Atoms = llvm::SmallVector<unsigned, 2>;
/// One list of atoms a dimension.
using Access = llvm::SmallVector<Atoms, 4>;

/// Whether `test` takes an atom that `access` names.
inline bool namesAny(const Access &access, llvm::function_ref<bool(unsigned)> test) {
  return llvm::any_of(access, [&](const Atoms &atoms) { return llvm::any_of(atoms, test); });
}
inline bool names(const Access &access, unsigned atom) {
  return namesAny(access, [&](unsigned other) { return other == atom; });
}

/// The atoms of one match. Splitting an atom replaces it in every access that
/// is resolved afterwards.
class AtomSpace {
public:
  /// A fresh atom, or the empty list when `extent` is 1.
  Atoms add(const Extent &extent);
  const Extent &getExtent(unsigned atom) const { return entries[atom].extent; }

  void resolve(Atoms &atoms) const;
  void resolve(Access &access) const;

  /// `value`, read at `access`, is a view of (or moves elements of) another
  /// tensor: makes them that tensor and how it is read. False, and nothing
  /// changed, where `value` is no view or a cut cannot be proved.
  bool stepUp(mlir::Value &value, Access &access);
  /// stepUp as often as possible.
  void walkUp(mlir::Value &value, Access &access) {
    while (stepUp(value, access)) {
    }
  }
  /// How `operand` is read when the result of `op`, an op with parallel loops
  /// only (or any loops, given as `loops`), is read at `access`.
  static std::optional<Access> operandAccess(mlir::AffineMap operandMap, llvm::ArrayRef<Atoms> loops);
  /// Atoms of the loops of `op` when its result is read at `access`; loops that
  /// the result does not name stay empty.
  static llvm::SmallVector<Atoms> loopAtoms(mlir::linalg::LinalgOp op, const Access &access);

  /// How `input` of an op with parallel loops only is read when its result is read at `result`.
  std::optional<Access> readInput(mlir::OpOperand &input, Access result) const;

  /// Cuts `atoms` into one list for each of `extents`, splitting atoms where
  /// needed (not if `maySplit` is false).
  std::optional<llvm::SmallVector<Atoms>> cut(Atoms atoms, llvm::ArrayRef<Extent> extents, bool maySplit = true);

private:
  struct Entry {
    Extent extent;
    Atoms parts; // not empty once the atom is split
  };
  llvm::SmallVector<Entry> entries;
};

/// Whether `slice`, in steps of 1, is all of `whole` along each dimension but `dim`.
bool isWholeBeside(mlir::OffsetSizeAndStrideOpInterface slice, mlir::Value whole, int64_t dim);

/// A part of a concatenation along one dimension: where in it the part begins, and its size.
struct ConcatPart {
  mlir::Value source;
  int64_t offset, size;
};

/// The parts, in order, of `value`, all of which is put together along `dim` from parts of known sizes; none where it
/// is not.
llvm::SmallVector<ConcatPart> concatParts(mlir::Value value, int64_t dim);

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_ACCESS_H
