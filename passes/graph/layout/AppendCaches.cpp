#include "dialects/attn/CacheOps.h"
#include "passes/Passes.h"
#include "passes/graph/element/Access.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_APPENDCACHESPASS
#include "passes/Passes.h.inc"

namespace {

/// Whether two sizes are one, as far as the ops of one tensor's sizes tell.
bool isSame(OpFoldResult a, OpFoldResult b) { return Extent::of(a) == Extent::of(b); }

/// Whether `value` is `cache` plus `rows`.
bool isSum(OpFoldResult value, OpFoldResult cache, OpFoldResult rows) {
  std::optional<int64_t> total = getConstantIntValue(value), first = getConstantIntValue(cache),
                         second = getConstantIntValue(rows);
  if (total && first && second)
    return *total == *first + *second;
  auto sum = dyn_cast<Value>(value);
  auto op = sum ? sum.getDefiningOp<arith::AddIOp>() : arith::AddIOp();
  if (!op)
    return false;
  OpFoldResult left = getAsOpFoldResult(op.getLhs()), right = getAsOpFoldResult(op.getRhs());
  return (isSame(left, cache) && isSame(right, rows)) || (isSame(left, rows) && isSame(right, cache));
}

struct Append {
  Value cache, rows;
  int64_t dim = -1;
};

/// `value` is an input of the entry and then one tensor more.
std::optional<Append> matchAppend(Value value) {
  if (auto concat = value.getDefiningOp<tensor::ConcatOp>()) {
    if (concat.getInputs().size() != 2 || !isa<BlockArgument>(concat.getInputs()[0]))
      return std::nullopt;
    return Append{concat.getInputs()[0], concat.getInputs()[1], static_cast<int64_t>(concat.getDim())};
  }
  auto second = value.getDefiningOp<tensor::InsertSliceOp>();
  auto first = second ? second.getDest().getDefiningOp<tensor::InsertSliceOp>() : tensor::InsertSliceOp();
  auto empty = first ? first.getDest().getDefiningOp<tensor::EmptyOp>() : tensor::EmptyOp();
  if (!empty || !isa<BlockArgument>(first.getSource()))
    return std::nullopt;
  Append found{first.getSource(), second.getSource()};
  RankedTensorType type = second.getType();
  if (first.getSourceType().getRank() != type.getRank() || second.getSourceType().getRank() != type.getRank() ||
      !first.hasUnitStride() || !second.hasUnitStride())
    return std::nullopt;
  SmallVector<OpFoldResult> whole = empty.getMixedSizes(), front = first.getMixedSizes(), back = second.getMixedSizes();
  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (!isConstantIntValue(first.getMixedOffsets()[d], 0))
      return std::nullopt;
    OpFoldResult offset = second.getMixedOffsets()[d];
    // Parts that fill the result in this dimension.
    if (isConstantIntValue(offset, 0) && isSame(whole[d], back[d]) && isSame(whole[d], front[d]))
      continue;
    // The size of an inserted slice is its source's.
    bool follows = isSame(offset, front[d]);
    if (found.dim >= 0 || !follows || !isSum(whole[d], front[d], back[d]))
      return std::nullopt;
    found.dim = d;
  }
  return found.dim >= 0 ? std::optional<Append>(found) : std::nullopt;
}

/// Whether `value` is `cache` with some of its elements replaced.
bool isWrittenOver(Value value, Value cache) {
  while (value != cache) {
    auto result = dyn_cast<OpResult>(value);
    Operation *op = result ? result.getOwner() : nullptr;
    if (auto loop = dyn_cast_or_null<scf::ForOp>(op)) {
      if (!isWrittenOver(loop.getYieldedValues()[result.getResultNumber()],
                         loop.getRegionIterArg(result.getResultNumber())))
        return false;
      value = loop.getInitArgs()[result.getResultNumber()];
    } else if (isa_and_nonnull<tensor::InsertOp, tensor::InsertSliceOp>(op)) {
      value = cast<DestinationStyleOpInterface>(op).getDpsInitOperand(0)->get();
    } else if (auto cast = dyn_cast_or_null<tensor::CastOp>(op)) {
      value = cast.getSource();
    } else {
      return false;
    }
  }
  return true;
}

struct AppendCachesPass : impl::AppendCachesPassBase<AppendCachesPass> {
  void runOnOperation() override {
    for (auto entry : getOperation().getOps<func::FuncOp>())
      if (entry->hasAttr(AttnDialect::kEntryAttr) && !entry.isExternal() && entry.getBody().hasOneBlock())
        run(entry);
  }

  void run(func::FuncOp entry) {
    Operation *end = entry.getBody().front().getTerminator();
    SmallVector<StringRef> reasons(statesOf(entry).size());
    // States first: a value that is another output, too, is still appended to in place.
    for (bool wantsState : {true, false})
      for (OpOperand &operand : end->getOpOperands()) {
        std::optional<int32_t> state = stateOf(entry, operand.getOperandNumber());
        if (state.has_value() != wantsState)
          continue;
        StringRef reason = run(operand, state ? inputOf(entry, *state) : Value(), state);
        if (state)
          reasons[*state] = reason;
        if (!reason.empty())
          remark::missed(end->getLoc(), remark::RemarkOpts::name("Cache").category("attn-append-caches"))
              << remark::reason("output {0}: {1}", operand.getOperandNumber(), reason);
      }
    if (llvm::any_of(reasons, [](StringRef reason) { return !reason.empty(); }))
      entry->setAttr(kStateReasonsAttr, Builder(&getContext()).getStrArrayAttr(reasons));
  }

