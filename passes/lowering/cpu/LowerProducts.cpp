#include "dialects/attn/DerivedGlobals.h"
#include "dialects/attn/IntegerProductOp.h"
#include "passes/Passes.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/cpu/PackBytes.h"
#include "passes/kernels/cpu/PackRows.h"
#include "passes/kernels/cpu/Range.h"
#include "passes/lowering/cpu/RowProduct.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"

namespace attn {
#define GEN_PASS_DEF_LOWERPRODUCTSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

constexpr StringLiteral kCategory = "attn-lower-products";

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

class ProductLowering : public RowProductLowering<IntegerProductOp, IntegerGemmSpec> {
public:
  explicit ProductLowering(ModuleOp module) : RowProductLowering(module, kCategory) {}

private:
  IntegerGemmSpec makeSpec(IntegerProductOp op, const std::optional<Epilogue> &epilogue) override;
  bool canBuild(const IntegerGemmSpec &spec, std::string *reason) override { return canBuildIntegerGemm(spec, reason); }
  FailureOr<func::FuncOp> build(OpBuilder &builder, Location loc, const IntegerGemmSpec &spec) override {
    return buildIntegerGemm(builder, loc, spec);
  }
  LogicalResult buildOthers(IntegerProductOp op, const IntegerGemmSpec &spec) override {
    return failure((spec.isBatched && failed(getPacking(op, spec))) ||
                   (spec.hasTiles && failed(getRowPacking(op, spec))));
  }
  Value signedZero(IntegerProductOp op, Location loc);
  FailureOr<func::FuncOp> getPacking(IntegerProductOp op, const IntegerGemmSpec &spec);
  FailureOr<func::FuncOp> getRowPacking(IntegerProductOp op, const IntegerGemmSpec &spec);
  KernelOp packRows(IntegerProductOp op, const IntegerGemmSpec &spec, Value matrix, Location loc);
  SmallVector<Value> packAtRun(IntegerProductOp op, const IntegerGemmSpec &spec, Location loc);
  SmallVector<Value> storedPanels(IntegerProductOp op, WeightOp weight, const IntegerGemmSpec &spec, Location loc);
  SmallVector<Value> makeInputs(IntegerProductOp op, const std::optional<Epilogue> &epilogue,
                                const IntegerGemmSpec &spec, Location loc, SmallVectorImpl<int64_t> &elementwise);
  Value emitCall(IntegerProductOp op, const std::optional<Epilogue> &epilogue, const IntegerGemmSpec &spec,
                 func::FuncOp kernel) override;
  void report(IntegerProductOp op, const IntegerGemmSpec *spec, StringRef text) override;

