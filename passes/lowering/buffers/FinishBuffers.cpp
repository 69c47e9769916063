#include "dialects/attn/LoopOps.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace attn {
#define GEN_PASS_DEF_FINISHBUFFERSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// `copy` as an identity linalg.generic.
void copyAsGeneric(OpBuilder &b, Location loc, Value source, Value target) {
  int64_t rank = cast<MemRefType>(target.getType()).getRank();
  AffineMap identity = b.getMultiDimIdentityMap(rank);
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  linalg::GenericOp::create(
      b, loc, source, target, {identity, identity}, loops,
      [](OpBuilder &body, Location at, ValueRange args) { linalg::YieldOp::create(body, at, args[0]); });
}

/// The size of a dimension, from the operands of the views that lead to it;
/// null where it cannot be told.
OpFoldResult sizeOf(OpBuilder &b, Value buffer, int64_t dim) {
  auto type = cast<MemRefType>(buffer.getType());
  if (!type.isDynamicDim(dim))
    return b.getIndexAttr(type.getDimSize(dim));
  Operation *def = buffer.getDefiningOp();
  if (!def)
    return {};
  if (auto alloc = dyn_cast<memref::AllocOp>(def))
    return alloc.getMixedSizes()[dim];
  if (auto output = dyn_cast<OutputOp>(def))
    return output.getSizes()[type.getDynamicDimIndex(dim)];
  if (auto expand = dyn_cast<memref::ExpandShapeOp>(def))
    return expand.getMixedOutputShape()[dim];
  if (auto view = dyn_cast<memref::SubViewOp>(def); view && view.getSourceType().getRank() == type.getRank())
    return view.getMixedSizes()[dim];
  if (auto same = dyn_cast<memref::CastOp>(def); same && isa<MemRefType>(same.getSource().getType()))
    return sizeOf(b, same.getSource(), dim);
  auto collapse = dyn_cast<memref::CollapseShapeOp>(def);
  if (!collapse)
    return {};
  OpFoldResult product = b.getIndexAttr(1);
  ReassociationIndices group = collapse.getReassociationIndices()[dim];
  for (int64_t from : group) {
    OpFoldResult factor = sizeOf(b, collapse.getSrc(), from);
    if (!factor)
      return {};
    AffineExpr x, y;
    bindSymbols(b.getContext(), x, y);
    product = affine::makeComposedFoldedAffineApply(b, buffer.getLoc(), x * y, {product, factor});
  }
  return product;
}

/// A new buffer of the shape of `buffer`, laid out as `layout` says, or dense where that is null. Strides that the
/// layout leaves open are as large as all that the others reach.
Value allocateLike(OpBuilder &b, Location loc, Value buffer, MemRefType layout) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<OpFoldResult> sizes;
  SmallVector<Value> open;
  for (auto [dim, size] : llvm::enumerate(type.getShape())) {
    OpFoldResult known = ShapedType::isDynamic(size) ? sizeOf(b, buffer, dim) : OpFoldResult(b.getIndexAttr(size));
    sizes.push_back(known ? known : OpFoldResult(memref::DimOp::create(b, loc, buffer, dim).getResult()));
    if (ShapedType::isDynamic(size))
      open.push_back(getValueOrCreateConstantIndexOp(b, loc, sizes.back()));
  }
  auto allocate = [&](ArrayRef<int64_t> shape, ValueRange openSizes) {
    return memref::AllocOp::create(b, loc, MemRefType::get(shape, type.getElementType()), openSizes,
                                   b.getI64IntegerAttr(64));
  };
  if (!layout)
    return allocate(type.getShape(), open);
  auto [known, offset] = layout.getStridesAndOffset();
  offset = ShapedType::isDynamic(offset) ? 0 : offset;
  AffineExpr x, y;
  bindSymbols(b.getContext(), x, y);
  auto apply = [&](AffineExpr expr, ArrayRef<OpFoldResult> operands) {
    return affine::makeComposedFoldedAffineApply(b, loc, expr, operands);
  };
  // Behind the last element that the known strides reach, or 1 where there is none.
  OpFoldResult reach = b.getIndexAttr(1);
  for (auto [size, stride] : llvm::zip_equal(sizes, known))
    if (!ShapedType::isDynamic(stride))
      reach = apply(x + y * stride, {reach, size});
  SmallVector<OpFoldResult> strides(known.size());
  for (int64_t dim = known.size() - 1; dim >= 0; --dim) {
    strides[dim] = ShapedType::isDynamic(known[dim]) ? reach : OpFoldResult(b.getIndexAttr(known[dim]));
    if (ShapedType::isDynamic(known[dim]))
      reach = apply(x * y, {reach, sizes[dim]});
  }
  Value elements = getValueOrCreateConstantIndexOp(b, loc, apply(x + offset, {reach}));
  Value all = allocate({ShapedType::kDynamic}, elements);
  return memref::ReinterpretCastOp::create(b, loc, layout, all, b.getIndexAttr(offset), sizes, strides);
}

