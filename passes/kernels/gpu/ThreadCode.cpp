#include "passes/kernels/gpu/ThreadCode.h"

using namespace mlir;

namespace attn {

SmallVector<Buffer> ThreadCode::launch(const Index &blocks, int64_t threads, ArrayRef<int64_t> sharedElements,
                                       Value dynamicBytes, int64_t sharedBytes) {
  LaneBuilder::Values arrays = raw.launch(blocks, threads, sharedElements, dynamicBytes, sharedBytes);
  enter();
  return llvm::map_to_vector(arrays, [&](Value array) { return asBuffer(array); });
}

void ThreadCode::numberFrom(int64_t first) {
  thread = thread - first;
  raw.thread = thread;
}

Indices rowMajorStrides(ThreadCode &k, const Buffer &buffer) {
  int64_t rank = buffer.memref().getRank();
  Indices strides(rank);
  Index stride = k.index(1);
  for (int64_t n = rank; n-- > 0;) {
    strides[n] = stride;
    if (n)
      stride = stride * buffer.dim(n);
  }
  return strides;
}

Indices delinearize(Index linear, ArrayRef<Index> sizes) {
  Indices result(sizes.size());
  for (size_t n = sizes.size(); n-- > 0;) {
    result[n] = n ? linear % sizes[n] : linear;
    if (n)
      linear = linear / sizes[n];
  }
  return result;
}

} // namespace attn
