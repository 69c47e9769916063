#include "passes/graph/attention/SegmentMatch.h"

#include "passes/graph/Structured.h"
#include "passes/graph/masks/EdgeLists.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {
namespace {

class SegmentBuilder {
public:
  SegmentBuilder(RewriterBase &b, const SegmentMatch &match)
      : b(b), match(match), loc(match.softmax->getLoc()), result(cast<RankedTensorType>(match.result.getType())) {
    for (unsigned n = match.edgeDim + 1; n != match.sizes.size(); ++n)
      (llvm::is_contained(match.heads, n) ? heads : width) *= match.sizes[n];
  }

  SegmentAttentionOp build(SegmentLists &lists) {
    // The loops stand in the order in which they are matched; their quotients need not.
    b.setInsertionPoint(match.loops);
    auto [order, ends] = sortedEdges(lists);
    b.setInsertionPoint(match.result.getDefiningOp());
    SmallVector<unsigned> own{match.edgeDim}, all{match.edgeDim};
    llvm::append_range(own, match.heads);
    for (unsigned n = match.edgeDim + 1; n != match.sizes.size(); ++n)
      if (match.sizes[n] != 1)
        all.push_back(n);
    Value scores = rowsOf(match.scores, own);
    Value values = match.row ? toMatrix(match.values.value, 0) : rowsOf(match.values, all), rows;
    values = expanded(b, loc, values, ArrayRef<ReassociationIndices>{{0}, {1, 2}},
                      {tensor::getMixedSize(b, loc, values, 0), b.getIndexAttr(heads), b.getIndexAttr(width)});
    if (match.row)
      rows = writeRows();
    auto type = RankedTensorType::get({cast<RankedTensorType>(ends.getType()).getDimSize(0), heads, width}, f32());
    FloatAttr floor = match.floor ? b.getF64FloatAttr(*match.floor) : FloatAttr();
    auto op = SegmentAttentionOp::create(b, loc, type, scores, values, order, ends, rows,
                                         b.getF64FloatAttr(match.epsilon), floor);
    b.replaceAllUsesWith(match.result, fromMatrix(op.getResult()));
    return op;
  }

private:
  Type f32() { return b.getF32Type(); }

  /// The checked index of `edge` that `element` is.
  static Value readIndex(OpBuilder &b, Location loc, const Element &element, CheckIndexOp check, Value edge) {
    SmallVector<Value> places;
    for (AffineExpr at : element.at.getResults()) {
      auto constant = dyn_cast<AffineConstantExpr>(at);
      places.push_back(constant ? arith::ConstantIndexOp::create(b, loc, constant.getValue()).getResult() : edge);
    }
    Value index = tensor::ExtractOp::create(b, loc, element.value, places);
    index = arith::IndexCastOp::create(b, loc, b.getIndexType(), index);
    return CheckIndexOp::create(b, loc, index, check.getSize(), check.getMessage(), check.getNonnegative());
  }

  std::pair<Value, Value> sortedEdges(SegmentLists &lists) {
    SmallVector<AffineExpr> places;
    for (AffineExpr at : match.node.at.getResults())
      places.push_back(isa<AffineConstantExpr>(at) ? at : b.getAffineDimExpr(0));
    auto key =
        std::tuple(match.node.value, AffineMap::get(1, 0, places, b.getContext()), match.nodes, b.getInsertionBlock());
    auto [known, isNew] = lists.try_emplace(key);
    if (isNew) {
      SortedEdges sorted = sortEdges(b, match.result.getLoc(), match.edges, match.nodes, [&](Value edge) {
        return readIndex(b, match.result.getLoc(), match.node, match.nodeCheck, edge);
      });
      known->second = {sorted.order, sorted.ends};
    }
    return known->second;
  }

  Value writeRows() {
    return elementwise(b, loc, getAsOpFoldResult(match.edges), b.getI64Type(), {}, {},
                       [&](OpBuilder &b, Location loc, ValueRange) -> Value {
                         Value edge = linalg::IndexOp::create(b, loc, 0);
                         Value row = readIndex(b, loc, *match.row, match.rowCheck, edge);
                         return arith::IndexCastOp::create(b, loc, b.getI64Type(), row);
                       });
  }

