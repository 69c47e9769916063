// How tensors have the dimensions of an attention.

#include "passes/graph/Structured.h"
#include "passes/graph/attention/AttentionBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {
/// What the dimensions of a tensor are made of.
struct AttentionBuilder::Pieces {
  /// Atoms of one dimension of the attention side by side; of none: of size 1.
  struct Piece {
    std::optional<unsigned> dim;
    Atoms atoms;
  };
  SmallVector<Piece> pieces;
  SmallVector<ReassociationIndices> groups; ///< those of each dimension of the tensor
  SmallVector<OpFoldResult> sizes;
};

/// The runs of atoms that the dimensions of `operand` are.
LogicalResult AttentionBuilder::cut(const Operand &operand, Pieces &found, StringRef what) {
  for (const Atoms &atoms : operand.access) {
    found.groups.emplace_back();
    size_t at = 0;
    do {
      found.groups.back().push_back(found.pieces.size());
      if (atoms.empty()) {
        found.pieces.push_back({std::nullopt, {}});
        found.sizes.push_back(b.getIndexAttr(1));
        break;
      }
      auto run = segment(atoms, at);
      if (!run)
        return fail("the " + what + " has a dimension of its own", operand.value.getLoc());
      at += run->second.size();
      found.pieces.push_back({run->first, run->second});
      found.sizes.push_back(size(run->second));
    } while (at < atoms.size());
  }
  return success();
}

/// The unit dimension that stands for `dim`, which has size 1: the last one that the operand, of type `type`, has, or a
/// new one at its end.
void AttentionBuilder::nameUnit(Pieces &found, unsigned dim, RankedTensorType type) {
  for (size_t n = found.pieces.size(); n != 0; --n)
    if (!found.pieces[n - 1].dim && type.getRank() == int64_t(found.pieces.size()) && type.getDimSize(n - 1) == 1) {
      found.pieces[n - 1].dim = dim;
      return;
    }
  if (!found.groups.empty())
    found.groups.back().push_back(found.pieces.size());
  found.pieces.push_back({dim, {}});
  found.sizes.push_back(b.getIndexAttr(1));
}

/// Neighbours of one dimension become one: what `operand`, whose dimensions are `found`, is then.
void AttentionBuilder::joinNeighbours(Operand &operand, Pieces &found) {
  SmallVector<ReassociationIndices> joined;
  SmallVector<Pieces::Piece> whole;
  for (auto [n, piece] : llvm::enumerate(found.pieces)) {
    if (!whole.empty() && piece.dim && whole.back().dim == piece.dim) {
      joined.back().push_back(n);
      llvm::append_range(whole.back().atoms, piece.atoms);
      continue;
    }
    joined.push_back({static_cast<int64_t>(n)});
    whole.push_back(piece);
  }
  if (joined.size() != found.pieces.size())
    operand.value = tensor::CollapseShapeOp::create(b, loc, operand.value, joined);
  found.pieces = std::move(whole);
}

/// Where a dimension of a tensor that has `atoms` of `dim` is read: h = (group, member) at the group.
FailureOr<AffineExpr> AttentionBuilder::placeOf(unsigned dim, const Atoms &atoms) {
  AffineExpr expr = b.getAffineDimExpr(dim);
  const Unit &unit = units[dim];
  if (atoms == unit)
    return expr;
  if (dim != AttentionOp::H || atoms.size() >= unit.size() ||
      ArrayRef(unit).take_front(atoms.size()) != ArrayRef(atoms))
    return failure();
  int64_t divisor = 1;
  for (unsigned atom : ArrayRef(unit).drop_front(atoms.size()))
    divisor *= *extent(atom).constant();
  return expr.floorDiv(divisor);
}

/// Makes `operand` a tensor with one dimension of the attention a dimension,
/// by reshapes that move nothing, and its map. Dimensions in `mustName` that
/// it lacks have size 1 and take a unit dimension.
LogicalResult AttentionBuilder::arrange(Operand &operand, ArrayRef<unsigned> mustName, AffineMap &map, StringRef what) {
  if (!isa<RankedTensorType>(operand.value.getType()))
    operand.value = scalarTensor(b, loc, operand.value);
  Pieces found;
  if (failed(cut(operand, found, what)))
    return failure();
  for (unsigned dim : mustName)
    if (units[dim].empty())
      nameUnit(found, dim, cast<RankedTensorType>(operand.value.getType()));
  operand.value = expanded(b, loc, operand.value, found.groups, found.sizes);
  joinNeighbours(operand, found);

  SmallVector<AffineExpr> exprs;
  for (const Pieces::Piece &piece : found.pieces) {
    FailureOr<AffineExpr> place = piece.dim ? placeOf(*piece.dim, piece.atoms) : b.getAffineConstantExpr(0);
    if (failed(place))
      return fail("the " + what + " has part of a dimension", operand.value.getLoc());
    exprs.push_back(*place);
  }
  map = AffineMap::get(AttentionOp::kDims, 0, exprs, b.getContext());
  return success();
}

