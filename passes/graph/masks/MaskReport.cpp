#include "passes/graph/masks/MaskReport.h"

#include "dialects/attn/AttnOps.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace attn {

void MaskReport::set(StringRef node, StringRef mask, StringRef assumption) {
  auto report = module->getAttrOfType<ArrayAttr>(AttnDialect::kFusionReportAttr);
  if (!report)
    return;
  Builder b(module.getContext());
  SmallVector<Attribute> verdicts(report.getValue());
  for (auto [n, verdict] : llvm::enumerate(verdicts)) {
    auto fields = dyn_cast<DictionaryAttr>(verdict);
    if (!fields || fields.getAs<BoolAttr>("fused") != b.getBoolAttr(true) ||
        fields.getAs<StringAttr>("node") != b.getStringAttr(node) || !reported.insert(n).second)
      continue;
    NamedAttrList list(fields);
    list.set("mask", b.getStringAttr(mask));
    if (!assumption.empty()) {
      auto before = fields.getAs<ArrayAttr>("assumes");
      SmallVector<Attribute> assumptions(before ? before.getValue() : ArrayRef<Attribute>());
      assumptions.push_back(b.getStringAttr(assumption));
      list.set("assumes", b.getArrayAttr(assumptions));
    }
    verdict = list.getDictionary(module.getContext());
    break;
  }
  module->setAttr(AttnDialect::kFusionReportAttr, b.getArrayAttr(verdicts));
}

} // namespace attn
