#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_MOVECHANNELSPASS
#include "passes/Passes.h.inc"

namespace {

/// [N, C, S...] as [N, S..., C].
SmallVector<int64_t> orderOfLast(int64_t rank) {
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

/// [N, S..., C] as [N, C, S...].
SmallVector<int64_t> orderOfFirst(int64_t rank) { return invertPermutationVector(orderOfLast(rank)); }

template <typename T> SmallVector<T> withChannelsLast(ArrayRef<T> values) {
  SmallVector<T> moved;
  for (int64_t dim : orderOfLast(static_cast<int64_t>(values.size())))
    moved.push_back(values[dim]);
  return moved;
}

RankedTensorType withChannelsLast(RankedTensorType type) { return type.clone(withChannelsLast(type.getShape())); }

AffineMap withChannelsLast(AffineMap map) {
  return AffineMap::get(map.getNumDims(), map.getNumSymbols(), withChannelsLast(map.getResults()), map.getContext());
}

/// Groups of [N, C, spatial...], for [N, spatial..., C]; none where a group joins N or C with others.
std::optional<SmallVector<ReassociationIndices>> withChannelsLast(ArrayRef<ReassociationIndices> groups) {
  if (groups.size() < 3 || groups[0].size() != 1 || groups[1].size() != 1)
    return std::nullopt;
  SmallVector<ReassociationIndices> moved{groups[0]};
  for (const ReassociationIndices &group : groups.drop_front(2))
    moved.push_back(llvm::map_to_vector<2>(group, [](int64_t dim) { return dim - 1; }));
  moved.push_back({groups.back().back()});
  return moved;
}

/// A value [N, C, spatial...] that is another, with its channels last, transposed, and perhaps split in its spatial
/// dimensions.
struct Moved {
  linalg::TransposeOp transpose;
  tensor::ExpandShapeOp split;

  static std::optional<Moved> match(Value value) {
    Moved moved{nullptr, value.getDefiningOp<tensor::ExpandShapeOp>()};
    moved.transpose = (moved.split ? moved.split.getSrc() : value).getDefiningOp<linalg::TransposeOp>();
    if (!moved.transpose || !moved.transpose.hasPureTensorSemantics() || moved.transpose.getPermutation().size() < 3 ||
        !llvm::equal(moved.transpose.getPermutation(), orderOfFirst(moved.transpose.getPermutation().size())) ||
        (moved.split && !withChannelsLast(moved.split.getReassociationIndices())))
      return std::nullopt;
    return moved;
  }

  Value withoutTranspose(OpBuilder &b) {
    if (!split)
      return transpose.getInput();
    return tensor::ExpandShapeOp::create(b, split.getLoc(), withChannelsLast(split.getResultType()),
                                         transpose.getInput(), *withChannelsLast(split.getReassociationIndices()),
                                         withChannelsLast<OpFoldResult>(split.getMixedOutputShape()));
  }
};

bool movesChannelsLast(Operation *op) {
  auto transpose = dyn_cast<linalg::TransposeOp>(op);
  return transpose && transpose.hasPureTensorSemantics() && transpose.getPermutation().size() > 2 &&
         llvm::equal(transpose.getPermutation(), orderOfLast(transpose.getPermutation().size()));
}

/// Whether `op` joins spatial dimensions, and all that reads the result wants its channels last.
bool joinsAndMoves(Operation *op) {
  auto join = dyn_cast<tensor::CollapseShapeOp>(op);
  return join && withChannelsLast(join.getReassociationIndices()) && llvm::all_of(join->getUsers(), movesChannelsLast);
}

bool isSame(Value value) {
  return matchPattern(value, m_Constant()) || value.getDefiningOp<linalg::FillOp>() || value.getDefiningOp<WeightOp>();
}

/// An init that says nothing, or one number, of each element.
bool isPlainInit(Value init) {
  auto fill = init.getDefiningOp<linalg::FillOp>();
  return (fill ? fill.getOutputs().front() : init).getDefiningOp<tensor::EmptyOp>() != nullptr;
}

/// Whether the channels of the result, [N, C, spatial...], may stand last as well.
bool mayMove(Operation *op) {
  if (op->getNumResults() != 1)
    return false;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!type || type.getRank() < 3)
    return false;
  if (auto pad = dyn_cast<tensor::PadOp>(op))
    return pad.getConstantPaddingValue() != nullptr;
  if (isa<tensor::ConcatOp>(op))
    return true;
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || !generic.hasPureTensorSemantics() || linalg::isaContractionOpInterface(generic) ||
      !isPlainInit(generic.getDpsInits().front()))
    return false;
  AffineMap map = generic.getMatchingIndexingMap(generic.getDpsInitOperand(0));
  return map == AffineMap::getMultiDimIdentityMap(map.getNumDims(), op->getContext()).getMajorSubMap(type.getRank());
}

