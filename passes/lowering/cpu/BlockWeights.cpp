#include "passes/lowering/cpu/BlockWeights.h"

#include "dialects/attn/TopKOp.h"
#include "passes/lowering/cpu/QueryBlock.h"
#include "passes/lowering/cpu/WeightUses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Place = WeightUses::Place;

namespace {

/// A block has 32 queries, as many as the kernel handles at once, or more.
constexpr int64_t kLeastQueries = 32, kMostQueries = 512, kUsualQueries = 64;

/// Extra results that hold an element for each query and key.
SmallVector<Value> largeResults(AttentionOp op) {
  SmallVector<Value> large;
  for (auto [n, result] : llvm::enumerate(op.getExtraResults()))
    if (AttentionOp::names(op.getExtraMap(n), Dim::I) && AttentionOp::names(op.getExtraMap(n), Dim::J))
      large.push_back(result);
  return large;
}

/// The bytes of `value`, or nullopt where they depend on the run.
std::optional<int64_t> bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (!type.hasStaticShape())
    return std::nullopt;
  return type.getNumElements() * llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}

/// Whether `value` itself, in whatever shape, leaves its block.
bool isReturned(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    bool isShape = isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::CastOp>(user);
    return user->hasTrait<OpTrait::IsTerminator>() || (isShape && isReturned(user->getResult(0)));
  });
}

class Blocking {
public:
  Blocking(AttentionOp op, WeightUses &uses, RewriterBase &b, int64_t block)
      : op(op), uses(uses), b(b), loc(op.getLoc()), block(block) {}

  void run() {
    Operation *last = uses.consumers.empty() ? op.getOperation() : uses.consumers.back();
    b.setInsertionPointAfter(last);
    Operation *end = last->getNextNode();
    OpFoldResult size = op.getIterationSizes(b, loc)[Dim::I];
    Value numQueries = getValueOrCreateConstantIndexOp(b, loc, size), zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value step = arith::ConstantIndexOp::create(b, loc, block);
    Value whole = b.createOrFold<arith::MulIOp>(loc, b.createOrFold<arith::DivUIOp>(loc, numQueries, step), step);
    OpFoldResult rest = getAsOpFoldResult(b.createOrFold<arith::SubIOp>(loc, numQueries, whole));
    for (unsigned sweep = 0; sweep != uses.numSweeps; ++sweep) {
      SmallVector<Value> exits;
      llvm::copy_if(uses.exits, std::back_inserter(exits),
                    [&](Value value) { return uses.lookup(value)->sweep == sweep; });
      if (exits.empty())
        continue;
      SmallVector<Value> carried = llvm::map_to_vector(exits, [&](Value value) { return start(value); });
      auto loop = scf::ForOp::create(b, loc, zero, whole, step, carried);
      front = loop;
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(loop.getBody());
        auto yields = sweepBlock(exits, loop.getInductionVar(), b.getIndexAttr(block), loop.getRegionIterArgs());
        scf::YieldOp::create(b, loc, yields);
      }
      carried.assign(loop.result_begin(), loop.result_end());
      if (!isZeroInteger(rest))
        carried = sweepBlock(exits, whole, rest, carried);
      for (auto [value, done] : llvm::zip_equal(exits, carried))
        complete[value] = done;
    }
    // What depends on the attention and stood before goes behind the loops.
    Operation *position = end ? end->getPrevNode() : &last->getBlock()->back();
    SmallVector<Operation *> moved;
    for (Operation *other = op->getNextNode(); other != last; other = other->getNextNode())
      if (uses.dependent.contains(other) && !uses.consumers.contains(other))
        moved.push_back(other);
    for (Operation *other : moved) {
      b.moveOpAfter(other, position);
      position = other;
    }
    for (Value value : uses.exits)
      if (Value done = complete.lookup(value))
        b.replaceAllUsesWith(value, done);
    for (Operation *consumer : llvm::reverse(uses.consumers))
      b.eraseOp(consumer);
    b.eraseOp(op);
  }

