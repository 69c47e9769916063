#include "passes/graph/AttentionMatch.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include <map>

using namespace mlir;

namespace attn {
namespace {

bool isZeroFill(Value value) {
  auto constant = dyn_cast_or_null<FloatAttr>(splatConstant(value));
  return constant && constant.getValue().isZero();
}

/// A sum of products of two float tensors.
bool isContraction(Operation *op) {
  auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op);
  return linalgOp && linalgOp.hasPureTensorSemantics() && linalg::isaContractionOpInterface(linalgOp) &&
         isa<FloatType>(getElementTypeOrSelf(op->getResult(0)));
}

constexpr StringLiteral kWeights = "the softmax and the weighted sum";

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

/// Writes into a block the scalar computation of one element of a tensor, from
/// an element of `target` (block argument 0) and elements of captures.
class RegionWriter {
public:
  RegionWriter(AttentionMatch &match, Value target, StringRef between, SmallVector<unsigned> &used, Miss &miss)
      : match(match), target(target), between(between), used(used), miss(miss), region(std::make_unique<Region>()),
        builder(target.getContext()) {
    Block &block = region->emplaceBlock();
    block.addArgument(builder.getF32Type(), target.getLoc());
    builder.setInsertionPointToStart(&block);
  }

  /// The region, with `tensor` read at `access` as its yield.
  FailureOr<std::unique_ptr<Region>> write(Value tensor, const Access &access) {
    FailureOr<Value> scalar = element(tensor, access);
    if (failed(scalar))
      return failure();
    if (!targetAccess)
      return fail("it does not depend on the scores", tensor.getLoc());
    YieldOp::create(builder, tensor.getLoc(), convertFloat(builder, tensor.getLoc(), *scalar, builder.getF32Type()));
    return std::move(region);
  }

  /// How `target` is read; set by `write`.
  std::optional<Access> targetAccess;

private:
  LogicalResult fail(const Twine &reason, Location location) {
    miss = {reason.str(), location};
    return failure();
  }

  bool dependsOnTarget(Value value) {
    if (value == target)
      return true;
    auto [it, fresh] = dependence.try_emplace(value, false);
    if (!fresh)
      return it->second;
    Operation *op = value.getDefiningOp();
    bool depends = false;
    if (op && (isView(op) || isPointwise(op)))
      for (Value operand : op->getOperands())
        depends |= isa<RankedTensorType>(operand.getType()) && dependsOnTarget(operand);
    return dependence[value] = depends;
  }

  /// Whether `value` depends on `source` in any way.
  bool isComputedFrom(Value value, Operation *source) {
    SmallVector<Value> front{value};
    while (source && !front.empty()) {
      Value next = front.pop_back_val();
      if (!visited.insert(next).second || !next.getDefiningOp())
        continue;
      if (next.getDefiningOp() == source)
        return true;
      next.getDefiningOp()->walk([&](Operation *op) { llvm::append_range(front, op->getOperands()); });
    }
    return false;
  }

  FailureOr<Value> element(Value tensor, Access access) {
    match.space.resolve(access);
    auto key = std::pair(tensor.getAsOpaquePointer(), access);
    if (auto it = written.find(key); it != written.end())
      return it->second;
    FailureOr<Value> scalar = elementUncached(tensor, access);
    if (succeeded(scalar))
      written[key] = *scalar;
    return scalar;
  }

  FailureOr<Value> elementUncached(Value tensor, Access access) {
    Location loc = tensor.getLoc();
    if (tensor == target) {
      if (targetAccess)
        match.space.resolve(*targetAccess);
      if (targetAccess && *targetAccess != access)
        return fail("the scores are read in two layouts", loc);
      targetAccess = access;
      return convertFloat(builder, loc, builder.getInsertionBlock()->getArgument(0), getElementTypeOrSelf(tensor));
    }
    if (TypedAttr constant = splatConstant(tensor))
      return Value(arith::ConstantOp::create(builder, loc, constant));
    bool depends = dependsOnTarget(tensor);
    if (isView(tensor.getDefiningOp())) {
      Value source = tensor;
      if (match.space.stepUp(source, access))
        return element(source, access);
      if (depends)
        return fail("a reshape whose sizes are not proved to match", loc);
    }
    auto op = tensor.getDefiningOp<linalg::LinalgOp>();
    // What reads no tensor (a causal mask from its indices) costs less to
    // compute again than to store for every pair of query and key.
    if (op && isPointwise(op) && (depends || isComputedFromIndices(op)))
      return inlineBody(op, access);
    if (depends || isComputedFrom(tensor, target.getDefiningOp()))
      return fail("an operation that is not elementwise stands between " + between, loc);
    return capture(tensor, access);
  }

