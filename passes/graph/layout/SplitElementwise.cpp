#include "passes/Passes.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/Access.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_SPLITELEMENTWISEPASS
#include "passes/Passes.h.inc"

namespace {

/// More parts make loops too short to be worth the copy they save.
constexpr size_t kMaxParts = 4;

/// Whether `value` is computed from a slice, by elementwise ops of one input.
bool comesFromSlice(Value value) {
  auto op = value.getDefiningOp<linalg::GenericOp>();
  while (op && isPointwise(op) && op.getNumDpsInputs() == 1 && value.hasOneUse()) {
    value = op.getDpsInputOperand(0)->get();
    op = value.getDefiningOp<linalg::GenericOp>();
  }
  return value.getDefiningOp<tensor::ExtractSliceOp>() != nullptr;
}

/// The parts of `value`, in order, where it is a concatenation of slices along
/// its last dimension that nothing else reads.
SmallVector<ConcatPart> getParts(Value value) {
  int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
  SmallVector<ConcatPart> parts = rank == 0 ? SmallVector<ConcatPart>() : concatParts(value, rank - 1);
  bool isOwn = llvm::all_of(parts, [](const ConcatPart &part) { return comesFromSlice(part.source); });
  for (; isOwn && value.getDefiningOp<tensor::InsertSliceOp>(); value = value.getDefiningOp()->getOperand(1))
    isOwn = value.hasOneUse();
  return isOwn && parts.size() >= 2 && parts.size() <= kMaxParts ? parts : SmallVector<ConcatPart>();
}

/// f(concat(a, b), x) -> concat(f(a, x's part), f(b, x's part))
struct SplitAtConcat : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::GenericOp op, PatternRewriter &rewriter) const override {
    if (!isPointwise(op) || op->getNumResults() != 1 || !op.getBody()->getOps<linalg::IndexOp>().empty())
      return rewriter.notifyMatchFailure(op, "not elementwise, or by position");
    unsigned rank = op.getNumLoops();
    AffineMap resultMap = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    if (rank == 0 || !resultMap.isIdentity())
      return rewriter.notifyMatchFailure(op, "the result is permuted");
    AffineExpr last = getAffineDimExpr(rank - 1, getContext());
    SmallVector<ConcatPart> parts;
    for (OpOperand *input : op.getDpsInputOperands()) {
      AffineMap map = op.getMatchingIndexingMap(input);
      if (!map.isProjectedPermutation(/*allowZeroInResults=*/true))
        return rewriter.notifyMatchFailure(op, "an operand's map is no projected permutation");
      if (parts.empty() && map.isIdentity())
        parts = getParts(input->get());
    }
    if (parts.empty())
      return rewriter.notifyMatchFailure(op, "no operand is a concatenation");

    Location loc = op.getLoc();
    Value init = op.getDpsInits()[0];
    SmallVector<OpFoldResult> sizes = madeSizes(rewriter, loc, init);
    Type element = getElementTypeOrSelf(init.getType());
    Value whole = emptyTensor(rewriter, loc, sizes, element);
    for (const ConcatPart &part : parts) {
      auto slice = [&](Value value, AffineMap map) -> Value {
        std::optional<unsigned> position = map.getResultPosition(last);
        if (!position)
          return value;
        // The sizes of the loops, so that equal slices have equal sizes.
        SmallVector<OpFoldResult> extents;
        for (AffineExpr expr : map.getResults()) {
          auto dim = dyn_cast<AffineDimExpr>(expr);
          extents.push_back(dim ? sizes[dim.getPosition()]
                                : tensor::getMixedSize(rewriter, loc, value, extents.size()));
        }
        SmallVector<OpFoldResult> offsets(extents.size(), rewriter.getIndexAttr(0)),
            strides(extents.size(), rewriter.getIndexAttr(1));
        offsets[*position] = rewriter.getIndexAttr(part.offset);
        extents[*position] = rewriter.getIndexAttr(part.size);
        return tensor::ExtractSliceOp::create(rewriter, loc, value, offsets, extents, strides);
      };
      SmallVector<OpFoldResult> extents(sizes), offsets(rank, rewriter.getIndexAttr(0)),
          strides(rank, rewriter.getIndexAttr(1));
      extents.back() = rewriter.getIndexAttr(part.size);
      offsets.back() = rewriter.getIndexAttr(part.offset);
      SmallVector<Value> inputs;
      for (OpOperand *input : op.getDpsInputOperands())
        inputs.push_back(slice(input->get(), op.getMatchingIndexingMap(input)));
      Value room = emptyTensor(rewriter, loc, extents, element);
      Value piece = withBodyOf(rewriter, op, inputs, room, op.getIndexingMapsArray())->getResult(0);
      whole = tensor::InsertSliceOp::create(rewriter, loc, piece, whole, offsets, extents, strides);
    }
    rewriter.replaceOp(op, castTo(rewriter, loc, whole, op->getResult(0).getType()));
    remark::passed(loc, remark::RemarkOpts::name("Elementwise").category("attn-split-elementwise"))
        << remark::add("computed part by part instead of from a concatenation of {0}", parts.size());
    return success();
  }
};