/// Whether `type` is as far known as `wanted`: a cast to what is only hoped for
/// would read elsewhere.
bool knowsStrides(MemRefType type, MemRefType wanted) {
  if (!memref::CastOp::areCastCompatible(type, wanted))
    return false;
  auto [strides, offset] = type.getStridesAndOffset();
  auto [wantedStrides, wantedOffset] = wanted.getStridesAndOffset();
  auto fits = [](int64_t given, int64_t asked) { return ShapedType::isDynamic(asked) || given == asked; };
  return fits(offset, wantedOffset) && llvm::all_of_zip(strides, wantedStrides, fits);
}

/// Gives the kernel what its signature says: dense buffers, or views with the strides that it reads. What a slice was
/// when the kernel was chosen may have become a buffer of its own, since something writes to it.
void matchSignature(KernelOp op) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, op.getCalleeAttr());
  for (OpOperand &operand : op->getOpOperands()) {
    auto type = dyn_cast<MemRefType>(operand.get().getType());
    if (!type)
      continue;
    OpBuilder b(op);
    Type asked = callee && operand.getOperandNumber() < callee.getNumArguments()
                     ? callee.getArgumentTypes()[operand.getOperandNumber()]
                     : Type();
    auto layout = dyn_cast_or_null<MemRefType>(asked);
    if (layout && layout.getLayout().isIdentity())
      layout = MemRefType();
    if (type == layout || (!layout && type.getLayout().isIdentity()))
      continue;
    if (layout && knowsStrides(type, layout)) {
      operand.set(memref::CastOp::create(b, op.getLoc(), layout, operand.get()));
      continue;
    }
    Value view = operand.get(), copy = allocateLike(b, op.getLoc(), view, layout);
    if (op.isDpsInit(&operand)) {
      b.setInsertionPointAfter(op);
      copyAsGeneric(b, op.getLoc(), copy, view);
    } else {
      copyAsGeneric(b, op.getLoc(), view, copy);
    }
    operand.set(copy);
  }
}

/// Bufferisation asks buffers for sizes that stood in the IR: with the values
/// themselves, sizes of one origin stay one value and are known early.
void resolveSizes(func::FuncOp function) {
  for (memref::DimOp op : collect<memref::DimOp>(function)) {
    std::optional<int64_t> index = op.getConstantIndex();
    auto type = dyn_cast<MemRefType>(op.getSource().getType());
    if (!index || !type || *index < 0 || *index >= type.getRank())
      continue;
    OpBuilder b(op);
    if (OpFoldResult size = sizeOf(b, op.getSource(), *index)) {
      op.replaceAllUsesWith(getValueOrCreateConstantIndexOp(b, op.getLoc(), size));
      op.erase();
    }
  }
}

/// A view of all of `buffer` in the front of `larger`.
Value frontOf(OpBuilder &b, Location loc, Value larger, Value buffer) {
  int64_t rank = cast<MemRefType>(buffer.getType()).getRank();
  SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)), strides(rank, b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = memref::getMixedSizes(b, loc, buffer);
  return memref::SubViewOp::create(b, loc, larger, offsets, sizes, strides);
}

