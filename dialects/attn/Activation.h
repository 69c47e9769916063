#ifndef DIALECTS_ATTN_ACTIVATION_H
#define DIALECTS_ATTN_ACTIVATION_H

#include "dialects/attn/AttnOps.h"

namespace attn {

/// `activation` of `x`, a float or a vector of floats, in arith and math ops.
mlir::Value emitActivation(mlir::OpBuilder &b, mlir::Location loc, ActivationAttr activation, mlir::Value x);

/// `x` within [-bound, bound]; NaN stays NaN.
mlir::Value emitClip(mlir::OpBuilder &b, mlir::Location loc, double bound, mlir::Value x);

} // namespace attn

#endif // DIALECTS_ATTN_ACTIVATION_H
