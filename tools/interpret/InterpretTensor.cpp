#include "tools/interpret/Interpreter.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace attn::interpret {

/// The ops of the tensor dialect: one overload of `run` for each.
class TensorRunner {
public:
  TensorRunner(Interpreter &interpreter, Operation *op) : in(interpreter), op(op), result(op->getResult(0)) {}

  LogicalResult run(tensor::EmptyOp empty) { return makeResult(in.sizesOf(empty.getMixedSizes())); }
  LogicalResult run(tensor::DimOp dim);
  LogicalResult run(tensor::CastOp cast) { return reshape(cast.getSource(), in.get(cast.getSource())->shape); }
  LogicalResult run(tensor::ExpandShapeOp expand) {
    return reshape(expand.getSrc(), in.sizesOf(expand.getMixedOutputShape()));
  }
  LogicalResult run(tensor::CollapseShapeOp collapse);
  LogicalResult run(tensor::ExtractOp extract);
  LogicalResult run(tensor::InsertOp insert);
  LogicalResult run(tensor::ExtractSliceOp slice);
  LogicalResult run(tensor::InsertSliceOp slice);
  LogicalResult run(tensor::SplatOp splat);
  LogicalResult run(tensor::FromElementsOp elements);
  LogicalResult run(tensor::ConcatOp concat);

private:
  /// Where an element comes from or goes to: appends to the second the index for the first.
  using Place = llvm::function_ref<void(ArrayRef<int64_t>, SmallVectorImpl<int64_t> &)>;

  SmallVector<int64_t> scalars(ValueRange values) const {
    return llvm::map_to_vector(values, [&](Value value) { return in.get(value)->data.front().integer; });
  }
  /// A tensor of zeros of `shape` as the result.
  FailureOr<std::shared_ptr<Datum>> makeResult(ArrayRef<int64_t> shape) {
    FailureOr<std::shared_ptr<Datum>> datum = in.make(result, shape);
    if (succeeded(datum))
      in.set(result, *datum);
    return datum;
  }
  LogicalResult setScalar(Scalar scalar) {
    in.set(result, std::make_shared<Datum>(Datum{{}, {scalar}}));
    return success();
  }
  LogicalResult reshape(Value source, ArrayRef<int64_t> shape);
  LogicalResult gather(const Datum &source, ArrayRef<int64_t> shape, Place from);
  LogicalResult scatter(const Datum &source, ArrayRef<int64_t> walk, const Datum &destination, Place to);

  Interpreter &in;
  Operation *op;
  Value result;
};

/// The same elements under another shape.
LogicalResult TensorRunner::reshape(Value source, ArrayRef<int64_t> shape) {
  FailureOr<std::shared_ptr<Datum>> datum = makeResult(shape);
  if (failed(datum))
    return failure();
  if ((*datum)->data.size() != in.get(source)->data.size())
    return op->emitError("changes the number of elements from ")
           << in.get(source)->data.size() << " to " << (*datum)->data.size();
  (*datum)->data = in.get(source)->data;
  return success();
}

/// result[...] = source[from(...)] over the result's shape.
LogicalResult TensorRunner::gather(const Datum &source, ArrayRef<int64_t> shape, Place from) {
  FailureOr<std::shared_ptr<Datum>> datum = makeResult(shape);
  if (failed(datum))
    return failure();
  SmallVector<int64_t> index(shape.size(), 0), at;
  size_t n = 0;
  for (bool more = !(*datum)->data.empty(); more; more = step(index, shape)) {
    at.clear();
    from(index, at);
    int64_t position = positionIn(source.shape, at);
    if (position < 0)
      return op->emitError("reads outside of its source");
    (*datum)->data[n++] = source.data[position];
  }
  return success();
}

/// `source` written into a copy of `destination`.
LogicalResult TensorRunner::scatter(const Datum &source, ArrayRef<int64_t> walk, const Datum &destination, Place to) {
  auto datum = std::make_shared<Datum>(destination);
  SmallVector<int64_t> index(walk.size(), 0), at;
  size_t n = 0;
  for (bool more = countElements(walk) > 0; more; more = step(index, walk)) {
    at.clear();
    to(index, at);
    int64_t position = positionIn(destination.shape, at);
    if (position < 0 || n >= source.data.size())
      return op->emitError("writes outside of its destination");
    datum->data[position] = source.data[n++];
  }
  in.set(result, datum);
  return success();
}

LogicalResult TensorRunner::run(tensor::DimOp dim) {
  int64_t n = in.get(dim.getIndex())->data.front().integer;
  const Datum &source = *in.get(dim.getSource());
  if (n < 0 || n >= int64_t(source.shape.size()))
    return op->emitError("asks for dimension ") << n << " of " << source.shape.size();
  return setScalar(Scalar::of(source.shape[n]));
}

