#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/ops/Gather.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

// What computes where to read, or values from where they stand. Indices that
// come from tensors are checked when the model runs.

static bool isIndexType(DType dtype) { return dtype == DType::I64 || dtype == DType::I32; }

/// An element of an index tensor made safe for a dimension of `size`.
static Value inBounds(OpBuilder &b, Location loc, Value element, Value size, StringRef message) {
  Value index = arith::IndexCastOp::create(b, loc, b.getIndexType(), element);
  return CheckIndexOp::create(b, loc, b.getIndexType(), index, size, b.getStringAttr(message));
}

/// Sizes of `t` as index values, for bounds.
static SmallVector<Value> sizesOf(Node &node, const Tensor &t) {
  SmallVector<Value> sizes;
  for (const Expr &size : t.shape)
    sizes.push_back(node.symbols().materialize(node.builder(), node.loc(), size));
  return sizes;
}

//===----------------------------------------------------------------------===//
// Gather
//===----------------------------------------------------------------------===//

/// Known elements at known places; nullopt for an index out of range too (the
/// general form reports it, when it runs).
static std::optional<SmallVector<Scalar>> gatherElements(const Tensor &data, const Tensor &indices, int64_t axis) {
  if (!data.elements || !indices.elements)
    return std::nullopt;
  int64_t outer = 1, inner = 1, size = *data.shape[axis].constant();
  for (auto [n, extent] : llvm::enumerate(data.shape))
    if (int64_t(n) != axis)
      (int64_t(n) < axis ? outer : inner) *= *extent.constant();
  SmallVector<Scalar> result;
  for (int64_t o = 0; o < outer; ++o)
    for (const Scalar &scalar : *indices.elements) {
      std::optional<int64_t> index = std::get<Expr>(scalar).constant();
      if (!index || *index < -size || *index >= size)
        return std::nullopt;
      int64_t row = *index < 0 ? *index + size : *index;
      for (int64_t i = 0; i < inner; ++i)
        result.push_back((*data.elements)[(o * size + row) * inner + i]);
    }
  if (result.size() > Tensor::kMaxElements)
    return std::nullopt;
  return result;
}

/// One known row: a slice, which a weight can be too. nullopt: not this case.
static std::optional<LogicalResult> gatherRow(Node &node, int64_t axis, ArrayRef<Expr> shape) {
  const Tensor &data = node.input(0), &indices = node.input(1);
  std::optional<Scalar> scalar = indices.scalar();
  if (!scalar)
    return std::nullopt;
  Symbols &symbols = node.symbols();
  Expr row = std::get<Expr>(*scalar), size = data.shape[axis];
  if (std::optional<int64_t> number = row.constant(); number && (*number < -kMaxSize || *number >= kMaxSize))
    return node.error() << "index " << *number << " is outside a dimension of size " << symbols.print(size), failure();
  if (symbols.isLess(row, Expr(0)) == true)
    row = row + size;
  // Not proved to be a row: the general form checks when it runs.
  bool constant = std::get<Expr>(*scalar).constant().has_value();
  if (!constant && (symbols.isLess(row, Expr(0)) != false || symbols.isLess(row, size) != true))
    return std::nullopt;
  if (symbols.isLess(row, Expr(0)) == true || symbols.isLess(row, size) == false)
    return node.error() << "index " << symbols.print(std::get<Expr>(*scalar)) << " is outside a dimension of size "
                        << symbols.print(size),
           failure();
  if (failed(node.requireAtMost(Expr(0), row, "index {1} is before the first row")) ||
      failed(node.requireAtMost(row + Expr(1), size, "index {0} - 1 is outside a dimension of size {1}")))
    return failure();
  FailureOr<Tensor> result = node.reshape(node.slice(data, axis, row, Expr(1)), shape);
  if (failed(result))
    return failure();
  node.setOutput(0, *result);
  return success();
}

