#include "passes/lowering/gpu/LibraryProduct.h"
#include "dialects/attn/DeviceOps.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/choose/ContractionMatch.h"
#include "runtime/include/attnrt/abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;

namespace attn {
namespace {

//===----------------------------------------------------------------------===//
// Epilogues
//===----------------------------------------------------------------------===//

/// The result's type where it is of 16 bits: the library computes in f32 and rounds once, so the graph's roundings to
/// that type in between are left out. Null: of f32.
Type narrowResult(const GpuGemmSpec &spec) {
  Type type = spec.result.getElementType();
  return type.isF32() ? Type() : type;
}

/// `value` before it is rounded to `narrow` or widened from it, if that is given.
Value unrounded(Value value, Type narrow) {
  while (Operation *op = narrow ? value.getDefiningOp() : nullptr) {
    if (!isa<arith::ExtFOp, arith::TruncFOp>(op) ||
        (op->getOperand(0).getType() != narrow && value.getType() != narrow))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// An expression of one variable in sums, products, quotients, constant powers and tanh; none for anything else.
class Expression {
public:
  Expression(Value variable, Type narrow) : variable(variable), narrow(narrow) {}
  std::optional<double> at(Value value, double x) {
    known.clear();
    return evaluate(value, x);
  }

private:
  std::optional<double> evaluate(Value value, double x) {
    value = unrounded(value, narrow);
    if (value == variable)
      return x;
    if (std::optional<double> constant = numberOf(value))
      return constant;
    auto [place, isNew] = known.try_emplace(value);
    if (!isNew)
      return place->second;
    Operation *op = value.getDefiningOp();
    if (!op ||
        !isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp, math::TanhOp, math::PowFOp>(op))
      return std::nullopt;
    SmallVector<double> operands;
    for (Value operand : op->getOperands()) {
      std::optional<double> number = evaluate(operand, x);
      if (!number)
        return std::nullopt;
      operands.push_back(*number);
    }
    double result = llvm::TypeSwitch<Operation *, double>(op)
                        .Case([&](arith::AddFOp) { return operands[0] + operands[1]; })
                        .Case([&](arith::SubFOp) { return operands[0] - operands[1]; })
                        .Case([&](arith::MulFOp) { return operands[0] * operands[1]; })
                        .Case([&](arith::DivFOp) { return operands[0] / operands[1]; })
                        .Case([&](arith::NegFOp) { return -operands[0]; })
                        .Case([&](math::TanhOp) { return std::tanh(operands[0]); })
                        .Default([&](Operation *) { return std::pow(operands[0], operands[1]); });
    known[value] = result;
    return result;
  }

  Value variable;
  Type narrow;
  llvm::DenseMap<Value, std::optional<double>> known;
};

/// Whether `result` is GELU by tanh of `x`, however it is spelled: a short expression of that kind which agrees at
/// thirty points is no other one.
bool isTanhGelu(Value result, Value x, Type narrow) {
  Expression expression(x, narrow);
  for (double at = -7.25; at < 7.5; at += 0.5) {
    double want = 0.5 * at * (1 + std::tanh(0.7978845608028654 * (at + 0.044715 * at * at * at)));
    std::optional<double> is = expression.at(result, at);
    if (!is || !(std::abs(*is - want) <= 1e-6 * (1 + std::abs(want))))
      return false;
  }
  return true;
}

/// The x of max(x, 0), or null.
Value findRelu(Value result) {
  Operation *op = result.getDefiningOp();
  if (auto choice = dyn_cast_or_null<arith::SelectOp>(op)) {
    auto compare = choice.getCondition().getDefiningOp<arith::CmpFOp>();
    if (!compare || !matchPattern(compare.getRhs(), m_AnyZeroFloat()))
      return {};
    using Predicate = arith::CmpFPredicate;
    Predicate predicate = compare.getPredicate();
    bool isLess = llvm::is_contained({Predicate::OLT, Predicate::OLE, Predicate::ULT, Predicate::ULE}, predicate);
    bool isMore = llvm::is_contained({Predicate::OGT, Predicate::OGE, Predicate::UGT, Predicate::UGE}, predicate);
    Value x = compare.getLhs(), zero = isLess ? choice.getTrueValue() : choice.getFalseValue();
    bool isKept = (isLess ? choice.getFalseValue() : choice.getTrueValue()) == x;
    return (isLess || isMore) && isKept && matchPattern(zero, m_AnyZeroFloat()) ? x : Value();
  }
  if (!op || !isa<arith::MaximumFOp, arith::MaxNumFOp>(op))
    return {};
  for (unsigned n : {0u, 1u})
    if (matchPattern(op->getOperand(n), m_AnyZeroFloat()))
      return op->getOperand(1 - n);
  return {};
}

struct LibraryEpilogue {
  double scale = 1;
  int64_t bias = -1, addend = -1; ///< positions among the operands
  int32_t activation = ATTNRT_ACTIVATION_NONE;
  Value made; ///< what it gives, where a rest follows
};

class EpilogueMatch {
public:
  EpilogueMatch(const GpuGemmSpec &spec) : spec(spec), block(*spec.epilogue), narrow(narrowResult(spec)) {}

  std::optional<LibraryEpilogue> run() {
    if (match(block.getTerminator()->getOperand(0)))
      return epilogue;
    SmallVector<Value> parts = {spec.getSum()};
    for (Operation &op : block.without_terminator())
      parts.push_back(op.getResult(0));
    for (Value part : llvm::reverse(parts))
      if (canEndAt(part) && match(part)) {
        epilogue.made = part;
        return epilogue;
      }
    return std::nullopt;
  }

private:
  /// Whether `result` is what a library's epilogue gives.
  bool match(Value result) {
    result = unrounded(result, narrow);
    epilogue = {};
    if (addTerms(result))
      return true;
    epilogue = {};
    if (Value x = findRelu(result)) {
      epilogue.activation = ATTNRT_ACTIVATION_RELU;
      return addTerms(x);
    }
    // The activation's argument is the sum of all terms: the last of them in the block that it can be.
    SmallVector<Value> candidates = {spec.getSum()};
    for (Operation &op : block.without_terminator())
      if (isa<arith::AddFOp, arith::MulFOp>(op))
        candidates.push_back(op.getResult(0));
    for (Value x : llvm::reverse(candidates)) {
      epilogue = {};
      epilogue.activation = ATTNRT_ACTIVATION_GELU;
      if (x != result && addTerms(x) && isTanhGelu(result, x, narrow))
        return true;
    }
    return false;
  }

  /// Whether a launch behind the library's can go on from `value`, as it is in the result's type.
  bool canEndAt(Value value) const {
    auto widened = value.getDefiningOp<arith::ExtFOp>();
    if (narrow ? value.getType() != narrow && !(widened && widened.getIn().getType() == narrow)
               : !value.getType().isF32())
      return false;
    Value sum = spec.getSum();
    auto readsSum = [&](Operation *op) { return value != sum && llvm::is_contained(op->getOperands(), sum); };
    return isLong() && llvm::none_of(opsBehind(block, value), readsSum);
  }
  /// On an H100 a multiply-add along the sums takes a wave of blocks about 17 (mma.sync) to 28 ns (wgmma) longer in a
  /// kernel of ours. A launch takes 3 us, and 1.7 ps an element: 1 or 7 us for such a wave. So the depth alone decides.
  bool isLong() const {
    const int64_t leastSums = spec.warpgroupColumns ? 384 : 256;
    int64_t sums = 1;
    for (unsigned dim : spec.sums)
      sums = ShapedType::isDynamic(spec.sizes[dim]) ? 0 : sums * spec.sizes[dim];
    return spec.precision != Precision::f32 && sums >= leastSums;
  }

  /// `value` as scale * sum + bias + addend, the sum exactly once and the others at most.
  bool addTerms(Value value) {
    hasSum = false;
    return addTerm(value) && hasSum;
  }
  bool addTerm(Value value) {
    value = unrounded(value, narrow);
    if (auto add = value.getDefiningOp<arith::AddFOp>())
      return addTerm(add.getLhs()) && addTerm(add.getRhs());
    Value sum = spec.getSum();
    if (auto product = value.getDefiningOp<arith::MulFOp>()) {
      for (auto [factor, other] :
           {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())})
        if (std::optional<double> scale = numberOf(other); scale && unrounded(factor, narrow) == sum && !hasSum) {
          epilogue.scale = *scale;
          return hasSum = true;
        }
      return false;
    }
    if (value == sum)
      return !hasSum && (hasSum = true);
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != &block || argument.getArgNumber() == block.getNumArguments() - 1)
      return false; // the last one is the init
    int64_t operand = argument.getArgNumber() - (argument.getArgNumber() > spec.accumulator);
    int64_t *place = isBias(operand) ? &epilogue.bias : isAddend(operand) ? &epilogue.addend : nullptr;
    if (!place || *place >= 0)
      return false;
    *place = operand;
    return true;
  }

  /// Whether an operand has the columns of the result, which are its last dimensions.
  bool isBias(int64_t operand) const {
    AffineMap map = spec.operandMaps[operand];
    unsigned first = map.getNumDims() - spec.columns.size();
    if (!hasType(operand) || map.getNumResults() != spec.columns.size())
      return false;
    for (unsigned n = 0; n < map.getNumResults(); ++n)
      if (map.getResult(n) != getAffineDimExpr(first + n, map.getContext()))
        return false;
    return true;
  }
  bool hasType(int64_t operand) const {
    return spec.operands[operand].getElementType() == spec.result.getElementType();
  }
  bool isAddend(int64_t operand) const { return hasType(operand) && spec.operandMaps[operand].isIdentity(); }

  const GpuGemmSpec &spec;
  Block &block;
  Type narrow;
  LibraryEpilogue epilogue;
  bool hasSum = false;
};

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

constexpr int32_t kNumbers[] = {0, 1, 3, 2}; ///< of f32, tf32, f16, bf16 in attnrt_product

} // namespace

LibraryProduct findLibraryProduct(MLIRContext *context, const GpuGemmSpec &spec) {
  LoopDims left = getDims(spec.leftMap), right = getDims(spec.rightMap), result = getDims(spec.resultMap);
  LoopDims batch = inOrder(result, spec.batch), rows = inOrder(result, spec.rows),
           columns = inOrder(result, spec.columns), sums = inOrder(left, spec.sums);
  bool isLeftTransposed = left == concat(batch, sums, rows), isRightTransposed = right == concat(batch, columns, sums);
  if (result != concat(batch, rows, columns) || (!isLeftTransposed && left != concat(batch, rows, sums)) ||
      (!isRightTransposed && right != concat(batch, sums, columns)))
    return {};
  if (spec.hasFloat8())
    return {};
  Type factors[] = {spec.left.getElementType(), spec.right.getElementType()};
  auto fits = [&](Type type) { return type.isF32() || precisionOf(type) == spec.precision; };
  bool hasNarrowFactor = !factors[0].isF32() || !factors[1].isF32();
  if (!llvm::all_of(factors, fits) || !fits(spec.result.getElementType()) || (narrowResult(spec) && !hasNarrowFactor))
    return {};
  std::optional<LibraryEpilogue> epilogue = LibraryEpilogue();
  if (spec.epilogue && !(epilogue = EpilogueMatch(spec).run()))
    return {};
  Builder b(context);
  // The sizes of loops: of which operand, which dimension.
  auto places = [&](ArrayRef<unsigned> dims, int64_t operand, ArrayRef<unsigned> ofOperand) {
    SmallVector<int64_t> found;
    for (unsigned dim : dims)
      found.append({operand, llvm::find(ofOperand, dim) - ofOperand.begin()});
    return b.getDenseI64ArrayAttr(found);
  };
  NamedAttrList attributes;
  attributes.append("batch", places(batch, 0, left));
  attributes.append("rows", places(rows, 0, left));
  attributes.append("columns", places(columns, 1, right));
  attributes.append("sums", places(sums, 0, left));
  attributes.append("result", b.getI64IntegerAttr(2 + spec.operands.size()));
  if (epilogue->bias >= 0)
    attributes.append("bias", b.getI64IntegerAttr(2 + epilogue->bias));
  if (epilogue->addend >= 0)
    attributes.append("addend", b.getI64IntegerAttr(2 + epilogue->addend));
  attributes.append("scale", b.getF32FloatAttr(static_cast<float>(epilogue->scale)));
  attributes.append("activation", b.getI32IntegerAttr(epilogue->activation));
  // The library has no product of f32 and 16 bits: the launch in front rounds the former.
  bool isLeftWide = factors[0].isF32(), isRightWide = factors[1].isF32();
  if (hasNarrowFactor)
    attributes.append("narrow", b.getUnitAttr());
  if (isLeftWide != isRightWide)
    attributes.append("rounded", b.getI64IntegerAttr(isLeftWide ? 0 : 1));
  attributes.append("precision", b.getI32IntegerAttr(kNumbers[static_cast<int>(spec.precision)]));
  if (isLeftTransposed)
    attributes.append("left_transposed", b.getUnitAttr());
  if (isRightTransposed)
    attributes.append("right_transposed", b.getUnitAttr());
  if (epilogue->made)
    attributes.append(kProductRest, FlatSymbolRefAttr::get(context, nameOfGpuGemmRest(spec)));
  return {attributes.getDictionary(context), epilogue->made};
}

Value emitLibraryProduct(OpBuilder &b, Location loc, DictionaryAttr product, ValueRange operands) {
  auto sizeOf = [&](StringRef name) {
    Value size = arith::ConstantIndexOp::create(b, loc, 1);
    ArrayRef<int64_t> places = product.getAs<DenseI64ArrayAttr>(name).asArrayRef();
    for (size_t n = 0; n < places.size(); n += 2)
      size = b.createOrFold<arith::MulIOp>(loc, size,
                                           b.createOrFold<memref::DimOp>(loc, operands[places[n]], places[n + 1]));
    return size;
  };
  auto operand = [&](StringRef name) {
    auto number = product.getAs<IntegerAttr>(name);
    return number ? operands[number.getInt()] : Value();
  };
  auto flag = [&](bool isSet) { return isSet ? b.getUnitAttr() : UnitAttr(); };
  Value factors[] = {operands[0], operands[1]};
  Value sizes[] = {sizeOf("batch"), sizeOf("rows"), sizeOf("columns"), sizeOf("sums")};
  auto precision = product.getAs<IntegerAttr>("precision");
  auto emit = [&](bool isQuestion) -> Value {
    return ProductOp::create(b, loc, b.getI1Type(), factors[0], factors[1], operand("result"), operand("bias"),
                             operand("addend"), sizes[0], sizes[1], sizes[2], sizes[3],
                             product.getAs<FloatAttr>("scale"), precision, product.getAs<IntegerAttr>("activation"),
                             flag(product.contains("left_transposed")), flag(product.contains("right_transposed")),
                             flag(product.contains("narrow")), flag(isQuestion));
  };
  auto rounded = product.getAs<IntegerAttr>("rounded");
  if (!rounded)
    return emit(/*isQuestion=*/false);
  Value scratch = operands.back();
  factors[rounded.getInt()] = scratch;
  auto choice = scf::IfOp::create(b, loc, b.getI1Type(), emit(/*isQuestion=*/true), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  bool isF16 = precision.getInt() == kNumbers[static_cast<int>(Precision::f16)];
  emitRounding(b, loc, operands[rounded.getInt()], scratch, isF16 ? Precision::f16 : Precision::bf16);
  scf::YieldOp::create(b, loc, emit(/*isQuestion=*/false));
  b.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(b, loc, arith::ConstantIntOp::create(b, loc, 0, 1).getResult());
  return choice.getResult(0);
}

} // namespace attn