LogicalResult TensorRunner::run(tensor::CollapseShapeOp collapse) {
  SmallVector<int64_t> shape;
  for (const ReassociationIndices &group : collapse.getReassociationIndices()) {
    shape.push_back(1);
    for (int64_t n : group)
      shape.back() *= in.get(collapse.getSrc())->shape[n];
  }
  return reshape(collapse.getSrc(), shape);
}

LogicalResult TensorRunner::run(tensor::ExtractOp extract) {
  const Datum &source = *in.get(extract.getTensor());
  int64_t position = positionIn(source.shape, scalars(extract.getIndices()));
  if (position < 0)
    return op->emitError("reads outside of its source");
  return setScalar(source.data[position]);
}

LogicalResult TensorRunner::run(tensor::InsertOp insert) {
  SmallVector<int64_t> at = scalars(insert.getIndices());
  return scatter(*in.get(insert.getScalar()), {}, *in.get(insert.getDest()),
                 [&](ArrayRef<int64_t>, SmallVectorImpl<int64_t> &to) { to.append(at.begin(), at.end()); });
}

LogicalResult TensorRunner::run(tensor::ExtractSliceOp slice) {
  SmallVector<int64_t> offsets = in.sizesOf(slice.getMixedOffsets()), sizes = in.sizesOf(slice.getMixedSizes()),
                       strides = in.sizesOf(slice.getMixedStrides());
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  SmallVector<int64_t> shape;
  for (auto [n, size] : llvm::enumerate(sizes))
    if (!dropped[n])
      shape.push_back(size);
  return gather(*in.get(slice.getSource()), shape, [&](ArrayRef<int64_t> index, SmallVectorImpl<int64_t> &from) {
    size_t next = 0;
    for (size_t n = 0; n != sizes.size(); ++n)
      from.push_back(offsets[n] + (dropped[n] ? 0 : index[next++] * strides[n]));
  });
}

LogicalResult TensorRunner::run(tensor::InsertSliceOp slice) {
  SmallVector<int64_t> offsets = in.sizesOf(slice.getMixedOffsets()), sizes = in.sizesOf(slice.getMixedSizes()),
                       strides = in.sizesOf(slice.getMixedStrides());
  return scatter(*in.get(slice.getSource()), sizes, *in.get(slice.getDest()),
                 [&](ArrayRef<int64_t> index, SmallVectorImpl<int64_t> &to) {
                   for (size_t n = 0; n != sizes.size(); ++n)
                     to.push_back(offsets[n] + index[n] * strides[n]);
                 });
}

LogicalResult TensorRunner::run(tensor::SplatOp splat) {
  SmallVector<int64_t> shape(cast<RankedTensorType>(result.getType()).getShape());
  SmallVector<int64_t> dynamic = scalars(splat.getDynamicSizes());
  auto next = dynamic.begin();
  for (int64_t &size : shape)
    size = ShapedType::isDynamic(size) ? *next++ : size;
  FailureOr<std::shared_ptr<Datum>> datum = makeResult(shape);
  if (failed(datum))
    return failure();
  llvm::fill((*datum)->data, in.get(splat.getInput())->data.front());
  return success();
}

LogicalResult TensorRunner::run(tensor::FromElementsOp elements) {
  FailureOr<std::shared_ptr<Datum>> datum = makeResult(cast<RankedTensorType>(result.getType()).getShape());
  if (failed(datum))
    return failure();
  for (auto [element, value] : llvm::zip_equal((*datum)->data, elements.getElements()))
    element = in.get(value)->data.front();
  return success();
}

LogicalResult TensorRunner::run(tensor::ConcatOp concat) {
  uint64_t dim = concat.getDim();
  SmallVector<int64_t> shape(in.get(op->getOperand(0))->shape);
  shape[dim] = 0;
  for (Value input : concat.getInputs())
    shape[dim] += in.get(input)->shape[dim];
  if (failed(makeResult(shape)))
    return failure();
  int64_t start = 0;
  for (Value input : concat.getInputs()) {
    DatumRef part = in.get(input), sum = in.get(result);
    auto behind = [&](ArrayRef<int64_t> index, SmallVectorImpl<int64_t> &to) {
      to.append(index.begin(), index.end());
      to[dim] += start;
    };
    if (failed(scatter(*part, part->shape, *sum, behind)))
      return failure();
    start += part->shape[dim];
  }
  return success();
}

LogicalResult Interpreter::runTensor(Operation *op, bool &known) {
  known = op->getNumResults() == 1;
  if (!known)
    return success();
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<tensor::EmptyOp, tensor::DimOp, tensor::CastOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
            tensor::ExtractOp, tensor::InsertOp, tensor::ExtractSliceOp, tensor::InsertSliceOp, tensor::SplatOp,
            tensor::FromElementsOp, tensor::ConcatOp>([&](auto typed) { return TensorRunner(*this, op).run(typed); })
      .Default([&](Operation *) {
        known = false;
        return success();
      });
}

} // namespace attn::interpret
