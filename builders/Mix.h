#ifndef BUILDERS_MIX_H
#define BUILDERS_MIX_H

#include "builders/Operators.h"

namespace attn {

/// What splitmix64 (Steele, Lea and Flood, 2014) adds to its state for each number.
inline constexpr uint64_t kMixStep = 0x9e3779b97f4a7c15;

/// The number that splitmix64 makes of the state `x` (i64). Each bit of `x` changes about half of the result's, so
/// that mix(mix(a) + b) is a random number that `a` and `b` determine.
template <typename T, IfNumber<T> = 0> T mix(const T &x) {
  auto fold = [](const T &z, int shift) { return z ^ (z >> shift); };
  return fold(fold(fold(x + kMixStep, 30) * 0xbf58476d1ce4e5b9, 27) * 0x94d049bb133111eb, 31);
}

} // namespace attn

#endif // BUILDERS_MIX_H
