#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
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

/// How many rows share a scale, 0: all, and of how many bits a code is.
struct BlockForm {
  int64_t rows, bits;
};

class BlockStorage {
public:
  BlockStorage(ModuleOp module, BlockForm form, bool narrowsRows)
      : module(module), symbols(module), globals(module, symbols), form(form), narrowsRows(narrowsRows),
        rewriter(module.getContext()) {}

  void run() {
    for (linalg::LinalgOp op : getContractions(module))
      store(op);
  }

private:
  void store(linalg::LinalgOp op);

  ModuleOp module;
  SymbolTable symbols;
  DerivedGlobals globals;
  BlockForm form;
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
  unsigned depth = transposed ? 1 : 0;
  int64_t bits = form.bits, block = form.rows ? form.rows : shape[depth];
  scaleShape[depth] = llvm::divideCeil(shape[depth], block);
  auto codes = RankedTensorType::get(shape, rewriter.getI8Type());
  auto scales = RankedTensorType::get(scaleShape, rewriter.getF32Type());
  StringRef name = match.global.getValue();
  std::string suffix = (transposed ? "_tblocks" : "_blocks") + std::to_string(block) + (bits == 8 ? "_bytes" : "");
  rewriter.setInsertionPoint(op);
  Value matrix = WeightOp::create(
      rewriter, loc, codes,
      globals.get(name + suffix, codes, BlockCodesAttr::get(context, match.global, transposed, block, bits), loc));
  Value factors =
      WeightOp::create(rewriter, loc, scales,
                       globals.get(name + suffix + "_scales", scales,
                                   BlockScalesAttr::get(context, match.global, transposed, block, bits), loc));
  rewriter.replaceOpWithNewOp<BlockProductOp>(op, op->getResult(0).getType(), match.activation, matrix, factors,
                                              /*zeros=*/Value(), block, bits, /*zero_point=*/0, transposed,
                                              /*is_unsigned=*/false, narrowsRows);
}

struct StoreBlocksPass : attn::impl::StoreBlocksPassBase<StoreBlocksPass> {
  using Base::Base;

  void runOnOperation() override {
    std::optional<WeightStorage> storage = WeightStorage::parse(weights);
    bool isBytes = storage && storage->storage == PanelStorage::I8;
    if (!isBytes && !(storage && storage->block)) {
      getOperation().emitError(
          "expects weights in int4:16, int4:32, int4:64, int4:128, int4:256, int8 or int8:GROUP, got '")
          << weights << "'";
      return signalPassFailure();
    }
    BlockForm form = isBytes ? BlockForm{storage->group, 8} : BlockForm{storage->block, 4};
    BlockStorage(getOperation(), form, narrowsRows).run();
  }
};

} // namespace