  static bool isComputedFromIndices(linalg::LinalgOp op) {
    return op.getNumDpsInputs() == 0 && llvm::all_of(op.getBlock()->without_terminator(), [&](Operation &inner) {
             return inner.getNumRegions() == 0 && llvm::none_of(inner.getOperandTypes(), llvm::IsaPred<ShapedType>);
           });
  }

  FailureOr<Value> inlineBody(linalg::LinalgOp op, const Access &access) {
    IRMapping mapping;
    for (OpOperand *input : op.getDpsInputOperands()) {
      BlockArgument argument = op.getMatchingBlockArgument(input);
      if (argument.use_empty())
        continue;
      if (!isa<RankedTensorType>(input->get().getType())) {
        FailureOr<Value> scalar = outsideScalar(input->get());
        if (failed(scalar))
          return failure();
        mapping.map(argument, *scalar);
        continue;
      }
      // Again for each operand: reading one may split an atom of the next.
      Access resolved(access);
      match.space.resolve(resolved);
      std::optional<Access> source =
          AtomSpace::operandAccess(op.getMatchingIndexingMap(input), AtomSpace::loopAtoms(op, resolved));
      if (!source)
        return fail("an operand that is not read at plain loop indices", op.getLoc());
      FailureOr<Value> scalar = element(input->get(), *source);
      if (failed(scalar))
        return failure();
      mapping.map(argument, *scalar);
    }
    SmallVector<Atoms> loops = AtomSpace::loopAtoms(op, access);
    for (Operation &inner : op.getBlock()->without_terminator()) {
      if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
        auto placeholder = IndexOp::create(builder, op.getLoc(), builder.getIndexType(), 0);
        match.indices.push_back({placeholder, loops[index.getDim()]});
        mapping.map(index.getResult(), placeholder.getResult());
        continue;
      }
      if (inner.getNumRegions() != 0 || !isMemoryEffectFree(&inner) ||
          llvm::any_of(inner.getOperandTypes(), llvm::IsaPred<ShapedType>))
        return fail("an elementwise operation that reads other elements", op.getLoc());
      for (Value operand : inner.getOperands()) {
        if (mapping.contains(operand))
          continue;
        FailureOr<Value> scalar = outsideScalar(operand);
        if (failed(scalar))
          return failure();
        mapping.map(operand, *scalar);
      }
      builder.clone(inner, mapping);
    }
    Value yielded = op.getBlock()->getTerminator()->getOperand(0);
    if (!mapping.contains(yielded)) {
      FailureOr<Value> scalar = outsideScalar(yielded);
      if (failed(scalar))
        return failure();
      mapping.map(yielded, *scalar);
    }
    return mapping.lookup(yielded);
  }

  /// A scalar that is defined outside of the tensor ops: a constant is written
  /// again, anything else is captured.
  FailureOr<Value> outsideScalar(Value scalar) {
    if (TypedAttr constant = splatConstant(scalar))
      return Value(arith::ConstantOp::create(builder, scalar.getLoc(), constant));
    if (!scalar.getType().isIntOrIndexOrFloat())
      return fail("a value in the region that is no number", scalar.getLoc());
    return capture(scalar, {});
  }

  Value capture(Value value, Access access) {
    if (isa<RankedTensorType>(value.getType()))
      match.space.walkUp(value, access);
    unsigned number = match.captures.size();
    for (auto [n, other] : llvm::enumerate(match.captures)) {
      match.space.resolve(other.access);
      if (other.value == value && other.access == access)
        number = n;
    }
    if (number == match.captures.size())
      match.captures.push_back({value, access});
    auto *position = llvm::find(used, number);
    Block *block = builder.getInsertionBlock();
    // The block's arguments after the first are those of `used`, in order.
    Type element = getElementTypeOrSelf(value);
    bool isIndex = element.isIndex();
    if (position == used.end()) {
      used.push_back(number);
      block->addArgument(isIndex ? builder.getI64Type() : element, value.getLoc());
      position = used.end() - 1;
    }
    Value argument = block->getArgument(1 + (position - used.begin()));
    if (isIndex) // there are no tensors of index in a kernel
      return arith::IndexCastOp::create(builder, value.getLoc(), element, argument);
    return argument;
  }

