#include "dialects/attn/AttnOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/ProductReport.h"
#include "passes/kernels/gpu/Gemm.h"
#include "passes/kernels/spec/Storage.h"
#include "passes/lowering/choose/ContractionMatch.h"
#include "passes/lowering/choose/Epilogue.h"
#include "passes/lowering/choose/KernelCall.h"
#include "passes/lowering/gpu/ChooseGpuRows.h"
#include "passes/lowering/gpu/GpuKernelCall.h"
#include "passes/lowering/gpu/LibraryProduct.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace attn {
#define GEN_PASS_DEF_CHOOSEGPUGEMMSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// The elementwise op behind a contraction, where a tile can follow it.
std::optional<Epilogue> findEpilogue(linalg::LinalgOp op) {
  std::string reason;
  std::optional<Epilogue> epilogue = attn::findEpilogue(op->getResult(0), reason);
  if (!epilogue || epilogue->op.payloadUsesValueFromOperand(epilogue->op.getDpsInitOperand(0)) ||
      !isSelfContained(*epilogue->op.getBody()))
    return std::nullopt;
  return epilogue;
}

struct ChooseGpuGemmsPass : attn::impl::ChooseGpuGemmsPassBase<ChooseGpuGemmsPass> {
  using ChooseGpuGemmsPassBase::ChooseGpuGemmsPassBase;

  void runOnOperation() override {
    if (!readOptions(getOperation(), precision, products, sm90a, images))
      return signalPassFailure();
    KernelTable kernels(getOperation());
    SmallVector<linalg::LinalgOp> ops = getContractions(getOperation());
    findNarrowWeights(ops);
    for (linalg::LinalgOp op : ops) {
      std::string reason = lower(op, kernels);
      if (!reason.empty())
        noteMissed(op, getArgument(), "gemm", reason);
    }
  }

  /// Why not, if not.
  static std::string match(linalg::LinalgOp op, GpuGemmSpec &spec) {
    for (Value operand : op->getOperands()) {
      Type type = getElementTypeOrSelf(operand.getType());
      bool isFloat8 = isa<Float8E4M3FNType>(type) && operand == op->getOperand(1); // attn-choose-gpu-rows
      if (!type.isF32() && !type.isF16() && !type.isBF16() && !isFloat8)
        return "it is not of f32, f16 or bf16";
    }
    std::string reason;
    FailureOr<ContractionLoops> loops = sortLoops(op, /*left=*/0, reason);
    if (failed(loops))
      return reason;
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    spec.leftMap = maps[0], spec.rightMap = maps[1], spec.resultMap = maps[2];
    spec.batch = loops->batch, spec.rows = loops->rows, spec.columns = loops->columns, spec.sums = loops->sums;
    spec.sizes = op.getStaticLoopRanges();
    return "";
  }

  /// Weights that only products read, which round them: they are stored rounded.
  void findNarrowWeights(ArrayRef<linalg::LinalgOp> ops) {
    if (products != Precision::bf16 && products != Precision::f16)
      return;
    Type type = products == Precision::f16 ? Type(Float16Type::get(&getContext())) : BFloat16Type::get(&getContext());
    llvm::SmallPtrSet<Operation *, 32> contractions(ops.begin(), ops.end());
    auto isRounded = [&](OpOperand &use) {
      GpuGemmSpec spec;
      return contractions.contains(use.getOwner()) && match(cast<linalg::LinalgOp>(use.getOwner()), spec).empty() &&
             spec.canBeNarrow(use.getOperandNumber() == 0);
    };
    llvm::MapVector<StringAttr, bool> weights;
    getOperation().walk([&](WeightOp op) {
      bool &isNarrow = weights.try_emplace(op.getGlobalAttr().getAttr(), true).first->second;
      isNarrow &= getElementTypeOrSelf(op.getResult().getType()).isF32() && llvm::all_of(op->getUses(), isRounded);
    });
    SymbolTable symbols(getOperation());
    DerivedGlobals globals(getOperation(), symbols);
    for (auto [symbol, isNarrow] : weights) {
      if (!isNarrow)
        continue;
      auto global = symbols.lookup<GlobalOp>(symbol);
      auto shape = cast<RankedTensorType>(global.getType());
      narrow[symbol] = globals.get(symbol.getValue() + (type.isF16() ? "_f16" : "_bf16"), shape.clone(type),
                                   ReshapeAttr::get(&getContext(), FlatSymbolRefAttr::get(symbol)), global.getLoc());
    }
  }