private:
  /// The size of dimension `dim` of `value`, not read from what will be gone.
  OpFoldResult sizeOf(Value value, int64_t dim) {
    auto type = cast<RankedTensorType>(value.getType());
    if (!type.isDynamicDim(dim))
      return b.getIndexAttr(type.getDimSize(dim));
    Operation *source = value.getDefiningOp();
    if (!uses.lookup(value)) {
      if (auto empty = value.getDefiningOp<tensor::EmptyOp>())
        return empty.getMixedSizes()[dim];
      if (auto fill = value.getDefiningOp<linalg::FillOp>())
        return sizeOf(fill.getOutputs()[0], dim);
      return tensor::getMixedSize(b, loc, value, dim);
    }
    if (source == op) {
      AffineMap map = op.getMap(op.getNumOperands() + cast<OpResult>(value).getResultNumber());
      return op.getIterationSizes(b, loc)[*AttentionOp::getNamedDim(map.getResult(dim))];
    }
    if (auto linalgOp = dyn_cast<linalg::LinalgOp>(source))
      return sizeOf(linalgOp.getTiedOpOperand(cast<OpResult>(value))->get(), dim);
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(source))
      return expand.getMixedOutputShape()[dim];
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(source)) {
      llvm::SmallBitVector dropped = slice.getDroppedDims();
      for (auto [n, size] : llvm::enumerate(slice.getMixedSizes()))
        if (!dropped.test(n) && dim-- == 0)
          return size;
    }
    if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(source)) {
      Value product;
      ReassociationIndices group = collapse.getReassociationIndices()[dim];
      for (int64_t n : group) {
        Value factor = getValueOrCreateConstantIndexOp(b, loc, sizeOf(collapse.getSrc(), n));
        product = product ? b.createOrFold<arith::MulIOp>(loc, product, factor) : factor;
      }
      return product;
    }
    if (auto top = dyn_cast<TopKOp>(source); top && dim == static_cast<int64_t>(top.getDim()))
      return top.getCount();
    return sizeOf(source->getOperand(0), dim); // of a cast, softmax
  }

  /// What the loop starts from: sums over queries from where the op does.
  Value start(Value exit) {
    if (uses.lookup(exit)->query < 0) {
      auto sum = exit.getDefiningOp<linalg::LinalgOp>();
      return sum.getTiedOpOperand(cast<OpResult>(exit))->get();
    }
    auto type = cast<RankedTensorType>(exit.getType());
    SmallVector<Value> dynamic;
    for (int64_t n = 0; n != type.getRank(); ++n)
      if (type.isDynamicDim(n))
        dynamic.push_back(getValueOrCreateConstantIndexOp(b, loc, sizeOf(exit, n)));
    return tensor::EmptyOp::create(b, loc, type, dynamic);
  }

  /// The queries from `offset` on; gives the next values of `exits`.
  SmallVector<Value> sweepBlock(ArrayRef<Value> exits, Value offset, OpFoldResult rows, ValueRange carried) {
    QueryBlockOps queries(b, loc, offset, rows);
    tiles.clear();
    sums.clear();
    for (auto [exit, value] : llvm::zip_equal(exits, carried))
      if (uses.lookup(exit)->query < 0)
        sums[exit] = value;
    SmallVector<Value> next;
    for (auto [exit, value] : llvm::zip_equal(exits, carried)) {
      Value made = tile(exit, queries);
      int64_t dim = uses.lookup(exit)->query;
      next.push_back(dim < 0 ? made : queries.insert(made, value, dim));
    }
    return next;
  }

  /// `value` for the queries of the block: all of it where it has no queries.
  Value tile(Value value, QueryBlockOps &queries) {
    const Place *place = uses.lookup(value);
    if (!place)
      return value;
    if (Value known = tiles.lookup(value))
      return known;
    if (place->query < 0 && !sums.count(value))
      return tiles[value] = whole(value);
    Operation *source = value.getDefiningOp();
    SmallVector<Value> made = source == op ? queries.attention(op) : tileOp(source, queries);
    for (auto [result, one] : llvm::zip_equal(source->getResults(), made))
      tiles[result] = one;
    return tiles.lookup(value);
  }

  /// A value without queries that an earlier loop completed, or made of such.
  Value whole(Value value) {
    if (!uses.lookup(value))
      return value;
    if (Value known = complete.lookup(value))
      return known;
    Operation *source = value.getDefiningOp();
    IRMapping mapping;
    for (Value operand : source->getOperands())
      mapping.map(operand, whole(operand));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(front);
    Operation *twin = b.clone(*source, mapping);
    for (auto [result, one] : llvm::zip_equal(source->getResults(), twin->getResults()))
      complete[result] = one;
    return complete.lookup(value);
  }

  SmallVector<Value> tileOp(Operation *source, QueryBlockOps &queries) {
    if (auto linalgOp = dyn_cast<linalg::LinalgOp>(source)) {
      SmallVector<Value> operands;
      std::optional<unsigned> loop = WeightUses::findLoop(linalgOp, uses);
      for (OpOperand &operand : source->getOpOperands()) {
        Value value = operand.get();
        bool isInit = linalgOp.isDpsInit(&operand);
        if (Value sum = isInit ? sums.lookup(linalgOp.getTiedOpResult(&operand)) : Value()) {
          operands.push_back(sum);
          continue;
        }
        const Place *place = uses.lookup(value);
        value = tile(value, queries);
        if (!place && loop)
          for (auto [n, expr] : llvm::enumerate(linalgOp.getMatchingIndexingMap(&operand).getResults()))
            if (auto dim = dyn_cast<AffineDimExpr>(expr); dim && dim.getPosition() == *loop)
              value = queries.slice(value, n);
        operands.push_back(value);
      }
      return queries.linalg(linalgOp, operands, loop);
    }
    SmallVector<Value> operands =
        llvm::map_to_vector(source->getOperands(), [&](Value value) { return tile(value, queries); });
    auto dims = llvm::map_to_vector(source->getResults(), [&](Value result) { return uses.lookup(result)->query; });
    return queries.shaped(source, operands, uses.lookup(source->getOperand(0))->query, dims);
  }

  AttentionOp op;
  WeightUses &uses;
  RewriterBase &b;
  Location loc;
  int64_t block;
  Operation *front = nullptr;   ///< the loop at hand
  DenseMap<Value, Value> tiles; ///< of the block at hand
  DenseMap<Value, Value> sums;  ///< over queries: of those before
  DenseMap<Value, Value> complete;
};