  AttentionMatch &match;
  Value target;
  StringRef between; ///< what the region connects, for messages
  SmallVector<unsigned> &used;
  Miss &miss;
  std::unique_ptr<Region> region;
  OpBuilder builder;
  DenseMap<Value, bool> dependence;
  DenseSet<Value> visited; ///< values known not to depend on the target
  std::map<std::pair<const void *, Access>, Value> written;
};

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

/// Contractions from which `value` is computed by elementwise ops and views,
/// the nearest first.
void findProducts(Value value, llvm::SetVector<Operation *> &found, DenseSet<Value> &seen) {
  SmallVector<Value> front{value};
  while (!front.empty()) {
    SmallVector<Value> next;
    for (Value v : front) {
      if (!seen.insert(v).second)
        continue;
      Operation *op = v.getDefiningOp();
      if (isContraction(op))
        found.insert(op);
      else if (op && (isView(op) || isPointwise(op)))
        for (Value operand : op->getOperands())
          if (isa<RankedTensorType>(operand.getType()))
            next.push_back(operand);
    }
    front = std::move(next);
  }
}

bool names(const Access &access, ArrayRef<unsigned> atoms) {
  return llvm::all_of(atoms, [&](unsigned atom) {
    return llvm::any_of(access, [&](const Atoms &list) { return llvm::is_contained(list, atom); });
  });
}

/// The constant by which an elementwise op multiplies its one tensor, f32.
std::optional<double> constantFactor(linalg::LinalgOp op) {
  if (!isPointwise(op) || op.getNumDpsInputs() != 1 || !getElementTypeOrSelf(op->getResult(0)).isF32())
    return std::nullopt;
  BlockArgument input = op.getMatchingBlockArgument(op.getDpsInputOperand(0));
  Operation *scale = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  if (!scale || !isa<arith::MulFOp, arith::DivFOp>(scale) || !input.getType().isF32())
    return std::nullopt;
  Value factor = scale->getOperand(1);
  if (scale->getOperand(0) != input) {
    if (isa<arith::DivFOp>(scale) || factor != input)
      return std::nullopt;
    factor = scale->getOperand(0);
  }
  auto constant = dyn_cast_or_null<FloatAttr>(splatConstant(factor));
  if (!constant || !constant.getValue().isFiniteNonZero())
    return std::nullopt;
  double value = constant.getValueAsDouble();
  return isa<arith::DivFOp>(scale) ? 1 / value : value;
}

/// Follows an operand of the score contraction through views and through
/// multiplication by constants, which it collects: (c q) . k = c (q . k).
void walkUpScaled(AttentionMatch &match, AttentionMatch::Operand &operand, double &scale) {
  while (true) {
    match.space.walkUp(operand.value, operand.access);
    auto op = operand.value.getDefiningOp<linalg::LinalgOp>();
    std::optional<double> factor = op ? constantFactor(op) : std::nullopt;
    if (!factor)
      return;
    std::optional<Access> source = AtomSpace::operandAccess(op.getMatchingIndexingMap(op.getDpsInputOperand(0)),
                                                            AtomSpace::loopAtoms(op, operand.access));
    if (!source)
      return;
    scale *= *factor;
    operand = {op->getOperand(0), *source};
  }
}

void scaleScore(Region &region, double scale) {
  Block &block = region.front();
  BlockArgument score = block.getArgument(0);
  OpBuilder b(score.getContext()); // the region has no parent to ask
  b.setInsertionPointToStart(&block);
  Value factor = floatConstant(b, score.getLoc(), b.getF32Type(), scale);
  Value product = arith::MulFOp::create(b, score.getLoc(), score, factor);
  score.replaceAllUsesExcept(product, product.getDefiningOp());
}

/// Whether `op` only rounds its input to a narrower float type.
bool isRounding(linalg::LinalgOp op) {
  if (!isPointwise(op) || op.getNumDpsInputs() != 1)
    return false;
  auto trunc = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp<arith::TruncFOp>();
  return trunc && trunc.getIn() == op.getMatchingBlockArgument(op.getDpsInputOperand(0));
}

