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

Value Node::filled(DType dtype, ArrayRef<Expr> shape, Value scalar) {
  return linalg::FillOp::create(builder(), impl.loc, ValueRange(scalar), ValueRange(empty(dtype, shape))).getResult(0);
}

FailureOr<int64_t> Node::axis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    return error() << "axis " << axis << " is outside [" << -rank << ", " << rank << ")", failure();
  return axis < 0 ? axis + rank : axis;
}

//===----------------------------------------------------------------------===//
// Requirements
//===----------------------------------------------------------------------===//

static void emitRequire(Node &node, Value condition, StringRef message, ArrayRef<Value> values,
                        bool unsupported = false) {
  OpBuilder &b = node.builder();
  RequireOp::create(b, node.loc(), condition, b.getStringAttr(node.describe() + ": " + message.str()), values,
                    unsupported);
}

/// The message with its values in place, for a requirement that fails now.
static std::string substitute(StringRef message, ArrayRef<std::string> values) {
  std::string text = message.str();
  for (auto [n, value] : llvm::enumerate(values)) {
    std::string place = "{" + std::to_string(n) + "}";
    for (size_t at = 0; (at = text.find(place, at)) != std::string::npos; at += value.size())
      text.replace(at, place.size(), value);
  }
  return text;
}

/// The message with what sizes are made of: "{0} ('sequence')".
static std::string nameSizes(const Symbols &symbols, StringRef message, ArrayRef<Expr> sizes) {
  std::vector<std::string> places;
  for (auto [n, size] : llvm::enumerate(sizes)) {
    std::string name = size.constant() ? "" : symbols.outputName(size);
    places.push_back("{" + std::to_string(n) + "}" + (name.empty() ? "" : " ('" + printableName(name) + "')"));
  }
  return substitute(message, places);
}

/// Whether `a` is computed from what the run reads, and may have wrapped.
static bool mayWrap(Node &node, const Expr &a) {
  bool atom = a.getTerms().size() == 1 && a.getTerms().begin()->first.size() == 1;
  return !atom && node.symbols().mayExceed(a, kMaxSize);
}

/// Emits the comparison of a and b as a requirement.
static void requireCompare(Node &node, arith::CmpIPredicate predicate, const Expr &a, const Expr &b,
                           StringRef message) {
  OpBuilder &builder = node.builder();
  Location loc = node.loc();
  Symbols &symbols = node.symbols();
  Value x = symbols.materialize(builder, loc, a), y = symbols.materialize(builder, loc, b);
  Value holds = arith::CmpIOp::create(builder, loc, predicate, x, y);
  if (predicate == arith::CmpIPredicate::sle && (mayWrap(node, a) || mayWrap(node, b))) {
    // What wrapped is far from its estimate, which is exact but for large numbers.
    Value slack = arith::ConstantOp::create(builder, loc, builder.getF64FloatAttr(0x1p32));
    Value above = arith::AddFOp::create(builder, loc, symbols.estimate(builder, loc, b), slack);
    Value near =
        arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLE, symbols.estimate(builder, loc, a), above);
    holds = arith::AndIOp::create(builder, loc, holds, near);
  }
  emitRequire(node, holds, nameSizes(symbols, message, {a, b}), {x, y});
}

LogicalResult Node::requireEqual(const Expr &a, const Expr &b, StringRef message) {
  std::optional<bool> same = symbols().isEqual(a, b);
  if (same == true)
    return success();
  if (same == false || a.overflowed() || b.overflowed())
    return error() << substitute(message, {symbols().print(a), symbols().print(b)}), failure();
  requireCompare(*this, arith::CmpIPredicate::eq, a, b, message);
  symbols().assumeEqual(a, b);
  return success();
}

LogicalResult Node::requireDifferent(const Expr &a, const Expr &b, StringRef message) {
  std::optional<bool> same = symbols().isEqual(a, b);
  if (same == false)
    return success();
  if (same == true || a.overflowed() || b.overflowed())
    return error() << substitute(message, {symbols().print(a), symbols().print(b)}), failure();
  requireCompare(*this, arith::CmpIPredicate::ne, a, b, message);
  return success();
}

LogicalResult Node::requireAtMost(const Expr &a, const Expr &b, StringRef message) {
  std::optional<bool> more = symbols().isLess(b, a);
  if (more == false)
    return success();
  if (more == true || a.overflowed() || b.overflowed())
    return error() << substitute(message, {symbols().print(a), symbols().print(b)}), failure();
  requireCompare(*this, arith::CmpIPredicate::sle, a, b, message);
  return success();
}

