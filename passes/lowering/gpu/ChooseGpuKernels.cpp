#include "passes/lowering/gpu/ChooseGpuKernels.h"
#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/kernels/gpu/Attention.h"
#include "passes/kernels/gpu/Gemm.h"
#include "passes/kernels/gpu/Rows.h"
#include "passes/lowering/cpu/KernelCall.h"
#include "passes/lowering/gpu/HostOps.h"
#include "passes/lowering/gpu/LibraryProduct.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
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
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"

namespace attn {
#define GEN_PASS_DEF_CHOOSEGPUROWSPASS
#define GEN_PASS_DEF_CHOOSEGPUGEMMSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

MemRefType bufferOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return MemRefType::get(type.getShape(), type.getElementType());
}

void noteMissed(Operation *op, StringRef category, StringRef name, StringRef reason) {
  remark::missed(op->getLoc(), remark::RemarkOpts::name(name).category(category)) << remark::reason("{0}", reason);
}

bool readOptions(ModuleOp module, StringRef text, Precision &precision, StringRef useText, Sm90a &sm90a) {
  std::optional<Precision> known = parsePrecision(text);
  if (!known)
    module.emitError("expects precision f32, tf32, bf16 or f16, got '") << text << "'";
  precision = known.value_or(precision);
  std::optional<Sm90a> use = parseSm90a(useText);
  if (!use)
    module.emitError("expects sm90a none, also or only, got '") << useText << "'";
  sm90a = use.value_or(sm90a);
  return known && use;
}

/// As replaceByKernel, with `elements` f32 of scratch for the kernel: a second result, which nothing uses.
void replaceWithScratch(IRRewriter &rewriter, Operation *op, func::FuncOp kernel, ValueRange inputs,
                        ArrayRef<OpFoldResult> sizes, Value elements) {
  Location loc = op->getLoc();
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  SmallVector<Value> dynamic;
  for (auto [n, size] : llvm::enumerate(sizes))
    if (type.isDynamicDim(n))
      dynamic.push_back(getValueOrCreateConstantIndexOp(rewriter, loc, size));
  auto scratch = RankedTensorType::get({ShapedType::kDynamic}, rewriter.getF32Type());
  Value inits[] = {tensor::EmptyOp::create(rewriter, loc, type, dynamic),
                   tensor::EmptyOp::create(rewriter, loc, scratch, elements)};
  auto call = KernelOp::create(rewriter, loc, TypeRange{type, scratch}, SymbolRefAttr::get(kernel), inputs, inits,
                               rewriter.getDenseI64ArrayAttr({}));
  if (Attribute flops = op->getAttr(AttnDialect::kFlopsAttr))
    call->setAttr(AttnDialect::kFlopsAttr, flops);
  rewriter.replaceOp(op, call.getOutputs().front());
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

struct ChooseGpuRowsPass : attn::impl::ChooseGpuRowsPassBase<ChooseGpuRowsPass> {
  ChooseGpuRowsPass() = default;
  ChooseGpuRowsPass(const ChooseGpuRowsPass &other) : ChooseGpuRowsPassBase(other) {}

  void getDependentDialects(DialectRegistry &registry) const override {
    ChooseGpuRowsPassBase::getDependentDialects(registry);
    registry.insert<linalg::LinalgDialect>(); // of recurrent layers the product in front
  }

  void runOnOperation() override {
    if (!readOptions(getOperation(), precision, products, exact, sm90a))
      return signalPassFailure();
    KernelTable kernels(getOperation());
    chooseGpuRecurrent(getOperation(), kernels, getArgument());
    auto target = TargetAttr::lookup(getOperation());
    SmallVector<AttentionOp> attentions;
    getOperation().walk([&](AttentionOp op) { attentions.push_back(op); });
    for (AttentionOp op : attentions)
      lowerAttention(op, kernels, target);
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<SoftmaxOp, LayerNormOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      std::string reason;
      Location loc = op->getLoc();
      FailureOr<func::FuncOp> kernel = failure();
      if (auto softmax = dyn_cast<SoftmaxOp>(op)) {
        auto spec = RowSoftmaxSpec::get(softmax, target);
        if (static_cast<int64_t>(softmax.getDim()) + 1 != spec.type.getRank())
          reason = "it is not over the last dimension";
        else if (canBuildRowSoftmax(spec, &reason))
          kernel = kernels.getOrBuild("gpu_" + spec.symbol(), [&](OpBuilder &b) {
            return buildGpuRowSoftmax(b, loc, "gpu_" + spec.symbol(), spec);
          });
      } else {
        auto spec = LayerNormSpec::get(cast<LayerNormOp>(op), target);
        if (canBuildLayerNorm(spec, &reason))
          kernel = kernels.getOrBuild("gpu_" + spec.symbol(), [&](OpBuilder &b) {
            return buildGpuLayerNorm(b, loc, "gpu_" + spec.symbol(), spec);
          });
      }
      if (failed(kernel)) {
        noteMissed(op, getArgument(), "rows", reason.empty() ? "its name is taken" : reason);
        continue;
      }
      IRRewriter rewriter(op);
      SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, op->getOperand(0));
      replaceByKernel(rewriter, op, *kernel, op->getOperands(), sizes, /*elementwise=*/{0});
    }
  }

  void lowerAttention(AttentionOp op, KernelTable &kernels, TargetAttr target) {
    AttentionSpec spec = AttentionSpec::get(op, target);
    std::string reason, symbol = "gpu_" + spec.symbol();
    WalkResult code =
        op->walk([](Operation *each) { return lacksGpuCode(each) ? WalkResult::interrupt() : WalkResult::advance(); });
    if (code.wasInterrupted())
      reason = "a function of its scores has no code for a GPU";
    if (code.wasInterrupted() || !canBuildGpuAttention(spec, &reason))
      return noteMissed(op, getArgument(), "attention", reason);
    FailureOr<func::FuncOp> kernel = kernels.getOrBuild(
        symbol, [&](OpBuilder &b) { return buildGpuAttention(b, op.getLoc(), symbol, spec, products, sm90a); });
    IRRewriter rewriter(op);
    ReifiedRankedShapedTypeDims shapes;
    if (failed(kernel) || failed(op.reifyResultShapes(rewriter, shapes)))
      return noteMissed(op, getArgument(), "attention", "its name is taken, or its sizes are unknown");
    Location loc = op.getLoc();
    auto sizeOf = [&](int64_t dim) -> Value {
      if (std::optional<int64_t> size = spec.getStaticSize(dim))
        return arith::ConstantIndexOp::create(rewriter, loc, *size);
      for (auto [operand, map] : llvm::zip(op->getOperands(), spec.maps))
        if (auto n = map.getResultPosition(getAffineDimExpr(dim, map.getContext())))
          return rewriter.createOrFold<tensor::DimOp>(loc, operand, *n);
      llvm_unreachable("canBuildAttention has seen to it that a map names the dimension");
    };
    Value elements = countGpuAttentionScratch(rewriter, loc, spec, sizeOf, products, sm90a);
    if (!elements)
      return replaceByKernel(rewriter, op, *kernel, op->getOperands(), shapes);
    replaceWithScratch(rewriter, op, *kernel, op->getOperands(), shapes[0], elements);
  }

  Option<std::string> precision{*this, "precision", llvm::cl::init("f32"),
                                llvm::cl::desc("what operands of products are rounded to: f32, tf32, bf16 or f16")};
  Option<std::string> exact{*this, "sm90a", llvm::cl::init("none"),
                            llvm::cl::desc("kernels for images of sm_90a alone: none, also or only")};
  Precision products = Precision::f32;
  Sm90a sm90a = Sm90a::none;
};

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

