#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_SELECTROWSPASS
#include "passes/Passes.h.inc"

namespace {

/// Ones where a loop of `op` stands at `position`, a scalar in its body that does not depend on that loop.
struct OneHot {
  linalg::GenericOp op;
  unsigned loop;
  Value position;
};

/// Whether `value` holds 0, 1, 2, ..., read without a sign.
bool countsUp(Value value) {
  DenseIntElementsAttr numbers;
  if (!matchPattern(value, m_Constant(&numbers)) || numbers.getType().getRank() != 1)
    return false;
  int64_t next = 0;
  return llvm::all_of(numbers.getValues<APInt>(), [&](const APInt &number) { return number == next++; });
}

/// Whether the numbers below `size` keep their order in `type`, signed.
bool holds(Type type, int64_t size) {
  return type.isIndex() || size - 1 <= llvm::maxIntN(type.getIntOrFloatBitWidth());
}

/// Whether `value`, in the body of `op`, is where `loop` stands, of `size` places.
bool isPosition(linalg::GenericOp op, unsigned loop, int64_t size, Value value) {
  while (auto cast = value.getDefiningOp<arith::IndexCastOp>()) {
    if (!holds(cast.getType(), size) || !holds(cast.getIn().getType(), size))
      return false;
    value = cast.getIn();
  }
  if (auto index = value.getDefiningOp<linalg::IndexOp>())
    return index.getDim() == loop;
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || argument.getOwner() != op.getBody())
    return false;
  OpOperand *input = op.getMatchingOpOperand(argument);
  AffineMap map = op.getMatchingIndexingMap(input);
  return op.isDpsInput(input) && map.getNumResults() == 1 && map.getResult(0).isFunctionOfDim(loop) &&
         isa<AffineDimExpr>(map.getResult(0)) && countsUp(input->get());
}

/// Whether `value`, in the body of `op`, is the same wherever `loop` stands.
bool isFreeOf(linalg::GenericOp op, unsigned loop, Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value); argument && argument.getOwner() == op.getBody()) {
    OpOperand *operand = op.getMatchingOpOperand(argument);
    return op.isDpsInput(operand) && !op.getMatchingIndexingMap(operand).isFunctionOfDim(loop);
  }
  Operation *inner = value.getDefiningOp();
  if (!inner || inner->getBlock() != op.getBody())
    return true;
  if (auto index = dyn_cast<linalg::IndexOp>(inner))
    return index.getDim() != loop;
  return inner->getNumRegions() == 0 && isMemoryEffectFree(inner) &&
         llvm::all_of(inner->getOperands(), [&](Value operand) { return isFreeOf(op, loop, operand); });
}

std::optional<OneHot> findOneHot(Value value, unsigned dim, int64_t size) {
  auto op = value.getDefiningOp<linalg::GenericOp>();
  if (!op || !isPointwise(op))
    return std::nullopt;
  auto place = dyn_cast<AffineDimExpr>(op.getMatchingIndexingMap(op.getDpsInitOperand(0)).getResult(dim));
  if (!place)
    return std::nullopt;
  unsigned loop = place.getPosition();
  Operation *yielded = stripConversions(op.getBody()->getTerminator()->getOperand(0)).getDefiningOp();
  Value test;
  if (auto select = dyn_cast_or_null<arith::SelectOp>(yielded);
      select && numberOf(select.getTrueValue()) == 1 && numberOf(select.getFalseValue()) == 0)
    test = select.getCondition();
  else if (auto number = dyn_cast_or_null<arith::UIToFPOp>(yielded); number && number.getIn().getType().isInteger(1))
    test = number.getIn();
  auto compare = test ? test.getDefiningOp<arith::CmpIOp>() : arith::CmpIOp();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::eq)
    return std::nullopt;
  for (unsigned side : {0, 1}) {
    Value position = compare->getOperand(1 - side);
    if (isPosition(op, loop, size, compare->getOperand(side)) && isFreeOf(op, loop, position))
      return OneHot{op, loop, position};
  }
  return std::nullopt;
}

/// sum_j onehot[i, j] v[j, e] -> v[position[i], e], and 0 where no j is the position.
struct SelectRows : OpInterfaceRewritePattern<linalg::LinalgOp> {
  using OpInterfaceRewritePattern::OpInterfaceRewritePattern;

