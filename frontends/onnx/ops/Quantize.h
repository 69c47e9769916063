#ifndef FRONTENDS_ONNX_OPS_QUANTIZE_H
#define FRONTENDS_ONNX_OPS_QUANTIZE_H

#include "frontends/onnx/Importer.h"
#include "frontends/onnx/ops/Num.h"

namespace attn::onnx {

/// Whether QuantizeLinear makes integers of this type: of 8 or 16 bits.
bool isQuantized(DType dtype);

/// Warns of a constant scale, input 1, that is infinite or NaN, or 0 where the node divides by it.
void warnOfScales(Node &n, bool divides);

/// round(x) + zero in the range of `to`; NaN is its least value.
Num saturated(const Num &x, const std::optional<Num> &zero, DType to);

/// x, quantised to u8 with one scale and zero point that the run finds.
struct Quantized {
  Tensor bytes, scale, zero;
};

/// As DynamicQuantizeLinear-11 does it.
mlir::FailureOr<Quantized> quantizeDynamically(Node &n, const Tensor &x);

/// (x - zero) * scale in f32 of integers `x`, with one scale and at most one zero point: inputs of these numbers.
mlir::FailureOr<Tensor> dequantized(Node &n, const Tensor &x, size_t scale, size_t zero);

/// Input `i` of one element, or one a slice of dimension `dim` of a tensor of
/// rank `rank`, in a shape that broadcasts to that tensor.
mlir::FailureOr<Tensor> alongDim(Node &n, size_t i, int64_t dim, int64_t rank);

/// round(sum * (scale a * scale b / scale y)) + zero y: inputs `scaleY` and
/// `zeroY` of the node, which go along `dim`; without a zero point the result is
/// of type `fallback`.
mlir::FailureOr<Tensor> requantized(Node &n, const Tensor &sum, const Tensor &scaleA, const Tensor &scaleB,
                                    size_t scaleY, size_t zeroY, DType fallback, int64_t dim);
/// That, as output 0.
mlir::LogicalResult setRequantized(Node &n, const Tensor &sum, const Tensor &scaleA, const Tensor &scaleB,
                                   size_t scaleY, size_t zeroY, DType fallback, int64_t dim);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_QUANTIZE_H
