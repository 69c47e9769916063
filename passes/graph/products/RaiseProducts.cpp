#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/IntegerProductOp.h"
#include "passes/Passes.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/ConstantTable.h"
#include "passes/graph/products/QuantizedOperand.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISEPRODUCTSPASS
#include "passes/Passes.h.inc"

namespace {

/// Elements of a matrix with one scale a column: as many as kernels take in a block.
constexpr int64_t kWholeBlock = 256;

/// A contraction whose operands are both quantised, the second one a weight; or that one alone, and `lhs.stored` is
/// what it is multiplied by.
struct Product {
  linalg::LinalgOp op;
  QuantizedOperand lhs, rhs;
  unsigned depth = 0;  ///< the loop that is summed
  unsigned column = 0; ///< the loop of rhs and the last dimension of the result
  bool transposed = false;
};

bool startsFromZero(linalg::LinalgOp op) {
  auto fill = op.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
  return fill &&
         (matchPattern(fill.getInputs().front(), m_AnyZeroFloat()) || matchPattern(fill.getInputs().front(), m_Zero()));
}

std::optional<unsigned> loopOf(AffineExpr expr) {
  auto dim = dyn_cast<AffineDimExpr>(expr);
  return dim ? std::optional(dim.getPosition()) : std::nullopt;
}

class ProductRaiser {
public:
  ProductRaiser(ModuleOp module, const WeightStore *weights)
      : module(module), symbols(module), weights(weights), rewriter(module.getContext()) {}

  void raise(linalg::LinalgOp op);

private:
  void miss(linalg::LinalgOp op, StringRef reason);
  bool match(linalg::LinalgOp op, unsigned side, Product &product, std::string &reason);
  bool matchLoops(Product &product, std::string &reason);
  bool raiseByBlocks(linalg::LinalgOp op, unsigned side, std::string &reason);
  template <typename T>
  std::optional<SmallVector<T>> readColumns(const Parameter &parameter, const Product &product, int64_t columns);
  bool isFree(ArrayRef<Parameter> scales, unsigned loop);
  bool isZero(const Parameter &parameter);
  static int64_t zeroPoint(TypedAttr constant, bool isUnsigned);
  Value lhsZero(const Product &product, Location loc);
  Value rhsZero(const Product &product, Location loc);
  Value flipped(Value bytes, Location loc);
  Value asRank(LoopRead read, Location loc);
  Value scaled(const Product &product, Value sums, Location loc);

