#include "passes/graph/masks/MaskReport.h"

#include "passes/graph/FusionVerdict.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace attn {

void MaskReport::set(Operation *attention, StringRef mask, StringRef assumption) {
  Builder b(module.getContext());
  editVerdict(
      module, VerdictName(attention), [&](DictionaryAttr, size_t n) { return reported.insert(n).second; },
      [&](NamedAttrList &list) {
        list.set("mask", b.getStringAttr(mask));
        if (assumption.empty())
          return;
        auto before = dyn_cast_or_null<ArrayAttr>(list.get("assumes"));
        SmallVector<Attribute> assumptions(before ? before.getValue() : ArrayRef<Attribute>());
        assumptions.push_back(b.getStringAttr(assumption));
        list.set("assumes", b.getArrayAttr(assumptions));
      });
}

} // namespace attn
