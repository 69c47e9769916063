#ifndef FRONTENDS_ONNX_OPS_NARROW_H
#define FRONTENDS_ONNX_OPS_NARROW_H

#include "frontends/onnx/ops/Num.h"

// Floats of 8 and 4 bits and integers of 4 and 2, which are stored one a byte.

namespace attn::onnx {

/// A narrow number as f32 (floats) or as an 8-bit integer.
Num widened(const Num &x);

/// How a magnitude becomes a power of two (float8_e8m0fnu).
enum class PowerRounding { up, down, nearest };

/// A number as a narrow one: floats round to the nearest even (powers of two as
/// `rounding` says) and, beyond the greatest, become it (`saturate`) or infinity
/// or NaN, as ONNX Cast has it. Integers keep their low bits.
Num narrowed(const Num &x, DType to, bool saturate, PowerRounding rounding = PowerRounding::up);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_NARROW_H
