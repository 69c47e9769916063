#ifndef COMPILER_EMIT_CPU_BFLOATWORDS_H
#define COMPILER_EMIT_CPU_BFLOATWORDS_H

namespace llvm {
class Module;
}

namespace attn {

/// Moves bf16 as words of 16 bits: loads, stores, masked accesses, selects, phis
/// and shuffles of bf16 become those of i16, vectors and scalars. For targets
/// without bf16 in registers, where LLVM 22 passes some vectors of bf16 (phis,
/// masked loads, selects of these) through f32 and calls compiler-rt's
/// __truncsfbf2 for each element. Values and memory are the same bit by bit.
void moveBfloatAsWords(llvm::Module &module);

} // namespace attn

#endif // COMPILER_EMIT_CPU_BFLOATWORDS_H
