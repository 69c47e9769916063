#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/graph/products/Blocks.h"
#include "passes/graph/products/QuantizedOperand.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISEBLOCKPRODUCTSPASS
#include "passes/Passes.h.inc"

namespace {

bool isStored(Value value) { return value && (value.getDefiningOp<WeightOp>() || matchPattern(value, m_Constant())); }

/// A contraction of rows with a matrix that is stored in blocks.
struct BlockContraction {
  Value lhs;
  DequantizeBlocksOp matrix;
  bool transposed = false;
};

/// Whether `op` is one, its input number `side` being the matrix. `reason` says what is in the way of a stored one.
bool match(linalg::LinalgOp op, unsigned side, BlockContraction &found, std::string &reason) {
  auto fail = [&](const Twine &text) {
    reason = text.str();
    return false;
  };
  OpOperand *right = op.getDpsInputOperand(side), *left = op.getDpsInputOperand(1 - side);
  LoopRead read{right->get(), op.getMatchingIndexingMap(right)};
  followViews(read);
  found.matrix = read.tensor.getDefiningOp<DequantizeBlocksOp>();
  if (!found.matrix || found.matrix.getIsE4m3() || !isStored(found.matrix.getCodes()))
    return false;
  found.lhs = left->get();
  std::optional<RowLoops> loops = matchRows(op, op.getMatchingIndexingMap(left), reason);
  std::optional<bool> transposed = loops ? matchTransposed(read.map, *loops, reason) : std::nullopt;
  if (!transposed)
    return false;
  found.transposed = *transposed;
  if (static_cast<int64_t>(found.matrix.getAxis()) != (found.transposed ? 1 : 0))
    return fail("its blocks do not lie along the sum");
  if (ShapedType::isDynamic(cast<RankedTensorType>(found.lhs.getType()).getShape().back()))
    return fail("the length of its rows is not known");
  Type scale = getElementTypeOrSelf(found.matrix.getScales()), element = getElementTypeOrSelf(found.lhs);
  if ((!scale.isF32() && !scale.isF16()) || (!element.isF32() && !element.isF16()) ||
      !getElementTypeOrSelf(op->getResult(0)).isF32())
    return fail("it is not summed in f32, of f32 or f16");
  return true;
}

class BlockProductRaiser {
public:
  explicit BlockProductRaiser(ModuleOp module) : module(module), rewriter(module.getContext()) {}

  void raise(linalg::LinalgOp op) {
    if (op->getNumResults() != 1 || op.getNumDpsInputs() != 2 || !op.hasPureTensorSemantics() ||
        !isZeroFill(op.getDpsInits()[0]))
      return;
    BlockContraction found;
    std::string reason;
    if (match(op, 1, found, reason) || (reason.empty() && match(op, 0, found, reason)))
      return replace(op, found);
    if (!reason.empty())
      miss(op, found.matrix, reason);
  }

private:
  static remark::RemarkOpts remarkNamed() {
    return remark::RemarkOpts::name("BlockProduct").category("attn-raise-block-products");
  }

  void replace(linalg::LinalgOp op, const BlockContraction &found) {
    Location loc = op.getLoc();
    DequantizeBlocksOp matrix = found.matrix;
    rewriter.setInsertionPoint(op);
    Value lhs = found.lhs;
    Type f32 = rewriter.getF32Type();
    if (auto type = cast<RankedTensorType>(lhs.getType()); type.getElementType() != f32)
      lhs = castTo(rewriter, loc, convertTensor(rewriter, loc, lhs, f32), type.clone(f32));
    remark::passed(loc, remarkNamed()) << remark::add("of {0} bits", matrix.getBits());
    rewriter.replaceOpWithNewOp<BlockProductOp>(op, op->getResult(0).getType(), lhs, matrix.getCodes(),
                                                matrix.getScales(), matrix.getZeros(), matrix.getBlock(),
                                                matrix.getBits(), matrix.getZeroPoint(), found.transposed,
                                                matrix.getIsUnsigned(), matrix.getNarrowRows());
  }

  void miss(linalg::LinalgOp op, DequantizeBlocksOp matrix, StringRef reason) {
    remark::missed(op.getLoc(), remarkNamed()) << remark::reason("{0}", reason);
    reportProduct(module, op.getLoc(),
                  Twine(matrix.getIsUnsigned() ? "u" : "s") + Twine(matrix.getBits()) + " blocks of " +
                      Twine(matrix.getBlock()),
                  "f32, dequantised", ProductVerdict::reason, reason);
  }

  ModuleOp module;
  IRRewriter rewriter;
};

/// An element of a dequantised tensor is computed where it is read.
struct ExtractFromBlocks : OpRewritePattern<tensor::ExtractOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::ExtractOp op, PatternRewriter &rewriter) const override {
    auto matrix = op.getTensor().getDefiningOp<DequantizeBlocksOp>();
    if (!matrix)
      return rewriter.notifyMatchFailure(op, "the tensor is not stored in blocks");
    rewriter.replaceOp(op, emitDequantized(rewriter, op.getLoc(), matrix, op.getIndices()));
    return success();
  }
};

struct RaiseBlockProductsPass : impl::RaiseBlockProductsPassBase<RaiseBlockProductsPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ExtractFromBlocks>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
    BlockProductRaiser raiser(getOperation());
    for (linalg::LinalgOp op : getContractions(getOperation()))
      raiser.raise(op);
  }
};

} // namespace
} // namespace attn
