#include "passes/Passes.h"
#include "passes/graph/Structured.h"
#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/cpu/PackBytes.h"
#include "passes/kernels/cpu/PackRows.h"
#include "passes/kernels/cpu/Range.h"
#include "passes/lowering/choose/Ranges.h"
#include "passes/lowering/cpu/IntegerCall.h"
#include "passes/lowering/cpu/RowProduct.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"

namespace attn {
#define GEN_PASS_DEF_LOWERPRODUCTSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

constexpr StringLiteral kCategory = "attn-lower-products";

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

class ProductLowering : public RowProductLowering<IntegerProductOp, IntegerGemmSpec> {
public:
  explicit ProductLowering(ModuleOp module) : RowProductLowering(module, kCategory) {}

private:
  IntegerGemmSpec makeSpec(IntegerProductOp op, const std::optional<Epilogue> &epilogue) override;
  bool canBuild(const IntegerGemmSpec &spec, std::string *reason) override { return canBuildIntegerGemm(spec, reason); }
  func::FuncOp build(OpBuilder &builder, Location loc, const IntegerGemmSpec &spec) override {
    return buildIntegerGemm(builder, loc, spec);
  }
  LogicalResult buildOthers(IntegerProductOp op, const IntegerGemmSpec &spec) override {
    return failure((spec.isBatched && failed(getPacking(op, spec))) ||
                   (spec.hasTiles && failed(getRowPacking(op, spec))));
  }
  FailureOr<func::FuncOp> getPacking(IntegerProductOp op, const IntegerGemmSpec &spec);
  FailureOr<func::FuncOp> getRowPacking(IntegerProductOp op, const IntegerGemmSpec &spec);
  KernelOp packRows(IntegerProductOp op, const IntegerGemmSpec &spec, Value matrix, Location loc);
  Value emitCall(IntegerProductOp op, const std::optional<Epilogue> &epilogue, const IntegerGemmSpec &spec,
                 func::FuncOp kernel) override;
  void report(IntegerProductOp op, const IntegerGemmSpec *spec, StringRef text) override {
    reportIntegerProduct(module, symbols, op, spec ? ProductVerdict::kernel : ProductVerdict::reason, text);
  }

  llvm::MapVector<Value, KernelOp> packedRows; ///< of left-hand sides, by the last kernel that packed them
};

IntegerGemmSpec ProductLowering::makeSpec(IntegerProductOp op, const std::optional<Epilogue> &epilogue) {
  IntegerProductSpec product = readIntegerProduct(op, epilogue);
  IntegerGemmSpec spec = IntegerGemmSpec::forTarget(target, product.m, product.k, product.n);
  static_cast<IntegerProductSpec &>(spec) = product;
  return spec;
}

/// The kernel that packs what the run multiplies by.
FailureOr<func::FuncOp> ProductLowering::getPacking(IntegerProductOp op, const IntegerGemmSpec &spec) {
  PackBytesSpec pack{spec.k,       spec.n,     op.getTransposed(), op.getIsUnsigned(), spec.panelWidth(),
                     spec.group(), spec.lanes, spec.ordersSteps()};
  return kernels.getOrBuild(pack, op.getLoc(), buildPackBytes);
}

FailureOr<func::FuncOp> ProductLowering::getRowPacking(IntegerProductOp op, const IntegerGemmSpec &spec) {
  PackRowsSpec pack{spec.m, spec.k};
  return kernels.getOrBuild(pack, op.getLoc(), buildPackRows);
}

/// The rows of `matrix`, which the product has on its left, as tiles, and their sums; once for products of the same
/// rows by a weight.
KernelOp ProductLowering::packRows(IntegerProductOp op, const IntegerGemmSpec &spec, Value matrix, Location loc) {
  Block *block = rewriter.getInsertionBlock();
  KernelOp &last = packedRows[op.getLhs()];
  func::FuncOp kernel = *getRowPacking(op, spec);
  if (!spec.isBatched && last && last->getBlock() == block && last.getCallee() == kernel.getSymName() &&
      (rewriter.getInsertionPoint() == block->end() || last->isBeforeInBlock(&*rewriter.getInsertionPoint())))
    return last;
  auto asValue = [&](OpFoldResult size) { return getValueOrCreateConstantIndexOp(rewriter, loc, size); };
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, matrix);
  Value rows = asValue(sizes[0]), count = arith::ConstantIndexOp::create(rewriter, loc, 1);
  if (spec.isBatched) {
    SmallVector<OpFoldResult> right = tensor::getMixedSizes(rewriter, loc, op.getRhs());
    count = asValue(multiplySizes(rewriter, loc, ArrayRef(right).take_front(op.getNumBatch())));
    Value one = arith::ConstantIndexOp::create(rewriter, loc, 1);
    rows = arith::DivUIOp::create(rewriter, loc, rows, arith::MaxUIOp::create(rewriter, loc, count, one));
  }
  SmallVector<int64_t> shape = PackRowsSpec{spec.m, spec.k}.shape();
  OpFoldResult steps = rewriter.getIndexAttr(shape[2]);
  if (ShapedType::isDynamic(shape[2]))
    steps = ceilDivide(rewriter, loc, sizes[1], PackRowsSpec::kDepth);
  Value init =
      tensor::EmptyOp::create(rewriter, loc,
                              {OpFoldResult(count), OpFoldResult(ceilDivide(rewriter, loc, rows, PackRowsSpec::kRows)),
                               steps, rewriter.getIndexAttr(shape[3])},
                              rewriter.getI8Type());
  init = castTo(rewriter, loc, init, RankedTensorType::get(shape, rewriter.getI8Type()));
  matrix = castTo(rewriter, loc, matrix, RankedTensorType::get({spec.m, spec.k}, rewriter.getI8Type()));
  OpFoldResult sumSize =
      ShapedType::isDynamic(spec.m) ? OpFoldResult(asValue(sizes[0])) : rewriter.getIndexAttr(spec.m);
  Value inits[] = {init, tensor::EmptyOp::create(rewriter, loc, {sumSize}, rewriter.getI32Type())};
  return last = callKernel(rewriter, loc, kernel, matrix, inits);
}

