#ifndef PASSES_GRAPH_ELEMENT_GUARDS_H
#define PASSES_GRAPH_ELEMENT_GUARDS_H

#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <optional>
#include <utility>

namespace mlir::presburger {
class Simplex;
} // namespace mlir::presburger

namespace attn {

/// A constant and a multiple of each of some variables, which are integers from 0 on.
struct Linear {
  int64_t constant = 0;
  llvm::SmallVector<int64_t, 4> factors = {}; ///< 0 for variables behind these

  static Linear variable(unsigned number, int64_t factor = 1);

  int64_t factor(unsigned variable) const { return variable < factors.size() ? factors[variable] : 0; }
  std::optional<int64_t> getConstant() const;
  friend Linear operator+(const Linear &a, const Linear &b);
  friend Linear operator-(const Linear &a, const Linear &b) { return a + b * -1; }
  friend Linear operator*(const Linear &a, int64_t factor);
  friend bool operator==(const Linear &a, const Linear &b) { return (a - b).getConstant() == 0; }
};

/// Where in the space of its variables a case holds: each of the numbers is at least 0. What can be asked is answered
/// by linear programming (MLIR's Presburger library), so that an answer that is given holds for all integers there.
class Guards {
public:
  void add(const Linear &atLeastZero);
  /// Adds 0 <= `number` < `size`.
  void addRange(const Linear &number, const Linear &size);

  /// The least and the greatest value of `number`; none where it has no bound.
  struct Bounds {
    std::optional<int64_t> least, greatest;
  };
  Bounds bounds(const Linear &number) const;
  /// Whether the case is known to hold nowhere.
  bool isEmpty() const;
  bool isZero(const Linear &number) const;
  bool isAtLeastZero(const Linear &number) const { return bounds(number).least.value_or(-1) >= 0; }

private:
  mlir::presburger::Simplex toSimplex(unsigned numVariables) const;
  unsigned numVariables() const;

  llvm::SmallVector<Linear, 2> numbers;
};

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_GUARDS_H
