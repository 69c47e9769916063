// A stand-in for libcuda.so.1: the part of the driver API that the runtime uses,
// on the PTX interpreter. Work on a stream waits in a queue until somebody
// synchronises, so that a host which reads a result too early reads garbage.
//
// ATTN_FAKE_CUDA (or attnFakeCudaConfigure) holds `name=value` pairs, separated by commas:
//   init=N        cuInit returns N            devices=N    number of devices
//   version=N     of the driver (12080)       cc=N         compute capability (80)
//   memory=N      bytes of the device         launch=N     the Nth launch fails (sticky)
//   capture=N     cuStreamBeginCapture returns N
//   instantiate=N cuGraphInstantiateWithFlags returns N
//   conditional=N cuGraphConditionalHandleCreate returns N
//   image=N       the first module that is given (since attnFakeCudaImages) fails with N and a log
//   setter=1      no module that sets conditions of graphs loads
//   processors=N  multiprocessors (108, 132 of cc=90)
//   shared=N     bytes of shared memory a block may have
//   resident=N    blocks that run at once (as many as processors)
//   seed=N        of the scheduler            lazy=0|1     asynchronous copies (1)
//   log=1         prints every launch to stderr
//   count=1       prints at the process' end how often it waited for a stream, launched a graph and copied to
//                 memory of the host that is not page-locked
//   cublaslt=1    libcublasLt is there, too; its own settings are in FakeCublasLt.cpp

#include "test/gpu/FakeCuda.h"
#include "test/gpu/FakeDriver.h"

#include <cstdio>
#include <cstdlib>

using namespace fake;
using namespace ptx;

Driver &fake::driver() {
  static Driver *only = new Driver();
  if (!only->configured) {
    only->configure(getenv("ATTN_FAKE_CUDA"));
    if (only->setting("count", 0))
      atexit([] {
        fprintf(stderr, "fake cuda: waited %lld times, launched %lld graphs, copied to pageable memory %lld times\n",
                driver().synchronizations, driver().graphs, driver().pageableCopies);
      });
  }
  return *only;
}

Stream &fake::streamOf(void *handle) {
  return reinterpret_cast<uintptr_t>(handle) <= 2 ? device().defaultStream : *static_cast<Stream *>(handle);
}

namespace {

/// Multiprocessors: of an A100 or an H200 unless told otherwise.
int processors() {
  Driver &d = driver();
  return int(d.setting("processors", d.setting("cc", 80) >= 90 ? 132 : 108));
}

/// Bytes of shared memory that one block may have.
int sharedLimit() {
  Driver &d = driver();
  return int(d.setting("shared", d.setting("cc", 80) >= 90 ? 227 << 10 : 163 << 10));
}

Result launch(const Kernel &kernel, Dim3 grid, Dim3 block, uint32_t shared, std::vector<uint8_t> parameters,
              bool isCooperative) {
  Driver &d = driver();
  Launch launch{kernel, device().memory, grid, block, std::move(parameters), shared, {}, 0};
  launch.options.cooperative = isCooperative;
  launch.options.seed = uint64_t(d.setting("seed", 1));
  launch.options.lazy = d.setting("lazy", 1);
  if (d.conditions)
    launch.options.setConditional = [&](uint64_t handle, uint32_t value) {
      auto found = d.conditions->find(handle);
      if (found != d.conditions->end())
        found->second = value;
      return found != d.conditions->end();
    };
  if (++d.launches == d.watchedLaunch) {
    d.watchedLaunch = 0; // what it was asked for may be gone by the next one of that number
    d.onLaunch(d.launchContext);
  }
  if (d.launches == d.setting("launch", 0)) {
    fprintf(stderr, "fake cuda: launch %lld of '%s' fails as asked\n", d.launches, kernel.name.c_str());
    return IllegalAddress;
  }
  try {
    run(launch);
  } catch (const Error &error) {
    fprintf(stderr, "fake cuda: %s\n", error.what());
    return std::string(error.what()).find("out of bounds") != std::string::npos ? IllegalAddress : LaunchFailed;
  }
  d.clock += 1e-3 * double(launch.executed);
  if (d.setting("log", 0))
    fprintf(stderr, "fake cuda: %s grid %u %u %u block %u %u %u: %llu\n", kernel.name.c_str(), grid.x, grid.y, grid.z,
            block.x, block.y, block.z, static_cast<unsigned long long>(launch.executed));
  return Success;
}

} // namespace

extern "C" __attribute__((visibility("default"))) void attnFakeCudaConfigure(const char *text) {
  LOCKED;
  driver().configure(text);
  driver().launches = 0;
}
/// Bytes of device memory in use, for leak tests.
extern "C" __attribute__((visibility("default"))) uint64_t attnFakeCudaUsed() {
  LOCKED;
  uint64_t used = 0;
  for (auto &[number, device] : driver().devices)
    used += device->memory.used();
  return used;
}

