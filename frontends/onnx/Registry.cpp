#include "frontends/onnx/Importer.h"
#include "frontends/onnx/ops/Families.h"

using namespace attn::onnx;

void OpRegistry::add(llvm::StringRef op, llvm::ArrayRef<int> versions, ImportFn fn, llvm::StringRef domain) {
  for (int version : versions)
    table[{domain.str(), op.str()}][version] = fn;
}

ImportFn OpRegistry::lookup(llvm::StringRef domain, llvm::StringRef op, int opset, int &version) const {
  auto entry = table.find({domain.str(), op.str()});
  if (entry == table.end())
    return nullptr;
  auto next = entry->second.upper_bound(opset);
  if (next == entry->second.begin())
    return nullptr;
  version = std::prev(next)->first;
  return std::prev(next)->second;
}

void attn::onnx::registerAllOps(OpRegistry &registry) {
  registerElementwiseOps(registry);
  registerMatMulOps(registry);
  registerReductionOps(registry);
  registerNormalizationOps(registry);
  registerAttentionOps(registry);
  registerShapeOps(registry);
  registerDataMovementOps(registry);
  registerIndexingOps(registry);
  registerGridSampleOps(registry);
  registerScatterOps(registry);
  registerQuantizationOps(registry);
  registerResizeOps(registry);
  registerContribOps(registry);
  registerContribAttentionOps(registry);
  registerGroupQueryAttentionOps(registry);
  registerContribDecodingOps(registry);
  registerContribPackedOps(registry);
  registerSliceOps(registry);
  registerContribDiffusionOps(registry);
  registerContribFusedOps(registry);
  registerMixtureOps(registry);
  registerContribQLinearOps(registry);
  registerContribQuantizedOps(registry);
  registerBlockQuantizedOps(registry);
  registerDetectionOps(registry);
  registerLossOps(registry);
  registerSelectionOps(registry);
  registerSignalOps(registry);
  registerLinearAttentionOps(registry);
  registerRearrangementOps(registry);
  registerRecurrentOps(registry);
  registerControlFlowOps(registry);
  registerSequenceOps(registry);
  registerDeterminantOps(registry);
  registerFoldingOps(registry);
  registerFlexAttentionOps(registry);
  registerDeformConvOps(registry);
  registerFeatureOps(registry);
  registerTreeOps(registry);
  registerRandomOps(registry);
}
