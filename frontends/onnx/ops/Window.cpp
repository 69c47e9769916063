#include "frontends/onnx/ops/Window.h"
#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn::onnx {

bool Window::tiles() const {
  for (size_t d = 0; d < rank(); ++d)
    if (!kernel[d].is(strides[d]) || dilations[d] != 1 || !padBegin[d].is(0) || !padEnd[d].is(0))
      return false;
  return true;
}

/// An attribute of one positive number a spatial dimension.
static FailureOr<SmallVector<int64_t>> positives(Node &n, StringRef name, size_t rank) {
  SmallVector<int64_t> values = n.intsAttr(name).value_or(SmallVector<int64_t>(rank, 1));
  if (values.size() != rank)
    return n.error() << "expects " << rank << " " << name << ", has " << values.size();
  for (int64_t value : values)
    if (value < 1 || value > kMaxStep)
      return n.error() << "expects " << name << " in [1, " << kMaxStep << "], has " << value;
  return values;
}

/// Pads such that there are ceil(size / stride) positions.
static void samePads(Node &n, Window &w, size_t d, const Expr &size, const Expr &extent, bool upper) {
  Symbols &s = n.symbols();
  Expr stride(w.strides[d]);
  w.output[d] = s.ceilDiv(size, stride);
  Expr total = s.max((w.output[d] - Expr(1)) * stride + extent - size, 0);
  Expr half = s.floorDiv(total, 2);
  w.padBegin[d] = upper ? half : total - half;
  w.padEnd[d] = total - w.padBegin[d];
}

static LogicalResult explicitPads(Node &n, Window &w, ArrayRef<int64_t> pads, size_t d, const Expr &size,
                                  const Expr &extent, bool mayBeNone) {
  Symbols &s = n.symbols();
  Expr begin(pads[d]), end(pads[d + w.rank()]), stride(w.strides[d]);
  Expr span = size + begin + end - extent;
  Expr least(mayBeNone && w.strides[d] == 1 ? -1 : 0);
  if (failed(n.requireAtMost(
          least, span, "the padded dimension less the window is {1}, expected at least {0}: the input is too short")))
    return failure();
  w.padBegin[d] = begin;
  w.padEnd[d] = end;
  w.output[d] = s.floorDiv(span, stride) + Expr(1);
  if (!n.intAttr("ceil_mode", 0))
    return success();
  // One more position where the rest is not a whole stride, unless it would
  // start in the padding at the end.
  Expr ceiled = s.ceilDiv(span, stride) + Expr(1);
  Expr within = s.floorDiv(size + begin - Expr(1), stride) + Expr(1);
  w.output[d] = s.min(ceiled, within);
  w.overhang[d] = s.max(0, (w.output[d] - Expr(1)) * stride + extent - size - begin - end);
  return success();
}

FailureOr<Window> readWindow(Node &n, const Tensor &x, ArrayRef<Expr> kernel, bool mayBeNone) {
  size_t rank = kernel.size();
  FailureOr<SmallVector<int64_t>> strides = positives(n, "strides", rank), dilations = positives(n, "dilations", rank);
  if (failed(strides) || failed(dilations))
    return failure();
  Window w;
  w.kernel.assign(kernel.begin(), kernel.end());
  w.strides = *strides;
  w.dilations = *dilations;
  w.padBegin.resize(rank);
  w.padEnd.resize(rank);
  w.overhang.resize(rank);
  w.output.resize(rank);
  std::string autoPad = n.stringAttr("auto_pad", "NOTSET");
  bool same = autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER";
  if (!same && autoPad != "NOTSET" && autoPad != "VALID" && !autoPad.empty())
    return n.error() << "auto_pad '" << autoPad << "' is none of NOTSET, SAME_UPPER, SAME_LOWER, VALID";
  SmallVector<int64_t> pads(2 * rank, 0);
  if (autoPad != "VALID" && !same)
    pads = n.intsAttr("pads").value_or(pads);
  if (pads.size() != 2 * rank)
    return n.error() << "expects " << 2 * rank << " pads, has " << pads.size();
  for (int64_t pad : pads)
    if (pad < 0 || pad > kMaxStep)
      return n.error() << "expects pads in [0, " << kMaxStep << "], has " << pad;
  for (size_t d = 0; d < rank; ++d) {
    Expr extent = (kernel[d] - Expr(1)) * Expr(w.dilations[d]) + Expr(1);
    if (same)
      samePads(n, w, d, x.shape[d + 2], extent, autoPad == "SAME_UPPER");
    else if (failed(explicitPads(n, w, pads, d, x.shape[d + 2], extent, mayBeNone)))
      return failure();
  }
  return w;
}

Tensor padded(Node &n, const Tensor &x, const Window &window, const Num &value, size_t first) {
  OpBuilder &b = n.builder();
  auto isZero = [](const Expr &e) { return e.is(0); };
  if (llvm::all_of(window.padBegin, isZero) && llvm::all_of(window.padEnd, isZero) &&
      llvm::all_of(window.overhang, isZero))
    return x;
  Tensor out;
  out.dtype = x.dtype;
  out.shape = x.shape;
  SmallVector<OpFoldResult> low(x.rank(), b.getIndexAttr(0)), high(low);
  for (size_t d = 0; d < window.rank(); ++d) {
    Expr end = window.padEnd[d] + window.overhang[d];
    low[first + d] = n.symbols().size(b, n.loc(), window.padBegin[d]);
    high[first + d] = n.symbols().size(b, n.loc(), end);
    out.shape[first + d] = x.shape[first + d] + window.padBegin[d] + end;
  }
  Value v = tensor::PadOp::create(b, n.loc(), n.type(x.dtype, out.shape), n.value(x), low, high, value.value());
  out.value = v;
  return out;
}

Tensor channelsFirst(Node &n, const Tensor &x) {
  SmallVector<int64_t> order = dimsFrom(0, x.rank());
  if (order.size() > 2)
    std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return n.transpose(x, order);
}

Tensor channelsLast(Node &n, const Tensor &x) {
  SmallVector<int64_t> order = dimsFrom(0, x.rank());
  if (order.size() > 2)
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return n.transpose(x, order);
}

FailureOr<Tensor> withChannelsLast(Node &n, const Tensor &x) {
  ArrayRef<Expr> spatial = ArrayRef(x.shape).drop_front(2);
  FailureOr<Tensor> flat = n.reshape(x, {x.shape[0], x.shape[1], product(spatial)});
  if (failed(flat))
    return failure();
  SmallVector<Expr, 4> shape{x.shape[0]};
  shape.append(spatial.begin(), spatial.end());
  shape.push_back(x.shape[1]);
  return n.reshape(n.transpose(*flat, {0, 2, 1}), shape);
}

AffineExpr windowIndex(MLIRContext *context, const Window &window, size_t d, unsigned position, unsigned offset) {
  return getAffineDimExpr(position, context) * window.strides[d] +
         getAffineDimExpr(offset, context) * window.dilations[d];
}

} // namespace attn::onnx
