// A folder as the Hugging Face hub has it: ONNX files that belong together, and what a search has to know of them.
#ifndef TOOLS_ATTNC_HUBFOLDER_H
#define TOOLS_ATTNC_HUBFOLDER_H

#include "frontends/search/BuildSearch.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attn::tools {

struct HubFolder {
  /// All models, by the names of their files without extension.
  std::vector<std::pair<std::string, std::string>> models;
  /// The parts of a generation; `encoder` and `withPast` may be empty. `decoder` takes prompts.
  std::string encoder, decoder, withPast;
};

/// Looks for models in `path` and in `path`/onnx. `error` says what is missing if there are none.
std::optional<HubFolder> readHubFolder(llvm::StringRef path, std::string &error);

/// What config.json and generation_config.json of the folder say, where there are such; false with an error, which
/// `isUnsupported` tells from one of a file: they ask for what no search has.
bool readHubConfig(llvm::StringRef path, SearchOptions &search, std::string &error, bool &isUnsupported);

} // namespace attn::tools

#endif // TOOLS_ATTNC_HUBFOLDER_H