/// Whether the ops of `block` use nothing from outside but constants, touch no memory and have code.
bool isSelfContained(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (op.getNumRegions() || !isMemoryEffectFree(&op) || op.getNumResults() != 1 ||
        isa<tensor::ExtractOp, CheckIndexOp>(op) || lacksGpuCode(&op))
      return false;
    for (Value operand : op.getOperands())
      if (operand.getParentBlock() != &block && !matchPattern(operand, m_Constant()))
        return false;
  }
  Value result = block.getTerminator()->getOperand(0);
  return result.getParentBlock() == &block;
}

/// The elementwise op that alone uses the contraction's result, where its
/// operands are read in a way that a tile can follow.
linalg::GenericOp findEpilogue(linalg::LinalgOp op, OpOperand *&use) {
  if (!op->hasOneUse())
    return nullptr;
  use = &*op->getUses().begin();
  auto generic = dyn_cast<linalg::GenericOp>(use->getOwner());
  if (!generic || generic.getNumParallelLoops() != generic.getNumLoops() || generic.getNumDpsInits() != 1 ||
      generic.isDpsInit(use) || !generic.getMatchingIndexingMap(use).isIdentity() ||
      !generic.getMatchingIndexingMap(generic.getDpsInitOperand(0)).isIdentity() ||
      generic.payloadUsesValueFromOperand(generic.getDpsInitOperand(0)) || !isSelfContained(*generic.getBody()))
    return nullptr;
  for (OpOperand *operand : generic.getDpsInputOperands()) {
    bool isSimple = isa<RankedTensorType>(operand->get().getType());
    for (AffineExpr expr : generic.getMatchingIndexingMap(operand).getResults())
      isSimple &= isa<AffineDimExpr, AffineConstantExpr>(expr);
    if (!isSimple)
      return nullptr;
  }
  return generic;
}

