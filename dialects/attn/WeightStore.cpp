#include "dialects/attn/WeightStore.h"

#include <vector>

using namespace attn;

void WeightStore::add(llvm::StringRef name, llvm::ArrayRef<char> bytes, std::shared_ptr<const void> holder) {
  tensors[name] = Tensor{bytes, std::move(holder)};
}

void WeightStore::addCopy(llvm::StringRef name, llvm::ArrayRef<char> bytes) {
  auto copy = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
  llvm::ArrayRef<char> view(copy->data(), copy->size());
  add(name, view, std::move(copy));
}

llvm::ArrayRef<char> WeightStore::lookup(llvm::StringRef name) const {
  auto it = tensors.find(name);
  return it == tensors.end() ? llvm::ArrayRef<char>() : it->second.bytes;
}

uint64_t WeightStore::totalBytes() const {
  uint64_t total = 0;
  for (const auto &entry : tensors)
    total += entry.second.bytes.size();
  return total;
}