  llvm::MapVector<Value, KernelOp> packedRows; ///< of left-hand sides, by the last kernel that packed them
};

/// The stored matrix that is multiplied by, or null.
WeightOp storedMatrix(IntegerProductOp op) {
  return op.getNumBatch() ? WeightOp() : op.getRhs().getDefiningOp<WeightOp>();
}

void ProductLowering::report(IntegerProductOp op, const IntegerGemmSpec *spec, StringRef text) {
  ProductVerdict verdict = spec ? ProductVerdict::kernel : ProductVerdict::reason;
  auto weight = op.getRhs().getDefiningOp<WeightOp>();
  auto global = weight ? symbols.lookup<GlobalOp>(weight.getGlobal()) : GlobalOp();
  if (global && isa<BlockCodesAttr>(global.getExpression())) // attn-round-rows
    return reportProduct(module, op.getLoc(), "s8 columns", "s8 rows in s32", verdict, text);
  StringRef storage = op.getIsUnsigned() ? "u8" : "s8";
  if (!weight)
    storage = op.getIsUnsigned() ? "u8, computed" : "s8, computed";
  reportProduct(module, op.getLoc(), storage, "u8 x s8 in s32", verdict, text);
}

IntegerGemmSpec ProductLowering::makeSpec(IntegerProductOp op, const std::optional<Epilogue> &epilogue) {
  RankedTensorType type = resultType(op, epilogue);
  auto known = [](int64_t size, int64_t other) { return ShapedType::isDynamic(size) ? other : size; };
  int64_t k = known(op.getDepth(), cast<RankedTensorType>(op.getLhs().getType()).getShape().back()),
          n = known(op.getColumns(), type.getShape().back());
  bool isStored = storedMatrix(op) != nullptr;
  IntegerGemmSpec spec = IntegerGemmSpec::forTarget(
      target, isStored ? countElements(type, 0, leadingDims(op)) : ShapedType::kDynamic, k, n);
  spec.isBatched = !isStored;
  spec.hasRowZero = static_cast<bool>(op.getLhsZero());
  if (Value zero = op.getRhsZero())
    spec.columnZero = cast<RankedTensorType>(zero.getType()).getRank() ? ZeroPoint::ByColumn : ZeroPoint::Scalar;
  else if (op.getIsUnsigned())
    spec.columnZero = ZeroPoint::Scalar;
  if (epilogue)
    static_cast<EpilogueSpec &>(spec) = epilogue->getSpec();
  return spec;
}

/// The zero point of a weight whose panels hold 128 less than its elements where these are unsigned.
Value ProductLowering::signedZero(IntegerProductOp op, Location loc) {
  Value zero = op.getRhsZero();
  if (!op.getIsUnsigned())
    return zero;
  Type i8 = rewriter.getI8Type();
  if (!zero)
    return arith::ConstantOp::create(rewriter, loc,
                                     DenseElementsAttr::get(RankedTensorType::get({}, i8), APInt(8, 0x80)));
  AffineMap map = rewriter.getMultiDimIdentityMap(cast<RankedTensorType>(zero.getType()).getRank());
  return elementwise(rewriter, loc, tensor::getMixedSizes(rewriter, loc, zero), i8, zero, map,
                     [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       Value top = arith::ConstantOp::create(b, loc, b.getI8IntegerAttr(-128));
                       return arith::XOrIOp::create(b, loc, args[0], top);
                     });
}

/// The kernel that packs what the run multiplies by.
FailureOr<func::FuncOp> ProductLowering::getPacking(IntegerProductOp op, const IntegerGemmSpec &spec) {
  PackBytesSpec pack{spec.k,       spec.n,    op.getTransposed(), op.getIsUnsigned(), spec.panelWidth(),
                     spec.group(), spec.lanes};
  return kernels.getOrBuild(pack.symbol(),
                            [&](OpBuilder &builder) { return buildPackBytes(builder, op.getLoc(), pack); });
}

FailureOr<func::FuncOp> ProductLowering::getRowPacking(IntegerProductOp op, const IntegerGemmSpec &spec) {
  PackRowsSpec pack{spec.m, spec.k};
  return kernels.getOrBuild(pack.symbol(),
                            [&](OpBuilder &builder) { return buildPackRows(builder, op.getLoc(), pack); });
}

/// The rows of `matrix`, which the product has on its left, as tiles, and their sums; once for products of the same
/// rows by a weight.
KernelOp ProductLowering::packRows(IntegerProductOp op, const IntegerGemmSpec &spec, Value matrix, Location loc) {
  Block *block = rewriter.getInsertionBlock();
  KernelOp &last = packedRows[op.getLhs()];
  func::FuncOp kernel = *getRowPacking(op, spec);
  if (!spec.isBatched && last && last->getBlock() == block && last.getCallee() == kernel.getSymName() &&
      (rewriter.getInsertionPoint() == block->end() || last->isBeforeInBlock(&*rewriter.getInsertionPoint())))
    return last;
  auto asValue = [&](OpFoldResult size) { return getValueOrCreateConstantIndexOp(rewriter, loc, size); };
  auto pieces = [&](Value size, int64_t step) -> Value {
    return arith::CeilDivUIOp::create(rewriter, loc, size, arith::ConstantIndexOp::create(rewriter, loc, step));
  };
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, matrix);
  Value rows = asValue(sizes[0]), count = arith::ConstantIndexOp::create(rewriter, loc, 1);
  if (spec.isBatched) {
    SmallVector<OpFoldResult> right = tensor::getMixedSizes(rewriter, loc, op.getRhs());
    count = asValue(multiplySizes(rewriter, loc, ArrayRef(right).take_front(op.getNumBatch())));
    Value one = arith::ConstantIndexOp::create(rewriter, loc, 1);
    rows = arith::DivUIOp::create(rewriter, loc, rows, arith::MaxUIOp::create(rewriter, loc, count, one));
  }
  SmallVector<int64_t> shape = PackRowsSpec{spec.m, spec.k}.shape();
  OpFoldResult steps = rewriter.getIndexAttr(shape[2]);
  if (ShapedType::isDynamic(shape[2]))
    steps = pieces(asValue(sizes[1]), PackRowsSpec::kDepth);
  Value init = tensor::EmptyOp::create(
      rewriter, loc,
      {OpFoldResult(count), OpFoldResult(pieces(rows, PackRowsSpec::kRows)), steps, rewriter.getIndexAttr(shape[3])},
      rewriter.getI8Type());
  if (auto type = RankedTensorType::get(shape, rewriter.getI8Type()); init.getType() != type)
    init = tensor::CastOp::create(rewriter, loc, type, init);
  if (auto type = RankedTensorType::get({spec.m, spec.k}, rewriter.getI8Type()); matrix.getType() != type)
    matrix = tensor::CastOp::create(rewriter, loc, type, matrix);
  OpFoldResult sumSize =
      ShapedType::isDynamic(spec.m) ? OpFoldResult(asValue(sizes[0])) : rewriter.getIndexAttr(spec.m);
  Value inits[] = {init, tensor::EmptyOp::create(rewriter, loc, {sumSize}, rewriter.getI32Type())};
  last = KernelOp::create(rewriter, loc, TypeRange(ValueRange(inits)), FlatSymbolRefAttr::get(kernel), matrix, inits,
                          rewriter.getDenseI64ArrayAttr({}));
  return last;
}

