#include "passes/lowering/cpu/RoundRows.h"
#include "dialects/attn/DerivedGlobals.h"
#include "dialects/attn/IntegerProductOp.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/kernels/cpu/BlockGemm.h"
#include "passes/lowering/choose/ContractionMatch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ROUNDROWSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

constexpr int64_t kByteBits = 8;
constexpr double kGreatestByte = 127;
// Below these rounding rows costs more than their product.
constexpr int64_t kLeastDepth = 32, kLeastColumns = 16;

class RowRounding {
public:
  RowRounding(ModuleOp module, bool multipliesBytes)
      : module(module), symbols(module), globals(module, symbols), multipliesBytes(multipliesBytes),
        rewriter(module.getContext()) {}

  void run() {
    for (linalg::LinalgOp op : getContractions(module))
      lower(op);
  }

private:
  /// A tensor as numbers of 0 to 255, 128 more than it has them, and the scale of each of its rows.
  struct Rows {
    Value bytes, scales;
  };

  void lower(linalg::LinalgOp op);
  StringRef findObstacle(const Contraction &match);
  const Rows &round(Value activation, Location loc);
  FlatSymbolRefAttr widened(const Contraction &match, Location loc);
  Value scaleSums(Value sums, Value rowScales, Value columnScales, Location loc);
  void fuseWithUser(Value value);

  ModuleOp module;
  SymbolTable symbols;
  DerivedGlobals globals;
  const bool multipliesBytes;
  IRRewriter rewriter;
  llvm::DenseMap<Value, Rows> rounded;
};

StringRef RowRounding::findObstacle(const Contraction &match) {
  if (!multipliesBytes)
    return "the processor does not multiply bytes";
  if (StringRef obstacle = findRowsObstacle(match); !obstacle.empty())
    return obstacle;
  ArrayRef<int64_t> shape = match.right.getType().getShape();
  bool isSmall = shape[match.isTransposed ? 1 : 0] < kLeastDepth || shape[match.isTransposed ? 0 : 1] < kLeastColumns;
  return isSmall ? "it is too small to gain from bytes" : "";
}

/// Rounds `activation` once for all products that read it.
const RowRounding::Rows &RowRounding::round(Value activation, Location loc) {
  Rows &rows = rounded[activation];
  if (rows.bytes)
    return rows;
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointAfterValue(activation);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, activation);
  ArrayRef<OpFoldResult> leading = ArrayRef(sizes).drop_back();
  unsigned rank = sizes.size();
  AffineMap all = rewriter.getMultiDimIdentityMap(rank), byRow = all.dropResult(rank - 1),
            each = rewriter.getMultiDimIdentityMap(rank - 1);
  Type f32 = rewriter.getF32Type();
  Value extremes = reduction(rewriter, loc, activation, all, filledTensor(rewriter, loc, leading, f32, 0), byRow,
                             formula([&](ArrayRef<Num> x) { return maximum(x[1], abs(convert(x[0], f32))); }));
  // Where the greatest is infinite, there is no scale: then it is NaN, what the difference is, else 0.
  rows.scales = elementwise(rewriter, loc, leading, f32, extremes, each,
                            formula([](ArrayRef<Num> x) { return x[0] / kGreatestByte + (x[0] - x[0]); }));
  Value steps = elementwise(rewriter, loc, leading, f32, extremes, each,
                            formula([](ArrayRef<Num> x) { return kGreatestByte / x[0]; }));
  // A row of zeros has 0 times infinity, as has a row with an infinity: in bytes anything, times a scale of 0 or NaN.
  rows.bytes = elementwise(
      rewriter, loc, sizes, rewriter.getI8Type(), {activation, steps}, {all, byRow}, formula([&](ArrayRef<Num> x) {
        Num rounded = roundEven(convert(x[0], f32) * x[1]);
        Num low = constantLike(rounded, -kGreatestByte), high = constantLike(rounded, kGreatestByte);
        Num whole = convert(atMost(greaterOf(rounded, low), high), rewriter.getI32Type());
        Num byte = convert(whole, rewriter.getI8Type());
        return byte ^ constantLike(byte, -128);
      }));
  return rows;
}

/// The weight in f32, which codes are made of.
FlatSymbolRefAttr RowRounding::widened(const Contraction &match, Location loc) {
  RankedTensorType type = match.right.getType();
  if (type.getElementType().isF32())
    return match.global;
  return globals.get(match.global.getValue() + "_f32", type.clone(rewriter.getF32Type()),
                     ReshapeAttr::get(rewriter.getContext(), match.global), loc);
}

