#include "passes/graph/attention/RaiseContraction.h"

#include "passes/graph/Formulas.h"
#include "passes/graph/attention/AttentionMatch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
namespace {

/// One place along dimension `dim` of `source`, and all of its other dimensions.
struct OnePlace {
  Value source;
  int64_t dim, offset;
};

std::optional<OnePlace> readOnePlace(Value value) {
  auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>();
  auto slice = (collapse ? collapse.getSrc() : value).getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice || !slice.hasUnitStride())
    return std::nullopt;
  int64_t rank = slice.getSourceType().getRank();
  if (cast<RankedTensorType>(value.getType()).getRank() + 1 != rank || (collapse && slice.getType().getRank() != rank))
    return std::nullopt;
  std::optional<OnePlace> found;
  for (int64_t n = 0; n != rank; ++n) {
    std::optional<int64_t> offset = getConstantIntValue(slice.getMixedOffsets()[n]);
    if (!offset)
      return std::nullopt;
    if (*offset == 0 && Extent::of(slice.getMixedSizes()[n]) == Extent::of(slice.getSource(), n))
      continue;
    if (found || !isConstantIntValue(slice.getMixedSizes()[n], 1))
      return std::nullopt;
    found = OnePlace{slice.getSource(), n, *offset};
  }
  if (!found)
    return std::nullopt;
  bool isDropped = collapse ? llvm::any_of(collapse.getReassociationIndices(),
                                           [&](ArrayRef<int64_t> group) {
                                             return group.size() == 2 && llvm::is_contained(group, found->dim);
                                           })
                            : slice.getDroppedDims().test(found->dim);
  return isDropped ? found : std::nullopt;
}

/// The softmax, or the place of one, from which elementwise ops and views make `value`, if it is a single one.
Value findWeights(Value value) {
  Value found;
  bool isAmbiguous = worklist(Values{value}, [&](Value next, Values &list) {
    std::optional<OnePlace> place = readOnePlace(next);
    if (next.getDefiningOp<SoftmaxOp>() ||
        (place && isa_and_nonnull<SoftmaxOp>(findWeights(place->source).getDefiningOp()))) {
      bool isSecond = static_cast<bool>(found);
      found = next;
      return isSecond;
    }
    followTensors(next.getDefiningOp(), list);
    return false;
  });
  return isAmbiguous ? Value() : found;
}

/// The one dimension of a softmax's weights over which `value` is their sum, that of the heads for instance. The others
/// keep their order, and the softmax does not run over it.
std::optional<int64_t> readSummedDim(Value value) {
  auto sum = value.getDefiningOp<linalg::LinalgOp>();
  std::optional<unsigned> summed = getReduction(sum) == Combiner::sum ? onlyReducedLoop(sum) : std::nullopt;
  if (!summed)
    return std::nullopt;
  auto softmax = sum->getOperand(0).getDefiningOp<SoftmaxOp>();
  AffineMap read = sum.getMatchingIndexingMap(sum.getDpsInputOperand(0));
  std::optional<unsigned> dim = read.getResultPosition(getAffineDimExpr(*summed, value.getContext()));
  if (!softmax || !dim || *dim == softmax.getDim() ||
      getElementTypeOrSelf(softmax.getType()) != getElementTypeOrSelf(value) ||
      read.dropResult(*dim) != sum.getMatchingIndexingMap(sum.getDpsInitOperand(0)))
    return std::nullopt;
  return *dim;
}

/// The two inputs, tensors of the result's type, of which an elementwise op computes an `Op`.
template <typename... Ops> std::optional<std::pair<OpOperand *, OpOperand *>> readOperands(linalg::LinalgOp op) {
  auto [lhs, rhs] = getInputs<Ops...>(op);
  auto isAlike = [&](OpOperand *input) {
    return isa<RankedTensorType>(input->get().getType()) &&
           getElementTypeOrSelf(input->get()) == getElementTypeOrSelf(op->getResult(0));
  };
  return lhs && isAlike(lhs) && isAlike(rhs) ? std::optional(std::pair(lhs, rhs)) : std::nullopt;
}

