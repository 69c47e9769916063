#include "passes/lowering/search/CacheValues.h"

#include "dialects/attn/LoopOps.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/ScoreKinds.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/search/SearchKernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {

/// Shorter rows gain too little: the scale takes four bytes.
static constexpr int64_t kLeastWidth = 8;

static bool isMove(Operation *op) { return isa_and_nonnull<KernelOp>(op) && op->hasAttr(kMoveAttr); }

static std::string describe(Operation *op) {
  StringRef node = nodeName(op->getLoc());
  return node.empty() ? "'" + op->getName().getStringRef().str() + "'" : node.str();
}

CacheValues::CacheValues(Value start, AttentionObstacle findObstacleOf) : findObstacleOf(findObstacleOf) {
  worklist<Value>({start}, [&](Value value, List &list) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || type.getRank() < 2 ||
        !(type.getElementType().isF32() || type.getElementType().isF16() || type.getElementType().isBF16())) {
      refuse("it is no tensor of rows of floats");
      return true;
    }
    int64_t width = type.getShape().back();
    if (ShapedType::isDynamic(width))
      refuse("its rows are of any length");
    else if (width < kLeastWidth)
      refuse("its rows are of " + Twine(width) + " numbers, and for less than " + Twine(kLeastWidth) +
             " the scales would take too much");
    values.insert(value);
    if (auto argument = dyn_cast<BlockArgument>(value))
      followArgument(argument, list);
    else
      followMaker(value, list);
    for (OpOperand &use : value.getUses())
      followUse(use, list);
    return false;
  });
}

std::string CacheValues::findObstacle() const {
  if (!obstacle.empty())
    return obstacle;
  if (reads.empty())
    return "no attention reads it";
  return isAppended ? "" : "a run appends no rows to it";
}

/// The first reason is told.
void CacheValues::refuse(const Twine &reason) {
  if (obstacle.empty())
    obstacle = reason.str();
}

/// A part of a cache has whole rows.
void CacheValues::followSlice(OffsetSizeAndStrideOpInterface slice, RankedTensorType whole, RankedTensorType part) {
  views.insert(slice);
  if (part.getRank() != whole.getRank() || part.getShape().back() != whole.getShape().back() ||
      slice.getStaticSizes().back() != whole.getShape().back() ||
      !isConstantIntValue(slice.getMixedOffsets().back(), 0))
    refuse(describe(slice) + " takes rows of it apart");
}

void CacheValues::followMaker(Value value, List &list) {
  Operation *op = value.getDefiningOp();
  if (auto append = dyn_cast<KvAppendOp>(op)) {
    isAppended = true;
    list.push_back(append.getCache());
    written.insert(&append.getRowsMutable());
    if (append.getDim() + 1 == static_cast<uint64_t>(append.getType().getRank()))
      refuse("what is appended to it are no rows");
  } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
    isAppended = true;
    list.push_back(insert.getDest());
    written.insert(&insert.getSourceMutable());
    followSlice(insert, insert.getDestType(), insert.getSourceType());
  } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    list.push_back(slice.getSource());
    followSlice(slice, slice.getSourceType(), slice.getType());
  } else if (auto grow = dyn_cast<GrowOp>(op)) {
    // What is there before the loop is no cache yet.
    if (isa<BlockArgument>(grow.getBuffer()) && isa<scf::WhileOp>(grow->getParentOp()))
      list.push_back(grow.getBuffer());
    else
      written.insert(&grow.getBufferMutable());
  } else if (isa<tensor::CastOp>(op)) {
    list.push_back(op->getOperand(0));
  } else if (isMove(op)) {
    views.insert(op);
    list.append({cast<KernelOp>(op).getInputs().back(), cast<KernelOp>(op).getInits().front()});
  } else if (auto loop = dyn_cast<scf::WhileOp>(op)) {
    list.push_back(loop.getConditionOp().getArgs()[cast<OpResult>(value).getResultNumber()]);
  } else {
    refuse(describe(op) + " makes it anew");
  }
}

