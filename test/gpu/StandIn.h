#ifndef TEST_GPU_STANDIN_H
#define TEST_GPU_STANDIN_H

// What programs share that run libraries on the stand-in for libcuda and count what does not hold.

#include "attnrt/attnrt.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

namespace fake {

inline void (*configure)(const char *);
inline uint64_t (*usedMemory)();
inline int problems = 0;

/// The stand-in's function `name`; null where libcuda.so.1 is not the stand-in.
template <typename F> F *standIn(const char *name) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  return library ? reinterpret_cast<F *>(dlsym(library, name)) : nullptr;
}

/// Finds `configure` and `usedMemory`; says so if there is no stand-in.
inline bool openStandIn() {
  configure = standIn<void(const char *)>("attnFakeCudaConfigure");
  usedMemory = standIn<uint64_t()>("attnFakeCudaUsed");
  if (!configure)
    printf("libcuda.so.1 is not the stand-in\n");
  return configure;
}

inline void expect(bool holds, const char *what) {
  if (holds)
    return;
  printf("FAILED: %s (last error: %s)\n", what, attnrt_last_error());
  ++problems;
}

/// Whether `status` is `wanted` and the message contains `text`.
inline void expectFailure(const char *what, attnrt_status status, attnrt_status wanted, const char *text) {
  bool holds = status == wanted && strstr(attnrt_last_error(), text);
  printf("%s: %s: %s\n", what, attnrt_status_name(status), attnrt_last_error());
  expect(holds, what);
}

/// Inputs of zeros, open dimensions of size `open`.
struct Inputs {
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::vector<char>> bytes;
  std::vector<DLTensor> tensors;
  std::vector<const DLTensor *> pointers;

  explicit Inputs(const attnrt_entry_info &entry, int64_t open = 4) {
    for (int32_t i = 0; i < entry.num_inputs; ++i) {
      const attnrt_tensor_info &info = entry.inputs[i];
      size_t size = attnrt_dtype_size(info.dtype);
      shapes.emplace_back();
      for (int32_t d = 0; d < info.rank; ++d) {
        shapes.back().push_back(info.dims[d].size < 0 ? open : info.dims[d].size);
        size *= size_t(shapes.back().back());
      }
      bytes.emplace_back(size, 0);
    }
    for (int32_t i = 0; i < entry.num_inputs; ++i)
      tensors.push_back({bytes[i].data(),
                         {kDLCPU, 0},
                         int32_t(shapes[i].size()),
                         {uint8_t(entry.inputs[i].dtype >> 8), uint8_t(entry.inputs[i].dtype), 1},
                         shapes[i].data(),
                         nullptr,
                         0});
    for (DLTensor &tensor : tensors)
      pointers.push_back(&tensor);
  }
};

inline attnrt_status runOnce(attnrt_session *session, attnrt_model *model, void *stream = nullptr, int64_t fill = 0,
                             int64_t open = 4, std::vector<char> *bytes = nullptr, attnrt_cancel *cancel = nullptr,
                             const char *name = nullptr) {
  const attnrt_entry_info *entry;
  attnrt_model_find_entry(model, name, &entry);
  Inputs inputs(*entry, open);
  for (size_t i = 0; i < inputs.bytes.size(); ++i)
    if (fill && entry->inputs[i].dtype == ATTNRT_I64)
      for (size_t at = 0; at < inputs.bytes[i].size(); at += 8)
        memcpy(&inputs.bytes[i][at], &fill, 8);
    else if (fill && entry->inputs[i].dtype == ATTNRT_F32)
      for (size_t at = 0; at < inputs.bytes[i].size(); at += 4) {
        float value = float(at % 28) / 16 - float(fill);
        memcpy(&inputs.bytes[i][at], &value, 4);
      }
  std::vector<attnrt_output> outputs(size_t(entry->num_outputs), attnrt_output{nullptr, 0, nullptr});
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.stream = stream;
  options.cancel = cancel;
  options.entry = name;
  attnrt_status status = attnrt_session_run(session, &options, inputs.pointers.data(), entry->num_inputs,
                                            outputs.data(), entry->num_outputs);
  for (attnrt_output &output : outputs) {
    if (!output.tensor)
      continue;
    const DLTensor &tensor = output.tensor->dl_tensor;
    size_t size = tensor.dtype.bits / 8;
    for (int32_t d = 0; d < tensor.ndim; ++d)
      size *= size_t(tensor.shape[d]);
    if (bytes)
      bytes->insert(bytes->end(), static_cast<char *>(tensor.data), static_cast<char *>(tensor.data) + size);
    output.tensor->deleter(output.tensor);
  }
  return status;
}

} // namespace fake

#endif // TEST_GPU_STANDIN_H
