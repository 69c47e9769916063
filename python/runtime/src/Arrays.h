// Between Python's arrays and DLPack's tensors, without a copy in either direction.
#ifndef PYTHON_RUNTIME_SRC_ARRAYS_H
#define PYTHON_RUNTIME_SRC_ARRAYS_H

#include "attnrt/attnrt.h"

#include <memory>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <string>
#include <vector>

namespace attn::python {

/// Raises the exception that stands for `status`, with attnrt_last_error() or `message`.
[[noreturn]] void raise(attnrt_status status);
[[noreturn]] void raise(attnrt_status status, const std::string &message);

/// "float32 [batch, 384]"
std::string describe(const attnrt_tensor_info &info);

/// str() of an object; what UTF-8 does not have, lone halves of pairs, is escaped.
std::string textOf(nanobind::handle object);

/// Whether `object` is an int, a bool or a float of Python.
bool isNumber(PyObject *object);

/// An array of the caller's as a tensor, borrowed for as long as this lives, or, for an input that may have one
/// element, a number of Python. Made and destroyed with the GIL held.
class Borrowed {
public:
  /// `what` is for messages: "input 'x'".
  Borrowed(PyObject *array, const attnrt_tensor_info &info, const char *what, bool writable);
  Borrowed(Borrowed &&other) noexcept;
  Borrowed &operator=(Borrowed &&) = delete;
  ~Borrowed();

  DLTensor tensor = {nullptr, {kDLCPU, 0}, 0, {}, nullptr, nullptr, 0};

private:
  void fromBuffer(const attnrt_tensor_info &info, const char *what);
  void fromDLPack(PyObject *array, const char *what, bool writable);
  bool fromNumber(PyObject *number, const attnrt_tensor_info &info, const char *what);

  struct Number {
    int64_t shape = 1;
    union {
      int64_t integer;
      float single;
      double number;
    };
  };

  Py_buffer view = {}; // view.obj is null if there is none
  DLManagedTensor *managed = nullptr;
  std::vector<int64_t> strides;
  std::unique_ptr<Number> number;
};

/// What the runtime allocated, until an array of the caller's kind takes it over.
class Tensor {
public:
  explicit Tensor(DLManagedTensor *tensor) : managed(tensor) {}
  Tensor(const Tensor &) = delete;
  ~Tensor();

  /// The rest of Python's side: for torch.from_dlpack and its like.
  nanobind::object dlpack(const nanobind::kwargs &);
  nanobind::tuple device() const;

  static void bind(nanobind::module_ &module);
  static int fillBuffer(PyObject *self, Py_buffer *view, int flags) noexcept;

private:
  DLManagedTensor *managed;
  std::vector<int64_t> byteStrides; // lives as long as buffers of it do
};

/// The kind of array that results are to be, after the first input.
class Kind {
public:
  /// NumPy's, also where `array` is null.
  explicit Kind(PyObject *array);

  /// Takes over `tensor`.
  nanobind::object wrap(DLManagedTensor *tensor) const;

private:
  PyObject *array; // borrowed; null: NumPy
};

} // namespace attn::python

#endif // PYTHON_RUNTIME_SRC_ARRAYS_H
