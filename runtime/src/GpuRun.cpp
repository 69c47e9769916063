// A run whose kernels are on a GPU: inputs there, the entry (which computes
// sizes and puts kernels on a stream), outputs back.

#include "Session.h"
#include "Threads.h"

#include <algorithm>
#include <cstring>

using namespace attn::rt;

static Run &runOf(attnrt_run *run) { return *reinterpret_cast<Run *>(run); }
static const CudaDriver &driverOf(Run &run) { return *run.session->gpu->model.driver; }

//===----------------------------------------------------------------------===//
// During the entry
//===----------------------------------------------------------------------===//

static void *pointerTo(DeviceAddress address) { return reinterpret_cast<void *>(address); }

static void *provideDeviceWorkspace(attnrt_run *abi, uint64_t bytes) {
  Run &run = runOf(abi);
  GpuPiece *&piece = *run.nextGpuPiece;
  if (!piece)
    piece = make<GpuPiece>();
  if (!piece) {
    run.status = failMemory(sizeof(GpuPiece), "the workspace of a run");
    return nullptr;
  }
  DeviceAddress memory = run.session->gpu->atLeast(piece->buffer, bytes, "the workspace of a run", run.status);
  run.nextGpuPiece = &piece->next;
  return pointerTo(memory);
}

static void *provideOutput(attnrt_run *abi, int32_t index, int32_t rank, const int64_t *shape) {
  Run &run = runOf(abi);
  OutputSlot *slot = declareOutput(run, index, rank, shape);
  if (!slot || !acceptsBuffer(run, *slot, run.plan->entry->outputs[index]))
    return nullptr;
  // Vector stores need 16 bytes.
  if (slot->given->buffer && slot->view.onDevice && slot->bytes &&
      reinterpret_cast<uintptr_t>(slot->view.data) % 16 == 0)
    return slot->view.data;
  slot->staged = true;
  return pointerTo(
      run.session->gpu->atLeast(run.session->gpu->outputs[uint64_t(index)], slot->bytes, "an output", run.status));
}

static int32_t stopped(Run &run) {
  bool none = run.session->pool.run(nullptr, nullptr, 0, run.stop);
  return !none;
}

// Of ops that run on the CPU.
static int32_t parallelFor(attnrt_run *abi, attnrt_task_fn fn, void *arg, int64_t n) {
  Run &run = runOf(abi);
  if (!run.hasPool && fn && n) {
    run.session->pool.beginRun();
    run.hasPool = true;
  }
  bool finished = run.session->pool.run(fn, arg, n, run.stop);
  return !finished || __atomic_load_n(&abi->error_message, __ATOMIC_RELAXED) != 0;
}

static attnrt_status failRun(Run &run, int code, const char *call) {
  Text what;
  const attnrt_gpu_code &gpu = *run.session->model->library.gpu;
  what.add("entry '%s'", run.plan->entry->name);
  if (run.lastKernel >= 0)
    what.add(", in or before kernel '%s'", gpu.kernels[run.lastKernel]);
  if (code >= kCublasError)
    return fail(ATTNRT_DEVICE, "%s: cublasLtMatmul: %s (%d); later runs of the session go without cuBLASLt", what.str(),
                run.session->gpu->launches.products.nameOf(code), code - kCublasError);
  return failCuda(driverOf(run), code, call, what.str());
}

static bool isToStop(void *run) { return stopped(*static_cast<Run *>(run)); }

static GpuLaunches::Target targetOf(Run &run) {
  return {run.stream, run.session->gpu->stream, run.lastKernel, "cuLaunchKernel", run.stop.isNeeded(), isToStop, &run};
}

/// What an entry gets back for `code` of the launches.
static int32_t outcome(Run &run, int code, const GpuLaunches::Target &target) {
  if (code)
    run.status = failRun(run, code, target.call);
  return code != 0 || stopped(run);
}