/// Panels of what the run multiplies by and the sums of their columns, packed by that kernel.
SmallVector<Value> ProductLowering::packAtRun(IntegerProductOp op, const IntegerGemmSpec &spec, Location loc) {
  Value right = op.getRhs();
  auto type = cast<RankedTensorType>(right.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, right);
  int64_t rank = type.getRank(), numBatch = op.getNumBatch();
  OpFoldResult batches = multiplySizes(rewriter, loc, ArrayRef(sizes).take_front(numBatch));
  ArrayRef<OpFoldResult> matrix = ArrayRef(sizes).drop_front(numBatch);
  if (numBatch == 0)
    right = tensor::ExpandShapeOp::create(
        rewriter, loc, RankedTensorType::get({1, type.getDimSize(0), type.getDimSize(1)}, type.getElementType()), right,
        ArrayRef<ReassociationIndices>{{0, 1}, {2}}, ArrayRef{batches, matrix[0], matrix[1]});
  else if (numBatch > 1)
    right = tensor::CollapseShapeOp::create(
        rewriter, loc, right, ArrayRef<ReassociationIndices>{dimRange(0, numBatch), {rank - 2}, {rank - 1}});
  Type i8 = rewriter.getI8Type();
  SmallVector<int64_t> shape = {ShapedType::kDynamic, spec.k, spec.n};
  if (op.getTransposed())
    std::swap(shape[1], shape[2]);
  if (auto cube = RankedTensorType::get(shape, i8); right.getType() != cube)
    right = tensor::CastOp::create(rewriter, loc, cube, right);
  auto pieces = [&](int64_t dim, int64_t step) -> Value {
    Value size = getValueOrCreateConstantIndexOp(rewriter, loc, matrix[dim]);
    return arith::CeilDivUIOp::create(rewriter, loc, size, arith::ConstantIndexOp::create(rewriter, loc, step));
  };
  Value count = arith::MulIOp::create(rewriter, loc, getValueOrCreateConstantIndexOp(rewriter, loc, batches),
                                      pieces(op.getTransposed() ? 0 : 1, spec.panelWidth()));
  SmallVector<int64_t> panels = spec.panelShape();
  OpFoldResult steps = rewriter.getIndexAttr(panels[1]);
  if (ShapedType::isDynamic(spec.k))
    steps = pieces(op.getTransposed() ? 1 : 0, spec.group());
  Value inits[] = {
      tensor::EmptyOp::create(rewriter, loc, {OpFoldResult(count), steps, rewriter.getIndexAttr(panels[2])}, i8),
      tensor::EmptyOp::create(rewriter, loc, {OpFoldResult(count), rewriter.getIndexAttr(spec.panelWidth())},
                              rewriter.getI32Type())};
  auto call =
      KernelOp::create(rewriter, loc, TypeRange(ValueRange(inits)), FlatSymbolRefAttr::get(*getPacking(op, spec)),
                       right, inits, rewriter.getDenseI64ArrayAttr({}));
  return llvm::to_vector_of<Value>(call->getResults());
}

