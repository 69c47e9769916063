#ifndef PASSES_KERNELS_SHARED_LANEBUILDER_H
#define PASSES_KERNELS_SHARED_LANEBUILDER_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <utility>

namespace attn {

/// Shorthand for the IR of the attention and row kernels: index arithmetic that
/// folds, f32 vectors of one register's width, loops and branches by lambda.
/// All methods emit at the builder's insertion point.
class LaneBuilder {
public:
  LaneBuilder(mlir::OpBuilder &builder, mlir::Location loc, int64_t lanes, bool hasScalef)
      : b(builder), loc(loc), lanes(lanes), hasScalef(hasScalef) {}

  mlir::OpBuilder &b;
  mlir::Location loc;
  /// f32 lanes of a register.
  const int64_t lanes;
  /// Whether exp2 may use vreduceps and vscalefps (512-bit vectors, AVX512DQ).
  const bool hasScalef;

  //===--- index ----------------------------------------------------------===//
  mlir::Value index(int64_t value);
  mlir::Value add(mlir::Value x, mlir::Value y);
  mlir::Value add(mlir::Value x, int64_t y) { return add(x, index(y)); }
  mlir::Value sub(mlir::Value x, mlir::Value y);
  mlir::Value mul(mlir::Value x, mlir::Value y);
  mlir::Value mul(mlir::Value x, int64_t y) { return mul(x, index(y)); }
  /// Of values >= 0.
  mlir::Value div(mlir::Value x, mlir::Value y);
  mlir::Value rem(mlir::Value x, mlir::Value y);
  mlir::Value min(mlir::Value x, mlir::Value y);
  mlir::Value max(mlir::Value x, mlir::Value y);
  mlir::Value less(mlir::Value x, mlir::Value y);
  /// x rounded down to a multiple of `step`.
  mlir::Value floorTo(mlir::Value x, int64_t step);
  /// ceil(x / step).
  mlir::Value ceilDiv(mlir::Value x, int64_t step);
  /// The value of a constant index.
  static std::optional<int64_t> constant(mlir::Value x);

  //===--- f32 vectors ----------------------------------------------------===//
  mlir::VectorType vectorType() { return mlir::VectorType::get({lanes}, b.getF32Type()); }
  mlir::Value splat(float value);
  mlir::Value broadcast(mlir::Value scalar);
  mlir::Value addf(mlir::Value x, mlir::Value y);
  mlir::Value subf(mlir::Value x, mlir::Value y);
  mlir::Value mulf(mlir::Value x, mlir::Value y);
  mlir::Value divf(mlir::Value x, mlir::Value y);
  mlir::Value fma(mlir::Value x, mlir::Value y, mlir::Value z);
  mlir::Value compare(mlir::arith::CmpFPredicate predicate, mlir::Value x, mlir::Value y);
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y);
  /// x > y ? x : y, which is one instruction; y where one is NaN.
  mlir::Value maxf(mlir::Value x, mlir::Value y);
  /// Whether any lane of an i1 vector is set.
  mlir::Value any(mlir::Value mask);
  mlir::Value either(mlir::Value x, mlir::Value y);
  mlir::Value both(mlir::Value x, mlir::Value y);
  /// Hints that an i1 is mostly false.
  mlir::Value unlikely(mlir::Value condition);
  /// Sum or maximum of one element each, pairwise.
  mlir::Value tree(mlir::ArrayRef<mlir::Value> values,
                   llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);
  /// `combine` over all lanes of x, in every lane; the order is that of a butterfly.
  mlir::Value acrossLanes(mlir::Value x, llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);
  /// sum + x / y by vrcp14ps (16 lanes) and a step of Newton's: relative error of
  /// the quotient 2e-7 where y is normal and at most 2^126.
  mlir::Value addEstimatedQuotient(mlir::Value sum, mlir::Value x, mlir::Value y);
  /// See Exponential.h.
  mlir::Value exp2(mlir::Value x);
  mlir::Value expTwice(mlir::Value x);
  /// The greater of x and |y|; infinity where y is NaN.
  mlir::Value maxAbs(mlir::Value x, mlir::Value y);
  /// x within [-bound, bound]; NaN stays.
  mlir::Value clamp(mlir::Value x, float bound);
  mlir::Value scalar(float value);
  mlir::Value extract(mlir::Value vector, int64_t lane);
  /// A scalar or vector of floats as f32, and of f32 as `type`.
  mlir::Value toF32(mlir::Value x);
  mlir::Value fromF32(mlir::Value x, mlir::Type type);
  /// Whether an integer, or each of a vector, is not 0.
  mlir::Value isNonZero(mlir::Value x);

