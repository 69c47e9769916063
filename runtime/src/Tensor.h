#ifndef RUNTIME_SRC_TENSOR_H
#define RUNTIME_SRC_TENSOR_H

#include "Error.h"
#include "Pool.h"

namespace attn::rt {

/// More than any model has (the importer's limit is 8); lets counters live on
/// the stack.
constexpr int32_t kMaxRank = 32;
// The largest dimension of an input: 2^40.
constexpr int64_t kMaxSize = int64_t(1) << 40;

/// A DLTensor that was checked against its declaration.
struct TensorView {
  char *data;     ///< the first element
  uint64_t bytes; ///< dense
  bool dense;     ///< row-major without gaps
  bool onDevice;  ///< `data` is an address on the GPU
};

inline int32_t dtypeOf(const DLDataType &type) { return type.lanes == 1 ? type.code << 8 | type.bits : -1; }

/// Bytes of a dense tensor. False: a negative size, or more than INT64_MAX bytes.
bool denseBytes(int32_t dtype, int32_t rank, const int64_t *shape, uint64_t &bytes);

/// Checks that `tensor` is on the CPU (or on CUDA device `gpu`, if that is none below 0), of the declared dtype and
/// rank and of sizes that the declaration allows, and that it has memory. `what` is "input", "output" or "weight".
/// `capacity` 0: the memory is as large as the shape says; otherwise the sizes are not looked at.
attnrt_status checkTensor(const DLTensor *tensor, const char *what, const attnrt_tensor_info &declared,
                          uint64_t capacity, TensorView &view, int32_t gpu = -1);

/// Copies a tensor of any strides to dense row-major memory. The threads of `pool` share the work until `stop` says so;
/// without one the caller does it all. False: it stopped.
bool copyDense(const DLTensor &tensor, const char *from, void *to, Pool *pool = nullptr, StopCondition *stop = nullptr);

} // namespace attn::rt

#endif // RUNTIME_SRC_TENSOR_H
