#include "passes/graph/attention/Unfused.h"

#include "dialects/attn/IntegerProductOp.h"
#include "dialects/attn/TopKOp.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {

/// Whether a body multiplies what it reads by what it reads elsewhere.
static bool multiplies(linalg::LinalgOp op) {
  auto varies = [](Value value) { return !value.getDefiningOp<arith::ConstantOp>(); };
  return op.getNumDpsInputs() > 1 && op.getBlock() &&
         llvm::any_of(op.getBlock()->getOps<arith::MulFOp>(),
                      [&](arith::MulFOp product) { return varies(product.getLhs()) && varies(product.getRhs()); });
}

/// Whether `op` multiplies `weights` by what is the same along their dimension `dim`: they are weights still.
static bool scalesRows(linalg::LinalgOp op, Value weights, int64_t dim) {
  OpOperand *own = nullptr;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (input->get() != weights)
      continue;
    if (own)
      return false;
    own = input;
  }
  if (!own)
    return false;
  auto loop = dyn_cast<AffineDimExpr>(op.getMatchingIndexingMap(own).getResult(dim));
  Block &body = *op.getBlock();
  // What a body reads at places of its own may be another for each key.
  return loop && llvm::none_of(body, llvm::IsaPred<linalg::IndexOp, tensor::ExtractOp>) &&
         isMultipleOf(body.getTerminator()->getOperand(0), op.getMatchingBlockArgument(own)) &&
         llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *input) {
           return input == own || !op.getMatchingIndexingMap(input).isFunctionOfDim(loop.getPosition());
         });
}

/// Whether a sum over some dimension reads `value`, through views and changes
/// of the float type at most.
static bool isSummed(Value value) {
  return hasUse(
      value, [](OpOperand &use) { return getReduction(use.getOwner()) == Combiner::sum; },
      [](Operation *user) {
        return isView(user) || (isPointwise(user) && llvm::all_of(user->getRegion(0).front().without_terminator(),
                                                                  llvm::IsaPred<arith::ExtFOp, arith::TruncFOp>));
      });
}

/// Whether a contraction reads ones where positions are these, and zeros elsewhere.
static bool selectsValues(const Values &positions) {
  return worklist(positions, [](Value next, Values &list) {
    for (Operation *user : next.getUsers()) {
      if (isContraction(user))
        return true;
      // An op that reads the positions in its body, and no table at them.
      if (auto extract = dyn_cast<tensor::ExtractOp>(user))
        user = extract.getTensor() == next ? extract->getParentOp() : nullptr;
      bool isOwn =
          isPerElement(user) && (user->getNumRegions() == 0 ||
                                 llvm::all_of(user->getRegion(0).getOps<tensor::ExtractOp>(),
                                              [&](tensor::ExtractOp extract) { return extract.getTensor() == next; }));
      if (isOwn)
        list.push_back(user->getResult(0));
    }
    return false;
  });
}

/// The op beside `value` that reads it within its body, at places that the run has; null if `user` is none.
static Operation *readerByBody(Value value, Operation *user) {
  Operation *reader = isa<tensor::ExtractOp>(user) ? user->getParentOp() : nullptr;
  return isa_and_present<linalg::LinalgOp>(reader) && reader->getBlock() == value.getParentBlock() ? reader : nullptr;
}

static bool isByte(Value value) { return getElementTypeOrSelf(value).isInteger(8); }

/// Whether `op` rounds what it reads to integers of 8 bits, element by element.
static bool rounds(Operation *op) {
  return isPointwise(op) && isByte(op->getResult(0)) &&
         llvm::any_of(op->getRegion(0).front(), llvm::IsaPred<arith::FPToSIOp, arith::FPToUIOp>);
}

/// Whether `value` is a weight of the model, as it is.
static bool isStored(Value value) {
  return isa_and_nonnull<WeightOp, arith::ConstantOp>(stripViews(value).getDefiningOp());
}

/// Whether a contraction with what the run computes reads one of `values` as it is. Of weights at other places nothing
/// else is a weighted sum: the probability of a label times a factor is a loss, some probabilities times a weight a
/// layer.
static bool isContractedAsIs(const Values &values) {
  return worklist(values, [](Value value, Values &list) {
    for (Operation *user : value.getUsers()) {
      if (isContraction(user) && llvm::none_of(cast<linalg::LinalgOp>(user).getDpsInputs(), isStored))
        return true;
      if (isView(user))
        llvm::append_range(list, user->getResults());
    }
    return false;
  });
}