FailureOr<Tensor> attn::onnx::gather(Node &node, const Tensor &data, const Tensor &indices, int64_t axis) {
  if (!isIndexType(indices.dtype))
    return node.error() << "indices are " << dtypeName(indices.dtype) << ", expected int32 or int64";
  Tensor result;
  result.dtype = data.dtype;
  result.shape.append(data.shape.begin(), data.shape.begin() + axis);
  result.shape.append(indices.shape.begin(), indices.shape.end());
  result.shape.append(data.shape.begin() + axis + 1, data.shape.end());
  OpBuilder &b = node.builder();
  MLIRContext *context = b.getContext();
  size_t rank = result.shape.size(), indexRank = indices.rank();
  SmallVector<AffineExpr> indexDims;
  for (size_t dim = 0; dim < indexRank; ++dim)
    indexDims.push_back(getAffineDimExpr(axis + dim, context));
  SmallVector<AffineMap> maps = {AffineMap::get(rank, 0, indexDims, context),
                                 AffineMap::getMultiDimIdentityMap(rank, context)};
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  Value source = node.value(data), size = node.symbols().materialize(b, node.loc(), data.shape[axis]);
  Value init = node.empty(data.dtype, result.shape), index = node.value(indices);
  std::string message = node.describe();
  auto generic = linalg::GenericOp::create(
      b, node.loc(), TypeRange(init.getType()), ValueRange(index), ValueRange(init), maps, iterators,
      [&](OpBuilder &b, Location loc, ValueRange arguments) {
        SmallVector<Value> from;
        for (size_t dim = 0; dim < rank; ++dim) {
          if (int64_t(dim) == axis)
            from.push_back(inBounds(b, loc, arguments[0], size, message));
          if (int64_t(dim) < axis || dim >= axis + indexRank)
            from.push_back(linalg::IndexOp::create(b, loc, dim));
        }
        if (int64_t(rank) == axis) // a rank-0 index into the last dimension
          from.push_back(inBounds(b, loc, arguments[0], size, message));
        linalg::YieldOp::create(b, loc, tensor::ExtractOp::create(b, loc, source, from).getResult());
      });
  result.value = generic.getResult(0);
  return result;
}

static LogicalResult importGather(Node &node) {
  const Tensor &data = node.input(0), &indices = node.input(1);
  FailureOr<int64_t> axis = node.axis(node.intAttr("axis", 0), data.rank());
  if (failed(axis))
    return failure();
  if (!isIndexType(indices.dtype))
    return node.error() << "indices are " << dtypeName(indices.dtype) << ", expected int32 or int64", failure();
  SmallVector<Expr> shape(data.shape.begin(), data.shape.begin() + *axis);
  shape.append(indices.shape.begin(), indices.shape.end());
  shape.append(data.shape.begin() + *axis + 1, data.shape.end());
  if (std::optional<SmallVector<Scalar>> elements = gatherElements(data, indices, *axis)) {
    node.setElements(0, data.dtype, shape, *elements);
    return success();
  }
  if (std::optional<LogicalResult> done = gatherRow(node, *axis, shape))
    return *done;
  FailureOr<Tensor> rows = gather(node, data, indices, *axis);
  if (failed(rows))
    return failure();
  node.setOutput(0, *rows);
  return success();
}

//===----------------------------------------------------------------------===//
// GatherElements, GatherND
//===----------------------------------------------------------------------===//

static LogicalResult importGatherElements(Node &node) {
  const Tensor &data = node.input(0), &indices = node.input(1);
  FailureOr<int64_t> axis = node.axis(node.intAttr("axis", 0), data.rank());
  if (failed(axis))
    return failure();
  if (!isIndexType(indices.dtype))
    return node.error() << "indices are " << dtypeName(indices.dtype) << ", expected int32 or int64", failure();
  if (indices.rank() != data.rank())
    return node.error() << "indices have " << indices.rank() << " dimensions, the data " << data.rank(), failure();
  for (int64_t dim = 0; dim < data.rank(); ++dim)
    if (dim != *axis && failed(node.requireAtMost(indices.shape[dim], data.shape[dim],
                                                  "indices of size {0} in a dimension of size {1}")))
      return failure();
  OpBuilder &b = node.builder();
  size_t rank = data.rank();
  SmallVector<AffineMap> maps(2, AffineMap::getMultiDimIdentityMap(rank, b.getContext()));
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  Value source = node.value(data), size = node.symbols().materialize(b, node.loc(), data.shape[*axis]);
  Value init = node.empty(data.dtype, indices.shape), index = node.value(indices);
  std::string message = node.describe();
  auto generic = linalg::GenericOp::create(
      b, node.loc(), TypeRange(init.getType()), ValueRange(index), ValueRange(init), maps, iterators,
      [&](OpBuilder &b, Location loc, ValueRange arguments) {
        SmallVector<Value> from;
        for (size_t dim = 0; dim < rank; ++dim)
          from.push_back(int64_t(dim) == *axis ? inBounds(b, loc, arguments[0], size, message)
                                               : linalg::IndexOp::create(b, loc, dim).getResult());
        linalg::YieldOp::create(b, loc, tensor::ExtractOp::create(b, loc, source, from).getResult());
      });
  node.setOutput(0, generic.getResult(0), data.dtype, indices.shape);
  return success();
}

