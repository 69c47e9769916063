#include "passes/lowering/buffers/ExpandAppends.h"
#include "dialects/attn/CacheOps.h"
#include "passes/graph/Collect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

namespace {
class AppendExpander {
public:
  explicit AppendExpander(func::FuncOp entry) : entry(entry) {}

  FailureOr<llvm::DenseMap<int64_t, AppendedState>> run() {
    if (failed(readStates()))
      return failure();
    for (KvAppendOp op : collect<KvAppendOp>(entry))
      if (failed(expand(op)))
        return failure();
    SmallVector<KvOpenOp> opened(entry.getOps<KvOpenOp>());
    for (KvOpenOp op : opened)
      if (failed(open(op)))
        return failure();
    writeStates();
    return written;
  }

private:
  LogicalResult readStates() {
    auto attr = entry->getAttrOfType<ArrayAttr>(kStatesAttr);
    if (!attr)
      return success();
    for (Attribute state : attr) {
      auto pair = dyn_cast<DenseI64ArrayAttr>(state);
      bool isPair = pair && pair.size() >= 2 && pair[0] >= 0 && pair[0] < entry.getNumArguments() && pair[1] >= 0 &&
                    pair[1] < entry.getNumResults();
      if (!isPair || llvm::any_of(states, [&](const State &s) { return s.input == pair[0] || s.output == pair[1]; }))
        return entry.emitOpError("expects pairs of an input and an output, each in one pair, in ") << kStatesAttr;
      states.push_back({pair[0], pair[1], kOwnBuffer});
    }
    return success();
  }

  void writeStates() {
    if (states.empty())
      return;
    OpBuilder b(entry.getContext());
    SmallVector<Attribute> attrs;
    for (const State &state : states)
      attrs.push_back(b.getDenseI64ArrayAttr({state.input, state.output, state.dim}));
    entry->setAttr(kStatesAttr, b.getArrayAttr(attrs));
  }

  LogicalResult expand(KvAppendOp op) {
    OpBuilder b(op);
    Location loc = op.getLoc();
    ReifiedRankedShapedTypeDims shapes;
    if (failed(op.reifyResultShapes(b, shapes)))
      return failure();
    ArrayRef<OpFoldResult> sizes = shapes[0];
    auto type = cast<RankedTensorType>(op.getType());
    int64_t rank = type.getRank(), dim = op.getDim();
    SmallVector<OpFoldResult> front(rank, b.getIndexAttr(0)), strides(rank, b.getIndexAttr(1)), behind = front;
    behind[dim] = tensor::getMixedSize(b, loc, op.getCache(), dim);
    SmallVector<OpFoldResult> rows = tensor::getMixedSizes(b, loc, op.getRows());
    if (!op.getState()) {
      SmallVector<Value> dynamic;
      for (int64_t d = 0; d < rank; ++d)
        if (type.isDynamicDim(d))
          dynamic.push_back(getValueOrCreateConstantIndexOp(b, loc, sizes[d]));
      Value whole = tensor::EmptyOp::create(b, loc, type, dynamic);
      SmallVector<OpFoldResult> past = tensor::getMixedSizes(b, loc, op.getCache());
      whole = tensor::InsertSliceOp::create(b, loc, op.getCache(), whole, front, past, strides);
      op.replaceAllUsesWith(
          tensor::InsertSliceOp::create(b, loc, op.getRows(), whole, behind, rows, strides).getResult());
      op.erase();
      return success();
    }
    FailureOr<State *> state = stateOf(op, op.getCache(), *op.getState());
    if (failed(state))
      return failure();
    if (returned(**state) != op.getResult() || op->getBlock() != &entry.getBody().front())
      return op.emitOpError("expects to append to input ")
             << (*state)->input << " what the entry returns as result " << (*state)->output;
    SmallVector<Value> dynamic;
    for (int64_t d = 0; d < rank; ++d)
      if (type.isDynamicDim(d))
        dynamic.push_back(getValueOrCreateConstantIndexOp(b, loc, sizes[d]));
    Value memory = CacheOp::create(b, loc, MemRefType::get(type.getShape(), type.getElementType()), *op.getState(),
                                   b.getI64IntegerAttr(dim), dynamic);
    Value room = bufferization::ToTensorOp::create(b, loc, type, memory, /*restrict=*/true, /*writable=*/true);
    Value contents = tensor::InsertSliceOp::create(b, loc, op.getRows(), room, behind, rows, strides);
    op.replaceAllUsesWith(tensor::ExtractSliceOp::create(b, loc, type, contents, front, sizes, strides).getResult());
    (*state)->dim = dim;
    written[(*state)->output] = {memory, contents};
    op.erase();
    return success();
  }

  /// The memory of a state in place of the input that it is.
  LogicalResult open(KvOpenOp op) {
    FailureOr<State *> state = stateOf(op, op.getCache(), op.getState());
    if (failed(state))
      return failure();
    Value contents = returned(**state);
    if (contents.getType() != op.getType())
      return op.emitOpError("expects the entry to return ") << op.getType() << " as result " << (*state)->output;
    OpBuilder b(op);
    Location loc = op.getLoc();
    SmallVector<Value> dynamic;
    auto type = cast<RankedTensorType>(op.getType());
    for (int64_t d = 0; d < type.getRank(); ++d)
      if (type.isDynamicDim(d))
        dynamic.push_back(tensor::DimOp::create(b, loc, op.getCache(), d));
    Value memory = CacheOp::create(b, loc, MemRefType::get(type.getShape(), type.getElementType()), op.getState(),
                                   /*dim=*/IntegerAttr(), dynamic);
    op.replaceAllUsesWith(
        bufferization::ToTensorOp::create(b, loc, type, memory, /*restrict=*/true, /*writable=*/true).getResult());
    op.erase();
    (*state)->dim = kWrittenOver;
    written[(*state)->output] = {memory, returned(**state)};
    return success();
  }

  struct State {
    int64_t input, output, dim;
  };

  Value returned(const State &state) {
    Value value = entry.getBody().front().getTerminator()->getOperand(state.output);
    auto same = value.getDefiningOp<tensor::CastOp>();
    return same ? same.getSource() : value;
  }

  /// The state `number` that `op` names, if the entry's are as it says.
  FailureOr<State *> stateOf(Operation *op, Value cache, int32_t number) {
    if (number >= static_cast<int64_t>(states.size()) || states[number].dim != kOwnBuffer)
      return op->emitOpError("expects a state of the entry that no other op writes to, got ") << number;
    State &state = states[number];
    if (cache != entry.getArgument(state.input))
      return op->emitOpError("expects input ") << state.input << ", which state " << number << " holds";
    for (Operation *user : cache.getUsers())
      if (user != op && !isa<tensor::DimOp>(user))
        return op->emitOpError("expects no other op to read input ") << state.input << ", which lies in a state";
    return &state;
  }

  func::FuncOp entry;
  SmallVector<State> states;
  llvm::DenseMap<int64_t, AppendedState> written;
};
} // namespace

FailureOr<llvm::DenseMap<int64_t, AppendedState>> attn::expandAppends(func::FuncOp entry) {
  return AppendExpander(entry).run();
}
