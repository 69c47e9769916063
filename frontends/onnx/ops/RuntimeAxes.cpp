#include "frontends/onnx/ops/RuntimeAxes.h"
#include "frontends/onnx/ops/Loops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn::onnx {

/// The input as a vector of integers.
static FailureOr<Tensor> integerVector(Node &n, size_t input) {
  const Tensor &t = n.input(input);
  if (t.dtype != DType::I64 && t.dtype != DType::I32)
    return n.error() << "input " << input << " is " << dtypeName(t.dtype) << ", expected int32 or int64";
  if (t.rank() > 1)
    return n.error() << "expects a vector for input " << input << ", has rank " << t.rank();
  return t.rank() == 1 ? t : n.reshape(t, {Expr(1)});
}

/// The elements of a tensor [rank] as atoms in [lower, upper].
static SmallVector<Expr> readBack(Node &n, Value tensor, int64_t rank, std::optional<int64_t> lower,
                                  std::optional<int64_t> upper) {
  OpBuilder &b = n.builder();
  SmallVector<Expr> result;
  for (int64_t d = 0; d < rank; ++d) {
    Value at = arith::ConstantIndexOp::create(b, n.loc(), d);
    Value element = tensor::ExtractOp::create(b, n.loc(), tensor, at);
    Value index = arith::IndexCastOp::create(b, n.loc(), b.getIndexType(), element);
    result.push_back(n.symbols().opaque(index, lower, upper));
  }
  return result;
}

std::optional<SmallVector<Expr>> exprsOfLength(Node &n, size_t input, int64_t length) {
  const Tensor &t = n.input(input);
  if (std::optional<SmallVector<Expr>> known = n.exprs(input))
    return int64_t(known->size()) == length ? known : std::nullopt;
  if ((t.dtype != DType::I64 && t.dtype != DType::I32) || t.rank() != 1 || length > int64_t(Tensor::kMaxElements))
    return std::nullopt;
  FailureOr<Tensor> fixed = n.reshape(t, {Expr(length)});
  if (failed(fixed))
    return std::nullopt;
  return readBack(n, n.value(*fixed), length, std::nullopt, std::nullopt);
}

/// Whether input `input` is a vector of integers whose length is open.
static bool isOpenVector(Node &n, size_t input) {
  const Tensor &t = n.input(input);
  return (t.dtype == DType::I64 || t.dtype == DType::I32) && t.rank() == 1 && !t.shape[0].constant();
}

std::optional<SmallVector<Expr>> shapeExprs(Node &n, size_t input, std::optional<int64_t> length) {
  if (!isOpenVector(n, input) || length.value_or(0) < 1)
    return n.exprs(input);
  if (failed(n.requireEqual(n.input(input).shape[0], Expr(*length),
                            "the declared dimensions of the result ask for {1} numbers, there are {0}")))
    return std::nullopt;
  return exprsOfLength(n, input, *length);
}

std::optional<SmallVector<Expr>> paddedShapeExprs(Node &n, size_t input, std::optional<int64_t> length) {
  if (!isOpenVector(n, input) || length.value_or(0) < 1)
    return n.exprs(input);
  const Tensor &t = n.input(input);
  if (failed(n.requireAtMost(t.shape[0], Expr(*length),
                             "the result is declared with {1} dimensions, and the shape has {0} numbers")))
    return std::nullopt;
  OpBuilder &b = n.builder();
  Value list = n.value(t), units = n.filled(DType::I64, Expr(*length), n.constant(DType::I64, 1));
  Value missing = n.symbols().materialize(b, n.loc(), Expr(*length) - t.shape[0]);
  Value bound = arith::ConstantIndexOp::create(b, n.loc(), *length);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Value place = fromIndex(b, loc, DType::I64, arith::AddIOp::create(b, loc, at[0], missing)).value();
    Num size = convert(load(b, loc, list, t.dtype, at), DType::I64);
    return {store(b, loc, size, carried[0], checkedIndex(n, b, loc, place, bound))};
  };
  Value padded = sequential(b, n.loc(), sizeValues(n, t.shape), units, body)[0];
  return readBack(n, padded, *length, std::nullopt, std::nullopt);
}