  /// `tensor` as a matrix of rows along dimension `lead`, before which all sizes are 1.
  Value toMatrix(Value tensor, unsigned lead) {
    unsigned rank = cast<RankedTensorType>(tensor.getType()).getRank();
    SmallVector<ReassociationIndices> groups(rank == lead + 1 ? 1 : 2);
    for (unsigned n = 0; n != rank; ++n)
      groups[n > lead].push_back(n);
    if (rank != groups.size())
      tensor = tensor::CollapseShapeOp::create(b, loc, tensor, groups);
    if (groups.size() == 2)
      return tensor;
    return expanded(b, loc, tensor, ArrayRef<ReassociationIndices>{{0, 1}},
                    {tensor::getMixedSize(b, loc, tensor, 0), b.getIndexAttr(1)});
  }

  /// The elements of `element` along these dimensions of the updates, the first of which is that of the edges, as a
  /// matrix with a row for each edge.
  Value rowsOf(const Element &element, ArrayRef<unsigned> dims) {
    auto type = cast<RankedTensorType>(element.value.getType());
    SmallVector<unsigned> named;
    bool isWhole = true;
    unsigned lead = 0;
    for (auto [n, at] : llvm::enumerate(element.at.getResults())) {
      auto dim = dyn_cast<AffineDimExpr>(at);
      bool isEdge = dim && dim.getPosition() == match.edgeDim;
      if (isEdge)
        lead = n;
      if (type.getDimSize(n) == 1 && !isEdge)
        continue;
      isWhole &= dim && (isEdge || type.getDimSize(n) == match.sizes[dim.getPosition()]);
      named.push_back(dim ? dim.getPosition() : 0);
    }
    if (isWhole && ArrayRef(named) == dims)
      return toMatrix(element.value, lead);
    SmallVector<OpFoldResult> sizes{getAsOpFoldResult(match.edges)};
    for (unsigned dim : dims.drop_front())
      sizes.push_back(b.getIndexAttr(match.sizes[dim]));
    Value copy = elementwise(b, loc, sizes, f32(), {}, {}, [&](OpBuilder &b, Location loc, ValueRange) -> Value {
      SmallVector<Value> places;
      for (AffineExpr at : element.at.getResults()) {
        auto dim = dyn_cast<AffineDimExpr>(at);
        auto *loop = dim ? llvm::find(dims, dim.getPosition()) : dims.end();
        int64_t constant = dim ? 0 : cast<AffineConstantExpr>(at).getValue();
        places.push_back(loop == dims.end() ? arith::ConstantIndexOp::create(b, loc, constant).getResult()
                                            : linalg::IndexOp::create(b, loc, loop - dims.begin()).getResult());
      }
      return tensor::ExtractOp::create(b, loc, element.value, places);
    });
    return toMatrix(copy, 0);
  }

  /// `whole`, of (node, head, column), in the shape of the result.
  Value fromMatrix(Value whole) {
    bool isRow = result.getRank() > match.edgeDim + 1;
    SmallVector<ReassociationIndices> joined{{0}, {1, 2}};
    if (!isRow)
      joined = {{0, 1, 2}};
    OpFoldResult nodes = tensor::getMixedSize(b, loc, whole, 0);
    Value matrix = tensor::CollapseShapeOp::create(b, loc, whole, joined);
    SmallVector<ReassociationIndices> groups(isRow ? 2 : 1);
    SmallVector<OpFoldResult> sizes;
    SmallVector<int64_t> shape(result.getShape());
    shape[match.edgeDim] = cast<RankedTensorType>(matrix.getType()).getDimSize(0);
    for (unsigned n = 0; n != result.getRank(); ++n) {
      groups[n > match.edgeDim].push_back(n);
      sizes.push_back(n == match.edgeDim ? nodes : OpFoldResult(b.getIndexAttr(shape[n])));
    }
    return castTo(b, loc, expanded(b, loc, matrix, groups, sizes), result);
  }

  RewriterBase &b;
  const SegmentMatch &match;
  const Location loc;
  const RankedTensorType result;
  int64_t heads = 1, width = 1;
};

} // namespace

SegmentAttentionOp buildSegmentAttention(RewriterBase &rewriter, const SegmentMatch &match, SegmentLists &lists) {
  return SegmentBuilder(rewriter, match).build(lists);
}

} // namespace attn
