#include "passes/graph/Collect.h"
#include "passes/lowering/search/SearchLoop.h"

using namespace mlir;
using namespace attn;

LogicalResult attn::lowerSearches(ModuleOp module, const SearchKernels &target, bool traces) {
  KernelTable kernels(module);
  for (SearchOp op : collect<SearchOp>(module))
    if (failed(SearchLoop(op, kernels, target, traces).run()))
      return failure();
  for (CtcSearchOp op : collect<CtcSearchOp>(module))
    lowerCtcSearch(op, kernels, target);
  return success();
}
