#include "passes/lowering/cpu/BlockWeights.h"

#include "dialects/attn/MaskTerms.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

namespace {

/// Takes the heads of a group, which stand before the queries of a head in one
/// dimension, out of it.
class GroupSplitter {
public:
  GroupSplitter(AttentionOp op, RewriterBase &b, int64_t group) : op(op), b(b), loc(op.getLoc()), group(group) {}

  /// Whether all positions are those of a query among the others of its head,
  /// and heads stand right before queries wherever both are.
  static bool canSplit(AttentionOp op) {
    bool readsIndex = false;
    for (Region &region : op->getRegions())
      region.walk([&](IndexOp index) { readsIndex |= index.getDim() == Dim::I || index.getDim() == Dim::H; });
    if (readsIndex || llvm::any_of(op.getMask(), dependsOnQuery))
      return false;
    for (unsigned n = 0; n != op.getIndexingMaps().size(); ++n) {
      AffineMap map = op.getMap(n);
      int64_t heads = positionOf(map, Dim::H), queries = positionOf(map, Dim::I);
      bool isDivided = heads >= 0 && AttentionOp::getDivisor(map.getResult(heads)) > 1;
      if (isDivided || (queries >= 0 && heads != (op.isNamed(Dim::H) ? queries - 1 : -1)))
        return false;
    }
    return true;
  }

  AttentionOp run() {
    AttentionParts parts = op.getParts();
    parts.axes = {}; // of the whole attention
    for (unsigned n = 0; n != op.getNumOperands(); ++n)
      parts.maps[n] = newMap(op.getMap(n));
    parts.query = split(parts.query, op.getQueryMap());
    for (auto [n, capture] : llvm::enumerate(parts.captures))
      capture = split(capture, op.getCaptureMap(n));
    for (auto [n, operand] : llvm::enumerate(parts.maskOperands))
      operand = split(operand, op.getMaskMap(n));
    for (auto [n, type] : llvm::enumerate(parts.types)) {
      AffineMap &map = parts.maps[op.getNumOperands() + n];
      if (int64_t queries = positionOf(map, Dim::I); queries >= 0)
        type = splitType(cast<RankedTensorType>(type), queries);
      map = newMap(map);
    }
    auto twin = AttentionOp::create(b, loc, parts);
    twin->setDiscardableAttrs(llvm::to_vector(op->getDiscardableAttrs()));
    for (auto [to, from] : llvm::zip_equal(twin->getRegions(), op->getRegions()))
      to.takeBody(from);
    for (auto [n, result] : llvm::enumerate(twin->getResults()))
      replaceUsers(op->getResult(n), result, op.getMap(op.getNumOperands() + n));
    b.eraseOp(op);
    return twin;
  }

private:
  static int64_t positionOf(AffineMap map, unsigned dim) {
    for (auto [n, expr] : llvm::enumerate(map.getResults()))
      if (AttentionOp::getNamedDim(expr) == dim)
        return n;
    return -1;
  }

  /// Of a tensor in which queries have their heads before them; keys and values are those of a group.
  AffineMap newMap(AffineMap map) {
    SmallVector<AffineExpr> exprs(map.getResults());
    int64_t heads = positionOf(map, Dim::H), queries = positionOf(map, Dim::I);
    if (queries >= 0 && heads < 0)
      exprs.insert(exprs.begin() + queries, b.getAffineDimExpr(Dim::H));
    else if (queries < 0 && heads >= 0)
      exprs[heads] = b.getAffineDimExpr(Dim::H).floorDiv(group);
    return AffineMap::get(AttentionOp::kDims, 0, exprs, b.getContext());
  }

  /// h x (g i) or (g i) becomes (h g) x i.
  RankedTensorType splitType(RankedTensorType type, int64_t queries) {
    SmallVector<int64_t> shape(type.getShape());
    int64_t &size = shape[queries];
    if (!ShapedType::isDynamic(size))
      size /= group;
    if (!op.isNamed(Dim::H))
      shape.insert(shape.begin() + queries, group);
    else if (!ShapedType::isDynamic(shape[queries - 1]))
      shape[queries - 1] *= group;
    return type.clone(shape);
  }

