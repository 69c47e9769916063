#include "passes/graph/decompose/DecomposeMask.h"

#include "dialects/attn/MaskTerms.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/decompose/AttentionDecomposer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;

namespace attn {

namespace {

using Dim = AttentionOp::Dim;

/// An operand's values beyond this are as good as it, and sums do not overflow.
constexpr int64_t kMaxBound = int64_t(1) << 40;

class VisibilityEmitter {
public:
  VisibilityEmitter(OpBuilder &b, Location loc, AttentionOp op, ArrayRef<OpFoldResult> sizes)
      : b(b), loc(loc), op(op), sizes(sizes) {}

  MappedTensor emit();

private:
  void collectDims(const MaskTerm &term);
  Index index(Code &k, unsigned dim) {
    auto at = llvm::find(dims, dim);
    return at == dims.end() ? k.index(0) : loopIndex(k, at - dims.begin());
  }
  Num extract(Code &k, const MaskTerm &term, Value last = {});
  Index integer(const Num &scalar);
  Value tableOf(const MaskTerm &term);
  Mask isWithin(Code &k, const KeyBound &bound, Num place);
  Index limitOf(Code &k, const KeyBound &bound, const Num &operand);
  /// The test of a term that is no list of blocks.
  Mask test(Code &k, const MaskTerm &term);

  OpBuilder &b;
  Location loc;
  AttentionOp op;
  ArrayRef<OpFoldResult> sizes;
  SmallVector<unsigned> dims; ///< loops: those of b, h, i, j that the mask depends on
};

void VisibilityEmitter::collectDims(const MaskTerm &term) {
  llvm::SmallBitVector used(AttentionOp::kDims);
  for (unsigned dim : dims)
    used.set(dim);
  used.set(Dim::J);
  if (term.operand)
    for (unsigned dim : {Dim::B, Dim::H, Dim::I})
      if (AttentionOp::names(term.map, dim))
        used.set(dim);
  if (!isTable(term.term) && dependsOnQuery(term.term))
    used.set(Dim::I);
  dims.clear();
  for (unsigned dim : used.set_bits())
    dims.push_back(dim);
}

/// The operand's element at the loop point (and at `last` of its own last dimension).
Num VisibilityEmitter::extract(Code &k, const MaskTerm &term, Value last) {
  SmallVector<Value> indices;
  for (AffineExpr expr : term.map.getResults()) {
    std::optional<unsigned> dim = AttentionOp::getNamedDim(expr);
    Index at = dim ? index(k, *dim) : k.index(0);
    if (int64_t c = AttentionOp::getDivisor(expr); c > 1)
      at = at / c;
    indices.push_back(at);
  }
  if (last)
    indices.push_back(last);
  return elementAt(k, term.operand, indices);
}

/// An integer as an index in [-2^40, 2^40].
Index VisibilityEmitter::integer(const Num &scalar) { return minimum(maximum(toIndex(scalar), -kMaxBound), kMaxBound); }

/// Whether the key is within `bound` of a place that may be a fraction.
Mask VisibilityEmitter::isWithin(Code &k, const KeyBound &bound, Num place) {
  if (cast<FloatType>(place.type()).getWidth() < 32)
    place = convert(place, k.b.getF32Type());
  Num distance = convert(toNum(index(k, Dim::J), k.b.getI64Type()), place.type()) - place;
  // A place that is NaN shows nothing.
  auto limit = static_cast<double>(bound.offset);
  return bound.isUpper ? distance <= limit : distance >= limit;
}

/// The first or last key that a term shows.
Index VisibilityEmitter::limitOf(Code &k, const KeyBound &bound, const Num &operand) {
  Index limit = k.index(bound.offset);
  if (operand.value())
    limit = integer(operand) + limit;
  if (!bound.movesWithQuery)
    return limit;
  Index query = index(k, Dim::I);
  return (bound.step == 1 ? query : floorTo(query, bound.step)) + limit;
}

Mask VisibilityEmitter::test(Code &k, const MaskTerm &term) {
  Num operand = term.operand ? extract(k, term) : Num();
  if (isTable(term.term))
    return operand != 0;
  Mask visible = k.truth(true);
  for (const KeyBound &bound : getKeyBounds(term.term)) {
    if (operand.value() && operand.isFloating()) {
      visible = visible & isWithin(k, bound, operand);
      continue;
    }
    Index key = index(k, Dim::J), limit = limitOf(k, bound, operand);
    visible = visible & (bound.isUpper ? key <= limit : key >= limit);
  }
  return visible;
}

/// A list of blocks as a table: i8 over `dims`, 1 where the key's block is listed.
Value VisibilityEmitter::tableOf(const MaskTerm &term) {
  auto blocks = cast<BlocksAttr>(term.term);
  int64_t rank = cast<RankedTensorType>(term.operand.getType()).getRank(), loops = dims.size();
  // The list's own dimension is the last loop; an empty tensor gives its size.
  SmallVector<OpFoldResult> shape;
  for (unsigned dim : dims)
    shape.push_back(sizes[dim]);
  Value counter = emptyTensor(b, loc, {tensor::getMixedSize(b, loc, term.operand, rank - 1)}, b.getI8Type());
  Value start = filledTensor(b, loc, shape, b.getI8IntegerAttr(0));
  AffineMap all = b.getMultiDimIdentityMap(loops + 1);
  return reduction(b, loc, counter, all.getMinorSubMap(1), start, all.getMajorSubMap(loops),
                   formula([&](Code &k, ArrayRef<Num> x) {
                     Index listed = integer(extract(k, term, loopIndex(k, loops)));
                     Mask isListed = listed == index(k, Dim::J) / blocks.getColumns();
                     return x[1] | toNum(isListed, k.b.getI8Type());
                   }));
}

MappedTensor VisibilityEmitter::emit() {
  SmallVector<MaskTerm> terms = op.getMaskTerms();
  for (const MaskTerm &term : terms)
    collectDims(term);
  SmallVector<Value> tables;
  SmallVector<OpFoldResult> shape;
  for (unsigned dim : dims)
    shape.push_back(sizes[dim]);
  for (const MaskTerm &term : terms)
    if (isa<BlocksAttr>(term.term))
      tables.push_back(tableOf(term));
  SmallVector<AffineMap> maps(tables.size(), b.getMultiDimIdentityMap(dims.size()));
  auto isVisible = formula([&](Code &k, ArrayRef<Num> entries) {
    Mask shown = k.truth(true), near = shown;
    std::optional<Mask> prefix;
    for (const Num &entry : entries)
      shown = shown & (entry != 0);
    for (const MaskTerm &term : terms) {
      if (isa<BlocksAttr>(term.term))
        continue;
      Mask one = test(k, term);
      MaskJoin join = getMaskJoin(term.term);
      if (join == MaskJoin::prefix)
        prefix = prefix ? *prefix | one : one;
      else if (join == MaskJoin::near)
        near = near & one;
      else
        shown = shown & one;
    }
    if (prefix)
      near = near | *prefix;
    return toNum(shown & near, k.b.getI8Type());
  });
  return {elementwise(b, loc, shape, b.getI8Type(), tables, maps, isVisible), mapOf(b, dims)};
}

} // namespace

MappedTensor emitVisibility(OpBuilder &b, Location loc, AttentionOp op, ArrayRef<OpFoldResult> sizes) {
  return VisibilityEmitter(b, loc, op, sizes).emit();
}

} // namespace attn
