#include "dialects/attn/AttnOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/gpu/Float8Product.h"
#include "passes/lowering/gpu/GpuKernelCall.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

namespace attn {
#define GEN_PASS_DEF_STOREFLOAT8PASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

struct StoreFloat8Pass : attn::impl::StoreFloat8PassBase<StoreFloat8Pass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    DerivedGlobals globals(getOperation(), symbols);
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : getContractions(getOperation()))
      if (op->getNumResults() == 1 && op.hasPureTensorSemantics() && isZeroFill(op.getDpsInits()[0]))
        store(op, globals, rewriter);
  }

private:
  void store(linalg::LinalgOp op, DerivedGlobals &globals, IRRewriter &rewriter) {
    StringRef obstacle;
    Type stored;
    for (unsigned side : {1, 0}) {
      OpOperand *right = op.getDpsInputOperand(side);
      AffineMap map = op.getMatchingIndexingMap(right);
      auto weight = readThroughMoves(right->get(), map).getDefiningOp<WeightOp>();
      Type element = weight ? getElementTypeOrSelf(weight.getResult()) : Type();
      if (!element || (!element.isF32() && !element.isF16() && !element.isBF16()))
        continue;
      Float8Product product;
      stored = element;
      obstacle = matchFloat8Product(op, side, map, product);
      if (obstacle.empty())
        return replace(product, weight, globals, rewriter);
    }
    if (!stored)
      return;
    std::string type;
    llvm::raw_string_ostream(type) << stored;
    noteMissed(op, getArgument(), "float8", obstacle);
    reportProduct(getOperation(), op.getLoc(), type, type, ProductVerdict::reason, obstacle);
  }

  void replace(Float8Product &product, WeightOp weight, DerivedGlobals &globals, IRRewriter &rewriter) {
    Location loc = product.op.getLoc();
    FlatSymbolRefAttr source = weight.getGlobalAttr();
    auto type = cast<RankedTensorType>(weight.getResult().getType());
    if (!product.isTransposed) {
      type = type.clone({type.getDimSize(1), type.getDimSize(0)});
      source = globals.get(source.getValue() + "_t", type, TransposeAttr::get(&getContext(), source, {1, 0}), loc);
    }
    if (Type f32 = rewriter.getF32Type(); type.getElementType() != f32) {
      type = type.clone(f32);
      source = globals.get(source.getValue() + "_f32", type, ReshapeAttr::get(&getContext(), source), loc);
    }
    constexpr int64_t kBits = 8;
    int64_t depth = std::max<int64_t>(type.getDimSize(1), 1);
    std::string name = source.getValue().str() + "_e4m3";
    rewriter.setInsertionPoint(product.op);
    auto read = [&](const Twine &name, RankedTensorType type, Attribute expression) -> Value {
      return WeightOp::create(rewriter, loc, type, globals.get(name, type, expression, loc));
    };
    Value codes = read(name, type.clone(Float8E4M3FNType::get(&getContext())),
                       BlockCodesAttr::get(&getContext(), source, /*transposed=*/true, depth, kBits));
    product.scales = read(name + "_scales", type.clone({type.getDimSize(0), 1}),
                          BlockScalesAttr::get(&getContext(), source, /*transposed=*/true, depth, kBits));
    AffineExpr column = rewriter.getAffineDimExpr(product.column), first = rewriter.getAffineConstantExpr(0);
    product.scaleMap = AffineMap::get(product.op.getNumLoops(), 0, {column, first}, &getContext());
    replaceByFloat8Product(rewriter, product, codes);
  }
};

} // namespace
