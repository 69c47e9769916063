#ifndef COMPILER_EMIT_CPU_STEPPEDMULTIPLES_H
#define COMPILER_EMIT_CPU_STEPPEDMULTIPLES_H

namespace llvm {
class Module;
}

namespace attn {

/// Makes multiples of the index of an innermost loop, which addresses are, sums that grow with each step: what is left
/// to do for addresses without LLVM's search (CodePasses). Loops are to have an entry of their own.
void stepMultiples(llvm::Module &module);

} // namespace attn

#endif // COMPILER_EMIT_CPU_STEPPEDMULTIPLES_H