static LogicalResult importGatherND(Node &node) {
  const Tensor &data = node.input(0), &indices = node.input(1);
  int64_t batch = node.intAttr("batch_dims", 0);
  if (indices.dtype != DType::I64)
    return node.error() << "indices are " << dtypeName(indices.dtype) << ", expected int64", failure();
  if (data.rank() < 1 || indices.rank() < 1 || batch < 0 || batch >= std::min(data.rank(), indices.rank()))
    return node.error() << "batch_dims is " << batch << " for data of " << data.rank() << " and indices of "
                        << indices.rank() << " dimensions",
           failure();
  std::optional<int64_t> tuple = indices.shape.back().constant(), rank = node.declaredRank();
  if (!tuple && rank) { // what is declared for the result says what a tuple leaves of the data
    tuple = indices.rank() - 1 + data.rank() - batch - *rank;
    if (failed(node.requireEqual(indices.shape.back(), Expr(*tuple),
                                 "index tuples of {0}, the declared dimensions of the result ask for {1}")))
      return failure();
  }
  if (!tuple)
    return node.unsupported() << "index tuples whose length is not known at import", failure();
  if (*tuple < 1 || *tuple > data.rank() - batch)
    return node.error() << "index tuples of " << *tuple << " into data of " << data.rank() - batch << " dimensions",
           failure();
  for (int64_t dim = 0; dim < batch; ++dim)
    if (failed(node.requireEqual(indices.shape[dim], data.shape[dim], "a batch dimension has sizes {0} and {1}")))
      return failure();
  SmallVector<Expr> shape(indices.shape.begin(), indices.shape.end() - 1);
  int64_t lead = shape.size();
  shape.append(data.shape.begin() + batch + *tuple, data.shape.end());
  Value source = node.value(data), index = node.value(indices);
  SmallVector<Value> sizes = sizesOf(node, data);
  std::string message = node.describe();
  Value result = node.generate(data.dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) {
    SmallVector<Value> from(at.take_front(batch));
    for (int64_t n = 0; n < *tuple; ++n) {
      SmallVector<Value> place(at.take_front(lead));
      place.push_back(arith::ConstantIndexOp::create(b, loc, n));
      Value element = tensor::ExtractOp::create(b, loc, index, place);
      from.push_back(inBounds(b, loc, element, sizes[batch + n], message));
    }
    llvm::append_range(from, at.drop_front(lead));
    return tensor::ExtractOp::create(b, loc, source, from);
  });
  node.setOutput(0, result, data.dtype, shape);
  return success();
}

//===----------------------------------------------------------------------===//
// Range
//===----------------------------------------------------------------------===//