extern "C" __attribute__((visibility("default"))) long long attnFakeCudaSetting(const char *name, long long fallback) {
  LOCKED;
  return driver().setting(name, fallback);
}
extern "C" __attribute__((visibility("default"))) int attnFakeCudaEnqueue(void *stream,
                                                                          const std::function<int()> &work) {
  LOCKED;
  return enqueue(stream, work);
}
extern "C" __attribute__((visibility("default"))) void *attnFakeCudaMemory(uint64_t address, uint64_t bytes) {
  LOCKED;
  return device().memory.find(address, bytes);
}

/// The targets of all images given to cuModuleLoadDataEx, "sm_90a sm_80 ", since the last call.
extern "C" __attribute__((visibility("default"))) const char *attnFakeCudaImages() {
  LOCKED;
  static std::string taken;
  taken = std::move(driver().images);
  driver().images.clear();
  return taken.c_str();
}

/// Graphs launched so far.
extern "C" __attribute__((visibility("default"))) uint64_t attnFakeCudaGraphs() { return uint64_t(driver().graphs); }
/// How often somebody waited for a stream.
extern "C" __attribute__((visibility("default"))) uint64_t attnFakeCudaSynchronizations() {
  return uint64_t(driver().synchronizations);
}

/// Kernels that have begun since the last call of attnFakeCudaConfigure.
extern "C" __attribute__((visibility("default"))) uint64_t attnFakeCudaLaunches() {
  return uint64_t(driver().launches);
}
/// Calls `fn` when that many have.
extern "C" __attribute__((visibility("default"))) void attnFakeCudaAtLaunch(long long number, void (*fn)(void *),
                                                                            void *context) {
  LOCKED;
  driver().watchedLaunch = number;
  driver().onLaunch = fn;
  driver().launchContext = context;
}

FAKE cuInit(unsigned) {
  LOCKED;
  Result result = Result(driver().setting("init", 0));
  driver().initialized = result == Success;
  return result;
}
FAKE cuDriverGetVersion(int *version) {
  *version = int(driver().setting("version", 12080));
  return Success;
}
FAKE cuDeviceGetCount(int *count) {
  *count = int(driver().setting("devices", 1));
  return driver().initialized ? Success : NotInitialized;
}
FAKE cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < driver().setting("devices", 1) ? Success : InvalidDevice;
}
FAKE cuDeviceGetName(char *name, int size, int) {
  snprintf(name, size_t(size), "PTX interpreter");
  return Success;
}
FAKE cuDeviceGetAttribute(int *value, int attribute, int) {
  int cc = int(driver().setting("cc", 80));
  switch (attribute) {
  case 75:
    *value = cc / 10;
    return Success; // COMPUTE_CAPABILITY_MAJOR
  case 76:
    *value = cc % 10;
    return Success; // COMPUTE_CAPABILITY_MINOR
  case 16:
    *value = processors();
    return Success; // MULTIPROCESSOR_COUNT
  case 97:
    *value = sharedLimit();
    return Success; // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
  }
  return InvalidValue;
}
FAKE cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  LOCKED;
  Device &d = device();
  if (d.sticky)
    return d.sticky;
  if (bytes == 0)
    return InvalidValue;
  auto limit = uint64_t(driver().setting("memory", 1ll << 32));
  if (bytes > limit - std::min(d.memory.used(), limit))
    return OutOfMemory;
  *address = d.memory.allocate(bytes);
  return Success;
}
FAKE cuMemFree_v2(uint64_t address) {
  LOCKED;
  if (Result result = device().drainAll())
    return result;
  return device().memory.free(address) ? Success : InvalidValue;
}
FAKE cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  LOCKED;
  if (Result sticky = device().sticky)
    return sticky;
  *memory = bytes ? malloc(bytes) : nullptr;
  if (!*memory)
    return bytes ? OutOfMemory : InvalidValue;
  driver().pageLocked[static_cast<uint8_t *>(*memory)] = bytes;
  return Success;
}
FAKE cuMemFreeHost(void *memory) {
  LOCKED;
  if (!driver().pageLocked.erase(static_cast<uint8_t *>(memory)))
    return InvalidValue;
  Result result = device().drainAll();
  free(memory);
  return result;
}
FAKE cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  LOCKED;
  // Pageable memory is read before the call returns.
  auto *begin = static_cast<const uint8_t *>(from);
  if (streamOf(stream).capture)
    return CaptureUnsupported;
  auto data = std::make_shared<std::vector<uint8_t>>(begin, begin + bytes);
  return enqueue(stream, [=] {
    uint8_t *memory = device().memory.find(to, bytes);
    if (!memory)
      return Result(IllegalAddress);
    memcpy(memory, data->data(), bytes);
    return Result(Success);
  });
}
FAKE cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  LOCKED;
  if (streamOf(stream).capture)
    return CaptureUnsupported;
  Result result = enqueue(stream, [=] {
    uint8_t *memory = device().memory.find(from, bytes);
    if (!memory)
      return Result(IllegalAddress);
    memcpy(to, memory, bytes);
    return Result(Success);
  });
  if (driver().isPageLocked(to, bytes))
    return result;
  // The call returns when the copy is done.
  ++driver().pageableCopies;
  return result ? result : device().drain(streamOf(stream));
}
FAKE cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  LOCKED;
  return enqueue(stream, [=] {
    uint8_t *source = device().memory.find(from, bytes);
    uint8_t *target = source ? device().memory.find(to, bytes) : nullptr;
    if (!target || !(source = device().memory.find(from, bytes)))
      return Result(IllegalAddress);
    memmove(target, source, bytes);
    return Result(Success);
  });
}
FAKE cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream) {
  LOCKED;
  return enqueue(stream, [=] {
    uint8_t *memory = device().memory.find(to, bytes);
    if (!memory)
      return Result(IllegalAddress);
    memset(memory, value, bytes);
    return Result(Success);
  });
}

