#ifndef FRONTENDS_SEARCH_STATEPAIRS_H
#define FRONTENDS_SEARCH_STATEPAIRS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>
#include <string>
#include <utility>

namespace attn {

/// An input that is, in the next step or run, what an output was in this one.
struct StatePair {
  std::string input, output;
  /// As a command line has it, "INPUT:OUTPUT", where names may hold colons
  /// themselves: it is split where an entry has both names. `input` and `output` are then empty.
  std::string text;

  /// How messages call it.
  std::string describe() const;
};

/// "'main' has inputs 'x', 'past' and outputs 'y', 'present'".
std::string describePairable(mlir::func::FuncOp entry);

/// The numbers of the input and the output; none: `entry` has not both. Fails,
/// with a diagnostic at `entry`, where its names allow two readings.
mlir::FailureOr<std::optional<std::pair<int64_t, int64_t>>> findStatePair(mlir::func::FuncOp entry,
                                                                          const StatePair &pair);

} // namespace attn

#endif // FRONTENDS_SEARCH_STATEPAIRS_H