/// Takes `value`, which `map` reads, for what it is a transpose of.
void walkUpTransposes(Value &value, AffineMap &map) {
  while (auto op = value.getDefiningOp<linalg::LinalgOp>()) {
    OpOperand *moved = getMovedInput(op);
    if (!moved || !op.getMatchingIndexingMap(moved).isPermutation())
      return;
    map = readThrough(*moved, map);
    value = moved->get();
  }
}

/// Whether `value`, which `map` reads, are weights of a softmax over `loop`.
bool areWeightsOver(Value value, AffineMap map, unsigned loop) {
  walkUpTransposes(value, map);
  auto softmax = value.getDefiningOp<SoftmaxOp>();
  return softmax && !softmax.getLog() && map.getResult(softmax.getDim()) == getAffineDimExpr(loop, map.getContext());
}

class Distributor {
public:
  Distributor(RewriterBase &rewriter, linalg::ContractOp op, unsigned side)
      : b(rewriter), op(op), side(side), maps(op.getIndexingMapsArray()) {}

  Value overSum();
  Value overQuotient();
  Value beforeFactor();
  Value beforePlace();
  Value beforeReduction();
  Value beforeProduct();

private:
  Value weights() { return op->getOperand(side); }
  Value overPlaces(Value x, int64_t dim, unsigned &at);
  /// The sum or difference of two results.
  Value combine(ArrayRef<Value> parts, bool isDifference);
  /// How the contraction's loops read an input of the elementwise op that makes the weights.
  AffineMap mapOf(OpOperand *input) { return readThrough(*input, maps[side]); }
  /// The contraction with other weights.
  linalg::ContractOp contract(Value weights, AffineMap map) {
    auto copy = cast<linalg::ContractOp>(b.clone(*op));
    SmallVector<AffineMap> changed(maps);
    changed[side] = map;
    copy->setOperand(side, weights);
    copy.setIndexingMapsAttr(b.getAffineMapArrayAttr(changed));
    return copy;
  }

  RewriterBase &b;
  linalg::ContractOp op;
  unsigned side;
  SmallVector<AffineMap> maps;
};

/// (x + y) v -> x v + y v
Value Distributor::overSum() {
  auto sum = weights().getDefiningOp<linalg::LinalgOp>();
  auto terms = readOperands<arith::AddFOp, arith::SubFOp>(sum);
  if (!terms)
    return {};
  Value first = findWeights(terms->first->get()), second = findWeights(terms->second->get());
  if (!first || !second || first == second)
    return {};
  SmallVector<Value> parts;
  for (OpOperand *term : {terms->first, terms->second}) {
    AffineMap map = mapOf(term);
    if (map.getNumResults() != maps[side].getNumResults()) // repeated along a dimension
      return {};
    parts.push_back(contract(term->get(), map).getResult(0));
  }
  return combine(parts, isa<arith::SubFOp>(getScalarOp(sum)));
}

/// ((x + y) / r) v -> (x / r) v + (y / r) v, where r is the same for all keys.
Value Distributor::overQuotient() {
  auto quotient = weights().getDefiningOp<linalg::LinalgOp>();
  auto parts = readOperands<arith::DivFOp>(quotient);
  auto sum = parts ? parts->first->get().getDefiningOp<linalg::LinalgOp>() : linalg::LinalgOp();
  auto terms = readOperands<arith::AddFOp, arith::SubFOp>(sum);
  SmallVector<unsigned> keys;
  op.getReductionDims(keys);
  if (!terms || llvm::any_of(keys, [&](unsigned key) { return mapOf(parts->second).isFunctionOfDim(key); }))
    return {};
  Value first = findWeights(terms->first->get()), second = findWeights(terms->second->get());
  if (!first || !second || first == second)
    return {};
  AffineMap written = quotient.getMatchingIndexingMap(quotient.getDpsInitOperand(0));
  auto isPlain = [](linalg::LinalgOp made, OpOperand *input) {
    return made.getMatchingIndexingMap(input).isIdentity() &&
           made.getMatchingIndexingMap(made.getDpsInitOperand(0)).isIdentity();
  };
  if (!isPlain(quotient, parts->first) || !isPlain(sum, terms->first) || !isPlain(sum, terms->second))
    return {};
  SmallVector<Value> products;
  for (OpOperand *term : {terms->first, terms->second}) {
    Value divided =
        elementwise(b, quotient.getLoc(), tensor::getMixedSizes(b, quotient.getLoc(), quotient.getDpsInits()[0]),
                    getElementTypeOrSelf(weights()), {term->get(), parts->second->get()},
                    {written, quotient.getMatchingIndexingMap(parts->second)},
                    formula([](ArrayRef<Num> x) { return x[0] / x[1]; }));
    products.push_back(contract(divided, maps[side]).getResult(0));
  }
  return combine(products, isa<arith::SubFOp>(getScalarOp(sum)));
}

