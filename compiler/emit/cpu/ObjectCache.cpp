#include "compiler/emit/cpu/ObjectCache.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

namespace attn {
namespace {

// An entry is this, the SHA-256 of the key and what follows, the object's stack size in eight bytes, and the object.
constexpr llvm::StringLiteral kMagic = "attncobj";
constexpr size_t kDigestBytes = 32;
// Changes with what the compiler does to a module between the key and the object.
constexpr llvm::StringLiteral kVersion = "4 ";

llvm::ArrayRef<uint8_t> bytesOf(llvm::StringRef text) { return {text.bytes_begin(), text.size()}; }

/// With the key, an entry under the name of another is none.
std::array<uint8_t, kDigestBytes> digestOf(llvm::StringRef key, llvm::StringRef payload) {
  llvm::SHA256 hasher;
  hasher.update(key);
  hasher.update(payload);
  return hasher.final();
}

} // namespace

bool ObjectCache::load(const llvm::Module &module, TargetAttr target, unsigned optLevel, Object &object) {
  if (folder.empty())
    return false;
  std::string text;
  llvm::raw_string_ostream os(text);
  os << kVersion << compiler << " O" << optLevel << ' ' << target << '\n';
  llvm::WriteBitcodeToFile(module, os);
  key = llvm::toHex(llvm::SHA256::hash(bytesOf(text)), /*LowerCase=*/true);

  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, key + ".o");
  auto file =
      llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false, /*IsVolatile=*/true);
  if (!file)
    return false;
  llvm::StringRef rest = (*file)->getBuffer();
  if (!rest.consume_front(kMagic) || rest.size() < kDigestBytes)
    return false;
  llvm::StringRef payload = rest.drop_front(kDigestBytes);
  if (bytesOf(rest.take_front(kDigestBytes)) != llvm::ArrayRef<uint8_t>(digestOf(key, payload)))
    return false;
  if (payload.size() < sizeof(uint64_t))
    return false;
  object.stackSize = llvm::support::endian::read64le(payload.data());
  object.bytes.assign(payload.begin() + sizeof(uint64_t), payload.end());
  return true;
}

void ObjectCache::store(const Object &object) const {
  if (key.empty() || llvm::sys::fs::create_directories(folder))
    return;
  llvm::SmallString<256> model(folder), temporary, path(folder);
  llvm::sys::path::append(model, ".new-%%%%%%%%%%%%");
  llvm::sys::path::append(path, key + ".o");
  int descriptor;
  if (llvm::sys::fs::createUniqueFile(model, descriptor, temporary))
    return;
  char stackSize[sizeof(uint64_t)];
  llvm::support::endian::write64le(stackSize, object.stackSize);
  std::string payload(stackSize, sizeof(stackSize));
  payload.append(object.bytes.begin(), object.bytes.end());
  auto digest = digestOf(key, payload);
  llvm::raw_fd_ostream os(descriptor, /*shouldClose=*/true);
  os << kMagic;
  os.write(reinterpret_cast<const char *>(digest.data()), digest.size());
  os << payload;
  os.close();
  bool failed = os.has_error();
  os.clear_error();
  if (failed || llvm::sys::fs::rename(temporary, path))
    llvm::sys::fs::remove(temporary);
}

} // namespace attn
