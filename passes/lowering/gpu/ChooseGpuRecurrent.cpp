#include "passes/kernels/gpu/Recurrent.h"
#include "passes/lowering/choose/RecurrentCall.h"
#include "passes/lowering/gpu/ChooseGpuRows.h"

#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {

/// Why the layer has no kernel, if it has none.
static std::string lower(const RecurrentLayer &layer, KernelTable &kernels, TargetAttr target) {
  if (!layer.elementType().isF32())
    return "only f32 has a kernel so far";
  if (!hasEqualDirections(layer))
    return "its directions have different activations";
  RecurrentSpec spec = RecurrentSpec::get(layer, target);
  std::string reason, symbol = "gpu_" + spec.symbol();
  if (!canBuildRecurrent(spec, &reason))
    return reason;
  FailureOr<func::FuncOp> kernel =
      kernels.getOrBuild(symbol, [&](OpBuilder &b) { return buildGpuRecurrent(b, layer.op->getLoc(), symbol, spec); });
  if (failed(kernel))
    return "the name '" + symbol + "' is taken";
  IRRewriter b(layer.op);
  SmallVector<Value> inputs{projectInput(b, layer), layer.recurrence};
  appendRecurrentOperands(b, layer, inputs);
  callRecurrent(b, layer, *kernel, inputs);
  return "";
}

void chooseGpuRecurrent(ModuleOp module, KernelTable &kernels, StringRef category) {
  auto target = TargetAttr::lookup(module);
  SmallVector<Operation *> layers;
  module.walk([&](Operation *op) {
    if (RecurrentLayer::get(op))
      layers.push_back(op);
  });
  for (Operation *op : layers) {
    Location loc = op->getLoc();
    remark::RemarkOpts about = remark::RemarkOpts::name(op->getName().stripDialect()).category(category);
    // An earlier call may have replaced an operand.
    std::string reason = lower(*RecurrentLayer::get(op), kernels, target);
    if (!reason.empty())
      remark::missed(loc, about) << remark::reason("{0}", reason);
  }
}

} // namespace attn
