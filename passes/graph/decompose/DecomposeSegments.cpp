#include "dialects/attn/SegmentAttentionOp.h"
#include "passes/graph/Formulas.h"
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
  SegmentLoops(SegmentAttentionOp op, OpBuilder &b) : op(op), b(b), loc(op.getLoc()), k(b, loc) {}

  Value write() {
    Type acc = accumulatorType(getElementTypeOrSelf(op.getScores()));
    OpFoldResult nodes = tensor::getMixedSize(b, loc, op.getEnds(), 0);
    OpFoldResult heads = tensor::getMixedSize(b, loc, op.getValues(), 1);
    OpFoldResult width = tensor::getMixedSize(b, loc, op.getValues(), 2);
    Index some = dim(op.getValues(), 1);
    double lowest = op.getFloor() ? op.getFloor()->convertToDouble() : -kInfinity;
    tops = forEach(
        filledTensor(b, loc, {nodes, heads}, acc, lowest), some, k.index(1),
        [&](const Num &old, const Index &edge, ArrayRef<Value> at) { return maximum(old, scoreOf(edge, at[1], acc)); });
    sums =
        forEach(filledTensor(b, loc, {nodes, heads}, acc, 0), some, k.index(1),
                [&](const Num &old, const Index &edge, ArrayRef<Value> at) { return old + weightOf(edge, at, acc); });
    Value result = forEach(filledTensor(b, loc, {nodes, heads, width}, acc, 0), some, dim(op.getValues(), 2),
                           [&](const Num &old, const Index &edge, ArrayRef<Value> at) {
                             Num sum = elementAt(k, sums, at.take_front(2));
                             if (!op.getEpsilon().isZero())
                               sum = sum + op.getEpsilon().convertToDouble();
                             Num weight = weightOf(edge, at, acc) / sum;
                             Index row = op.getRows() ? indexAt(op.getRows(), edge) : edge;
                             Num value = elementAt(k, op.getValues(), {row, at[1], at[2]});
                             return old + weight * convert(value, acc);
                           });
    auto type = cast<RankedTensorType>(op.getType());
    result = convertTensor(b, loc, result, type.getElementType(), {nodes, heads, width});
    return castTo(b, loc, result, type);
  }

private:
  Index dim(Value tensor, int64_t n) { return k.asIndex(tensor::DimOp::create(b, loc, tensor, n)); }
  Index indexAt(Value list, Value at) { return toIndex(elementAt(k, list, at)); }
  Num scoreOf(Value edge, Value head, Type type) { return convert(elementAt(k, op.getScores(), {edge, head}), type); }
  /// Not divided yet.
  Num weightOf(Value edge, ArrayRef<Value> at, Type type) {
    Num top = elementAt(k, tops, at.take_front(2));
    return exp(scoreOf(edge, at[1], type) - top);
  }

  /// `body` of an element and an edge is the next element, for each node, its edges, heads and columns. The element is
  /// that at as many of (node, head, column) as `init` has dimensions.
  Value forEach(Value init, const Index &heads, const Index &width,
                llvm::function_ref<Num(const Num &, const Index &, ArrayRef<Value>)> body) {
    int64_t rank = cast<RankedTensorType>(init.getType()).getRank();
    return k.loop(0, dim(op.getEnds(), 0), 1, Tensor(b, loc, init), [&](const Index &node, const Tensor &outer) {
      Index zero = k.index(0);
      Mask isFirst = node == 0;
      Index before = select(isFirst, zero, node - 1), begin = select(isFirst, zero, indexAt(op.getEnds(), before));
      return k.loop(begin, indexAt(op.getEnds(), node), 1, outer, [&](const Index &n, const Tensor &ofEdge) {
        return k.loop(0, heads, 1, ofEdge, [&](const Index &head, const Tensor &ofHead) {
          return k.loop(0, width, 1, ofHead, [&](const Index &column, const Tensor &carried) {
            SmallVector<Value> place{node, head, column};
            ArrayRef<Value> own = ArrayRef(place).take_front(rank);
            Num next = body(elementAt(k, carried, own), indexAt(op.getOrder(), n), place);
            return carried.with(tensor::InsertOp::create(b, loc, next, carried, own));
          });
        });
      });
    });
  }

  SegmentAttentionOp op;
  OpBuilder &b;
  const Location loc;
  Code k;
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