Value Distributor::combine(ArrayRef<Value> parts, bool isDifference) {
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  SmallVector<AffineMap> same(2, b.getMultiDimIdentityMap(type.getRank()));
  return elementwise(b, op.getLoc(), tensor::getMixedSizes(b, op.getLoc(), op.getDpsInits()[0]), type.getElementType(),
                     ValueRange(parts), same,
                     formula([&](ArrayRef<Num> x) { return isDifference ? x[0] - x[1] : x[0] + x[1]; }));
}

/// (w y) v -> w (y v), where y is one place of a softmax, or its sum over heads, and w the same for all keys.
Value Distributor::beforeFactor() {
  auto product = weights().getDefiningOp<linalg::LinalgOp>();
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, op.getLoc(), op.getDpsInits()[0]);
  AffineMap same = b.getMultiDimIdentityMap(type.getRank());
  if (std::optional<double> factor = product ? constantFactor(product) : std::nullopt) {
    OpOperand *rest = product.getDpsInputOperand(0);
    if ((!readOnePlace(rest->get()) && !readSummedDim(rest->get())) ||
        mapOf(rest).getNumResults() != maps[side].getNumResults())
      return {};
    Value part = contract(rest->get(), mapOf(rest)).getResult(0);
    return elementwise(b, op.getLoc(), sizes, type.getElementType(), part, same,
                       formula([&](ArrayRef<Num> x) { return x[0] * *factor; }));
  }
  auto factors = readOperands<arith::MulFOp>(product);
  if (!factors)
    return {};
  for (auto [factor, rest] : {*factors, std::pair(factors->second, factors->first)}) {
    AffineMap map = mapOf(factor);
    if (!readOnePlace(rest->get()) || mapOf(rest).getNumResults() != maps[side].getNumResults())
      continue;
    SmallVector<AffineExpr> read;
    for (AffineExpr expr : map.getResults())
      if (std::optional<unsigned> place = maps[2].getResultPosition(expr))
        read.push_back(b.getAffineDimExpr(*place));
    Type narrow = getElementTypeOrSelf(factor->get());
    bool isWidened = narrow.getIntOrFloatBitWidth() < type.getElementTypeBitWidth(); // f16, summed in f32
    if (read.size() != map.getNumResults() || (!isWidened && narrow != type.getElementType()))
      continue;
    Value part = contract(rest->get(), mapOf(rest)).getResult(0);
    return elementwise(b, op.getLoc(), sizes, type.getElementType(), {factor->get(), part},
                       {AffineMap::get(type.getRank(), 0, read, b.getContext()), same},
                       formula([](ArrayRef<Num> x) { return convert(x[0], x[1].type()) * x[1]; }));
  }
  return {};
}