static int32_t launch(attnrt_run *abi, int32_t kernel, const int64_t *grid, const int64_t *block, int64_t shared,
                      const void *parameters, uint64_t size) {
  Run &run = runOf(abi);
  const attnrt_gpu_code &gpu = *run.session->model->library.gpu;
  if (kernel < 0 || uint32_t(kernel) >= gpu.num_kernels) {
    run.status =
        fail(ATTNRT_INTERNAL, "entry '%s' launches kernel %d of %u", run.plan->entry->name, kernel, gpu.num_kernels);
    return 1;
  }
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
    return 0;
  if (grid[0] < 0 || grid[0] > INT32_MAX || grid[1] < 0 || grid[1] > 65535 || grid[2] < 0 || grid[2] > 65535) {
    run.status = fail(ATTNRT_UNSUPPORTED, "kernel '%s' would need %lld x %lld x %lld blocks, more than a GPU takes",
                      gpu.kernels[kernel], (long long)grid[0], (long long)grid[1], (long long)grid[2]);
    return 1;
  }
  bool isCooperative = shared & ATTNRT_LAUNCH_COOPERATIVE;
  GpuLaunches::Shape shape = {kernel,
                              {uint32_t(grid[0]), uint32_t(grid[1]), uint32_t(grid[2])},
                              {uint32_t(block[0]), uint32_t(block[1]), uint32_t(block[2])},
                              uint32_t(shared & ~int64_t(ATTNRT_LAUNCH_COOPERATIVE)),
                              isCooperative,
                              uint32_t(size)};
  GpuLaunches::Target target = targetOf(run);
  return outcome(run, run.session->gpu->launches.add(shape, parameters, target), target);
}

static int32_t beginLoop(attnrt_run *abi) {
  Run &run = runOf(abi);
  GpuLaunches::Target target = targetOf(run);
  return outcome(run, run.session->gpu->launches.beginLoop(target), target);
}

static int32_t endLoop(attnrt_run *abi, const void *condition) {
  Run &run = runOf(abi);
  GpuLaunches::Target target = targetOf(run);
  auto address = reinterpret_cast<DeviceAddress>(condition);
  return outcome(run, run.session->gpu->launches.endLoop(address, target), target);
}

static int32_t product(attnrt_run *abi, const attnrt_product *wanted) {
  Run &run = runOf(abi);
  GpuSession &gpu = *run.session->gpu;
  auto workspace = [&](uint64_t bytes) {
    attnrt_status ignored = ATTNRT_OK;
    return gpu.atLeast(gpu.products, bytes, "cuBLASLt", ignored);
  };
  // The body of a loop holds the code's own kernels alone.
  attnrt_product made = {};
  memcpy(&made, wanted, std::min(size_t(wanted->struct_size), sizeof(made)));
  made.struct_size = sizeof(made);
  made.flags &= ~ATTNRT_PRODUCT_ASK;
  if (gpu.launches.inLoop() || !gpu.launches.products.serves(made, workspace))
    return 0;
  if (wanted->flags & ATTNRT_PRODUCT_ASK)
    return 1;
  GpuLaunches::Shape shape = {kProductLaunch, {}, {}, 0, 0, sizeof(made)};
  GpuLaunches::Target target = targetOf(run);
  return outcome(run, gpu.launches.add(shape, &made, target), target) ? -1 : 1;
}

static int32_t mapTiles(attnrt_run *abi, void *map, const void *tensor, int32_t rank, const int64_t *sizes,
                        const int64_t *strides, const int64_t *tile) {
  Run &run = runOf(abi);
  if (!driverOf(run).cuFuncGetParamInfo) {
    run.status =
        fail(ATTNRT_DEVICE,
             "entry '%s' copies tiles by tensor maps, which a launch takes since CUDA 12.4, and the NVIDIA driver "
             "is older: update it, or compile for sm_90, too",
             run.plan->entry->name);
    return 1;
  }
  constexpr int kWords = 1, kPlain = 0, kSwizzle128 = 3, kPromote256 = 3, kZeros = 0; // CU_TENSOR_MAP_...
  constexpr int32_t kMaxMapRank = 5;
  constexpr uint64_t kBytes = 2;
  alignas(64) uint8_t made[kTensorMapBytes] = {}; // as the driver wants it
  uint64_t extents[kMaxMapRank], pitches[kMaxMapRank];
  uint32_t box[kMaxMapRank], steps[kMaxMapRank];
  bool isEmpty = rank > kMaxMapRank;
  for (int32_t n = 0; n < rank && n < kMaxMapRank; ++n) { // the driver counts from the innermost one
    int32_t dim = rank - 1 - n;
    extents[n] = uint64_t(sizes[dim]), box[n] = uint32_t(tile[dim]), steps[n] = 1;
    pitches[n] = kBytes * uint64_t(strides[dim]);
    isEmpty |= sizes[dim] <= 0;
  }
  int code = kCudaSuccess;
  GpuLaunches::Target target = targetOf(run);
  target.call = "cuTensorMapEncodeTiled";
  if (!isEmpty) // of nothing there is no map, and no kernel asks for it
    code = driverOf(run).cuTensorMapEncodeTiled(made, kWords, uint32_t(rank), const_cast<void *>(tensor), extents,
                                                pitches + 1, box, steps, kPlain, kSwizzle128, kPromote256, kZeros);
  memcpy(map, made, sizeof(made));
  return code ? outcome(run, code, target) : 0;
}