/// Twice the room of `op`'s buffer, or what is asked for; filled with what there is.
Value growBuffer(OpBuilder &b, GrowOp op, Value room) {
  Location loc = op.getLoc();
  auto type = cast<MemRefType>(op.getBuffer().getType());
  Value two = arith::ConstantIndexOp::create(b, loc, 2);
  Value size = arith::MaxSIOp::create(b, loc, arith::MulIOp::create(b, loc, room, two), op.getSize());
  // In doubles as well: a product that does not fit asks for more than there is.
  Value elementBytes = arith::ConstantIndexOp::create(b, loc, llvm::divideCeil(type.getElementTypeBitWidth(), 8));
  Value bytes = arith::MulIOp::create(b, loc, size, elementBytes);
  auto toDouble = [&](Value number) {
    Value wide = arith::IndexCastOp::create(b, loc, b.getI64Type(), number);
    return arith::SIToFPOp::create(b, loc, b.getF64Type(), wide).getResult();
  };
  Value estimate = arith::MulFOp::create(b, loc, toDouble(size), toDouble(elementBytes));
  SmallVector<Value> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim) {
    Value extent = size;
    if (dim != static_cast<int64_t>(op.getDim())) {
      extent = memref::DimOp::create(b, loc, op.getBuffer(), dim);
      bytes = arith::MulIOp::create(b, loc, bytes, extent);
      estimate = arith::MulFOp::create(b, loc, estimate, toDouble(extent));
    }
    if (type.isDynamicDim(dim))
      sizes.push_back(extent);
  }
  Value limit = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0x1p62));
  Value fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, estimate, limit);
  bytes = arith::SelectOp::create(b, loc, fits, bytes, arith::ConstantIndexOp::create(b, loc, -1));
  Value memory = WorkspaceOp::create(b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI8Type()), bytes);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value larger = memref::ViewOp::create(b, loc, type, memory, zero, sizes);
  copyAsGeneric(b, loc, op.getBuffer(), frontOf(b, loc, larger, op.getBuffer()));
  return larger;
}

void expandGrow(GrowOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Value room = memref::DimOp::create(b, loc, op.getBuffer(), static_cast<int64_t>(op.getDim()));
  Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, op.getSize(), room);
  auto choice = scf::IfOp::create(
      b, loc, fits, [&](OpBuilder &then, Location at) { scf::YieldOp::create(then, at, op.getBuffer()); },
      [&](OpBuilder &otherwise, Location at) { scf::YieldOp::create(otherwise, at, growBuffer(otherwise, op, room)); });
  op.replaceAllUsesWith(choice.getResult(0));
  op.erase();
}

struct FinishBuffersPass : attn::impl::FinishBuffersPassBase<FinishBuffersPass> {
  void runOnOperation() override {
    if (getOperation()->hasAttr(AttnDialect::kKernelAttr))
      return;
    resolveSizes(getOperation());
    SmallVector<KernelOp> kernels;
    SmallVector<memref::CopyOp> copies;
    SmallVector<GrowOp> grows;
    getOperation().walk([&](Operation *op) {
      if (auto grow = dyn_cast<GrowOp>(op); grow && isa<MemRefType>(grow.getBuffer().getType()))
        grows.push_back(grow);
      if (auto kernel = dyn_cast<KernelOp>(op))
        kernels.push_back(kernel);
      else if (auto copy = dyn_cast<memref::CopyOp>(op))
        copies.push_back(copy);
    });
    for (GrowOp grow : grows)
      expandGrow(grow);
    for (KernelOp kernel : kernels)
      matchSignature(kernel);
    for (memref::CopyOp copy : copies) {
      if (!isa<MemRefType>(copy.getSource().getType()) || !isa<MemRefType>(copy.getTarget().getType()))
        continue;
      OpBuilder b(copy);
      if (copy.getSource() != copy.getTarget())
        copyAsGeneric(b, copy.getLoc(), copy.getSource(), copy.getTarget());
      copy.erase();
    }
  }
};
} // namespace
