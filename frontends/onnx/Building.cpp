#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/State.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

RankedTensorType Node::type(DType dtype, ArrayRef<Expr> shape) {
  SmallVector<int64_t> sizes;
  for (const Expr &size : shape) {
    std::optional<int64_t> known = size.constant();
    if (known && (*known < 0 || *known > kMaxSize)) {
      error() << "a dimension of size " << *known << " is outside [0, " << kMaxSize << "]";
      known = 0;
    }
    sizes.push_back(known.value_or(ShapedType::kDynamic));
  }
  return RankedTensorType::get(sizes, elementType(builder().getContext(), dtype));
}

Value Node::empty(DType dtype, ArrayRef<Expr> shape) {
  SmallVector<Value> sizes;
  (void)requireShape(dtype, shape); // an error is remembered, and the node fails
  for (const Expr &size : shape)
    if (!size.constant())
      sizes.push_back(symbols().materialize(builder(), impl.loc, size));
  return tensor::EmptyOp::create(builder(), impl.loc, type(dtype, shape), sizes);
}

Value Node::constant(DType dtype, double value) {
  OpBuilder &b = builder();
  Type type = elementType(b.getContext(), dtype);
  if (isFloat(dtype))
    return arith::ConstantOp::create(b, impl.loc, b.getFloatAttr(type, value));
  return arith::ConstantOp::create(b, impl.loc, b.getIntegerAttr(type, static_cast<int64_t>(value)));
}

std::optional<Tensor> Node::uniformTensor(DType dtype, ArrayRef<Expr> shape, ArrayRef<char> bytes) {
  size_t size = dtypeBytes(dtype);
  if (bytes.size() < size || bytes.drop_front(size) != bytes.drop_back(size))
    return std::nullopt;
  return expand(impl.state.constant(impl.node.name, {dtype, {}, {bytes.take_front(size), nullptr}}, impl.loc), shape);
}

Value Node::filled(DType dtype, ArrayRef<Expr> shape, Value scalar) {
  return linalg::FillOp::create(builder(), impl.loc, ValueRange(scalar), ValueRange(empty(dtype, shape))).getResult(0);
}

FailureOr<int64_t> Node::axis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    return error() << "axis " << axis << " is outside [" << -rank << ", " << rank << ")", failure();
  return axis < 0 ? axis + rank : axis;
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

namespace {
/// An operand of a generic: an input with its map, or a scalar used in the body.
struct Operand {
  Value tensor;
  AffineMap map;
  Value scalar; // in the element type, outside of the body
  std::optional<Scalar> constant;
};
} // namespace

/// `value` (in an element type) as elementwise bodies see it.
static Value toBody(OpBuilder &b, Location loc, Value value, DType dtype) {
  if (dtype != DType::Bool)
    return value;
  Value zero = arith::ConstantOp::create(b, loc, b.getIntegerAttr(value.getType(), 0));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, value, zero);
}

static Value bodyConstant(OpBuilder &b, Location loc, const Scalar &scalar, DType dtype) {
  if (const double *value = std::get_if<double>(&scalar)) {
    Type type = elementType(b.getContext(), dtype);
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, *value));
  }
  int64_t value = *std::get<Expr>(scalar).constant();
  Type type = dtype == DType::Bool ? Type(b.getI1Type()) : elementType(b.getContext(), dtype);
  if (dtype == DType::Bool)
    return arith::ConstantOp::create(b, loc, b.getBoolAttr(value != 0));
  return arith::ConstantOp::create(b, loc,
                                   IntegerAttr::get(type, APInt(type.getIntOrFloatBitWidth(), value, true, true)));
}

/// `t` with a size of 1 where it is required to be.
static Tensor withUnitSizes(Node &node, const Tensor &t) {
  Tensor known = t;
  bool changed = false;
  for (Expr &size : known.shape)
    if (!size.constant() && node.symbols().isEqual(size, Expr(1)) == true) {
      size = Expr(1);
      changed = true;
    }
  if (!changed || t.scalar())
    return t;
  auto type = cast<RankedTensorType>(node.value(t).getType());
  SmallVector<int64_t> sizes(type.getShape());
  for (auto [n, size] : llvm::enumerate(known.shape))
    if (size.is(1))
      sizes[n] = 1;
  Type to = RankedTensorType::get(sizes, type.getElementType());
  known.value = tensor::CastOp::create(node.builder(), node.loc(), to, node.value(t));
  return known;
}

Tensor Node::stretch(const Tensor &t, ArrayRef<Expr> shape) {
  if (!impl.state.broadcastsInRun || t.scalar())
    return t;
  OpBuilder &b = builder();
  SmallVector<Value> isUnit(t.rank());
  Tensor wide = t;
  for (auto [n, size] : llvm::enumerate(wide.shape)) {
    if (size.is(1) || symbols().isEqual(size, shape[n]) == true)
      continue;
    isUnit[n] = arith::CmpIOp::create(b, impl.loc, arith::CmpIPredicate::eq, symbols().materialize(b, impl.loc, size),
                                      arith::ConstantIndexOp::create(b, impl.loc, 1));
    size = shape[n];
  }
  if (ArrayRef<Expr>(wide.shape) == ArrayRef<Expr>(t.shape))
    return t;
  Value source = value(t), zero = arith::ConstantIndexOp::create(b, impl.loc, 0);
  wide.elements.reset();
  wide.weight.clear();
  wide.value = generate(t.dtype, wide.shape, [&](OpBuilder &b, Location loc, ValueRange indices) -> Value {
    SmallVector<Value> from(indices);
    for (auto [index, unit] : llvm::zip_equal(from, isUnit))
      if (unit)
        index = arith::SelectOp::create(b, loc, unit, zero, index);
    return tensor::ExtractOp::create(b, loc, source, from);
  });
  return wide;
}

