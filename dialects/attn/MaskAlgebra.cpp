#include "dialects/attn/MaskAlgebra.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

static MaskBound bound(bool perRow, bool hasOperand, int64_t constant) { return {true, perRow, hasOperand, constant}; }

SmallVector<MaskSpan> describeMask(ArrayRef<MaskTerm> terms) {
  SmallVector<MaskSpan> spans;
  unsigned operand = 0;
  for (const MaskTerm &term : terms) {
    MaskSpan span;
    bool takes = takesMaskOperand(term.term);
    if (takes)
      span.operand = operand++;
    if (auto causal = dyn_cast<CausalAttr>(term.term)) {
      span.role = MaskSpan::Near;
      span.upper = bound(true, takes, takes ? 1 : causal.getOffset() + 1);
    } else if (auto window = dyn_cast<WindowAttr>(term.term)) {
      span.role = MaskSpan::Near;
      bool perRow = window.getBase() != WindowBase::centre;
      span.isReal = takes && isa<FloatType>(getElementTypeOrSelf(term.operand));
      if (window.getLeft() != WindowAttr::kInf)
        span.lower = bound(perRow, takes, -window.getLeft());
      if (window.getRight() != WindowAttr::kInf)
        span.upper = bound(perRow, takes, window.getRight() + 1);
    } else if (auto prefix = dyn_cast<PrefixAttr>(term.term)) {
      span.role = MaskSpan::Prefix;
      span.upper = bound(false, takes, takes ? 0 : prefix.getSize());
    } else if (isa<LengthsAttr>(term.term)) {
      span.upper = bound(false, true, 0);
    } else {
      span.role = MaskSpan::Opaque;
    }
    spans.push_back(span);
  }
  return spans;
}

} // namespace attn
