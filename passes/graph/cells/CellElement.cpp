#include "passes/graph/cells/CellElement.h"

#include "passes/graph/Structured.h"
#include "passes/graph/element/Element.h"

using namespace mlir;

namespace attn {
namespace {

/// The first of the columns that are read at `at`, of all rows; sizes of 1 aside.
std::optional<int64_t> readColumns(const ElementReader &reader, ArrayRef<AffineExpr> at) {
  if (at.empty() || reader.numRootPlaces() == 0)
    return std::nullopt;
  MLIRContext *context = at.front().getContext();
  unsigned last = reader.numRootPlaces() - 1;
  SmallVector<AffineExpr> rows, read;
  auto add = [&](SmallVector<AffineExpr> &list, AffineExpr place) {
    if (reader.plain(place) != getAffineConstantExpr(0, context))
      list.push_back(place);
  };
  for (unsigned n = 0; n != last; ++n)
    add(rows, getAffineDimExpr(n, context));
  for (AffineExpr place : at.drop_back())
    add(read, place);
  auto first = dyn_cast<AffineConstantExpr>(at.back() - getAffineDimExpr(last, context));
  return first && read == rows ? std::optional(first.getValue()) : std::nullopt;
}

/// Whether a slice leaves out columns only.
bool takesAllRows(tensor::ExtractSliceOp slice) {
  return llvm::all_of(llvm::seq<int64_t>(slice.getSourceType().getRank() - 1), [&](int64_t dim) {
    return Extent::of(slice.getMixedSizes()[dim]) == Extent::of(slice.getSource(), dim);
  });
}

} // namespace

CellElement resolve(CellElement element, bool onlyViews) {
  Value root = element.value;
  if (!isa<RankedTensorType>(root.getType())) {
    auto op = dyn_cast_or_null<linalg::LinalgOp>(root.getParentRegion()->getParentOp());
    if (!op || op->getNumResults() != 1)
      return element;
    root = op->getResult(0);
  }
  ElementReader reader(root);
  Element from = reader.at(element.value);
  int64_t column = 0;
  while (std::optional<Element> next = reader.step(from)) {
    auto slice = from.value.getDefiningOp<tensor::ExtractSliceOp>();
    std::optional<int64_t> first = readColumns(reader, next->at.getResults());
    if (!first || (slice && !takesAllRows(slice)) ||
        (onlyViews && (slice || !isa<RankedTensorType>(next->value.getType()))))
      break;
    from = *next;
    column = *first;
  }
  return {from.value, element.column + column};
}

CellElement operand(const CellElement &of, unsigned n) {
  return resolve({of.value.getDefiningOp()->getOperand(n), of.column});
}

Value rootOf(Value value) {
  return isa<RankedTensorType>(value.getType()) ? resolve({value, 0}, /*onlyViews=*/true).value : value;
}

} // namespace attn