  LogicalResult matchAndRewrite(linalg::LinalgOp op, PatternRewriter &rewriter) const override {
    SmallVector<unsigned> sums;
    if (!isContraction(op) || !isZeroFill(op.getDpsInits()[0]))
      return failure();
    op.getReductionDims(sums);
    // Without a row there is none to read.
    if (sums.size() != 1)
      return failure();
    int64_t size = op.getStaticLoopRanges()[sums[0]];
    if (size <= 0)
      return failure();
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    if (!llvm::all_of(maps, [](AffineMap map) { return map.isProjectedPermutation(); }))
      return failure();
    for (unsigned n : {0, 1})
      if (std::optional<unsigned> dim = maps[n].getResultPosition(rewriter.getAffineDimExpr(sums[0])))
        if (std::optional<OneHot> ones = findOneHot(op->getOperand(n), *dim, size);
            ones && maps[1 - n].isFunctionOfDim(sums[0]))
          return replace(op, n, sums[0], *ones, rewriter);
    return failure();
  }

private:
  static LogicalResult replace(linalg::LinalgOp op, unsigned side, unsigned sum, OneHot ones,
                               PatternRewriter &rewriter) {
    Location loc = op.getLoc();
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    // The dimension of the result at which a loop of `op`, and one of the ones, stands.
    auto resultDim = [&](unsigned loop) { return *maps[2].getResultPosition(rewriter.getAffineDimExpr(loop)); };
    SmallVector<AffineExpr> places(ones.op.getNumLoops(), rewriter.getAffineConstantExpr(0));
    AffineMap written = ones.op.getMatchingIndexingMap(ones.op.getDpsInitOperand(0));
    for (auto [n, expr] : llvm::enumerate(written.getResults())) {
      unsigned loop = cast<AffineDimExpr>(maps[side].getResult(n)).getPosition();
      if (loop != sum)
        places[cast<AffineDimExpr>(expr).getPosition()] = rewriter.getAffineDimExpr(resultDim(loop));
    }
    SmallVector<Value> inputs;
    SmallVector<AffineMap> inputMaps;
    SmallVector<BlockArgument> arguments;
    for (OpOperand *input : ones.op.getDpsInputOperands()) {
      AffineMap map = ones.op.getMatchingIndexingMap(input);
      if (map.isFunctionOfDim(ones.loop))
        continue;
      inputs.push_back(input->get());
      inputMaps.push_back(map.replaceDimsAndSymbols(places, {}, type.getRank(), 0));
      arguments.push_back(ones.op.getMatchingBlockArgument(input));
    }
    Value values = op->getOperand(1 - side);
    AffineMap read = maps[1 - side];
    int64_t size = op.getStaticLoopRanges()[sum];
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, op.getDpsInits()[0]);
    Value result = elementwise(
        rewriter, loc, sizes, type.getElementType(), inputs, inputMaps,
        [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
          IRMapping mapping;
          for (auto [from, to] : llvm::zip(arguments, args))
            mapping.map(from, to);
          for (Operation &inner : ones.op.getBody()->without_terminator()) {
            if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
              auto place = dyn_cast<AffineDimExpr>(places[index.getDim()]);
              if (place)
                mapping.map(index.getResult(), linalg::IndexOp::create(b, loc, place.getPosition()).getResult());
            } else if (isFreeOf(ones.op, ones.loop, inner.getResult(0))) {
              b.clone(inner, mapping);
            }
          }
          Value at = mapping.lookupOrDefault(ones.position);
          if (!at.getType().isIndex())
            at = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), at);
          Value zero = arith::ConstantIndexOp::create(b, loc, 0), end = arith::ConstantIndexOp::create(b, loc, size);
          // A negative number is beyond the end, too. Numbers of few bits are as unsigned as those that count up.
          Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, at, end);
          at = arith::SelectOp::create(b, loc, exists, at, zero);
          SmallVector<Value> indices;
          for (AffineExpr expr : read.getResults()) {
            unsigned loop = cast<AffineDimExpr>(expr).getPosition();
            indices.push_back(loop == sum ? at : linalg::IndexOp::create(b, loc, resultDim(loop)).getResult());
          }
          Value element = tensor::ExtractOp::create(b, loc, values, indices);
          return arith::SelectOp::create(b, loc, exists, convertFloat(b, loc, element, type.getElementType()),
                                         floatConstant(b, loc, type.getElementType(), 0));
        });
    rewriter.replaceOp(op, castTo(rewriter, loc, result, type));
    return success();
  }
};

struct SelectRowsPass : impl::SelectRowsPassBase<SelectRowsPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<SelectRows>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace attn
