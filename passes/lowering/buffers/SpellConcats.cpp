#include "passes/lowering/buffers/SpellConcats.h"
#include "dialects/attn/ManyParts.h"
#include "passes/graph/Collect.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

namespace {

struct Parts {
  SmallVector<tensor::InsertSliceOp> insertions; // the last first
  int64_t dim = -1;
  SmallVector<std::pair<int64_t, Value>> at; // where each begins
};

/// Whether `insertion` fills `whole` in all dimensions but `dim`, along which it knows its place; -1: not known yet.
bool spans(tensor::InsertSliceOp insertion, tensor::EmptyOp whole, int64_t &dim) {
  if (insertion.getSourceType().getRank() != insertion.getDestType().getRank() || !insertion.hasUnitStride())
    return false;
  SmallVector<OpFoldResult> full = whole.getMixedSizes(), sizes = insertion.getMixedSizes();
  for (auto [d, offset] : llvm::enumerate(insertion.getMixedOffsets())) {
    bool isFull = isZeroInteger(offset) && isEqualConstantIntOrValue(sizes[d], full[d]);
    if (isFull)
      continue;
    if ((dim >= 0 && dim != static_cast<int64_t>(d)) || !getConstantIntValue(offset) || !getConstantIntValue(sizes[d]))
      return false;
    dim = static_cast<int64_t>(d);
  }
  return dim >= 0;
}

/// The parts that insertions up to `last` put side by side, in the order of their places; none where these are few, or
/// do not fill a tensor.
Parts partsOf(tensor::InsertSliceOp last) {
  Parts parts;
  parts.insertions = {last};
  while (auto before = parts.insertions.back().getDest().getDefiningOp<tensor::InsertSliceOp>()) {
    if (!before->hasOneUse())
      return {};
    parts.insertions.push_back(before);
  }
  auto whole = parts.insertions.back().getDest().getDefiningOp<tensor::EmptyOp>();
  if (!whole || parts.insertions.size() <= kFewParts)
    return {};
  for (tensor::InsertSliceOp insertion : parts.insertions) {
    if (!spans(insertion, whole, parts.dim))
      return {};
    parts.at.push_back({insertion.getStaticOffsets()[parts.dim], insertion.getSource()});
  }
  llvm::stable_sort(parts.at, llvm::less_first());
  int64_t end = 0;
  for (auto [begin, part] : parts.at) {
    if (begin != end)
      return {};
    end += cast<RankedTensorType>(part.getType()).getDimSize(parts.dim);
  }
  return end == whole.getType().getDimSize(parts.dim) ? parts : Parts();
}

} // namespace

void attn::spellConcats(func::FuncOp function) {
  IRRewriter rewriter(function.getContext());
  for (auto concat : collect<tensor::ConcatOp>(function)) {
    if (concat.getInputs().size() > kFewParts)
      continue;
    rewriter.setInsertionPoint(concat);
    if (FailureOr<SmallVector<Value>> whole = concat.decomposeOperation(rewriter); succeeded(whole))
      rewriter.replaceOp(concat, *whole);
  }
  auto goesOn = [](tensor::InsertSliceOp insertion) {
    auto next = insertion->hasOneUse() ? dyn_cast<tensor::InsertSliceOp>(*insertion->user_begin()) : nullptr;
    return next && next.getDest() == insertion.getResult();
  };
  SmallVector<tensor::InsertSliceOp> lasts = collect<tensor::InsertSliceOp>(function);
  llvm::erase_if(lasts, goesOn);
  for (tensor::InsertSliceOp last : lasts) {
    Parts parts = partsOf(last);
    if (parts.at.empty())
      continue;
    rewriter.setInsertionPoint(last);
    SmallVector<Value> inputs = llvm::map_to_vector(parts.at, [](const auto &part) { return part.second; });
    rewriter.replaceAllUsesWith(last.getResult(),
                                tensor::ConcatOp::create(rewriter, last.getLoc(), last.getType(), parts.dim, inputs));
    for (tensor::InsertSliceOp insertion : parts.insertions)
      rewriter.eraseOp(insertion);
  }
}