/// The estimate as an integer for a message: what is beyond 64 bits is their end.
static Value toReport(OpBuilder &b, Location loc, Value estimate) {
  Value bound = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(9.2e18));
  Value low = arith::NegFOp::create(b, loc, bound);
  Value fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, estimate, bound);
  estimate = arith::SelectOp::create(b, loc, fits, estimate, bound);
  fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, estimate, low);
  estimate = arith::SelectOp::create(b, loc, fits, estimate, low);
  Value integer = arith::FPToSIOp::create(b, loc, b.getI64Type(), estimate);
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), integer);
}

void Node::require(Value condition, StringRef message) { emitRequire(*this, condition, message, {}); }

LogicalResult Node::requireFits(const Expr &a, StringRef message) {
  if (a.overflowed())
    return error() << substitute(message, {symbols().print(a)}), failure();
  if (!symbols().mayExceed(a, INT64_MAX - 1))
    return success();
  OpBuilder &b = builder();
  Value estimate = symbols().estimate(b, impl.loc, a), size = math::AbsFOp::create(b, impl.loc, estimate);
  Value limit = arith::ConstantOp::create(b, impl.loc, b.getF64FloatAttr(9.2e18));
  emitRequire(*this, arith::CmpFOp::create(b, impl.loc, arith::CmpFPredicate::OLE, size, limit), message,
              {toReport(b, impl.loc, estimate)});
  return success();
}

LogicalResult Node::requireShape(DType dtype, ArrayRef<Expr> shape) {
  SmallVector<int64_t> known;
  bool open = false;
  for (const Expr &size : shape) {
    std::optional<int64_t> constant = size.constant();
    if (size.overflowed() || (constant && *constant < 0))
      return error() << "a result has a dimension of size " << symbols().print(size), failure();
    if (constant)
      known.push_back(*constant);
    open |= symbols().mayExceed(size, kMaxSize);
  }
  if (!checkedBytes(known, dtypeBytes(dtype))) {
    std::string sizes;
    for (const Expr &size : shape)
      sizes += (sizes.empty() ? "" : "x") + symbols().print(size);
    return error() << "a result of shape " << sizes << " is larger than the limit of " << kMaxTensorBytes << " bytes",
           failure();
  }
  if (!open)
    return success();

  OpBuilder &b = builder();
  Location loc = impl.loc;
  auto number = [&](double value) -> Value { return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(value)); };
  auto within = [&](Value x, double limit) -> Value {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLE, x, number(limit));
  };
  Value bytes = number(dtypeBytes(dtype));
  Expr product(dtypeBytes(dtype));
  SmallVector<Value> sizes;
  std::string text;
  for (const Expr &size : shape) {
    Value value = symbols().materialize(b, loc, size), estimate = symbols().estimate(b, loc, size);
    text += (sizes.empty() ? "{" : "x{") + std::to_string(sizes.size()) + "}";
    sizes.push_back(value);
    bytes = arith::MulFOp::create(b, loc, bytes, estimate);
    product = product * size;
    if (!symbols().mayExceed(size, kMaxSize) || !symbols().noteBounded(size))
      continue;
    // In range, and near its estimate: it did not wrap on the way. Large terms that cancel round the estimate.
    Value exact = arith::IndexCastOp::create(b, loc, b.getI64Type(), value);
    exact = arith::SIToFPOp::create(b, loc, b.getF64Type(), exact);
    Value off = math::AbsFOp::create(b, loc, arith::SubFOp::create(b, loc, estimate, exact));
    Value least = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, exact, number(0));
    Value fits = arith::AndIOp::create(b, loc, least, within(exact, kMaxSize));
    fits = arith::AndIOp::create(b, loc, fits, within(off, 4096));
    emitRequire(*this, fits, "a dimension of size {0} is outside [0, " + std::to_string(kMaxSize) + "]",
                {toReport(b, loc, estimate)});
  }
  if (product.overflowed() || symbols().noteBounded(product))
    emitRequire(*this, within(bytes, kMaxTensorBytes),
                "a result of shape " + text + " is larger than the limit of " + std::to_string(kMaxTensorBytes) +
                    " bytes",
                sizes);
  return success();
}

/// What a user does about a size that is 1 in a run alone.
static std::string fixToOne(const Symbols &symbols, const Expr &size, const std::string &text) {
  if (std::string name = printableName(symbols.name(size)); !name.empty())
    return "compile with --dim=" + name + ":1";
  if (!text.empty())
    return "compile with --dim for what '" + text + "' is made of, so that it is 1";
  return "no --dim fixes the size that is 1, as the run computes it";
}