/// What of it may be read with channels last.
SmallVector<OpOperand *> readsOf(Operation *op) {
  SmallVector<OpOperand *> reads;
  int64_t rank = cast<RankedTensorType>(op->getResult(0).getType()).getRank();
  auto generic = dyn_cast<linalg::GenericOp>(op);
  for (OpOperand &operand : op->getOpOperands()) {
    auto type = dyn_cast<RankedTensorType>(operand.get().getType());
    if (type && type.getRank() == rank && !(generic && generic.isDpsInit(&operand)) && !isSame(operand.get()))
      reads.push_back(&operand);
  }
  return reads;
}

/// Ops that read one another's results, all of which move or none.
class Group {
public:
  explicit Group(ArrayRef<Operation *> ops) : ops(ops), members(ops.begin(), ops.end()) {}

  /// Elements that need no transpose any more, less those that need one then.
  int64_t gain() {
    int64_t gain = 0;
    SmallPtrSet<void *, 16> seen;
    for (Operation *op : ops) {
      for (OpOperand *read : readsOf(op)) {
        Value value = read->get();
        if (members.contains(value.getDefiningOp()) || !seen.insert(value.getAsOpaquePointer()).second)
          continue;
        if (std::optional<Moved> moved = Moved::match(value)) {
          bool isOwn = llvm::all_of(value.getUsers(), [&](Operation *user) { return members.contains(user); }) &&
                       (!moved->split || moved->transpose->hasOneUse());
          gain += isOwn ? sizeOf(value) : 0;
        } else {
          gain -= sizeOf(value);
        }
      }
      bool isReadFirst = false;
      for (OpOperand &use : op->getUses()) {
        Operation *user = use.getOwner();
        if (movesChannelsLast(user) || joinsAndMoves(user))
          gain += seen.insert(user).second ? sizeOf(op->getResult(0)) : 0;
        else
          isReadFirst |= !members.contains(user) && !readsInAnyOrder(use);
      }
      gain -= isReadFirst ? sizeOf(op->getResult(0)) : 0;
    }
    return gain;
  }

  void move(IRRewriter &rewriter) {
    for (Operation *op : ops) {
      rewriter.setInsertionPoint(op);
      moved[op->getResult(0)] = moveOne(rewriter, op);
    }
    for (Operation *op : ops)
      replaceUses(rewriter, op->getResult(0), moved[op->getResult(0)]);
    for (Operation *op : llvm::reverse(ops))
      rewriter.eraseOp(op);
  }

private:
  static int64_t sizeOf(Value value) {
    int64_t size = 1;
    for (int64_t dim : cast<RankedTensorType>(value.getType()).getShape())
      size *= std::clamp<int64_t>(ShapedType::isDynamic(dim) ? 64 : dim, 1, 1 << 20);
    return std::min<int64_t>(size, int64_t(1) << 40);
  }

  /// Sums over channels or places: its result is no [N, C, spatial...]. What it starts from has the result's order.
  static bool readsInAnyOrder(OpOperand &use) {
    auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
    return generic && generic.hasPureTensorSemantics() && !generic.isDpsInit(&use) && !mayMove(generic);
  }

  /// `value` with its channels last where that costs nothing.
  Value find(OpBuilder &b, Value value) {
    Value &known = moved[value];
    if (!known)
      if (std::optional<Moved> source = Moved::match(value))
        known = source->withoutTranspose(b);
    return known;
  }

  Value findOrMake(OpBuilder &b, Value value) {
    Value known = find(b, value);
    return known ? known : transposed(b, value.getLoc(), value, orderOfLast(rankOf(value)));
  }

  static int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

