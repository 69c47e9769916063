#include "passes/graph/ProductReport.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/NodeLocation.h"

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace attn {

void reportProduct(ModuleOp module, Location location, const Twine &storage, StringRef arithmetic,
                   ProductVerdict verdict, StringRef text) {
  Builder b(module.getContext());
  SmallVector<Attribute> lines;
  if (auto known = module->getAttrOfType<ArrayAttr>(AttnDialect::kProductReportAttr))
    llvm::append_range(lines, known);
  auto field = [&](StringRef name, const Twine &value) { return b.getNamedAttr(name, b.getStringAttr(value)); };
  Attribute line = b.getDictionaryAttr({field("node", nodeName(location)), field("storage", storage),
                                        field("arithmetic", arithmetic),
                                        field(verdict == ProductVerdict::kernel ? "kernel" : "reason", text)});
  // An entry and its other form have one line.
  bool hasForm = llvm::any_of(module.getOps<FunctionOpInterface>(),
                              [](FunctionOpInterface function) { return function->hasAttr(kBroadcastFormAttr); });
  if (hasForm && llvm::is_contained(lines, line))
    return;
  lines.push_back(line);
  module->setAttr(AttnDialect::kProductReportAttr, b.getArrayAttr(lines));
}

} // namespace attn