  /// Each dimension of a tensor of `rank` alone, but `first` and the next one, which are one.
  static SmallVector<ReassociationIndices> joinAt(int64_t rank, int64_t first) {
    SmallVector<ReassociationIndices> groups;
    for (int64_t n = 0; n < rank; ++n)
      if (n == first + 1)
        groups.back().push_back(n);
      else
        groups.push_back({n});
    return groups;
  }

  /// With dimensions of their own for groups and queries.
  RankedTensorType wideType(RankedTensorType type, int64_t queries) {
    SmallVector<int64_t> shape(type.getShape());
    if (!ShapedType::isDynamic(shape[queries]))
      shape[queries] /= group;
    shape.insert(shape.begin() + queries, group);
    return type.clone(shape);
  }

  OpFoldResult divided(OpFoldResult size) {
    return affine::makeComposedFoldedAffineApply(b, loc, b.getAffineSymbolExpr(0).floorDiv(group), {size});
  }

  Value split(Value tensor, AffineMap map) {
    int64_t queries = positionOf(map, Dim::I);
    if (queries < 0)
      return tensor;
    auto type = cast<RankedTensorType>(tensor.getType());
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
    sizes[queries] = divided(sizes[queries]);
    sizes.insert(sizes.begin() + queries, b.getIndexAttr(group));
    int64_t rank = sizes.size();
    Value wide = tensor::ExpandShapeOp::create(b, loc, wideType(type, queries), tensor, joinAt(rank, queries), sizes);
    if (!op.isNamed(Dim::H))
      return wide;
    return tensor::CollapseShapeOp::create(b, loc, splitType(type, queries), wide, joinAt(rank, queries - 1));
  }

  /// The users of `before`, which took the groups out of it, take `result` instead.
  void replaceUsers(Value before, Value result, AffineMap map) {
    int64_t queries = positionOf(map, Dim::I);
    if (queries < 0)
      return b.replaceAllUsesWith(before, result);
    SmallVector<OpFoldResult> own = op.getIterationSizes(b, loc), sizes;
    for (AffineExpr expr : map.getResults()) {
      std::optional<unsigned> dim = AttentionOp::getNamedDim(expr);
      sizes.push_back(dim ? own[*dim] : b.getIndexAttr(1));
    }
    sizes[queries] = divided(sizes[queries]);
    sizes.insert(sizes.begin() + queries, b.getIndexAttr(group));
    RankedTensorType wide = wideType(cast<RankedTensorType>(before.getType()), queries);
    if (op.isNamed(Dim::H))
      result = tensor::ExpandShapeOp::create(b, loc, wide, result, joinAt(wide.getRank(), queries - 1), sizes);
    for (Operation *user : llvm::make_early_inc_range(before.getUsers())) {
      auto expand = cast<tensor::ExpandShapeOp>(user);
      SmallVector<ReassociationIndices> rest;
      for (auto [dim, group] : llvm::enumerate(expand.getReassociationIndices()))
        if (static_cast<int64_t>(dim) == queries)
          rest.append({{group[0]}, {group[1]}});
        else
          rest.push_back(group);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(expand);
      b.replaceOpWithNewOp<tensor::ExpandShapeOp>(expand, expand.getResultType(), result, rest,
                                                  expand.getMixedOutputShape());
    }
  }

  AttentionOp op;
  RewriterBase &b;
  Location loc;
  int64_t group;
};

} // namespace

AttentionOp splitGroups(AttentionOp op, RewriterBase &rewriter) {
  // What the heads of a group are told apart by, behind the attention.
  std::optional<int64_t> group;
  for (auto [n, result] : llvm::enumerate(op->getResults())) {
    AffineMap map = op.getMap(op.getNumOperands() + n);
    for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
      if (AttentionOp::getNamedDim(expr) != unsigned(Dim::I))
        continue;
      for (Operation *user : result.getUsers()) {
        auto expand = dyn_cast<tensor::ExpandShapeOp>(user);
        if (!expand)
          return op;
        ReassociationIndices parts = expand.getReassociationIndices()[dim];
        int64_t size = parts.size() == 2 ? expand.getResultType().getDimSize(parts.front()) : 0;
        if (size < 2 || (group && *group != size))
          return op;
        group = size;
      }
    }
  }
  return group && GroupSplitter::canSplit(op) ? GroupSplitter(op, rewriter, *group).run() : op;
}

} // namespace attn