LogicalResult AttentionBuilder::assignIndices() {
  for (auto &[index, atoms] : match.indices) {
    match.space.resolve(atoms);
    if (atoms.empty()) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(index);
      index.getResult().replaceAllUsesWith(arith::ConstantIndexOp::create(b, index.getLoc(), 0));
      index.erase();
      continue;
    }
    auto run = segment(atoms, 0);
    if (!run || run->second != atoms || units[run->first] != atoms || run->first > AttentionOp::J)
      return fail("the region uses the index of part of a dimension", loc);
    index.setDim(run->first);
  }
  return success();
}

/// The dimensions of the attention in the order of `access`, where it takes each whole.
std::optional<SmallVector<unsigned>> AttentionBuilder::wholeDims(const Access &access) const {
  Atoms order = flatten(access);
  SmallVector<unsigned> dims;
  for (size_t at = 0; at < order.size();) {
    auto run = segment(order, at);
    if (!run || run->second != units[run->first])
      return std::nullopt;
    at += run->second.size();
    dims.push_back(run->first);
  }
  return dims;
}

/// `value` with dimensions `dims` of the attention as the tensor `into`, which
/// it replaces.
Value AttentionBuilder::toTarget(Value value, ArrayRef<unsigned> dims, const Operand &into) {
  auto target = cast<RankedTensorType>(into.value.getType());
  // Expand each dimension into the runs that the target's dimensions take.
  SmallVector<ReassociationIndices> expand(dims.size()), collapse, unit;
  SmallVector<OpFoldResult> runSizes, targetSizes;
  SmallVector<unsigned> runOf; // target dimension of each run, or -1 of a dimension of size 1
  for (auto [n, dim] : llvm::enumerate(dims)) {
    ArrayRef<unsigned> atoms = units[dim];
    if (atoms.empty()) {
      expand[n].push_back(runSizes.size());
      runSizes.push_back(b.getIndexAttr(1));
      runOf.push_back(-1);
    }
    for (size_t at = 0; at < atoms.size();) {
      auto owner = [&](unsigned atom) {
        return llvm::find_if(into.access, [&](const Atoms &list) { return llvm::is_contained(list, atom); }) -
               into.access.begin();
      };
      unsigned place = owner(atoms[at]);
      Atoms run;
      for (; at < atoms.size() && static_cast<unsigned>(owner(atoms[at])) == place; ++at)
        run.push_back(atoms[at]);
      expand[n].push_back(runSizes.size());
      runSizes.push_back(size(run));
      runOf.push_back(place);
    }
  }
  value = expanded(b, loc, value, expand, runSizes);
  // Join the runs of one target dimension; a dimension of size 1 joins what
  // stands before it (or after, at the front).
  unsigned last = -1;
  for (auto [n, place] : llvm::enumerate(runOf)) {
    bool joins = !collapse.empty() && (place == unsigned(-1) || last == unsigned(-1) || place == last);
    if (joins)
      collapse.back().push_back(n);
    else
      collapse.push_back({static_cast<int64_t>(n)});
    if (place != unsigned(-1))
      last = place;
  }
  if (last == unsigned(-1))
    collapse.clear();
  if (collapse.size() != runOf.size())
    value = tensor::CollapseShapeOp::create(b, loc, value, collapse);
  // Put back the target's unit dimensions.
  int64_t group = -1;
  unit.resize(collapse.size());
  for (auto [n, atoms] : llvm::enumerate(into.access)) {
    group += !atoms.empty();
    targetSizes.push_back(atoms.empty() ? OpFoldResult(b.getIndexAttr(1)) : size(atoms));
    if (!unit.empty())
      unit[std::max<int64_t>(group, 0)].push_back(n);
  }
  return castTo(b, loc, expanded(b, loc, value, unit, targetSizes), target);
}

} // namespace attn
