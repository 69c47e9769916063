#include "Gpu.h"

#include <cstdio>
#include <cstring>

using namespace attn::rt;

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

static constexpr int kMultiprocessorCount = 16, kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76,
                     kMaxSharedMemoryPerBlockOptin = 97;

static bool fits(const attnrt_gpu_image &image, uint32_t capability) {
  if (image.exact)
    return image.arch == capability;
  // Machine code serves its own generation, PTX every later one.
  if (image.kind == ATTNRT_IMAGE_CUBIN && image.arch / 10 != capability / 10)
    return false;
  return image.arch <= capability;
}

/// Whether the code has a form for any GPU of this capability or a later one.
static bool hasCommon(const attnrt_gpu_code &code, uint32_t capability) {
  for (uint32_t i = 0; i < code.num_images; ++i)
    if (!code.images[i].exact && fits(code.images[i], capability))
      return true;
  return false;
}

static void describe(const attnrt_gpu_code &code, Text &text) {
  for (uint32_t i = 0; i < code.num_images; ++i)
    text.add("%ssm_%u%s %s", i ? ", " : "", code.images[i].arch, code.images[i].exact ? "a" : "",
             code.images[i].kind == ATTNRT_IMAGE_PTX ? "PTX" : "cubin");
}

attnrt_status GpuModel::load(const attnrt_library &library, int32_t number, const char *name, const uint8_t *bytes,
                             uint64_t size) {
  code = library.gpu;
  if (attnrt_status status = openCudaDriver(driver))
    return status;
  int count = 0;
  if (int result = driver->cuDeviceGetCount(&count))
    return failCuda(*driver, result, "cuDeviceGetCount", name);
  if (number >= count)
    return fail(ATTNRT_INVALID_ARGUMENT,
                "attnrt_session_options: device is %d, but the NVIDIA driver finds %d GPU%s, numbered from 0; "
                "CUDA_VISIBLE_DEVICES says which of them it shows",
                number, count, count == 1 ? "" : "s");
  if (int result = driver->cuDeviceGet(&device, number))
    return failCuda(*driver, result, "cuDeviceGet", name);
  if (int result = driver->cuDevicePrimaryCtxRetain(&context, device))
    return failCuda(*driver, result, "cuDevicePrimaryCtxRetain", name);
  retained = true;
  GpuScope scope(*this);
  if (scope.code)
    return failCuda(*driver, scope.code, "cuCtxPushCurrent", name);
  if (attnrt_status status = loadImage(name))
    return status;
  if (attnrt_status status = findKernels(name))
    return status;
  if (size) {
    Text what;
    what.add("%s: %llu bytes for the weights", name, (unsigned long long)size);
    if (int result = driver->cuMemAlloc_v2(&weights, size))
      return failCuda(*driver, result, "cuMemAlloc", what.str());
    return update(bytes, 0, size);
  }
  return ATTNRT_OK;
}

attnrt_status GpuModel::loadImage(const char *name) {
  int major = 0, minor = 0;
  int result = driver->cuDeviceGetAttribute(&major, kComputeCapabilityMajor, device);
  if (!result)
    result = driver->cuDeviceGetAttribute(&minor, kComputeCapabilityMinor, device);
  if (!result)
    result = driver->cuDeviceGetAttribute(&processors, kMultiprocessorCount, device);
  if (!result)
    result = driver->cuDeviceGetAttribute(&sharedBytes, kMaxSharedMemoryPerBlockOptin, device);
  if (result)
    return failCuda(*driver, result, "cuDeviceGetAttribute", name);
  auto capability = uint32_t(major * 10 + minor);
  // Code for one architecture may have kernels with tensor maps, which an older driver cannot launch.
  bool takesExact = driver->cuFuncGetParamInfo || !hasCommon(*code, capability);
  const attnrt_gpu_image *tried = nullptr;
  char log[512] = "";
  for (uint32_t i = 0; i < code->num_images; ++i) {
    const attnrt_gpu_image &image = code->images[i];
    if (!fits(image, capability) || (image.exact && !takesExact))
      continue;
    tried = &image;
    // CU_JIT_ERROR_LOG_BUFFER and its size: what the driver's compiler says.
    int options[] = {5, 6};
    void *values[] = {log, reinterpret_cast<void *>(uintptr_t(sizeof(log) - 1))};
    memset(log, 0, sizeof(log));
    result = driver->cuModuleLoadDataEx(&module, image.data, 2, options, values);
    if (!result) {
      exactArch = image.exact ? int32_t(image.arch) : 0;
      return ATTNRT_OK;
    }
    module = nullptr;
    // Another form may do: the driver may be older than the machine code, say.
  }
  if (tried) {
    Text what;
    what.add("%s: its %s for sm_%u%s", name, tried->kind == ATTNRT_IMAGE_PTX ? "PTX" : "machine code", tried->arch,
             tried->exact ? "a" : "");
    return failCuda(*driver, result, "cuModuleLoadDataEx", what.str(), log);
  }
  Text forms;
  describe(*code, forms);
  char device_name[128] = "";
  driver->cuDeviceGetName(device_name, sizeof(device_name), device);
  return fail(ATTNRT_INCOMPATIBLE, "%s: has no code for this GPU ('%s', compute capability %d.%d), only %s", name,
              device_name, major, minor, forms.str());
}

