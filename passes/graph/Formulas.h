#ifndef PASSES_GRAPH_FORMULAS_H
#define PASSES_GRAPH_FORMULAS_H

#include "builders/Code.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SmallVectorExtras.h"

// Bodies of linalg ops as formulas, with the operators of builders.

namespace attn {

/// What a body computes from the elements of the inputs and, of a reduction, last the accumulator.
using NumBody = llvm::function_ref<Num(Code &, llvm::ArrayRef<Num>)>;

/// A tensor, as loops carry it.
class Tensor : public Kind<Tensor> {
  using Kind::Kind;
};

/// `write`, of an ArrayRef<Num> alone or a Code and that, as a body:
///
///     elementwise(b, loc, sizes, f32, {x, y}, maps, formula([](ArrayRef<Num> x) { return x[0] / (x[1] + 1.0); }))
template <typename Write> auto formula(Write write) {
  return [write = std::move(write)](mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange args) -> mlir::Value {
    Code k(b, loc);
    auto x = llvm::map_to_vector(args, [&](mlir::Value arg) { return k.asNum(arg); });
    if constexpr (std::is_invocable_v<const Write &, llvm::ArrayRef<Num>>)
      return write(llvm::ArrayRef<Num>(x));
    else
      return write(k, llvm::ArrayRef<Num>(x));
  };
}

inline Num constantOf(Code &k, mlir::TypedAttr number) {
  return k.asNum(mlir::arith::ConstantOp::create(k.b, k.loc, number));
}

/// Where the body is along loop `n` of its op.
inline Index loopIndex(Code &k, int64_t n) { return k.asIndex(mlir::linalg::IndexOp::create(k.b, k.loc, n)); }

inline Num elementAt(Code &k, mlir::Value tensor, mlir::ValueRange place) {
  return k.asNum(mlir::tensor::ExtractOp::create(k.b, k.loc, tensor, place));
}

} // namespace attn

#endif // PASSES_GRAPH_FORMULAS_H
