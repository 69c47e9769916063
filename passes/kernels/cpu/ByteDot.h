#ifndef PASSES_KERNELS_CPU_BYTEDOT_H
#define PASSES_KERNELS_CPU_BYTEDOT_H

#include "dialects/attn/AttnOps.h"

namespace attn {

/// How bytes are multiplied and summed: what one lane of i32 takes in of a column.
enum class ByteDot {
  Quads, ///< vpdpbusd: four products (AVX512-VNNI, AVX-VNNI)
  Pairs, ///< four products by vpmaddwd, or by vpmaddubsw where its sums of two fit
  Single ///< one product, in any instruction set
};

/// That of the target; feature bits alone decide.
ByteDot byteDotOf(TargetAttr target);

} // namespace attn

#endif // PASSES_KERNELS_CPU_BYTEDOT_H
