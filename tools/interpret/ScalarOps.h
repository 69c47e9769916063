#ifndef TOOLS_INTERPRET_SCALAROPS_H
#define TOOLS_INTERPRET_SCALAROPS_H

#include "tools/interpret/Datum.h"

#include "mlir/IR/Operation.h"
#include "mlir/IR/Types.h"

namespace attn::interpret {

using ScalarRule = Scalar (*)(mlir::Operation *, llvm::ArrayRef<Scalar>);

/// How `op`, one of arith or math on scalars, is computed, or null.
ScalarRule findScalarRule(mlir::Operation *op);

/// `x` as an element of `type`: integers wrap to its width, floats keep all 53
/// bits but overflow to infinity where the type does (two masks of
/// finfo(float32).min must add up to -inf).
Scalar fit(Scalar x, mlir::Type type);

/// `x` rounded to the float type `type`.
double roundTo(double x, mlir::Type type);

} // namespace attn::interpret

#endif // TOOLS_INTERPRET_SCALAROPS_H
