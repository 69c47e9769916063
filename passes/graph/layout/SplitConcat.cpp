#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/Access.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_SPLITCONCATPASS
#include "passes/Passes.h.inc"

namespace {

/// One part of a concatenation, and how it is read: `source` through `map` from
/// the dimensions of the concatenation (a repeated part lacks some of them).
struct Part {
  Value source;
  AffineMap map;
  int64_t offset, size;
};

/// The parts of `value`, the last one first, if it is a concatenation over `dim` of known sizes.
SmallVector<Part> getParts(Value value, int64_t dim) {
  SmallVector<Part> parts;
  AffineMap whole =
      AffineMap::getMultiDimIdentityMap(cast<RankedTensorType>(value.getType()).getRank(), value.getContext());
  SmallVector<ConcatPart> found = concatParts(value, dim);
  for (const ConcatPart &part : llvm::reverse(found))
    parts.push_back({part.source, whole, part.offset, part.size});
  return parts;
}

/// Reads `part` before it is repeated.
void readBeforeRepeat(Part &part) {
  auto repeat = part.source.getDefiningOp<linalg::LinalgOp>();
  OpOperand *moved = repeat ? getMovedInput(repeat) : nullptr;
  if (!moved)
    return;
  AffineMap written = repeat.getMatchingIndexingMap(repeat.getDpsInitOperand(0));
  AffineMap read = repeat.getMatchingIndexingMap(moved).compose(inversePermutation(written)).compose(part.map);
  if (!read.isProjectedPermutation())
    return;
  part.source = moved->get();
  part.map = read;
}

/// The two factors of `value`, a product of tensors each of which is repeated along a dimension of the other, and how
/// they are read.
std::optional<std::pair<Part, Part>> getFactors(Value value) {
  auto product = value.getDefiningOp<linalg::LinalgOp>();
  if (!product || !isPointwise(product) || product.getNumDpsInputs() != 2)
    return std::nullopt;
  auto multiply = product.getBlock()->getTerminator()->getOperand(0).getDefiningOp<arith::MulFOp>();
  if (!multiply || multiply.getLhs() == multiply.getRhs() || product.getBlock()->getOperations().size() != 2)
    return std::nullopt;
  AffineMap written = product.getMatchingIndexingMap(product.getDpsInitOperand(0));
  Part factors[2];
  for (unsigned n : {0, 1}) {
    OpOperand *input = product.getDpsInputOperand(n);
    AffineMap map = product.getMatchingIndexingMap(input).compose(inversePermutation(written));
    if (!isa<RankedTensorType>(input->get().getType()) || !map.isProjectedPermutation())
      return std::nullopt;
    factors[n] = {input->get(), map, 0, 0};
    readBeforeRepeat(factors[n]);
    if (factors[n].map.isPermutation())
      return std::nullopt;
  }
  for (unsigned dim = 0; dim != written.getNumResults(); ++dim)
    if (!factors[0].map.isFunctionOfDim(dim) && !factors[1].map.isFunctionOfDim(dim))
      return std::nullopt;
  return std::pair(factors[0], factors[1]);
}

/// Whether elementwise ops and views make `value` of the weights of a softmax.
bool isOfSoftmax(Value value) {
  return worklist(Values{value}, [](Value next, Values &list) {
    followTensors(next.getDefiningOp(), list);
    return static_cast<bool>(next.getDefiningOp<SoftmaxOp>());
  });
}

struct SplitConcatPass : impl::SplitConcatPassBase<SplitConcatPass> {
  void runOnOperation() override {
    for (linalg::ContractOp op : collect<linalg::ContractOp>(getOperation()))
      visit(op);
    for (linalg::ContractOp op : collect<linalg::ContractOp>(getOperation()))
      weighFactor(op);
  }

private:
  void visit(linalg::ContractOp op) {
    if (!op.hasPureTensorSemantics() || !isZeroFill(op.getDpsInits()[0]))
      return;
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    SmallVector<unsigned> sums;
    op.getReductionDims(sums);
    for (unsigned side : {0, 1})
      for (auto [dim, expr] : llvm::enumerate(maps[side].getResults())) {
        unsigned loop = cast<AffineDimExpr>(expr).getPosition();
        std::optional<unsigned> other = maps[1 - side].getResultPosition(getAffineDimExpr(loop, op.getContext()));
        if (!llvm::is_contained(sums, loop) || !other)
          continue;
        // Values of keys of several kinds: an attention weighs all of them at once.
        if (isOfSoftmax(op->getOperand(1 - side)))
          continue;
        SmallVector<Part> parts = getParts(op->getOperand(side), dim);
        if (parts.size() < 2)
          continue;
        llvm::for_each(parts, readBeforeRepeat);
        // Only where a part is repeated and its product need not be.
        if (llvm::all_of(parts, [](const Part &part) { return part.map.isPermutation(); }) ||
            !llvm::all_of(parts, [position = dim](const Part &part) { return part.map.isFunctionOfDim(position); }))
          continue;
        return split(op, side, *other, parts);
      }
  }

