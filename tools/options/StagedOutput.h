// Where a compile writes before its output takes its name: a private folder
// beside the output, so that one rename makes the output, whole or not at all,
// and whatever a dead worker leaves behind goes with the folder. What a dead
// driver leaves, the next compile beside it removes.
#ifndef TOOLS_OPTIONS_STAGEDOUTPUT_H
#define TOOLS_OPTIONS_STAGEDOUTPUT_H

#include "tools/options/ScratchFolder.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"
#include <memory>
#include <string>

namespace attn::tools {

class StagedOutput {
public:
  /// For `output`, a path or "-". Null with `error` set when nothing can be written there.
  static std::unique_ptr<StagedOutput> create(llvm::StringRef output, std::string &error);

  /// The path to write to, "-" for standard output.
  std::string path() const;
  /// A path in the folder, for what comes beside the output.
  std::string side(llvm::StringRef name) const { return folder->path() + "/" + name.str(); }

  /// Gives the output its name. False with `error` set when that fails.
  bool commit(std::string &error);

private:
  StagedOutput() = default;

  std::unique_ptr<ScratchFolder> folder;
  std::string target;
  // A pipe or a device keeps its place: the bytes are copied to it.
  enum class Kind { Stdout, File, Stream } kind = Kind::File;
};

/// Has `write` write to `path` through a temporary file and a rename; "-" is
/// standard output. False with `error` set when that fails.
bool writeFile(llvm::StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write, std::string &error);

/// Writes `text` to `path`, likewise.
bool writeTextFile(llvm::StringRef path, llvm::StringRef text, std::string &error);

/// Writes what `from` holds to `to`, likewise.
bool copyTextFile(llvm::StringRef from, llvm::StringRef to, std::string &error);

} // namespace attn::tools

#endif // TOOLS_OPTIONS_STAGEDOUTPUT_H
