#include "dialects/attn/WeightStore.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/State.h"
#include "frontends/onnx/ops/Narrow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

/// Whether a scalar may be an element of dtype: rounds floats in place.
static bool fits(Scalar &scalar, DType dtype) {
  if (double *value = std::get_if<double>(&scalar)) {
    if (!isFloat(dtype))
      return false;
    *value = roundTo(dtype, *value);
    return true;
  }
  const Expr &expr = std::get<Expr>(scalar);
  if (isFloat(dtype) || expr.overflowed())
    return false;
  // Shapes stay far from the ends of their types; only constants are checked.
  char bytes[8];
  return !expr.constant() || writeScalar(scalar, dtype, bytes);
}

std::optional<Tensor> Node::foldElementwise(DType result, ArrayRef<Expr> shape, ArrayRef<Tensor> operands,
                                            function_ref<std::optional<Scalar>(ArrayRef<Scalar>)> fn) {
  SmallVector<int64_t> sizes;
  for (const Expr &size : shape) {
    if (!size.constant())
      return std::nullopt;
    sizes.push_back(*size.constant());
  }
  std::optional<int64_t> count = checkedElements(sizes);
  if (!count || *count > int64_t(Tensor::kMaxElements) ||
      llvm::any_of(operands, [](const Tensor &t) { return !t.elements; }))
    return std::nullopt;

  Tensor folded;
  folded.dtype = result;
  folded.shape.assign(shape.begin(), shape.end());
  folded.elements.emplace();
  SmallVector<int64_t> index(sizes.size());
  for (int64_t at = 0; at < *count; ++at) {
    int64_t rest = at;
    for (int64_t dim = sizes.size() - 1; dim >= 0; rest /= sizes[dim--])
      index[dim] = rest % sizes[dim];
    SmallVector<Scalar> scalars;
    for (const Tensor &t : operands) {
      int64_t position = 0, lead = sizes.size() - t.shape.size();
      for (auto [dim, size] : llvm::enumerate(t.shape))
        position = position * *size.constant() + (size.is(1) ? 0 : index[dim + lead]);
      scalars.push_back((*t.elements)[position]);
    }
    std::optional<Scalar> value = fn(scalars);
    if (!value || !fits(*value, result))
      return std::nullopt;
    folded.elements->push_back(std::move(*value));
  }
  return folded;
}

//===----------------------------------------------------------------------===//
// Cast
//===----------------------------------------------------------------------===//

/// The cast of one known element; nullopt where only the run can tell, or where
/// ONNX leaves the result open.
static std::optional<Scalar> castKnown(const Scalar &scalar, DType to, Symbols &symbols) {
  if (const double *value = std::get_if<double>(&scalar)) {
    if (isFloat(to))
      return scalar;
    if (to == DType::Bool)
      return Scalar(Expr(*value != 0));
    if (!std::isfinite(*value) || std::fabs(*value) >= 9.2e18)
      return std::nullopt;
    return Scalar(Expr(static_cast<int64_t>(*value)));
  }
  const Expr &expr = std::get<Expr>(scalar);
  if (to == DType::Bool)
    return Scalar(Expr(1) - symbols.equal(expr, Expr(0)));
  if (!isFloat(to))
    return scalar;
  std::optional<int64_t> constant = expr.constant();
  return constant ? std::optional<Scalar>(static_cast<double>(*constant)) : std::nullopt;
}

static Value integerToInteger(OpBuilder &b, Location loc, Value value, DType from, DType to) {
  Type type = elementType(b.getContext(), to);
  unsigned have = value.getType().getIntOrFloatBitWidth(), want = type.getIntOrFloatBitWidth();
  if (have == want)
    return value;
  if (have > want)
    return b.createOrFold<arith::TruncIOp>(loc, type, value);
  if (isSigned(from))
    return b.createOrFold<arith::ExtSIOp>(loc, type, value);
  return b.createOrFold<arith::ExtUIOp>(loc, type, value);
}

