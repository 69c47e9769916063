#ifndef ATTNC_PASSES_LOWERING_BUFFERS_MESSAGES_H
#define ATTNC_PASSES_LOWERING_BUFFERS_MESSAGES_H

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <map>
#include <string>

namespace attn {

/// The texts of the module, each once; the runtime is told their positions.
class Messages {
public:
  int32_t add(llvm::StringRef text) { return texts.try_emplace(text.str(), texts.size()).first->second; }
  llvm::SmallVector<llvm::StringRef> list() const {
    return llvm::map_to_vector(texts, [](auto &entry) { return llvm::StringRef(entry.first); });
  }

private:
  llvm::MapVector<std::string, int32_t, std::map<std::string, unsigned>> texts;
};

} // namespace attn

#endif