/// Follows the result through its only uses as long as they are views; so the
/// attention writes the layout that its consumer reads.
void walkDown(AttentionMatch &match, Type wanted) {
  AttentionMatch::Operand &result = match.result;
  while (result.value.hasOneUse()) {
    OpOperand &use = *result.value.use_begin();
    Operation *user = use.getOwner();
    match.space.resolve(result.access);
    if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(user)) {
      Access merged(collapse.getResultType().getRank());
      for (auto [dim, group] : llvm::enumerate(collapse.getReassociationIndices()))
        for (int64_t n : group)
          llvm::append_range(merged[dim], result.access[n]);
      result = {collapse.getResult(), merged};
      continue;
    }
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(user)) {
      Access split(expand.getResultType().getRank());
      for (auto [dim, group] : llvm::enumerate(expand.getReassociationIndices())) {
        SmallVector<Extent> extents;
        for (int64_t n : group)
          extents.push_back(Extent::of(expand.getResult(), n));
        // Without splitting: an atom that is split here would need a name of its own in the maps.
        std::optional<SmallVector<Atoms>> lists = match.space.cut(result.access[dim], extents, /*maySplit=*/false);
        if (!lists)
          return;
        for (auto [n, atoms] : llvm::zip_equal(group, *lists))
          split[n] = atoms;
      }
      result = {expand.getResult(), split};
      continue;
    }
    if (auto cast = dyn_cast<tensor::CastOp>(user)) {
      if (!isa<RankedTensorType>(cast.getType()))
        return;
      result.value = cast;
      continue;
    }
    auto op = dyn_cast<linalg::LinalgOp>(user);
    if (!op || !op.isDpsInput(&use))
      return;
    AffineMap from = op.getMatchingIndexingMap(&use);
    bool rounding = getElementTypeOrSelf(result.value) != wanted && isRounding(op) &&
                    getElementTypeOrSelf(op->getResult(0)) == wanted;
    if ((getMovedInput(op) != &use && !rounding) || !from.isPermutation())
      return;
    AffineMap to = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    Access moved;
    for (AffineExpr expr : to.getResults())
      moved.push_back(result.access[*from.getResultPosition(expr)]);
    result = {op->getResult(0), moved};
  }
}

/// Gives each loop that `operand` names and that has no atoms yet a new one;
/// returns how the operand is read.
std::optional<Access> nameLoops(AtomSpace &space, Value operand, AffineMap map, SmallVector<Atoms> &loops,
                                SmallVector<bool> &known) {
  for (auto [n, expr] : llvm::enumerate(map.getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim)
      return std::nullopt;
    if (!known[dim.getPosition()]) {
      loops[dim.getPosition()] = space.add(Extent::of(operand, n));
      known[dim.getPosition()] = true;
    }
  }
  return AtomSpace::operandAccess(map, loops);
}

/// Tries `product` as the contraction that makes the scores. `match` holds what
/// the weighted sum gave.
LogicalResult matchScores(AttentionMatch &match, SoftmaxOp softmax, const Access &softmaxAccess,
                          linalg::LinalgOp product, Miss &miss) {
  auto fail = [&](const Twine &reason, Location location) {
    miss = {reason.str(), location};
    return failure();
  };
  RegionWriter writer(match, product->getResult(0), "the scores and the softmax", match.scoreCaptures, miss);
  FailureOr<std::unique_ptr<Region>> region = writer.write(softmax.getInput(), softmaxAccess);
  if (failed(region))
    return failure();
  match.score = std::move(*region);
  if (!isZeroFill(product.getDpsInits()[0]))
    return fail("the scores' contraction accumulates onto other values", product.getLoc());

  AtomSpace &space = match.space;
  space.resolve(*writer.targetAccess);
  SmallVector<Atoms> loops = AtomSpace::loopAtoms(product, *writer.targetAccess);
  SmallVector<bool> known(product.getNumLoops(), false);
  SmallVector<unsigned> sums;
  product.getReductionDims(sums);
  for (unsigned loop = 0; loop != loops.size(); ++loop)
    known[loop] = !llvm::is_contained(sums, loop);
  AttentionMatch::Operand operands[2];
  for (unsigned n : {0, 1}) {
    Value operand = product->getOperand(n);
    std::optional<Access> access = nameLoops(space, operand, product.getIndexingMapsArray()[n], loops, known);
    if (!access)
      return fail("the scores' contraction is not over plain dimensions", product.getLoc());
    operands[n] = {operand, *access};
  }
  for (unsigned sum : sums)
    llvm::append_range(match.widths, loops[sum]);

  space.resolve(match.keys);
  bool first = names(operands[0].access, match.keys), second = names(operands[1].access, match.keys);
  if (first == second)
    return fail(first ? "both operands of the scores' contraction depend on the key position"
                      : "the scores' contraction does not depend on the key position",
                product.getLoc());
  match.query = operands[first ? 1 : 0];
  match.key = operands[first ? 0 : 1];
  double scale = 1;
  walkUpScaled(match, match.query, scale);
  walkUpScaled(match, match.key, scale);
  if (scale != 1)
    scaleScore(*match.score, scale);
  return success();
}

} // namespace