FAKE cuModuleLoadDataEx(void **handle, const void *image, unsigned count, int *options, void **values) {
  LOCKED;
  Driver &d = driver();
  Device &on = device();
  if (on.sticky)
    return on.sticky;
  constexpr int kErrorLog = 5, kErrorLogSize = 6;
  char *log = nullptr;
  size_t room = 0;
  for (unsigned n = 0; n < count; ++n)
    if (options[n] == kErrorLog)
      log = static_cast<char *>(values[n]);
    else if (options[n] == kErrorLogSize)
      room = reinterpret_cast<size_t>(values[n]);
  if (long long code = d.setting("image", 0); code && d.images.empty()) {
    if (log)
      snprintf(log, room, "ptxas fatal: refused as asked");
    d.images = "refused ";
    return Result(code);
  }
  const char *text = static_cast<const char *>(image);
  if (memcmp(text, "\177ELF", 4) == 0)
    return NoBinaryForGpu; // machine code is not interpreted
  auto loaded = std::make_unique<LoadedModule>();
  try {
    loaded->module = parse(text, [&](const std::vector<uint8_t> &bytes, uint32_t) {
      uint64_t address = on.memory.allocate(bytes.size());
      memcpy(on.memory.find(address, bytes.size()), bytes.data(), bytes.size());
      loaded->variables.push_back(address);
      return address;
    });
  } catch (const Error &error) {
    fprintf(stderr, "fake cuda: %s\n", error.what());
    return InvalidPtx;
  }
  if (loaded->module.setsConditional && d.setting("setter", 0))
    return InvalidPtx;
  if (!loaded->module.setsConditional)
    d.images += loaded->module.target + " ";
  int arch = atoi(loaded->module.target.c_str() + 3), cc = int(d.setting("cc", 80));
  bool exact = loaded->module.target.back() == 'a';
  if (exact ? arch != cc : arch > cc)
    return NoBinaryForGpu;
  for (auto &[name, kernel] : loaded->module.kernels)
    loaded->functions[name] = {&kernel, &on};
  *handle = loaded.release();
  return Success;
}
FAKE cuModuleUnload(void *handle) {
  LOCKED;
  device().drainAll();
  auto *module = static_cast<LoadedModule *>(handle);
  for (uint64_t address : module->variables)
    device().memory.free(address);
  delete module;
  return Success;
}
FAKE cuModuleGetFunction(void **function, void *handle, const char *name) {
  LOCKED;
  auto &functions = static_cast<LoadedModule *>(handle)->functions;
  auto found = functions.find(name);
  if (found == functions.end())
    return NotFound;
  *function = &found->second;
  return Success;
}
FAKE cuFuncGetAttribute(int *value, int attribute, void *handle) {
  LOCKED;
  constexpr int kSharedBytes = 1;
  *value = int(static_cast<Function *>(handle)->kernel->sharedBytes);
  return attribute == kSharedBytes ? Success : InvalidValue;
}
FAKE cuFuncSetAttribute(void *handle, int attribute, int value) {
  LOCKED;
  constexpr int kMaxDynamicShared = 8;
  auto &function = *static_cast<Function *>(handle);
  if (attribute != kMaxDynamicShared || value < 0 || value + int(function.kernel->sharedBytes) > sharedLimit())
    return InvalidValue;
  function.maxShared = uint32_t(value) + function.kernel->sharedBytes;
  return Success;
}

