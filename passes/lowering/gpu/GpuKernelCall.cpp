#include "passes/lowering/gpu/GpuKernelCall.h"
#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {

void noteMissed(Operation *op, StringRef category, StringRef name, StringRef reason) {
  remark::missed(op->getLoc(), remark::RemarkOpts::name(name).category(category)) << remark::reason("{0}", reason);
}

bool readOptions(ModuleOp module, StringRef text, Precision &precision, StringRef useText, Sm90a &sm90a) {
  std::optional<Precision> known = parsePrecision(text);
  if (!known)
    module.emitError("expects precision f32, tf32, bf16 or f16, got '") << text << "'";
  precision = known.value_or(precision);
  std::optional<Sm90a> use = parseSm90a(useText);
  if (!use)
    module.emitError("expects sm90a none, also or only, got '") << useText << "'";
  sm90a = use.value_or(sm90a);
  return known && use;
}

void replaceWithScratch(IRRewriter &rewriter, Operation *op, func::FuncOp kernel, ValueRange inputs,
                        ArrayRef<SmallVector<OpFoldResult>> sizes, Value elements) {
  Location loc = op->getLoc();
  auto scratch = RankedTensorType::get({ShapedType::kDynamic}, rewriter.getF32Type());
  SmallVector<Value> inits;
  for (auto [result, extents] : llvm::zip_equal(op->getResults(), sizes)) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<Value> dynamic;
    for (auto [n, size] : llvm::enumerate(extents))
      if (type.isDynamicDim(n))
        dynamic.push_back(getValueOrCreateConstantIndexOp(rewriter, loc, size));
    inits.push_back(tensor::EmptyOp::create(rewriter, loc, type, dynamic));
  }
  inits.push_back(tensor::EmptyOp::create(rewriter, loc, scratch, elements));
  auto call = KernelOp::create(rewriter, loc, ValueRange(inits).getTypes(), SymbolRefAttr::get(kernel), inputs, inits,
                               rewriter.getDenseI64ArrayAttr({}));
  if (Attribute flops = op->getAttr(AttnDialect::kFlopsAttr))
    call->setAttr(AttnDialect::kFlopsAttr, flops);
  rewriter.replaceOp(op, call.getOutputs().drop_back());
}

} // namespace attn
