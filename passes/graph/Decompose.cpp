#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_DECOMPOSEPASS
#include "passes/Passes.h.inc"

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The identity on `rank` dimensions without result `dim`.
AffineMap dropDim(OpBuilder &b, int64_t rank, int64_t dim) { return b.getMultiDimIdentityMap(rank).dropResult(dim); }

/// softmax over `dim` of `input`, taken and given in the accumulator's
/// precision inside; a row of -inf only becomes what `maskedRows` says.
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
    AffineMap full = b.getMultiDimIdentityMap(rank), row = full.getMajorSubMap(axis),
              columns = full.getMinorSubMap(rank - axis), perRow = b.getMultiDimIdentityMap(axis);

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

/// attention -> contract, score region, softmax, weight region, contract.
struct DecomposeAttention : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;

  /// A tensor and its map from the op's six dimensions; every result a plain
  /// dimension.
  struct Operand {
    Value value;
    AffineMap map;
  };

  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &b) const override {
    Location loc = op.getLoc();
    SmallVector<OpFoldResult> sizes = op.getIterationSizes(b, loc);
    SmallVector<Operand> operands;
    for (auto [n, value] : llvm::enumerate(op.getMappedOperands()))
      operands.push_back(simplify(b, loc, value, op.getMap(n), sizes));
    const Operand &query = operands[0], &key = operands[1], &value = operands[2];
    ArrayRef<Operand> captures = ArrayRef(operands).drop_front(3);

    // Scores and weights have the dimensions of (b, h, i, j) that exist.
    SmallVector<unsigned> dims;
    for (unsigned dim : {AttentionOp::B, AttentionOp::H, AttentionOp::I, AttentionOp::J})
      if (op.isNamed(dim))
        dims.push_back(dim);
    Type f32 = b.getF32Type();

    // The product has those of them that query or key name.
    SmallVector<unsigned> productDims;
    for (unsigned dim : dims)
      if (names(query.map, dim) || names(key.map, dim))
        productDims.push_back(dim);
    Value scores = contract(b, loc, query, key, productDims, sizes, f32);
    scores = region(b, loc, op.getScore(), {scores, mapOf(b, productDims)}, captures, dims, sizes);

    int64_t keyPosition = llvm::find(dims, unsigned(AttentionOp::J)) - dims.begin();
    Value weights = emitSoftmax(b, loc, scores, keyPosition, f32, /*log=*/false, op.getMaskedRows());
    if (!op.getWeight().empty())
      weights = region(b, loc, op.getWeight(), {weights, mapOf(b, dims)}, captures, dims, sizes);

    SmallVector<unsigned> resultDims;
    for (AffineExpr expr : op.getResultMap().getResults())
      if (std::optional<unsigned> dim = AttentionOp::getNamedDim(expr))
        resultDims.push_back(*dim);
    Value result = contract(b, loc, {weights, mapOf(b, dims)}, value, resultDims, sizes, f32);
    Type element = getElementTypeOrSelf(op.getResult());
    if (element != f32) {
      AffineMap identity = b.getMultiDimIdentityMap(resultDims.size());
      result = elementwise(
          b, loc, pick(sizes, resultDims), element, result, identity,
          [&](OpBuilder &b, Location loc, ValueRange args) { return convertFloat(b, loc, args[0], element); });
    }
    b.replaceOp(op, restoreUnitDims(b, loc, result, op));
    return success();
  }