  /// Of a state, why it is not appended to.
  StringRef run(OpOperand &operand, Value input, std::optional<int32_t> state) {
    Value value = operand.get();
    if (auto cast = value.getDefiningOp<tensor::CastOp>())
      value = cast.getSource();
    if (state && input && value != input && value.getType() == input.getType() && isWrittenOver(value, input)) {
      open(cast<BlockArgument>(input), *state);
      return "";
    }
    std::optional<Append> append = matchAppend(value);
    bool isOwn = append && cast<BlockArgument>(append->cache).getOwner() == operand.getOwner()->getBlock();
    if (!isOwn)
      return state ? "the output is neither the input with rows behind it nor the input with rows replaced" : "";
    StringRef reason;
    if (state)
      reason = append->cache == input ? whyNotInPlace(value, *append) : "the output begins with another input";
    replace(value, *append, reason.empty() ? state : std::nullopt);
    return reason;
  }

  /// The input is the state's memory from the start. Who reads it after it is written gets a copy of what it was
  /// when bufferisation sees both.
  void open(BlockArgument cache, int32_t state) {
    OpBuilder b = OpBuilder::atBlockBegin(cache.getOwner());
    auto opened = KvOpenOp::create(b, cache.getLoc(), cache.getType(), cache, state);
    cache.replaceUsesWithIf(opened.getResult(), [&](OpOperand &use) {
      return use.getOwner() != opened && !isa<tensor::DimOp>(use.getOwner());
    });
    remark::passed(cache.getLoc(), remark::RemarkOpts::name("Cache").category("attn-append-caches"))
        << "rows of a state are replaced";
  }

  static StringRef whyNotInPlace(Value value, const Append &append) {
    if (!cast<RankedTensorType>(value.getType()).isDynamicDim(append.dim) ||
        !cast<RankedTensorType>(append.cache.getType()).isDynamicDim(append.dim))
      return "the number of rows is fixed";
    if (append.rows == append.cache)
      return "the new rows are made from the input";
    // Others read the input at the front of the output, which is to be there before them.
    Operation *op = value.getDefiningOp(), *first = nullptr;
    for (Operation *user : append.cache.getUsers()) {
      if (isa<tensor::DimOp>(user) || user == op || isInsertedBy(op, user))
        continue;
      Operation *reader = op->getBlock()->findAncestorOpInBlock(*user);
      if (!first || reader->isBeforeInBlock(first))
        first = reader;
    }
    IRRewriter rewriter(op->getContext());
    if (first && first->isBeforeInBlock(op) && failed(moveValueDefinitions(rewriter, value, first)))
      return "the new rows are made from the input";
    return "";
  }

  /// Who reads `cache` reads the front of what `append` makes: the memory of a
  /// state is not laid out as an input.
  static void readFront(KvAppendOp append) {
    Value cache = append.getCache();
    auto type = cast<RankedTensorType>(cache.getType());
    auto reads = [&](OpOperand &use) { return !isa<tensor::DimOp>(use.getOwner()) && use.getOwner() != append; };
    if (!llvm::any_of(cache.getUses(), reads))
      return;
    OpBuilder b(append->getContext());
    b.setInsertionPointAfter(append);
    SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0)), strides(type.getRank(), b.getIndexAttr(1));
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, append.getLoc(), cache);
    Value front = tensor::ExtractSliceOp::create(b, append.getLoc(), type, append, offsets, sizes, strides);
    cache.replaceUsesWithIf(front, reads);
  }

  void replace(Value value, const Append &append, std::optional<int32_t> state) {
    auto type = cast<RankedTensorType>(value.getType());
    Operation *op = value.getDefiningOp();
    OpBuilder b(op);
    IntegerAttr number = state ? b.getI32IntegerAttr(*state) : IntegerAttr();
    auto result =
        KvAppendOp::create(b, op->getLoc(), type, append.rows, append.cache, b.getI64IntegerAttr(append.dim), number);
    value.replaceAllUsesWith(result);
    remark::passed(op->getLoc(), remark::RemarkOpts::name("Cache").category("attn-append-caches"))
        << (state ? "rows are appended to a state" : "rows are appended to a cache");
    while (op && op->use_empty() && isMemoryEffectFree(op)) {
      auto insert = dyn_cast<tensor::InsertSliceOp>(op);
      Operation *next = insert ? insert.getDest().getDefiningOp() : nullptr;
      op->erase();
      op = next;
    }
    if (state)
      readFront(result);
  }

  /// Whether `op` is a concatenation that ends what `user` begins.
  static bool isInsertedBy(Operation *op, Operation *user) {
    auto insert = dyn_cast<tensor::InsertSliceOp>(op);
    return insert && insert.getDest().getDefiningOp() == user;
  }

  static ArrayRef<Attribute> statesOf(func::FuncOp entry) {
    auto states = entry->getAttrOfType<ArrayAttr>(kStatesAttr);
    return states ? states.getValue() : ArrayRef<Attribute>();
  }

  static std::optional<int32_t> stateOf(func::FuncOp entry, int64_t output) {
    for (auto [n, state] : llvm::enumerate(statesOf(entry)))
      if (auto pair = dyn_cast<DenseI64ArrayAttr>(state); pair && pair.size() >= 2 && pair[1] == output)
        return n;
    return std::nullopt;
  }

  static Value inputOf(func::FuncOp entry, int32_t state) {
    int64_t input = cast<DenseI64ArrayAttr>(statesOf(entry)[state])[0];
    return input >= 0 && input < entry.getNumArguments() ? Value(entry.getArgument(input)) : Value();
  }
};

} // namespace
} // namespace attn