/// start + i * delta over integers: the length is ceil((limit - start) / delta).
static LogicalResult importIntegerRange(Node &node, DType dtype) {
  SmallVector<Expr> bounds;
  for (size_t i = 0; i < 3; ++i) {
    std::optional<SmallVector<Expr>> value = node.exprs(i);
    if (!value || value->size() != 1)
      return node.error() << "expects scalars, got an input " << i << " of " << node.input(i).rank() << " dimensions",
             failure();
    bounds.push_back(value->front());
  }
  Symbols &symbols = node.symbols();
  Expr start = bounds[0], delta = bounds[2], span = bounds[1] - bounds[0];
  if (failed(node.requireDifferent(delta, Expr(0), "has a delta of {0}")))
    return failure();
  if (failed(node.requireFits(span, "has limits {0} apart, which is beyond 64 bits")))
    return failure();
  Expr length = symbols.max(Expr(0), symbols.ceilDiv(span, delta));
  if (length.overflowed())
    return node.error() << "has bounds that leave 64 bits", failure();
  SmallVector<Expr> shape = {length};
  std::optional<int64_t> known = length.constant();
  if (known && *known <= int64_t(Tensor::kMaxElements)) {
    SmallVector<Scalar> elements;
    for (int64_t i = 0; i < *known; ++i)
      elements.push_back(Scalar(start + delta * Expr(i)));
    node.setElements(0, dtype, shape, elements);
    return success();
  }
  Value first = symbols.materialize(node.builder(), node.loc(), start);
  Value step = symbols.materialize(node.builder(), node.loc(), delta);
  Value result = node.generate(dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) {
    Value value = at[0];
    if (!delta.is(1))
      value = arith::MulIOp::create(b, loc, value, step);
    if (!start.is(0))
      value = arith::AddIOp::create(b, loc, value, first);
    return arith::IndexCastOp::create(b, loc, elementType(b.getContext(), dtype), value);
  });
  node.setOutput(0, result, dtype, shape);
  return success();
}

static LogicalResult importFloatRange(Node &node, DType dtype) {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  std::optional<SmallVector<double>> start = node.constantFloats(0), limit = node.constantFloats(1),
                                     delta = node.constantFloats(2);
  std::optional<Expr> length;
  if (start && limit && delta) {
    double count = std::ceil((limit->front() - start->front()) / delta->front());
    if (!(count <= kMaxSize) || std::isinf(count)) // NaN too
      return node.error() << "has " << count << " elements", failure();
    length = Expr(static_cast<int64_t>(std::max(0.0, count)));
  }
  // Computed in the element type, as ONNX Runtime does; the length in f64.
  SmallVector<Value> scalars, wide;
  for (size_t i = 0; i < 3; ++i) {
    Value scalar = tensor::ExtractOp::create(b, loc, node.value(i), ValueRange());
    scalars.push_back(scalar);
    wide.push_back(Node::castScalar(b, loc, scalar, dtype, DType::F64));
  }
  if (!length) {
    Value span = arith::SubFOp::create(b, loc, wide[1], wide[0]);
    Value count = math::CeilOp::create(b, loc, arith::DivFOp::create(b, loc, span, wide[2]));
    // NaN and what is out of reach end the run; fptosi would be undefined.
    Value zero = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0));
    Value most = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(kMaxSize));
    Value least = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(-std::numeric_limits<double>::max()));
    Value positive = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, count, zero);
    Value bounded = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLE, count, most);
    Value finite = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, count, least);
    node.require(arith::AndIOp::create(b, loc, bounded, finite),
                 "the number of elements is not finite, or above " + std::to_string(kMaxSize));
    Value sane = arith::AndIOp::create(b, loc, positive, bounded);
    Value integer =
        arith::FPToSIOp::create(b, loc, b.getI64Type(), arith::SelectOp::create(b, loc, sane, count, zero).getResult());
    length = node.symbols().opaque(arith::IndexCastOp::create(b, loc, b.getIndexType(), integer), 0);
  }
  Value result = node.generate(dtype, {*length}, [&](OpBuilder &b, Location loc, ValueRange at) {
    Value integer = arith::IndexCastOp::create(b, loc, b.getI64Type(), at[0]);
    Value number = Node::castScalar(b, loc, integer, DType::I64, dtype);
    return arith::AddFOp::create(b, loc, arith::MulFOp::create(b, loc, number, scalars[2]), scalars[0]);
  });
  node.setOutput(0, result, dtype, {*length});
  return success();
}

static LogicalResult importRange(Node &node) {
  DType dtype = node.input(0).dtype;
  for (size_t i = 0; i < 3; ++i) {
    if (node.input(i).dtype != dtype)
      return node.error() << "inputs 0 and " << i << " are " << dtypeName(dtype) << " and "
                          << dtypeName(node.input(i).dtype),
             failure();
    if (node.input(i).rank() == 0)
      continue;
    if (isFloat(dtype) || node.input(i).rank() != 1 || !node.input(i).shape[0].is(1))
      return node.error() << "expects scalars, got an input " << i << " of " << node.input(i).rank() << " dimensions",
             failure();
  }
  return isFloat(dtype) ? importFloatRange(node, dtype) : importIntegerRange(node, dtype);
}

