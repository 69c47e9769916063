#include "passes/kernels/gpu/IntegerGemm.h"
#include "passes/lowering/cpu/IntegerCall.h"
#include "passes/lowering/cpu/RowProduct.h"
#include "passes/lowering/gpu/ChooseGpuRows.h"
#include "passes/lowering/gpu/GpuKernelCall.h"

using namespace mlir;

namespace attn {
namespace {

class GpuProductLowering : public RowProductLowering<IntegerProductOp, GpuIntegerSpec> {
public:
  using RowProductLowering::RowProductLowering;

private:
  GpuIntegerSpec makeSpec(IntegerProductOp op, const std::optional<Epilogue> &epilogue) override {
    return {readIntegerProduct(op, epilogue)};
  }
  bool canBuild(const GpuIntegerSpec &spec, std::string *reason) override {
    if (spec.epilogue && !isSelfContained(*spec.epilogue))
      return fail(reason, "the epilogue has an op that a tile cannot end with");
    return isIntegerProduct(spec, reason);
  }
  func::FuncOp build(OpBuilder &builder, Location loc, const GpuIntegerSpec &spec) override {
    return buildGpuIntegerGemm(builder, loc, spec);
  }
  FailureOr<func::FuncOp> getPacking(IntegerProductOp op, const GpuIntegerSpec &spec) {
    GpuPackBytesSpec pack{spec.k, spec.n, op.getTransposed(), op.getIsUnsigned()};
    return kernels.getOrBuild(pack.symbol(), [&](OpBuilder &b) { return buildGpuPackBytes(b, op.getLoc(), pack); });
  }
  LogicalResult buildOthers(IntegerProductOp op, const GpuIntegerSpec &spec) override {
    return failure(spec.isBatched && failed(getPacking(op, spec)));
  }
  Value emitCall(IntegerProductOp op, const std::optional<Epilogue> &epilogue, const GpuIntegerSpec &spec,
                 func::FuncOp kernel) override {
    IntegerCall call(rewriter, globals, op, epilogue);
    BytePanels form{GpuIntegerSpec::kWidth, GpuIntegerSpec::kGroup, spec.panelShape(), spec.sumShape()};
    SmallVector<Value> inputs = {call.rows()};
    llvm::append_range(inputs,
                       spec.isBatched ? call.packAtRun(spec, form, *getPacking(op, spec)) : call.storedPanels(form));
    return call.emit(spec, kernel, inputs);
  }
  void report(IntegerProductOp op, const GpuIntegerSpec *spec, StringRef text) override {
    reportIntegerProduct(module, symbols, op, spec ? ProductVerdict::kernel : ProductVerdict::reason, text);
  }
};

} // namespace

void chooseGpuProducts(ModuleOp module, StringRef category) { GpuProductLowering(module, category).run(); }

} // namespace attn