/// Queries of a block, so that its weights fit the caches of two cores.
int64_t chooseBlock(AttentionOp op, ArrayRef<Value> large, TargetAttr target) {
  int64_t bytes = 0;
  for (Value value : large) {
    auto type = cast<RankedTensorType>(value.getType());
    AffineMap map = op.getMap(op.getNumOperands() + cast<OpResult>(value).getResultNumber());
    int64_t row = llvm::divideCeil(type.getElementTypeBitWidth(), 8);
    for (auto [n, expr] : llvm::enumerate(map.getResults())) {
      if (AttentionOp::getNamedDim(expr) == unsigned(Dim::I))
        continue;
      if (type.isDynamicDim(n) || llvm::MulOverflow(row, type.getDimSize(n), row))
        return kUsualQueries;
    }
    bytes += row;
  }
  return std::clamp(2 * target.getL2() / std::max<int64_t>(bytes, 1) / kLeastQueries * kLeastQueries, kLeastQueries,
                    kMostQueries);
}

} // namespace

bool blockWeights(AttentionOp op, RewriterBase &rewriter, TargetAttr target, std::string &note) {
  SmallVector<Value> large = largeResults(op);
  std::optional<int64_t> bytes = 0;
  for (Value value : large) {
    std::optional<int64_t> one = bytesOf(value);
    bytes = bytes && one ? std::optional(*bytes + *one) : std::nullopt;
  }
  if (large.empty())
    return false;
  std::string reason;
  auto store = [&] {
    note = "stored: " + (bytes ? std::to_string(*bytes) + " bytes" : "an element for each pair of query and key");
    if (!reason.empty())
      note += ", for " + reason;
    return false;
  };
  if (bytes && *bytes <= target.getL2()) {
    reason = "they are few";
    return store();
  }
  if (llvm::any_of(large, isReturned)) {
    reason = "a result";
    return store();
  }
  op = splitGroups(op, rewriter);
  large = largeResults(op);
  WeightUses uses(op);
  int64_t block = chooseBlock(op, large, target);
  if (!QueryBlockOps::canTake(op, block, reason) || !uses.analyze(reason))
    return store();
  note = "reduced by blocks of " + std::to_string(block) + " queries";
  if (uses.numSweeps > 1)
    note += ", twice";
  Blocking(op, uses, rewriter, block).run();
  return true;
}

} // namespace attn