  /// sum_d w_d (a_d b_d) = sum_d (a_d w_d) b_d, where w is a vector. Not in f16, whose range a_d w_d may leave where no
  /// product of the graph does.
  void weighFactor(linalg::ContractOp op) {
    if (!op.hasPureTensorSemantics())
      return;
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    for (unsigned side : {0, 1}) {
      std::optional<std::pair<Part, Part>> factors = getFactors(op->getOperand(side));
      Value vector = op->getOperand(1 - side);
      Type element = getElementTypeOrSelf(vector);
      if (!factors || element.isF16() || getElementTypeOrSelf(op.getResult(0)) != element)
        continue;
      auto [weighed, other] = *factors;
      AffineMap read = weighed.map.compose(maps[side]), otherRead = other.map.compose(maps[side]);
      // Sizes and loops of the weighed factor: its own, and those of size 1 that the vector alone has.
      IRRewriter b(op);
      Location loc = op.getLoc();
      SmallVector<AffineExpr> places(op.getNumLoops(), b.getAffineConstantExpr(0)), made(read.getResults());
      for (auto [n, expr] : llvm::enumerate(read.getResults()))
        places[cast<AffineDimExpr>(expr).getPosition()] = b.getAffineDimExpr(n);
      SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, weighed.source);
      bool isVector = true;
      for (auto [n, expr] : llvm::enumerate(maps[1 - side].getResults())) {
        unsigned loop = cast<AffineDimExpr>(expr).getPosition();
        if (read.isFunctionOfDim(loop) && otherRead.isFunctionOfDim(loop) && !maps[2].isFunctionOfDim(loop))
          continue;
        isVector &= cast<RankedTensorType>(vector.getType()).getDimSize(n) == 1 && !maps[side].isFunctionOfDim(loop);
        places[loop] = b.getAffineDimExpr(sizes.size());
        sizes.push_back(b.getIndexAttr(1));
        made.push_back(expr);
      }
      if (!isVector)
        continue;
      auto inPlace = [&](AffineMap map) { return map.replaceDimsAndSymbols(places, {}, sizes.size(), 0); };
      Value product =
          elementwise(b, loc, sizes, element, {weighed.source, vector}, {inPlace(read), inPlace(maps[1 - side])},
                      [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                        return arith::MulFOp::create(b, loc, args[0], args[1]);
                      });
      b.replaceOpWithNewOp<linalg::ContractOp>(
          op, op->getResultTypes(), ValueRange{product, other.source}, op.getDpsInits(),
          b.getAffineMapArrayAttr({AffineMap::get(op.getNumLoops(), 0, made, b.getContext()), otherRead, maps[2]}));
      return;
    }
  }