FailureOr<SmallVector<Expr>> axisFlags(Node &n, size_t input, int64_t rank, int64_t whenEmpty) {
  FailureOr<Tensor> axes = integerVector(n, input);
  if (failed(axes))
    return failure();
  OpBuilder &b = n.builder();
  Value list = n.value(*axes), bound = arith::ConstantIndexOp::create(b, n.loc(), rank);
  Value flags = n.filled(DType::I64, Expr(rank), n.constant(DType::I64, 0));
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Value dim = checkedIndex(n, b, loc, load(b, loc, list, axes->dtype, at).value(), bound);
    return {store(b, loc, constantNum(b, loc, DType::I64, int64_t(1)), carried[0], dim)};
  };
  flags = sequential(b, n.loc(), sizeValues(n, axes->shape), flags, body)[0];
  SmallVector<Expr> result = readBack(n, flags, rank, 0, 1);
  for (Expr &flag : result)
    flag = n.symbols().select(n.symbols().equal(axes->shape[0], 0), Expr(whenEmpty), flag);
  return result;
}

FailureOr<SmallVector<Expr>> spreadByAxis(Node &n, size_t values, size_t axes, int64_t rank, int64_t fallback,
                                          int64_t parts) {
  FailureOr<Tensor> entries = integerVector(n, values), dims = *entries;
  if (succeeded(entries) && n.hasInput(axes))
    dims = integerVector(n, axes);
  if (failed(entries) || failed(dims))
    return failure();
  Expr count = n.hasInput(axes) ? dims->shape[0] : n.symbols().floorDiv(entries->shape[0], Expr(parts));
  if (failed(n.requireEqual(entries->shape[0], count * Expr(parts), "there are {0} numbers, the axes ask for {1}")))
    return failure();
  OpBuilder &b = n.builder();
  Value list = n.value(*entries), names = n.value(*dims);
  Value bound = arith::ConstantIndexOp::create(b, n.loc(), rank);
  Value spread = n.filled(DType::I64, Expr(parts * rank), constantNum(b, n.loc(), DType::I64, fallback).value());
  SmallVector<Value> bounds = sizeValues(n, {Expr(parts), count});
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    auto placeOf = [&](Value size, Value i) -> Value {
      return arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, at[0], size), i);
    };
    Value dim = n.hasInput(axes) ? load(b, loc, names, dims->dtype, at[1]).value() : at[1];
    Num entry = convert(load(b, loc, list, entries->dtype, placeOf(bounds[1], at[1])), DType::I64);
    return {store(b, loc, entry, carried[0], placeOf(bound, checkedIndex(n, b, loc, dim, bound)))};
  };
  spread = sequential(b, n.loc(), bounds, spread, body)[0];
  return readBack(n, spread, parts * rank, std::nullopt, std::nullopt);
}

SmallVector<Expr> unflagged(Node &n, ArrayRef<Expr> sizes, ArrayRef<Expr> flags, int64_t count) {
  Symbols &s = n.symbols();
  SmallVector<Expr> result(count, Expr(1));
  for (int64_t j = 0; j < count; ++j) {
    Expr before(0); // unflagged dimensions so far
    for (auto [size, flag] : llvm::zip_equal(sizes, flags)) {
      Expr here = s.select(flag, 0, s.equal(before, j));
      result[j] = s.select(here, size, result[j]);
      before = before + Expr(1) - flag;
    }
  }
  return result;
}

SmallVector<Expr> withFlaggedUnits(Node &n, ArrayRef<Expr> sizes, ArrayRef<Expr> flags) {
  Symbols &s = n.symbols();
  SmallVector<Expr> result;
  Expr before(0); // unflagged dimensions so far
  for (const Expr &flag : flags) {
    Expr size(1);
    for (auto [i, own] : llvm::enumerate(sizes))
      size = s.select(s.equal(before, int64_t(i)), own, size);
    result.push_back(s.select(flag, 1, size));
    before = before + Expr(1) - flag;
  }
  return result;
}

/// Places with 0 where the flag is 1.
static SmallVector<Value> projected(OpBuilder &b, Location loc, ValueRange at, ArrayRef<Value> flags) {
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  SmallVector<Value> result;
  for (auto [index, flag] : llvm::zip_equal(at, flags)) {
    Value set = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, flag, zero);
    result.push_back(arith::SelectOp::create(b, loc, set, zero, index));
  }
  return result;
}

