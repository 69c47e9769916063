#include "dialects/attn/NodeLocation.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/ConvertUTF.h"

using namespace mlir;

std::string attn::printableName(llvm::StringRef text) {
  static constexpr size_t kMaxBytes = 200;
  std::string result;
  for (size_t at = 0; at < text.size() && result.size() < kMaxBytes;) {
    const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.data()) + at;
    const auto *end = reinterpret_cast<const llvm::UTF8 *>(text.data()) + text.size();
    size_t bytes = llvm::getNumBytesForUTF8(*begin);
    unsigned char first = *begin;
    // C0, DEL and C1 (whose lead byte is 0xC2) move a terminal's cursor.
    bool control = first < 0x20 || first == 0x7f || (first == 0xc2 && bytes == 2 && begin + 1 < end && begin[1] < 0xa0);
    if (control || !llvm::isLegalUTF8Sequence(begin, end) || bytes > text.size() - at) {
      result += '?';
      at += control && bytes <= text.size() - at ? bytes : 1;
      continue;
    }
    result.append(text.data() + at, bytes);
    at += bytes;
  }
  return text.size() > kMaxBytes ? result + "..." : result;
}

Location attn::fileLocation(MLIRContext *context, llvm::StringRef file) {
  return FileLineColLoc::get(context, file, 0, 0);
}

Location attn::nodeLocation(MLIRContext *context, llvm::StringRef file, llvm::StringRef node, llvm::StringRef op) {
  std::string name = "node '" + printableName(node) + "' (" + printableName(op) + ")";
  return NameLoc::get(StringAttr::get(context, name), fileLocation(context, file));
}

/// Calls `fn` on each part of `location`, outermost first, until it says true.
static bool visit(Location location, llvm::function_ref<bool(Location)> fn) {
  if (fn(location))
    return true;
  if (auto fused = dyn_cast<FusedLoc>(location))
    return llvm::any_of(fused.getLocations(), [&](Location part) { return visit(part, fn); });
  if (auto call = dyn_cast<CallSiteLoc>(location))
    return visit(call.getCallee(), fn) || visit(call.getCaller(), fn);
  if (auto name = dyn_cast<NameLoc>(location))
    return visit(name.getChildLoc(), fn);
  return false;
}

static NameLoc findNode(Location location) {
  NameLoc found;
  visit(location, [&](Location part) {
    auto name = dyn_cast<NameLoc>(part);
    if (name && (name.getName().getValue().starts_with("node '") || name.getName().getValue().starts_with("layer '")))
      found = name;
    return bool(found);
  });
  return found;
}

llvm::StringRef attn::nodeName(Location location) {
  NameLoc node = findNode(location);
  return node ? node.getName().getValue() : llvm::StringRef();
}

std::string attn::describe(Location location) {
  NameLoc node = findNode(location);
  std::string file, name;
  visit(node ? node.getChildLoc() : location, [&](Location part) {
    if (auto named = dyn_cast<NameLoc>(part); named && name.empty())
      name = named.getName().str();
    auto position = dyn_cast<FileLineColLoc>(part);
    if (!position)
      return false;
    file = position.getFilename().str();
    if (position.getLine())
      file += ":" + std::to_string(position.getLine()) + ":" + std::to_string(position.getColumn());
    return true;
  });
  if (node)
    name = node.getName().str();
  return file.empty() || name.empty() ? file + name : file + ": " + name;
}