  Value moveOne(IRRewriter &rewriter, Operation *op) {
    auto type = withChannelsLast(cast<RankedTensorType>(op->getResult(0).getType()));
    if (auto pad = dyn_cast<tensor::PadOp>(op)) {
      Value padding = pad.getConstantPaddingValue();
      if (pad.getRegion().isAncestor(padding.getParentRegion())) // of the body, which is erased
        padding = rewriter.clone(*padding.getDefiningOp())->getResult(0);
      return tensor::PadOp::create(rewriter, op->getLoc(), type, findOrMake(rewriter, pad.getSource()),
                                   withChannelsLast<OpFoldResult>(pad.getMixedLowPad()),
                                   withChannelsLast<OpFoldResult>(pad.getMixedHighPad()), padding, pad.getNofold());
    }
    if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
      SmallVector<Value> parts;
      for (Value part : concat.getInputs())
        parts.push_back(findOrMake(rewriter, part));
      auto dim = static_cast<int64_t>(concat.getDim());
      return tensor::ConcatOp::create(rewriter, op->getLoc(), type, orderOfFirst(type.getRank())[dim], parts);
    }
    return moveGeneric(rewriter, cast<linalg::GenericOp>(op), type);
  }

  Value moveGeneric(IRRewriter &rewriter, linalg::GenericOp op, RankedTensorType type) {
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    SmallVector<Value> inputs(op.getInputs());
    for (OpOperand *read : readsOf(op))
      if (Value known = find(rewriter, read->get())) {
        inputs[read->getOperandNumber()] = known;
        maps[read->getOperandNumber()] = withChannelsLast(maps[read->getOperandNumber()]);
      }
    maps.back() = withChannelsLast(maps.back());
    Location loc = op.getLoc();
    Value init = op.getDpsInits().front();
    auto fill = init.getDefiningOp<linalg::FillOp>();
    SmallVector<OpFoldResult> sizes = madeSizes(rewriter, loc, init);
    Value start = emptyTensor(rewriter, loc, withChannelsLast<OpFoldResult>(sizes), type.getElementType());
    if (fill)
      start = linalg::FillOp::create(rewriter, loc, fill.getInputs().front(), start).getResult(0);
    auto made = linalg::GenericOp::create(rewriter, loc, type, inputs, start, maps, op.getIteratorTypesArray());
    made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    rewriter.cloneRegionBefore(op.getRegion(), made.getRegion(), made.getRegion().end());
    SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(0, op.getNumLoops()));
    std::rotate(loops.begin() + 1, loops.begin() + 2, loops.begin() + type.getRank());
    FailureOr<linalg::GenericOp> ordered = linalg::interchangeGenericOp(rewriter, made, loops);
    return (failed(ordered) ? made : *ordered).getResult(0);
  }

  void replaceUses(IRRewriter &rewriter, Value value, Value last) {
    rewriter.setInsertionPointAfterValue(last);
    Value first;
    for (OpOperand &use : llvm::make_early_inc_range(value.getUses())) {
      Operation *user = use.getOwner();
      if (members.contains(user))
        continue;
      if (movesChannelsLast(user)) {
        rewriter.replaceOp(user, last);
      } else if (joinsAndMoves(user)) {
        auto join = cast<tensor::CollapseShapeOp>(user);
        Value joined = tensor::CollapseShapeOp::create(rewriter, join.getLoc(), withChannelsLast(join.getResultType()),
                                                       last, *withChannelsLast(join.getReassociationIndices()));
        for (Operation *transpose : llvm::make_early_inc_range(join->getUsers()))
          rewriter.replaceOp(transpose, joined);
        rewriter.eraseOp(join);
      } else if (auto generic = dyn_cast<linalg::GenericOp>(user); generic && readsInAnyOrder(use)) {
        SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
        maps[use.getOperandNumber()] = withChannelsLast(maps[use.getOperandNumber()]);
        rewriter.modifyOpInPlace(user, [&] {
          use.set(last);
          generic.setIndexingMapsAttr(rewriter.getAffineMapArrayAttr(maps));
        });
      } else {
        if (!first)
          first = transposed(rewriter, value.getLoc(), last, orderOfFirst(rankOf(value)));
        rewriter.modifyOpInPlace(user, [&] { use.set(first); });
      }
    }
  }

  ArrayRef<Operation *> ops; // in the order of the IR
  SmallPtrSet<Operation *, 16> members;
  llvm::DenseMap<Value, Value> moved;
};

struct MoveChannelsPass : impl::MoveChannelsPassBase<MoveChannelsPass> {
  void runOnOperation() override {
    llvm::EquivalenceClasses<Operation *> classes;
    SmallVector<Operation *> all;
    getOperation()->walk([&](Operation *op) {
      if (!mayMove(op))
        return;
      all.push_back(op);
      classes.insert(op);
      for (OpOperand *read : readsOf(op))
        if (Operation *source = read->get().getDefiningOp();
            source && source->getBlock() == op->getBlock() && mayMove(source))
          classes.unionSets(source, op);
    });
    llvm::MapVector<Operation *, SmallVector<Operation *>> groups;
    for (Operation *op : all)
      groups[classes.getLeaderValue(op)].push_back(op);
    IRRewriter rewriter(&getContext());
    for (auto &[leader, ops] : groups)
      if (Group group(ops); group.gain() > 0)
        group.move(rewriter);
  }
};

} // namespace
} // namespace attn