//===----------------------------------------------------------------------===//
// Trilu, EyeLike, OneHot
//===----------------------------------------------------------------------===//

/// Zero of a stored element.
static Value zeroOf(OpBuilder &b, Location loc, Type type) {
  return arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
}

/// Keeps (i, j) with j - i >= k (upper) or j - i <= k (lower).
static LogicalResult importTrilu(Node &node) {
  const Tensor &t = node.input(0);
  if (t.rank() < 2)
    return node.error() << "expects at least 2 dimensions, got " << t.rank(), failure();
  Expr k(0);
  if (node.hasInput(1)) {
    std::optional<SmallVector<Expr>> given = node.exprs(1);
    if (!given || given->size() != 1)
      return node.error() << "expects k to be a scalar", failure();
    k = given->front();
  }
  bool upper = node.intAttr("upper", 1) != 0;
  OpBuilder &b = node.builder();
  Value offset = node.symbols().materialize(b, node.loc(), k);
  size_t rank = t.rank();
  Value init = node.empty(t.dtype, t.shape), input = node.value(t);
  SmallVector<AffineMap> maps(2, AffineMap::getMultiDimIdentityMap(rank, b.getContext()));
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      b, node.loc(), TypeRange(init.getType()), ValueRange(input), ValueRange(init), maps, iterators,
      [&](OpBuilder &b, Location loc, ValueRange arguments) {
        Value row = linalg::IndexOp::create(b, loc, rank - 2), column = linalg::IndexOp::create(b, loc, rank - 1);
        Value diagonal = k.is(0) ? row : arith::AddIOp::create(b, loc, row, offset).getResult();
        auto predicate = upper ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle;
        Value keep = arith::CmpIOp::create(b, loc, predicate, column, diagonal);
        Value zero = zeroOf(b, loc, arguments[0].getType());
        linalg::YieldOp::create(b, loc, arith::SelectOp::create(b, loc, keep, arguments[0], zero).getResult());
      });
  node.setOutput(0, generic.getResult(0), t.dtype, t.shape);
  return success();
}

static LogicalResult importEyeLike(Node &node) {
  const Tensor &t = node.input(0);
  if (t.rank() != 2)
    return node.error() << "expects 2 dimensions, got " << t.rank(), failure();
  DType dtype = t.dtype;
  if (node.hasAttr("dtype")) {
    std::optional<DType> given = dtypeFromProto(node.intAttr("dtype", 0));
    if (!given)
      return node.unsupported() << "element type " << node.intAttr("dtype", 0), failure();
    dtype = *given;
  }
  int64_t k = node.intAttr("k", 0);
  Value one = node.constant(dtype, 1), zero = node.constant(dtype, 0);
  Value result = node.generate(dtype, t.shape, [&](OpBuilder &b, Location loc, ValueRange at) {
    Value diagonal = arith::AddIOp::create(b, loc, at[0], arith::ConstantIndexOp::create(b, loc, k));
    Value hit = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, at[1], diagonal);
    return arith::SelectOp::create(b, loc, hit, one, zero);
  });
  node.setOutput(0, result, dtype, t.shape);
  return success();
}

/// values[1] where the index (negative: from the end) is the place, else
/// values[0]; an index out of range hits nothing.
/// Known values at known places of `depth`: how exporters make the repeats of a Tile from one number.
static std::optional<SmallVector<Scalar>> oneHotElements(const Tensor &indices, const Tensor &values, const Expr &depth,
                                                         int64_t axis) {
  std::optional<int64_t> size = depth.constant();
  if (!indices.elements || !values.elements || values.elements->size() != 2 || !size)
    return std::nullopt;
  int64_t inner = 1, count = indices.elements->size();
  for (const Expr &extent : ArrayRef<Expr>(indices.shape).drop_front(axis))
    inner *= *extent.constant();
  if (count == 0 || *size > static_cast<int64_t>(Tensor::kMaxElements) / count)
    return std::nullopt;
  SmallVector<Scalar> result;
  for (int64_t n = 0; n < count * *size; ++n) {
    const Scalar &wanted = (*indices.elements)[n / (*size * inner) * inner + n % inner];
    std::optional<int64_t> index = std::get<Expr>(wanted).constant();
    if (!index)
      return std::nullopt;
    result.push_back((*values.elements)[n / inner % *size == (*index < 0 ? *index + *size : *index)]);
  }
  return result;
}

