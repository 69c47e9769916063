#ifndef COMPILER_PACKAGE_WEIGHTPLAN_H
#define COMPILER_PACKAGE_WEIGHTPLAN_H

#include "compiler/package/NarrowWeight.h"
#include "dialects/attn/AttnOps.h"
#include "dialects/attn/WeightStore.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// One tensor of the model as it stands in the library: a row of
/// attnrt_library.weights, whose fields these are.
struct WeightRow {
  std::string name;
  mlir::Type elementType;
  llvm::SmallVector<int64_t> shape; // of the model's tensor
  uint64_t offset = 0;              // bytes from the start of the weights
  uint64_t size = 0;                // bytes
  std::string layout;               // see attnrt_weight_info.layout
};

/// A weight that the library stores in fewer bits.
struct NarrowedWeight {
  std::string name;    ///< of the model's tensor
  std::string storage; ///< "bf16", "f16", "int8", "int4" or "fp8"
  Narrowing lost;
};

/// Where each used attn.global lies in the library's weights, and how its
/// bytes come about.
///
/// Globals with one expression, and initialisers with equal bytes, share a
/// place; the sources of a concatenation along the first dimension are places
/// one behind the other where they fill their cache lines. `write` evaluates the
/// expressions one after the other and drops each initialiser from the store
/// after its last use, so that at most one packed tensor and its sources are
/// held at a time.
class WeightPlan {
public:
  /// Every place starts at a multiple of this: a cache line.
  static constexpr uint64_t kAlignment = 64;

  /// Lays out the globals that `symbols` names, in this order. Fails with a
  /// diagnostic at the global when an expression names what is not there, does
  /// not give the declared type, or goes in a circle.
  static mlir::FailureOr<WeightPlan> create(mlir::ModuleOp module, llvm::ArrayRef<llvm::StringRef> symbols,
                                            const WeightStore &store);

  /// Bytes from the start of the weights to the global's first element.
  std::optional<uint64_t> offsetOf(llvm::StringRef symbol) const;
  uint64_t totalBytes() const { return total; }
  llvm::ArrayRef<WeightRow> table() const { return rows; }

  /// Hands all bytes [0, totalBytes()) to `sink` in order; false from it stops.
  /// What was narrowed is added to `narrowed`, if given.
  /// The module must be the one of `create`, with its globals in place.
  mlir::LogicalResult write(mlir::ModuleOp module, WeightStore &store,
                            llvm::function_ref<bool(llvm::ArrayRef<char>)> sink,
                            std::vector<NarrowedWeight> *narrowed = nullptr) const;

private:
  struct Place {
    std::string symbol;
    uint64_t offset = 0, size = 0;
    llvm::SmallVector<std::string> sources; // initialisers it reads
  };
  std::vector<Place> places;
  llvm::StringMap<uint64_t> offsets;
  std::vector<WeightRow> rows;
  uint64_t total = 0;
};

} // namespace attn

#endif // COMPILER_PACKAGE_WEIGHTPLAN_H
