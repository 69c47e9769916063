#include "passes/Passes.h"
#include "passes/lowering/buffers/LoopTies.h"
#include "passes/lowering/buffers/SpellConcats.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/DenseMap.h"

namespace attn {
#define GEN_PASS_DEF_PREPAREBUFFERSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
/// A reshape of a tensor without elements is another tensor without elements.
/// memref.collapse_shape refuses to join a dynamic dimension with one of size 0.
void replaceEmptyReshapes(func::FuncOp function) {
  function.walk([](tensor::CollapseShapeOp collapse) {
    if (!llvm::is_contained(collapse.getSrcType().getShape(), 0))
      return;
    OpBuilder b(collapse);
    RankedTensorType type = collapse.getResultType();
    SmallVector<Value> sizes;
    for (auto [dim, group] : llvm::enumerate(collapse.getReassociationIndices())) {
      if (!type.isDynamicDim(dim))
        continue;
      Value size = arith::ConstantIndexOp::create(b, collapse.getLoc(), 1);
      for (int64_t source : group)
        size = arith::MulIOp::create(b, collapse.getLoc(), size,
                                     tensor::DimOp::create(b, collapse.getLoc(), collapse.getSrc(), source));
      sizes.push_back(size);
    }
    Value empty = tensor::EmptyOp::create(b, collapse.getLoc(), type, sizes);
    collapse.replaceAllUsesWith(empty);
    collapse.erase();
  });
}

/// Whether offsets lie at the end of `whole`, whose sizes may be known before a cast alone: what stands there is empty.
/// memref.subview refuses such a place once the cast has gone.
bool liesAtEnd(ArrayRef<int64_t> offsets, Value whole) {
  while (auto cast = whole.getDefiningOp<tensor::CastOp>())
    whole = cast.getSource();
  ArrayRef<int64_t> sizes = cast<RankedTensorType>(whole.getType()).getShape();
  return llvm::any_of(llvm::zip(offsets, sizes), [](auto pair) {
    auto [offset, size] = pair;
    return ShapedType::isStatic(offset) && ShapedType::isStatic(size) && offset >= size;
  });
}

void replaceEmptySlices(func::FuncOp function) {
  function.walk([](Operation *op) {
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
      if (!liesAtEnd(slice.getStaticOffsets(), slice.getSource()))
        return;
      OpBuilder b(slice);
      SmallVector<Value> sizes;
      llvm::SmallBitVector dropped = slice.getDroppedDims();
      for (auto [dim, size] : llvm::enumerate(slice.getMixedSizes()))
        if (auto value = dyn_cast<Value>(size); value && !dropped.test(dim))
          sizes.push_back(value);
      slice.replaceAllUsesWith(tensor::EmptyOp::create(b, slice.getLoc(), slice.getType(), sizes).getResult());
      slice.erase();
    } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
      if (!liesAtEnd(insert.getStaticOffsets(), insert.getDest()))
        return;
      insert.replaceAllUsesWith(insert.getDest());
      insert.erase();
    }
  });
}

/// Operands that an op may write to: inits, and what a loop carries.
void destinationsOf(func::FuncOp function, SmallVector<OpOperand *> &destinations) {
  function.walk([&](Operation *op) {
    if (auto writer = dyn_cast<DestinationStyleOpInterface>(op)) {
      for (OpOperand &init : writer.getDpsInitsMutable())
        destinations.push_back(&init);
    } else if (auto loop = dyn_cast<LoopLikeOpInterface>(op)) {
      for (OpOperand &init : loop.getInitsMutable())
        destinations.push_back(&init);
    }
  });
}

/// A value that two ops may write to is two values. Bufferisation would copy it
/// for one of them, too, but only after the buffer of an output may have been
/// chosen for it: then the other one's result would be lost when the output is
/// written.
void unshareDestinations(func::FuncOp function) {
  SmallVector<OpOperand *> destinations;
  destinationsOf(function, destinations);
  llvm::DenseMap<Value, unsigned> writers;
  for (OpOperand *destination : destinations)
    if (isa<RankedTensorType>(destination->get().getType()))
      ++writers[destination->get()];
  for (OpOperand *destination : destinations) {
    Value value = destination->get();
    auto writer = writers.find(value);
    if (writer == writers.end() || writer->second < 2 || value.getDefiningOp<tensor::EmptyOp>())
      continue;
    --writer->second; // the last one keeps the value
    OpBuilder b(destination->getOwner());
    Location loc = value.getLoc();
    auto fill = value.getDefiningOp<linalg::FillOp>();
    auto empty = fill ? fill.getOutputs()[0].getDefiningOp<tensor::EmptyOp>() : tensor::EmptyOp();
    if (empty) {
      IRMapping map;
      b.clone(*empty, map);
      destination->set(b.clone(*fill, map)->getResult(0));
      continue;
    }
    auto type = cast<RankedTensorType>(value.getType());
    Value fresh = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, value), type.getElementType());
    destination->set(linalg::CopyOp::create(b, loc, value, fresh).getResult(0));
  }
}

/// Makes the condition of `loop` forward all arguments of the test in their
/// order, and then what else it forwards: bufferisation compares by position,
/// and canonicalisation drops what nobody uses.
void forwardAll(scf::WhileOp loop) {
  scf::ConditionOp condition = loop.getConditionOp();
  SmallVector<Value> forwarded(loop.getBeforeArguments());
  SmallVector<unsigned> places; // of what was forwarded
  for (Value value : condition.getArgs()) {
    auto *known = llvm::find(forwarded, value);
    places.push_back(known - forwarded.begin());
    if (known == forwarded.end())
      forwarded.push_back(value);
  }
  if (ValueRange(forwarded) == ValueRange(condition.getArgs()))
    return;
  OpBuilder b(loop);
  auto full = scf::WhileOp::create(b, loop.getLoc(), ValueRange(forwarded).getTypes(), loop.getInits());
  full.getBefore().takeBody(loop.getBefore());
  condition.getArgsMutable().assign(forwarded);
  Block *body = b.createBlock(&full.getAfter());
  for (Value value : forwarded)
    body->addArgument(value.getType(), loop.getLoc());
  Block *old = loop.getAfterBody();
  for (auto [n, place] : llvm::enumerate(places)) {
    old->getArgument(n).replaceAllUsesWith(body->getArgument(place));
    loop.getResult(n).replaceAllUsesWith(full.getResult(place));
  }
  body->getOperations().splice(body->end(), old->getOperations());
  loop.erase();
}

struct PrepareBuffersPass : attn::impl::PrepareBuffersPassBase<PrepareBuffersPass> {
  void runOnOperation() override {
    attn::spellConcats(getOperation());
    replaceEmptyReshapes(getOperation());
    replaceEmptySlices(getOperation());
    unshareDestinations(getOperation());
    getOperation().walk([](scf::WhileOp loop) { forwardAll(loop); });
    attn::separateStates(getOperation());
  }
};
} // namespace