static int32_t send(attnrt_run *abi, void *to, const void *from, uint64_t bytes) {
  Run &run = runOf(abi);
  const CudaDriver &driver = driverOf(run);
  GpuLaunches::Target target = targetOf(run);
  int code = run.session->gpu->launches.flush(target);
  if (!code && bytes) {
    GpuTrace::Span span(run.session->gpu->launches.trace, "copy to the GPU, by the entry");
    // Pageable memory is read before the call returns.
    target.call = "cuMemcpyHtoD";
    code = driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<DeviceAddress>(to), from, bytes, run.stream);
  }
  return outcome(run, code, target);
}

static int32_t fetch(attnrt_run *abi, void *to, const void *from, uint64_t bytes) {
  Run &run = runOf(abi);
  const CudaDriver &driver = driverOf(run);
  GpuLaunches::Target target = targetOf(run);
  int code = run.session->gpu->launches.flush(target);
  if (code)
    return outcome(run, code, target);
  target.call = "cuMemcpyDtoH";
  if (bytes) {
    GpuTrace::Span span(run.session->gpu->launches.trace, "copy from the GPU, for the entry");
    code = driver.cuMemcpyDtoHAsync_v2(to, reinterpret_cast<DeviceAddress>(from), bytes, run.stream);
  }
  if (!code)
    code = driver.cuStreamSynchronize(run.stream);
  return outcome(run, code, target);
}

//===----------------------------------------------------------------------===//
// Around the entry
//===----------------------------------------------------------------------===//

attnrt_status attnrt_session::stageGpuInputs(Run &run, const DLTensor *const *tensors) {
  const attnrt_entry &entry = *run.plan->entry;
  for (int32_t i = 0; i < entry.num_inputs; ++i) {
    const TensorView &view = inputViews[uint64_t(i)];
    attnrt_buffer &buffer = inputs[uint64_t(i)];
    buffer.shape = tensors[i]->shape;
    bool isAligned = reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
    if (view.onDevice && !view.dense)
      return fail(ATTNRT_UNSUPPORTED, "input '%s' is on the GPU with strides; a dense row-major tensor is needed",
                  entry.inputs[i].name);
    if (view.onDevice && isAligned && view.bytes) {
      buffer.data = view.data;
      continue;
    }
    attnrt_status status = ATTNRT_OK;
    DeviceAddress memory = gpu->atLeast(gpu->inputs[uint64_t(i)], view.bytes, "an input", status);
    if (!memory)
      return status;
    buffer.data = pointerTo(memory);
    if (view.bytes == 0)
      continue;
    const char *from = view.data;
    if (!view.dense) {
      void *copy = inputStaging[i].atLeast(view.bytes);
      if (!copy)
        return failMemory(view.bytes, "a dense copy of an input");
      if (!copyDense(*tensors[i], view.data, copy, &pool, &run.stop))
        return checkCall(run, ATTNRT_RUN_STOPPED);
      from = static_cast<const char *>(copy);
    }
    GpuTrace::Span span(gpu->launches.trace, "copy of an input");
    int code = view.onDevice ? gpu->model.driver->cuMemcpyDtoDAsync_v2(memory, reinterpret_cast<DeviceAddress>(from),
                                                                       view.bytes, run.stream)
                             : gpu->model.driver->cuMemcpyHtoDAsync_v2(memory, from, view.bytes, run.stream);
    if (code)
      return failRun(run, code, "cuMemcpyHtoD");
  }
  return ATTNRT_OK;
}