  ModuleOp module;
  SymbolTable symbols;
  const WeightStore *weights;
  IRRewriter rewriter;
};

bool fail(std::string &reason, const Twine &text) {
  reason = text.str();
  return false;
}

/// Whether `loop` has no part in any of the scales.
bool ProductRaiser::isFree(ArrayRef<Parameter> scales, unsigned loop) {
  return llvm::none_of(scales,
                       [&](const Parameter &scale) { return scale.read && scale.read->map.isFunctionOfDim(loop); });
}

/// Whether a zero point is 0 throughout. Of a stored vector the bytes are asked for.
bool ProductRaiser::isZero(const Parameter &parameter) {
  if (!parameter.read)
    return zeroPoint(parameter.constant, false) == 0;
  ConstantTable table = ConstantTable::read(parameter.read->tensor, symbols, weights);
  return !table.bytes.empty() && llvm::all_of(table.bytes, [](char byte) { return byte == 0; });
}

/// A constant zero point as a number; -1 where it is none of 8 bits.
int64_t ProductRaiser::zeroPoint(TypedAttr constant, bool isUnsigned) {
  if (auto integer = dyn_cast<IntegerAttr>(constant))
    return integer.getType().isInteger(8) && isUnsigned ? integer.getValue().getZExtValue()
                                                        : integer.getValue().getSExtValue();
  return static_cast<int64_t>(cast<FloatAttr>(constant).getValueAsDouble());
}

/// Rows in the order of the result, one sum, one column.
bool ProductRaiser::matchLoops(Product &product, std::string &reason) {
  AffineMap result = product.op.getMatchingIndexingMap(product.op.getDpsInitOperand(0));
  ArrayRef<AffineExpr> left = product.lhs.stored.map.getResults();
  if (result.getNumResults() == 0 || left.size() != result.getNumResults())
    return fail(reason, "the activation has other dimensions than the result");
  std::optional<unsigned> column = loopOf(result.getResults().back()), depth = loopOf(left.back());
  if (!column || !depth || result.isFunctionOfDim(*depth) || product.op.getNumReductionLoops() != 1)
    return fail(reason, "the sum does not run along the rows of the activation");
  if (left.drop_back() != result.getResults().drop_back())
    return fail(reason, "the rows of the activation stand in another order than those of the result");
  product.column = *column;
  product.depth = *depth;
  followViews(product.rhs.stored);
  auto weight = product.rhs.stored.tensor.getDefiningOp<WeightOp>();
  if (!weight)
    return fail(reason, "the matrix is no weight");
  ArrayRef<AffineExpr> right = product.rhs.stored.map.getResults();
  if (right.size() != 2)
    return fail(reason, "the weight is no matrix");
  std::optional<unsigned> first = loopOf(right[0]), second = loopOf(right[1]);
  product.transposed = first == product.column && second == product.depth;
  if (!product.transposed && (first != product.depth || second != product.column))
    return fail(reason, "the weight is not read as K x N or N x K");
  return true;
}

bool ProductRaiser::match(linalg::LinalgOp op, unsigned side, Product &product, std::string &reason) {
  product = Product();
  product.op = op;
  auto read = [&](unsigned number) {
    OpOperand *operand = op.getDpsInputOperand(number);
    return readQuantized(operand->get(), op.getMatchingIndexingMap(operand));
  };
  std::optional<QuantizedOperand> lhs = read(1 - side), rhs = read(side);
  if (!lhs || !rhs)
    return fail(reason, lhs || rhs ? "only one of its operands is quantised" : "");
  product.lhs = *lhs;
  product.rhs = *rhs;
  if (!matchLoops(product, reason))
    return false;
  bool isInteger = getElementTypeOrSelf(op->getResult(0)).isInteger(32);
  if (isInteger && (!lhs->scales.empty() || !rhs->scales.empty()))
    return fail(reason, "operands of integers have scales");
  // Two bytes less their zero points give up to 255^2.
  constexpr int64_t kDeepest = (int64_t(1) << 31) / (255 * 255);
  int64_t depth = cast<RankedTensorType>(product.rhs.stored.tensor.getType()).getDimSize(product.transposed ? 1 : 0);
  if (!isInteger && depth > kDeepest)
    return fail(reason, "sums of " + Twine(depth) + " products may not fit 32 bits");
  if (!isFree(lhs->scales, product.depth) || !isFree(rhs->scales, product.depth))
    return fail(reason, "a scale goes along the sum");
  for (const QuantizedOperand *operand : {&product.lhs, &product.rhs})
    if (operand->zero && operand->zeroIsUnsigned != operand->isUnsigned && operand->zero->read)
      return fail(reason, "a zero point has another sign than what it is subtracted from");
  // A zero point is a number of the type of what it belongs to.
  for (const QuantizedOperand *operand : {&product.lhs, &product.rhs}) {
    if (!operand->zero || operand->zero->read)
      continue;
    int64_t zero = zeroPoint(operand->zero->constant, operand->isUnsigned), low = operand->isUnsigned ? 0 : -128;
    auto number = dyn_cast<FloatAttr>(operand->zero->constant);
    if (zero < low || zero > low + 255 || (number && number.getValueAsDouble() != static_cast<double>(zero)))
      return fail(reason, "a zero point is no number of 8 bits");
  }
  auto isScalar = [](const LoopRead &zero) {
    return llvm::none_of(zero.map.getResults(), [](AffineExpr expr) { return loopOf(expr); });
  };
  if (lhs->zero && lhs->zero->read && !isScalar(*lhs->zero->read))
    return fail(reason, "the activation has several zero points");
  if (rhs->zero && rhs->zero->read && !isScalar(*rhs->zero->read)) {
    AffineMap map = rhs->zero->read->map;
    if (map.getNumResults() != 1 || loopOf(map.getResult(0)) != product.column)
      return fail(reason, "the weight has zero points that do not go by column");
  }
  return true;
}

/// u8 as s8, or the other way around: each less 128, and more 128.
Value ProductRaiser::flipped(Value bytes, Location loc) {
  auto type = cast<RankedTensorType>(bytes.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, bytes);
  AffineMap map = rewriter.getMultiDimIdentityMap(type.getRank());
  return elementwise(rewriter, loc, sizes, type.getElementType(), bytes, map,
                     [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       Value top = arith::ConstantOp::create(b, loc, b.getI8IntegerAttr(-128));
                       return arith::XOrIOp::create(b, loc, args[0], top);
                     });
}

/// A zero point in rank 0, or 1 where it goes by column.
Value ProductRaiser::asRank(LoopRead read, Location loc) {
  auto type = cast<RankedTensorType>(read.tensor.getType());
  bool isByColumn = llvm::any_of(read.map.getResults(), [](AffineExpr expr) { return loopOf(expr); });
  if (isByColumn || type.getRank() == 0)
    return read.tensor;
  return tensor::CollapseShapeOp::create(rewriter, loc, RankedTensorType::get({}, type.getElementType()), read.tensor,
                                         ArrayRef<ReassociationIndices>{});
}

Value byteConstant(OpBuilder &b, Location loc, int64_t value) {
  auto type = RankedTensorType::get({}, b.getI8Type());
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, APInt(8, value & 0xff)));
}

