#include "frontends/onnx/ops/Formula.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn::onnx {

/// The element as a constant, or nothing when it is an open expression.
static std::optional<Num> constantElement(OpBuilder &b, Location loc, DType dtype, const Scalar &element) {
  if (auto *d = std::get_if<double>(&element))
    return constantNum(b, loc, dtype, *d);
  std::optional<int64_t> i = std::get<Expr>(element).constant();
  if (!i)
    return std::nullopt;
  return constantNum(b, loc, dtype, *i);
}

static std::optional<Scalar> elementOf(const Num &x) {
  if (isNarrow(x.dtype()))
    return std::nullopt; // its value is not its element's
  FloatAttr f;
  if (matchPattern(x.value(), m_Constant(&f)))
    return Scalar(f.getValueAsDouble());
  IntegerAttr i;
  if (!matchPattern(x.value(), m_Constant(&i)))
    return std::nullopt;
  return Scalar(Expr(isSigned(x.dtype()) ? i.getValue().getSExtValue() : int64_t(i.getValue().getZExtValue())));
}

static Num compute(llvm::ArrayRef<Num> arguments, DType result, Formula body) {
  SmallVector<Num> wide;
  for (const Num &x : arguments)
    wide.push_back(convert(x, computeDType(x.dtype())));
  return convert(body(wide), result);
}

/// The formula run on constants, in a block that is thrown away.
static std::optional<Scalar> evaluate(Node &n, DType result, ArrayRef<Tensor> operands, ArrayRef<Scalar> elements,
                                      Formula body) {
  Block scratch;
  OpBuilder b(n.builder().getContext());
  b.setInsertionPointToEnd(&scratch);
  SmallVector<Num> arguments;
  for (auto [t, element] : llvm::zip_equal(operands, elements)) {
    std::optional<Num> x = constantElement(b, n.loc(), t.dtype, element);
    if (!x)
      return std::nullopt;
    arguments.push_back(*x);
  }
  return elementOf(compute(arguments, result, body));
}

FailureOr<Tensor> formula(Node &n, DType result, ArrayRef<Tensor> operands, Formula body, SymbolicFormula symbolic) {
  SmallVector<ArrayRef<Expr>> shapes;
  for (const Tensor &t : operands)
    shapes.push_back(t.shape);
  FailureOr<SmallVector<Expr>> shape = n.broadcast(shapes);
  if (failed(shape))
    return failure();
  auto fold = [&](ArrayRef<Scalar> elements) -> std::optional<Scalar> {
    std::optional<Scalar> constant = evaluate(n, result, operands, elements, body);
    return constant || !symbolic ? constant : symbolic(elements);
  };
  if (std::optional<Tensor> folded = n.foldElementwise(result, *shape, operands, fold))
    return *folded;
  auto build = [&](OpBuilder &b, Location loc, ValueRange values) -> Value {
    SmallVector<Num> arguments;
    for (auto [t, value] : llvm::zip_equal(operands, values))
      arguments.push_back(Num(b, loc, t.dtype, value));
    return compute(arguments, result, body).value();
  };
  Tensor out;
  out.dtype = result;
  out.shape.assign(shape->begin(), shape->end());
  out.value = n.elementwise(result, *shape, operands, build);
  return out;
}

LogicalResult setFormula(Node &n, DType result, ArrayRef<Tensor> operands, Formula body, SymbolicFormula symbolic) {
  FailureOr<Tensor> out = formula(n, result, operands, body, symbolic);
  if (failed(out))
    return failure();
  n.setOutput(0, *out);
  return success();
}

Tensor scalarTensor(DType dtype, Scalar value) {
  Tensor t;
  t.dtype = dtype;
  t.elements = SmallVector<Scalar, 4>{std::move(value)};
  return t;
}

LogicalResult expectInputs(Node &n, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (!n.hasInput(i))
      return n.error() << "expects " << count << " inputs, input " << i << " is missing";
  return success();
}

LogicalResult expectFloat(Node &n, size_t i) {
  if (!isFloat(n.input(i).dtype))
    return n.error() << "expects a float type for input " << i << ", has " << dtypeName(n.input(i).dtype);
  return success();
}

LogicalResult expectSameDType(Node &n, size_t i, size_t j) {
  if (n.input(i).dtype != n.input(j).dtype)
    return n.error() << "expects inputs " << i << " and " << j << " of one type, has " << dtypeName(n.input(i).dtype)
                     << " and " << dtypeName(n.input(j).dtype);
  return success();
}

} // namespace attn::onnx
