#include "tools/interpret/ScalarOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn::interpret {

using Args = llvm::ArrayRef<Scalar>;

double roundTo(double x, Type type) {
  llvm::APFloat value(x);
  bool losesInfo;
  value.convert(cast<FloatType>(type).getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return value.convertToDouble();
}

static unsigned widthOf(Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

Scalar fit(Scalar x, Type type) {
  if (isa<FloatType>(type)) {
    if (type.isF64() || std::isnan(x.real) || std::isinf(x.real))
      return x;
    double rounded = roundTo(x.real, type);
    return std::isinf(rounded) ? Scalar::of(rounded) : x;
  }
  unsigned width = widthOf(type);
  if (width == 1)
    return Scalar::of(x.integer & 1);
  return width >= 64 ? x : Scalar::of(llvm::SignExtend64(x.integer, width));
}

/// The bits of an operand, as an unsigned number.
static uint64_t bits(Operation *op, Args args, unsigned n) {
  unsigned width = widthOf(op->getOperand(n).getType());
  uint64_t raw = args[n].integer;
  return width >= 64 ? raw : raw & ((uint64_t(1) << width) - 1);
}

/// The value of an operand as a signed number: i1 is 0 or -1.
static int64_t signedOf(Operation *op, Args args, unsigned n) {
  return widthOf(op->getOperand(n).getType()) == 1 ? -args[n].integer : args[n].integer;
}

static bool compareInts(arith::CmpIPredicate predicate, int64_t x, int64_t y, uint64_t ux, uint64_t uy) {
  switch (predicate) {
  case arith::CmpIPredicate::eq:
    return ux == uy;
  case arith::CmpIPredicate::ne:
    return ux != uy;
  case arith::CmpIPredicate::slt:
    return x < y;
  case arith::CmpIPredicate::sle:
    return x <= y;
  case arith::CmpIPredicate::sgt:
    return x > y;
  case arith::CmpIPredicate::sge:
    return x >= y;
  case arith::CmpIPredicate::ult:
    return ux < uy;
  case arith::CmpIPredicate::ule:
    return ux <= uy;
  case arith::CmpIPredicate::ugt:
    return ux > uy;
  case arith::CmpIPredicate::uge:
    return ux >= uy;
  }
  return false;
}

static bool compareFloats(arith::CmpFPredicate predicate, double x, double y) {
  bool unordered = std::isnan(x) || std::isnan(y);
  switch (predicate) {
  case arith::CmpFPredicate::AlwaysFalse:
    return false;
  case arith::CmpFPredicate::AlwaysTrue:
    return true;
  case arith::CmpFPredicate::ORD:
    return !unordered;
  case arith::CmpFPredicate::UNO:
    return unordered;
  case arith::CmpFPredicate::OEQ:
    return x == y;
  case arith::CmpFPredicate::ONE:
    return !unordered && x != y;
  case arith::CmpFPredicate::OLT:
    return x < y;
  case arith::CmpFPredicate::OLE:
    return x <= y;
  case arith::CmpFPredicate::OGT:
    return x > y;
  case arith::CmpFPredicate::OGE:
    return x >= y;
  case arith::CmpFPredicate::UEQ:
    return unordered || x == y;
  case arith::CmpFPredicate::UNE:
    return unordered || x != y;
  case arith::CmpFPredicate::ULT:
    return unordered || x < y;
  case arith::CmpFPredicate::ULE:
    return unordered || x <= y;
  case arith::CmpFPredicate::UGT:
    return unordered || x > y;
  case arith::CmpFPredicate::UGE:
    return unordered || x >= y;
  }
  return false;
}

static double maximum(double x, double y) {
  if (std::isnan(x) || std::isnan(y))
    return std::numeric_limits<double>::quiet_NaN();
  return x == y ? (std::signbit(x) ? y : x) : std::max(x, y);
}

static int64_t divideSigned(int64_t x, int64_t y) {
  if (y == 0)
    return 0;
  return y == -1 ? int64_t(0 - uint64_t(x)) : x / y;
}

static int64_t divideDown(int64_t x, int64_t y) {
  int64_t q = divideSigned(x, y);
  return y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}

static int64_t toInteger(double x) {
  if (std::isnan(x))
    return 0;
  if (x >= 0x1p63)
    return std::numeric_limits<int64_t>::max();
  return x <= -0x1p63 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(x);
}

#define REAL(expr)                                                                                                     \
  [](Operation *, Args a) {                                                                                            \
    double x = a[0].real;                                                                                              \
    (void)x;                                                                                                           \
    return Scalar::of(double(expr));                                                                                   \
  }
#define REAL2(expr)                                                                                                    \
  [](Operation *, Args a) {                                                                                            \
    double x = a[0].real, y = a[1].real;                                                                               \
    return Scalar::of(double(expr));                                                                                   \
  }
#define TEST(expr)                                                                                                     \
  [](Operation *, Args a) {                                                                                            \
    double x = a[0].real;                                                                                              \
    return Scalar::of(int64_t(expr));                                                                                  \
  }
// Sums and products wrap, in unsigned arithmetic.
#define WRAP(expr)                                                                                                     \
  [](Operation *, Args a) {                                                                                            \
    uint64_t x = a[0].integer, y = a[1].integer;                                                                       \
    return Scalar::of(int64_t(expr));                                                                                  \
  }
#define SIGNED(expr)                                                                                                   \
  [](Operation *op, Args a) {                                                                                          \
    int64_t x = signedOf(op, a, 0), y = signedOf(op, a, 1);                                                            \
    return Scalar::of(int64_t(expr));                                                                                  \
  }
#define UNSIGNED(expr)                                                                                                 \
  [](Operation *op, Args a) {                                                                                          \
    uint64_t x = bits(op, a, 0), y = bits(op, a, 1);                                                                   \
    return Scalar::of(int64_t(expr));                                                                                  \
  }
#define CAST(expr)                                                                                                     \
  [](Operation *op, Args a) {                                                                                          \
    (void)op;                                                                                                          \
    return Scalar::of(expr);                                                                                           \
  }

using Rules = llvm::StringMap<ScalarRule>;

static const Rules &arithRules() {
  static const Rules table = {
      {"arith.addf", REAL2(x + y)},
      {"arith.subf", REAL2(x - y)},
      {"arith.mulf", REAL2(x * y)},
      {"arith.divf", REAL2(x / y)},
      {"arith.remf", REAL2(std::fmod(x, y))},
      {"arith.negf", REAL(-x)},
      {"arith.maximumf", REAL2(maximum(x, y))},
      {"arith.minimumf", REAL2(-maximum(-x, -y))},
      {"arith.maxnumf", REAL2(std::fmax(x, y))},
      {"arith.minnumf", REAL2(std::fmin(x, y))},
      {"arith.addi", WRAP(x + y)},
      {"arith.subi", WRAP(x - y)},
      {"arith.muli", WRAP(x * y)},
      {"arith.andi", WRAP(x & y)},
      {"arith.ori", WRAP(x | y)},
      {"arith.xori", WRAP(x ^ y)},
      {"arith.shli", UNSIGNED(y > 63 ? 0 : x << y)},
      {"arith.shrui", UNSIGNED(y > 63 ? 0 : x >> y)},
      {"arith.shrsi", SIGNED(x >> (uint64_t(y) > 63 ? 63 : y))},
      {"arith.divsi", SIGNED(divideSigned(x, y))},
      {"arith.floordivsi", SIGNED(divideDown(x, y))},
      {"arith.ceildivsi", SIGNED(-divideDown(-x, y))},
      {"arith.remsi", SIGNED(y == 0 || y == -1 ? 0 : x % y)},
      {"arith.divui", UNSIGNED(y == 0 ? 0 : x / y)},
      {"arith.ceildivui", UNSIGNED(y == 0 ? 0 : x / y + (x % y != 0))},
      {"arith.remui", UNSIGNED(y == 0 ? 0 : x % y)},
      {"arith.maxsi", SIGNED(std::max(x, y))},
      {"arith.minsi", SIGNED(std::min(x, y))},
      {"arith.maxui", UNSIGNED(std::max(x, y))},
      {"arith.minui", UNSIGNED(std::min(x, y))},
      {"arith.cmpi",
       [](Operation *op, Args a) {
         return Scalar::of(int64_t(compareInts(cast<arith::CmpIOp>(op).getPredicate(), signedOf(op, a, 0),
                                               signedOf(op, a, 1), bits(op, a, 0), bits(op, a, 1))));
       }},
      {"arith.cmpf",
       [](Operation *op, Args a) {
         return Scalar::of(int64_t(compareFloats(cast<arith::CmpFOp>(op).getPredicate(), a[0].real, a[1].real)));
       }},
      {"arith.select", [](Operation *, Args a) { return a[0].integer ? a[1] : a[2]; }},
      {"arith.extf", [](Operation *, Args a) { return a[0]; }},
      {"arith.truncf", [](Operation *, Args a) { return a[0]; }},
      {"arith.extsi", CAST(signedOf(op, a, 0))},
      {"arith.extui", CAST(int64_t(bits(op, a, 0)))},
      {"arith.trunci", CAST(a[0].integer)},
      {"arith.index_cast", CAST(signedOf(op, a, 0))},
      {"arith.index_castui", CAST(int64_t(bits(op, a, 0)))},
      {"arith.sitofp", CAST(double(signedOf(op, a, 0)))},
      {"arith.uitofp", CAST(double(bits(op, a, 0)))},
      {"arith.fptosi", CAST(toInteger(a[0].real))},
      {"arith.fptoui", CAST(toInteger(a[0].real))},
  };
  return table;
}

static const Rules &mathRules() {
  static const Rules table = {
      {"math.absf", REAL(std::fabs(x))},
      {"math.absi",
       [](Operation *, Args a) { return a[0].integer < 0 ? Scalar::of(int64_t(0 - uint64_t(a[0].integer))) : a[0]; }},
      {"math.acos", REAL(std::acos(x))},
      {"math.acosh", REAL(std::acosh(x))},
      {"math.asin", REAL(std::asin(x))},
      {"math.asinh", REAL(std::asinh(x))},
      {"math.atan", REAL(std::atan(x))},
      {"math.atanh", REAL(std::atanh(x))},
      {"math.atan2", REAL2(std::atan2(x, y))},
      {"math.cbrt", REAL(std::cbrt(x))},
      {"math.ceil", REAL(std::ceil(x))},
      {"math.copysign", REAL2(std::copysign(x, y))},
      {"math.cos", REAL(std::cos(x))},
      {"math.cosh", REAL(std::cosh(x))},
      {"math.erf", REAL(std::erf(x))},
      {"math.erfc", REAL(std::erfc(x))},
      {"math.exp", REAL(std::exp(x))},
      {"math.exp2", REAL(std::exp2(x))},
      {"math.expm1", REAL(std::expm1(x))},
      {"math.floor", REAL(std::floor(x))},
      {"math.fma", [](Operation *, Args a) { return Scalar::of(std::fma(a[0].real, a[1].real, a[2].real)); }},
      {"math.isfinite", TEST(std::isfinite(x))},
      {"math.isinf", TEST(std::isinf(x))},
      {"math.isnan", TEST(std::isnan(x))},
      {"math.log", REAL(std::log(x))},
      {"math.log10", REAL(std::log10(x))},
      {"math.log1p", REAL(std::log1p(x))},
      {"math.log2", REAL(std::log2(x))},
      {"math.powf", REAL2(std::pow(x, y))},
      {"math.round", REAL(std::round(x))},
      {"math.roundeven", REAL(std::nearbyint(x))},
      {"math.rsqrt", REAL(1 / std::sqrt(x))},
      {"math.sin", REAL(std::sin(x))},
      {"math.sinh", REAL(std::sinh(x))},
      {"math.sqrt", REAL(std::sqrt(x))},
      {"math.tan", REAL(std::tan(x))},
      {"math.tanh", REAL(std::tanh(x))},
      {"math.trunc", REAL(std::trunc(x))},
  };
  return table;
}

ScalarRule findScalarRule(Operation *op) {
  if (op->getNumResults() != 1 || op->getNumRegions() || !op->getResult(0).getType().isIntOrIndexOrFloat())
    return nullptr;
  for (Value operand : op->getOperands())
    if (!operand.getType().isIntOrIndexOrFloat() || (!operand.getType().isIndex() && widthOf(operand.getType()) > 64))
      return nullptr;
  const Rules &rules = isa<arith::ArithDialect>(op->getDialect()) ? arithRules() : mathRules();
  return rules.lookup(op->getName().getStringRef());
}

} // namespace attn::interpret
