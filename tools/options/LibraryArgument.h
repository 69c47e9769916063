// The MODEL of attn-run and attn-bench: a library, or a model to compile first.
#ifndef TOOLS_OPTIONS_LIBRARYARGUMENT_H
#define TOOLS_OPTIONS_LIBRARYARGUMENT_H

#include "tools/options/Options.h"
#include "tools/options/ScratchFolder.h"
#include <memory>
#include <string>
#include <vector>

namespace attn::tools {

/// The library that a command line means. For MODEL.onnx (or .json, .mlir) the attnc
/// beside the running program compiles it, with the command line's compile
/// options, into a private folder in $TMPDIR or to -o FILE.
class LibraryArgument {
public:
  /// Whether a file of this name is compiled first.
  static bool isModel(llvm::StringRef path);
  /// Null with `exitCode` set, and the reason told, when there is no library.
  static std::unique_ptr<LibraryArgument> prepare(CommandLine &line, int &exitCode);
  /// The same model, compiled with f32 weights into a folder of its own: what
  /// --compare=f32 compares with. Only for a model that is compiled first.
  static std::unique_ptr<LibraryArgument> prepareReference(CommandLine &line, int &exitCode);
  ~LibraryArgument() { discard(); }
  LibraryArgument(const LibraryArgument &) = delete;

  const std::string &path() const { return library; }
  /// Whether the command line names a library, which no compile of ours made.
  bool isGiven() const { return library == given; }
  /// What to call it in messages: as the user wrote it.
  const std::string &name() const { return given; }
  /// Removes the private folder; a library that is loaded already stays usable.
  void discard();

private:
  LibraryArgument() = default;
  static std::unique_ptr<LibraryArgument> compile(const CommandLine &line, std::unique_ptr<LibraryArgument> argument,
                                                  std::vector<std::string> options, int &exitCode);
  std::string given, library;
  std::unique_ptr<ScratchFolder> folder;
};

} // namespace attn::tools

#endif // TOOLS_OPTIONS_LIBRARYARGUMENT_H
