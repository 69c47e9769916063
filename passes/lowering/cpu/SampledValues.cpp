#include "passes/lowering/cpu/SampledValues.h"

#include "passes/graph/Structured.h"
#include "passes/lowering/cpu/StoreScores.h"
#include "passes/lowering/cpu/WrittenAttention.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

namespace {
/// What gathers `count` values from key `first` on; `order` has, for each dimension of the values, that of its result.
struct Part {
  linalg::GenericOp gather;
  SmallVector<int64_t> order;
  int64_t first, count;
};

/// The gather that makes `values` for one reader alone, perhaps transposed.
std::optional<Part> findGather(Value values, int64_t first, int64_t count) {
  Part part{{}, llvm::to_vector(llvm::seq<int64_t>(cast<RankedTensorType>(values.getType()).getRank())), first, count};
  for (; values.hasOneUse(); values = values.getDefiningOp()->getOperand(0)) {
    if (auto transpose = values.getDefiningOp<linalg::TransposeOp>()) {
      for (int64_t &dim : part.order)
        dim = transpose.getPermutation()[dim];
      continue;
    }
    part.gather = values.getDefiningOp<linalg::GenericOp>();
    bool gathers = part.gather && isPointwise(part.gather) &&
                   llvm::any_of(*part.gather.getBody(), llvm::IsaPred<tensor::ExtractOp>);
    return gathers ? std::optional(part) : std::nullopt;
  }
  return std::nullopt;
}

/// Whether `insert` puts all places of the other dimensions than `dim`, which have these sizes.
bool isWholeBut(tensor::InsertSliceOp insert, int64_t dim, ArrayRef<OpFoldResult> sizes) {
  if (insert.getSourceType().getRank() != insert.getType().getRank() || !insert.hasUnitStride())
    return false;
  return llvm::all_of(llvm::seq<int64_t>(sizes.size()), [&](int64_t n) {
    return n == dim || (isConstantIntValue(insert.getMixedOffsets()[n], 0) &&
                        isEqualConstantIntOrValue(insert.getMixedSizes()[n], sizes[n]));
  });
}

/// The gathers whose results, one behind the other along `dim`, are `values`: each a place of an outer dimension that
/// is collapsed with its own, or some of the keys.
SmallVector<Part> findParts(Value values, int64_t dim) {
  if (std::optional<Part> whole = findGather(values, 0, cast<RankedTensorType>(values.getType()).getDimSize(dim)))
    return {*whole};
  auto collapse = values.getDefiningOp<tensor::CollapseShapeOp>();
  int64_t inner = 1;
  if (collapse) {
    SmallVector<ReassociationIndices> groups = collapse.getReassociationIndices();
    if (groups[dim].size() != 2 || collapse.getSrcType().getRank() != collapse.getResultType().getRank() + 1 ||
        !values.hasOneUse())
      return {};
    inner = collapse.getSrcType().getDimSize(dim + 1);
    values = collapse.getSrc();
  }
  Value base = values;
  while (auto insert = base.getDefiningOp<tensor::InsertSliceOp>())
    base = insert.getDest();
  auto empty = base.getDefiningOp<tensor::EmptyOp>();
  SmallVector<Part> parts;
  for (int64_t end = cast<RankedTensorType>(values.getType()).getDimSize(dim); end > 0;) {
    auto insert = values.getDefiningOp<tensor::InsertSliceOp>();
    if (!insert || !empty || !values.hasOneUse() || !isWholeBut(insert, dim, empty.getMixedSizes()))
      return {};
    std::optional<int64_t> first = getConstantIntValue(insert.getMixedOffsets()[dim]);
    int64_t count = insert.getSourceType().getDimSize(dim);
    if (!first || *first + count != end) // the last part is inserted last
      return {};
    Value source = insert.getSource();
    if (collapse) {
      auto expand = source.getDefiningOp<tensor::ExpandShapeOp>();
      if (count != 1 || !source.hasOneUse() || !expand || expand.getReassociationIndices()[dim].size() != 2 ||
          expand.getSrcType().getRank() + 1 != insert.getSourceType().getRank())
        return {};
      source = expand.getSrc();
    }
    std::optional<Part> part = findGather(source, *first * inner, count * inner);
    if (!part)
      return {};
    parts.push_back(*part);
    end = *first;
    values = insert.getDest();
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

/// Drops `value` and what only it was computed from.
void drop(Value value, RewriterBase &rewriter) {
  Operation *op = value.getDefiningOp();
  if (!op || !op->use_empty() || !isMemoryEffectFree(op))
    return;
  SmallVector<Value> operands(op->getOperands());
  rewriter.eraseOp(op);
  for (Value operand : operands)
    drop(operand, rewriter);
}
} // namespace

/// The dimensions that `map` names and along which there is more than one place, or what a sum runs over.
static SmallVector<unsigned> findDims(AttentionOp op, AffineMap map) {
  SmallVector<unsigned> dims;
  for (AffineExpr expr : map.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(expr);
        dim && (dim.getPosition() == Dim::J || getStaticSize(op, dim.getPosition()) != 1))
      dims.push_back(dim.getPosition());
  return dims;
}

/// `value`, which has these of the dimensions `all`, with those of size 1 between them.
static Value expandTo(RewriterBase &rewriter, Location loc, Value value, ArrayRef<unsigned> kept,
                      ArrayRef<unsigned> all, ArrayRef<OpFoldResult> sizes) {
  auto type = cast<RankedTensorType>(value.getType());
  if (kept.size() == all.size())
    return value;
  SmallVector<ReassociationIndices> groups(1);
  SmallVector<int64_t> shape;
  int64_t next = 0;
  for (auto [n, dim] : llvm::enumerate(all)) {
    bool isKept = llvm::is_contained(kept, dim);
    if (isKept && next != 0)
      groups.emplace_back();
    groups.back().push_back(n);
    shape.push_back(isKept ? type.getDimSize(next++) : 1);
  }
  return tensor::ExpandShapeOp::create(rewriter, loc, RankedTensorType::get(shape, type.getElementType()), value,
                                       groups, sizes);
}

bool sumSamples(AttentionOp op, RewriterBase &rewriter) {
  if (!WrittenAttention::canWrite(op))
    return false;
  AffineMap valueMap = op.getValueMap();
  SmallVector<unsigned> results = findDims(op, op.getResultMap()), rows = findDims(op, op.getQueryMap());
  for (unsigned n = 0; n != op.getCaptures().size(); ++n)
    for (unsigned dim : findDims(op, op.getCaptureMap(n)))
      if (!llvm::is_contained(rows, dim))
        rows.push_back(dim);
  llvm::sort(rows); // keys stand last
  // A value that is weighed for several sums would be gathered for each.
  if (results.empty() || rows.empty() || rows.back() != Dim::J ||
      !llvm::all_of(results, [&](unsigned dim) { return AttentionOp::names(valueMap, dim); }))
    return false;
  SmallVector<unsigned> values;
  for (AffineExpr expr : valueMap.getResults())
    values.push_back(cast<AffineDimExpr>(expr).getPosition());
  auto *key = llvm::find(values, Dim::J);
  if (key == values.end() || !getStaticSize(op, Dim::J))
    return false;
  SmallVector<Part> parts = findParts(op.getValue(), key - values.begin());
  if (parts.empty())
    return false;

  rewriter.setInsertionPoint(op);
  Location loc = op.getLoc();
  WrittenAttention written(op, rewriter);
  SmallVector<unsigned> loops(results);
  loops.push_back(Dim::J);
  Value weights = written.weights(rows);
  Value sum = filledTensor(rewriter, loc, written.sizesOf(results), rewriter.getF32Type(), 0);
  SmallVector<Operation *> sums;
  for (Part &part : parts) {
    SmallVector<unsigned> gathered(values.size());
    for (auto [n, dim] : llvm::enumerate(part.order))
      gathered[dim] = values[n];
    Value own = sliceAlong(rewriter, loc, weights, rows.size() - 1, rewriter.getIndexAttr(part.first),
                           rewriter.getIndexAttr(part.count));
    sum = written.sum(own, rows, part.gather.getResult(0), written.mapOf(gathered, loops), sum, loops);
    sums.push_back(sum.getDefiningOp());
  }
  SmallVector<unsigned> all;
  for (AffineExpr expr : op.getResultMap().getResults())
    all.push_back(cast<AffineDimExpr>(expr).getPosition());
  SmallVector<OpFoldResult> sizes = written.sizesOf(all);
  for (auto [dim, size] : llvm::zip_equal(all, sizes))
    if (!llvm::is_contained(results, dim))
      size = rewriter.getIndexAttr(1);
  Value source = op.getValue();
  sum = expandTo(rewriter, loc, sum, results, all, sizes);
  rewriter.replaceOp(op, castTo(rewriter, loc, sum, op.getResult().getType()));
  drop(source, rewriter); // of a gather with another reader its result would stay
  for (Operation *each : sums) {
    rewriter.setInsertionPoint(each);
    FailureOr<linalg::ElementwiseOpFusionResult> fused = linalg::fuseElementwiseOps(rewriter, &each->getOpOperand(1));
    if (succeeded(fused))
      rewriter.replaceOp(each, fused->replacements.lookup(each->getResult(0)));
  }
  return true;
}

} // namespace attn
