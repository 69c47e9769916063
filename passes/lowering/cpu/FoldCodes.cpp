#include "builders/Operators.h"
#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>
#include <limits>

namespace attn {
#define GEN_PASS_DEF_FOLDCODESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using attn::Num;

namespace {

std::optional<float> constantOf(Value value) {
  APFloat number(0.0f);
  if (!value.getType().isF32() || !matchPattern(value, m_ConstantFloat(&number)))
    return std::nullopt;
  return number.convertToFloat();
}

/// Whether products and quotients by `scale` neither overflow nor become denormal, but where they are rounded to 0.
bool isUsual(float scale) { return scale >= 1e-24f && scale <= 1e24f; }

bool isWhole(float number) { return std::isfinite(number) && std::nearbyint(number) == number; }

/// A float that is a whole number from `low` to `high`, as ONNX's QuantizeLinear rounds: roundeven(x) or
/// roundeven(x) + zero, low where it is not above that, else at most high.
struct Codes {
  arith::SelectOp root;
  Value rounded; ///< x
  float zero = 0, low = 0, high = 0;

  static std::optional<Codes> match(arith::SelectOp root);
};

std::optional<Codes> Codes::match(arith::SelectOp root) {
  auto isAbove = root.getCondition().getDefiningOp<arith::CmpFOp>();
  auto inner = root.getTrueValue().getDefiningOp<arith::SelectOp>();
  auto isBelow = inner ? inner.getCondition().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
  if (!isAbove || !isBelow || isAbove.getPredicate() != arith::CmpFPredicate::OGT ||
      isBelow.getPredicate() != arith::CmpFPredicate::OLT)
    return std::nullopt;
  Value shifted = inner.getTrueValue();
  std::optional<float> low = constantOf(root.getFalseValue()), high = constantOf(inner.getFalseValue());
  if (isAbove.getLhs() != shifted || isBelow.getLhs() != shifted || !low || !high ||
      constantOf(isAbove.getRhs()) != low || constantOf(isBelow.getRhs()) != high)
    return std::nullopt;
  Codes codes{root, {}, 0, *low, *high};
  if (auto sum = shifted.getDefiningOp<arith::AddFOp>()) {
    std::optional<float> zero = constantOf(sum.getRhs());
    if (!zero)
      return std::nullopt;
    codes.zero = *zero;
    shifted = sum.getLhs();
  }
  auto round = shifted.getDefiningOp<math::RoundEvenOp>();
  // Sums of these are exact.
  auto isCode = [](float x) { return isWhole(x) && std::abs(x) <= 1 << 16; };
  if (!round || !isCode(*low) || !isCode(*high) || !isCode(codes.zero) || *low > *high)
    return std::nullopt;
  codes.rounded = round.getOperand();
  return codes;
}

/// x / scale, for |x / scale| up to 2^16 and a number to round it to: a product, and the rest of it.
struct Quotient {
  float scale, reciprocal;

  explicit Quotient(float scale) : scale(scale), reciprocal(1 / scale) {}
  float of(float x) const {
    float estimate = x * reciprocal;
    return std::fma(std::fma(-estimate, scale, x), reciprocal, estimate);
  }
  /// Whether of(x) is rounded to the whole number that x / scale is, for those from `least` to `most`. `of` is within a
  /// unit in the last place of the quotient, so that only a few x beside each half need a look.
  bool roundsAlike(float least, float most) const {
    constexpr int kBeside = 8;
    if (!isUsual(scale) || most - least > 256)
      return false;
    for (float whole = least; whole < most; ++whole) {
      auto x = static_cast<float>((whole + 0.5) * scale);
      for (int n = 0; n != kBeside; ++n)
        x = std::nextafter(x, -std::numeric_limits<float>::infinity());
      for (int n = 0; n != 2 * kBeside + 1; ++n, x = std::nextafter(x, std::numeric_limits<float>::infinity()))
        if (std::nearbyint(x / scale) != std::nearbyint(of(x)))
          return false;
    }
    return true;
  }
};

/// Writes codes anew, in the order in which they depend on each other.
class CodeWriter {
public:
  explicit CodeWriter(bool hasFma) : hasFma(hasFma) {}
  void write(Codes &codes);

private:
  using Predicate = arith::CmpFPredicate;

  Value differenceOf(OpBuilder &b, Codes &codes);
  Num divide(const Num &x, float least, float most);
  void readBack(Value integer, unsigned width, Codes &codes, Value code, Value difference);

