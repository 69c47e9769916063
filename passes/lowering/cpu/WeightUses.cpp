#include "passes/lowering/cpu/WeightUses.h"

#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/TopKOp.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// The position of `dim` in `map`, or -1.
static int64_t positionOf(AffineMap map, unsigned dim) {
  std::optional<unsigned> position = map.getResultPosition(getAffineDimExpr(dim, map.getContext()));
  return position ? static_cast<int64_t>(*position) : -1;
}

/// All that `op` uses, its regions included.
static SmallVector<Value> usesOf(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::SetVector<Value> above;
  getUsedValuesDefinedAbove(op->getRegions(), above);
  values.append(above.begin(), above.end());
  return values;
}

std::optional<unsigned> WeightUses::findLoop(linalg::LinalgOp user, const WeightUses &uses) {
  std::optional<unsigned> loop;
  for (OpOperand &operand : user->getOpOperands())
    if (const Place *place = uses.lookup(operand.get()); place && place->query >= 0)
      if (auto dim = dyn_cast<AffineDimExpr>(user.getMatchingIndexingMap(&operand).getResult(place->query)))
        loop = dim.getPosition();
  return loop;
}

bool WeightUses::followLinalg(linalg::LinalgOp user, std::string &reason) {
  if (!user.hasPureTensorSemantics())
    return false;
  std::optional<unsigned> queries, keys;
  SmallVector<bool> named(user.getNumLoops(), false);
  bool usesLarge = false, isReduced = false;
  for (OpOperand &operand : user->getOpOperands()) {
    const Place *place = lookup(operand.get());
    if (!place)
      continue;
    AffineMap map = user.getMatchingIndexingMap(&operand);
    for (auto [position, loop] : {std::pair(place->query, &queries), std::pair(place->key, &keys)}) {
      if (position < 0)
        continue;
      auto dim = dyn_cast<AffineDimExpr>(map.getResult(position));
      if (!dim || (*loop && **loop != dim.getPosition()))
        return false;
      *loop = dim.getPosition();
    }
    if (!place->isLarge())
      continue;
    usesLarge = true;
    isReduced |= place->isReduced;
    for (AffineExpr expr : map.getResults())
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        named[dim.getPosition()] = true;
  }
  SmallVector<int64_t> ranges = user.getStaticLoopRanges();
  for (auto [n, iterator] : llvm::enumerate(user.getIteratorTypesArray())) {
    if (iterator == utils::IteratorType::reduction)
      isReduced |= ranges[n] != 1;
    else if (usesLarge && !named[n] && ranges[n] != 1) {
      reason = "a product"; // of each weight with several others
      return false;
    }
  }
  for (AffineMap map : user.getIndexingMapsArray())
    for (AffineExpr expr : map.getResults())
      if (queries && expr.isFunctionOfDim(*queries) && !isa<AffineDimExpr>(expr))
        return false;
  bool sumsQueries = queries && user.getIteratorTypesArray()[*queries] == utils::IteratorType::reduction;
  for (OpOperand &init : user.getDpsInitsMutable()) {
    if (sumsQueries && lookup(init.get()))
      return false;
    AffineMap map = user.getMatchingIndexingMap(&init);
    Place place{queries ? positionOf(map, *queries) : -1, keys ? positionOf(map, *keys) : -1, isReduced, 0};
    if (queries && (place.query < 0) != sumsQueries)
      return false;
    places[user.getTiedOpResult(&init)] = place;
  }
  return true;
}

/// Where the dimensions of a value that has another shape are. Queries stay a dimension of their own.
bool WeightUses::followReshape(Operation *user) {
  Place from = *lookup(user->getOperand(0)), to = from;
  auto source = cast<RankedTensorType>(user->getOperand(0).getType());
  auto result = cast<RankedTensorType>(user->getResult(0).getType());
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user)) {
    if (from.query >= 0 &&
        (source.getDimSize(from.query) != slice.getStaticSizes()[from.query] || source.isDynamicDim(from.query) ||
         !isZeroInteger(slice.getMixedOffsets()[from.query]) || slice.getStaticStrides()[from.query] != 1))
      return false;
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    for (int64_t *dim : {&to.query, &to.key}) {
      if (*dim < 0)
        continue;
      int64_t before = 0;
      for (int64_t n = 0; n != *dim; ++n)
        before += dropped.test(n);
      *dim = dropped.test(*dim) ? -1 : *dim - before;
    }
    if (from.query >= 0 && to.query < 0)
      return false;
    for (auto [size, part] : llvm::zip_equal(source.getShape(), slice.getStaticSizes()))
      to.isReduced |= !ShapedType::isDynamic(size) && !ShapedType::isDynamic(part) && part < size;
  } else if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(user)) {
    for (auto [group, dims] : llvm::enumerate(collapse.getReassociationIndices()))
      for (int64_t dim : dims) {
        if (dim == from.key)
          to.key = group;
        if (dim != from.query)
          continue;
        to.query = group;
        for (int64_t other : dims)
          if (other != dim && source.getDimSize(other) != 1)
            return false;
      }
  } else if (auto expand = dyn_cast<tensor::ExpandShapeOp>(user)) {
    for (auto [dim, group] : llvm::enumerate(expand.getReassociationIndices())) {
      SmallVector<int64_t> wide;
      llvm::copy_if(group, std::back_inserter(wide), [&](int64_t n) { return result.getDimSize(n) != 1; });
      if (static_cast<int64_t>(dim) == from.query) {
        if (wide.size() != 1)
          return false;
        to.query = wide.front();
      }
      if (static_cast<int64_t>(dim) == from.key)
        to.key = wide.empty() ? group.front() : wide.front();
    }
  } else if (!isa<tensor::CastOp>(user)) {
    return false;
  }
  places[user->getResult(0)] = to;
  return true;
}