/// The zero point of the activation as a number from 0 to 255.
Value ProductRaiser::lhsZero(const Product &product, Location loc) {
  const std::optional<Parameter> &zero = product.lhs.zero;
  bool isUnsigned = product.lhs.isUnsigned;
  if (!zero || !zero->read) {
    int64_t number = (zero ? zeroPoint(zero->constant, isUnsigned) : 0) + (isUnsigned ? 0 : 128);
    return number ? byteConstant(rewriter, loc, number) : Value();
  }
  Value given = asRank(*zero->read, loc);
  return isUnsigned ? given : flipped(given, loc);
}

Value ProductRaiser::rhsZero(const Product &product, Location loc) {
  const std::optional<Parameter> &zero = product.rhs.zero;
  if (!zero || isZero(*zero))
    return {};
  return zero->read ? asRank(*zero->read, loc)
                    : byteConstant(rewriter, loc, zeroPoint(zero->constant, product.rhs.isUnsigned));
}

/// The sums as f32, times all scales.
Value ProductRaiser::scaled(const Product &product, Value sums, Location loc) {
  linalg::LinalgOp op = product.op;
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  SmallVector<AffineExpr> places(result.getNumDims(), rewriter.getAffineConstantExpr(0));
  for (auto [n, expr] : llvm::enumerate(result.getResults()))
    places[*loopOf(expr)] = rewriter.getAffineDimExpr(n);
  SmallVector<Value> inputs = {sums};
  SmallVector<AffineMap> maps = {rewriter.getMultiDimIdentityMap(type.getRank())};
  SmallVector<TypedAttr> constants;
  for (const QuantizedOperand *operand : {&product.lhs, &product.rhs})
    for (const Parameter &scale : operand->scales) {
      if (!scale.read) {
        constants.push_back(scale.constant);
        continue;
      }
      inputs.push_back(scale.read->tensor);
      maps.push_back(scale.read->map.replaceDimsAndSymbols(places, {}, type.getRank(), 0));
    }
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, sums);
  Type element = type.getElementType();
  Value value = elementwise(rewriter, loc, sizes, element, inputs, maps,
                            [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                              Value sum = arith::SIToFPOp::create(b, loc, element, args.front()), factor;
                              auto multiply = [&](Value scale) {
                                factor = factor ? arith::MulFOp::create(b, loc, factor, scale).getResult() : scale;
                              };
                              for (Value scale : args.slice(1, inputs.size() - 1)) // and not the destination
                                multiply(scale);
                              for (TypedAttr constant : constants)
                                multiply(arith::ConstantOp::create(b, loc, constant));
                              return factor ? arith::MulFOp::create(b, loc, sum, factor).getResult() : sum;
                            });
  return value.getType() == type ? value : tensor::CastOp::create(rewriter, loc, type, value).getResult();
}