void CacheValues::followArgument(BlockArgument argument, List &list) {
  auto loop = dyn_cast<scf::WhileOp>(argument.getOwner()->getParentOp());
  unsigned number = argument.getArgNumber();
  if (!loop)
    return followState(argument, list);
  if (argument.getOwner() == loop.getBeforeBody())
    list.append({loop.getInits()[number], loop.getYieldOp().getOperand(number)});
  else
    list.append({loop.getConditionOp().getArgs()[number], loop.getResult(number)});
}

/// An input of an entry and the output that is this input in the next run.
void CacheValues::followState(BlockArgument argument, List &list) {
  auto entry = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto states = entry ? entry->getAttrOfType<ArrayAttr>(kStatesAttr) : ArrayAttr();
  if (states)
    for (auto state : states.getAsRange<DenseI64ArrayAttr>())
      if (state[0] == argument.getArgNumber()) {
        output = state[1];
        return list.push_back(argument.getOwner()->getTerminator()->getOperand(state[1]));
      }
  refuse("it is made of an input that is no state");
}

void CacheValues::followUse(OpOperand &use, List &list) {
  Operation *op = use.getOwner();
  unsigned number = use.getOperandNumber();
  if (isa<tensor::DimOp>(op))
    return;
  if (isa<AttentionOp>(op))
    return read(use, use.get());
  if (linalg::GenericOp widening = getConversion<arith::ExtFOp>(op);
      widening && getElementTypeOrSelf(widening.getResult(0)).isF32() && number == 0) {
    widenings.insert(op);
    for (OpOperand &wide : op->getResult(0).getUses())
      read(wide, use.get());
    return;
  }
  if (auto loop = dyn_cast<scf::WhileOp>(isa<scf::WhileOp>(op) ? op : op->getParentOp());
      loop && isa<scf::WhileOp, scf::ConditionOp, scf::YieldOp>(op))
    return followTie(loop, use, list);
  bool isWritten = isa<tensor::InsertSliceOp, KvAppendOp>(op) && number == 0;
  if (isa<KvOpenOp>(op))
    return refuse("rows of it are replaced, and not only appended");
  if (isa<KvAppendOp, tensor::InsertSliceOp, tensor::ExtractSliceOp, tensor::CastOp, GrowOp>(op) && !isWritten)
    return list.push_back(op->getResult(0));
  if (isMove(op))
    return list.push_back(op->getResult(0));
  if (isa<func::ReturnOp>(op)) {
    if (output != number)
      refuse("it is another output, too");
    return;
  }
  refuse(describe(op) + " reads it, which is no attention");
}

/// From what a loop is given to its arguments and results.
void CacheValues::followTie(scf::WhileOp loop, OpOperand &use, List &list) {
  unsigned number = use.getOperandNumber();
  if (!isa<scf::ConditionOp>(use.getOwner()))
    return list.push_back(loop.getBeforeArguments()[number]);
  if (number > 0) // not the condition
    list.append({loop.getAfterArguments()[number - 1], loop.getResult(number - 1)});
}

/// `operand` is `source` as f32.
void CacheValues::read(OpOperand &operand, Value source) {
  auto attention = dyn_cast<AttentionOp>(operand.getOwner());
  if (!attention)
    return refuse(describe(operand.getOwner()) + " reads it, which is no attention");
  unsigned number = operand.getOperandNumber(), value = attention.getKey() ? 2 : 1;
  reads.push_back({&operand, source});
  if (number == 0 || number > value)
    return refuse(describe(attention) + " reads it as something else than keys or values");
  bool isKey = number != value;
  AffineMap map = attention.getMap(number);
  AffineExpr row = getAffineDimExpr(isKey ? AttentionOp::D : AttentionOp::E, map.getContext());
  if (!map.getNumResults() || map.getResults().back() != row)
    return refuse(describe(attention) + " has " + (isKey ? "keys" : "values") + " that are not its rows");
  if (isKey && !getScoreFormula(attention.getKind()).isProduct)
    return refuse(describe(attention) + " has scores that are no products with keys");
  if (std::string reason = findObstacleOf(attention); !reason.empty())
    refuse(describe(attention) + " " + reason);
}

} // namespace attn