/// slice(concat(a, b)) -> a, where it is a part of it.
struct FoldSliceOfConcat : OpRewritePattern<tensor::ExtractSliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::ExtractSliceOp op, PatternRewriter &rewriter) const override {
    unsigned dim = op.getSourceType().getRank() - 1;
    if (op.getSourceType().getRank() == 0 || op.getType().getRank() != op.getSourceType().getRank() ||
        op.isDynamicOffset(dim) || op.isDynamicSize(dim) || !op.hasUnitStride())
      return rewriter.notifyMatchFailure(op, "not a part along the last dimension");
    for (Value value = op.getSource(); auto insert = value.getDefiningOp<tensor::InsertSliceOp>();
         value = insert.getDest()) {
      if (insert.getSourceType().getRank() != op.getType().getRank() || insert.isDynamicOffset(dim) ||
          insert.isDynamicSize(dim) || !insert.hasUnitStride())
        return rewriter.notifyMatchFailure(op, "insertions of other kinds");
      int64_t first = insert.getStaticOffset(dim), end = first + insert.getStaticSize(dim);
      int64_t offset = op.getStaticOffset(dim), size = op.getStaticSize(dim);
      if (offset >= end || offset + size <= first)
        continue; // beside it
      bool isSame = offset == first && offset + size == end && op.getType() == insert.getSourceType();
      for (unsigned n = 0; n != dim; ++n)
        isSame &= isConstantIntValue(insert.getMixedOffsets()[n], 0) &&
                  isConstantIntValue(op.getMixedOffsets()[n], 0) &&
                  isEqualConstantIntOrValue(insert.getMixedSizes()[n], op.getMixedSizes()[n]);
      if (!isSame)
        return rewriter.notifyMatchFailure(op, "another part");
      rewriter.replaceOp(op, insert.getSource());
      return success();
    }
    return rewriter.notifyMatchFailure(op, "not of a concatenation");
  }
};

/// slice(transpose(x)) -> the slice of x, moved by what elementwise ops absorb.
struct SliceBeforeTranspose : OpRewritePattern<tensor::ExtractSliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::ExtractSliceOp op, PatternRewriter &rewriter) const override {
    auto transpose = op.getSource().getDefiningOp<linalg::TransposeOp>();
    if (!transpose || !transpose.hasPureTensorSemantics() || op.getType().getRank() != op.getSourceType().getRank())
      return rewriter.notifyMatchFailure(op, "not of a transpose");
    // Elsewhere one copy that all share may be the better one.
    if (!llvm::all_of(op->getUsers(),
                      [](Operation *user) { return isa<linalg::GenericOp>(user) && isPointwise(user); }))
      return rewriter.notifyMatchFailure(op, "read by others than elementwise ops");
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    SmallVector<OpFoldResult> offsets(permutation.size()), sizes(permutation.size()), strides(permutation.size());
    for (auto [n, source] : llvm::enumerate(permutation)) {
      offsets[source] = op.getMixedOffsets()[n];
      sizes[source] = op.getMixedSizes()[n];
      strides[source] = op.getMixedStrides()[n];
    }
    Location loc = op.getLoc();
    Value slice = tensor::ExtractSliceOp::create(rewriter, loc, transpose.getInput(), offsets, sizes, strides);
    SmallVector<AffineExpr> read(permutation.size());
    for (auto [n, source] : llvm::enumerate(permutation))
      read[source] = rewriter.getAffineDimExpr(n);
    // A generic, which fusion takes for what it is.
    Value moved = elementwise(rewriter, loc, op.getMixedSizes(), op.getType().getElementType(), slice,
                              AffineMap::get(permutation.size(), 0, read, getContext()),
                              [](OpBuilder &, Location, ValueRange elements) { return elements.front(); });
    rewriter.replaceOp(op, castTo(rewriter, loc, moved, op.getType()));
    return success();
  }
};

struct SplitElementwisePass : impl::SplitElementwisePassBase<SplitElementwisePass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<SplitAtConcat, FoldSliceOfConcat, SliceBeforeTranspose>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace attn
