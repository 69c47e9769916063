#include "passes/graph/decompose/Decompose.h"
#include "dialects/attn/AttnOps.h"
#include "dialects/attn/CacheOps.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"

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

  // maximumf, not maxnumf: a NaN score must reach the result.
  Value max = reduction(b, loc, input, full, filledTensor(b, loc, rows, acc, -kInfinity), row,
                        [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                          return arith::MaximumFOp::create(b, loc, convertFloat(b, loc, args[0], acc), args[1]);
                        });
  // A guarded row subtracts 0 instead of -inf: all its exponentials are 0
  // (zero), or every difference is taken as 0 (uniform).
  auto shifted = [&](OpBuilder &b, Location loc, Value x, Value max) -> Value {
    Value wide = convertFloat(b, loc, x, acc);
    if (!zero && !uniform)
      return arith::SubFOp::create(b, loc, wide, max);
    Value masked =
        arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, max, floatConstant(b, loc, acc, -kInfinity));
    Value nought = floatConstant(b, loc, acc, 0);
    if (zero) {
      Value guarded = arith::SelectOp::create(b, loc, masked, nought, max);
      return arith::SubFOp::create(b, loc, wide, guarded);
    }
    Value difference = arith::SubFOp::create(b, loc, wide, max);
    return arith::SelectOp::create(b, loc, masked, nought, difference);
  };

  Value zeros = filledTensor(b, loc, rows, acc, 0);
  if (log) {
    Value sum = reduction(b, loc, {input, max}, {full, row}, zeros, row,
                          [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                            Value e = math::ExpOp::create(b, loc, shifted(b, loc, args[0], args[1]));
                            return arith::AddFOp::create(b, loc, args[2], e);
                          });
    return elementwise(b, loc, sizes, resultElement, {input, max, sum}, {full, row, row},
                       [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                         Value lse = math::LogOp::create(b, loc, args[2]);
                         Value x = shifted(b, loc, args[0], args[1]);
                         return convertFloat(b, loc, arith::SubFOp::create(b, loc, x, lse), resultElement);
                       });
  }
  Value exps = elementwise(b, loc, sizes, acc, {input, max}, {full, row},
                           [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                             return math::ExpOp::create(b, loc, shifted(b, loc, args[0], args[1]));
                           });
  Value sum = reduction(b, loc, exps, full, zeros, row, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    return arith::AddFOp::create(b, loc, args[1], args[0]);
  });
  return elementwise(b, loc, sizes, resultElement, {exps, sum}, {full, row},
                     [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       Value divisor = args[1];
                       if (zero) { // a sum is 0 only when the row is masked: exp(max - max) is 1
                         Value nought = floatConstant(b, loc, acc, 0), one = floatConstant(b, loc, acc, 1);
                         Value masked = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, divisor, nought);
                         divisor = arith::SelectOp::create(b, loc, masked, one, divisor);
                       }
                       Value w = arith::DivFOp::create(b, loc, args[0], divisor);
                       return convertFloat(b, loc, w, resultElement);
                     });
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
    Value sum =
        reduction(b, loc, op.getInput(), full, zeros, row, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
          return arith::AddFOp::create(b, loc, args[1], convertFloat(b, loc, args[0], acc));
        });
    Value mean = elementwise(b, loc, rows, acc, sum, perRow, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
      return arith::DivFOp::create(b, loc, args[0], count);
    });
    Value squares = reduction(b, loc, {op.getInput(), mean}, {full, row}, zeros, row,
                              [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                                Value x = convertFloat(b, loc, args[0], acc);
                                Value d = arith::SubFOp::create(b, loc, x, args[1]);
                                Value square = arith::MulFOp::create(b, loc, d, d);
                                return arith::AddFOp::create(b, loc, args[2], square);
                              });
    Value inverse =
        elementwise(b, loc, rows, acc, squares, perRow, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
          Value variance = arith::DivFOp::create(b, loc, args[0], count);
          Value epsilon = floatConstant(b, loc, acc, op.getEpsilon().convertToDouble());
          Value shifted = arith::AddFOp::create(b, loc, variance, epsilon);
          Value root = math::SqrtOp::create(b, loc, shifted);
          return arith::DivFOp::create(b, loc, floatConstant(b, loc, acc, 1), root);
        });
    SmallVector<Value> inputs{op.getInput(), mean, inverse, op.getScale()};
    SmallVector<AffineMap> maps{full, row, row, columns};
    if (op.getBias()) {
      inputs.push_back(op.getBias());
      maps.push_back(columns);
    }
    Value result = elementwise(b, loc, sizes, type.getElementType(), inputs, maps,
                               [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                                 Value d = arith::SubFOp::create(b, loc, convertFloat(b, loc, args[0], acc), args[1]);
                                 Value normal = arith::MulFOp::create(b, loc, d, args[2]);
                                 Value y = arith::MulFOp::create(b, loc, normal, convertFloat(b, loc, args[3], acc));
                                 if (args.size() == 6)
                                   y = arith::AddFOp::create(b, loc, y, convertFloat(b, loc, args[4], acc));
                                 return convertFloat(b, loc, y, type.getElementType());
                               });
    rewriter.replaceOp(op, result);
    return success();
  }
};