Value RowRounding::scaleSums(Value sums, Value rowScales, Value columnScales, Location loc) {
  // Not of the sums, whose one user is to be what is made here.
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, rowScales);
  sizes.push_back(tensor::getMixedSizes(rewriter, loc, columnScales).front());
  unsigned rank = sizes.size();
  AffineMap all = rewriter.getMultiDimIdentityMap(rank), byRow = all.dropResult(rank - 1),
            byColumn = AffineMap::get(rank, 0, rewriter.getAffineDimExpr(rank - 1));
  return elementwise(rewriter, loc, sizes, rewriter.getF32Type(), {sums, rowScales, columnScales},
                     {all, byRow, byColumn},
                     formula([&](ArrayRef<Num> x) { return convert(x[0], rewriter.getF32Type()) * x[2] * x[1]; }));
}

/// What follows a product becomes its epilogue where it is one op.
void RowRounding::fuseWithUser(Value value) {
  if (!value.hasOneUse() || !linalg::areElementwiseOpsFusable(&*value.use_begin()))
    return;
  OpOperand &use = *value.use_begin();
  Operation *user = use.getOwner();
  rewriter.setInsertionPoint(user);
  FailureOr<linalg::ElementwiseOpFusionResult> fused = linalg::fuseElementwiseOps(rewriter, &use);
  if (failed(fused))
    return;
  for (Value before : user->getResults())
    rewriter.replaceAllUsesWith(before, fused->replacements.lookup(before));
  rewriter.eraseOp(user);
  if (Operation *made = value.getDefiningOp(); isOpTriviallyDead(made))
    rewriter.eraseOp(made);
}

void RowRounding::lower(linalg::LinalgOp op) {
  Contraction match;
  std::string reason;
  // What is no product by a weight is said where it gets its kernel.
  if (failed(matchWeightProduct(op, match, reason)))
    return;
  Location loc = op.getLoc();
  if (StringRef obstacle = findObstacle(match); !obstacle.empty()) {
    std::string type;
    llvm::raw_string_ostream(type) << match.right.getType().getElementType();
    return reportProduct(module, loc, type, type, ProductVerdict::reason, obstacle);
  }
  MLIRContext *context = op.getContext();
  ArrayRef<int64_t> shape = match.right.getType().getShape();
  bool transposed = match.isTransposed;
  int64_t depth = shape[transposed ? 1 : 0], columns = shape[transposed ? 0 : 1];
  rewriter.setInsertionPoint(op);
  FlatSymbolRefAttr source = widened(match, loc);
  std::string name = (source.getValue() + (transposed ? "_tbytes" : "_bytes")).str();
  auto weight = [&](const Twine &name, RankedTensorType type, Attribute expression) -> Value {
    return WeightOp::create(rewriter, loc, type, globals.get(name, type, expression, loc));
  };
  Type f32 = rewriter.getF32Type();
  auto scalesType = transposed ? RankedTensorType::get({columns, 1}, f32) : RankedTensorType::get({1, columns}, f32);
  FlatSymbolRefAttr scales = globals.get(name + "_scales", scalesType,
                                         BlockScalesAttr::get(context, source, transposed, depth, kByteBits), loc);
  Value codes = weight(name, RankedTensorType::get(shape, rewriter.getI8Type()),
                       BlockCodesAttr::get(context, source, transposed, depth, kByteBits));
  Value columnScales =
      weight(name + "_by_column", RankedTensorType::get({columns}, f32), ReshapeAttr::get(context, scales));
  Rows rows = round(match.activation, loc);
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  auto zero = RankedTensorType::get({}, rewriter.getI8Type());
  Value middle = arith::ConstantOp::create(rewriter, loc, DenseElementsAttr::get(zero, APInt(8, 0x80)));
  Value sums = IntegerProductOp::create(rewriter, loc, type.clone(rewriter.getI32Type()), rows.bytes, middle, codes,
                                        /*rhs_zero=*/Value(), transposed, /*is_unsigned=*/false);
  Value result = scaleSums(sums, rows.scales, columnScales, loc);
  result = castTo(rewriter, loc, result, type);
  rewriter.replaceOp(op, result);
  fuseWithUser(result);
}

struct RoundRowsPass : attn::impl::RoundRowsPassBase<RoundRowsPass> {
  void runOnOperation() override {
    roundRows(getOperation(), byteDotOf(TargetAttr::lookup(getOperation())) != ByteDot::Single);
  }
};

} // namespace

void attn::roundRows(ModuleOp module, bool multipliesBytes) { RowRounding(module, multipliesBytes).run(); }
