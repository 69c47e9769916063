#include "passes/graph/decompose/DecomposeMask.h"

#include "dialects/attn/MaskTerms.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;

namespace attn {

Value isSet(OpBuilder &b, Location loc, Value scalar) {
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, scalar,
                               arith::ConstantIntOp::create(b, loc, scalar.getType(), 0));
}

namespace {

using Dim = AttentionOp::Dim;
using Predicate = arith::CmpIPredicate;

/// An operand's values beyond this are as good as it, and sums do not overflow.
constexpr int64_t kMaxBound = int64_t(1) << 40;

class VisibilityEmitter {
public:
  VisibilityEmitter(OpBuilder &b, Location loc, AttentionOp op, ArrayRef<OpFoldResult> sizes)
      : b(b), loc(loc), op(op), sizes(sizes) {}

  MappedTensor emit();

private:
  void collectDims(const MaskTerm &term);
  Value index(OpBuilder &b, unsigned dim) {
    auto at = llvm::find(dims, dim);
    return at == dims.end() ? Value(arith::ConstantIndexOp::create(b, loc, 0))
                            : Value(linalg::IndexOp::create(b, loc, at - dims.begin()));
  }
  Value constant(OpBuilder &b, int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value compare(OpBuilder &b, Predicate predicate, Value x, Value y) {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  }
  Value extract(OpBuilder &b, const MaskTerm &term, Value last = {});
  Value integer(OpBuilder &b, Value scalar);
  Value tableOf(const MaskTerm &term);
  Value isWithin(OpBuilder &b, const KeyBound &bound, Value place);
  Value limitOf(OpBuilder &b, const KeyBound &bound, Value operand);
  /// The test of a term that is no list of blocks.
  Value test(OpBuilder &b, const MaskTerm &term);

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
Value VisibilityEmitter::extract(OpBuilder &b, const MaskTerm &term, Value last) {
  SmallVector<Value> indices;
  for (AffineExpr expr : term.map.getResults()) {
    std::optional<unsigned> dim = AttentionOp::getNamedDim(expr);
    Value at = dim ? index(b, *dim) : constant(b, 0);
    if (int64_t c = AttentionOp::getDivisor(expr); c > 1)
      at = arith::DivUIOp::create(b, loc, at, constant(b, c));
    indices.push_back(at);
  }
  if (last)
    indices.push_back(last);
  return tensor::ExtractOp::create(b, loc, term.operand, indices);
}

/// An integer as an index in [-2^40, 2^40].
Value VisibilityEmitter::integer(OpBuilder &b, Value scalar) {
  if (!scalar.getType().isIndex())
    scalar = arith::IndexCastOp::create(b, loc, b.getIndexType(), scalar);
  scalar = arith::MaxSIOp::create(b, loc, scalar, constant(b, -kMaxBound));
  return arith::MinSIOp::create(b, loc, scalar, constant(b, kMaxBound));
}

/// Whether the key is within `bound` of a place that may be a fraction.
Value VisibilityEmitter::isWithin(OpBuilder &b, const KeyBound &bound, Value place) {
  auto type = cast<FloatType>(place.getType());
  if (type.getWidth() < 32) {
    type = b.getF32Type();
    place = convertFloat(b, loc, place, type);
  }
  Value j = arith::IndexCastOp::create(b, loc, b.getI64Type(), index(b, Dim::J));
  Value distance = arith::SubFOp::create(b, loc, arith::SIToFPOp::create(b, loc, type, j), place);
  // A place that is NaN shows nothing.
  auto predicate = bound.isUpper ? arith::CmpFPredicate::OLE : arith::CmpFPredicate::OGE;
  Value limit = floatConstant(b, loc, type, static_cast<double>(bound.offset));
  return arith::CmpFOp::create(b, loc, predicate, distance, limit);
}

/// The first or last key that a term shows.
Value VisibilityEmitter::limitOf(OpBuilder &b, const KeyBound &bound, Value operand) {
  Value limit = constant(b, bound.offset);
  if (operand)
    limit = b.createOrFold<arith::AddIOp>(loc, integer(b, operand), limit);
  if (!bound.movesWithQuery)
    return limit;
  Value query = index(b, Dim::I);
  if (bound.step != 1) {
    Value step = constant(b, bound.step);
    query = arith::MulIOp::create(b, loc, arith::DivUIOp::create(b, loc, query, step), step);
  }
  return arith::AddIOp::create(b, loc, query, limit);
}

Value VisibilityEmitter::test(OpBuilder &b, const MaskTerm &term) {
  Value operand = term.operand ? extract(b, term) : Value();
  if (isTable(term.term))
    return isSet(b, loc, operand);
  Value visible = arith::ConstantIntOp::create(b, loc, b.getI1Type(), 1);
  for (const KeyBound &bound : getKeyBounds(term.term)) {
    Value inside;
    if (operand && isa<FloatType>(operand.getType()))
      inside = isWithin(b, bound, operand);
    else
      inside =
          compare(b, bound.isUpper ? Predicate::sle : Predicate::sge, index(b, Dim::J), limitOf(b, bound, operand));
    visible = b.createOrFold<arith::AndIOp>(loc, visible, inside);
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
                   [&](OpBuilder &b, Location, ValueRange args) -> Value {
                     Value listed = integer(b, extract(b, term, linalg::IndexOp::create(b, loc, loops)));
                     Value own = arith::DivUIOp::create(b, loc, index(b, Dim::J), constant(b, blocks.getColumns()));
                     Value isListed = compare(b, Predicate::eq, listed, own);
                     Value one = arith::ExtUIOp::create(b, loc, b.getI8Type(), isListed);
                     return arith::OrIOp::create(b, loc, args[1], one);
                   });
}

MappedTensor VisibilityEmitter::emit() {
  SmallVector<MaskTerm> terms = op.getMaskTerms();
  for (const MaskTerm &term : terms)
    collectDims(term);
  SmallVector<Value> tables;
  SmallVector<OpFoldResult> shape;
  SmallVector<AffineExpr> exprs;
  for (unsigned dim : dims) {
    shape.push_back(sizes[dim]);
    exprs.push_back(b.getAffineDimExpr(dim));
  }
  for (const MaskTerm &term : terms)
    if (isa<BlocksAttr>(term.term))
      tables.push_back(tableOf(term));
  SmallVector<AffineMap> maps(tables.size(), b.getMultiDimIdentityMap(dims.size()));
  Value visible = elementwise(
      b, loc, shape, b.getI8Type(), tables, maps, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
        Value shown = arith::ConstantIntOp::create(b, loc, b.getI1Type(), 1), near = shown, prefix;
        for (Value entry : args.take_front(tables.size()))
          shown = arith::AndIOp::create(b, loc, shown, isSet(b, loc, entry));
        for (const MaskTerm &term : terms) {
          if (isa<BlocksAttr>(term.term))
            continue;
          Value one = test(b, term);
          MaskJoin join = getMaskJoin(term.term);
          if (join == MaskJoin::prefix)
            prefix = prefix ? Value(arith::OrIOp::create(b, loc, prefix, one)) : one;
          else if (join == MaskJoin::near)
            near = arith::AndIOp::create(b, loc, near, one);
          else
            shown = arith::AndIOp::create(b, loc, shown, one);
        }
        if (prefix)
          near = arith::OrIOp::create(b, loc, near, prefix);
        return arith::ExtUIOp::create(b, loc, b.getI8Type(), arith::AndIOp::create(b, loc, shown, near));
      });
  return {visible, AffineMap::get(AttentionOp::kDims, 0, exprs, b.getContext())};
}

} // namespace

MappedTensor emitVisibility(OpBuilder &b, Location loc, AttentionOp op, ArrayRef<OpFoldResult> sizes) {
  return VisibilityEmitter(b, loc, op, sizes).emit();
}

} // namespace attn