/// Calls `kernel` in place of the product, or of its epilogue, and returns what that op yields.
Value ProductLowering::emitCall(IntegerProductOp op, const std::optional<Epilogue> &epilogue,
                                const IntegerGemmSpec &spec, func::FuncOp kernel) {
  IntegerCall call(rewriter, globals, op, epilogue);
  BytePanels form{spec.panelWidth(), spec.group(), spec.panelShape(), spec.sumShape()};
  if (spec.ordersSteps())
    form.order = spec.stepOrder();
  SmallVector<Value> inputs = {call.rows()};
  if (spec.hasTiles) {
    KernelOp packed = packRows(op, spec, inputs.front(), call.loc);
    inputs.push_back(packed->getResult(0));
    if (spec.columnZero != ZeroPoint::None)
      inputs.push_back(packed->getResult(1));
  }
  llvm::append_range(inputs,
                     spec.isBatched ? call.packAtRun(spec, form, *getPacking(op, spec)) : call.storedPanels(form));
  return call.emit(spec, kernel, inputs);
}

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

class RangeLowering {
public:
  explicit RangeLowering(ModuleOp module) : module(module), kernels(module), target(TargetAttr::lookup(module)) {}

  void run() {
    for (const TensorRange &range : findRanges(module))
      lower(range);
  }

private:
  void lower(const TensorRange &range) {
    Location loc = range.first()->getLoc();
    remark::RemarkOpts name = remark::RemarkOpts::name("range").category(kCategory);
    RangeSpec spec = RangeSpec::get(range.tensor(), target);
    std::string reason;
    if (!canBuildRange(spec, &reason)) {
      remark::missed(loc, name) << remark::reason("{0}", reason);
      return;
    }
    FailureOr<func::FuncOp> kernel = kernels.getOrBuild(spec, loc, buildRange);
    if (failed(kernel))
      return;
    remark::passed(loc, name) << remark::add("{0}", spec.symbol());
    callRange(range, *kernel, RangeSpec::kParts);
  }

  ModuleOp module;
  KernelTable kernels;
  TargetAttr target;
};

struct LowerProductsPass : attn::impl::LowerProductsPassBase<LowerProductsPass> {
  void runOnOperation() override {
    RangeLowering(getOperation()).run();
    ProductLowering(getOperation()).run();
  }
};

} // namespace
