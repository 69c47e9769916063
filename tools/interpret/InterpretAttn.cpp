#include "dialects/attn/SegmentAttentionOp.h"
#include "dialects/attn/TopKOp.h"
#include "tools/interpret/Interpreter.h"

#include "mlir/IR/TypeUtilities.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace mlir;

namespace attn::interpret {

LogicalResult Interpreter::runSoftmax(SoftmaxOp op) {
  const Datum &input = *get(op.getInput());
  FailureOr<std::shared_ptr<Datum>> datum = make(op.getResult(), input.shape);
  if (failed(datum))
    return failure();
  size_t dim = op.getDim(), inner = 1, length = input.shape[dim];
  for (size_t n = dim + 1; n < input.shape.size(); ++n)
    inner *= input.shape[n];
  std::vector<Scalar> &out = (*datum)->data;
  size_t rows = length ? input.data.size() / length : 0;
  for (size_t row = 0; row != rows; ++row) {
    size_t first = row / inner * length * inner + row % inner;
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t n = 0; n != length; ++n) {
      double x = input.data[first + n * inner].real;
      max = std::isnan(x) || std::isnan(max) ? std::numeric_limits<double>::quiet_NaN() : std::max(max, x);
    }
    for (size_t n = 0; n != length; ++n)
      sum += std::exp(input.data[first + n * inner].real - max);
    for (size_t n = 0; n != length; ++n) {
      double x = input.data[first + n * inner].real - max;
      out[first + n * inner] = Scalar::of(op.getLog() ? x - std::log(sum) : std::exp(x) / sum);
    }
  }
  set(op.getResult(), *datum);
  return success();
}

LogicalResult Interpreter::runLayerNorm(LayerNormOp op) {
  const Datum &input = *get(op.getInput()), &scale = *get(op.getScale());
  FailureOr<std::shared_ptr<Datum>> datum = make(op.getResult(), input.shape);
  if (failed(datum))
    return failure();
  size_t length = 1;
  for (size_t n = op.getAxis(); n < input.shape.size(); ++n)
    length *= input.shape[n];
  const Datum *bias = op.getBias() ? get(op.getBias()).get() : nullptr;
  if (scale.data.size() != length || (bias && bias->data.size() != length))
    return op.emitOpError("has scale or bias of another size than its rows");
  std::vector<Scalar> &out = (*datum)->data;
  for (size_t first = 0; length && first < out.size(); first += length) {
    double sum = 0, squares = 0;
    for (size_t n = 0; n != length; ++n)
      sum += input.data[first + n].real;
    double mean = sum / double(length);
    for (size_t n = 0; n != length; ++n)
      squares += (input.data[first + n].real - mean) * (input.data[first + n].real - mean);
    double factor = 1 / std::sqrt(squares / double(length) + op.getEpsilon().convertToDouble());
    for (size_t n = 0; n != length; ++n) {
      double y = (input.data[first + n].real - mean) * factor * scale.data[n].real;
      out[first + n] = Scalar::of(bias ? y + bias->data[n].real : y);
    }
  }
  set(op.getResult(), *datum);
  return success();
}

LogicalResult Interpreter::runTopK(TopKOp op) {
  const Datum &input = *get(op.getInput());
  size_t dim = op.getDim(), inner = 1, length = input.shape[dim];
  SmallVector<int64_t> shape(input.shape);
  int64_t count = shape[dim] = get(op.getCount())->data.front().integer;
  FailureOr<std::shared_ptr<Datum>> values = make(op.getValues(), shape), positions = make(op.getPositions(), shape);
  if (failed(values) || failed(positions))
    return failure();
  for (size_t n = dim + 1; n < shape.size(); ++n)
    inner *= shape[n];
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(op.getInput()));
  auto exceeds = [&](Scalar x, Scalar y) {
    if (isFloat)
      return x.real > y.real || (std::isnan(x.real) && !std::isnan(y.real));
    return op.getIsUnsigned() ? uint64_t(x.integer) > uint64_t(y.integer) : x.integer > y.integer;
  };
  size_t rows = length ? input.data.size() / length : 0;
  for (size_t row = 0; row != rows; ++row) {
    auto at = [&](size_t place, size_t size) { return (row / inner * size + place) * inner + row % inner; };
    std::vector<size_t> order(length);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      Scalar x = input.data[at(a, length)], y = input.data[at(b, length)];
      return op.getSmallest() ? exceeds(y, x) : exceeds(x, y);
    });
    for (size_t place = 0; place != std::min(size_t(count), length); ++place) {
      (*values)->data[at(place, count)] = input.data[at(order[place], length)];
      (*positions)->data[at(place, count)] = Scalar::of(int64_t(order[place]));
    }
  }
  set(op.getValues(), *values);
  set(op.getPositions(), *positions);
  return success();
}

