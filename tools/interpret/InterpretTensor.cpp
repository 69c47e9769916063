#include "tools/interpret/Interpreter.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;

namespace attn::interpret {

LogicalResult Interpreter::runTensor(Operation *op, bool &known) {
  known = true;
  if (op->getNumResults() != 1) {
    known = false;
    return success();
  }
  Value result = op->getResult(0);
  auto type = dyn_cast<RankedTensorType>(result.getType());
  auto scalars = [&](ValueRange values) {
    SmallVector<int64_t> all;
    for (Value value : values)
      all.push_back(get(value)->data.front().integer);
    return all;
  };
  /// The same elements under another shape.
  auto reshape = [&](Value source, ArrayRef<int64_t> shape) -> LogicalResult {
    FailureOr<std::shared_ptr<Datum>> datum = make(result, shape);
    if (failed(datum))
      return failure();
    if ((*datum)->data.size() != get(source)->data.size())
      return op->emitError("changes the number of elements from ")
             << get(source)->data.size() << " to " << (*datum)->data.size();
    (*datum)->data = get(source)->data;
    set(result, *datum);
    return success();
  };
  /// result[...] = source[from(...)] over the result's shape.
  auto gather = [&](const Datum &source, ArrayRef<int64_t> shape,
                    llvm::function_ref<void(ArrayRef<int64_t>, SmallVectorImpl<int64_t> &)> from) -> LogicalResult {
    FailureOr<std::shared_ptr<Datum>> datum = make(result, shape);
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
    set(result, *datum);
    return success();
  };
  /// `source` written into a copy of `destination`.
  auto scatter = [&](const Datum &source, ArrayRef<int64_t> walk, const Datum &destination,
                     llvm::function_ref<void(ArrayRef<int64_t>, SmallVectorImpl<int64_t> &)> to) -> LogicalResult {
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
    set(result, datum);
    return success();
  };

  if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
    FailureOr<std::shared_ptr<Datum>> datum = make(result, sizesOf(empty.getMixedSizes()));
    if (failed(datum))
      return failure();
    set(result, *datum);
    return success();
  }
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    int64_t n = get(dim.getIndex())->data.front().integer;
    const Datum &source = *get(dim.getSource());
    if (n < 0 || n >= int64_t(source.shape.size()))
      return op->emitError("asks for dimension ") << n << " of " << source.shape.size();
    set(result, std::make_shared<Datum>(Datum{{}, {Scalar::of(source.shape[n])}}));
    return success();
  }
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    return reshape(cast.getSource(), get(cast.getSource())->shape);
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return reshape(expand.getSrc(), sizesOf(expand.getMixedOutputShape()));
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    SmallVector<int64_t> shape;
    for (const ReassociationIndices &group : collapse.getReassociationIndices()) {
      shape.push_back(1);
      for (int64_t n : group)
        shape.back() *= get(collapse.getSrc())->shape[n];
    }
    return reshape(collapse.getSrc(), shape);
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    const Datum &source = *get(extract.getTensor());
    int64_t position = positionIn(source.shape, scalars(extract.getIndices()));
    if (position < 0)
      return op->emitError("reads outside of its source");
    set(result, std::make_shared<Datum>(Datum{{}, {source.data[position]}}));
    return success();
  }
  if (auto insert = dyn_cast<tensor::InsertOp>(op)) {
    SmallVector<int64_t> at = scalars(insert.getIndices());
    return scatter(*get(insert.getScalar()), {}, *get(insert.getDest()),
                   [&](ArrayRef<int64_t>, SmallVectorImpl<int64_t> &to) { to.append(at.begin(), at.end()); });
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    SmallVector<int64_t> offsets = sizesOf(slice.getMixedOffsets()), sizes = sizesOf(slice.getMixedSizes()),
                         strides = sizesOf(slice.getMixedStrides());
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    SmallVector<int64_t> shape;
    for (auto [n, size] : llvm::enumerate(sizes))
      if (!dropped[n])
        shape.push_back(size);
    return gather(*get(slice.getSource()), shape, [&](ArrayRef<int64_t> index, SmallVectorImpl<int64_t> &from) {
      size_t next = 0;
      for (size_t n = 0; n != sizes.size(); ++n)
        from.push_back(offsets[n] + (dropped[n] ? 0 : index[next++] * strides[n]));
    });
  }
  if (auto slice = dyn_cast<tensor::InsertSliceOp>(op)) {
    SmallVector<int64_t> offsets = sizesOf(slice.getMixedOffsets()), sizes = sizesOf(slice.getMixedSizes()),
                         strides = sizesOf(slice.getMixedStrides());
    return scatter(*get(slice.getSource()), sizes, *get(slice.getDest()),
                   [&](ArrayRef<int64_t> index, SmallVectorImpl<int64_t> &to) {
                     for (size_t n = 0; n != sizes.size(); ++n)
                       to.push_back(offsets[n] + index[n] * strides[n]);
                   });
  }
  if (isa<tensor::SplatOp, tensor::FromElementsOp>(op)) {
    SmallVector<int64_t> shape(type.getShape());
    if (auto splat = dyn_cast<tensor::SplatOp>(op)) {
      SmallVector<int64_t> dynamic = scalars(splat.getDynamicSizes());
      auto next = dynamic.begin();
      for (int64_t &size : shape)
        size = ShapedType::isDynamic(size) ? *next++ : size;
    }
    FailureOr<std::shared_ptr<Datum>> datum = make(result, shape);
    if (failed(datum))
      return failure();
    bool isSplat = isa<tensor::SplatOp>(op);
    for (auto [n, element] : llvm::enumerate((*datum)->data))
      element = get(op->getOperand(isSplat ? 0 : n))->data.front();
    set(result, *datum);
    return success();
  }
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    uint64_t dim = concat.getDim();
    SmallVector<int64_t> shape(get(op->getOperand(0))->shape);
    shape[dim] = 0;
    for (Value input : concat.getInputs())
      shape[dim] += get(input)->shape[dim];
    FailureOr<std::shared_ptr<Datum>> datum = make(result, shape);
    if (failed(datum))
      return failure();
    set(result, *datum);
    int64_t start = 0;
    for (Value input : concat.getInputs()) {
      DatumRef part = get(input), sum = get(result);
      if (failed(scatter(*part, part->shape, *sum, [&](ArrayRef<int64_t> index, SmallVectorImpl<int64_t> &to) {
            to.append(index.begin(), index.end());
            to[dim] += start;
          })))
        return failure();
      start += part->shape[dim];
    }
    return success();
  }
  known = false;
  return success();
}

} // namespace attn::interpret
