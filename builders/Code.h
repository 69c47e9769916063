#ifndef BUILDERS_CODE_H
#define BUILDERS_CODE_H

#include "builders/Buffer.h"
#include "builders/Carried.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <limits>

namespace attn {

/// Where code is emitted, and what needs no operand: constants, memory, loops
/// and branches. A row's sum of squares, eight at a time:
///
///     Code k(builder, loc);
///     Vec squares = k.loop(0, count, 8, k.splat(k.f32(0), 8), [&](Index n, Vec sum) {
///       Vec x = row.first(count - n, 8, n);
///       return fma(x, x, sum);
///     });
///     out.set(sumOfLanes(squares), 0);
///
/// A loop or branch carries one term, a tuple of what may be carried, or a
/// SmallVector of it; a body takes a tuple's parts one by one, and the loop gives
/// a tuple, for std::tie or `auto [a, b]`. What is defined outside may be used
/// within.
class Code {
public:
  Code(mlir::OpBuilder &b, mlir::Location loc) : b(b), loc(loc) {}
  mlir::OpBuilder &b;
  mlir::Location loc;

  //===--- constants ------------------------------------------------------===//
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Index index(int64_t value);
  Num number(mlir::Type type, double value) { return asNum(emit::constant(b, loc, type, value)); }
  Num number(mlir::Type type, int64_t value) { return asNum(emit::constant(b, loc, type, value)); }
  Num f32(double value) { return number(b.getF32Type(), value); }
  Num f64(double value) { return number(b.getF64Type(), value); }
  Num i32(int64_t value) { return number(b.getI32Type(), value); }
  Num i64(int64_t value) { return number(b.getI64Type(), value); }
  Mask truth(bool value);
  Vec splat(const Num &x, int64_t lanes) { return attn::splat(x, lanes); }
  /// `first`, `first` + 1... as i32, in so many lanes.
  Vec consecutive(int64_t first, int64_t lanes);

  //===--- values from elsewhere ------------------------------------------===//
  Index asIndex(mlir::Value v) { return Index(b, loc, v); }
  Num asNum(mlir::Value v) { return Num(b, loc, v); }
  Vec asVec(mlir::Value v) { return Vec(b, loc, v); }
  Mask asMask(mlir::Value v) { return Mask(b, loc, v); }
  Buffer asBuffer(mlir::Value v) { return Buffer(b, loc, v); }

  //===--- memory ---------------------------------------------------------===//
  /// On the stack, aligned to a cache line.
  Buffer scratch(llvm::ArrayRef<int64_t> shape, mlir::Type element);

  /// What an intrinsic of LLVM gives, of `type`.
  mlir::Value intrinsic(llvm::StringRef name, mlir::Type type, llvm::ArrayRef<mlir::Value> operands);

  //===--- loops ----------------------------------------------------------===//
  // Over lower, lower + step, ... below upper. LLVM's unroller is off for CPUs; on GPUs it decides.
  /// `body(Index)`.
  template <typename Body> void loop(Place lower, Place upper, Place step, Body body) {
    emitLoop(lower, upper, step, {}, [&](Index n, mlir::ValueRange) {
      body(n);
      return Values();
    });
  }
  /// `body(Index, carried...)` gives what the next iteration gets; returned is the last one's.
  template <typename T, typename Body> T loop(Place lower, Place upper, Place step, const T &init, Body body) {
    return unflatten(init, emitLoop(lower, upper, step, flatten(init), [&](Index n, mlir::ValueRange now) {
                       return flatten(T(applyTo(body, unflatten(init, now), n)));
                     }));
  }
  /// While `condition(carried...)` holds: `body(carried...)`. Returns the first for which it does not.
  template <typename T, typename Condition, typename Body> T repeat(const T &init, Condition condition, Body body) {
    return unflatten(init, emitWhile(
                               flatten(init),
                               [&](mlir::ValueRange now) { return Mask(applyTo(condition, unflatten(init, now))); },
                               [&](mlir::ValueRange now) { return flatten(T(applyTo(body, unflatten(init, now)))); }));
  }
  /// `body(Index)` for each below `count`, in any order or at once. Returns the loop.
  mlir::Operation *parallel(const Index &count, llvm::function_ref<void(Index)> body);

  //===--- branches -------------------------------------------------------===//
  void when(const Mask &condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise = nullptr);
  /// What `then()` gives where the condition holds, else what `otherwise()` does, of the same kind and types.
  template <typename Then, typename Otherwise> auto choose(const Mask &condition, Then then, Otherwise otherwise) {
    using T = decltype(then());
    std::optional<T> like;
    mlir::ValueRange results =
        emitChoice(condition, [&] { return flatten(*(like = then())); }, [&] { return flatten(T(otherwise())); });
    return unflatten(*like, results);
  }
  /// `body(n)` for the n of [least, most] that `number` is; greater numbers count as `most`.
  void match(const Index &number, int64_t least, int64_t most, llvm::function_ref<void(int64_t)> body);

private:
  using Values = llvm::SmallVector<mlir::Value>;
  mlir::ValueRange emitLoop(Place lower, Place upper, Place step, Values init,
                            llvm::function_ref<Values(Index, mlir::ValueRange)> body);
  mlir::ValueRange emitWhile(Values init, llvm::function_ref<Mask(mlir::ValueRange)> condition,
                             llvm::function_ref<Values(mlir::ValueRange)> body);
  mlir::ValueRange emitChoice(const Mask &condition, llvm::function_ref<Values()> then,
                              llvm::function_ref<Values()> otherwise);
};

} // namespace attn

#endif // BUILDERS_CODE_H
