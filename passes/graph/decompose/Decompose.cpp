#include "passes/graph/decompose/Decompose.h"
#include "dialects/attn/AttnOps.h"
#include "dialects/attn/CacheOps.h"
#include "passes/Passes.h"
#include "passes/graph/Formulas.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_DECOMPOSEPASS
#include "passes/Passes.h.inc"

/// The identity on `rank` dimensions without result `dim`.
static AffineMap dropDim(OpBuilder &b, int64_t rank, int64_t dim) {
  return b.getMultiDimIdentityMap(rank).dropResult(dim);
}

Value emitSoftmax(OpBuilder &b, Location loc, Value input, int64_t dim, Type resultElement, bool log,
                  MaskedRows maskedRows) {
  auto type = cast<RankedTensorType>(input.getType());
  int64_t rank = type.getRank();
  Type acc = accumulatorType(type.getElementType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, input), rows(sizes);
  rows.erase(rows.begin() + dim);
  AffineMap full = b.getMultiDimIdentityMap(rank), row = dropDim(b, rank, dim);
  bool zero = maskedRows == MaskedRows::zero, uniform = maskedRows == MaskedRows::uniform;

  // NaN wins: it must reach the result.
  Value max = reduction(b, loc, input, full, filledTensor(b, loc, rows, acc, -kInfinity), row,
                        formula([&](ArrayRef<Num> x) { return maximum(convert(x[0], acc), x[1]); }));
  // A guarded row subtracts 0 instead of -inf: all its exponentials are 0
  // (zero), or every difference is taken as 0 (uniform).
  auto shifted = [&](const Num &x, const Num &max) {
    Num wide = convert(x, acc);
    if (!zero && !uniform)
      return wide - max;
    Mask masked = max == -kInfinity;
    Num nought = constantLike(max, 0.0);
    return zero ? wide - select(masked, nought, max) : select(masked, nought, wide - max);
  };

  Value zeros = filledTensor(b, loc, rows, acc, 0);
  if (log) {
    Value sum = reduction(b, loc, {input, max}, {full, row}, zeros, row,
                          formula([&](ArrayRef<Num> x) { return x[2] + exp(shifted(x[0], x[1])); }));
    return elementwise(b, loc, sizes, resultElement, {input, max, sum}, {full, row, row}, formula([&](ArrayRef<Num> x) {
                         Num lse = attn::log(x[2]);
                         return convert(shifted(x[0], x[1]) - lse, resultElement);
                       }));
  }
  Value exps = elementwise(b, loc, sizes, acc, {input, max}, {full, row},
                           formula([&](ArrayRef<Num> x) { return exp(shifted(x[0], x[1])); }));
  Value sum = reduction(b, loc, exps, full, zeros, row, formula([&](ArrayRef<Num> x) { return x[1] + x[0]; }));
  return elementwise(b, loc, sizes, resultElement, {exps, sum}, {full, row}, formula([&](ArrayRef<Num> x) {
                       // A sum is 0 only when the row is masked: exp(max - max) is 1.
                       Num divisor = zero ? select(x[1] == 0.0, constantLike(x[1], 1.0), x[1]) : x[1];
                       return convert(x[0] / divisor, resultElement);
                     }));
}

namespace {

struct DecomposeSoftmax : OpRewritePattern<SoftmaxOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SoftmaxOp op, PatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, emitSoftmax(rewriter, op.getLoc(), op.getInput(), op.getDim(),
                                       getElementTypeOrSelf(op.getResult()), op.getLog(), MaskedRows::nan));
    return success();
  }
};

struct DecomposeLayerNorm : OpRewritePattern<LayerNormOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(LayerNormOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    OpBuilder &b = rewriter;
    auto type = cast<RankedTensorType>(op.getInput().getType());
    int64_t rank = type.getRank(), axis = op.getAxis();
    Type acc = accumulatorType(type.getElementType());
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, op.getInput());
    ArrayRef<OpFoldResult> rows = ArrayRef(sizes).take_front(axis);
    AffineMap full = b.getMultiDimIdentityMap(rank), perRow = b.getMultiDimIdentityMap(axis);
    // Not getMajorSubMap, which gives no map at all for no results (axis 0).
    AffineMap row = AffineMap::get(rank, 0, full.getResults().take_front(axis), b.getContext());
    AffineMap columns = AffineMap::get(rank, 0, full.getResults().drop_front(axis), b.getContext());

    Value count = arith::ConstantIndexOp::create(b, loc, 1);
    for (OpFoldResult size : ArrayRef(sizes).drop_front(axis))
      count = b.createOrFold<arith::MulIOp>(loc, count, getValueOrCreateConstantIndexOp(b, loc, size));
    count = b.createOrFold<arith::IndexCastOp>(loc, b.getI64Type(), count);
    count = b.createOrFold<arith::SIToFPOp>(loc, acc, count);

    Value zeros = filledTensor(b, loc, rows, acc, 0);
    Value sum = reduction(b, loc, op.getInput(), full, zeros, row,
                          formula([&](ArrayRef<Num> x) { return x[1] + convert(x[0], acc); }));
    auto divide = [&](const Num &x) { return x / x.with(count); };
    Value mean = elementwise(b, loc, rows, acc, sum, perRow, formula([&](ArrayRef<Num> x) { return divide(x[0]); }));
    Value squares = reduction(b, loc, {op.getInput(), mean}, {full, row}, zeros, row, formula([&](ArrayRef<Num> x) {
                                Num d = convert(x[0], acc) - x[1];
                                return x[2] + d * d;
                              }));
    Value inverse = elementwise(b, loc, rows, acc, squares, perRow, formula([&](ArrayRef<Num> x) {
                                  return 1.0 / sqrt(divide(x[0]) + op.getEpsilon().convertToDouble());
                                }));
    SmallVector<Value> inputs{op.getInput(), mean, inverse, op.getScale()};
    SmallVector<AffineMap> maps{full, row, row, columns};
    if (op.getBias()) {
      inputs.push_back(op.getBias());
      maps.push_back(columns);
    }
    Value result = elementwise(b, loc, sizes, type.getElementType(), inputs, maps, formula([&](ArrayRef<Num> x) {
                                 Num y = (convert(x[0], acc) - x[1]) * x[2] * convert(x[3], acc);
                                 if (op.getBias())
                                   y = y + convert(x[4], acc);
                                 return convert(y, type.getElementType());
                               }));
    rewriter.replaceOp(op, result);
    return success();
  }
};