LogicalResult Interpreter::runSegmentAttention(SegmentAttentionOp op) {
  const Datum &scores = *get(op.getScores()), &values = *get(op.getValues()), &ends = *get(op.getEnds());
  size_t heads = values.shape[1], width = values.shape[2], nodes = ends.data.size();
  FailureOr<std::shared_ptr<Datum>> datum = make(op.getResult(), {int64_t(nodes), int64_t(heads), int64_t(width)});
  if (failed(datum))
    return failure();
  std::vector<Scalar> &out = (*datum)->data;
  for (size_t node = 0; node != nodes; ++node) {
    size_t begin = node ? ends.data[node - 1].integer : 0, end = ends.data[node].integer;
    auto edgeAt = [&](size_t n) { return size_t(get(op.getOrder())->data[n].integer); };
    for (size_t head = 0; head != heads; ++head) {
      double max = op.getFloor() ? op.getFloor()->convertToDouble() : -std::numeric_limits<double>::infinity();
      double sum = op.getEpsilon().convertToDouble();
      auto scoreAt = [&](size_t n) { return scores.data[edgeAt(n) * heads + head].real; };
      for (size_t n = begin; n < end; ++n)
        max = std::fmax(max, scoreAt(n));
      for (size_t n = begin; n < end; ++n)
        sum += std::exp(scoreAt(n) - max);
      for (size_t column = 0; column != width; ++column) {
        double total = 0;
        for (size_t n = begin; n < end; ++n) {
          size_t row = op.getRows() ? get(op.getRows())->data[edgeAt(n)].integer : edgeAt(n);
          total += std::exp(scoreAt(n) - max) / sum * values.data[(row * heads + head) * width + column].real;
        }
        out[(node * heads + head) * width + column] = Scalar::of(total);
      }
    }
  }
  set(op.getResult(), *datum);
  return success();
}

LogicalResult Interpreter::runAttn(Operation *op, bool &known) {
  known = true;
  if (auto attention = dyn_cast<AttentionOp>(op))
    return runAttention(attention);
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return runSoftmax(softmax);
  if (auto norm = dyn_cast<LayerNormOp>(op))
    return runLayerNorm(norm);
  if (auto top = dyn_cast<TopKOp>(op))
    return runTopK(top);
  if (auto segments = dyn_cast<SegmentAttentionOp>(op))
    return runSegmentAttention(segments);
  if (auto require = dyn_cast<RequireOp>(op)) {
    if (!get(require.getCondition())->data.front().integer)
      return op->emitError("the run ends: ") << require.getMessage();
    return success();
  }
  if (auto check = dyn_cast<CheckIndexOp>(op)) {
    int64_t at = get(check.getIndex())->data.front().integer, size = get(check.getSize())->data.front().integer;
    int64_t wrapped = at < 0 && !check.getNonnegative() ? at + size : at;
    if (wrapped < 0 || wrapped >= size)
      return op->emitError("index ") << at << " is out of range [0, " << size << ")";
    set(check.getResult(), std::make_shared<Datum>(Datum{{}, {Scalar::of(wrapped)}}));
    return success();
  }
  known = false;
  return success();
}

} // namespace attn::interpret
