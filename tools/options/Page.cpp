#include "tools/options/Page.h"

#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace attn::tools {

bool isPage(StringRef path) {
  StringRef extension = sys::path::extension(path);
  return extension.equals_insensitive(".html") || extension.equals_insensitive(".htm");
}

std::string fillPage(StringRef page, StringRef place, const json::Value &data) {
  auto [front, back] = page.split(place);
  std::string text, result = front.str();
  raw_string_ostream(text) << data;
  for (char c : text)
    if (c == '<') // which could end the element
      result += "\\u003c";
    else
      result += c;
  return result + back.str();
}

} // namespace attn::tools