  /// An operand, in 16 bits where it is such a weight.
  Value getFactor(OpBuilder &b, Value value) {
    auto weight = value.getDefiningOp<WeightOp>();
    FlatSymbolRefAttr symbol = weight ? narrow.lookup(weight.getGlobalAttr().getAttr()) : FlatSymbolRefAttr();
    if (!symbol)
      return value;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(weight);
    Type type = products == Precision::f16 ? Type(b.getF16Type()) : b.getBF16Type();
    return WeightOp::create(b, value.getLoc(), cast<RankedTensorType>(value.getType()).clone(type), symbol);
  }

  /// Why not, if not.
  std::string lower(linalg::LinalgOp op, KernelTable &kernels) {
    GpuGemmSpec spec;
    if (std::string reason = match(op, spec); !reason.empty())
      return reason;
    auto fill = op.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
    OpBuilder b(op);
    SmallVector<Value> inputs = {getFactor(b, op->getOperand(0)), getFactor(b, op->getOperand(1))};
    spec.left = bufferOf(inputs[0]), spec.right = bufferOf(inputs[1]);

    std::optional<Epilogue> epilogue = findEpilogue(op);
    Operation *last = epilogue ? epilogue->op.getOperation() : op.getOperation();
    if (epilogue) {
      static_cast<SumBlock &>(spec) = epilogue->getSpec();
      spec.operands = llvm::map_to_vector(epilogue->operands, bufferOf);
      spec.operandMaps = epilogue->maps;
      llvm::append_range(inputs, epilogue->operands);
    }
    spec.result = bufferOf(last->getResult(0));
    spec.chooseForm(products, images);
    LibraryProduct product = spec.hasTiles ? findLibraryProduct(op.getContext(), spec) : LibraryProduct();
    spec.hasRoundedFactor = product.attribute && spec.left.getElementType() != spec.right.getElementType();
    FailureOr<func::FuncOp> kernel =
        kernels.getOrBuild(spec.symbol(), [&](OpBuilder &b) { return buildGpuGemm(b, op.getLoc(), spec); });
    if (failed(kernel))
      return "the name '" + spec.symbol() + "' is taken";
    if (spec.hasFloat8())
      reportProduct(getOperation(), op.getLoc(), "e4m3", nameOf(spec.precision), ProductVerdict::kernel, spec.symbol());
    if (product.attribute)
      (*kernel)->setAttr(kLibraryProductAttr, product.attribute);
    if (product.made && failed(kernels.getOrBuild(nameOfGpuGemmRest(spec), [&](OpBuilder &b) {
          return buildGpuGemmRest(b, op.getLoc(), spec, product.made);
        })))
      return "the name '" + nameOfGpuGemmRest(spec) + "' is taken";

    IRRewriter rewriter(last);
    Value destination = fill.getOutputs()[0];
    auto made = destination.getDefiningOp<tensor::EmptyOp>();
    SmallVector<OpFoldResult> sizes =
        made ? made.getMixedSizes() : tensor::getMixedSizes(rewriter, op.getLoc(), destination);
    auto sizeOf = [&](unsigned dim) -> Value {
      for (auto [operand, map] : {std::pair(inputs[0], spec.leftMap), std::pair(inputs[1], spec.rightMap)})
        if (auto n = map.getResultPosition(getAffineDimExpr(dim, map.getContext())))
          return rewriter.createOrFold<tensor::DimOp>(op.getLoc(), operand, *n);
      llvm_unreachable("a loop of the result alone has no kernel");
    };
    if (Value elements = countGpuGemmScratch(rewriter, op.getLoc(), spec, sizeOf))
      replaceWithScratch(rewriter, last, *kernel, inputs, {sizes}, elements);
    else
      replaceByKernel(rewriter, last, *kernel, inputs, sizes);
    if (epilogue)
      rewriter.eraseOp(op);
    return "";
  }

  Precision products = Precision::f32;
  Sm90a images = Sm90a::none;
  DenseMap<StringAttr, FlatSymbolRefAttr> narrow; ///< of weights that are stored rounded
};
} // namespace