// Calls the entry, which puts its kernels on the run's stream.
attnrt_status attnrt_session::enqueue(Run &run) {
  const attnrt_entry &entry = *run.plan->entry;
  for (int32_t i = 0; i < entry.num_outputs; ++i)
    outputs[uint64_t(i)].produced = outputs[uint64_t(i)].staged = false;
  run.nextGpuPiece = &gpu->workspace;
  run.nextPiece = &workspace;
  run.status = ATTNRT_OK;
  gpu->launches.begin();
  int32_t result;
  {
    DefaultFloatingPoint environment; // of ops that run on the CPU
    run.abi.num_threads = pool.numThreads();
    run.abi.has_tiles = model->hasTiles;
    result = entry.fn(&run.abi, inputs.data());
    if (run.hasPool)
      pool.endRun();
  }
  if (attnrt_status status = checkCall(run, result))
    return status;
  GpuLaunches::Target target = targetOf(run);
  int code = gpu->launches.finish(target);
  if (code)
    return failRun(run, code, target.call);
  return checkCall(run, result); // it may have stopped in between
}

// The device memory of a tensor that the caller frees.
namespace {
struct DeviceTensor {
  DLManagedTensor tensor;
  attnrt_model *model; ///< which owns `gpu`
  const GpuModel *gpu;
  int64_t shape[kMaxRank], strides[kMaxRank];
};
} // namespace

static void freeDeviceTensor(DLManagedTensor *self) {
  auto *tensor = static_cast<DeviceTensor *>(self->manager_ctx);
  if (tensor->gpu->isOurs()) {
    GpuScope scope(*tensor->gpu);
    tensor->gpu->driver->cuMemFree_v2(reinterpret_cast<DeviceAddress>(tensor->tensor.dl_tensor.data));
  }
  attnrt_model_release(tensor->model);
  destroy(tensor);
}

static attnrt_status createOnDevice(attnrt_model *model, const GpuModel &gpu, const attnrt_tensor_info &declared,
                                    const OutputSlot &slot, DLManagedTensor **result) {
  DeviceTensor *tensor = make<DeviceTensor>();
  if (!tensor)
    return failMemory(sizeof(DeviceTensor), "an output");
  DeviceAddress memory = 0;
  if (int code = gpu.driver->cuMemAlloc_v2(&memory, slot.bytes ? slot.bytes : 1)) {
    destroy(tensor);
    return failCuda(*gpu.driver, code, "cuMemAlloc", declared.name);
  }
  attnrt_model_retain(model);
  tensor->model = model;
  tensor->gpu = &gpu;
  int64_t stride = 1;
  for (int32_t dim = declared.rank - 1; dim >= 0; --dim) {
    tensor->shape[dim] = slot.shape[dim];
    tensor->strides[dim] = stride;
    stride = int64_t(uint64_t(stride) * uint64_t(slot.shape[dim]));
  }
  DLTensor &view = tensor->tensor.dl_tensor;
  view = {pointerTo(memory),
          {kDLCUDA, gpu.device},
          declared.rank,
          {uint8_t(declared.dtype >> 8), uint8_t(declared.dtype & 0xff), 1},
          tensor->shape,
          tensor->strides,
          0};
  tensor->tensor.manager_ctx = tensor;
  tensor->tensor.deleter = freeDeviceTensor;
  *result = &tensor->tensor;
  return ATTNRT_OK;
}

