#include "passes/lowering/cpu/IntegerCall.h"
#include "passes/graph/Formulas.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/cpu/RowProduct.h"

using namespace mlir;

namespace attn {
WeightOp storedMatrix(IntegerProductOp op) {
  return op.getNumBatch() ? WeightOp() : op.getRhs().getDefiningOp<WeightOp>();
}

static unsigned leadingDims(IntegerProductOp op) { return cast<RankedTensorType>(op.getLhs().getType()).getRank() - 1; }

void reportIntegerProduct(ModuleOp module, const SymbolTable &symbols, IntegerProductOp op, ProductVerdict verdict,
                          StringRef text) {
  auto weight = op.getRhs().getDefiningOp<WeightOp>();
  auto global = weight ? symbols.lookup<GlobalOp>(weight.getGlobal()) : GlobalOp();
  if (global && isa<BlockCodesAttr>(global.getExpression())) // attn-round-rows
    return reportProduct(module, op.getLoc(), "s8 columns", "s8 rows in s32", verdict, text);
  StringRef storage = op.getIsUnsigned() ? "u8" : "s8";
  if (!weight)
    storage = op.getIsUnsigned() ? "u8, computed" : "s8, computed";
  reportProduct(module, op.getLoc(), storage, "u8 x s8 in s32", verdict, text);
}

IntegerProductSpec readIntegerProduct(IntegerProductOp op, const std::optional<Epilogue> &epilogue) {
  auto type = cast<RankedTensorType>(op.getResult().getType());
  if (epilogue)
    type = cast<RankedTensorType>(linalg::GenericOp(epilogue->op)->getResult(0).getType());
  auto known = [](int64_t size, int64_t other) { return ShapedType::isDynamic(size) ? other : size; };
  IntegerProductSpec spec;
  spec.isBatched = !storedMatrix(op);
  spec.m = spec.isBatched ? ShapedType::kDynamic : countElements(type, 0, leadingDims(op));
  spec.k = known(op.getDepth(), cast<RankedTensorType>(op.getLhs().getType()).getShape().back());
  spec.n = known(op.getColumns(), type.getShape().back());
  spec.hasRowZero = static_cast<bool>(op.getLhsZero());
  if (Value zero = op.getRhsZero())
    spec.columnZero = cast<RankedTensorType>(zero.getType()).getRank() ? ZeroPoint::ByColumn : ZeroPoint::Scalar;
  else if (op.getIsUnsigned())
    spec.columnZero = ZeroPoint::Scalar;
  if (epilogue)
    static_cast<EpilogueSpec &>(spec) = epilogue->getSpec();
  return spec;
}

IntegerCall::IntegerCall(RewriterBase &rewriter, DerivedGlobals &globals, IntegerProductOp op,
                         const std::optional<Epilogue> &epilogue)
    : loc(epilogue ? rewriter.getFusedLoc({op.getLoc(), linalg::GenericOp(epilogue->op).getLoc()}) : op.getLoc()),
      rewriter(rewriter), globals(globals), op(op), epilogue(epilogue) {}

Value IntegerCall::rows() { return toMatrix(rewriter, loc, op.getLhs(), leadingDims(op)); }

/// The zero point of a weight whose panels hold 128 less than its elements where these are unsigned.
Value IntegerCall::signedZero() {
  Value zero = op.getRhsZero();
  if (!op.getIsUnsigned())
    return zero;
  Type i8 = rewriter.getI8Type();
  if (!zero)
    return arith::ConstantOp::create(rewriter, loc,
                                     DenseElementsAttr::get(RankedTensorType::get({}, i8), APInt(8, 0x80)));
  AffineMap map = rewriter.getMultiDimIdentityMap(cast<RankedTensorType>(zero.getType()).getRank());
  return elementwise(rewriter, loc, tensor::getMixedSizes(rewriter, loc, zero), i8, zero, map,
                     formula([](ArrayRef<Num> x) { return x[0] ^ constantLike(x[0], -128); }));
}

SmallVector<Value> IntegerCall::packAtRun(const IntegerProductSpec &spec, const BytePanels &form, func::FuncOp kernel) {
  Value right = op.getRhs();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, right);
  unsigned numBatch = op.getNumBatch();
  OpFoldResult batches = multiplySizes(rewriter, loc, ArrayRef(sizes).take_front(numBatch));
  ArrayRef<OpFoldResult> matrix = ArrayRef(sizes).drop_front(numBatch);
  right = toCube(rewriter, loc, right, numBatch, 1, {batches, matrix[0], matrix[1]});
  Type i8 = rewriter.getI8Type();
  SmallVector<int64_t> shape = {ShapedType::kDynamic, spec.k, spec.n};
  if (op.getTransposed())
    std::swap(shape[1], shape[2]);
  right = castTo(rewriter, loc, right, RankedTensorType::get(shape, i8));
  Value count = arith::MulIOp::create(rewriter, loc, getValueOrCreateConstantIndexOp(rewriter, loc, batches),
                                      ceilDivide(rewriter, loc, matrix[op.getTransposed() ? 0 : 1], form.width));
  ArrayRef<int64_t> panels = form.shape;
  OpFoldResult steps = rewriter.getIndexAttr(panels[1]);
  if (ShapedType::isDynamic(spec.k))
    steps = ceilDivide(rewriter, loc, matrix[op.getTransposed() ? 1 : 0], form.group);
  SmallVector<Value> inits = {
      tensor::EmptyOp::create(rewriter, loc, {OpFoldResult(count), steps, rewriter.getIndexAttr(panels[2])}, i8),
      tensor::EmptyOp::create(rewriter, loc, {OpFoldResult(count), rewriter.getIndexAttr(form.width)},
                              rewriter.getI32Type())};
  if (form.order) {
    OpFoldResult numbers = rewriter.getIndexAttr(form.order->size());
    if (ShapedType::isDynamic(spec.k)) {
      Value depth = getValueOrCreateConstantIndexOp(rewriter, loc, matrix[op.getTransposed() ? 1 : 0]);
      Value groups = arith::ConstantIndexOp::create(rewriter, loc, form.group);
      Value whole = arith::DivUIOp::create(rewriter, loc, depth, groups);
      Value counts = arith::ConstantIndexOp::create(rewriter, loc, StepOrder::kCounts);
      numbers = Value(arith::AddIOp::create(rewriter, loc, whole, counts));
    }
    inits.push_back(tensor::EmptyOp::create(rewriter, loc, {OpFoldResult(count), numbers},
                                            form.order->element(rewriter.getContext())));
  }
  return llvm::to_vector_of<Value>(callKernel(rewriter, loc, kernel, right, inits)->getResults());
}