/// The two tensors of which an `Op` makes each element of `user` at the same place; null for others.
template <typename Op> static std::pair<Value, Value> operandsOf(Operation *user) {
  auto op = dyn_cast<linalg::LinalgOp>(user);
  auto [lhs, rhs] = getInputs<Op>(op);
  bool isSamePlace = lhs && op.getMatchingIndexingMap(lhs) == op.getMatchingIndexingMap(rhs);
  return isSamePlace ? std::pair(lhs->get(), rhs->get()) : std::pair<Value, Value>();
}

bool cancelOut(Value weights) {
  auto isTakenOff = [&](Value value) {
    Operation *op = value.getDefiningOp();
    return op && operandsOf<arith::SubFOp>(op).second == weights;
  };
  bool cancel = false;
  for (Operation *user : weights.getUsers()) {
    auto [lhs, rhs] = operandsOf<arith::AddFOp>(user);
    bool isAdded = (lhs == weights && isTakenOff(rhs)) || (rhs == weights && isTakenOff(lhs));
    bool isSubtracted = operandsOf<arith::SubFOp>(user).second == weights && user->hasOneUse() &&
                        llvm::is_contained(weights.getUsers(), *user->user_begin());
    auto op = dyn_cast<linalg::LinalgOp>(user);
    bool isCompared = op && !isPointwise(op) && !isContraction(op); // the largest one, and where that stands
    if (!isAdded && !isSubtracted && !isCompared)
      return false;
    cancel |= isAdded;
  }
  return cancel;
}

Miss whyNotContracted(const Normalization &softmax) {
  bool gates = false, ranks = false;
  Values positions;
  std::optional<Location> between, rounded;
  std::optional<Miss> found;
  auto end = [&](StringRef reason, Location location) {
    found = Miss{reason.str(), location};
    return true;
  };
  worklist(Values{softmax.result}, [&](Value value, Values &list) {
    for (Operation *user : value.getUsers()) {
      if (isContraction(user))
        return end("an operation that is not elementwise stands between the softmax and the weighted sum",
                   between.value_or(user->getLoc()));
      if (isa<IntegerProductOp>(user) && isByte(value))
        return end("its weights are rounded to integers before the weighted sum, which is one of integers",
                   rounded.value_or(user->getLoc()));
      if (auto op = dyn_cast<linalg::LinalgOp>(user);
          op && isPointwise(user) && multiplies(op) &&
          !(value == softmax.result && scalesRows(op, value, softmax.dim))) {
        bool isNormalized = llvm::any_of(user->getUsers(), [](Operation *next) {
          auto quotient = dyn_cast<linalg::LinalgOp>(next);
          return quotient && findSumNormalization(quotient);
        });
        if (isNormalized)
          return end("no contraction: what is left of its weights is divided by its sum again, and that is the weights",
                     user->getLoc());
        if (isSummed(user->getResult(0)))
          return end("the weighted sum is a product and a sum that were not joined", user->getLoc());
        gates = true;
        continue;
      }
      if (isa<TopKOp>(user)) { // a router's, or a list of candidates
        ranks = true;
        continue;
      }
      if (isa<AttentionOp>(user))
        return end("no contraction: its weights are the scores of another attention", softmax.location);
      if (!between && !isPerElement(user))
        between = user->getLoc();
      llvm::copy_if(user->getResults(), std::back_inserter(positions), [&](Value result) {
        return !isPerElement(user) && isa<IntegerType>(getElementTypeOrSelf(result));
      });
      if (Operation *reader = readerByBody(value, user); reader && isContractedAsIs(Values(reader->getResults())))
        return end("an operation that is not elementwise stands between the softmax and the weighted sum",
                   between.value_or(reader->getLoc()));
      if (!rounded && rounds(user))
        rounded = user->getLoc();
      // Numbers only: what an index selects is not weighted.
      bool areRounded = rounds(user) || (isByte(value) && isPerElement(user));
      if (isMemoryEffectFree(user))
        llvm::copy_if(user->getResults(), std::back_inserter(list), [&](Value result) {
          return isa<FloatType>(getElementTypeOrSelf(result)) || (areRounded && isByte(result));
        });
    }
    return false;
  });
  if (found)
    return *found;
  if (!gates && selectsValues(positions))
    return {"not an attention: the largest weight alone selects a value (hard attention)", softmax.location};
  return {gates   ? "no contraction: its weights multiply values, and are not summed over them"
          : ranks ? "not an attention: only its greatest weights are used (top-k)"
                  : "not an attention: its result is not contracted",
          softmax.location};
}

} // namespace attn