SmallVector<Value> ProductLowering::storedPanels(IntegerProductOp op, WeightOp weight, const IntegerGemmSpec &spec,
                                                 Location loc) {
  MLIRContext *context = rewriter.getContext();
  FlatSymbolRefAttr source = weight.getGlobalAttr();
  bool transposed = op.getTransposed(), isUnsigned = op.getIsUnsigned();
  std::string name = (source.getValue() + (transposed ? "_t" : "_")).str();
  auto get = [&](StringRef suffix, RankedTensorType type, Attribute expression) -> Value {
    return WeightOp::create(rewriter, loc, type, globals.get(name + suffix, type, expression, loc));
  };
  Value panels = get("bytes", RankedTensorType::get(spec.panelShape(), rewriter.getI8Type()),
                     BytePanelsAttr::get(context, source, transposed, spec.panelWidth(), spec.group(), isUnsigned));
  Value sums = get("sums", RankedTensorType::get(spec.sumShape(), rewriter.getI32Type()),
                   ColumnSumsAttr::get(context, source, transposed, spec.panelWidth(), isUnsigned));
  return {panels, sums};
}

SmallVector<Value> ProductLowering::makeInputs(IntegerProductOp op, const std::optional<Epilogue> &epilogue,
                                               const IntegerGemmSpec &spec, Location loc,
                                               SmallVectorImpl<int64_t> &elementwise) {
  SmallVector<Value> inputs = {toMatrix(rewriter, loc, op.getLhs(), leadingDims(op))};
  if (spec.hasTiles) {
    KernelOp packed = packRows(op, spec, inputs.front(), loc);
    inputs.push_back(packed->getResult(0));
    if (spec.columnZero != ZeroPoint::None)
      inputs.push_back(packed->getResult(1));
  }
  WeightOp weight = storedMatrix(op);
  llvm::append_range(inputs, weight ? storedPanels(op, weight, spec, loc) : packAtRun(op, spec, loc));
  if (spec.hasRowZero)
    inputs.push_back(op.getLhsZero());
  if (spec.columnZero != ZeroPoint::None)
    inputs.push_back(signedZero(op, loc));
  if (epilogue)
    addEpilogueInputs(rewriter, loc, *epilogue, spec.resultType(rewriter.getContext()), leadingDims(op), inputs,
                      elementwise);
  return inputs;
}

/// Calls `kernel` in place of the product, or of its epilogue, and returns what that op yields.
Value ProductLowering::emitCall(IntegerProductOp op, const std::optional<Epilogue> &epilogue,
                                const IntegerGemmSpec &spec, func::FuncOp kernel) {
  Location loc = locationOf(op, epilogue);
  SmallVector<int64_t> elementwise;
  SmallVector<Value> inputs = makeInputs(op, epilogue, spec, loc, elementwise);
  Value columns;
  if (ShapedType::isDynamic(spec.n))
    columns = tensor::DimOp::create(rewriter, loc, op.getRhs(), op.getNumBatch() + (op.getTransposed() ? 0 : 1));
  return emitRowProduct(rewriter, loc, {op.getLhs(), resultType(op, epilogue), spec.m, spec.k, spec.n, columns}, kernel,
                        inputs, elementwise);
}

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