/// The element of `tensor` at this point of the loops, but for the last dimension, where it is that at `last`.
Num inRow(Code &k, Value tensor, const Index &last) {
  SmallVector<Value> place;
  for (int64_t n = 0; n + 1 < cast<RankedTensorType>(tensor.getType()).getRank(); ++n)
    place.push_back(loopIndex(k, n));
  place.push_back(last);
  return elementAt(k, tensor, place);
}

struct DecomposeNarrowRows : OpRewritePattern<NarrowRowsOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(NarrowRowsOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto type = cast<RankedTensorType>(op.getRows().getType());
    if (!cast<RankedTensorType>(op.getType()).getElementType().isInteger(8))
      return rewriter.notifyMatchFailure(op, "numbers of e4m3 are rounded by kernels alone");
    int64_t rank = type.getRank(), width = type.getShape().back();
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, op.getRows());
    AffineMap all = rewriter.getMultiDimIdentityMap(rank), byRow = all.dropResult(rank - 1);
    Type f32 = rewriter.getF32Type(), i32 = rewriter.getI32Type(), i8 = rewriter.getI8Type();
    Value zeros = filledTensor(rewriter, loc, ArrayRef(sizes).drop_back(), f32, 0);
    Value tops = reduction(rewriter, loc, op.getRows(), all, zeros, byRow,
                           formula([&](ArrayRef<Num> x) { return maximum(x[1], abs(convert(x[0], f32))); }));
    sizes.back() = rewriter.getIndexAttr(width + kScaleBytes);
    auto byte = formula([&](Code &k, ArrayRef<Num> x) {
      Index at = loopIndex(k, rank - 1), end = k.index(width);
      Num top = x[0], number = convert(inRow(k, op.getRows(), minimum(at, width - 1)), f32);
      Num factor = select(top < kLeastOfRow, k.f32(0), kGreatestCode / top);
      number = roundEven(number * factor);
      // Not maximum: NaN becomes a limit.
      number = k.asNum(arith::MaxNumFOp::create(k.b, loc, number, k.f32(-kGreatestCode)));
      number = k.asNum(arith::MinNumFOp::create(k.b, loc, number, k.f32(kGreatestCode)));
      Num code = convert(number, i32), bits = toNum(maximum(at - end, 0), i32) * 8;
      Num scale = bitcast(top / kGreatestCode, i32) >> bits;
      return convert(select(at < end, code, scale), i8);
    });
    Value bytes = elementwise(rewriter, loc, sizes, i8, tops, byRow, byte);
    rewriter.replaceOpWithNewOp<tensor::CastOp>(op, op.getType(), bytes);
    return success();
  }
};

struct DecomposeWidenRows : OpRewritePattern<WidenRowsOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(WidenRowsOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto type = cast<RankedTensorType>(op.getType());
    int64_t rank = type.getRank(), width = type.getShape().back();
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, op.getBytes());
    sizes.back() = rewriter.getIndexAttr(width);
    Type f32 = rewriter.getF32Type(), i32 = rewriter.getI32Type();
    bool isFloat8 = isa<Float8E4M3FNType>(cast<RankedTensorType>(op.getBytes().getType()).getElementType());
    auto number = formula([&](Code &k, ArrayRef<Num>) {
      std::optional<Num> bits;
      for (int64_t n = 0; n < kScaleBytes; ++n) {
        Num byte = inRow(k, op.getBytes(), k.index(width + n));
        Num part = convertUnsigned(isFloat8 ? bitcast(byte, k.b.getI8Type()) : byte, i32) << 8 * n;
        bits = bits ? *bits | part : part;
      }
      Num code = convert(inRow(k, op.getBytes(), loopIndex(k, rank - 1)), f32);
      return convert(code * bitcast(*bits, f32), type.getElementType());
    });
    Value numbers = elementwise(rewriter, loc, sizes, type.getElementType(), ValueRange(), {}, number);
    rewriter.replaceOpWithNewOp<tensor::CastOp>(op, op.getType(), numbers);
    return success();
  }
};

struct DecomposePass : impl::DecomposePassBase<DecomposePass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<DecomposeSoftmax, DecomposeLayerNorm, DecomposeNarrowRows, DecomposeWidenRows>(&getContext());
    populateDecomposeAttentionPatterns(patterns);
    populateDecomposeRecurrentPatterns(patterns);
    populateDecomposeProductPatterns(patterns);
    populateDecomposeBlockPatterns(patterns);
    populateDecomposeTopKPatterns(patterns);
    populateDecomposeSegmentPatterns(patterns);
    FrozenRewritePatternSet frozen(std::move(patterns));
    // Kernels hold none of these ops and most of the module.
    WalkResult result = getOperation()->walk<WalkOrder::PreOrder>([&](func::FuncOp function) {
      bool isKernel = function->hasAttr(AttnDialect::kKernelAttr);
      return isKernel || succeeded(applyPatternsGreedily(function, frozen)) ? WalkResult::skip()
                                                                            : WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
} // namespace attn