Value Node::elementwise(DType result, ArrayRef<Expr> shape, ArrayRef<Tensor> operands, ElementwiseBody body) {
  OpBuilder &b = builder();
  MLIRContext *context = b.getContext();
  Location loc = impl.loc;
  size_t rank = shape.size();
  SmallVector<Operand> prepared;
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (const Tensor &given : operands) {
    Operand operand;
    Tensor t = stretch(withUnitSizes(*this, given), shape.take_back(given.rank()));
    if (std::optional<Scalar> scalar = t.scalar()) {
      const Expr *expr = std::get_if<Expr>(&*scalar);
      if (!expr || expr->constant()) {
        operand.constant = scalar;
      } else {
        Value index = symbols().materialize(b, loc, *expr);
        operand.scalar = arith::IndexCastOp::create(b, loc, elementType(context, t.dtype), index);
      }
    } else {
      // Unit dimensions that are broadcast leave the operand and its map.
      SmallVector<Expr> kept;
      SmallVector<AffineExpr> dims;
      for (auto [n, size] : llvm::enumerate(t.shape)) {
        size_t dim = n + rank - t.shape.size();
        if (size.is(1) && !shape[dim].is(1))
          continue;
        kept.push_back(size);
        dims.push_back(getAffineDimExpr(dim, context));
      }
      Tensor view = t;
      if (kept.size() != t.shape.size())
        if (FailureOr<Tensor> collapsed = reshape(t, kept); succeeded(collapsed))
          view = *collapsed;
      operand.tensor = value(view);
      operand.map = AffineMap::get(rank, 0, dims, context);
      inputs.push_back(operand.tensor);
      maps.push_back(operand.map);
    }
    prepared.push_back(operand);
  }
  maps.push_back(AffineMap::getMultiDimIdentityMap(rank, context));
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  Value init = empty(result, shape);
  auto generic = linalg::GenericOp::create(
      b, loc, TypeRange(init.getType()), inputs, ValueRange(init), maps, iterators,
      [&](OpBuilder &b, Location loc, ValueRange arguments) {
        SmallVector<Value> scalars;
        size_t next = 0;
        for (auto [operand, t] : llvm::zip_equal(prepared, operands)) {
          if (operand.constant)
            scalars.push_back(bodyConstant(b, loc, *operand.constant, t.dtype));
          else
            scalars.push_back(toBody(b, loc, operand.scalar ? operand.scalar : arguments[next++], t.dtype));
        }
        Value value = body(b, loc, scalars);
        if (result == DType::Bool)
          value = arith::ExtUIOp::create(b, loc, b.getI8Type(), value);
        linalg::YieldOp::create(b, loc, value);
      });
  return generic.getResult(0);
}

Value Node::generate(DType result, ArrayRef<Expr> shape, ElementwiseBody body) {
  size_t rank = shape.size();
  Value init = empty(result, shape);
  SmallVector<AffineMap> maps = {AffineMap::getMultiDimIdentityMap(rank, builder().getContext())};
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  auto generic =
      linalg::GenericOp::create(builder(), impl.loc, TypeRange(init.getType()), ValueRange(), ValueRange(init), maps,
                                iterators, [&](OpBuilder &b, Location loc, ValueRange) {
                                  SmallVector<Value> indices;
                                  for (size_t dim = 0; dim < rank; ++dim)
                                    indices.push_back(linalg::IndexOp::create(b, loc, dim));
                                  linalg::YieldOp::create(b, loc, body(b, loc, indices));
                                });
  return generic.getResult(0);
}

Tensor Node::expand(const Tensor &t, ArrayRef<Expr> shape) {
  if (ArrayRef<Expr>(t.shape) == shape)
    return t;
  if (auto folded = foldElementwise(t.dtype, shape, {t}, [](ArrayRef<Scalar> in) { return in[0]; }))
    return *folded;
  Tensor result;
  result.dtype = t.dtype;
  result.shape.assign(shape.begin(), shape.end());
  if (std::optional<Scalar> scalar = t.scalar()) {
    const Expr *expr = std::get_if<Expr>(&*scalar);
    if (!expr || expr->constant()) {
      Value one = t.dtype == DType::Bool ? constant(t.dtype, !expr->is(0))
                                         : bodyConstant(builder(), impl.loc, *scalar, t.dtype);
      result.value = filled(t.dtype, shape, one);
      return result;
    }
  }
  // Bool passes through as it is stored.
  Tensor stored = t;
  if (t.dtype == DType::Bool)
    stored.dtype = DType::U8;
  result.value = elementwise(stored.dtype, shape, {stored},
                             [](OpBuilder &, Location, ValueRange arguments) { return arguments[0]; });
  return result;
}

Value Node::contract(DType result, ArrayRef<Expr> shape, const Tensor &a, const Tensor &b, ArrayRef<AffineMap> maps) {
  DType sum = result == DType::F16 || result == DType::BF16 ? DType::F32 : result;
  Value zero = filled(sum, shape, constant(sum, 0));
  Value product = linalg::ContractOp::create(builder(), impl.loc, ValueRange{value(a), value(b)}, ValueRange(zero),
                                             builder().getAffineMapArrayAttr(maps))
                      .getResult(0);
  if (sum == result)
    return product;
  Tensor wide;
  wide.dtype = sum;
  wide.shape.assign(shape.begin(), shape.end());
  wide.value = product;
  return value(cast(wide, result));
}
