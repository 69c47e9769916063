#include "passes/lowering/cpu/FusionVerdict.h"

#include "dialects/attn/AttnOps.h"

using namespace mlir;

namespace attn {

void completeVerdict(ModuleOp module, StringRef node, ArrayRef<NamedAttribute> fields) {
  auto report = module->getAttrOfType<ArrayAttr>(AttnDialect::kFusionReportAttr);
  if (!report)
    return;
  Builder b(module.getContext());
  SmallVector<Attribute> verdicts(report.getValue());
  for (Attribute &verdict : verdicts) {
    auto known = dyn_cast<DictionaryAttr>(verdict);
    if (!known || known.contains(fields.front().getName()) || known.getAs<BoolAttr>("fused") != b.getBoolAttr(true) ||
        known.getAs<StringAttr>("node") != b.getStringAttr(node))
      continue;
    NamedAttrList list(known);
    for (NamedAttribute field : fields)
      list.set(field.getName(), field.getValue());
    verdict = list.getDictionary(module.getContext());
    break;
  }
  module->setAttr(AttnDialect::kFusionReportAttr, b.getArrayAttr(verdicts));
}

} // namespace attn