/// The numbers of a scale or zero point, one for all columns or one for each; nothing where they are not known.
template <typename T>
std::optional<SmallVector<T>> ProductRaiser::readColumns(const Parameter &parameter, const Product &product,
                                                         int64_t columns) {
  if (!parameter.read) {
    if (auto number = dyn_cast<FloatAttr>(parameter.constant))
      return SmallVector<T>{static_cast<T>(number.getValueAsDouble())};
    return SmallVector<T>{static_cast<T>(zeroPoint(parameter.constant, product.rhs.isUnsigned))};
  }
  bool isByColumn = false;
  for (AffineExpr expr : parameter.read->map.getResults()) {
    isByColumn |= loopOf(expr) == product.column;
    if (std::optional<unsigned> loop = loopOf(expr); loop && loop != product.column)
      return std::nullopt;
  }
  auto type = cast<RankedTensorType>(parameter.read->tensor.getType());
  ConstantTable table = ConstantTable::read(parameter.read->tensor, symbols, weights);
  bool isKnown = table.width == sizeof(T) && table.size() == (isByColumn ? columns : 1) &&
                 (std::is_same_v<T, float> ? type.getElementType().isF32() : type.getElementType().isInteger(8));
  if (table.bytes.empty() || !isKnown)
    return std::nullopt;
  SmallVector<T> numbers(table.size());
  std::memcpy(numbers.data(), table.bytes.data(), table.bytes.size());
  return numbers;
}