Tensor reduceFlagged(Node &n, Combine how, const Tensor &x, ArrayRef<Expr> flags, Prepare prepare) {
  OpBuilder &b = n.builder();
  DType stored = x.dtype == DType::Bool ? DType::U8 : x.dtype;
  Tensor out;
  out.dtype = computeDType(stored);
  for (auto [size, flag] : llvm::zip_equal(x.shape, flags))
    out.shape.push_back(n.symbols().select(flag, 1, size));
  Num start = neutralOf(how, constantNum(b, n.loc(), out.dtype, int64_t(0)));
  Value input = n.value(x), init = n.filled(out.dtype, out.shape, start.value());
  SmallVector<Value> set = sizeValues(n, flags);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    SmallVector<Value> to = projected(b, loc, at, set);
    Num element = convert(load(b, loc, input, stored, at), out.dtype);
    if (prepare)
      element = prepare(element);
    return {store(b, loc, combineTwo(how, load(b, loc, carried[0], out.dtype, to), element), carried[0], to)};
  };
  out.value = sequential(b, n.loc(), sizeValues(n, x.shape), init, body)[0];
  return out;
}

Tensor expandFlagged(Node &n, const Tensor &t, ArrayRef<Expr> flags, ArrayRef<Expr> shape) {
  Value source = n.value(t);
  SmallVector<Value> set = sizeValues(n, flags);
  Tensor out;
  out.dtype = t.dtype;
  out.shape.assign(shape.begin(), shape.end());
  out.value = n.generate(t.dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    return tensor::ExtractOp::create(b, loc, source, projected(b, loc, at, set));
  });
  return out;
}

Tensor runningFlagged(Node &n, const Tensor &x, ArrayRef<Expr> flags, bool exclusive, bool reverse, bool product) {
  OpBuilder &b = n.builder();
  Value input = n.value(x), init = n.empty(x.dtype, x.shape);
  SmallVector<Value> set = sizeValues(n, flags), sizes = sizeValues(n, x.shape);
  auto body = [&](OpBuilder &b, Location loc, ValueRange order, ValueRange carried) -> SmallVector<Value> {
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
    auto minus = [&](Value x, Value y) -> Value { return arith::SubIOp::create(b, loc, x, y); };
    // Row-major order, or its reverse, visits what comes before first.
    SmallVector<Value> at, last;
    Value isFirst = arith::ConstantIntOp::create(b, loc, 0, 1);
    for (size_t d = 0; d < order.size(); ++d) {
      at.push_back(reverse ? minus(minus(sizes[d], one), order[d]) : order[d]);
      Value along = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, set[d], zero);
      Value begin = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, order[d], zero);
      isFirst = arith::OrIOp::create(b, loc, isFirst, arith::AndIOp::create(b, loc, along, begin));
      Value neighbour = reverse ? arith::AddIOp::create(b, loc, at[d], one).getResult() : minus(at[d], one);
      last.push_back(arith::SelectOp::create(b, loc, along, neighbour, at[d]));
    }
    for (auto [place, own] : llvm::zip_equal(last, at)) // the first reads itself, and does not use it
      place = arith::SelectOp::create(b, loc, isFirst, own, place);
    Num neutral = constantNum(b, loc, x.dtype, int64_t(product ? 1 : 0));
    auto combine = [&](const Num &x, const Num &y) { return product ? x * y : x + y; };
    Num before = load(b, loc, carried[0], x.dtype, last);
    if (exclusive)
      before = combine(before, load(b, loc, input, x.dtype, last));
    Num first(b, loc, DType::Bool, isFirst), sum = select(first, neutral, before);
    if (!exclusive)
      sum = combine(sum, load(b, loc, input, x.dtype, at));
    return {store(b, loc, sum, carried[0], at)};
  };
  Tensor y;
  y.dtype = x.dtype;
  y.shape = x.shape;
  y.value = sequential(b, n.loc(), sizes, init, body)[0];
  return y;
}

} // namespace attn::onnx
