#include "passes/lowering/search/SearchLoop.h"

using namespace mlir;
using namespace attn;

LogicalResult attn::lowerSearches(ModuleOp module, const SearchKernels &target, bool traces) {
  SmallVector<SearchOp> searches;
  module.walk([&](SearchOp op) { searches.push_back(op); });
  KernelTable kernels(module);
  for (SearchOp op : searches)
    if (failed(SearchLoop(op, kernels, target, traces).run()))
      return failure();
  SmallVector<CtcSearchOp> labellings;
  module.walk([&](CtcSearchOp op) { labellings.push_back(op); });
  for (CtcSearchOp op : labellings)
    lowerCtcSearch(op, kernels, target);
  return success();
}
