// A tensor in the runner's own memory, and what is printed and compared of it.
#ifndef TOOLS_ATTN_RUN_RUNNER_TENSOR_H
#define TOOLS_ATTN_RUN_RUNNER_TENSOR_H

#include "attnrt/attnrt.h"
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace attn::runner {

/// Dense, row-major, aligned to 64 bytes.
class Tensor {
public:
  Tensor() = default;
  Tensor(Tensor &&) = default;
  Tensor &operator=(Tensor &&) = default;

  /// Elements are undefined. False with `error` set when the size overflows or
  /// there is no memory.
  static bool create(int32_t dtype, std::vector<int64_t> shape, Tensor &result, std::string &error);

  int32_t dtype() const { return type; }
  const std::vector<int64_t> &shape() const { return sizes; }
  uint64_t elements() const { return count; }
  uint64_t bytes() const { return count * attnrt_dtype_size(type); }
  void *data() { return memory.get(); }
  const void *data() const { return memory.get(); }

  /// Element `i` in row-major order; exact for all but 64-bit integers beyond 2^53.
  double at(uint64_t i) const;
  /// Stores `value`, rounded to the dtype.
  void set(uint64_t i, double value);
  /// 64-bit integers, exactly.
  int64_t intAt(uint64_t i) const;
  void setInt(uint64_t i, int64_t value);

  /// As the C API takes it; valid while the tensor is, and not moved.
  DLTensor view();

private:
  struct Free {
    void operator()(void *p) const { std::free(p); }
  };
  int32_t type = ATTNRT_F32;
  std::vector<int64_t> sizes;
  uint64_t count = 0;
  std::unique_ptr<void, Free> memory;
};

inline bool isFloat(int32_t dtype) { return (dtype >> 8) == 2 || (dtype >> 8) == 4; }
inline bool isUnsigned(int32_t dtype) { return (dtype >> 8) == 1; }

/// Elements of a shape; false when one is negative or the bytes exceed 2^62.
bool countElements(const std::vector<int64_t> &shape, int32_t dtype, uint64_t &count);

/// "2x128".
std::string printShape(const std::vector<int64_t> &shape);
/// An element as text that reads back to the same value.
std::string printElement(const Tensor &tensor, uint64_t i);
/// All elements as NumPy writes a list: "[[1, 2],\n [3, 4]]".
std::string printTensor(const Tensor &tensor);

/// What is worth printing of a tensor. NaNs take no part in min, max and mean.
struct Statistics {
  double min = 0, max = 0, mean = 0;
  uint64_t nans = 0;
  bool any = false; ///< there is an element that is a number
};
Statistics statistics(const Tensor &tensor);

/// Compares element by element: |got - want| <= atol + rtol * |want|, NaN equals
/// NaN, infinities and integers exactly.
struct Comparison {
  bool equal = false;
  double maxError = 0; ///< largest |got - want| of finite pairs
  uint64_t different = 0;
  std::string complaint; ///< what differs first, with both values
};
Comparison compare(const Tensor &got, const Tensor &want, double rtol, double atol);

} // namespace attn::runner

#endif // TOOLS_ATTN_RUN_RUNNER_TENSOR_H