/// Rows of f32 by a weight that is dequantised with one scale, or one a column: a matrix in blocks of equal scales, so
/// that no matrix of floats is written in each run.
bool ProductRaiser::raiseByBlocks(linalg::LinalgOp op, unsigned side, std::string &reason) {
  OpOperand *left = op.getDpsInputOperand(1 - side), *right = op.getDpsInputOperand(side);
  std::optional<QuantizedOperand> rhs = readQuantized(right->get(), op.getMatchingIndexingMap(right));
  if (!rhs)
    return false;
  Product product;
  product.op = op;
  product.rhs = *rhs;
  product.lhs.stored = {left->get(), op.getMatchingIndexingMap(left)};
  auto rows = cast<RankedTensorType>(left->get().getType()), sums = cast<RankedTensorType>(op->getResult(0).getType());
  if (!matchLoops(product, reason))
    return false;
  if (!rows.getElementType().isF32() || !sums.getElementType().isF32())
    return fail(reason, "it is not summed in f32, of f32");
  auto matrix = cast<RankedTensorType>(product.rhs.stored.tensor.getType());
  int64_t k = matrix.getDimSize(product.transposed ? 1 : 0), n = matrix.getDimSize(product.transposed ? 0 : 1);
  if (rows.getShape().back() != k || !matrix.hasStaticShape())
    return fail(reason, "the length of its rows is not known");
  SmallVector<float> scales{1};
  for (const Parameter &scale : rhs->scales) {
    std::optional<SmallVector<float>> factors = readColumns<float>(scale, product, n);
    if (!factors)
      return fail(reason, "a scale is not stored, or goes along the sum");
    scales.resize(std::max(scales.size(), factors->size()), scales.front());
    for (auto [column, one] : llvm::enumerate(scales))
      one *= (*factors)[factors->size() == 1 ? 0 : column];
  }
  SmallVector<int8_t> zeros{0};
  if (rhs->zero) {
    std::optional<SmallVector<int8_t>> numbers = readColumns<int8_t>(*rhs->zero, product, n);
    if (!numbers || (rhs->zero->read && rhs->zeroIsUnsigned != rhs->isUnsigned))
      return fail(reason, "a zero point is not stored as its weight is");
    zeros = *numbers;
  }
  Location loc = op.getLoc();
  rewriter.setInsertionPoint(op);
  int64_t blocks = llvm::divideCeil(k, kWholeBlock);
  SmallVector<int64_t> shape = product.transposed ? SmallVector<int64_t>{n, blocks} : SmallVector<int64_t>{blocks, n};
  // In each block the same.
  auto repeated = [&](auto numbers, Type element) -> Value {
    using T = typename decltype(numbers)::value_type;
    SmallVector<T> all;
    for (int64_t at = 0; numbers.size() > 1 && at != blocks * n; ++at)
      all.push_back(numbers[product.transposed ? at / blocks : at % n]);
    auto type = RankedTensorType::get(shape, element);
    return arith::ConstantOp::create(
        rewriter, loc, DenseElementsAttr::get(type, numbers.size() > 1 ? ArrayRef<T>(all) : ArrayRef<T>(numbers)));
  };
  Value zeroPoints = zeros.size() > 1 ? repeated(zeros, rewriter.getI8Type()) : Value();
  int64_t zero = zeroPoints ? 0 : rhs->isUnsigned ? int64_t(uint8_t(zeros.front())) : zeros.front();
  remark::passed(loc, remark::RemarkOpts::name("Product").category("attn-raise-products"))
      << remark::add("{0}", "of rows by a dequantised weight");
  rewriter.replaceOpWithNewOp<BlockProductOp>(op, sums, left->get(), product.rhs.stored.tensor,
                                              repeated(scales, rewriter.getF32Type()), zeroPoints, kWholeBlock,
                                              /*bits=*/8, zero, product.transposed, rhs->isUnsigned,
                                              /*narrow_rows=*/false);
  return true;
}

/// Whether an operand of `op` is a dequantised weight.
bool readsWeight(linalg::LinalgOp op) {
  return llvm::any_of(op.getDpsInputOperands(), [&](OpOperand *input) {
    std::optional<QuantizedOperand> operand = readQuantized(input->get(), op.getMatchingIndexingMap(input));
    if (!operand)
      return false;
    followViews(operand->stored);
    return operand->stored.tensor.getDefiningOp<WeightOp>() != nullptr;
  });
}

void ProductRaiser::miss(linalg::LinalgOp op, StringRef reason) {
  remark::missed(op.getLoc(), remark::RemarkOpts::name("Product").category("attn-raise-products"))
      << remark::reason("{0}", reason);
  if (!readsWeight(op)) // of an attention, say: it has a report of its own
    return;
  bool isInteger = getElementTypeOrSelf(op->getResult(0)).isInteger(32);
  reportProduct(module, op.getLoc(), "i8", isInteger ? "s32" : "f32, dequantised", ProductVerdict::reason, reason);
}

