#ifndef FRONTENDS_ONNX_OPS_NARROW_H
#define FRONTENDS_ONNX_OPS_NARROW_H

#include "frontends/onnx/ops/Num.h"

// 8-bit floats and 4-bit integers, which are stored one a byte.

namespace attn::onnx {

/// A narrow number as f32 (floats) or as an 8-bit integer.
Num widened(const Num &x);

/// A number as a narrow one: floats round to the nearest even and, beyond the
/// greatest, become it (`saturate`) or infinity or NaN, as ONNX Cast has it.
/// Integers keep their low bits.
Num narrowed(const Num &x, DType to, bool saturate);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_NARROW_H