SmallVector<OpOperand *> findWeightedSums(SoftmaxOp softmax) {
  SmallVector<OpOperand *> found;
  SmallVector<Value> front{softmax.getResult()};
  DenseSet<Value> seen;
  while (!front.empty()) {
    Value value = front.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      auto linalgOp = dyn_cast<linalg::LinalgOp>(user);
      if (linalgOp && !linalgOp.isDpsInput(&use))
        continue;
      if (isContraction(user))
        found.push_back(&use);
      else if (isView(user) || isPointwise(user))
        front.push_back(user->getResult(0));
    }
  }
  return found;
}

FailureOr<AttentionMatch> matchAttention(SoftmaxOp softmax, OpOperand &weights, Miss &miss) {
  auto sum = cast<linalg::LinalgOp>(weights.getOwner());
  auto fail = [&](const Twine &reason, Location location) {
    miss = {reason.str(), location};
    return failure();
  };
  if (softmax.getLog())
    return fail("the weights are logarithms", softmax.getLoc());
  if (getElementTypeOrSelf(softmax.getInput()).isF64())
    return fail("an attention is computed in f32, this one in f64", softmax.getLoc());
  if (!isZeroFill(sum.getDpsInits()[0]))
    return fail("the weighted sum accumulates onto other values", sum.getLoc());

  AttentionMatch match;
  SmallVector<Atoms> loops(sum.getNumLoops());
  SmallVector<bool> known(sum.getNumLoops(), false);
  SmallVector<AffineMap> maps = sum.getIndexingMapsArray();
  unsigned weightNumber = weights.getOperandNumber();
  Value values = sum->getOperand(1 - weightNumber);
  std::optional<Access> weightAccess = nameLoops(match.space, weights.get(), maps[weightNumber], loops, known);
  std::optional<Access> valueAccess = nameLoops(match.space, values, maps[1 - weightNumber], loops, known);
  if (!weightAccess || !valueAccess)
    return fail("the weighted sum is not over plain dimensions", sum.getLoc());
  match.value = {values, *valueAccess};
  match.result.value = sum->getResult(0);
  for (AffineExpr expr : maps[2].getResults())
    match.result.access.push_back(loops[cast<AffineDimExpr>(expr).getPosition()]);

  RegionWriter weightWriter(match, softmax.getResult(), kWeights, match.weightCaptures, miss);
  FailureOr<std::unique_ptr<Region>> region = weightWriter.write(weights.get(), *weightAccess);
  if (failed(region))
    return failure();
  match.weight = std::move(*region);

  // The softmax and the sum run over the same atoms.
  Access softmaxAccess = *weightWriter.targetAccess;
  match.space.resolve(softmaxAccess);
  match.keys = softmaxAccess[softmax.getDim()];
  Atoms summed;
  SmallVector<unsigned> sums;
  sum.getReductionDims(sums);
  for (unsigned loop : sums)
    llvm::append_range(summed, loops[loop]);
  match.space.resolve(summed);
  Atoms sortedKeys(match.keys);
  llvm::sort(sortedKeys);
  llvm::sort(summed);
  if (sortedKeys != summed)
    return fail("the weights are summed over other dimensions than the softmax runs over", sum.getLoc());

  llvm::SetVector<Operation *> products;
  DenseSet<Value> seen;
  findProducts(softmax.getInput(), products, seen);
  if (products.empty())
    return fail("the scores do not come from a contraction", softmax.getLoc());
  Miss firstMiss{"", softmax.getLoc()};
  for (Operation *product : products) {
    AttentionMatch attempt;
    attempt.space = match.space;
    attempt.value = match.value;
    attempt.result = match.result;
    attempt.keys = match.keys;
    if (failed(matchScores(attempt, softmax, softmaxAccess, cast<linalg::LinalgOp>(product), miss))) {
      if (firstMiss.reason.empty())
        firstMiss = miss;
      continue;
    }
    // The weight region again, in the atoms of this attempt.
    Access access = *weightAccess;
    RegionWriter again(attempt, softmax.getResult(), kWeights, attempt.weightCaptures, miss);
    FailureOr<std::unique_ptr<Region>> weight = again.write(weights.get(), access);
    if (failed(weight))
      return failure();
    attempt.weight = std::move(*weight);
    attempt.space.walkUp(attempt.value.value, attempt.value.access);
    walkDown(attempt, getElementTypeOrSelf(attempt.query.value));
    return attempt;
  }
  miss = firstMiss;
  return failure();
}

} // namespace attn
