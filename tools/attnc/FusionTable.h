#ifndef TOOLS_ATTNC_FUSIONTABLE_H
#define TOOLS_ATTNC_FUSIONTABLE_H

#include "llvm/ADT/StringRef.h"
#include <string>

namespace attn::tools {

/// The verdicts on softmaxes (a JSON array, as a compile reports it) for people:
/// a line a softmax and, below it, what was absorbed, assumed, copied, or why not.
std::string formatFusionTable(llvm::StringRef json);

} // namespace attn::tools

#endif // TOOLS_ATTNC_FUSIONTABLE_H