/// x v for every place of `x`, weights before one place of dimension `dim` was taken or all were summed; that dimension
/// of the result is `at`. Null where it has no place there.
Value Distributor::overPlaces(Value x, int64_t dim, unsigned &at) {
  // The new loop stands beside the one that it stands beside in the weights, so that heads stay neighbours.
  unsigned loops = op.getNumLoops();
  AffineExpr loop = b.getAffineDimExpr(loops);
  at = 0;
  if (dim != 0) {
    std::optional<unsigned> before = maps[2].getResultPosition(maps[side].getResult(dim - 1));
    if (!before)
      return {};
    at = *before + 1;
  }
  auto insert = [&](AffineMap map, std::optional<unsigned> position) {
    SmallVector<AffineExpr> exprs(map.getResults());
    if (position)
      exprs.insert(exprs.begin() + *position, loop);
    return AffineMap::get(loops + 1, 0, exprs, b.getContext());
  };
  SmallVector<AffineMap> changed{insert(maps[0], std::nullopt), insert(maps[1], std::nullopt), insert(maps[2], at)};
  changed[side] = insert(maps[side], dim);
  Location loc = op.getLoc();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, op.getDpsInits()[0]);
  sizes.insert(sizes.begin() + at, tensor::getMixedSize(b, loc, x, dim));
  SmallVector<Value> inputs{op->getOperand(0), op->getOperand(1)};
  inputs[side] = x;
  return contraction(b, loc, sizes, getElementTypeOrSelf(op.getResult(0)), inputs[0], inputs[1], changed);
}

/// x[n] v -> (x v)[n]
Value Distributor::beforePlace() {
  std::optional<OnePlace> place = readOnePlace(weights());
  if (!place || !findWeights(place->source))
    return {};
  unsigned at = 0;
  Value whole = overPlaces(place->source, place->dim, at);
  if (!whole)
    return {};
  return castTo(b, op.getLoc(), placeAlong(b, op.getLoc(), whole, at, b.getIndexAttr(place->offset)),
                op.getResult(0).getType());
}

/// (sum over h of x[h]) v -> sum over h of x[h] v, where the softmax that x comes from runs over the keys.
Value Distributor::beforeReduction() {
  std::optional<int64_t> dim = readSummedDim(weights());
  if (!dim)
    return {};
  Value x = weights().getDefiningOp<linalg::LinalgOp>()->getOperand(0);
  int64_t keys = x.getDefiningOp<SoftmaxOp>().getDim();
  if (maps[2].getResultPosition(maps[side].getResult(keys - (keys > *dim))))
    return {};
  unsigned at = 0;
  Value whole = overPlaces(x, *dim, at);
  if (!whole)
    return {};
  return linalg::ReduceOp::create(b, op.getLoc(), ValueRange(whole), ValueRange(op.getDpsInits()[0]), {int64_t(at)},
                                  [](OpBuilder &b, Location loc, ValueRange args) {
                                    linalg::YieldOp::create(
                                        b, loc, arith::AddFOp::create(b, loc, args[0], args[1]).getResult());
                                  })
      .getResult(0);
}

