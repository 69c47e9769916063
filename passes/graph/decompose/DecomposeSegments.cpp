#include "dialects/attn/SegmentAttentionOp.h"
#include "passes/graph/Structured.h"
#include "passes/graph/decompose/Decompose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {
namespace {

/// Loops over the edges of each node that carry one tensor.
class SegmentLoops {
public:
  SegmentLoops(SegmentAttentionOp op, OpBuilder &b) : op(op), b(b), loc(op.getLoc()) {}

  Value write() {
    Type acc = accumulatorType(getElementTypeOrSelf(op.getScores()));
    OpFoldResult nodes = tensor::getMixedSize(b, loc, op.getEnds(), 0);
    OpFoldResult heads = tensor::getMixedSize(b, loc, op.getValues(), 1);
    OpFoldResult width = tensor::getMixedSize(b, loc, op.getValues(), 2);
    Value one = arith::ConstantIndexOp::create(b, loc, 1), some = dim(op.getValues(), 1);
    double lowest = op.getFloor() ? op.getFloor()->convertToDouble() : -kInfinity;
    tops = forEach(filledTensor(b, loc, {nodes, heads}, acc, lowest), some, one,
                   [&](Value old, Value edge, ValueRange at) -> Value {
                     return arith::MaximumFOp::create(b, loc, old, scoreOf(edge, at[1], acc));
                   });
    sums = forEach(filledTensor(b, loc, {nodes, heads}, acc, 0), some, one,
                   [&](Value old, Value edge, ValueRange at) -> Value {
                     return arith::AddFOp::create(b, loc, old, weightOf(edge, at, acc));
                   });
    Value result = forEach(filledTensor(b, loc, {nodes, heads, width}, acc, 0), some, dim(op.getValues(), 2),
                           [&](Value old, Value edge, ValueRange at) -> Value {
                             Value sum = addEpsilon(tensor::ExtractOp::create(b, loc, sums, at.take_front(2)));
                             Value weight = arith::DivFOp::create(b, loc, weightOf(edge, at, acc), sum);
                             Value row = op.getRows() ? indexAt(op.getRows(), edge) : edge;
                             Value value = tensor::ExtractOp::create(b, loc, op.getValues(), {row, at[1], at[2]});
                             value = arith::MulFOp::create(b, loc, weight, convertFloat(b, loc, value, acc));
                             return arith::AddFOp::create(b, loc, old, value);
                           });
    AffineMap all = b.getMultiDimIdentityMap(3);
    auto type = cast<RankedTensorType>(op.getType());
    result = elementwise(b, loc, {nodes, heads, width}, type.getElementType(), result, all,
                         [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                           return convertFloat(b, loc, args[0], type.getElementType());
                         });
    return castTo(b, loc, result, type);
  }

private:
  Value dim(Value tensor, int64_t n) { return tensor::DimOp::create(b, loc, tensor, n); }
  Value indexAt(Value list, Value at) {
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), tensor::ExtractOp::create(b, loc, list, at));
  }
  Value scoreOf(Value edge, Value head, Type type) {
    return convertFloat(b, loc, tensor::ExtractOp::create(b, loc, op.getScores(), {edge, head}), type);
  }
  /// Not divided yet.
  Value weightOf(Value edge, ValueRange at, Type type) {
    Value top = tensor::ExtractOp::create(b, loc, tops, at.take_front(2));
    return math::ExpOp::create(b, loc, arith::SubFOp::create(b, loc, scoreOf(edge, at[1], type), top));
  }

  Value addEpsilon(Value sum) {
    if (op.getEpsilon().isZero())
      return sum;
    Value epsilon = floatConstant(b, loc, sum.getType(), op.getEpsilon().convertToDouble());
    return arith::AddFOp::create(b, loc, sum, epsilon);
  }

  /// `body` of an element and an edge is the next element, for each node, its edges, heads and columns. The element is
  /// that at as many of (node, head, column) as `init` has dimensions.
  Value forEach(Value init, Value heads, Value width, llvm::function_ref<Value(Value, Value, ValueRange)> body) {
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
    int64_t rank = cast<RankedTensorType>(init.getType()).getRank();
    auto nest = [&](ValueRange from, ValueRange to, ValueRange init,
                    llvm::function_ref<Value(ValueRange, ValueRange)> inner) {
      OpBuilder::InsertionGuard guard(b);
      SmallVector<Value> steps(from.size(), one);
      return scf::buildLoopNest(b, loc, from, to, steps, init,
                                [&](OpBuilder &in, Location, ValueRange at, ValueRange carried) -> scf::ValueVector {
                                  OpBuilder::InsertionGuard guard(b);
                                  b.setInsertionPoint(in.getInsertionBlock(), in.getInsertionPoint());
                                  return {inner(at, carried)};
                                })
          .results.front();
    };
    return nest(zero, dim(op.getEnds(), 0), init, [&](ValueRange node, ValueRange outer) {
      Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, node[0], zero);
      Value before = arith::SelectOp::create(b, loc, isFirst, zero, arith::SubIOp::create(b, loc, node[0], one));
      Value begin = arith::SelectOp::create(b, loc, isFirst, zero, indexAt(op.getEnds(), before));
      return nest({begin, zero, zero}, {indexAt(op.getEnds(), node[0]), heads, width}, outer,
                  [&](ValueRange at, ValueRange carried) -> Value {
                    SmallVector<Value> place{node[0], at[1], at[2]};
                    ArrayRef<Value> own = ArrayRef(place).take_front(rank);
                    Value old = tensor::ExtractOp::create(b, loc, carried[0], own);
                    Value next = body(old, indexAt(op.getOrder(), at[0]), place);
                    return tensor::InsertOp::create(b, loc, next, carried[0], own);
                  });
    });
  }

  SegmentAttentionOp op;
  OpBuilder &b;
  const Location loc;
  Value tops, sums; ///< of a node and a head
};

struct DecomposeSegments : OpRewritePattern<SegmentAttentionOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SegmentAttentionOp op, PatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, SegmentLoops(op, rewriter).write());
    return success();
  }
};

} // namespace

void populateDecomposeSegmentPatterns(RewritePatternSet &patterns) {
  patterns.add<DecomposeSegments>(patterns.getContext());
}

} // namespace attn
