#include "passes/graph/Structured.h"
#include "passes/kernels/gpu/Rows.h"
#include "passes/kernels/spec/Regions.h"
#include "passes/kernels/spec/Storage.h"
#include "passes/lowering/choose/Ranges.h"
#include "passes/lowering/gpu/ChooseGpuRows.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace attn {

static std::string nameOf(StringRef what, MemRefType type) {
  std::string name = ("gpu_" + what + "_" + llvm::join(llvm::map_range(type.getShape(), sizeText), "_")).str();
  if (!type.getElementType().isF32())
    llvm::raw_string_ostream(name) << '_' << type.getElementType();
  return name;
}

/// Whether `op` gives the greatest |x| of each row, or 0, in f32.
static bool areRowMagnitudes(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 1 || op.getNumDpsInits() != 1 || op.getNumReductionLoops() != 1 || op.getNumLoops() < 2)
    return false;
  AffineMap all = op.getMatchingIndexingMap(op.getDpsInputOperand(0));
  Block *body = op.getBody();
  auto combine = body->getTerminator()->getOperand(0).getDefiningOp<arith::MaximumFOp>();
  auto start = dyn_cast_or_null<FloatAttr>(splatConstant(op.getDpsInits()[0]));
  std::string reason;
  bool isWide = getElementTypeOrSelf(op.getDpsInputs()[0]).isF32(); // else it is widened first
  if (!combine || !start || !start.getValue().isPosZero() || body->getOperations().size() != (isWide ? 3 : 4) ||
      !all.isIdentity() || op.getMatchingIndexingMap(op.getDpsInitOperand(0)) != all.dropResult(op.getNumLoops() - 1) ||
      !getElementTypeOrSelf(op->getResult(0)).isF32() || !canBuildGpuRows(bufferOf(op.getDpsInputs()[0]), reason))
    return false;
  Value sides[] = {combine.getLhs(), combine.getRhs()};
  return llvm::any_of(ArrayRef<unsigned>{0, 1}, [&](unsigned n) {
    auto size = sides[n].getDefiningOp<math::AbsFOp>();
    return size && stripConversions(size.getOperand()) == body->getArgument(0) && sides[1 - n] == body->getArgument(1);
  });
}

void chooseGpuExtremes(ModuleOp module, KernelTable &kernels) {
  for (const TensorRange &range : findRanges(module)) {
    MemRefType type = bufferOf(range.tensor());
    std::string symbol = nameOf("range", type);
    auto kernel = kernels.getOrBuild(
        symbol, [&](OpBuilder &b) { return buildGpuRange(b, range.first()->getLoc(), symbol, type); });
    if (succeeded(kernel))
      callRange(range, *kernel, kGpuRangeParts);
  }
  SmallVector<linalg::GenericOp> magnitudes;
  module.walk([&](linalg::GenericOp op) {
    if (areRowMagnitudes(op))
      magnitudes.push_back(op);
  });
  for (linalg::GenericOp op : magnitudes) {
    MemRefType type = bufferOf(op.getDpsInputs()[0]);
    std::string symbol = nameOf("row_magnitudes", type);
    auto kernel =
        kernels.getOrBuild(symbol, [&](OpBuilder &b) { return buildGpuRowMagnitudes(b, op.getLoc(), symbol, type); });
    if (failed(kernel))
      continue;
    IRRewriter rewriter(op);
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, op.getLoc(), op.getDpsInputs()[0]);
    sizes.pop_back();
    replaceByKernel(rewriter, op, *kernel, op.getDpsInputs(), sizes);
  }
}

} // namespace attn
