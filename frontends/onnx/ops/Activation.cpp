#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include <cmath>

// Operators of one operand, each a formula on one element.

using namespace mlir;

namespace attn::onnx {
namespace {

enum class Domain { Float, Number, Integer, Bool };

/// A formula reads its attributes from the node.
using UnaryFormula = Num (*)(Node &, const Num &);

struct Unary {
  const char *name;
  std::initializer_list<int> versions;
  Domain domain;
  UnaryFormula formula;
};

Num hardSigmoid(const Num &x, double alpha, double beta) {
  return atMost(atLeast(alpha * x + beta, x.constant(0)), x.constant(1));
}

Num softplus(const Num &x) { return maximum(x, x.constant(0)) + log1p(exp(-abs(x))); }

Num gelu(Node &n, const Num &x) {
  if (n.stringAttr("approximate", "none") != "tanh")
    return 0.5 * x * (1.0 + erf(x * std::sqrt(0.5)));
  return 0.5 * x * (1.0 + tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

Num sign(const Num &x) {
  Num one = x.constant(1), zero = x.constant(0);
  if (!isSigned(x.dtype()))
    return select(x > zero, one, zero);
  // A NaN compares with nothing, and stays.
  Num result = select(x > zero, one, select(x < zero, x.constant(-1), x));
  return x.isFloating() ? result : select(x == zero, zero, result);
}

/// Overflows where e^x / 2 does and no earlier: of a large number, x - 1 is exact.
Num halfExp(const Num &x) { return M_E / 2 * exp(x - 1.0); }

// The textbook forms cancel near 0, and overflow where the result does not; these do neither.
Num sinh(const Num &x) {
  Num a = abs(x), t = expm1(a);
  return copySign(select(a > 20.0, halfExp(a), 0.5 * (t + t / (t + 1.0))), x);
}

Num cosh(const Num &x) {
  Num half = halfExp(abs(x));
  return half + 0.25 / half;
}

Num asinh(const Num &x) {
  Num a = abs(x), square = a * a;
  Num small = log1p(a + square / (1.0 + sqrt(square + 1.0)));
  return copySign(select(a > 1e10, log(a) + M_LN2, small), x);
}

Num acosh(const Num &x) {
  Num t = x - 1.0;
  // Two roots: that of their product is a number below -1, too.
  return select(x > 1e10, log(x) + M_LN2, log1p(t + sqrt(t) * sqrt(t + 2.0)));
}

Num atanh(const Num &x) {
  Num a = abs(x);
  return copySign(0.5 * log1p(2.0 * a / (1.0 - a)), x);
}

Num isInf(Node &n, const Num &x) {
  Num up = x == x.highest(), down = x == x.lowest();
  bool positive = n.intAttr("detect_positive", 1), negative = n.intAttr("detect_negative", 1);
  if (positive && negative)
    return up | down;
  return positive ? up : negative ? down : constantNum(x.builder(), x.location(), DType::Bool, int64_t(0));
}

Num elu(const Num &x, double alpha) { return select(x < 0.0, alpha * expm1(x), x); }

Num selu(Node &n, const Num &x) {
  double alpha = n.floatAttr("alpha", 1.67326319217681884765625);
  return n.floatAttr("gamma", 1.05070102214813232421875) * elu(x, alpha);
}

Num celu(Node &n, const Num &x) {
  double alpha = n.floatAttr("alpha", 1.0);
  return select(x < 0.0, alpha * expm1(x / alpha), x);
}

Num thresholdedRelu(Node &n, const Num &x) { return select(x > n.floatAttr("alpha", 1.0), x, x.constant(0)); }

Num shrink(Node &n, const Num &x) {
  double lambd = n.floatAttr("lambd", 0.5), bias = n.floatAttr("bias", 0.0);
  return select(x < -lambd, x + bias, select(x > lambd, x - bias, x.constant(0)));
}

constexpr Domain Float = Domain::Float, Number = Domain::Number;

const Unary unaries[] = {
    {"Abs", {1, 6, 13}, Number, [](Node &, const Num &x) { return abs(x); }},
    {"Neg", {1, 6, 13}, Number, [](Node &, const Num &x) { return -x; }},
    {"Sign", {9, 13}, Number, [](Node &, const Num &x) { return sign(x); }},
    {"Relu", {1, 6, 13, 14}, Number, [](Node &, const Num &x) { return atLeast(x, x.constant(0)); }},
    {"Shrink", {9}, Number, shrink},
    {"Sqrt", {1, 6, 13}, Float, [](Node &, const Num &x) { return sqrt(x); }},
    {"Reciprocal", {1, 6, 13}, Float, [](Node &, const Num &x) { return 1.0 / x; }},
    {"Exp", {1, 6, 13}, Float, [](Node &, const Num &x) { return exp(x); }},
    {"Log", {1, 6, 13}, Float, [](Node &, const Num &x) { return log(x); }},
    {"Erf",
     {9, 13},
     Number,
     [](Node &, const Num &x) { return x.isFloating() ? erf(x) : convert(erf(convert(x, DType::F32)), x.dtype()); }},
    {"Floor", {1, 6, 13}, Float, [](Node &, const Num &x) { return floor(x); }},
    {"Ceil", {1, 6, 13}, Float, [](Node &, const Num &x) { return ceil(x); }},
    {"Round", {11, 22}, Float, [](Node &, const Num &x) { return roundEven(x); }},
    {"Sin", {7, 22}, Float, [](Node &, const Num &x) { return sin(x); }},
    {"Cos", {7, 22}, Float, [](Node &, const Num &x) { return cos(x); }},
    {"Tan", {7, 22}, Float, [](Node &, const Num &x) { return sin(x) / cos(x); }},
    {"Asin", {7, 22}, Float, [](Node &, const Num &x) { return asin(x); }},
    {"Acos", {7, 22}, Float, [](Node &, const Num &x) { return acos(x); }},
    {"Atan", {7, 22}, Float, [](Node &, const Num &x) { return atan(x); }},
    {"Sinh", {9, 22}, Float, [](Node &, const Num &x) { return sinh(x); }},
    {"Cosh", {9, 22}, Float, [](Node &, const Num &x) { return cosh(x); }},
    {"Asinh", {9, 22}, Float, [](Node &, const Num &x) { return asinh(x); }},
    {"Acosh", {9, 22}, Float, [](Node &, const Num &x) { return acosh(x); }},
    {"Atanh", {9, 22}, Float, [](Node &, const Num &x) { return atanh(x); }},
    {"Tanh", {1, 6, 13}, Float, [](Node &, const Num &x) { return tanh(x); }},
    {"Sigmoid", {1, 6, 13}, Float, [](Node &, const Num &x) { return sigmoid(x); }},
    {"LeakyRelu",
     {1, 6, 16},
     Float,
     [](Node &n, const Num &x) { return select(x < 0.0, n.floatAttr("alpha", 0.01) * x, x); }},
    {"Elu", {1, 6, 22}, Float, [](Node &n, const Num &x) { return elu(x, n.floatAttr("alpha", 1.0)); }},
    {"Selu", {1, 6, 22}, Float, selu},
    {"Celu", {12, 28}, Float, celu},
    {"Softplus", {1, 22}, Float, [](Node &, const Num &x) { return softplus(x); }},
    {"Softsign", {1, 22}, Float, [](Node &, const Num &x) { return x / (1.0 + abs(x)); }},
    {"HardSigmoid",
     {1, 6, 22},
     Float,
     [](Node &n, const Num &x) { return hardSigmoid(x, n.floatAttr("alpha", 0.2), n.floatAttr("beta", 0.5)); }},
    {"HardSwish", {14, 22}, Float, [](Node &, const Num &x) { return x * hardSigmoid(x, 1.0 / 6, 0.5); }},
    {"Mish", {18, 22}, Float, [](Node &, const Num &x) { return x * tanh(softplus(x)); }},
    {"Gelu", {20}, Float, gelu},
    {"Swish", {24}, Float, [](Node &n, const Num &x) { return x * sigmoid(n.floatAttr("alpha", 1.0) * x); }},
    {"ThresholdedRelu", {10, 22}, Float, thresholdedRelu},
    {"Not", {1}, Domain::Bool, [](Node &, const Num &x) { return !x; }},
    {"BitwiseNot", {18}, Domain::Integer, [](Node &, const Num &x) { return !x; }},
    {"IsNaN", {9, 13, 20}, Float, [](Node &, const Num &x) { return isNaN(x); }},
    {"IsInf", {10, 20}, Float, isInf},
};

LogicalResult expectDomain(Node &n, Domain domain) {
  DType dtype = n.input(0).dtype;
  bool isBool = dtype == DType::Bool;
  const char *expected = nullptr;
  if (domain == Domain::Float && !isFloat(dtype))
    expected = "a float type";
  else if (domain == Domain::Number && isBool)
    expected = "numbers";
  else if (domain == Domain::Integer && (isBool || isFloat(dtype)))
    expected = "an integer type";
  else if (domain == Domain::Bool && !isBool)
    expected = "bool";
  if (expected)
    return n.error() << "expects " << expected << ", has " << dtypeName(dtype);
  return success();
}

/// Negation, of sizes and conditions that are open at import.
std::optional<Scalar> symbolicUnary(Node &n, ArrayRef<Scalar> v) {
  if (!std::holds_alternative<Expr>(v[0]))
    return std::nullopt;
  const Expr &x = std::get<Expr>(v[0]);
  if (n.opType() == "Neg")
    return Scalar(Expr(0) - x);
  if (n.opType() == "Abs")
    return Scalar(n.symbols().max(x, Expr(0) - x));
  return n.opType() == "Not" ? std::optional<Scalar>(Expr(1) - x) : std::nullopt;
}

LogicalResult importUnary(Node &n) {
  const Unary *row = llvm::find_if(unaries, [&](const Unary &u) { return n.opType() == u.name; });
  if (failed(expectInputs(n, 1)) || failed(expectDomain(n, row->domain)))
    return failure();
  const Tensor &x = n.input(0);
  bool isTest = n.opType() == "IsNaN" || n.opType() == "IsInf";
  return setFormula(
      n, isTest ? DType::Bool : x.dtype, x, [&](ArrayRef<Num> v) { return row->formula(n, v[0]); },
      [&](ArrayRef<Scalar> v) { return symbolicUnary(n, v); });
}

//===----------------------------------------------------------------------===//
// Clip, PRelu, SwiGLU
//===----------------------------------------------------------------------===//

LogicalResult importClip6(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  return setFormula(n, n.input(0).dtype, n.input(0), [&](ArrayRef<Num> v) {
    Num x = v[0];
    if (n.hasAttr("min"))
      x = atLeast(x, x.constant(n.floatAttr("min", 0)));
    return n.hasAttr("max") ? atMost(x, x.constant(n.floatAttr("max", 0))) : x;
  });
}

LogicalResult importClip11(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  std::vector<Tensor> operands{n.input(0)};
  for (size_t i : {1, 2}) {
    if (!n.hasInput(i))
      continue;
    if (failed(expectSameDType(n, 0, i)))
      return failure();
    if (n.input(i).rank() > 1 || (n.input(i).rank() == 1 && !n.input(i).shape[0].is(1)))
      return n.error() << "expects a scalar for input " << i << ", has rank " << n.input(i).rank();
    Tensor bound = n.input(i);
    if (bound.rank() == 1) { // a vector of one would raise the rank of a scalar
      FailureOr<Tensor> scalar = n.reshape(bound, {});
      if (failed(scalar))
        return failure();
      bound = *scalar;
    }
    operands.push_back(bound);
  }
  return setFormula(n, n.input(0).dtype, operands, [&](ArrayRef<Num> v) {
    Num x = v[0];
    size_t next = 1;
    if (n.hasInput(1))
      x = atLeast(x, v[next++]);
    return n.hasInput(2) ? atMost(x, v[next]) : x;
  });
}

LogicalResult importPRelu(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  if (n.input(1).rank() > n.input(0).rank())
    return n.error() << "expects a slope of rank at most " << n.input(0).rank() << ", has rank " << n.input(1).rank();
  Tensor slope = n.input(1);
  if (n.version() < 7 && slope.rank() == 1 && n.input(0).rank() > 1) { // one slope a channel
    SmallVector<Expr, 4> shape(n.input(0).rank() - 1, Expr(1));
    shape[0] = slope.shape[0];
    FailureOr<Tensor> upright = n.reshape(slope, shape);
    if (failed(upright))
      return failure();
    slope = *upright;
  }
  return setFormula(n, n.input(0).dtype, {n.input(0), slope},
                    [](ArrayRef<Num> v) { return select(v[0] < v[0].constant(0), v[1] * v[0], v[0]); });
}

LogicalResult importSwiGLU(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  double alpha = n.floatAttr("alpha", 1.0);
  return setFormula(n, n.input(0).dtype, {n.input(0), n.input(1)},
                    [&](ArrayRef<Num> v) { return v[0] * sigmoid(alpha * v[0]) * v[1]; });
}

} // namespace

void registerActivationOps(OpRegistry &registry) {
  for (const Unary &row : unaries)
    registry.add(row.name, row.versions, importUnary);
  registry.add("Clip", {1, 6}, importClip6);
  registry.add("Clip", {11, 12, 13}, importClip11);
  registry.add("PRelu", {1, 6, 7, 9, 16}, importPRelu);
  registry.add("SwiGLU", {28}, importSwiGLU);
}

} // namespace attn::onnx