attnrt_status GpuModel::findKernels(const char *name) {
  constexpr int kSharedBytes = 1; // CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: of its own arrays
  if (!functions.allocate(code->num_kernels) || !shared.allocate(code->num_kernels))
    return failMemory(code->num_kernels * sizeof(void *), "the kernels");
  for (uint32_t i = 0; i < code->num_kernels; ++i) {
    int own = 0;
    int result = driver->cuModuleGetFunction(&functions[i], module, code->kernels[i]);
    if (!result)
      result = driver->cuFuncGetAttribute(&own, kSharedBytes, functions[i]);
    if (result) {
      Text what;
      what.add("%s: kernel '%s'", name, code->kernels[i]);
      return failCuda(*driver, result, "cuModuleGetFunction", what.str());
    }
    shared[i] = {uint32_t(own), 0};
  }
  return ATTNRT_OK;
}

int GpuModel::allowShared(int32_t kernel, uint32_t bytes) {
  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES; less than that, its own
  // arrays included, any kernel may have.
  constexpr int kMaxDynamicShared = 8;
  constexpr uint32_t kAlways = 48 << 10;
  Shared &known = shared[uint64_t(kernel)];
  if (uint64_t(bytes) + known.own <= kAlways)
    return kCudaSuccess;
  pthread_mutex_lock(&sharedLock);
  int code = kCudaSuccess;
  if (bytes > known.allowed)
    code = driver->cuFuncSetAttribute(functions[uint64_t(kernel)], kMaxDynamicShared, int(bytes));
  if (!code && bytes > known.allowed)
    known.allowed = bytes;
  pthread_mutex_unlock(&sharedLock);
  return code;
}

attnrt_status GpuModel::update(const uint8_t *bytes, uint64_t offset, uint64_t size) {
  if (!isOurs())
    return failForked("the weights");
  GpuScope scope(*this);
  int result = scope.code;
  if (!result)
    result = driver->cuMemcpyHtoDAsync_v2(weights + offset, bytes + offset, size, nullptr);
  if (!result)
    result = driver->cuStreamSynchronize(nullptr);
  return result ? failCuda(*driver, result, "cuMemcpyHtoD", "the weights") : ATTNRT_OK;
}

GpuModel::~GpuModel() {
  if (!retained || !isOurs())
    return;
  {
    GpuScope scope(*this);
    if (weights)
      driver->cuMemFree_v2(weights);
    if (module)
      driver->cuModuleUnload(module);
  }
  driver->cuDevicePrimaryCtxRelease_v2(device);
}

//===----------------------------------------------------------------------===//
// The session
//===----------------------------------------------------------------------===//

attnrt_status GpuSession::initialize(int32_t numInputs, int32_t numOutputs) {
  if (!model.isOurs())
    return failForked("a session");
  if (!inputs.allocate(uint64_t(numInputs)) || !outputs.allocate(uint64_t(numOutputs)))
    return failMemory(sizeof(DeviceBuffer), "a session");
  GpuScope scope(model);
  constexpr unsigned kNonBlocking = 1;
  int result = scope.code ? scope.code : model.driver->cuStreamCreate(&stream, kNonBlocking);
  if (result)
    return failCuda(*model.driver, result, "cuStreamCreate", "a session");
  void *read = nullptr;
  result = model.driver->cuMemHostAlloc(&read, sizeof(attnrt_device_error), 0);
  if (result)
    return failCuda(*model.driver, result, "cuMemHostAlloc", "a session");
  errorRead = static_cast<attnrt_device_error *>(read);
  attnrt_status status = ATTNRT_OK;
  if (!atLeast(error, sizeof(attnrt_device_error), "a session", status))
    return status;
  result = model.driver->cuMemsetD8Async(error.address, 0, sizeof(attnrt_device_error), stream);
  if (!result)
    result = model.driver->cuStreamSynchronize(stream);
  return result ? failCuda(*model.driver, result, "cuMemsetD8Async", "a session") : ATTNRT_OK;
}

DeviceAddress GpuSession::atLeast(DeviceBuffer &buffer, uint64_t bytes, const char *what, attnrt_status &status) {
  // An empty tensor needs an address, too.
  bytes = bytes ? bytes : 1;
  if (bytes <= buffer.capacity)
    return buffer.address;
  if (buffer.address)
    model.driver->cuMemFree_v2(buffer.address);
  buffer = {};
  Text text;
  text.add("%llu bytes for %s", (unsigned long long)bytes, what);
  int result = model.driver->cuMemAlloc_v2(&buffer.address, bytes);
  if (result) {
    buffer.address = 0;
    status = failCuda(*model.driver, result, "cuMemAlloc", text.str());
    return 0;
  }
  buffer.capacity = bytes;
  return buffer.address;
}

GpuSession::~GpuSession() {
  if (!model.isOurs()) { // all of it is the parent's
    launches.abandon();
    return;
  }
  GpuScope scope(model);
  if (stream)
    model.driver->cuStreamSynchronize(stream);
  launches.release();
  auto release = [&](DeviceBuffer &buffer) {
    if (buffer.address)
      model.driver->cuMemFree_v2(buffer.address);
  };
  while (GpuPiece *piece = workspace) {
    workspace = piece->next;
    release(piece->buffer);
    destroy(piece);
  }
  for (uint64_t i = 0; inputs.data() && i < inputs.size(); ++i)
    release(inputs[i]);
  for (uint64_t i = 0; outputs.data() && i < outputs.size(); ++i)
    release(outputs[i]);
  release(error);
  if (errorRead)
    model.driver->cuMemFreeHost(errorRead);
  release(products);
  if (stream)
    model.driver->cuStreamDestroy_v2(stream);
}
