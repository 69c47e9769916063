#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

// Operators whose results are as long as the data say: what is chosen is
// counted first, then written.

using namespace mlir;

namespace attn::onnx {
namespace {

/// The number of elements of a loop nest for which `chosen` holds, and with
/// it the atom of that size.
Expr countChosen(Node &n, ArrayRef<Expr> space, llvm::function_ref<Value(OpBuilder &, Location, ValueRange)> chosen) {
  OpBuilder &b = n.builder();
  Value zero = arith::ConstantIndexOp::create(b, n.loc(), 0);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Value one = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), chosen(b, loc, at));
    return {arith::AddIOp::create(b, loc, carried[0], one)};
  };
  Value count = sequential(b, n.loc(), sizeValues(n, space), zero, body)[0];
  return n.symbols().opaque(count, 0);
}

/// For each chosen place in turn `write` makes the next tensors, given the
/// place and how many were chosen before it.
SmallVector<Value>
writeChosen(Node &n, ArrayRef<Expr> space, ValueRange inits,
            llvm::function_ref<Value(OpBuilder &, Location, ValueRange)> chosen,
            llvm::function_ref<SmallVector<Value>(OpBuilder &, Location, ValueRange, Value, ValueRange)> write) {
  OpBuilder &b = n.builder();
  SmallVector<Value> carried{arith::ConstantIndexOp::create(b, n.loc(), 0)};
  llvm::append_range(carried, inits);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange now) -> SmallVector<Value> {
    auto branch = scf::IfOp::create(
        b, loc, chosen(b, loc, at),
        [&](OpBuilder &b, Location loc) {
          Value one = arith::ConstantIndexOp::create(b, loc, 1);
          SmallVector<Value> next{arith::AddIOp::create(b, loc, now[0], one)};
          llvm::append_range(next, write(b, loc, at, now[0], now.drop_front()));
          scf::YieldOp::create(b, loc, next);
        },
        [&](OpBuilder &b, Location loc) { scf::YieldOp::create(b, loc, now); });
    return SmallVector<Value>(branch.getResults());
  };
  SmallVector<Value> results = sequential(b, n.loc(), sizeValues(n, space), carried, body);
  results.erase(results.begin());
  return results;
}

//===----------------------------------------------------------------------===//
// NonZero, Compress
//===----------------------------------------------------------------------===//

/// The places of the numbers of a list that are not 0, if all of them are known.
std::optional<SmallVector<Scalar>> nonZeroPlaces(const Tensor &x) {
  if (!x.elements || x.rank() != 1)
    return std::nullopt;
  SmallVector<Scalar> places;
  for (auto [n, scalar] : llvm::enumerate(*x.elements)) {
    const Expr *integer = std::get_if<Expr>(&scalar);
    if (integer && !integer->constant())
      return std::nullopt;
    if (integer ? !integer->is(0) : std::get<double>(scalar) != 0)
      places.push_back(Expr(int64_t(n)));
  }
  return places.empty() ? std::nullopt : std::optional(places);
}

/// Whether `x` is one number other than 0 everywhere.
bool isFilled(Node &n, const Tensor &x) {
  if (x.elements || !x.weight.empty())
    return false;
  Operation *source = n.value(x).getDefiningOp();
  Attribute number;
  if (auto fill = dyn_cast_or_null<linalg::FillOp>(source))
    (void)matchPattern(fill.getInputs()[0], m_Constant(&number));
  else if (DenseElementsAttr numbers; source && matchPattern(source, m_Constant(&numbers)) && numbers.isSplat())
    number = numbers.getSplatValue<Attribute>();
  if (auto integer = dyn_cast_or_null<IntegerAttr>(number))
    return !integer.getValue().isZero();
  auto real = dyn_cast_or_null<FloatAttr>(number);
  return real && !real.getValue().isZero();
}

LogicalResult importNonZero(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  const Tensor &x = n.input(0);
  if (std::optional<SmallVector<Scalar>> places = nonZeroPlaces(x)) {
    n.setElements(0, DType::I64, {Expr(1), Expr(int64_t(places->size()))}, *places);
    return success();
  }
  // How exporters without Range count up.
  if (x.rank() == 1 && isFilled(n, x)) {
    SmallVector<Expr, 2> shape{Expr(1), x.shape[0]};
    Value counted = n.generate(DType::I64, shape, [](OpBuilder &b, Location loc, ValueRange at) -> Value {
      return arith::IndexCastOp::create(b, loc, b.getI64Type(), at[1]);
    });
    n.setOutput(0, counted, DType::I64, shape);
    return success();
  }
  Value input = n.value(x);
  auto chosen = [&](OpBuilder &b, Location loc, ValueRange at) {
    return convert(load(b, loc, input, x.dtype, at), DType::Bool).value();
  };
  Expr count = countChosen(n, x.shape, chosen);
  SmallVector<Expr, 2> shape{Expr(x.rank()), count};
  auto write = [&](OpBuilder &b, Location loc, ValueRange at, Value position,
                   ValueRange carried) -> SmallVector<Value> {
    Value result = carried[0];
    for (int64_t d = 0; d < x.rank(); ++d) {
      Value row = arith::ConstantIndexOp::create(b, loc, d);
      result = store(b, loc, fromIndex(b, loc, DType::I64, at[d]), result, {row, position});
    }
    return {result};
  };
  Value result = writeChosen(n, x.shape, n.empty(DType::I64, shape), chosen, write)[0];
  n.setOutput(0, result, DType::I64, shape);
  return success();
}