  void split(linalg::ContractOp op, unsigned side, unsigned otherDim, ArrayRef<Part> parts) {
    IRRewriter b(op);
    Location loc = op.getLoc();
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    auto type = cast<RankedTensorType>(op.getResult(0).getType());
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, op.getDpsInits()[0]);
    SmallVector<Value> products;
    SmallVector<AffineMap> reads;
    for (const Part &part : parts) {
      Value factor = slice(b, op->getOperand(1 - side), otherDim, part);
      AffineMap read = part.map.compose(maps[side]), factorMap = maps[1 - side];
      // The loops that are left, and what of the result they make.
      SmallVector<AffineExpr> renamed(op.getNumLoops(), b.getAffineConstantExpr(0));
      unsigned loops = 0;
      for (unsigned loop = 0; loop != op.getNumLoops(); ++loop)
        if (read.isFunctionOfDim(loop) || factorMap.isFunctionOfDim(loop))
          renamed[loop] = b.getAffineDimExpr(loops++);
      SmallVector<OpFoldResult> shape;
      SmallVector<AffineExpr> made, used;
      for (auto [n, expr] : llvm::enumerate(maps[2].getResults())) {
        unsigned loop = cast<AffineDimExpr>(expr).getPosition();
        if (!isa<AffineDimExpr>(renamed[loop]))
          continue;
        made.push_back(renamed[loop]);
        used.push_back(b.getAffineDimExpr(n));
        shape.push_back(sizes[n]);
      }
      AffineMap rename = AffineMap::get(loops, 0, made, b.getContext());
      auto inNewLoops = [&](AffineMap map) { return map.replaceDimsAndSymbols(renamed, {}, loops, 0); };
      SmallVector<Value> inputs{part.source, factor};
      SmallVector<AffineMap> newMaps{inNewLoops(read), inNewLoops(factorMap), rename};
      if (side == 1) {
        std::swap(inputs[0], inputs[1]);
        std::swap(newMaps[0], newMaps[1]);
      }
      products.push_back(contraction(b, loc, shape, type.getElementType(), inputs[0], inputs[1], newMaps));
      reads.push_back(AffineMap::get(type.getRank(), 0, used, b.getContext()));
    }
    Value sum = elementwise(b, loc, sizes, type.getElementType(), products, reads,
                            [](OpBuilder &b, Location loc, ValueRange args) {
                              Value total = args.front();
                              for (Value arg : args.drop_front())
                                total = arith::AddFOp::create(b, loc, total, arg);
                              return total;
                            });
    remark::passed(loc, remark::RemarkOpts::name("Contraction").category("attn-split-concat"))
        << "the product of a concatenation is a sum of products";
    b.replaceOp(op, castTo(b, loc, sum, type));
  }

  /// Rows of `factor` for one part: of a weight another weight, so that they
  /// can be packed.
  Value slice(IRRewriter &b, Value factor, unsigned dim, const Part &part) {
    auto type = cast<RankedTensorType>(factor.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] = part.size;
    if (auto weight = factor.getDefiningOp<WeightOp>()) {
      auto sliced = RankedTensorType::get(shape, type.getElementType());
      SymbolTable symbols(getOperation());
      OpBuilder atTop(getOperation().getContext());
      atTop.setInsertionPointAfter(symbols.lookup(weight.getGlobal()));
      std::string name =
          (weight.getGlobal() + "[" + Twine(part.offset) + ":" + Twine(part.offset + part.size) + "]").str();
      auto expression = SliceAttr::get(b.getContext(), FlatSymbolRefAttr::get(weight.getGlobalAttr().getAttr()), dim,
                                       part.offset, part.size);
      auto global = GlobalOp::create(atTop, weight.getLoc(), name, sliced, expression);
      StringAttr symbol = symbols.insert(global);
      return WeightOp::create(b, weight.getLoc(), sliced, FlatSymbolRefAttr::get(symbol));
    }
    return sliceAlong(b, factor.getLoc(), factor, dim, b.getIndexAttr(part.offset), b.getIndexAttr(part.size));
  }
};

} // namespace
} // namespace attn
