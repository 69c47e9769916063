#ifndef COMPILER_EMIT_CPU_SINGLELANESTORES_H
#define COMPILER_EMIT_CPU_SINGLELANESTORES_H

namespace llvm {
class Module;
}

namespace attn {

/// Makes masked stores whose constant mask has one lane stores of that element. LLVM 22 does so, too, but where the
/// vector was truncated for the store (i32 to bytes), it stores the wide element, over what stands behind it.
void storeSingleLanes(llvm::Module &module);

} // namespace attn

#endif // COMPILER_EMIT_CPU_SINGLELANESTORES_H
