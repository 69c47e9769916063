#ifndef PASSES_LOWERING_CHOOSE_FORMULA_H
#define PASSES_LOWERING_CHOOSE_FORMULA_H

#include "builders/Operators.h"
#include "llvm/ADT/SmallVectorExtras.h"

namespace attn {

/// `f`, from a list of numbers to a number, as the body of an elementwise op or a reduction:
///
///     elementwise(b, loc, sizes, f32, {x, y}, maps, formula([](Nums x) { return x[0] / (x[1] + 1.0); }))
template <typename F> auto formula(F f) {
  return [f](mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange elements) -> mlir::Value {
    return f(llvm::map_to_vector(elements, [&](mlir::Value x) { return Num(b, loc, x); }));
  };
}

} // namespace attn

#endif // PASSES_LOWERING_CHOOSE_FORMULA_H