Value Node::castScalar(OpBuilder &b, Location loc, Value value, DType from, DType to) {
  if (from == to)
    return value;
  if (isNarrow(from)) {
    Num wide = widened(Num(b, loc, from, value));
    return castScalar(b, loc, wide.value(), wide.dtype(), to);
  }
  if (isNarrow(to))
    return narrowed(Num(b, loc, from, value), to, /*saturate=*/true).value();
  if (to == DType::Bool) {
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(value.getType()));
    if (isFloat(from))
      return b.createOrFold<arith::CmpFOp>(loc, arith::CmpFPredicate::UNE, value, zero);
    return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::ne, value, zero);
  }
  Type type = elementType(b.getContext(), to);
  if (isFloat(from) && isFloat(to)) {
    unsigned have = value.getType().getIntOrFloatBitWidth(), want = type.getIntOrFloatBitWidth();
    if (have == want) { // f16 and bf16: through f32
      value = b.createOrFold<arith::ExtFOp>(loc, b.getF32Type(), value);
      return b.createOrFold<arith::TruncFOp>(loc, type, value);
    }
    if (have < want)
      return b.createOrFold<arith::ExtFOp>(loc, type, value);
    return b.createOrFold<arith::TruncFOp>(loc, type, value);
  }
  if (isFloat(to)) {
    if (isSigned(from))
      return b.createOrFold<arith::SIToFPOp>(loc, type, value);
    return b.createOrFold<arith::UIToFPOp>(loc, type, value);
  }
  if (isFloat(from)) {
    if (to == DType::U64)
      return b.createOrFold<arith::FPToUIOp>(loc, type, value);
    // Narrow and unsigned types wrap, as in NumPy on x86: by way of 64 bits.
    value = b.createOrFold<arith::FPToSIOp>(loc, b.getI64Type(), value);
    return integerToInteger(b, loc, value, DType::I64, to);
  }
  return integerToInteger(b, loc, value, from, to);
}

Tensor Node::cast(const Tensor &t, DType to) {
  if (t.dtype == to)
    return t;
  auto known = [&](ArrayRef<Scalar> in) { return castKnown(in[0], to, symbols()); };
  if (!isNarrow(t.dtype) && !isNarrow(to))
    if (auto folded = foldElementwise(to, t.shape, {t}, known))
      return *folded;
  Tensor result;
  result.dtype = to;
  result.shape = t.shape;
  result.value = elementwise(to, t.shape, {t}, [&](OpBuilder &b, Location loc, ValueRange arguments) {
    return castScalar(b, loc, arguments[0], t.dtype, to);
  });
  return result;
}

/// Elements of `width` bytes of a tensor of `shape`, in the order of its transpose.
static std::vector<char> transposed(ArrayRef<char> bytes, ArrayRef<int64_t> shape, ArrayRef<int64_t> permutation,
                                    int64_t width) {
  size_t rank = shape.size();
  SmallVector<int64_t> strides(rank, 1), index(rank, 0);
  for (size_t dim = rank; dim > 1; --dim)
    strides[dim - 2] = strides[dim - 1] * shape[dim - 1];
  std::vector<char> result(bytes.size());
  int64_t from = 0;
  for (size_t at = 0; at < result.size(); at += width) {
    std::memcpy(result.data() + at, bytes.data() + from * width, width);
    for (size_t dim = rank; dim-- > 0;) { // of the result
      from += strides[permutation[dim]];
      if (++index[dim] != shape[permutation[dim]])
        break;
      from -= index[dim] * strides[permutation[dim]];
      index[dim] = 0;
    }
  }
  return result;
}

std::optional<std::vector<char>> Node::weightBytes(const Tensor &t) const {
  std::optional<std::vector<char>> bytes;
  if (t.weight.empty())
    return bytes;
  // From the weight itself on.
  SmallVector<GlobalOp> chain;
  FlatSymbolRefAttr next = FlatSymbolRefAttr::get(impl.state.module.getContext(), t.weight);
  while (next) {
    auto global = impl.state.module.lookupSymbol<GlobalOp>(next.getAttr());
    if (!global)
      return bytes;
    chain.push_back(global);
    auto transpose = dyn_cast<TransposeAttr>(global.getExpression());
    auto reshape = dyn_cast<ReshapeAttr>(global.getExpression());
    next = transpose ? transpose.getSource() : reshape ? reshape.getSource() : FlatSymbolRefAttr();
  }
  auto typeOf = [](GlobalOp global) { return ::llvm::cast<RankedTensorType>(global.getType()); };
  auto initializer = dyn_cast<InitializerAttr>(chain.back().getExpression());
  ArrayRef<char> stored = initializer ? impl.state.weights.lookup(initializer.getName()) : ArrayRef<char>();
  int64_t width = dtypeBytes(t.dtype);
  if (stored.empty() || static_cast<int64_t>(stored.size()) != width * typeOf(chain.back()).getNumElements())
    return bytes;
  bytes.emplace(stored.begin(), stored.end());
  for (size_t n = chain.size() - 1; n-- > 0;)
    if (auto transpose = dyn_cast<TransposeAttr>(chain[n].getExpression()))
      bytes = transposed(*bytes, typeOf(chain[n + 1]).getShape(), transpose.getPermutation(), width);
  return bytes;
}
