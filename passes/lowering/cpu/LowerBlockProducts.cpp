#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/graph/ProductReport.h"
#include "passes/kernels/cpu/BlockGemm.h"
#include "passes/lowering/cpu/RowProduct.h"
#include "passes/lowering/cpu/StoredHalves.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"

namespace attn {
#define GEN_PASS_DEF_LOWERBLOCKPRODUCTSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Why the rows of a product that may be rounded are not; "" where they are.
StringRef rowsObstacle(const BlockGemmSpec &spec) {
  if (spec.dot == ByteDot::Single)
    return "the processor does not multiply bytes";
  if (spec.zeros == BlockZeros::Float)
    return "the zero points are floats";
  return spec.block % spec.lanes ? "its blocks are not whole registers" : "";
}

class BlockProductLowering : public RowProductLowering<BlockProductOp, BlockGemmSpec> {
public:
  explicit BlockProductLowering(ModuleOp module)
      : RowProductLowering(module, "attn-lower-block-products"), halves(symbols, globals) {}

private:
  std::string prepare(BlockProductOp op) override;
  void readHalves(BlockProductOp op);
  BlockGemmSpec makeSpec(BlockProductOp op, const std::optional<Epilogue> &epilogue) override;
  bool canBuild(const BlockGemmSpec &spec, std::string *reason) override { return canBuildBlockGemm(spec, reason); }
  func::FuncOp build(OpBuilder &builder, Location loc, const BlockGemmSpec &spec) override {
    return buildBlockGemm(builder, loc, spec);
  }
  Value emitCall(BlockProductOp op, const std::optional<Epilogue> &epilogue, const BlockGemmSpec &spec,
                 func::FuncOp kernel) override;
  void report(BlockProductOp op, const BlockGemmSpec *spec, StringRef text) override;

