#include "passes/graph/FusionVerdict.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/NodeLocation.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace attn {

VerdictName::VerdictName(Operation *attention) : node(nodeName(attention->getLoc())) {
  auto function = attention->getParentOfType<FunctionOpInterface>();
  if (auto name = function ? function->getAttrOfType<StringAttr>(AttnDialect::kEntryAttr) : StringAttr())
    entry = name.getValue();
  isReported = !function || !function->hasAttr(kBroadcastFormAttr);
}

void editVerdict(ModuleOp module, VerdictName name, llvm::function_ref<bool(DictionaryAttr, size_t)> isMeant,
                 llvm::function_ref<void(NamedAttrList &)> edit) {
  auto report = module->getAttrOfType<ArrayAttr>(AttnDialect::kFusionReportAttr);
  if (!report || !name.isReported)
    return;
  Builder b(module.getContext());
  SmallVector<Attribute> verdicts(report.getValue());
  for (auto [n, verdict] : llvm::enumerate(verdicts)) {
    auto fields = dyn_cast<DictionaryAttr>(verdict);
    auto entry = fields ? fields.getAs<StringAttr>("entry") : StringAttr();
    bool isElsewhere = entry && !name.entry.empty() && entry.getValue() != name.entry;
    if (!fields || fields.getAs<BoolAttr>("fused") != b.getBoolAttr(true) || isElsewhere ||
        fields.getAs<StringAttr>("node") != b.getStringAttr(name.node) || !isMeant(fields, n))
      continue;
    NamedAttrList list(fields);
    edit(list);
    verdict = list.getDictionary(module.getContext());
    break;
  }
  module->setAttr(AttnDialect::kFusionReportAttr, b.getArrayAttr(verdicts));
}

void completeVerdict(ModuleOp module, VerdictName name, ArrayRef<NamedAttribute> fields) {
  editVerdict(
      module, name, [&](DictionaryAttr known, size_t) { return !known.contains(fields.front().getName()); },
      [&](NamedAttrList &list) {
        for (NamedAttribute field : fields)
          list.set(field.getName(), field.getValue());
      });
}

} // namespace attn