FAKE cuFuncGetParamInfo(void *handle, size_t number, size_t *offset, size_t *size) {
  LOCKED;
  const std::vector<Parameter> &parameters = static_cast<Function *>(handle)->kernel->parameters;
  if (number >= parameters.size())
    return InvalidValue;
  *offset = parameters[number].offset, *size = parameters[number].size;
  return Success;
}

FAKE cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *tensor, const uint64_t *sizes,
                            const uint64_t *pitches, const uint32_t *tile, const uint32_t *steps, int interleave,
                            int swizzle, int, int fill) {
  TileMapRequest request = {type,    rank, reinterpret_cast<uint64_t>(tensor), sizes, pitches, tile, steps, interleave,
                            swizzle, fill};
  std::string problem = encodeTileMap(request, map);
  if (problem.empty())
    return Success;
  fprintf(stderr, "fake cuda: cuTensorMapEncodeTiled: %s\n", problem.c_str());
  return InvalidValue;
}

Result fake::prepare(const LaunchRequest &request, bool isCooperative, Work &work) {
  auto [function, grid, block, shared, parameters, extra] = request;
  const Kernel &kernel = *function->kernel;
  if (function->device != &device())
    return InvalidHandle;
  constexpr unsigned kMostX = 0x7fffffff, kMostYZ = 65535, kMostThreads = 1024, kMostThreadsZ = 64;
  uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (!grid.x || !grid.y || !grid.z || !threads || grid.x > kMostX || grid.y > kMostYZ || grid.z > kMostYZ ||
      threads > kMostThreads || block.z > kMostThreadsZ || shared + kernel.sharedBytes > function->maxShared)
    return InvalidValue;
  // Without a bound ptxas may give each thread 255 registers of the 65536 that there are.
  constexpr unsigned kMostWithoutBound = 256;
  if (threads > kMostWithoutBound && !kernel.registerLimit())
    return LaunchOutOfResources;
  // A block of the largest size may be all that a multiprocessor has room for.
  long long room = driver().setting("resident", processors());
  if (isCooperative && uint64_t(grid.x) * grid.y * grid.z > uint64_t(room))
    return CooperativeLaunchTooLarge;
  std::vector<uint8_t> bytes(kernel.parameterBytes);
  if (parameters) {
    for (size_t i = 0; i < kernel.parameters.size(); ++i)
      memcpy(&bytes[kernel.parameters[i].offset], parameters[i], kernel.parameters[i].size);
  } else if (extra) {
    // The device keeps parameters from 528 on: what is aligned to more than 16 bytes is elsewhere than in the buffer.
    constexpr uint32_t kAligned = 16;
    for (const Parameter &each : kernel.parameters)
      if (each.alignment > kAligned)
        return LaunchOutOfResources;
    const void *data = nullptr;
    size_t size = 0;
    for (; *extra; extra += 2) {
      if (*extra == reinterpret_cast<void *>(1))
        data = extra[1];
      else if (*extra == reinterpret_cast<void *>(2))
        size = *static_cast<size_t *>(extra[1]);
      else
        return InvalidValue;
    }
    if (size != bytes.size())
      return InvalidValue;
    if (size)
      memcpy(bytes.data(), data, size);
  } else if (!bytes.empty()) {
    return InvalidValue;
  }
  work = [=, &kernel, grid = grid, block = block, shared = shared] {
    return launch(kernel, grid, block, shared, bytes, isCooperative);
  };
  return Success;
}

static Result enqueueLaunch(const LaunchRequest &request, void *stream, bool isCooperative) {
  Work work;
  Result result = prepare(request, isCooperative, work);
  return result ? result : enqueue(stream, std::move(work));
}

FAKE cuLaunchKernel(void *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                    unsigned shared, void *stream, void **parameters, void **extra) {
  LOCKED;
  return enqueueLaunch({static_cast<Function *>(handle), {gx, gy, gz}, {bx, by, bz}, shared, parameters, extra}, stream,
                       /*isCooperative=*/false);
}

/// CUlaunchAttribute and CUlaunchConfig.
FAKE cuLaunchKernelEx(const attn::rt::CudaLaunchConfig *config, void *handle, void **parameters, void **extra) {
  LOCKED;
  constexpr int kCooperative = 2;
  int isCooperative = 0;
  for (unsigned n = 0; n < config->numAttributes; ++n) {
    if (config->attributes[n].number != kCooperative)
      return InvalidValue;
    isCooperative = config->attributes[n].value;
  }
  return enqueueLaunch(
      {static_cast<Function *>(handle), dim3(config->grid), dim3(config->block), config->shared, parameters, extra},
      config->stream, isCooperative);
}