static LogicalResult importOneHot(Node &node) {
  const Tensor &values = node.input(2);
  Tensor indices = node.cast(node.input(0), DType::I64); // any numeric type
  FailureOr<int64_t> axis = node.axis(node.intAttr("axis", -1), indices.rank() + 1);
  if (failed(axis))
    return failure();
  std::optional<SmallVector<Expr>> depth;
  if (!isFloat(node.input(1).dtype)) {
    depth = node.input(1).rank() == 1 ? exprsOfLength(node, 1, 1) : node.exprs(1);
  } else if (std::optional<SmallVector<double>> number = node.constantFloats(1)) {
    depth.emplace();
    for (double value : *number)
      depth->push_back(Expr(static_cast<int64_t>(std::clamp(value, -1.0, 1e15))));
  } else if (node.input(1).rank() <= 1) {
    FailureOr<Tensor> scalar = node.reshape(node.input(1), {});
    if (failed(scalar))
      return failure();
    OpBuilder &b = node.builder();
    Value element = tensor::ExtractOp::create(b, node.loc(), node.value(*scalar), ValueRange());
    onnx::Num number(b, node.loc(), scalar->dtype, element), low = constantNum(b, node.loc(), DType::I64, int64_t(-1));
    depth.emplace({node.symbols().opaque(toIndex(clampedInteger(number, low, low.constant(int64_t(1) << 40))), -1)});
  }
  if (!depth || depth->size() != 1)
    return node.unsupported() << "a depth that is no integer scalar", failure();
  if (failed(node.requireAtMost(Expr(0), depth->front(), "has depth {1}")))
    return failure();
  if (values.rank() != 1)
    return node.error() << "expects 2 values in 1 dimension, got " << values.rank() << " dimensions", failure();
  FailureOr<Tensor> two = node.reshape(values, {Expr(2)});
  if (failed(two))
    return failure();
  SmallVector<Expr> shape(indices.shape.begin(), indices.shape.end());
  shape.insert(shape.begin() + *axis, depth->front());
  if (std::optional<SmallVector<Scalar>> known = oneHotElements(indices, values, depth->front(), *axis))
    return node.setElements(0, values.dtype, shape, *known), success();

  OpBuilder &b = node.builder();
  Location loc = node.loc();
  Value both = node.value(*two), index = node.value(indices);
  Value off =
      tensor::ExtractOp::create(b, loc, both, ValueRange(arith::ConstantIndexOp::create(b, loc, 0).getResult()));
  Value on = tensor::ExtractOp::create(b, loc, both, ValueRange(arith::ConstantIndexOp::create(b, loc, 1).getResult()));
  Value count = node.symbols().materialize(b, loc, depth->front());
  Value result = node.generate(values.dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) {
    SmallVector<Value> place(at);
    place.erase(place.begin() + *axis);
    Value element = tensor::ExtractOp::create(b, loc, index, place);
    Value wanted = arith::IndexCastOp::create(b, loc, b.getIndexType(), element);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value negative = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, wanted, zero);
    Value fromEnd = arith::AddIOp::create(b, loc, wanted, count);
    wanted = arith::SelectOp::create(b, loc, negative, fromEnd, wanted);
    Value hit = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, at[*axis], wanted);
    return arith::SelectOp::create(b, loc, hit, on, off);
  });
  node.setOutput(0, result, values.dtype, shape);
  return success();
}

void attn::onnx::registerIndexingOps(OpRegistry &registry) {
  registry.add("Gather", {1, 11, 13}, importGather);
  registry.add("GatherElements", {11, 13}, importGatherElements);
  registry.add("GatherND", {11, 12, 13}, importGatherND);
  registry.add("Range", {11, 27}, importRange);
  registry.add("Trilu", {14}, importTrilu);
  registry.add("EyeLike", {9, 22}, importEyeLike);
  registry.add("OneHot", {9, 11, 28}, importOneHot);
}
