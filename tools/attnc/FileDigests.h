// Digests of files, remembered by what the file system says of them.
#ifndef TOOLS_ATTNC_FILEDIGESTS_H
#define TOOLS_ATTNC_FILEDIGESTS_H

#include "llvm/ADT/Twine.h"
#include <optional>
#include <string>
#include <vector>

namespace attn::tools {

/// What a cache knows of a file.
struct FileDigest {
  std::string text;                       ///< BLAKE3 of its bytes, in hexadecimal
  std::vector<std::string> externalFiles; ///< that it names as a model, sorted, each once
};

enum class FileKind { Plain, Model };

/// Digests of files, each of which is read once as long as its device, inode, size and times of change stay the same.
/// They are kept in the file `digests` of a folder, which any number of compiles may share: it is replaced by
/// renaming, has a digest of its own, and holds the 256 files that were read last.
///
/// No program can set the time of a file's last change of status. It can stay the same through a change, though, for
/// the time that a clock stands still or that written pages of a mapped file wait for the disk. So a file that was
/// changed within the last minute is read each time, and one that lies elsewhere than on a disk of this machine, too:
/// mapped pages in memory (tmpfs) wait for no disk, and what another machine changed may be told late (NFS).
class FileDigests {
public:
  explicit FileDigests(llvm::StringRef folder);

  /// None for what is no regular file or cannot be read, and for a model that may name files in a form not known here.
  std::optional<FileDigest> of(const llvm::Twine &path, FileKind kind) const;

private:
  std::optional<FileDigest> find(llvm::StringRef state) const;
  void keep(llvm::StringRef state, const FileDigest &digest) const;

  std::string path; ///< of the file of digests
};

} // namespace attn::tools

#endif // TOOLS_ATTNC_FILEDIGESTS_H