/// (x y) v -> x (y v), weights of y over the keys of v and of x over the rows of y: what each row of y attends to is
/// what x does (the second direction of BiDAF and QANet). The product of the weights is not made then.
Value Distributor::beforeProduct() {
  Value made = weights(), v = op->getOperand(1 - side);
  AffineMap read = maps[side], ofV = maps[1 - side];
  walkUpTransposes(made, read);
  auto product = made.getDefiningOp<linalg::LinalgOp>();
  bool isStored = !made.hasOneUse();
  for (Value next = weights(); next != made; next = getMovedInput(next.getDefiningOp<linalg::LinalgOp>())->get())
    isStored |= !next.hasOneUse();
  if (!isContraction(product) || isStored || !isZeroFill(product.getDpsInits()[0]))
    return {};
  std::optional<unsigned> key = onlyReducedLoop(op), row = onlyReducedLoop(product);
  if (!key || !row)
    return {};
  // The loops of the product are those of the sum, and one more.
  unsigned loops = op.getNumLoops();
  SmallVector<AffineExpr> renamed(product.getNumLoops());
  renamed[*row] = b.getAffineDimExpr(loops);
  AffineMap written = product.getMatchingIndexingMap(product.getDpsInitOperand(0));
  for (auto [expr, outer] : llvm::zip_equal(written.getResults(), read.getResults()))
    renamed[cast<AffineDimExpr>(expr).getPosition()] = outer;
  auto widen = [&](AffineMap map) { return AffineMap::get(loops + 1, 0, map.getResults(), b.getContext()); };
  for (unsigned n : {0, 1}) {
    Value x = product->getOperand(1 - n), y = product->getOperand(n);
    auto mapOfOperand = [&](unsigned number) {
      return product.getIndexingMapsArray()[number].replaceDimsAndSymbols(renamed, {}, loops + 1, 0);
    };
    AffineMap ofX = mapOfOperand(1 - n), ofY = mapOfOperand(n);
    if (!areWeightsOver(y, ofY, *key) || !areWeightsOver(x, ofX, loops) || ofX.isFunctionOfDim(*key))
      continue;
    SmallVector<AffineExpr> exprs;
    SmallVector<OpFoldResult> sizes;
    bool isRepeated = false; // heads that x mixes: a row of y would get the values of all
    for (auto [value, map] : {std::pair(y, ofY), std::pair(v, ofV)})
      for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
        unsigned loop = cast<AffineDimExpr>(expr).getPosition();
        if (loop == *key || llvm::is_contained(exprs, expr))
          continue;
        isRepeated |= value == v && ofX.isFunctionOfDim(loop);
        exprs.push_back(expr);
        sizes.push_back(tensor::getMixedSize(b, op.getLoc(), value, dim));
      }
    Type element = getElementTypeOrSelf(op.getResult(0));
    if (isRepeated || llvm::any_of(ValueRange({x, y, v}), [&](Value z) { return getElementTypeOrSelf(z) != element; }))
      continue;
    AffineMap between = AffineMap::get(loops + 1, 0, exprs, b.getContext());
    // Fused, y v may take more multiply-adds than x y, which is stored: 5 times as many took 1.6 times as long (context
    // of 50, question of 400), 250 times 17 times (one row, 512 keys; Zen 3, one thread).
    SmallVector<double> extents(loops + 1, 512); // of what the run knows
    for (auto [value, map] : {std::pair(x, ofX), std::pair(y, ofY), std::pair(v, widen(ofV))})
      for (auto [expr, size] : llvm::zip_equal(map.getResults(), cast<RankedTensorType>(value.getType()).getShape()))
        if (!ShapedType::isDynamic(size))
          extents[cast<AffineDimExpr>(expr).getPosition()] = size;
    auto countProducts = [&](AffineMap left, AffineMap right) {
      double products = 1;
      for (unsigned loop = 0; loop <= loops; ++loop)
        if (left.isFunctionOfDim(loop) || right.isFunctionOfDim(loop))
          products *= extents[loop];
      return products;
    };
    if (countProducts(ofY, widen(ofV)) + countProducts(ofX, between) >
        4 * (countProducts(ofX, ofY) + countProducts(widen(read), widen(ofV))))
      continue;
    auto contract = [&](ArrayRef<OpFoldResult> sizes, Value left, Value right, ArrayRef<AffineMap> maps) {
      return contraction(b, op.getLoc(), sizes, element, left, right, compressUnusedDims(maps));
    };
    Value inner = contract(sizes, y, v, {ofY, widen(ofV), between});
    return contract(tensor::getMixedSizes(b, op.getLoc(), op.getDpsInits()[0]), x, inner,
                    {ofX, between, widen(maps[2])});
  }
  return {};
}

} // namespace

bool distributeSum(RewriterBase &rewriter, linalg::ContractOp op) {
  if (!isContraction(op) || !isZeroFill(op.getDpsInits()[0]))
    return false;
  rewriter.setInsertionPoint(op);
  for (unsigned side : {0, 1}) {
    Distributor distributor(rewriter, op, side);
    for (auto rule : {&Distributor::overSum, &Distributor::overQuotient, &Distributor::beforeFactor,
                      &Distributor::beforePlace, &Distributor::beforeReduction, &Distributor::beforeProduct}) {
      Value made = (distributor.*rule)();
      if (!made)
        continue;
      remark::passed(op.getLoc(), remark::RemarkOpts::name("Contraction").category("attn-raise-contraction"))
          << "a sum weighted by several softmaxes is one of several sums";
      rewriter.replaceOp(op, made);
      return true;
    }
  }
  return false;
}

} // namespace attn