private:
  static bool names(AffineMap map, unsigned dim) {
    return llvm::any_of(map.getResults(), [&](AffineExpr e) { return AttentionOp::getNamedDim(e) == dim; });
  }

  static AffineMap mapOf(Builder &b, ArrayRef<unsigned> dims) {
    SmallVector<AffineExpr> exprs;
    for (unsigned dim : dims)
      exprs.push_back(b.getAffineDimExpr(dim));
    return AffineMap::get(6, 0, exprs, b.getContext());
  }

  static SmallVector<OpFoldResult> pick(ArrayRef<OpFoldResult> sizes, ArrayRef<unsigned> dims) {
    SmallVector<OpFoldResult> picked;
    for (unsigned dim : dims)
      picked.push_back(sizes[dim]);
    return picked;
  }

  /// `value` without the dimensions that `map` reads at 0: a collapse_shape,
  /// which stays contiguous, where the types say that their size is 1.
  static Value dropUnitDims(OpBuilder &b, Location loc, Value value, AffineMap map, RankedTensorType reduced,
                            ArrayRef<OpFoldResult> extents) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<ReassociationIndices> groups(reduced.getRank());
    int64_t group = -1;
    bool isStatic = true;
    for (auto [n, expr] : llvm::enumerate(map.getResults())) {
      bool dropped = isa<AffineConstantExpr>(expr);
      group += !dropped;
      isStatic &= !dropped || type.getDimSize(n) == 1;
      if (!groups.empty())
        groups[std::max<int64_t>(group, 0)].push_back(n);
    }
    if (isStatic)
      return tensor::CollapseShapeOp::create(b, loc, reduced, value, groups);
    SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0)), strides(type.getRank(), b.getIndexAttr(1));
    return tensor::ExtractSliceOp::create(b, loc, reduced, value, offsets, extents, strides);
  }

  /// Drops the dimensions that are read at 0 and repeats the heads that are
  /// read through h floordiv c: linalg.contract takes plain dimensions only,
  /// and tiling a generic is wrong for a floordiv (a tile of h that starts off
  /// a multiple of c spans one more element than its size says).
  static Operand simplify(OpBuilder &b, Location loc, Value value, AffineMap map, ArrayRef<OpFoldResult> sizes) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<AffineExpr> exprs;
    SmallVector<OpFoldResult> extents;
    SmallVector<int64_t> shape;
    bool divided = false;
    for (auto [n, expr] : llvm::enumerate(map.getResults())) {
      if (isa<AffineConstantExpr>(expr)) {
        extents.push_back(b.getIndexAttr(1));
        continue;
      }
      extents.push_back(tensor::getMixedSize(b, loc, value, n));
      shape.push_back(type.getDimSize(n));
      exprs.push_back(expr);
      divided |= AttentionOp::getDivisor(expr) > 1;
    }
    if (static_cast<int64_t>(exprs.size()) != type.getRank())
      value = dropUnitDims(b, loc, value, map, RankedTensorType::get(shape, type.getElementType()), extents);
    if (divided) {
      SmallVector<unsigned> dims;
      for (AffineExpr expr : exprs)
        dims.push_back(*AttentionOp::getNamedDim(expr));
      Value source = value;
      value = elementwise(b, loc, pick(sizes, dims), type.getElementType(), {}, {},
                          [&](OpBuilder &b, Location loc, ValueRange) -> Value {
                            SmallVector<Value> indices;
                            for (auto [n, expr] : llvm::enumerate(exprs)) {
                              Value index = linalg::IndexOp::create(b, loc, n);
                              if (int64_t c = AttentionOp::getDivisor(expr); c > 1)
                                index =
                                    arith::DivUIOp::create(b, loc, index, arith::ConstantIndexOp::create(b, loc, c));
                              indices.push_back(index);
                            }
                            return tensor::ExtractOp::create(b, loc, source, indices);
                          });
      for (AffineExpr &expr : exprs)
        expr = b.getAffineDimExpr(*AttentionOp::getNamedDim(expr));
    }
    return {value, AffineMap::get(6, 0, exprs, b.getContext())};
  }

  /// sum over the dimensions not in `resultDims` of a * b, as f32.
  static Value contract(OpBuilder &b, Location loc, const Operand &lhs, const Operand &rhs,
                        ArrayRef<unsigned> resultDims, ArrayRef<OpFoldResult> sizes, Type element) {
    // Loops that nobody names are not allowed: number those that are.
    SmallVector<int64_t> loop(6, -1);
    int64_t loops = 0;
    for (unsigned dim = 0; dim != 6; ++dim)
      if (names(lhs.map, dim) || names(rhs.map, dim))
        loop[dim] = loops++;
    auto renumber = [&](AffineMap map) {
      SmallVector<AffineExpr> exprs;
      for (AffineExpr expr : map.getResults())
        exprs.push_back(b.getAffineDimExpr(loop[*AttentionOp::getNamedDim(expr)]));
      return AffineMap::get(loops, 0, exprs, b.getContext());
    };
    Value init = filledTensor(b, loc, pick(sizes, resultDims), element, 0);
    ArrayAttr maps = b.getAffineMapArrayAttr({renumber(lhs.map), renumber(rhs.map), renumber(mapOf(b, resultDims))});
    return linalg::ContractOp::create(b, loc, init.getType(), ValueRange{lhs.value, rhs.value}, init, maps)
        .getResult(0);
  }

  /// `body` at every point of `dims`, over `scores` and the captures.
  static Value region(OpBuilder &b, Location loc, Region &body, const Operand &scores, ArrayRef<Operand> captures,
                      ArrayRef<unsigned> dims, ArrayRef<OpFoldResult> sizes) {
    SmallVector<int64_t> loop(6, -1);
    for (auto [n, dim] : llvm::enumerate(dims))
      loop[dim] = n;
    SmallVector<Value> inputs;
    SmallVector<AffineMap> maps;
    auto add = [&](const Operand &operand) {
      SmallVector<AffineExpr> exprs;
      for (AffineExpr expr : operand.map.getResults())
        exprs.push_back(b.getAffineDimExpr(loop[*AttentionOp::getNamedDim(expr)]));
      inputs.push_back(operand.value);
      maps.push_back(AffineMap::get(dims.size(), 0, exprs, b.getContext()));
    };
    add(scores);
    llvm::for_each(captures, add);
    return elementwise(b, loc, pick(sizes, dims), b.getF32Type(), inputs, maps,
                       [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                         IRMapping mapping;
                         mapping.map(body.getArguments(), args);
                         for (Operation &inner : body.front().without_terminator()) {
                           auto index = dyn_cast<IndexOp>(inner);
                           if (!index) {
                             b.clone(inner, mapping);
                             continue;
                           }
                           int64_t n = loop[index.getDim()];
                           Value value = n < 0 ? Value(arith::ConstantIndexOp::create(b, loc, 0))
                                               : Value(linalg::IndexOp::create(b, loc, n));
                           mapping.map(index.getResult(), value);
                         }
                         return mapping.lookupOrDefault(cast<YieldOp>(body.front().back()).getValue());
                       });
  }

  /// Puts back the dimensions that the result's map reads at 0.
  static Value restoreUnitDims(OpBuilder &b, Location loc, Value value, AttentionOp op) {
    auto type = cast<RankedTensorType>(op.getResult().getType());
    auto have = cast<RankedTensorType>(value.getType());
    if (have.getRank() != type.getRank()) {
      SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0)), strides(type.getRank(), b.getIndexAttr(1));
      SmallVector<OpFoldResult> sizes, source = tensor::getMixedSizes(b, loc, value);
      SmallVector<int64_t> shape;
      SmallVector<ReassociationIndices> groups(have.getRank());
      // The unit dimensions before the first named one join its group, the others the group before them.
      int64_t group = -1;
      for (auto [n, expr] : llvm::enumerate(op.getResultMap().getResults())) {
        bool named = AttentionOp::getNamedDim(expr).has_value();
        group += named;
        sizes.push_back(named ? source[group] : b.getIndexAttr(1));
        shape.push_back(named ? have.getDimSize(group) : 1);
        groups[std::max<int64_t>(group, 0)].push_back(n);
      }
      auto expanded = RankedTensorType::get(shape, type.getElementType());
      value = tensor::ExpandShapeOp::create(b, loc, expanded, value, groups, sizes);
    }
    if (value.getType() != type)
      value = tensor::CastOp::create(b, loc, type, value);
    return value;
  }
};

struct DecomposePass : impl::DecomposePassBase<DecomposePass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<DecomposeSoftmax, DecomposeLayerNorm, DecomposeAttention>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace attn
