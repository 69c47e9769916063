// Libraries of earlier compiles in the folder of --cache-dir, beside the objects
// that compiler/emit/cpu/ObjectCache keeps there.
#ifndef TOOLS_ATTNC_LIBRARYCACHE_H
#define TOOLS_ATTNC_LIBRARYCACHE_H

#include "tools/attnc/Request.h"
#include "tools/attnc/Worker.h"
#include <string>
#include <system_error>

namespace attn::tools {

/// The library of one request, under the digest of all that it depends on: the
/// bytes of the models and of the files that they name, the command line, the
/// name in the header, the processor and the compiler itself.
///
/// An entry holds what the compile said, too. It is renamed into its place and
/// has a digest of its own, so that any number of compiles may share a folder,
/// and a damaged entry is none. Those used least recently go when all are
/// larger than 10 GiB. A cache that fails costs time, never a compile.
class LibraryCache {
public:
  /// Keeps nothing where a compile has other results than a library, or reads what a digest would miss.
  explicit LibraryCache(const Request &request);

  /// Writes the library of an earlier compile to `output` and gives what that compile reported to `result`.
  bool load(llvm::StringRef output, WorkerResult &result) const;
  /// Keeps the library at `output`, unless a model has changed meanwhile. Why that failed, if it did.
  std::error_code store(const Request &request, llvm::StringRef output, const WorkerResult &result) const;

private:
  std::string folder, key; ///< no key: not kept
};

} // namespace attn::tools

#endif // TOOLS_ATTNC_LIBRARYCACHE_H
