#include "passes/graph/FusionVerdict.h"

#include "dialects/attn/AttnOps.h"

using namespace mlir;

namespace attn {

void editVerdict(ModuleOp module, StringRef node, llvm::function_ref<bool(DictionaryAttr, size_t)> isMeant,
                 llvm::function_ref<void(NamedAttrList &)> edit) {
  auto report = module->getAttrOfType<ArrayAttr>(AttnDialect::kFusionReportAttr);
  if (!report)
    return;
  Builder b(module.getContext());
  SmallVector<Attribute> verdicts(report.getValue());
  for (auto [n, verdict] : llvm::enumerate(verdicts)) {
    auto fields = dyn_cast<DictionaryAttr>(verdict);
    if (!fields || fields.getAs<BoolAttr>("fused") != b.getBoolAttr(true) ||
        fields.getAs<StringAttr>("node") != b.getStringAttr(node) || !isMeant(fields, n))
      continue;
    NamedAttrList list(fields);
    edit(list);
    verdict = list.getDictionary(module.getContext());
    break;
  }
  module->setAttr(AttnDialect::kFusionReportAttr, b.getArrayAttr(verdicts));
}

void completeVerdict(ModuleOp module, StringRef node, ArrayRef<NamedAttribute> fields) {
  editVerdict(
      module, node, [&](DictionaryAttr known, size_t) { return !known.contains(fields.front().getName()); },
      [&](NamedAttrList &list) {
        for (NamedAttribute field : fields)
          list.set(field.getName(), field.getValue());
      });
}

} // namespace attn
