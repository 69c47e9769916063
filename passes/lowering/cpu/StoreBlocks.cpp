#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/graph/ProductReport.h"
#include "passes/kernels/spec/Storage.h"
#include "passes/lowering/choose/ContractionMatch.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Remarks.h"

namespace attn {
#define GEN_PASS_DEF_STOREBLOCKSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Codes of 4 bits: words of 8.
constexpr int64_t kCodeBits = 4;

class BlockStorage {
public:
  BlockStorage(ModuleOp module, int64_t block, bool narrowsRows)
      : module(module), symbols(module), globals(module, symbols), block(block), narrowsRows(narrowsRows),
        rewriter(module.getContext()) {}

  void run() {
    SmallVector<linalg::LinalgOp> ops;
    module.walk([&](linalg::LinalgOp op) {
      if (linalg::isaContractionOpInterface(op))
        ops.push_back(op);
    });
    for (linalg::LinalgOp op : ops)
      store(op);
  }

private:
  void store(linalg::LinalgOp op);

  ModuleOp module;
  SymbolTable symbols;
  DerivedGlobals globals;
  int64_t block;
  bool narrowsRows;
  IRRewriter rewriter;
};

void BlockStorage::store(linalg::LinalgOp op) {
  Contraction match;
  std::string reason;
  // What is no product by a weight is said where it gets its kernel.
  if (failed(matchContraction(op, match, reason)) || !match.global)
    return;
  Location loc = op.getLoc();
  if (StringRef obstacle = findRowsObstacle(match); !obstacle.empty()) {
    remark::missed(loc, remark::RemarkOpts::name("blocks").category("attn-store-blocks"))
        << remark::reason("{0}", obstacle);
    return reportProduct(module, loc, "f32", "f32", ProductVerdict::reason, obstacle);
  }
  MLIRContext *context = op.getContext();
  ArrayRef<int64_t> shape = match.right.getType().getShape();
  bool transposed = match.isTransposed;
  SmallVector<int64_t> scaleShape(shape);
  scaleShape[transposed ? 1 : 0] = llvm::divideCeil(shape[transposed ? 1 : 0], block);
  auto codes = RankedTensorType::get(shape, rewriter.getI8Type());
  auto scales = RankedTensorType::get(scaleShape, rewriter.getF32Type());
  StringRef name = match.global.getValue();
  std::string suffix = (transposed ? "_tblocks" : "_blocks") + std::to_string(block);
  rewriter.setInsertionPoint(op);
  Value matrix = WeightOp::create(
      rewriter, loc, codes,
      globals.get(name + suffix, codes, BlockCodesAttr::get(context, match.global, transposed, block, kCodeBits), loc));
  Value factors =
      WeightOp::create(rewriter, loc, scales,
                       globals.get(name + suffix + "_scales", scales,
                                   BlockScalesAttr::get(context, match.global, transposed, block, kCodeBits), loc));
  rewriter.replaceOpWithNewOp<BlockProductOp>(op, op->getResult(0).getType(), match.activation, matrix, factors,
                                              /*zeros=*/Value(), block, kCodeBits, /*zero_point=*/0, transposed,
                                              /*is_unsigned=*/false, narrowsRows);
}

struct StoreBlocksPass : attn::impl::StoreBlocksPassBase<StoreBlocksPass> {
  using Base::Base;

  void runOnOperation() override {
    std::optional<WeightStorage> storage = WeightStorage::parse(weights);
    if (!storage || !storage->block) {
      getOperation().emitError("expects weights in int4:16, int4:32, int4:64, int4:128 or int4:256, got '")
          << weights << "'";
      return signalPassFailure();
    }
    BlockStorage(getOperation(), storage->block, narrowsRows).run();
  }
};

} // namespace