  StoredHalves halves;
};

void BlockProductLowering::report(BlockProductOp op, const BlockGemmSpec *spec, StringRef text) {
  StringRef arithmetic = !spec ? "f32, dequantised" : spec->hasByteRows ? "s8 blocks in s32" : "f32, unpacked";
  if (spec && op.getNarrowRows() && !spec->hasByteRows)
    remark::missed(op.getLoc(), remarkNamed("rows")) << remark::reason("{0}", rowsObstacle(*spec));
  reportProduct(module, op.getLoc(),
                Twine(op.getIsUnsigned() ? "u" : "s") + Twine(op.getBits()) + " blocks of " + Twine(op.getBlock()),
                arithmetic, spec ? ProductVerdict::kernel : ProductVerdict::reason, text);
}

BlockGemmSpec BlockProductLowering::makeSpec(BlockProductOp op, const std::optional<Epilogue> &epilogue) {
  BlockGemmSpec spec = BlockGemmSpec::forTarget(target, countElements(resultType(op, epilogue), 0, leadingDims(op)),
                                                op.getDepth(), op.getColumns());
  spec.block = op.getBlock();
  spec.bits = op.getBits();
  spec.isUnsigned = op.getIsUnsigned();
  spec.hasHalfScales = getElementTypeOrSelf(op.getScales()).isF16();
  spec.zeroPoint = op.getZeroPoint();
  if (Value zeros = op.getZeros())
    spec.zeros = !getElementTypeOrSelf(zeros).isInteger() ? BlockZeros::Float
                 : spec.isUnsigned                        ? BlockZeros::Unsigned
                                                          : BlockZeros::Signed;
  spec.hasByteRows = op.getNarrowRows() && rowsObstacle(spec).empty();
  spec.hasTiles = spec.mayHaveTiles(target);
  spec.hasDigits = spec.mayHaveDigits();
  if (epilogue)
    static_cast<EpilogueSpec &>(spec) = epilogue->getSpec();
  return spec;
}

/// Scales, and zero points that are floats, in f16 where the model has them so.
void BlockProductLowering::readHalves(BlockProductOp op) {
  SmallVector<OpOperand *> parts = {&op.getScalesMutable()};
  if (op.getZeros() && !getElementTypeOrSelf(op.getZeros()).isInteger())
    parts.push_back(&*op.getZerosMutable().begin());
  auto isStored = [&](OpOperand *part) {
    auto weight = part->get().getDefiningOp<WeightOp>();
    return weight && getElementTypeOrSelf(weight.getType()).isF32() &&
           halves.getStorage(weight.getGlobalAttr(), target) == PanelStorage::F16;
  };
  if (!llvm::all_of(parts, isStored))
    return;
  rewriter.setInsertionPoint(op);
  for (OpOperand *part : parts) {
    auto weight = part->get().getDefiningOp<WeightOp>();
    Type type = cast<RankedTensorType>(weight.getType()).clone(rewriter.getF16Type());
    part->set(WeightOp::create(rewriter, op.getLoc(), type, halves.get(weight.getGlobalAttr(), op.getLoc())));
  }
}

/// Calls `kernel` in place of the product, or of its epilogue, and returns what that op yields.
Value BlockProductLowering::emitCall(BlockProductOp op, const std::optional<Epilogue> &epilogue,
                                     const BlockGemmSpec &spec, func::FuncOp kernel) {
  Location loc = locationOf(op, epilogue);
  FlatSymbolRefAttr source = op.getCodes().getDefiningOp<WeightOp>().getGlobalAttr();
  auto words = RankedTensorType::get(spec.panelShape(), rewriter.getI32Type());
  Attribute expression = BytePanelsAttr::get(rewriter.getContext(), source, op.getTransposed(), spec.panelWidth(),
                                             spec.group(), op.getIsUnsigned());
  Value codes =
      WeightOp::create(rewriter, loc, words, globals.get(source.getValue() + "_words", words, expression, loc));
  SmallVector<Value> inputs = {
      toMatrix(rewriter, loc, op.getLhs(), leadingDims(op)), codes,
      readPanels(rewriter, loc, globals, op.getScales(), op.getTransposed(), spec.panelWidth())};
  if (op.getZeros())
    inputs.push_back(readPanels(rewriter, loc, globals, op.getZeros(), op.getTransposed(), spec.panelWidth()));
  SmallVector<int64_t> elementwise;
  if (epilogue)
    addEpilogueInputs(rewriter, loc, *epilogue, rewriter.getF32Type(), leadingDims(op), inputs, elementwise);
  SmallVector<RankedTensorType> scratch;
  if (spec.hasByteRows)
    scratch = {RankedTensorType::get(spec.rowShape(), rewriter.getI8Type()),
               RankedTensorType::get(spec.rowScaleShape(), rewriter.getF32Type()),
               RankedTensorType::get(spec.rowScaleShape(), rewriter.getI32Type())};
  else if (spec.hasTiles)
    scratch = {RankedTensorType::get(spec.rowShape(), rewriter.getBF16Type())};
  if (spec.hasDigits)
    scratch.append({RankedTensorType::get(spec.digitShape(), rewriter.getI8Type()),
                    RankedTensorType::get(spec.digitScaleShape(), rewriter.getF32Type()),
                    RankedTensorType::get(spec.digitStartShape(), rewriter.getI32Type())});
  RowProduct product{op.getLhs(),         resultType(op, epilogue), spec.m, spec.k, spec.n,
                     /*columns=*/Value(), spec.rowMultiple()};
  return emitRowProduct(rewriter, loc, product, kernel, inputs, elementwise, scratch);
}

std::string BlockProductLowering::prepare(BlockProductOp op) {
  if (!op.getCodes().getDefiningOp<WeightOp>())
    return matchPattern(op.getCodes(), m_Constant()) ? "the matrix is too small (up to 1 KiB) to be stored in panels"
                                                     : "the matrix is no weight";
  for (Value part : {op.getScales(), op.getZeros()})
    if (part && !part.getDefiningOp<WeightOp>() && !matchPattern(part, m_Constant()))
      return "the scales or zero points are not stored";
  readHalves(op);
  return "";
}

struct LowerBlockProductsPass : attn::impl::LowerBlockProductsPassBase<LowerBlockProductsPass> {
  void runOnOperation() override { BlockProductLowering(getOperation()).run(); }
};

} // namespace