struct ChooseGpuGemmsPass : attn::impl::ChooseGpuGemmsPassBase<ChooseGpuGemmsPass> {
  ChooseGpuGemmsPass() = default;
  ChooseGpuGemmsPass(const ChooseGpuGemmsPass &other) : ChooseGpuGemmsPassBase(other) {}

  void runOnOperation() override {
    if (!readOptions(getOperation(), precision, products, exact, sm90a))
      return signalPassFailure();
    KernelTable kernels(getOperation());
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (linalg::isaContractionOpInterface(op))
        ops.push_back(op);
    });
    for (linalg::LinalgOp op : ops) {
      std::string reason = lower(op, kernels);
      if (!reason.empty())
        noteMissed(op, getArgument(), "gemm", reason);
    }
  }

  /// Why not, if not.
  std::string lower(linalg::LinalgOp op, KernelTable &kernels) {
    if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1)
      return "it is not on tensors";
    for (Value operand : op->getOperands())
      if (!getElementTypeOrSelf(operand.getType()).isF32())
        return "it is not all f32";
    auto fill = op.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
    if (!fill || !matchPattern(fill.getInputs().front(), m_AnyZeroFloat()))
      return "it does not accumulate onto zeros";
    GpuGemmSpec spec;
    spec.left = bufferOf(op->getOperand(0)), spec.right = bufferOf(op->getOperand(1));
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    spec.leftMap = maps[0], spec.rightMap = maps[1], spec.resultMap = maps[2];
    spec.sizes = op.getStaticLoopRanges();
    std::string reason;
    if (!spec.sortLoops(reason))
      return reason;
    auto isFew = [&](ArrayRef<unsigned> dims) {
      int64_t size = 1;
      for (unsigned dim : dims)
        size = ShapedType::isDynamic(spec.sizes[dim]) ? 4 : std::min<int64_t>(4, size * spec.sizes[dim]);
      return size < 4;
    };
    if (isFew(spec.rows) || isFew(spec.columns))
      return "a vector times a matrix has no tiles";

    OpOperand *use = nullptr;
    linalg::GenericOp epilogue = findEpilogue(op, use);
    Operation *last = epilogue ? epilogue.getOperation() : op.getOperation();
    SmallVector<Value> inputs = {op->getOperand(0), op->getOperand(1)};
    if (epilogue) {
      spec.epilogue = epilogue.getBody();
      spec.accumulator = use->getOperandNumber();
      for (OpOperand *operand : epilogue.getDpsInputOperands()) {
        if (operand == use)
          continue;
        spec.operands.push_back(bufferOf(operand->get()));
        spec.operandMaps.push_back(epilogue.getMatchingIndexingMap(operand));
        inputs.push_back(operand->get());
      }
    }
    spec.result = bufferOf(last->getResult(0));
    spec.precision = products;
    spec.chooseTile(sm90a);
    std::string symbol = "gpu_gemm_" + std::to_string(count++);
    FailureOr<func::FuncOp> kernel =
        kernels.getOrBuild(symbol, [&](OpBuilder &b) { return buildGpuGemm(b, op.getLoc(), symbol, spec, sm90a); });
    if (failed(kernel))
      return "the name '" + symbol + "' is taken";
    if (DictionaryAttr product = findLibraryProduct(op.getContext(), spec))
      (*kernel)->setAttr(kLibraryProductAttr, product);

    IRRewriter rewriter(last);
    Value destination = op.getDpsInits()[0];
    destination = fill.getOutputs()[0];
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
      replaceWithScratch(rewriter, last, *kernel, inputs, sizes, elements);
    else
      replaceByKernel(rewriter, last, *kernel, inputs, sizes);
    if (epilogue)
      rewriter.eraseOp(op);
    return "";
  }

  Option<std::string> precision{*this, "precision", llvm::cl::init("f32"),
                                llvm::cl::desc("what operands of products are rounded to: f32, tf32, bf16 or f16")};
  Option<std::string> exact{*this, "sm90a", llvm::cl::init("none"),
                            llvm::cl::desc("kernels for images of sm_90a alone: none, also or only")};
  Precision products = Precision::f32;
  Sm90a sm90a = Sm90a::none;
  unsigned count = 0;
};
} // namespace

template <typename T> static std::unique_ptr<Pass> withOptions(StringRef precision, StringRef sm90a) {
  auto pass = std::make_unique<T>();
  pass->precision = precision.str();
  pass->exact = sm90a.str();
  return pass;
}
std::unique_ptr<Pass> attn::createChooseGpuRowsPass(StringRef precision, StringRef sm90a) {
  return withOptions<ChooseGpuRowsPass>(precision, sm90a);
}
std::unique_ptr<Pass> attn::createChooseGpuGemmsPass(StringRef precision, StringRef sm90a) {
  return withOptions<ChooseGpuGemmsPass>(precision, sm90a);
}