// Outputs to where the caller wants them, and the error word; waits for all.
attnrt_status attnrt_session::collect(Run &run) {
  const attnrt_entry &entry = *run.plan->entry;
  const CudaDriver &driver = *gpu->model.driver;
  attnrt_device_error &error = *gpu->errorRead;
  int code = driver.cuMemcpyDtoHAsync_v2(&error, gpu->error.address, sizeof(error), run.stream);
  for (int32_t i = 0; i < entry.num_outputs && !code; ++i) {
    OutputSlot &slot = outputs[uint64_t(i)];
    if (!slot.staged)
      continue;
    slot.staged = false;
    DeviceAddress from = gpu->outputs[uint64_t(i)].address;
    char *to = slot.view.data;
    bool toDevice = slot.view.onDevice;
    if (!slot.given->buffer) {
      toDevice = run.outputDevice == kDLCUDA;
      attnrt_status status =
          toDevice ? createOnDevice(model, gpu->model, entry.outputs[i], slot, &slot.tensor)
                   : attnrt_tensor_create(entry.outputs[i].dtype, entry.outputs[i].rank, slot.shape, &slot.tensor);
      if (status != ATTNRT_OK) {
        driver.cuStreamSynchronize(run.stream);
        return status;
      }
      to = static_cast<char *>(slot.tensor->dl_tensor.data);
    }
    if (!slot.bytes)
      continue;
    GpuTrace::Span span(gpu->launches.trace, "copy of an output");
    code = toDevice ? driver.cuMemcpyDtoDAsync_v2(reinterpret_cast<DeviceAddress>(to), from, slot.bytes, run.stream)
                    : driver.cuMemcpyDtoHAsync_v2(to, from, slot.bytes, run.stream);
  }
  int waited = driver.cuStreamSynchronize(run.stream);
  if (code || waited)
    return failRun(run, waited ? waited : code, waited ? "cuStreamSynchronize" : "cuMemcpyDtoH");
  gpu->launches.ended();
  if (!error.claims)
    return ATTNRT_OK;
  driver.cuMemsetD8Async(gpu->error.address, 0, sizeof(error), run.stream);
  driver.cuStreamSynchronize(run.stream);
  run.abi.error_message = int32_t(error.message);
  run.abi.error_index = error.index;
  run.abi.error_size = error.size;
  return checkCall(run, ATTNRT_RUN_STOPPED);
}

attnrt_status attnrt_session::runOnGpu(Run &run, const attnrt_run_options &options, const DLTensor *const *tensors) {
  const CudaDriver &driver = *gpu->model.driver;
  if (!gpu->model.isOurs())
    return failForked(model->file.name());
  if (options.output_device && options.output_device != kDLCPU && options.output_device != kDLCUDA)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_run_options: output_device is %d, neither the CPU (%d) nor CUDA (%d)",
                options.output_device, int(kDLCPU), int(kDLCUDA));
  run.outputDevice = options.output_device;
  run.stream = options.stream ? options.stream : gpu->stream;
  run.lastKernel = -1;
  run.abi.weights = static_cast<const uint8_t *>(pointerTo(gpu->model.weights));
  run.abi.workspace = provideDeviceWorkspace;
  run.abi.output = provideOutput;
  run.abi.parallel_for = parallelFor;
  run.abi.fail = reportFailure;
  run.device = {sizeof(attnrt_device),
                gpu->model.exactArch,
                gpu->model.processors,
                gpu->model.sharedBytes,
                pointerTo(gpu->error.address),
                launch,
                fetch,
                send,
                attn::rt::provideWorkspace,
                product,
                beginLoop,
                endLoop,
                mapTiles};
  run.abi.device = &run.device;
  GpuScope scope(gpu->model);
  if (scope.code)
    return failCuda(driver, scope.code, "cuCtxPushCurrent", "a run");
  if (options.stream) {
    void *context = nullptr;
    if (int code = driver.cuStreamGetCtx(options.stream, &context))
      return failCuda(driver, code, "cuStreamGetCtx", "the caller's stream");
    if (context != gpu->model.context)
      return fail(ATTNRT_INVALID_ARGUMENT,
                  "attnrt_run_options: stream belongs to another CUDA context than the primary one of device %d, on "
                  "which the session runs",
                  gpu->model.device);
    int capturing = 0;
    if (driver.cuStreamIsCapturing(options.stream, &capturing) == kCudaSuccess && capturing)
      return fail(ATTNRT_UNSUPPORTED, "the caller's stream is being captured; a run waits for its work");
  }
  if (attnrt_status status = model->beginRun())
    return status;
  AtExit end([&] { model->endRun(); });
  GpuTrace &trace = gpu->launches.trace;
  if (options.on_kernel)
    trace.begin(run.stream);
  AtExit quiet([&] { trace.cancel(); });
  attnrt_status status = stageGpuInputs(run, tensors);
  if (status == ATTNRT_OK)
    status = enqueue(run);
  if (status == ATTNRT_OK) {
    status = collect(run);
    if (status == ATTNRT_OK && trace.isOn())
      trace.end(options.on_kernel, options.kernel_context);
  }
  if (status == ATTNRT_OK)
    return status;
  // What was launched still uses the session's memory, and the next run is not told of an error of this one.
  driver.cuStreamSynchronize(run.stream);
  driver.cuMemsetD8Async(gpu->error.address, 0, sizeof(attnrt_device_error), run.stream);
  driver.cuStreamSynchronize(run.stream);
  return status;
}