/// Notes where the dimensions are in what `user` makes of values with a place.
bool WeightUses::follow(Operation *user, std::string &reason) {
  for (Value value : usesOf(user)) {
    Operation *source = value.getDefiningOp();
    if (!source || !(source == op || dependent.contains(source)))
      continue;
    // In a region an element may be any one of the tensor.
    if (!lookup(value) || !llvm::is_contained(user->getOperands(), value))
      return false;
  }
  unsigned sweep = 0;
  for (Value operand : user->getOperands())
    if (const Place *place = lookup(operand))
      sweep = std::max(sweep, place->sweep);
  // What all queries add to is known behind their loop.
  bool isSwept = llvm::any_of(user->getOperands(), [&](Value v) { return lookup(v) && lookup(v)->query >= 0; });
  if (isSwept)
    for (Value operand : user->getOperands())
      if (const Place *place = lookup(operand); place && place->query < 0)
        sweep = std::max(sweep, place->sweep + 1);
  bool known = false;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(user)) {
    known = followLinalg(linalgOp, reason);
  } else if (auto softmax = dyn_cast<SoftmaxOp>(user)) {
    Place place = *lookup(softmax.getInput());
    if ((known = place.query != static_cast<int64_t>(softmax.getDim())))
      places[softmax.getResult()] = place;
  } else if (auto top = dyn_cast<TopKOp>(user)) {
    if (lookup(top.getInput())) {
      Place place = *lookup(top.getInput());
      int64_t dim = top.getDim();
      if ((known = place.query != dim)) {
        int64_t all = cast<RankedTensorType>(top.getInput().getType()).getDimSize(dim);
        int64_t some = cast<RankedTensorType>(top.getValues().getType()).getDimSize(dim);
        place.isReduced |= ShapedType::isDynamic(some) || some != all;
        if (place.key == dim && place.isReduced)
          place.key = -1;
        places[top.getValues()] = place;
        places[top.getPositions()] = place;
      }
    }
  } else if (isa<tensor::CastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractSliceOp>(user)) {
    known = lookup(user->getOperand(0)) && followReshape(user);
  }
  for (Value result : user->getResults())
    if (auto found = places.find(result); found != places.end())
      found->second.sweep = sweep;
  return known;
}

/// What others need of the ops that use weights, and of the attention.
bool WeightUses::collectExits(std::string &reason) {
  SmallVector<Value> made(op->getResults());
  for (Operation *consumer : consumers)
    made.append(consumer->result_begin(), consumer->result_end());
  for (Value value : made) {
    Place place = *lookup(value);
    Operation *source = value.getDefiningOp();
    bool isNeeded = false;
    for (Operation *user : value.getUsers())
      isNeeded |= !consumers.contains(user) || (place.query < 0 && lookup(user->getResult(0))->sweep > place.sweep);
    if (isNeeded && place.isLarge() && !place.isReduced) {
      for (Operation *user : value.getUsers())
        if (user->hasTrait<OpTrait::IsTerminator>())
          reason = "a result";
      return false;
    }
    if (isNeeded)
      exits.insert(value);
    numSweeps = std::max(numSweeps, place.sweep + 1);
    // An op that sums over queries writes all its results in the loop.
    if (place.query < 0 && source != op)
      exits.insert(source->result_begin(), source->result_end());
  }
  if (numSweeps > 2) {
    reason = "sums over queries of sums over queries";
    return false;
  }
  return !exits.empty();
}

bool WeightUses::analyze(std::string &reason) {
  for (auto [n, result] : llvm::enumerate(op->getResults())) {
    AffineMap map = op.getMap(op.getNumOperands() + n);
    places[result] = {positionOf(map, Dim::I), positionOf(map, Dim::J), false, 0};
  }
  for (Operation *user = op->getNextNode(); user; user = user->getNextNode()) {
    SmallVector<Value> used = usesOf(user);
    auto depends = [&](Value value) {
      Operation *source = value.getDefiningOp();
      return source && (source == op || dependent.contains(source));
    };
    if (llvm::none_of(used, depends))
      continue;
    bool usesLarge = false, isForced = false;
    for (Value value : used)
      if (const Place *place = lookup(value); place && place->isLarge()) {
        usesLarge = true;
        isForced |= !place->isReduced;
      }
    std::string why;
    bool known = isMemoryEffectFree(user) && follow(user, why);
    dependent.insert(user);
    if (usesLarge && known) {
      consumers.insert(user);
    } else if (isForced) {
      reason = user->hasTrait<OpTrait::IsTerminator>() ? "a result" : why.empty() ? "what is no reduction" : why;
      if (!user->hasTrait<OpTrait::IsTerminator>())
        reason += (" (" + nodeName(user->getLoc()) + ")").str();
      return false;
    }
    if (!known)
      for (Value result : user->getResults())
        places.erase(result);
  }
  return collectExits(reason);
}

} // namespace attn