void ProductRaiser::raise(linalg::LinalgOp op) {
  Type element = op->getNumResults() == 1 ? getElementTypeOrSelf(op->getResult(0)) : Type();
  if (!element || !op.hasPureTensorSemantics() || (!element.isInteger(32) && !element.isF32()) || !startsFromZero(op))
    return;
  Product product;
  std::string reason, other;
  if (!match(op, 1, product, reason) && !match(op, 0, product, other)) {
    std::string why;
    bool isByBlocks = element.isF32() && (raiseByBlocks(op, 1, why) || raiseByBlocks(op, 0, why));
    if (!isByBlocks && !reason.empty())
      miss(op, why.empty() ? reason : why);
    return;
  }
  Location loc = op.getLoc();
  rewriter.setInsertionPoint(op);
  Value lhs = product.lhs.stored.tensor;
  if (!product.lhs.isUnsigned)
    lhs = flipped(lhs, loc);
  auto type = cast<RankedTensorType>(op->getResult(0).getType()).clone(rewriter.getI32Type());
  Value result = IntegerProductOp::create(rewriter, loc, type, lhs, lhsZero(product, loc), product.rhs.stored.tensor,
                                          rhsZero(product, loc), product.transposed, product.rhs.isUnsigned);
  if (element.isF32())
    result = scaled(product, result, loc);
  remark::passed(loc, remark::RemarkOpts::name("Product").category("attn-raise-products"))
      << remark::add("{0}", element.isF32() ? "of dequantised factors" : "of integers");
  rewriter.replaceOp(op, result);
}

/// q(transpose(x)) becomes transpose(q(x)) where q makes bytes or reads them: an attention, whose operands are followed
/// through transposes, then reads its keys as they lie, and a transpose that stays moves a quarter.
struct SinkTranspose : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::GenericOp op, PatternRewriter &rewriter) const override {
    auto fail = [&](StringRef why) { return rewriter.notifyMatchFailure(op, why); };
    if (!isPointwise(op) || op.hasIndexSemantics() || !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
      return fail("it is not elementwise, in the order of its result");
    OpOperand *moved = nullptr;
    for (OpOperand *input : op.getDpsInputOperands()) {
      AffineMap map = op.getMatchingIndexingMap(input);
      if (llvm::none_of(map.getResults(), [](AffineExpr expr) { return isa<AffineDimExpr>(expr); }))
        continue; // one scale, one zero point
      if (moved || !map.isIdentity())
        return fail("it reads several tensors");
      moved = input;
    }
    auto transpose = moved ? moved->get().getDefiningOp<linalg::TransposeOp>() : linalg::TransposeOp();
    auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (!transpose || !transpose->hasOneUse() || !type)
      return fail("it reads no transpose that is its own");
    if (!type.getElementType().isInteger(8) && !getElementTypeOrSelf(moved->get()).isInteger(8))
      return fail("it neither makes bytes nor reads them");
    Location loc = op.getLoc();
    Value source = transpose.getInput();
    SmallVector<Value> inputs(op.getDpsInputs());
    inputs[moved->getOperandNumber()] = source;
    Value init = emptyTensor(rewriter, loc, tensor::getMixedSizes(rewriter, loc, source), type.getElementType());
    auto twin = linalg::GenericOp::create(rewriter, loc, init.getType(), inputs, init, op.getIndexingMapsArray(),
                                          op.getIteratorTypesArray());
    rewriter.cloneRegionBefore(op.getRegion(), twin.getRegion(), twin.getRegion().begin());
    rewriter.replaceOpWithNewOp<linalg::TransposeOp>(op, twin->getResult(0), op.getDpsInits()[0],
                                                     transpose.getPermutation());
    return success();
  }
};

struct RaiseProductsPass : impl::RaiseProductsPassBase<RaiseProductsPass> {
  RaiseProductsPass() = default;
  explicit RaiseProductsPass(const WeightStore *weights) : weights(weights) {}

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<SinkTranspose>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (linalg::isaContractionOpInterface(op))
        ops.push_back(op);
    });
    ProductRaiser raiser(getOperation(), weights);
    for (linalg::LinalgOp op : ops)
      raiser.raise(op);
  }

  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createRaiseProductsPass(const WeightStore *weights) {
  return std::make_unique<RaiseProductsPass>(weights);
}

} // namespace attn