  bool hasFma;
  /// Codes less their zero points, and between which whole numbers they are.
  llvm::DenseMap<Value, std::pair<float, float>> differences;
};

Value constant(OpBuilder &b, Location loc, float number) {
  return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(number));
}

/// `x` from `low` to `high`; `low` for NaN.
Num clamp(const Num &x, float low, float high) {
  Num least = constantLike(x, low), above = select(x > least, x, least), most = constantLike(x, high);
  return select(above < most, above, most);
}

/// What is rounded to the codes less their zero point, in their bounds.
Num CodeWriter::divide(const Num &x, float least, float most) {
  auto quotient = x.value().getDefiningOp<arith::DivFOp>();
  std::optional<float> scale = quotient ? constantOf(quotient.getRhs()) : std::nullopt;
  if (!scale || !hasFma || !Quotient(*scale).roundsAlike(least, most))
    return clamp(x, least, most);
  // Clamped first: an infinity would become NaN.
  Num dividend = clamp(x.with(quotient.getLhs()), least * *scale, most * *scale);
  Num reciprocal = constantLike(x, Quotient(*scale).reciprocal), estimate = dividend * reciprocal;
  return fma(fma(-estimate, x.with(quotient.getRhs()), dividend), reciprocal, estimate);
}

/// The codes less their zero point; -0 may stand for 0.
Value CodeWriter::differenceOf(OpBuilder &b, Codes &codes) {
  float least = codes.low - codes.zero, most = codes.high - codes.zero;
  // Codes that were read are written with the scale that they were read with.
  if (auto quotient = codes.rounded.getDefiningOp<arith::DivFOp>())
    if (auto product = quotient.getLhs().getDefiningOp<arith::MulFOp>())
      if (auto known = differences.find(product.getLhs()); known != differences.end()) {
        std::optional<float> by = constantOf(product.getRhs()), scale = constantOf(quotient.getRhs());
        if (by && by == scale && isUsual(*scale) && known->second.first >= least && known->second.second <= most)
          return product.getLhs();
      }
  return roundEven(divide(Num(b, codes.root.getLoc(), codes.rounded), least, most));
}

void CodeWriter::write(Codes &codes) {
  arith::SelectOp root = codes.root;
  OpBuilder b(root);
  Location loc = root.getLoc();
  Value rounded = differenceOf(b, codes), code = rounded, difference = rounded;
  if (codes.zero != 0)
    code = arith::AddFOp::create(b, loc, rounded, constant(b, loc, codes.zero));
  if (codes.low < codes.zero) // an integer has no -0
    difference = arith::AddFOp::create(b, loc, rounded, constant(b, loc, 0));
  differences[difference] = {codes.low - codes.zero, codes.high - codes.zero};
  SmallVector<Operation *> users(root->getUsers());
  root.replaceAllUsesWith(code);
  for (Operation *user : users)
    if (auto integer = dyn_cast<arith::FPToSIOp>(user))
      readBack(integer.getResult(), integer.getType().getIntOrFloatBitWidth(), codes,
               codes.zero != 0 ? code : difference, difference);
}

/// Floats of `integer`, the code in so many bits, are the code, and less its zero point they are the difference.
void CodeWriter::readBack(Value integer, unsigned width, Codes &codes, Value code, Value difference) {
  for (Operation *user : llvm::make_early_inc_range(integer.getUsers())) {
    if (auto narrow = dyn_cast<arith::TruncIOp>(user)) {
      readBack(narrow.getResult(), narrow.getType().getIntOrFloatBitWidth(), codes, code, difference);
      continue;
    }
    bool isSigned = isa<arith::SIToFPOp>(user);
    double count = std::ldexp(1.0, width), least = isSigned ? -count / 2 : 0;
    if ((!isSigned && !isa<arith::UIToFPOp>(user)) || user->getResult(0).getType() != code.getType() ||
        codes.low < least || codes.high > least + count - 1)
      continue;
    Value read = user->getResult(0);
    for (Operation *reader : llvm::make_early_inc_range(read.getUsers()))
      if (auto subtraction = dyn_cast<arith::SubFOp>(reader);
          subtraction && subtraction.getLhs() == read && constantOf(subtraction.getRhs()) == codes.zero)
        subtraction.replaceAllUsesWith(difference);
    read.replaceAllUsesWith(code);
  }
}

/// What nothing reads any more: a kernel's name would tell it.
void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

struct FoldCodesPass : attn::impl::FoldCodesPassBase<FoldCodesPass> {
  void runOnOperation() override {
    SmallVector<Codes> all;
    llvm::SetVector<Block *> blocks;
    getOperation().walk([&](arith::SelectOp select) {
      if (std::optional<Codes> codes = Codes::match(select)) {
        all.push_back(*codes);
        blocks.insert(select->getBlock());
      }
    });
    CodeWriter writer(attn::TargetAttr::lookup(getOperation()).getIsa() != "portable");
    for (Codes &codes : all)
      writer.write(codes);
    for (Block *block : blocks)
      eraseDead(*block);
  }
};
} // namespace
