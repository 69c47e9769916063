// A private folder that goes with its owner, even one that was killed: it is
// locked while the owner lives, and whoever makes the next one beside it removes
// those that nobody holds.
#ifndef TOOLS_OPTIONS_SCRATCHFOLDER_H
#define TOOLS_OPTIONS_SCRATCHFOLDER_H

#include "llvm/ADT/StringRef.h"
#include <memory>
#include <string>

namespace attn::tools {

class ScratchFolder {
public:
  /// A new folder `parent`/.attnc-XXXXXX. Null with errno set when there can be none.
  static std::unique_ptr<ScratchFolder> create(llvm::StringRef parent);
  /// For files that have no place of their own: $TMPDIR, else /tmp.
  static std::string temporaryParent();
  /// Removes the folder and all in it.
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder &) = delete;

  const std::string &path() const { return folder; }

private:
  ScratchFolder(std::string folder, int lock) : folder(std::move(folder)), lock(lock) {}

  std::string folder;
  int lock; // a descriptor of the folder
};

} // namespace attn::tools

#endif // TOOLS_OPTIONS_SCRATCHFOLDER_H
