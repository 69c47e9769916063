#include "passes/graph/ProductReport.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/NodeLocation.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace attn {

void reportProduct(ModuleOp module, Location location, const Twine &storage, StringRef arithmetic,
                   ProductVerdict verdict, StringRef text) {
  Builder b(module.getContext());
  SmallVector<Attribute> lines;
  if (auto known = module->getAttrOfType<ArrayAttr>(AttnDialect::kProductReportAttr))
    llvm::append_range(lines, known);
  auto field = [&](StringRef name, const Twine &value) { return b.getNamedAttr(name, b.getStringAttr(value)); };
  lines.push_back(b.getDictionaryAttr({field("node", nodeName(location)), field("storage", storage),
                                       field("arithmetic", arithmetic),
                                       field(verdict == ProductVerdict::kernel ? "kernel" : "reason", text)}));
  module->setAttr(AttnDialect::kProductReportAttr, b.getArrayAttr(lines));
}

} // namespace attn
