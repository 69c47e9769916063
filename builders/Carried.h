#ifndef BUILDERS_CARRIED_H
#define BUILDERS_CARRIED_H

#include "builders/Term.h"
#include <tuple>

/// What loops carry: terms, and tuples and SmallVectors of what is carried.
namespace attn {

template <typename T> struct Carried {
  static void flatten(const T &x, llvm::SmallVectorImpl<mlir::Value> &out) { out.push_back(x.value()); }
  /// The kinds of `like` with the first of `values`, which are taken.
  static T rebuild(const T &like, mlir::ValueRange &values) {
    T x = like.with(values.front());
    values = values.drop_front();
    return x;
  }
};

template <typename... Ts> struct Carried<std::tuple<Ts...>> {
  static void flatten(const std::tuple<Ts...> &x, llvm::SmallVectorImpl<mlir::Value> &out) {
    std::apply([&](const Ts &...each) { (Carried<Ts>::flatten(each, out), ...); }, x);
  }
  static std::tuple<Ts...> rebuild(const std::tuple<Ts...> &like, mlir::ValueRange &values) {
    return std::apply( // braces: from left to right
        [&](const Ts &...each) { return std::tuple<Ts...>{Carried<Ts>::rebuild(each, values)...}; }, like);
  }
};

template <typename T, unsigned N> struct Carried<llvm::SmallVector<T, N>> {
  static void flatten(const llvm::SmallVector<T, N> &x, llvm::SmallVectorImpl<mlir::Value> &out) {
    for (const T &each : x)
      Carried<T>::flatten(each, out);
  }
  static llvm::SmallVector<T, N> rebuild(const llvm::SmallVector<T, N> &like, mlir::ValueRange &values) {
    llvm::SmallVector<T, N> x;
    for (const T &each : like)
      x.push_back(Carried<T>::rebuild(each, values));
    return x;
  }
};

template <typename T> llvm::SmallVector<mlir::Value> flatten(const T &x) {
  llvm::SmallVector<mlir::Value> values;
  Carried<T>::flatten(x, values);
  return values;
}
template <typename T> T unflatten(const T &like, mlir::ValueRange values) { return Carried<T>::rebuild(like, values); }

/// `body(first..., parts of x...)`: those of a tuple one by one.
template <typename Body, typename T, typename... First> auto applyTo(Body &body, T x, const First &...first) {
  return body(first..., x);
}
template <typename Body, typename... Ts, typename... First>
auto applyTo(Body &body, std::tuple<Ts...> x, const First &...first) {
  return std::apply([&](const Ts &...each) { return body(first..., each...); }, x);
}

} // namespace attn

#endif // BUILDERS_CARRIED_H
