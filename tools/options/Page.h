#ifndef TOOLS_OPTIONS_PAGE_H
#define TOOLS_OPTIONS_PAGE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include <string>

namespace attn::tools {

/// Whether a file of this name is to be a page: .html or .htm.
bool isPage(llvm::StringRef path);

/// `page`, HTML, with `data` in the place that is marked `place`, inside of a script element.
std::string fillPage(llvm::StringRef page, llvm::StringRef place, const llvm::json::Value &data);

} // namespace attn::tools

#endif // TOOLS_OPTIONS_PAGE_H
