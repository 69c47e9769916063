#ifndef FRONTENDS_ONNX_EXTERNALDATA_H
#define FRONTENDS_ONNX_EXTERNALDATA_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace attn::onnx {

/// Bytes of a tensor, owned.
struct OwnedBytes {
  llvm::ArrayRef<char> bytes;
  std::shared_ptr<const void> holder;
};

/// The files that a model's tensors may come from: those beneath the folder of
/// the model, and no others. A location is a plain relative path; the kernel
/// (openat2) refuses every way out of the folder (`..`, symbolic links, magic
/// links), whatever happens to the path while we look at it. A hard link may
/// stand for a file elsewhere, so a file with more than one name is refused too.
class ExternalFiles {
public:
  explicit ExternalFiles(llvm::StringRef modelPath);
  ~ExternalFiles();
  ExternalFiles(const ExternalFiles &) = delete;
  ExternalFiles &operator=(const ExternalFiles &) = delete;

  /// Reads `length` bytes at `offset` of `location`. On failure `error` says why
  /// and the bytes are empty. Reading copies: a mapping would show later changes.
  /// The same range read again is the same bytes as long as someone holds them.
  OwnedBytes read(llvm::StringRef location, uint64_t offset, uint64_t length, std::string &error);

  /// Bytes of the file at `location`; nullopt with the reason in `error`.
  std::optional<uint64_t> size(llvm::StringRef location, std::string &error);

  /// Why `location` may not name a file, or "".
  static std::string checkLocation(llvm::StringRef location);

private:
  int open(const std::string &location, std::string &error);

  using File = std::pair<uint64_t, uint64_t>;                                                 // device, inode
  std::map<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>, std::weak_ptr<char[]>> ranges; // file, offset, length
  std::map<File, uint64_t> bytesRead;
  std::string folder;
  int folderFd = -1;
};

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_EXTERNALDATA_H
