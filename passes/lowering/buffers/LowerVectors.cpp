#include "passes/Passes.h"
#include "passes/lowering/buffers/LowerArithmetic.h"
#include "passes/lowering/buffers/RewriteChosen.h"

#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/Dialect/Vector/Transforms/VectorRewritePatterns.h"

namespace attn {
#define GEN_PASS_DEF_LOWERVECTORSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
/// Whether LLVM has `op` as it stands, so that no pattern takes it: nearly all that kernels consist of.
bool isPlain(Operation *op) {
  if (!isa<vector::LoadOp, vector::StoreOp, vector::MaskedLoadOp, vector::MaskedStoreOp, vector::FMAOp>(op))
    return false;
  auto hasRows = [](Type type) {
    auto vector = dyn_cast<VectorType>(type);
    return vector && vector.getRank() > 1;
  };
  return llvm::none_of(op->getOperandTypes(), hasRows) && llvm::none_of(op->getResultTypes(), hasRows);
}

struct LowerVectorsPass : attn::impl::LowerVectorsPassBase<LowerVectorsPass> {
  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet ofTransfers(context);
    populateVectorToSCFConversionPatterns(ofTransfers);
    transferPatterns = std::move(ofTransfers);
    // As in convert-vector-to-llvm.
    RewritePatternSet set(context);
    vector::populateVectorToVectorCanonicalizationPatterns(set);
    vector::populateVectorBitCastLoweringPatterns(set);
    vector::populateVectorBroadcastLoweringPatterns(set);
    vector::populateVectorContractLoweringPatterns(set, vector::VectorContractLowering::Dot);
    vector::populateVectorMaskOpLoweringPatterns(set);
    vector::populateVectorShapeCastLoweringPatterns(set);
    vector::populateVectorInterleaveLoweringPatterns(set);
    vector::populateVectorTransposeLoweringPatterns(set, vector::VectorTransposeLowering::EltWise);
    vector::populateVectorTransferLoweringPatterns(set, /*maxTransferRank=*/1);
    vector::populateVectorMaskMaterializationPatterns(set, /*force32BitVectorIndices=*/true);
    vector::populateVectorInsertExtractStridedSliceTransforms(set);
    vector::populateVectorStepLoweringPatterns(set);
    vector::populateVectorRankReducingFMAPattern(set);
    vector::populateVectorGatherLoweringPatterns(set);
    patterns = std::move(set);
    return success();
  }

  void runOnOperation() override {
    (void)attn::rewriteChosen(getOperation(), transferPatterns,
                              [](Operation *op) { return isa<vector::TransferReadOp, vector::TransferWriteOp>(op); });
    (void)attn::rewriteChosen(getOperation(), patterns, [](Operation *op) {
      return isa<vector::VectorDialect>(op->getDialect()) && !isPlain(op);
    });
    attn::lowerArithmetic(getOperation());
  }

  void getDependentDialects(DialectRegistry &registry) const override {
    LowerVectorsPassBase::getDependentDialects(registry);
    registry.insert<LLVM::LLVMDialect>();
  }

private:
  FrozenRewritePatternSet transferPatterns, patterns;
};
} // namespace
