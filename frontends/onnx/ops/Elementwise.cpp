#include "dialects/attn/Rounding.h"
#include "frontends/onnx/Payload.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Narrow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/StringSwitch.h"

// Operators of two and more operands, comparison, selection and conversion.

using namespace mlir;

namespace attn::onnx {
namespace {

//===----------------------------------------------------------------------===//
// Two operands
//===----------------------------------------------------------------------===//

enum class Domain { Number, Integer, Bool, Any };

struct Binary {
  const char *name;
  std::initializer_list<int> versions;
  Domain domain;
  bool variadic;
  bool predicate; ///< result is bool
  Num (*formula)(const Num &, const Num &);
  /// The same on open expressions, or null.
  Expr (*symbolic)(Symbols &, const Expr &, const Expr &);
};

using S = Symbols;
using E = const Expr;
constexpr Domain Number = Domain::Number, Bool = Domain::Bool, Integer = Domain::Integer, Any = Domain::Any;

const Binary binaries[] = {
    {"Add",
     {1, 6, 7, 13, 14},
     Number,
     false,
     false,
     [](const Num &x, const Num &y) { return x + y; },
     [](S &, E &a, E &b) { return a + b; }},
    {"Sub",
     {1, 6, 7, 13, 14},
     Number,
     false,
     false,
     [](const Num &x, const Num &y) { return x - y; },
     [](S &, E &a, E &b) { return a - b; }},
    {"Mul",
     {1, 6, 7, 13, 14},
     Number,
     false,
     false,
     [](const Num &x, const Num &y) { return x * y; },
     [](S &, E &a, E &b) { return a * b; }},
    {"Div",
     {1, 6, 7, 13, 14},
     Number,
     false,
     false,
     [](const Num &x, const Num &y) { return x / y; },
     [](S &s, E &a, E &b) { return b.is(0) ? Expr(0) : s.truncDiv(a, b); }},
    {"Sum",
     {1, 6, 8, 13},
     Number,
     true,
     false,
     [](const Num &x, const Num &y) { return x + y; },
     [](S &, E &a, E &b) { return a + b; }},
    {"Min",
     {1, 6, 8, 12, 13},
     Number,
     true,
     false,
     [](const Num &x, const Num &y) { return minimum(x, y); },
     [](S &s, E &a, E &b) { return s.min(a, b); }},
    {"Max",
     {1, 6, 8, 12, 13},
     Number,
     true,
     false,
     [](const Num &x, const Num &y) { return maximum(x, y); },
     [](S &s, E &a, E &b) { return s.max(a, b); }},
    {"And",
     {1, 7},
     Bool,
     false,
     false,
     [](const Num &x, const Num &y) { return x & y; },
     [](S &, E &a, E &b) { return a * b; }},
    {"Or",
     {1, 7},
     Bool,
     false,
     false,
     [](const Num &x, const Num &y) { return x | y; },
     [](S &, E &a, E &b) { return a + b - a * b; }},
    {"Xor",
     {1, 7},
     Bool,
     false,
     false,
     [](const Num &x, const Num &y) { return x ^ y; },
     [](S &s, E &a, E &b) { return Expr(1) - s.equal(a, b); }},
    {"BitwiseAnd", {18}, Integer, false, false, [](const Num &x, const Num &y) { return x & y; }, nullptr},
    {"BitwiseOr", {18}, Integer, false, false, [](const Num &x, const Num &y) { return x | y; }, nullptr},
    {"BitwiseXor", {18}, Integer, false, false, [](const Num &x, const Num &y) { return x ^ y; }, nullptr},
    {"Equal",
     {1, 7, 11, 13, 19},
     Any,
     false,
     true,
     [](const Num &x, const Num &y) { return x == y; },
     [](S &s, E &a, E &b) { return s.equal(a, b); }},
    {"Less",
     {1, 7, 9, 13},
     Number,
     false,
     true,
     [](const Num &x, const Num &y) { return x < y; },
     [](S &s, E &a, E &b) { return s.less(a, b); }},
    {"LessOrEqual",
     {12, 16},
     Number,
     false,
     true,
     [](const Num &x, const Num &y) { return x <= y; },
     [](S &s, E &a, E &b) { return Expr(1) - s.less(b, a); }},
    {"Greater",
     {1, 7, 9, 13},
     Number,
     false,
     true,
     [](const Num &x, const Num &y) { return x > y; },
     [](S &s, E &a, E &b) { return s.less(b, a); }},
    {"GreaterOrEqual",
     {12, 16},
     Number,
     false,
     true,
     [](const Num &x, const Num &y) { return x >= y; },
     [](S &s, E &a, E &b) { return Expr(1) - s.less(a, b); }},
};

LogicalResult expectDomain(Node &n, Domain domain) {
  DType dtype = n.input(0).dtype;
  bool isBool = dtype == DType::Bool;
  const char *expected = nullptr;
  if (domain == Domain::Number && isBool)
    expected = "numbers";
  else if (domain == Domain::Integer && (isBool || isFloat(dtype)))
    expected = "integers";
  else if (domain == Domain::Bool && !isBool)
    expected = "bool";
  if (expected)
    return n.error() << "expects " << expected << ", has " << dtypeName(dtype);
  return success();
}

/// Before opset 7 the second operand is broadcast on demand, and may then be
/// aligned with the dimensions of the first from `axis` on.
FailureOr<Tensor> legacyOperand(Node &n, const Tensor &x, const Tensor &y) {
  if (!n.intAttr("broadcast", 0)) {
    if (x.rank() != y.rank())
      return n.error() << "expects operands of one rank, has ranks " << x.rank() << " and " << y.rank();
    return y;
  }
  int64_t axis = n.intAttr("axis", x.rank() - y.rank()), behind = x.rank() - axis - y.rank();
  if (!n.hasAttr("axis") || behind == 0)
    return y;
  if (axis < 0 || behind < 0)
    return n.error() << "aligns an operand of rank " << y.rank() << " with dimension " << axis << " of one of rank "
                     << x.rank();
  SmallVector<Expr, 4> shape(y.shape);
  shape.append(behind, Expr(1));
  return n.reshape(y, shape);
}

/// All inputs, of one dtype.
FailureOr<std::vector<Tensor>> sameInputs(Node &n, size_t atLeast) {
  if (failed(expectInputs(n, std::max(atLeast, n.numInputs()))))
    return failure();
  std::vector<Tensor> operands;
  for (size_t i = 0; i < n.numInputs(); ++i) {
    if (failed(expectSameDType(n, 0, i)))
      return failure();
    operands.push_back(n.input(i));
  }
  return operands;
}

LogicalResult importBinary(Node &n) {
  const Binary *row = llvm::find_if(binaries, [&](const Binary &b) { return n.opType() == b.name; });
  FailureOr<std::vector<Tensor>> operands = sameInputs(n, row->variadic ? 1 : 2);
  if (failed(operands) || failed(expectDomain(n, row->domain)))
    return failure();
  if (!row->variadic && operands->size() != 2)
    return n.error() << "expects 2 inputs, has " << operands->size();
  if (n.version() < 7 && !row->variadic) {
    FailureOr<Tensor> aligned = legacyOperand(n, operands->front(), operands->back());
    if (failed(aligned))
      return failure();
    operands->back() = *aligned;
  }
  DType result = row->predicate ? DType::Bool : n.input(0).dtype;
  auto symbolic = [&](ArrayRef<Scalar> v) -> std::optional<Scalar> {
    if (!row->symbolic || !std::holds_alternative<Expr>(v[0]))
      return std::nullopt;
    Expr value = std::get<Expr>(v[0]);
    for (const Scalar &next : v.drop_front())
      value = row->symbolic(n.symbols(), value, std::get<Expr>(next));
    return Scalar(value);
  };
  auto emit = [&](ArrayRef<Num> v) {
    Num value = v[0];
    for (const Num &next : v.drop_front())
      value = row->formula(value, next);
    return value;
  };
  return setFormula(n, result, *operands, emit, symbolic);
}

LogicalResult importMean(Node &n) {
  FailureOr<std::vector<Tensor>> operands = sameInputs(n, 1);
  if (failed(operands) || failed(expectFloat(n, 0)))
    return failure();
  return setFormula(n, n.input(0).dtype, *operands, [&](ArrayRef<Num> v) {
    Num sum = v[0];
    for (size_t i = 1; i < v.size(); ++i)
      sum = sum + v[i];
    return sum / double(v.size());
  });
}

/// Remainder with the sign of the dividend (C) or of the divisor (Python).
/// x mod 0 is 0 on integers.
Num remainder(const Num &x, const Num &y, bool signOfDividend) {
  Num zero = x.constant(0);
  Num r = x;
  if (x.isFloating())
    r = x.make<arith::RemFOp>(x.value(), y.value());
  else
    r = select(y == zero, zero, x - (x / y) * y);
  if (signOfDividend || (!x.isFloating() && !isSigned(x.dtype())))
    return r;
  Num opposite = (r != zero) & ((r < zero) ^ (y < zero));
  return select(opposite, r + y, x.isFloating() ? select(r == zero, copySign(zero, y), r) : r);
}

LogicalResult importMod(Node &n) {
  FailureOr<std::vector<Tensor>> operands = sameInputs(n, 2);
  if (failed(operands) || failed(expectDomain(n, Number)))
    return failure();
  bool fmod = n.intAttr("fmod", 0) != 0, integers = !isFloat(n.input(0).dtype);
  if (!integers && !fmod && n.version() < 28)
    return n.error() << "expects fmod = 1 for " << dtypeName(n.input(0).dtype) << ", has 0";
  auto symbolic = [&](ArrayRef<Scalar> v) -> std::optional<Scalar> {
    if (!integers || fmod || std::get<Expr>(v[1]).is(0))
      return std::nullopt;
    return Scalar(n.symbols().mod(std::get<Expr>(v[0]), std::get<Expr>(v[1])));
  };
  return setFormula(
      n, n.input(0).dtype, *operands, [&](ArrayRef<Num> v) { return remainder(v[0], v[1], fmod); }, symbolic);
}

LogicalResult importPow(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  DType base = n.input(0).dtype, exponent = n.input(1).dtype;
  if (base == DType::Bool || exponent == DType::Bool)
    return n.error() << "expects numbers, has " << dtypeName(base) << " and " << dtypeName(exponent);
  FailureOr<Tensor> power = n.input(1);
  if (n.version() < 7)
    power = legacyOperand(n, n.input(0), *power);
  if (failed(power))
    return failure();
  return setFormula(n, base, {n.input(0), *power}, [&](ArrayRef<Num> v) {
    if (v[0].isFloating())
      return pow(v[0], convert(v[1], v[0].dtype()));
    if (!v[1].isFloating())
      return pow(v[0], v[1]);
    return pow(convert(v[0], DType::F64), convert(v[1], DType::F64));
  });
}

Num shift(const Num &x, const Num &y, bool left) {
  Num bits = y.constant(int64_t(x.bits())), zero = x.constant(0);
  Num inside = y < bits;
  if (isSigned(y.dtype()))
    inside = inside & (y >= y.constant(0));
  Num amount = select(inside, y, y.constant(0));
  if (left)
    return select(inside, x << amount, zero);
  if (!isSigned(x.dtype()))
    return select(inside, x >> amount, zero);
  return select(inside, x.make<arith::ShRSIOp>(x.value(), amount), select(x < zero, x.constant(-1), zero));
}

LogicalResult importBitShift(Node &n) {
  FailureOr<std::vector<Tensor>> operands = sameInputs(n, 2);
  if (failed(operands) || failed(expectDomain(n, Integer)))
    return failure();
  std::string direction = n.stringAttr("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    return n.error() << "expects direction LEFT or RIGHT, has '" << direction << "'";
  return setFormula(n, n.input(0).dtype, *operands,
                    [&](ArrayRef<Num> v) { return shift(v[0], v[1], direction == "LEFT"); });
}

//===----------------------------------------------------------------------===//
// Where, Cast
//===----------------------------------------------------------------------===//

LogicalResult importWhere(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectSameDType(n, 1, 2)))
    return failure();
  if (n.input(0).dtype != DType::Bool)
    return n.error() << "expects a bool condition, has " << dtypeName(n.input(0).dtype);
  std::vector<Tensor> operands{n.input(0), n.input(1), n.input(2)};
  auto symbolic = [&](ArrayRef<Scalar> v) -> std::optional<Scalar> {
    const Expr &condition = std::get<Expr>(v[0]);
    if (std::optional<int64_t> known = condition.constant())
      return v[*known ? 1 : 2];
    if (!std::holds_alternative<Expr>(v[1]))
      return v[1] == v[2] ? std::optional<Scalar>(v[1]) : std::nullopt;
    return Scalar(n.symbols().select(condition, std::get<Expr>(v[1]), std::get<Expr>(v[2])));
  };
  return setFormula(n, n.input(1).dtype, operands, [](ArrayRef<Num> v) { return select(v[0], v[1], v[2]); }, symbolic);
}

LogicalResult castTo(Node &n, DType to) {
  std::string mode = n.stringAttr("round_mode", "up");
  std::optional<PowerRounding> rounding = llvm::StringSwitch<std::optional<PowerRounding>>(mode)
                                              .Case("up", PowerRounding::up)
                                              .Case("down", PowerRounding::down)
                                              .Case("nearest", PowerRounding::nearest)
                                              .Default(std::nullopt);
  if (!rounding)
    return n.error() << "expects round_mode up, down or nearest, has '" << mode << "'";
  bool saturate = n.intAttr("saturate", 1);
  bool isUsual = saturate && (to != DType::F8E8M0 || rounding == PowerRounding::up);
  if (isNarrowFloat(to) && !isUsual && n.input(0).dtype != to)
    return setFormula(n, to, n.input(0), [&](ArrayRef<Num> v) { return narrowed(v[0], to, saturate, *rounding); });
  Tensor cast = n.cast(n.input(0), to);
  auto op = cast.value && n.input(0).dtype != to ? cast.value.getDefiningOp<linalg::GenericOp>() : nullptr;
  if (op && (to == DType::F16 || to == DType::BF16))
    op->setAttr(kRoundsAttr, UnitAttr::get(op.getContext()));
  n.setOutput(0, cast);
  return success();
}

/// That no tensor here has the type that attribute `to` names.
LogicalResult refuseTarget(Node &n) {
  int64_t to = n.intAttr("to", 0);
  std::string name = dataTypeName(to);
  return n.unsupported() << "target type " << (name.empty() ? std::to_string(to) : name);
}

LogicalResult importCast(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  std::optional<DType> to = dtypeFromProto(n.intAttr("to", 0));
  if (!to)
    return refuseTarget(n);
  return castTo(n, *to);
}

LogicalResult importCastLike(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  return castTo(n, n.input(1).dtype);
}

LogicalResult importBitCast(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  std::optional<DType> to = dtypeFromProto(n.intAttr("to", 0));
  if (!to)
    return refuseTarget(n);
  const Tensor &x = n.input(0);
  MLIRContext *context = n.builder().getContext();
  Type from = elementType(context, x.dtype), type = elementType(context, *to);
  if (from.getIntOrFloatBitWidth() != type.getIntOrFloatBitWidth())
    return n.error() << "expects types of one width, has " << dtypeName(x.dtype) << " and " << dtypeName(*to);
  auto bits = [&](OpBuilder &b, Location loc, ValueRange v) -> Value {
    if (x.dtype == DType::Bool || *to == DType::Bool)
      return convert(Num(b, loc, x.dtype, v[0]), *to).value();
    return b.createOrFold<arith::BitcastOp>(loc, type, v[0]);
  };
  n.setOutput(0, n.elementwise(*to, x.shape, x, bits), *to, x.shape);
  return success();
}

} // namespace

void registerElementwiseOps(OpRegistry &registry) {
  registerActivationOps(registry);
  for (const Binary &row : binaries)
    registry.add(row.name, row.versions, importBinary);
  registry.add("Mean", {1, 6, 8, 13}, importMean);
  registry.add("Mod", {10, 13, 28}, importMod);
  registry.add("Pow", {1, 7, 12, 13, 15}, importPow);
  registry.add("BitShift", {11, 28}, importBitShift);
  registry.add("Where", {9, 16}, importWhere);
  registry.add("Cast", {6, 9, 13, 19, 21, 23, 24, 25, 28}, importCast);
  registry.add("CastLike", {15, 19, 21, 23, 24, 25}, importCastLike);
  registry.add("BitCast", {26}, importBitCast);
}

} // namespace attn::onnx
