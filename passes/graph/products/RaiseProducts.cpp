#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/IntegerProductOp.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/element/ConstantTable.h"
#include "passes/graph/products/IntegerSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISEPRODUCTSPASS
#include "passes/Passes.h.inc"

namespace {

/// Elements of a matrix with one scale a column: as many as kernels take in a block.
constexpr int64_t kWholeBlock = 256;

bool startsFromZero(linalg::LinalgOp op) {
  auto fill = op.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
  return fill &&
         (matchPattern(fill.getInputs().front(), m_AnyZeroFloat()) || matchPattern(fill.getInputs().front(), m_Zero()));
}

std::optional<unsigned> loopOf(AffineExpr expr) {
  auto dim = dyn_cast<AffineDimExpr>(expr);
  return dim ? std::optional(dim.getPosition()) : std::nullopt;
}

/// Raises products of a quantised weight, whose other operand is quantised as well, or is `lhs.stored`; and other
/// pairs.
class ProductRaiser {
public:
  ProductRaiser(ModuleOp module, const WeightStore *weights)
      : module(module), symbols(module), weights(weights), rewriter(module.getContext()) {}

  void raise(linalg::LinalgOp op);

private:
  void miss(linalg::LinalgOp op, StringRef reason);
  bool match(linalg::LinalgOp op, unsigned side, QuantizedProduct &product, std::string &reason);
  bool matchLoops(QuantizedProduct &product, std::string &reason);
  bool checkNumbers(const QuantizedProduct &product, std::string &reason);
  void finish(const QuantizedProduct &product, Value sums);
  bool raisePair(linalg::LinalgOp op, std::string &reason);
  bool raiseByBlocks(linalg::LinalgOp op, unsigned side, std::string &reason);
  template <typename T>
  std::optional<SmallVector<T>> readColumns(const Parameter &parameter, const QuantizedProduct &product,
                                            int64_t columns);
  bool isFree(ArrayRef<Parameter> scales, unsigned loop);
  bool isZero(const QuantizedOperand &operand);
  Value scaled(const QuantizedProduct &product, Value sums, Location loc);

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

/// Whether the zero point is 0 throughout. Of a stored vector the bytes are asked for.
bool ProductRaiser::isZero(const QuantizedOperand &operand) {
  if (std::optional<int64_t> zero = constantZero(operand))
    return zero == 0;
  ConstantTable table = ConstantTable::read(operand.zero->read->tensor, symbols, weights);
  return !table.bytes.empty() && llvm::all_of(table.bytes, [](char byte) { return byte == 0; });
}

/// Whether the zero point of `operand`, if it is a constant, is one of the numbers that are stored.
bool isByte(const QuantizedOperand &operand, std::string &reason) {
  return (operand.zero && operand.zero->read) || constantZero(operand) ||
         fail(reason, "a zero point is no number of 8 bits");
}

/// Rows in the order of the result, one sum, one column.
bool ProductRaiser::matchLoops(QuantizedProduct &product, std::string &reason) {
  std::optional<RowLoops> loops = matchRows(product.op, product.lhs.stored.map, reason);
  if (!loops)
    return false;
  product.loops = *loops;
  followViews(product.rhs.stored);
  if (!product.rhs.stored.tensor.getDefiningOp<WeightOp>())
    return fail(reason, "the matrix is no weight");
  std::optional<bool> transposed = matchTransposed(product.rhs.stored.map, *loops, reason);
  product.transposed = transposed.value_or(false);
  return transposed.has_value();
}

bool ProductRaiser::match(linalg::LinalgOp op, unsigned side, QuantizedProduct &product, std::string &reason) {
  product = QuantizedProduct();
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
  return checkNumbers(product, reason);
}

/// Whether sums of the bytes of both operands are the product, but for scales that multiply it.
bool ProductRaiser::checkNumbers(const QuantizedProduct &product, std::string &reason) {
  const QuantizedOperand &lhs = product.lhs, &rhs = product.rhs;
  linalg::LinalgOp op = product.op;
  bool isInteger = getElementTypeOrSelf(op->getResult(0)).isInteger(32);
  if (isInteger && (!lhs.scales.empty() || !rhs.scales.empty()))
    return fail(reason, "operands of integers have scales");
  // Two bytes less their zero points give up to 255^2.
  constexpr int64_t kDeepest = (int64_t(1) << 31) / (255 * 255);
  int64_t depth = op.getStaticLoopRanges()[product.loops.depth];
  if (!isInteger && (depth > kDeepest || ShapedType::isDynamic(depth)))
    return fail(reason, "sums of " + (ShapedType::isDynamic(depth) ? "so many" : Twine(depth)) +
                            " products may not fit 32 bits");
  if (!isFree(lhs.scales, product.loops.depth) || !isFree(rhs.scales, product.loops.depth))
    return fail(reason, "a scale goes along the sum");
  for (const QuantizedOperand *operand : {&lhs, &rhs})
    if (operand->zero && operand->zeroIsUnsigned != operand->isUnsigned && operand->zero->read)
      return fail(reason, "a zero point has another sign than what it is subtracted from");
  if (!isByte(lhs, reason) || !isByte(rhs, reason))
    return false;
  auto isScalar = [](const LoopRead &zero) {
    return llvm::none_of(zero.map.getResults(), [](AffineExpr expr) { return loopOf(expr); });
  };
  if (lhs.zero && lhs.zero->read && !isScalar(*lhs.zero->read))
    return fail(reason, "the activation has several zero points");
  auto isOther = [&](AffineExpr expr) { return loopOf(expr).value_or(product.loops.column) != product.loops.column; };
  if (rhs.zero && rhs.zero->read && llvm::any_of(rhs.zero->read->map.getResults(), isOther))
    return fail(reason, "the weight has zero points that do not go by column");
  return true;
}

/// A product of bytes that no stored matrix is a factor of in rows: of integers, of groups, or by few numbers. Of
/// floats both of which the run computes the f32 kernel makes as much, and attentions are made of those.
bool ProductRaiser::raisePair(linalg::LinalgOp op, std::string &reason) {
  if (op.getNumDpsInputs() != 2 || op.getNumReductionLoops() != 1)
    return false;
  // The last dimension of the result is one of the right-hand side.
  AffineExpr last = op.getMatchingIndexingMap(op.getDpsInitOperand(0)).getResults().back();
  bool isFirst = loopOf(last) && !op.getMatchingIndexingMap(op.getDpsInputOperand(1)).isFunctionOfDim(*loopOf(last));
  QuantizedProduct product;
  product.op = op;
  for (unsigned number : {0, 1}) {
    OpOperand *input = op.getDpsInputOperand(number);
    std::optional<QuantizedOperand> operand = readQuantized(input->get(), op.getMatchingIndexingMap(input));
    if (!operand)
      return false;
    followViews(operand->stored);
    (isFirst == (number == 0) ? product.rhs : product.lhs) = *operand;
  }
  auto isStored = [](const QuantizedOperand &operand) {
    Operation *made = operand.stored.tensor.getDefiningOp();
    return isa_and_nonnull<WeightOp, arith::ConstantOp>(made);
  };
  Type element = getElementTypeOrSelf(op->getResult(0));
  if (!element.isInteger(32) && !isStored(product.lhs) && !isStored(product.rhs))
    return false;
  SmallVector<unsigned> sums, columns;
  AffineMap right = op.getMatchingIndexingMap(op.getDpsInputOperand(isFirst ? 0 : 1)),
            left = op.getMatchingIndexingMap(op.getDpsInputOperand(isFirst ? 1 : 0));
  op.getReductionDims(sums);
  for (unsigned loop = 0; loop != op.getNumLoops(); ++loop)
    if (right.isFunctionOfDim(loop) && !left.isFunctionOfDim(loop))
      columns.push_back(loop);
  if (columns.size() != 1)
    return fail(reason, "the right-hand side has " + Twine(columns.size()) + " dimensions of its own");
  product.loops = {sums.front(), columns.front()};
  if (!checkNumbers(product, reason))
    return false;
  rewriter.setInsertionPoint(op);
  if (isZero(product.rhs))
    product.rhs.zero.reset();
  finish(product, sumPair(rewriter, product));
  return true;
}

/// Puts `sums`, times the scales, in the place of a product.
void ProductRaiser::finish(const QuantizedProduct &product, Value sums) {
  linalg::LinalgOp op = product.op;
  Location loc = op.getLoc();
  bool isFloat = getElementTypeOrSelf(op->getResult(0)).isF32();
  if (isFloat)
    sums = scaled(product, sums, loc);
  remark::passed(loc, remark::RemarkOpts::name("Product").category("attn-raise-products"))
      << remark::add("{0}", isFloat ? "of dequantised factors" : "of integers");
  rewriter.replaceOp(op, sums);
}

/// The sums as f32, times all scales.
Value ProductRaiser::scaled(const QuantizedProduct &product, Value sums, Location loc) {
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
  Value value = elementwise(rewriter, loc, sizes, element, inputs, maps, formula([&](Code &k, ArrayRef<Num> x) {
                              SmallVector<Num> factors(x.drop_front());
                              for (TypedAttr constant : constants)
                                factors.push_back(k.asNum(arith::ConstantOp::create(k.b, k.loc, constant)));
                              Num sum = convert(x.front(), element);
                              if (factors.empty())
                                return sum;
                              Num factor = factors.front();
                              for (const Num &other : ArrayRef(factors).drop_front())
                                factor = factor * other;
                              return sum * factor;
                            }));
  return castTo(rewriter, loc, value, type);
}

/// The numbers of a scale or zero point, one for all columns or one for each; nothing where they are not known.
template <typename T>
std::optional<SmallVector<T>> ProductRaiser::readColumns(const Parameter &parameter, const QuantizedProduct &product,
                                                         int64_t columns) {
  if (!parameter.read)
    return SmallVector<T>{static_cast<T>(cast<FloatAttr>(parameter.constant).getValueAsDouble())};
  bool isByColumn = false;
  for (AffineExpr expr : parameter.read->map.getResults()) {
    isByColumn |= loopOf(expr) == product.loops.column;
    if (std::optional<unsigned> loop = loopOf(expr); loop && loop != product.loops.column)
      return std::nullopt;
  }
  auto type = cast<RankedTensorType>(parameter.read->tensor.getType());
  ConstantTable table = ConstantTable::read(parameter.read->tensor, symbols, weights);
  bool isKnown = table.width == sizeof(T) && table.size() == (isByColumn ? columns : 1) &&
                 (std::is_same_v<T, float> ? type.getElementType().isF32() : type.getElementType().isInteger(8));
  if (table.bytes.empty() || !isKnown)
    return std::nullopt;
  SmallVector<T> numbers(table.size());
  for (int64_t n = 0; n != table.size(); ++n) {
    uint64_t bits = table.bitsAt(n);
    std::memcpy(&numbers[n], &bits, sizeof(T));
  }
  return numbers;
}

/// Rows of f32 by a weight that is dequantised with one scale, or one a column: a matrix in blocks of equal scales, so
/// that no matrix of floats is written in each run.
bool ProductRaiser::raiseByBlocks(linalg::LinalgOp op, unsigned side, std::string &reason) {
  OpOperand *left = op.getDpsInputOperand(1 - side), *right = op.getDpsInputOperand(side);
  std::optional<QuantizedOperand> rhs = readQuantized(right->get(), op.getMatchingIndexingMap(right));
  if (!rhs)
    return false;
  QuantizedProduct product;
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
  if (!isByte(*rhs, reason))
    return false;
  SmallVector<int8_t> zeros{static_cast<int8_t>(constantZero(*rhs).value_or(0))};
  if (rhs->zero && rhs->zero->read) {
    std::optional<SmallVector<int8_t>> numbers = readColumns<int8_t>(*rhs->zero, product, n);
    if (!numbers || rhs->zeroIsUnsigned != rhs->isUnsigned)
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
  QuantizedProduct product;
  std::string reason, other;
  if (!match(op, 1, product, reason) && !match(op, 0, product, other)) {
    std::string why;
    if (raisePair(op, why))
      return;
    bool isByBlocks = element.isF32() && (raiseByBlocks(op, 1, why) || raiseByBlocks(op, 0, why));
    if (!isByBlocks && !reason.empty())
      miss(op, why.empty() ? reason : why);
    return;
  }
  Location loc = op.getLoc();
  rewriter.setInsertionPoint(op);
  if (isZero(product.rhs))
    product.rhs.zero.reset();
  auto type = cast<RankedTensorType>(op->getResult(0).getType()).clone(rewriter.getI32Type());
  Value sums = IntegerProductOp::create(
      rewriter, loc, type, unsignedBytes(rewriter, loc, product.lhs), unsignedZero(rewriter, loc, product.lhs),
      product.rhs.stored.tensor, storedZero(rewriter, loc, product.rhs), product.transposed, product.rhs.isUnsigned);
  finish(product, sums);
}

struct RaiseProductsPass : impl::RaiseProductsPassBase<RaiseProductsPass> {
  RaiseProductsPass() = default;
  explicit RaiseProductsPass(const WeightStore *weights) : weights(weights) {}

  void runOnOperation() override {
    ProductRaiser raiser(getOperation(), weights);
    for (linalg::LinalgOp op : getContractions(getOperation()))
      raiser.raise(op);
  }

  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createRaiseProductsPass(const WeightStore *weights) {
  return std::make_unique<RaiseProductsPass>(weights);
}

} // namespace attn
