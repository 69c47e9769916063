#ifndef COMPILER_EMIT_CPU_OBJECTCACHE_H
#define COMPILER_EMIT_CPU_OBJECTCACHE_H

#include "compiler/emit/cpu/Object.h"

namespace llvm {
class Module;
} // namespace llvm

namespace attn {

/// Objects of earlier compiles in a folder, each under the digest of what it was
/// compiled from: the LLVM IR, the target, the level and the compiler.
///
/// Entries are written beside their place and renamed, and hold a digest of
/// their own, so that any number of compiles may share a folder, and a damaged
/// or half-written entry is none. A cache that fails costs time, never a compile.
class ObjectCache {
public:
  /// Of the compiler that names itself `compiler`, in `folder` ("": no cache).
  ObjectCache(llvm::StringRef folder, llvm::StringRef compiler) : folder(folder.str()), compiler(compiler.str()) {}

  /// Looks the object of `module` up, and remembers its key for `store`.
  bool load(const llvm::Module &module, TargetAttr target, unsigned optLevel, Object &object);
  void store(const Object &object) const;

private:
  std::string folder, compiler, key;
};

} // namespace attn

#endif // COMPILER_EMIT_CPU_OBJECTCACHE_H