/// Both extremes of one tensor.
struct Range {
  linalg::GenericOp greatest, least;
};

/// Whether `op` combines all elements of its one input by `Op` and starts from `start`.
template <typename Op> bool isExtreme(linalg::GenericOp op, bool startsNegative) {
  if (op.getNumDpsInputs() != 1 || op.getNumDpsInits() != 1 || !op.hasPureTensorSemantics() ||
      op.getNumReductionLoops() != op.getNumLoops() || op.getNumLoops() == 0 ||
      !op.getMatchingIndexingMap(op.getDpsInputOperand(0)).isIdentity() ||
      !getElementTypeOrSelf(op.getDpsInputs()[0]).isF32())
    return false;
  auto combine = op.getBody()->getTerminator()->getOperand(0).getDefiningOp<Op>();
  auto start = dyn_cast_or_null<FloatAttr>(splatConstant(op.getDpsInits()[0]));
  return combine && op.getBody()->getOperations().size() == 2 && combine.getLhs() != combine.getRhs() && start &&
         start.getValue().isInfinity() && start.getValue().isNegative() == startsNegative;
}

class RangeLowering {
public:
  explicit RangeLowering(ModuleOp module) : module(module), kernels(module), target(TargetAttr::lookup(module)) {}

  void run() {
    llvm::MapVector<Value, Range> ranges;
    module.walk([&](linalg::GenericOp op) {
      if (isExtreme<arith::MaximumFOp>(op, /*startsNegative=*/true))
        ranges[op.getDpsInputs()[0]].greatest = op;
      else if (isExtreme<arith::MinimumFOp>(op, /*startsNegative=*/false))
        ranges[op.getDpsInputs()[0]].least = op;
    });
    for (auto &[tensor, range] : ranges)
      if (range.greatest && range.least && range.greatest->getBlock() == range.least->getBlock())
        lower(tensor, range);
  }

private:
  void lower(Value tensor, Range range) {
    Operation *first = range.greatest->isBeforeInBlock(range.least) ? range.greatest : range.least;
    Location loc = first->getLoc();
    remark::RemarkOpts name = remark::RemarkOpts::name("range").category(kCategory);
    RangeSpec spec = RangeSpec::get(tensor, target);
    std::string reason;
    if (!canBuildRange(spec, &reason)) {
      remark::missed(loc, name) << remark::reason("{0}", reason);
      return;
    }
    FailureOr<func::FuncOp> kernel =
        kernels.getOrBuild(spec.symbol(), [&](OpBuilder &builder) { return buildRange(builder, loc, spec); });
    if (failed(kernel))
      return;
    IRRewriter rewriter(first);
    Type f32 = rewriter.getF32Type();
    auto empty = [&](ArrayRef<int64_t> shape) -> Value { return tensor::EmptyOp::create(rewriter, loc, shape, f32); };
    SmallVector<Value> inits = {empty({2, RangeSpec::kParts}), empty({}), empty({})};
    auto call = KernelOp::create(rewriter, loc, TypeRange(ValueRange(inits)), FlatSymbolRefAttr::get(*kernel), tensor,
                                 inits, rewriter.getDenseI64ArrayAttr({}));
    remark::passed(loc, name) << remark::add("{0}", spec.symbol());
    rewriter.replaceOp(range.greatest, call->getResult(1));
    rewriter.replaceOp(range.least, call->getResult(2));
  }

  ModuleOp module;
  KernelTable kernels;
  TargetAttr target;
};

struct LowerProductsPass : attn::impl::LowerProductsPassBase<LowerProductsPass> {
  void runOnOperation() override {
    RangeLowering(getOperation()).run();
    ProductLowering(getOperation()).run();
  }
};

} // namespace