/// The element of `tensor` at this point of the loops, but for the last dimension, where it is that at `last`.
Value elementAt(OpBuilder &b, Location loc, Value tensor, Value last) {
  SmallVector<Value> position;
  for (int64_t n = 0; n + 1 < cast<RankedTensorType>(tensor.getType()).getRank(); ++n)
    position.push_back(linalg::IndexOp::create(b, loc, n));
  position.push_back(last);
  return tensor::ExtractOp::create(b, loc, tensor, position);
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
                           [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                             Value size = math::AbsFOp::create(b, loc, convertFloat(b, loc, args[0], f32));
                             return arith::MaximumFOp::create(b, loc, args[1], size);
                           });
    sizes.back() = rewriter.getIndexAttr(width + kScaleBytes);
    auto byte = [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
      auto constant = [&](double value) { return floatConstant(b, loc, f32, value); };
      Value at = linalg::IndexOp::create(b, loc, rank - 1), end = arith::ConstantIndexOp::create(b, loc, width);
      Value isCode = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, at, end), top = args[0];
      Value last = arith::ConstantIndexOp::create(b, loc, width - 1);
      Value x = elementAt(b, loc, op.getRows(), arith::MinSIOp::create(b, loc, at, last));
      Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, top, constant(kLeastOfRow));
      Value factor = arith::SelectOp::create(b, loc, isZero, constant(0),
                                             arith::DivFOp::create(b, loc, constant(kGreatestCode), top));
      x = math::RoundEvenOp::create(b, loc, arith::MulFOp::create(b, loc, convertFloat(b, loc, x, f32), factor));
      x = arith::MaxNumFOp::create(b, loc, x, constant(-kGreatestCode));
      x = arith::MinNumFOp::create(b, loc, x, constant(kGreatestCode));
      Value code = arith::FPToSIOp::create(b, loc, i32, x);
      Value scale = arith::BitcastOp::create(b, loc, i32, arith::DivFOp::create(b, loc, top, constant(kGreatestCode)));
      Value number = arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, at, end),
                                            arith::ConstantIndexOp::create(b, loc, 0));
      Value bits = arith::MulIOp::create(b, loc, arith::IndexCastOp::create(b, loc, i32, number),
                                         arith::ConstantIntOp::create(b, loc, i32, 8));
      scale = arith::ShRUIOp::create(b, loc, scale, bits);
      return arith::TruncIOp::create(b, loc, i8, arith::SelectOp::create(b, loc, isCode, code, scale));
    };
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
    auto number = [&](OpBuilder &b, Location loc, ValueRange) -> Value {
      Value at = linalg::IndexOp::create(b, loc, rank - 1), bits;
      for (int64_t n = 0; n < kScaleBytes; ++n) {
        Value byte = elementAt(b, loc, op.getBytes(), arith::ConstantIndexOp::create(b, loc, width + n));
        if (isFloat8)
          byte = arith::BitcastOp::create(b, loc, b.getI8Type(), byte);
        byte = arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, i32, byte),
                                     arith::ConstantIntOp::create(b, loc, i32, 8 * n));
        bits = bits ? arith::OrIOp::create(b, loc, bits, byte).getResult() : byte;
      }
      Value code = elementAt(b, loc, op.getBytes(), at);
      code = isFloat8 ? arith::ExtFOp::create(b, loc, f32, code).getResult()
                      : arith::SIToFPOp::create(b, loc, f32, code).getResult();
      Value wide = arith::MulFOp::create(b, loc, code, arith::BitcastOp::create(b, loc, f32, bits));
      return convertFloat(b, loc, wide, type.getElementType());
    };
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
