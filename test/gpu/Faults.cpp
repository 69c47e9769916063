// What can go wrong with a driver, each in turn in one process, on the stand-in
// for libcuda: a message each time, and the process works afterwards.
//     gpu-faults GPU-LIBRARY CPU-LIBRARY
#include "attnrt/attnrt.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

namespace {

void (*configure)(const char *);
uint64_t (*usedMemory)();
int problems = 0;

void expect(bool holds, const char *what) {
  if (holds)
    return;
  printf("FAILED: %s (last error: %s)\n", what, attnrt_last_error());
  ++problems;
}

/// Whether `status` is `wanted` and the message contains `text`.
void expectFailure(const char *what, attnrt_status status, attnrt_status wanted, const char *text) {
  bool holds = status == wanted && strstr(attnrt_last_error(), text);
  printf("%s: %s: %s\n", what, attnrt_status_name(status), attnrt_last_error());
  expect(holds, what);
}

/// Inputs of zeros, open dimensions of size 4.
struct Inputs {
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::vector<char>> bytes;
  std::vector<DLTensor> tensors;
  std::vector<const DLTensor *> pointers;

  explicit Inputs(const attnrt_entry_info &entry) {
    for (int32_t i = 0; i < entry.num_inputs; ++i) {
      const attnrt_tensor_info &info = entry.inputs[i];
      size_t size = attnrt_dtype_size(info.dtype);
      shapes.emplace_back();
      for (int32_t d = 0; d < info.rank; ++d) {
        shapes.back().push_back(info.dims[d].size < 0 ? 4 : info.dims[d].size);
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

attnrt_status runOnce(attnrt_session *session, attnrt_model *model, void *stream = nullptr, int64_t fill = 0) {
  const attnrt_entry_info *entry;
  attnrt_model_find_entry(model, nullptr, &entry);
  Inputs inputs(*entry);
  for (size_t i = 0; i < inputs.bytes.size(); ++i)
    if (fill && entry->inputs[i].dtype == ATTNRT_I64)
      for (size_t at = 0; at < inputs.bytes[i].size(); at += 8)
        memcpy(&inputs.bytes[i][at], &fill, 8);
  std::vector<attnrt_output> outputs(size_t(entry->num_outputs), attnrt_output{nullptr, 0, nullptr});
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.stream = stream;
  attnrt_status status = attnrt_session_run(session, &options, inputs.pointers.data(), entry->num_inputs,
                                            outputs.data(), entry->num_outputs);
  for (attnrt_output &output : outputs)
    if (output.tensor)
      output.tensor->deleter(output.tensor);
  return status;
}

/// A library works from loading to running, and leaves no more device memory
/// than there was.
void expectWorks(const char *path, const char *when) {
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  uint64_t before = usedMemory();
  expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, when);
  if (!model)
    return;
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, when);
  if (session)
    for (int i = 0; i < 2; ++i)
      expect(runOnce(session, model) == ATTNRT_OK, when);
  attnrt_session_destroy(session);
  attnrt_model_release(model);
  expect(usedMemory() == before, "device memory is left");
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 3)
    return 1;
  void *fake = dlopen("libcuda.so.1", RTLD_NOW);
  if (!fake || !(configure = reinterpret_cast<void (*)(const char *)>(dlsym(fake, "attnFakeCudaConfigure")))) {
    printf("libcuda.so.1 is not the stand-in\n");
    return 1;
  }
  usedMemory = reinterpret_cast<uint64_t (*)()>(dlsym(fake, "attnFakeCudaUsed"));
  const char *gpu = argv[1], *cpu = argv[2];
  attnrt_model *model = nullptr;
  auto refuses = [&](const char *what, const char *settings, attnrt_status wanted, const char *text) {
    configure(settings);
    attnrt_session *none = nullptr;
    expect(attnrt_model_load(gpu, nullptr, &model) == ATTNRT_OK, "a library can be looked at without a GPU");
    expectFailure(what, attnrt_session_create(model, nullptr, &none), wanted, text);
    attnrt_model_release(model);
    expectWorks(cpu, "a CPU library after a fault");
  };
  refuses("no device", "init=100", ATTNRT_DEVICE, "CUDA_ERROR_NO_DEVICE");
  refuses("old driver", "version=11080", ATTNRT_DEVICE, "it serves CUDA 11.8, needed is 12.0");
  refuses("no GPU", "devices=0", ATTNRT_DEVICE, "finds no GPU");
  refuses("wrong architecture", "cc=75", ATTNRT_INCOMPATIBLE, "compute capability 7.5), only sm_90a");
  refuses("memory at load", "memory=100", ATTNRT_OUT_OF_MEMORY, "bytes for the weights");
  configure("");
  expectWorks(gpu, "the GPU library after these");
  configure("cc=90");
  expectWorks(gpu, "the GPU library on its other architecture");

  attnrt_session *session = nullptr;
  configure("");
  expect(attnrt_model_load(gpu, nullptr, &model) == ATTNRT_OK, "load");
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create");
  configure(("memory=" + std::to_string(usedMemory() + 64)).c_str());
  expectFailure("memory in a run", runOnce(session, model), ATTNRT_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
  configure("");
  expect(runOnce(session, model) == ATTNRT_OK, "the same session with memory");
  expectFailure("an index out of range", runOnce(session, model, nullptr, 1 << 30), ATTNRT_OUT_OF_RANGE,
                "out of range");
  expect(runOnce(session, model) == ATTNRT_OK, "the same session with good indices");

  // A caller's stream that is being captured: refused, because a run waits for its work.
  int (*create)(void **, unsigned) = reinterpret_cast<int (*)(void **, unsigned)>(dlsym(fake, "cuStreamCreate"));
  int (*capture)(void *, int) = reinterpret_cast<int (*)(void *, int)>(dlsym(fake, "cuStreamBeginCapture_v2"));
  int (*destroy)(void *) = reinterpret_cast<int (*)(void *)>(dlsym(fake, "cuStreamDestroy_v2"));
  void *stream = nullptr;
  create(&stream, 0);
  expect(runOnce(session, model, stream) == ATTNRT_OK, "a run on the caller's stream");
  capture(stream, 0);
  expectFailure("a stream that is captured", runOnce(session, model, stream), ATTNRT_UNSUPPORTED, "being captured");
  destroy(stream);

  configure("launch=2");
  expectFailure("a kernel fails", runOnce(session, model), ATTNRT_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS");
  configure("");
  expectFailure("the error stays", runOnce(session, model), ATTNRT_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS");
  expectWorks(cpu, "a CPU library after a sticky error");
  attnrt_session_destroy(session);
  attnrt_model_release(model);
  expectWorks(gpu, "the GPU library, loaded again");
  printf("%d problems\n", problems);
  return problems != 0;
}
