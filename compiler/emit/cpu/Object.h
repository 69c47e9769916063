#ifndef COMPILER_EMIT_CPU_OBJECT_H
#define COMPILER_EMIT_CPU_OBJECT_H

#include "dialects/attn/AttnOps.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include <string>

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace attn {

/// Sets triple, data layout and function attributes of `target` and runs
/// LLVM's pipeline of `optLevel` (0..2), or the one of Object.cpp (3), over
/// `module`. The vectorisers and the unroller are off: loops arrive as vectors and unrolled as their builders
/// want them (a further unroll by 2 costs the GEMM's inner loop 2-4 %). In the
/// end bf16 moves as words where the target has none.
/// `shared` are the functions that one object of a library has and others call;
/// all others but attnrt_library_query are seen in their object alone.
/// False, with `error` set, where LLVM does not know that pipeline.
bool optimizeModule(llvm::Module &module, llvm::TargetMachine &machine, TargetAttr target, unsigned optLevel,
                    const llvm::StringSet<> &shared, std::string &error);

/// LLVM's passes at level 3, as text.
llvm::StringRef passesOfVectorCode();

using ObjectBytes = llvm::SmallVector<char, 0>;

/// An ELF object, and the bytes of stack that a call of its functions takes at most, without what other objects add.
struct Object {
  ObjectBytes bytes;
  uint64_t stackSize = 0;
};

/// Makes the object of an optimised module. `machine` is of makeTargetMachine, as above; one after the other, modules
/// may share it.
bool emitObject(llvm::Module &module, llvm::TargetMachine &machine, unsigned optLevel, Object &object,
                std::string &error);

/// Links objects to a shared library in memory, in process. Only
/// attnrt_library_query is visible from outside.
bool linkLibrary(llvm::ArrayRef<ObjectBytes> objects, ObjectBytes &elf, std::string &error);
/// Links objects to one object.
bool joinObjects(llvm::ArrayRef<ObjectBytes> objects, ObjectBytes &joined, std::string &error);

} // namespace attn

#endif // COMPILER_EMIT_CPU_OBJECT_H