LogicalResult importCompress(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  FailureOr<Tensor> x = n.input(0);
  const Tensor &condition = n.input(1);
  if (condition.dtype != DType::Bool || condition.rank() != 1)
    return n.error() << "expects a bool condition of rank 1, has " << dtypeName(condition.dtype) << " of rank "
                     << condition.rank();
  FailureOr<int64_t> axis = 0;
  if (n.hasAttr("axis"))
    axis = n.axis(n.intAttr("axis", 0), x->rank());
  else
    x = n.reshape(*x, countOf(*x, dimsFrom(0, x->rank())));
  if (failed(axis) || failed(x))
    return failure();
  // A condition may be shorter than the dimension, or longer by what is false.
  Value flags = n.value(condition), source = n.value(*x);
  auto chosen = [&](OpBuilder &b, Location loc, ValueRange at) { return load(b, loc, flags, DType::Bool, at).value(); };
  Expr count = countChosen(n, condition.shape, chosen);
  auto write = [&](OpBuilder &b, Location loc, ValueRange at, Value position,
                   ValueRange carried) -> SmallVector<Value> {
    return {store(b, loc, fromIndex(b, loc, DType::I64, at[0]), carried[0], position)};
  };
  Value rows = writeChosen(n, condition.shape, n.empty(DType::I64, count), chosen, write)[0];
  SmallVector<Expr, 4> shape(x->shape);
  shape[*axis] = count;
  Value size = n.symbols().materialize(n.builder(), n.loc(), x->shape[*axis]);
  Value result = n.generate(x->dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    SmallVector<Value> from(at);
    from[*axis] = checkedIndex(n, b, loc, load(b, loc, rows, DType::I64, at[*axis]).value(), size);
    return tensor::ExtractOp::create(b, loc, source, from);
  });
  n.setOutput(0, result, x->dtype, shape);
  return success();
}

//===----------------------------------------------------------------------===//
// Unique
//===----------------------------------------------------------------------===//

/// Rows [rows, width] that are compared with one another.
struct Rows {
  Value values;
  DType dtype;
  Expr count;
  Value height, width;
};

/// -1, 0 or 1: the order of rows i and j.
Num compareRows(OpBuilder &b, Location loc, const Rows &rows, Value i, Value j) {
  Num zero = constantNum(b, loc, DType::I64, int64_t(0));
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Num order(b, loc, DType::I64, carried[0]);
    Num x = load(b, loc, rows.values, rows.dtype, {i, at[0]}), y = load(b, loc, rows.values, rows.dtype, {j, at[0]});
    Num here = select(x < y, order.constant(-1), select(y < x, order.constant(1), order.constant(0)));
    return {select(order == order.constant(0), here, order).value()};
  };
  return Num(b, loc, DType::I64, sequential(b, loc, rows.width, zero.value(), body)[0]);
}

/// For each row the first row that equals it.
Value firstEqual(Node &n, const Rows &rows) {
  return n.generate(DType::I64, rows.count, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto body = [&](OpBuilder &b, Location loc, ValueRange j, ValueRange carried) -> SmallVector<Value> {
      Num best(b, loc, DType::I64, carried[0]), here = fromIndex(b, loc, DType::I64, j[0]);
      Num order = compareRows(b, loc, rows, at[0], j[0]);
      return {select((order == order.constant(0)) & (here < best), here, best).value()};
    };
    return sequential(b, loc, rows.height, fromIndex(b, loc, DType::I64, at[0]).value(), body)[0];
  });
}