  //===--- pairs of bf16 (AVX512-BF16) ------------------------------------===//
  // Two in each word of a vector of `lanes` f32, whose bits they are.
  /// `low` and `high`, f32 vectors, rounded; denormals become 0.
  mlir::Value pack(mlir::Value low, mlir::Value high);
  /// As f32: low, then high.
  std::pair<mlir::Value, mlir::Value> unpack(mlir::Value pairs);
  /// sum + low * low + high * high, in f32; denormals are 0.
  mlir::Value addProducts(mlir::Value sum, mlir::Value x, mlir::Value y);
  /// The pairs (x[n], y[n]) of two vectors of 2 * lanes bf16, in two vectors.
  std::pair<mlir::Value, mlir::Value> interleave(mlir::Value x, mlir::Value y);

  //===--- memory ---------------------------------------------------------===//
  /// Scratch of `elements` f32, or numbers of `type`, on the stack, aligned to a cache line.
  mlir::Value scratch(int64_t elements) { return scratch(elements, b.getF32Type()); }
  mlir::Value scratch(int64_t elements, mlir::Type type);
  /// A contiguous memref as one dimension.
  mlir::Value flatten(mlir::Value memref);
  mlir::Value load(mlir::Value flat, mlir::Value offset);
  mlir::Value loadVector(mlir::Value flat, mlir::Value offset) { return loadVector(flat, offset, lanes); }
  mlir::Value loadVector(mlir::Value flat, mlir::Value offset, int64_t length);
  /// The first `count` of `length` elements, zero beyond; reads no others.
  mlir::Value loadFirst(mlir::Value flat, mlir::Value offset, mlir::Value count, int64_t length);
  /// The 32 bits from `offset` on of a memref of narrower elements, in every lane.
  mlir::Value broadcastWord(mlir::Value flat, mlir::Value offset);
  void store(mlir::Value vector, mlir::Value flat, mlir::Value offset);
  /// Stores the first `count` lanes only.
  void storeFirst(mlir::Value vector, mlir::Value flat, mlir::Value offset, mlir::Value count);

  /// The transpose of `rows`, R vectors of C elements (powers of two, R >= C):
  /// C vectors of R elements.
  llvm::SmallVector<mlir::Value> transpose(mlir::ArrayRef<mlir::Value> rows);

  //===--- control --------------------------------------------------------===//
  using Values = llvm::SmallVector<mlir::Value>;
  /// Loop over [lower, upper); `body` gets the index and the loop's values and
  /// returns the next ones. LLVM will not unroll it.
  Values loop(mlir::Value lower, mlir::Value upper, int64_t step, mlir::ValueRange init,
              llvm::function_ref<Values(mlir::Value, mlir::ValueRange)> body);
  void loop(mlir::Value lower, mlir::Value upper, int64_t step, llvm::function_ref<void(mlir::Value)> body);
  /// `body` again and again, as long as `condition` holds of the values; those for which it does not.
  Values repeat(mlir::ValueRange init, llvm::function_ref<mlir::Value(mlir::ValueRange)> condition,
                llvm::function_ref<Values(mlir::ValueRange)> body);
  /// Both branches give values of the types of `types`.
  Values branch(mlir::Value condition, mlir::TypeRange types, llvm::function_ref<Values()> then,
                llvm::function_ref<Values()> otherwise);
  void branch(mlir::Value condition, llvm::function_ref<void()> then);
  /// `body` where denormal numbers are read and given as 0 (AVX2, AVX-512). An operation on one takes an Intel core
  /// 150 cycles: attentions of sharp scores, whose weights run through all exponents, took 15 to 100 times as long.
  void withoutDenormals(llvm::function_ref<void()> body);
};

} // namespace attn

#endif // PASSES_KERNELS_SHARED_LANEBUILDER_H
