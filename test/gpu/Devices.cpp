// Sessions of one model on two GPUs, on the stand-in for libcuda: each has its own copy of the weights, its own memory
// and its own errors, and what belongs to one is refused by the other.
//     gpu-devices GPU-LIBRARY CPU-LIBRARY WEIGHT
#include "test/gpu/StandIn.h"

#include <thread>

using namespace fake;

namespace {

struct Loaded {
  attnrt_model *model = nullptr;
  explicit Loaded(const char *path) { expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, "load"); }
  Loaded(const Loaded &) = delete;
  ~Loaded() { attnrt_model_release(model); }

  attnrt_status create(int32_t device, attnrt_session **session) const {
    attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
    options.device = device;
    return attnrt_session_create(model, &options, session);
  }
  attnrt_session *on(int32_t device) const {
    attnrt_session *session = nullptr;
    expect(create(device, &session) == ATTNRT_OK, "a session");
    return session;
  }
};

std::vector<char> resultOf(attnrt_session *session, const Loaded &loaded, int64_t fill = 1) {
  std::vector<char> bytes;
  expect(runOnce(session, loaded.model, nullptr, fill, 4, &bytes) == ATTNRT_OK, "a run");
  return bytes;
}

/// Both GPUs give the same bits, one after the other and at the same time, as graphs, too.
void checkResults(const char *path) {
  Loaded loaded(path);
  uint64_t before = usedMemory();
  attnrt_session *sessions[] = {loaded.on(0), nullptr};
  uint64_t ofOne = usedMemory() - before;
  sessions[1] = loaded.on(1);
  expect(usedMemory() - before == 2 * ofOne, "each GPU has a copy of the weights");
  std::vector<char> want = resultOf(sessions[0], loaded), other = resultOf(sessions[0], loaded, 2);
  expect(want != other, "inputs that matter");
  std::vector<std::thread> threads;
  for (attnrt_session *session : sessions)
    threads.emplace_back([&, session] {
      for (int i = 0; i < 4; ++i) {
        expect(resultOf(session, loaded) == want, "the same bits on each GPU");
        expect(resultOf(session, loaded, 2) == other, "the same bits on each GPU");
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  attnrt_session *again = loaded.on(1);
  expect(resultOf(again, loaded) == want, "a second session of a GPU");
  for (attnrt_session *session : {sessions[0], sessions[1], again})
    attnrt_session_destroy(session);
}

/// A weight is replaced on all GPUs.
void checkWeights(const char *path, const char *name) {
  Loaded loaded(path);
  attnrt_session *sessions[] = {loaded.on(0), loaded.on(1)};
  std::vector<char> before = resultOf(sessions[0], loaded);
  const attnrt_model_info *info = nullptr;
  const attnrt_weight_info *weight = nullptr;
  expect(attnrt_model_get_info(loaded.model, &info) == ATTNRT_OK, "describe");
  for (uint32_t i = 0; i < info->num_weights; ++i)
    if (!strcmp(info->weights[i].name, name))
      weight = &info->weights[i];
  expect(weight, "the weight");
  if (!weight)
    return;
  std::vector<int64_t> shape(weight->shape, weight->shape + weight->rank);
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  std::vector<float> values(size_t(count), 0.5f);
  DLTensor value = {values.data(), {kDLCPU, 0}, weight->rank, {kDLFloat, 32, 1}, shape.data(), nullptr, 0};
  expect(attnrt_model_set_weight(loaded.model, name, &value) == ATTNRT_OK, "set a weight");
  std::vector<char> after = resultOf(sessions[0], loaded);
  expect(after != before, "a weight that matters");
  expect(resultOf(sessions[1], loaded) == after, "the weight is new on the second GPU");
  for (attnrt_session *session : sessions)
    attnrt_session_destroy(session);
}

/// Numbers of GPUs that there are not, and a GPU for a library that needs none.
void checkNumbers(const char *gpu, const char *cpu) {
  Loaded loaded(gpu), other(cpu);
  attnrt_session *none = nullptr;
  expectFailure("a third GPU", loaded.create(2, &none), ATTNRT_INVALID_ARGUMENT,
                "device is 2, but the NVIDIA driver finds 2 GPUs, numbered from 0");
  expectFailure("a GPU below 0", loaded.create(-1, &none), ATTNRT_INVALID_ARGUMENT, "device is -1");
  expectFailure("a GPU for the CPU", other.create(1, &none), ATTNRT_INVALID_ARGUMENT, "runs on the CPU");
  attnrt_session_destroy(other.on(0));
}

/// Tensors and streams of another GPU than the session's; outputs say where they lie.
void checkTensors(const char *path) {
  Loaded loaded(path);
  attnrt_session *sessions[] = {loaded.on(0), loaded.on(1)};
  const attnrt_entry_info *entry = nullptr;
  attnrt_model_find_entry(loaded.model, nullptr, &entry);
  std::vector<attnrt_output> outputs(size_t(entry->num_outputs), attnrt_output{nullptr, 0, nullptr});
  Inputs inputs(*entry);
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  auto run = [&](attnrt_session *session) {
    return attnrt_session_run(session, &options, inputs.pointers.data(), entry->num_inputs, outputs.data(),
                              entry->num_outputs);
  };
  for (int32_t device : {0, 1}) {
    inputs.tensors[0].device = {kDLCUDA, 1 - device};
    std::string text = "is on CUDA device " + std::to_string(1 - device) + ", the model runs on device ";
    expectFailure("an input of another GPU", run(sessions[device]), ATTNRT_INVALID_ARGUMENT,
                  (text + std::to_string(device)).c_str());
  }
  inputs.tensors[0].device = {kDLCPU, 0};
  options.output_device = kDLCUDA;
  expect(run(sessions[1]) == ATTNRT_OK, "outputs on the second GPU");
  for (attnrt_output &output : outputs) {
    const DLDevice &device = output.tensor->dl_tensor.device;
    expect(device.device_type == kDLCUDA && device.device_id == 1, "an output says where it lies");
  }

  auto *push = standIn<int(void *)>("cuCtxPushCurrent_v2");
  auto *retain = standIn<int(void **, int)>("cuDevicePrimaryCtxRetain");
  auto *release = standIn<int(int)>("cuDevicePrimaryCtxRelease_v2");
  void *context = nullptr, *stream = nullptr;
  expect(!retain(&context, 1) && !push(context) && !standIn<int(void **, unsigned)>("cuStreamCreate")(&stream, 0),
         "a stream");
  std::vector<attnrt_output> old = outputs;
  outputs.assign(outputs.size(), attnrt_output{nullptr, 0, nullptr});
  options.stream = stream;
  options.output_device = kDLCPU;
  expectFailure("a stream of another GPU", run(sessions[0]), ATTNRT_INVALID_ARGUMENT,
                "another CUDA context than the primary one of device 0");
  expect(run(sessions[1]) == ATTNRT_OK, "a stream of the session's GPU");
  standIn<int(void *)>("cuStreamDestroy_v2")(stream);
  standIn<int(void **)>("cuCtxPopCurrent_v2")(&context);
  release(1);
  // Tensors outlive sessions and models.
  for (attnrt_session *session : sessions)
    attnrt_session_destroy(session);
  for (const std::vector<attnrt_output> *all : {&old, &outputs})
    for (const attnrt_output &output : *all)
      output.tensor->deleter(output.tensor);
}

/// A GPU that is lost takes its own sessions along, and comes back once they are gone.
void checkLoss(const char *path) {
  Loaded loaded(path);
  attnrt_session *sound = loaded.on(0), *lost = loaded.on(1);
  std::vector<char> want = resultOf(sound, loaded);
  configure("devices=2,launch=1");
  expectFailure("a launch on the second GPU fails", runOnce(lost, loaded.model), ATTNRT_DEVICE,
                "CUDA_ERROR_ILLEGAL_ADDRESS");
  configure("devices=2");
  expectFailure("the GPU is lost", runOnce(lost, loaded.model), ATTNRT_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS");
  expect(resultOf(sound, loaded) == want, "the other GPU works");
  attnrt_session_destroy(lost);
  attnrt_session_destroy(sound);
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: gpu-devices GPU-LIBRARY CPU-LIBRARY WEIGHT\n");
    return 1;
  }
  if (!openStandIn())
    return 1;
  configure("devices=2");
  checkResults(argv[1]);
  checkWeights(argv[1], argv[3]);
  checkNumbers(argv[1], argv[2]);
  checkTensors(argv[1]);
  checkLoss(argv[1]);
  expect(usedMemory() == 0, "device memory is left");
  Loaded loaded(argv[1]);
  attnrt_session *session = loaded.on(1);
  resultOf(session, loaded);
  attnrt_session_destroy(session);
  printf("%d problems\n", problems);
  return problems != 0;
}