/// A size that is 1 only in a run would be broadcast by ONNX. Code for both would cost every model whose names differ
/// for equal sizes ("total", "past + seq") its fusion, so the run says that the model is to be compiled for it.
static void requireDecided(Node &node, const Expr &a, const Expr &b) {
  OpBuilder &builder = node.builder();
  Location loc = node.loc();
  Symbols &symbols = node.symbols();
  if (symbols.isEqual(a, b) || a.overflowed() || b.overflowed())
    return;
  Value x = symbols.materialize(builder, loc, a), y = symbols.materialize(builder, loc, b);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  auto compare = [&](arith::CmpIPredicate predicate, Value a, Value b) -> Value {
    return builder.createOrFold<arith::CmpIOp>(loc, predicate, a, b);
  };
  Value same = compare(arith::CmpIPredicate::eq, x, y);
  auto textOf = [&](const Expr &size) {
    std::string text = size.constant() ? "" : printableName(symbols.print(size));
    return StringRef(text).contains('?') ? "" : text; // of what the run reads
  };
  auto place = [](StringRef value, const std::string &text) {
    return (value + (text.empty() ? "" : " ('" + text + "')")).str();
  };
  std::string textOfA = textOf(a), textOfB = textOf(b);
  std::string sizes =
      "sizes " + place("{0}", textOfA) + " and " + place("{1}", textOfB) + " broadcast in this run only; ";
  // One for each, as the message names the dimension.
  auto requireLonger = [&](const Expr &size, Value value, const std::string &text) {
    if (size.constant())
      return;
    Value isLonger = compare(arith::CmpIPredicate::ne, value, one);
    emitRequire(node, builder.createOrFold<arith::OrIOp>(loc, same, isLonger), sizes + fixToOne(symbols, size, text),
                {x, y}, /*unsupported=*/true);
  };
  requireLonger(a, x, textOfA);
  requireLonger(b, y, textOfB);
}

LogicalResult Node::requireBroadcast(const Expr &a, const Expr &b, StringRef message) {
  // In no run are they equal, in some one of them is 1.
  const Expr one(1);
  if (symbols().isEqual(a, b) == false && !symbols().isEqual(a, one) && !symbols().isEqual(b, one)) {
    const Expr &fixed = symbols().name(a).empty() ? b : a;
    unsupported() << substitute(message, {symbols().print(a), symbols().print(b)}) << " unless one of them is 1; "
                  << fixToOne(symbols(), fixed, printableName(symbols().print(fixed)));
    return failure();
  }
  requireDecided(*this, a, b);
  return requireEqual(a, b, message);
}

/// Asks for 1 where a size is to be repeated to `other`: because it is 0 or 1 in a run, as a slice of the first element
/// has, or because no run has both equal, or `other` 1.
static bool requireOne(Node &node, const Expr &size, const Expr &other) {
  Symbols &symbols = node.symbols();
  const Expr one(1);
  bool isAtMostOne = symbols.upperBound(size) == 1 && symbols.lowerBound(size).value_or(-1) >= 0;
  bool isAlone =
      symbols.isEqual(size, other) == false && !symbols.isEqual(size, one) && symbols.isEqual(other, one) == false;
  if (size.constant() || size.overflowed() || other.overflowed() || (!isAtMostOne && !isAlone))
    return false;
  if (isAtMostOne) {
    OpBuilder &b = node.builder();
    Value value = symbols.materialize(b, node.loc(), size), unit = symbols.materialize(b, node.loc(), one);
    Value holds = arith::CmpIOp::create(b, node.loc(), arith::CmpIPredicate::eq, value, unit);
    emitRequire(node, holds, nameSizes(symbols, "size {0} is broadcast, and is not 1 in this run", {size}), {value},
                /*unsupported=*/true);
  } else {
    requireCompare(node, arith::CmpIPredicate::eq, size, one,
                   substitute("sizes {0} and {1} do not broadcast", {"{0}", printableName(symbols.print(other))}));
  }
  symbols.assumeEqual(size, one);
  return true;
}

FailureOr<SmallVector<Expr>> Node::broadcast(ArrayRef<ArrayRef<Expr>> shapes) {
  size_t rank = 0;
  for (ArrayRef<Expr> shape : shapes)
    rank = std::max(rank, shape.size());
  SmallVector<Expr> result(rank, Expr(1));
  for (size_t dim = 0; dim < rank; ++dim) {
    Expr &size = result[dim];
    // A constant is the best name for a size that several shapes claim.
    for (bool constants : {true, false})
      for (ArrayRef<Expr> shape : shapes) {
        if (dim + shape.size() < rank)
          continue;
        const Expr &other = shape[dim + shape.size() - rank];
        if (symbols().isEqual(other, Expr(1)) == true || constants != other.constant().has_value())
          continue;
        bool isDecided = size.is(1) || symbols().isEqual(size, other) == true;
        if (!isDecided && requireOne(*this, other, size))
          continue;
        if (size.is(1) || (!isDecided && requireOne(*this, size, other)))
          size = other;
        else if (failed(requireBroadcast(size, other, "sizes {0} and {1} do not broadcast")))
          return failure();
      }
  }
  return result;
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
    Tensor t = withUnitSizes(*this, given);
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
