#ifndef DIALECTS_ATTN_WEIGHTSTORE_H
#define DIALECTS_ATTN_WEIGHTSTORE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <memory>

namespace attn {

/// The bytes behind `#attn.initializer<"name">`, handed from a frontend to
/// compiler/package beside the module. Elements are dense, row-major, little
/// endian, of the global's element type (bool and 8-bit types one byte each).
///
/// A tensor's bytes are owned (`holder` keeps them alive) and dropped by
/// `release`, so a compile never holds a tensor that is already written.
/// Not thread-safe.
class WeightStore {
public:
  /// Registers `bytes`, kept alive by `holder`. A later call with the same
  /// name replaces the earlier one.
  void add(llvm::StringRef name, llvm::ArrayRef<char> bytes, std::shared_ptr<const void> holder);

  /// Copies `bytes` and registers the copy.
  void addCopy(llvm::StringRef name, llvm::ArrayRef<char> bytes);

  bool contains(llvm::StringRef name) const { return tensors.contains(name); }

  /// The bytes of `name`; empty when it is unknown or released.
  llvm::ArrayRef<char> lookup(llvm::StringRef name) const;

  /// Drops the bytes of `name`.
  void release(llvm::StringRef name) { tensors.erase(name); }

  /// Bytes held now.
  uint64_t totalBytes() const;

private:
  struct Tensor {
    llvm::ArrayRef<char> bytes;
    std::shared_ptr<const void> holder;
  };
  llvm::StringMap<Tensor> tensors;
};

} // namespace attn

#endif // DIALECTS_ATTN_WEIGHTSTORE_H