SmallVector<Value> IntegerCall::storedPanels(const BytePanels &form) {
  MLIRContext *context = rewriter.getContext();
  FlatSymbolRefAttr source = storedMatrix(op).getGlobalAttr();
  bool transposed = op.getTransposed(), isUnsigned = op.getIsUnsigned();
  std::string name = (source.getValue() + (transposed ? "_t" : "_")).str();
  auto get = [&](StringRef suffix, RankedTensorType type, Attribute expression) -> Value {
    return WeightOp::create(rewriter, loc, type, globals.get(name + suffix, type, expression, loc));
  };
  Value panels = get("bytes", RankedTensorType::get(form.shape, rewriter.getI8Type()),
                     BytePanelsAttr::get(context, source, transposed, form.width, form.group, isUnsigned));
  Value sums = get("sums", RankedTensorType::get(form.sumShape, rewriter.getI32Type()),
                   ColumnSumsAttr::get(context, source, transposed, form.width, isUnsigned));
  if (!form.order)
    return {panels, sums};
  Value order = get("order", RankedTensorType::get({form.shape[0], form.order->size()}, form.order->element(context)),
                    StepOrderAttr::get(context, source, transposed, form.width, form.group, isUnsigned));
  return {panels, sums, order};
}

Value IntegerCall::emit(const IntegerProductSpec &spec, func::FuncOp kernel, SmallVector<Value> inputs) {
  auto type = cast<RankedTensorType>(op.getResult().getType());
  if (epilogue)
    type = cast<RankedTensorType>(linalg::GenericOp(epilogue->op)->getResult(0).getType());
  SmallVector<int64_t> elementwise;
  if (spec.hasRowZero)
    inputs.push_back(op.getLhsZero());
  if (spec.columnZero != ZeroPoint::None)
    inputs.push_back(signedZero());
  if (epilogue)
    addEpilogueInputs(rewriter, loc, *epilogue, spec.resultType(rewriter.getContext()), leadingDims(op), inputs,
                      elementwise);
  Value columns;
  if (ShapedType::isDynamic(spec.n))
    columns = tensor::DimOp::create(rewriter, loc, op.getRhs(), op.getNumBatch() + (op.getTransposed() ? 0 : 1));
  return emitRowProduct(rewriter, loc, {op.getLhs(), type, spec.m, spec.k, spec.n, columns}, kernel, inputs,
                        elementwise);
}

} // namespace attn
