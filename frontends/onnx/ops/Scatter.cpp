#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

// Writing to computed places. Updates are applied in row-major order, so that
// the last of several to one place wins, on any number of threads.

using namespace mlir;

namespace attn::onnx {
namespace {

enum class Update { Replace, Add, Multiply, Max, Min };

FailureOr<Update> readUpdate(Node &n) {
  std::string name = n.stringAttr("reduction", "none");
  if (name == "none")
    return Update::Replace;
  if (n.input(0).dtype == DType::Bool)
    return n.error() << "expects reduction 'none' for bool, has '" << name << "'";
  if (name == "add")
    return Update::Add;
  if (name == "mul")
    return Update::Multiply;
  if (name == "max")
    return Update::Max;
  if (name == "min")
    return Update::Min;
  return n.error() << "reduction '" << name << "' is none of none, add, mul, max and min";
}

Num updated(Update how, const Num &old, const Num &next) {
  // Half floats are combined in f32 and rounded, as NumPy does.
  DType wide = computeDType(old.dtype());
  Num x = convert(old, wide), y = convert(next, wide);
  switch (how) {
  case Update::Replace:
    return next;
  case Update::Add:
    return convert(x + y, old.dtype());
  case Update::Multiply:
    return convert(x * y, old.dtype());
  case Update::Max:
    return convert(maximum(x, y), old.dtype());
  case Update::Min:
    return convert(minimum(x, y), old.dtype());
  }
  llvm_unreachable("a way to update");
}

LogicalResult expectIndices(Node &n, size_t i) {
  DType dtype = n.input(i).dtype;
  if (dtype != DType::I64 && dtype != DType::I32)
    return n.error() << "indices are " << dtypeName(dtype) << ", expected int32 or int64";
  return success();
}

LogicalResult setLike(Node &n, const Tensor &data, Value value) {
  n.setOutput(0, value, data.dtype, data.shape);
  return success();
}

/// What is written to. A stored tensor of one number, which exporters make of torch.zeros of known sizes, is filled in
/// the run: the library does not keep it, and sums are seen to start from 0.
Value writtenTo(Node &n, const Tensor &data) {
  std::optional<std::vector<char>> bytes = data.weight.empty() ? std::nullopt : n.constantBytes(data);
  std::optional<Tensor> uniform = bytes ? n.uniformTensor(data.dtype, data.shape, *bytes) : std::nullopt;
  return n.value(uniform.value_or(data));
}

/// Whether `data` is one number everywhere, of which each row along `axis` gets one update.
bool isOneHot(Node &n, const Tensor &data, Value background, const Tensor &indices, int64_t axis) {
  for (int64_t d = 0; d < data.rank(); ++d)
    if (d == axis ? !indices.shape[d].is(1) : n.symbols().isEqual(indices.shape[d], data.shape[d]) != true)
      return false;
  Operation *source = background.getDefiningOp();
  DenseElementsAttr numbers;
  return isa_and_nonnull<linalg::FillOp>(source) ||
         (source && matchPattern(source, m_Constant(&numbers)) && numbers.isSplat());
}

/// The update at its place in the row, as OneHot makes it: no loop writes one element after the other.
Value writeOneHot(Node &n, const Tensor &data, Value background, const Tensor &indices, const Tensor &updates,
                  int64_t axis) {
  Value given = n.value(indices), source = n.value(updates);
  Value size = n.symbols().materialize(n.builder(), n.loc(), data.shape[axis]);
  Value places = n.generate(DType::I64, indices.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Value place = checkedIndex(n, b, loc, load(b, loc, given, indices.dtype, at).value(), size);
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), place);
  });
  return n.generate(data.dtype, data.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    SmallVector<Value> row(at);
    row[axis] = arith::ConstantIndexOp::create(b, loc, 0);
    Value place = tensor::ExtractOp::create(b, loc, places, row);
    place = arith::IndexCastOp::create(b, loc, b.getIndexType(), place);
    Value hit = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, at[axis], place);
    return arith::SelectOp::create(b, loc, hit, tensor::ExtractOp::create(b, loc, source, row),
                                   tensor::ExtractOp::create(b, loc, background, at));
  });
}

LogicalResult importScatterElements(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectIndices(n, 1)) || failed(expectSameDType(n, 0, 2)))
    return failure();
  const Tensor &data = n.input(0), &indices = n.input(1), &updates = n.input(2);
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", 0), data.rank());
  FailureOr<Update> how = readUpdate(n);
  if (failed(axis) || failed(how))
    return failure();
  if (indices.rank() != data.rank() || updates.rank() != data.rank())
    return n.error() << "data, indices and updates have " << data.rank() << ", " << indices.rank() << " and "
                     << updates.rank() << " dimensions";
  for (int64_t d = 0; d < data.rank(); ++d) {
    if (failed(n.requireEqual(indices.shape[d], updates.shape[d], "indices of size {0} for updates of size {1}")))
      return failure();
    if (d != *axis &&
        failed(n.requireAtMost(indices.shape[d], data.shape[d], "indices of size {0} in a dimension of size {1}")))
      return failure();
  }
  Value background = writtenTo(n, data);
  if (*how == Update::Replace && isOneHot(n, data, background, indices, *axis))
    return setLike(n, data, writeOneHot(n, data, background, indices, updates, *axis));
  OpBuilder &b = n.builder();
  Value places = n.value(indices), source = n.value(updates);
  Value size = n.symbols().materialize(b, n.loc(), data.shape[*axis]);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    SmallVector<Value> to(at);
    to[*axis] = checkedIndex(n, b, loc, load(b, loc, places, indices.dtype, at).value(), size);
    Num next = load(b, loc, source, data.dtype, at);
    if (*how != Update::Replace)
      next = updated(*how, load(b, loc, carried[0], data.dtype, to), next);
    return {store(b, loc, next, carried[0], to)};
  };
  return setLike(n, data, sequential(b, n.loc(), sizeValues(n, indices.shape), background, body)[0]);
}