/// For each row the place of its value in the result: how many different
/// values come before it.
Value placeOf(Node &n, const Rows &rows, Value first, bool sorted) {
  return n.generate(DType::I64, rows.count, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto body = [&](OpBuilder &b, Location loc, ValueRange j, ValueRange carried) -> SmallVector<Value> {
      Num count(b, loc, DType::I64, carried[0]), here = fromIndex(b, loc, DType::I64, j[0]);
      Num isFirst = load(b, loc, first, DType::I64, j) == here;
      Num before = here < load(b, loc, first, DType::I64, at);
      if (sorted) {
        Num order = compareRows(b, loc, rows, j[0], at[0]);
        before = order < order.constant(0);
      }
      return {select(isFirst & before, count + count.constant(1), count).value()};
    };
    return sequential(b, loc, rows.height, constantNum(b, loc, DType::I64, int64_t(0)).value(), body)[0];
  });
}

/// `x` with dimension `axis` first and the others as one.
FailureOr<Tensor> asRows(Node &n, const Tensor &x, std::optional<int64_t> axis) {
  if (!axis)
    return n.reshape(x, {countOf(x, dimsFrom(0, x.rank())), Expr(1)});
  SmallVector<int64_t> order{*axis};
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != *axis)
      order.push_back(d);
  Tensor moved = n.transpose(x, order);
  return n.reshape(moved, {moved.shape[0], countOf(moved, dimsFrom(1, moved.rank()))});
}

/// Output 0 from the row that each value is first in.
LogicalResult setUnique(Node &n, const Tensor &x, std::optional<int64_t> axis, const Tensor &matrix, const Expr &count,
                        Value firsts) {
  Value source = n.value(matrix), size = n.symbols().materialize(n.builder(), n.loc(), matrix.shape[0]);
  SmallVector<Expr, 2> shape{count, matrix.shape[1]};
  Tensor rows;
  rows.dtype = x.dtype;
  rows.shape.assign(shape.begin(), shape.end());
  rows.value = n.generate(x.dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Value from = checkedIndex(n, b, loc, load(b, loc, firsts, DType::I64, at[0]).value(), size);
    return tensor::ExtractOp::create(b, loc, source, ValueRange{from, at[1]});
  });
  SmallVector<Expr, 4> apart{count};
  SmallVector<int64_t> back;
  for (int64_t d = 0; axis && d < x.rank(); ++d) {
    if (d != *axis)
      apart.push_back(x.shape[d]);
    back.push_back(d == *axis ? 0 : d < *axis ? d + 1 : d);
  }
  FailureOr<Tensor> result = n.reshape(rows, apart);
  if (failed(result))
    return failure();
  n.setOutput(0, axis ? n.transpose(*result, back) : *result);
  return success();
}

LogicalResult importUnique(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  const Tensor &x = n.input(0);
  std::optional<int64_t> axis;
  if (n.hasAttr("axis")) {
    FailureOr<int64_t> given = n.axis(n.intAttr("axis", 0), x.rank());
    if (failed(given))
      return failure();
    axis = *given;
  }
  FailureOr<Tensor> matrix = asRows(n, x, axis);
  if (failed(matrix))
    return failure();
  OpBuilder &b = n.builder();
  Rows rows{n.value(*matrix), x.dtype, matrix->shape[0], n.symbols().materialize(b, n.loc(), matrix->shape[0]),
            n.symbols().materialize(b, n.loc(), matrix->shape[1])};
  Value first = firstEqual(n, rows), place = placeOf(n, rows, first, n.intAttr("sorted", 1) != 0);
  auto chosen = [&](OpBuilder &b, Location loc, ValueRange at) {
    return (load(b, loc, first, DType::I64, at) == fromIndex(b, loc, DType::I64, at[0])).value();
  };
  Expr count = countChosen(n, rows.count, chosen);
  Value bound = n.symbols().materialize(b, n.loc(), count);
  Value zeros = n.filled(DType::I64, count, n.constant(DType::I64, 0));
  auto write = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Value to = checkedIndex(n, b, loc, load(b, loc, place, DType::I64, at).value(), bound);
    Num number = load(b, loc, carried[1], DType::I64, to);
    return {store(b, loc, load(b, loc, first, DType::I64, at), carried[0], to),
            store(b, loc, number + number.constant(1), carried[1], to)};
  };
  SmallVector<Value> written = sequential(b, n.loc(), rows.height, {zeros, zeros}, write);
  if (failed(setUnique(n, x, axis, *matrix, count, written[0])))
    return failure();
  n.setOutput(1, written[0], DType::I64, count);
  n.setOutput(2, place, DType::I64, rows.count);
  n.setOutput(3, written[1], DType::I64, count);
  return success();
}

} // namespace

void registerSelectionOps(OpRegistry &registry) {
  registry.add("NonZero", {9, 13}, importNonZero);
  registry.add("Compress", {9, 11, 28}, importCompress);
  registry.add("Unique", {11, 28}, importUnique);
}

} // namespace attn::onnx
