#ifndef BUILDERS_OPERATORS_H
#define BUILDERS_OPERATORS_H

#include "builders/Term.h"

/// The operators of C++ on terms, so that a formula reads as in its source:
///
///     x * tanh(log1p(exp(x)))        first + 2 * stride        (x > 0.0) & isOpen
///
/// Each folds where its operands are constants and MLIR has the fold, so that a
/// formula of constants is its value. Both sides are of one kind and type, but for a
/// number of C++, and a Num beside a Vec, which stands for a vector of it.
namespace attn {

/// What the operators emit.
namespace emit {
enum class Relation { less, lessEqual, greater, greaterEqual, equal, unequal };
/// In every lane of a vector.
mlir::Value constant(mlir::OpBuilder &, mlir::Location, mlir::Type, int64_t);
mlir::Value constant(mlir::OpBuilder &, mlir::Location, mlir::Type, double);
mlir::Value add(const Term &, const Term &);
mlir::Value subtract(const Term &, const Term &);
mlir::Value multiply(const Term &, const Term &);
mlir::Value divide(const Term &, const Term &);
mlir::Value remainder(const Term &, const Term &);
mlir::Value bitAnd(const Term &, const Term &);
mlir::Value bitOr(const Term &, const Term &);
mlir::Value bitXor(const Term &, const Term &);
mlir::Value shiftLeft(const Term &, const Term &);
mlir::Value shiftRight(const Term &, const Term &);
mlir::Value shiftRightSigned(const Term &, const Term &);
mlir::Value negate(const Term &);
mlir::Value compare(Relation, const Term &, const Term &, bool isUnsigned);
mlir::Value select(const Term &condition, const Term &, const Term &);
mlir::Value maximum(const Term &, const Term &, bool isUnsigned);
mlir::Value minimum(const Term &, const Term &, bool isUnsigned);
mlir::Value convert(const Term &, mlir::Type element, bool isUnsigned);
mlir::Value bitcast(const Term &, mlir::Type element);
mlir::Value splat(const Term &scalar, int64_t lanes);
} // namespace emit

/// `c` in the type of `like`, in every lane of a vector.
template <typename T, typename C, IfTerm<T> = 0, IfConstant<C> = 0> T constantLike(const T &like, C c) {
  using Wide = std::conditional_t<std::is_floating_point_v<C>, double, int64_t>;
  return like.with(emit::constant(like.builder(), like.location(), like.type(), static_cast<Wide>(c)));
}

/// `x` in each of `lanes` lanes.
inline Vec splat(const Num &x, int64_t lanes) { return Vec(x.builder(), x.location(), emit::splat(x, lanes)); }
inline Mask splat(const Mask &x, int64_t lanes) { return x.with(emit::splat(x, lanes)); }

// Integers wrap. An Index is divided as a number >= 0, floats by /; for other integers name what you mean.
// Zeros are shifted in.
#define ATTN_OPERATOR(op, make)                                                                                        \
  template <typename T, IfNumber<T> = 0> T operator op(const T &x, const T &y) { return x.with(emit::make(x, y)); }    \
  template <typename T, typename C, IfNumber<T> = 0, IfConstant<C> = 0> T operator op(const T &x, C c) {               \
    return x op constantLike(x, c);                                                                                    \
  }                                                                                                                    \
  template <typename T, typename C, IfNumber<T> = 0, IfConstant<C> = 0> T operator op(C c, const T &x) {               \
    return constantLike(x, c) op x;                                                                                    \
  }                                                                                                                    \
  inline Vec operator op(const Vec &x, const Num &y) { return x op splat(y, x.lanes()); }                              \
  inline Vec operator op(const Num &x, const Vec &y) { return splat(x, y.lanes()) op y; }
ATTN_OPERATOR(+, add)
ATTN_OPERATOR(-, subtract)
ATTN_OPERATOR(*, multiply)
ATTN_OPERATOR(/, divide)
ATTN_OPERATOR(%, remainder)
ATTN_OPERATOR(<<, shiftLeft)
ATTN_OPERATOR(>>, shiftRight)
#undef ATTN_OPERATOR

template <typename T, IfNumber<T> = 0> T operator-(const T &x) { return x.with(emit::negate(x)); }

/// `x` by so many bits to the right, its sign shifted in.
template <typename T, IfNumber<T> = 0> T shiftRightSigned(const T &x, int64_t bits) {
  return x.with(emit::shiftRightSigned(x, constantLike(x, bits)));
}

// Of integers, bit by bit, and of masks.
template <typename T, IfTerm<T> = 0> T operator&(const T &x, const T &y) { return x.with(emit::bitAnd(x, y)); }
template <typename T, IfTerm<T> = 0> T operator|(const T &x, const T &y) { return x.with(emit::bitOr(x, y)); }
template <typename T, IfTerm<T> = 0> T operator^(const T &x, const T &y) { return x.with(emit::bitXor(x, y)); }
template <typename T, typename C, IfNumber<T> = 0, IfConstant<C> = 0> T operator&(const T &x, C c) {
  return x & constantLike(x, c);
}
template <typename T, IfTerm<T> = 0> T operator!(const T &x) { return x ^ constantLike(x, -1); }

// Comparisons with NaN are false, != is true.
#define ATTN_COMPARISON(op, relation)                                                                                  \
  template <typename T, IfNumber<T> = 0> auto operator op(const T &x, const T &y) {                                    \
    return x.truth(emit::compare(emit::Relation::relation, x, y, x.isUnsigned()));                                     \
  }                                                                                                                    \
  template <typename T, typename C, IfNumber<T> = 0, IfConstant<C> = 0> auto operator op(const T &x, C c) {            \
    return x op constantLike(x, c);                                                                                    \
  }                                                                                                                    \
  template <typename T, typename C, IfNumber<T> = 0, IfConstant<C> = 0> auto operator op(C c, const T &x) {            \
    return constantLike(x, c) op x;                                                                                    \
  }                                                                                                                    \
  inline Mask operator op(const Vec &x, const Num &y) { return x op splat(y, x.lanes()); }
ATTN_COMPARISON(<, less)
ATTN_COMPARISON(<=, lessEqual)
ATTN_COMPARISON(>, greater)
ATTN_COMPARISON(>=, greaterEqual)
ATTN_COMPARISON(==, equal)
ATTN_COMPARISON(!=, unequal)
#undef ATTN_COMPARISON

/// `x` where `condition` holds, else `y`; one condition for all lanes, or one a lane.
template <typename C, typename T, IfTerm<C> = 0, IfTerm<T> = 0> T select(const C &condition, const T &x, const T &y) {
  return x.with(emit::select(condition, x, y));
}
template <typename T, IfNumber<T> = 0> T maximum(const T &x, const T &y) { // NaN wins, as in NumPy
  return x.with(emit::maximum(x, y, x.isUnsigned()));
}
template <typename T, IfNumber<T> = 0> T minimum(const T &x, const T &y) {
  return x.with(emit::minimum(x, y, x.isUnsigned()));
}
template <typename T, typename C, IfNumber<T> = 0, IfConstant<C> = 0> T maximum(const T &x, C c) {
  return maximum(x, constantLike(x, c));
}
template <typename T, typename C, IfNumber<T> = 0, IfConstant<C> = 0> T minimum(const T &x, C c) {
  return minimum(x, constantLike(x, c));
}
/// x where it is at least / at most the bound, and NaN where x is NaN: one
/// instruction of x86, where maximum needs four.
template <typename T, IfNumber<T> = 0> T atLeast(const T &x, const T &bound) { return select(x < bound, bound, x); }
template <typename T, IfNumber<T> = 0> T atMost(const T &x, const T &bound) { return select(x > bound, bound, x); }
/// y where one is NaN: one instruction, too.
template <typename T, IfNumber<T> = 0> T greaterOf(const T &x, const T &y) { return select(x > y, x, y); }

// Functions of floats; abs of integers, too.
#define ATTN_FUNCTION(name)                                                                                            \
  namespace emit {                                                                                                     \
  mlir::Value name(const Term &);                                                                                      \
  }                                                                                                                    \
  template <typename T, IfNumber<T> = 0> T name(const T &x) { return x.with(emit::name(x)); }
ATTN_FUNCTION(sqrt)
ATTN_FUNCTION(exp)
ATTN_FUNCTION(expm1)
ATTN_FUNCTION(log)
ATTN_FUNCTION(log1p)
ATTN_FUNCTION(erf)
ATTN_FUNCTION(tanh)
ATTN_FUNCTION(sin)
ATTN_FUNCTION(cos)
ATTN_FUNCTION(asin)
ATTN_FUNCTION(acos)
ATTN_FUNCTION(atan)
ATTN_FUNCTION(floor)
ATTN_FUNCTION(ceil)
ATTN_FUNCTION(roundEven)
ATTN_FUNCTION(abs)
#undef ATTN_FUNCTION
namespace emit {
mlir::Value copySign(const Term &magnitude, const Term &sign);
mlir::Value fma(const Term &x, const Term &y, const Term &z);
mlir::Value countOnes(const Term &);
} // namespace emit
template <typename T, IfNumber<T> = 0> T copySign(const T &magnitude, const T &sign) {
  return magnitude.with(emit::copySign(magnitude, sign));
}
/// x * y + z, rounded once.
template <typename T, IfNumber<T> = 0> T fma(const T &x, const T &y, const T &z) { return x.with(emit::fma(x, y, z)); }
template <typename T, IfNumber<T> = 0> auto isNaN(const T &x) { return x != x; }
template <typename T, IfNumber<T> = 0> T sigmoid(const T &x) { return 1.0 / (1.0 + exp(-x)); }
/// How many bits of an integer are 1.
template <typename T, IfNumber<T> = 0> T countOnes(const T &x) { return x.with(emit::countOnes(x)); }

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// The same number in another type: rounded to even to a narrower float, cut off
/// to a narrower integer; from floats to integers towards zero.
inline Num convert(const Num &x, mlir::Type to) { return x.with(emit::convert(x, to, false)); }
inline Vec convert(const Vec &x, mlir::Type to) { return x.with(emit::convert(x, to, false)); }
/// The same of integers >= 0 that fill their type.
inline Num convertUnsigned(const Num &x, mlir::Type to) { return x.with(emit::convert(x, to, true)); }
inline Vec convertUnsigned(const Vec &x, mlir::Type to) { return x.with(emit::convert(x, to, true)); }
/// 1 where the mask holds, else 0.
inline Num toNum(const Mask &x, mlir::Type to) { return Num(x.builder(), x.location(), emit::convert(x, to, true)); }
inline Num toNum(const Index &x, mlir::Type to) { return Num(x.builder(), x.location(), emit::convert(x, to, false)); }
inline Index toIndex(const Mask &x) {
  return Index(x.builder(), x.location(), emit::convert(x, x.builder().getIndexType(), true));
}
inline Index toIndex(const Num &x) {
  return Index(x.builder(), x.location(), emit::convert(x, x.builder().getIndexType(), false));
}
/// The same bits as elements of another type; a vector has as many more lanes as these are narrower.
inline Num bitcast(const Num &x, mlir::Type to) { return x.with(emit::bitcast(x, to)); }
inline Vec bitcast(const Vec &x, mlir::Type to) { return x.with(emit::bitcast(x, to)); }

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

Num extract(const Vec &x, int64_t lane);
/// Lane n is elements[n].
Vec vectorOf(llvm::ArrayRef<Num> elements);
/// Lane n is lane positions[n] of x, followed by y.
Vec shuffle(const Vec &x, const Vec &y, llvm::ArrayRef<int64_t> positions);
/// Over all lanes. The sum adds them in their order.
Num sumOfLanes(const Vec &x);
Num maximumOfLanes(const Vec &x);
/// Of integers: the bits that are 1 in any lane, and those that are 1 in all.
Num orOfLanes(const Vec &x);
Num andOfLanes(const Vec &x);
/// Whether it holds in any lane.
Mask any(const Mask &x);
/// Hints that something is mostly false.
Mask unlikely(const Mask &x);

/// ceil(x / step), and x rounded down and up to a multiple of `step`, of x >= 0.
inline Index ceilDiv(const Index &x, const Index &step) { return (x + (step - 1)) / step; }
inline Index ceilDiv(const Index &x, int64_t step) { return (x + (step - 1)) / step; }
inline Index floorTo(const Index &x, int64_t step) { return x / step * step; }
inline Index ceilTo(const Index &x, int64_t step) { return ceilDiv(x, step) * step; }

} // namespace attn

#endif // BUILDERS_OPERATORS_H
