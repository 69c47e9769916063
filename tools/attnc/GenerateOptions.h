// --generate and what belongs to it.
#ifndef TOOLS_ATTNC_GENERATEOPTIONS_H
#define TOOLS_ATTNC_GENERATEOPTIONS_H

#include "frontends/search/BuildSearch.h"
#include "tools/options/Options.h"
#include <optional>
#include <vector>

namespace attn::tools {

/// What the command line asks for; nullopt without --generate. Reports what is wrong. `folder`, or "", is one whose
/// configuration says what the command line does not.
std::optional<SearchOptions> readGenerateOptions(CommandLine &line, llvm::StringRef folder);

/// The pairs of --state.
std::vector<StatePair> readStatePairs(CommandLine &line);

} // namespace attn::tools

#endif // TOOLS_ATTNC_GENERATEOPTIONS_H