LogicalResult importScatterND(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectIndices(n, 1)) || failed(expectSameDType(n, 0, 2)))
    return failure();
  const Tensor &data = n.input(0), &indices = n.input(1), &updates = n.input(2);
  FailureOr<Update> how = readUpdate(n);
  if (failed(how))
    return failure();
  if (data.rank() < 1 || indices.rank() < 1)
    return n.error() << "expects data and indices of rank at least 1, has ranks " << data.rank() << " and "
                     << indices.rank();
  // What the updates have besides the places is what a tuple leaves of the data.
  int64_t tuple = data.rank() - (updates.rank() - (indices.rank() - 1));
  if (std::optional<int64_t> known = indices.shape.back().constant())
    tuple = *known;
  else if (failed(n.requireEqual(indices.shape.back(), Expr(tuple), "index tuples of {0}, the updates ask for {1}")))
    return failure();
  if (tuple < 0 || tuple > data.rank())
    return n.error() << "index tuples of " << tuple << " into data of " << data.rank() << " dimensions";
  int64_t lead = indices.rank() - 1;
  SmallVector<Expr, 4> space(indices.shape.begin(), indices.shape.end() - 1);
  space.append(data.shape.begin() + tuple, data.shape.end());
  if (updates.rank() != int64_t(space.size()))
    return n.error() << "expects updates of rank " << space.size() << ", has rank " << updates.rank();
  for (auto [own, expected] : llvm::zip_equal(updates.shape, space))
    if (failed(n.requireEqual(own, expected, "updates of size {0} where {1} are replaced")))
      return failure();
  OpBuilder &b = n.builder();
  Value places = n.value(indices), source = n.value(updates);
  SmallVector<Value> sizes = sizeValues(n, data.shape);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    SmallVector<Value> to;
    for (int64_t k = 0; k < tuple; ++k) {
      SmallVector<Value> place(at.take_front(lead));
      place.push_back(arith::ConstantIndexOp::create(b, loc, k));
      to.push_back(checkedIndex(n, b, loc, load(b, loc, places, indices.dtype, place).value(), sizes[k]));
    }
    llvm::append_range(to, at.drop_front(lead));
    Num next = load(b, loc, source, data.dtype, at);
    if (*how != Update::Replace)
      next = updated(*how, load(b, loc, carried[0], data.dtype, to), next);
    return {store(b, loc, next, carried[0], to)};
  };
  return setLike(n, data, sequential(b, n.loc(), sizeValues(n, space), writtenTo(n, data), body)[0]);
}

/// Rows of `update` written into a cache from a row on that each batch names.
LogicalResult importTensorScatter(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  const Tensor &cache = n.input(0), &update = n.input(1);
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", -2), cache.rank());
  if (failed(axis))
    return failure();
  std::string mode = n.stringAttr("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return n.error() << "mode '" << mode << "' is none of linear and circular";
  if (*axis == 0 || update.rank() != cache.rank())
    return n.error() << "expects a cache and an update of one rank and an axis behind the batch, has ranks "
                     << cache.rank() << " and " << update.rank() << " and axis " << *axis;
  for (int64_t d = 0; d < cache.rank(); ++d)
    if (d != *axis && failed(n.requireEqual(cache.shape[d], update.shape[d], "sizes {0} of the cache and {1} differ")))
      return failure();
  if (failed(n.requireAtMost(update.shape[*axis], cache.shape[*axis], "updates {0} rows of a cache of {1}")))
    return failure();
  Value begins;
  if (n.hasInput(2)) {
    if (failed(expectIndices(n, 2)))
      return failure();
    if (n.input(2).rank() != 1)
      return n.error() << "expects write_indices of rank 1, has rank " << n.input(2).rank();
    if (failed(n.requireEqual(n.input(2).shape[0], cache.shape[0], "there are {0} write_indices for a batch of {1}")))
      return failure();
    begins = n.value(2);
  }
  OpBuilder &b = n.builder();
  Value source = n.value(update), size = n.symbols().materialize(b, n.loc(), cache.shape[*axis]);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    SmallVector<Value> to(at);
    if (begins) {
      Num begin = convert(load(b, loc, begins, n.input(2).dtype, at[0]), DType::I64);
      Num row = begin + fromIndex(b, loc, DType::I64, at[*axis]), rows = fromIndex(b, loc, DType::I64, size);
      if (mode == "circular")
        row = select(begin < begin.constant(0), begin, row - (row / rows) * rows);
      to[*axis] = placeIn(n, b, loc, row.value(), size);
    }
    return {store(b, loc, load(b, loc, source, cache.dtype, at), carried[0], to)};
  };
  return setLike(n, cache, sequential(b, n.loc(), sizeValues(n, update.shape), n.value(cache), body)[0]);
}

} // namespace

void registerScatterOps(OpRegistry &registry) {
  registry.add("Scatter", {9, 11}, importScatterElements);
  registry.add("ScatterElements", {11, 13, 16, 18}, importScatterElements);
  registry.add("ScatterND", {11, 13, 16, 18}, importScatterND);
  registry.add("TensorScatter", {24}, importTensorScatter);
}

} // namespace attn::onnx
