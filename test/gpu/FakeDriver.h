#ifndef TEST_GPU_FAKEDRIVER_H
#define TEST_GPU_FAKEDRIVER_H

// What the parts of the stand-in for libcuda share.

#include "runtime/src/CudaAbi.h"
#include "test/gpu/interpreter/Machine.h"

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace fake {

using Result = int;
enum : Result {
  Success = attn::rt::kCudaSuccess,
  InvalidValue = attn::rt::kCudaInvalidValue,
  OutOfMemory = attn::rt::kCudaOutOfMemory,
  NotInitialized = attn::rt::kCudaNotInitialized,
  NoDevice = attn::rt::kCudaNoDevice,
  InvalidDevice = attn::rt::kCudaInvalidDevice,
  InvalidContext = attn::rt::kCudaInvalidContext,
  InvalidImage = attn::rt::kCudaInvalidImage,
  NoBinaryForGpu = attn::rt::kCudaNoBinaryForGpu,
  InvalidPtx = attn::rt::kCudaInvalidPtx,
  InvalidHandle = attn::rt::kCudaInvalidHandle,
  NotFound = attn::rt::kCudaNotFound,
  IllegalAddress = attn::rt::kCudaIllegalAddress,
  LaunchOutOfResources = 701,
  LaunchFailed = attn::rt::kCudaLaunchFailed,
  CooperativeLaunchTooLarge = attn::rt::kCudaCooperativeLaunchTooLarge,
  NotSupported = attn::rt::kCudaNotSupported,
  CaptureUnsupported = attn::rt::kCudaCaptureUnsupported,
  CaptureInvalidated = attn::rt::kCudaCaptureInvalidated
};

using Work = std::function<Result()>;
struct Device;
struct Graph;
struct Stream {
  Device *device;
  std::vector<Work> queue = {};
  Graph *capture = nullptr;
};
struct Event {
  double time = 0;
};
struct Function {
  const ptx::Kernel *kernel;
  Device *device;                ///< that its module was loaded on
  uint32_t maxShared = 48 << 10; ///< bytes that a launch may have
};
struct LoadedModule {
  ptx::Module module;
  std::map<std::string, Function> functions;
  std::vector<uint64_t> variables;
};

/// One device with its primary context. Addresses say whose they are, as they do with a real driver.
struct Device {
  explicit Device(int number) : number(number) {}
  ptx::GlobalMemory newMemory() const { return ptx::GlobalMemory((uint64_t(0x7f) << 32) + (uint64_t(number) << 42)); }

  const int number;
  ptx::GlobalMemory memory = newMemory();
  std::vector<Stream *> streams;
  Stream defaultStream = {this};
  int references = 0;
  Result sticky = Success;

  Result drain(Stream &stream);
  Result drainAll();
};

/// Makes `device` current on this thread for the scope.
class Current {
public:
  explicit Current(Device *device);
  Current(const Current &) = delete;
  ~Current();
};

struct Driver {
  std::recursive_mutex lock;
  std::map<std::string, long long> settings;
  bool configured = false, initialized = false;
  std::map<int, std::unique_ptr<Device>> devices; ///< those that were used
  long long launches = 0, graphs = 0, synchronizations = 0, pageableCopies = 0;
  long long watchedLaunch = 0; ///< at which `onLaunch` is called, once
  void (*onLaunch)(void *) = nullptr;
  void *launchContext = nullptr;
  std::map<uint8_t *, size_t> pageLocked; ///< memory of the host, with its bytes
  /// cudaGraphSetConditional: the value of each handle; null outside of graphs.
  std::map<uint64_t, uint32_t> *conditions = nullptr;
  std::string images; ///< targets of the images that were to be loaded, one after the other
  double clock = 0;

  long long setting(const char *name, long long fallback) {
    auto found = settings.find(name);
    return found == settings.end() ? fallback : found->second;
  }
  bool isPageLocked(const void *memory, size_t bytes) const {
    auto *begin = static_cast<uint8_t *>(const_cast<void *>(memory));
    auto next = pageLocked.upper_bound(begin);
    return next != pageLocked.begin() && begin + bytes <= std::prev(next)->first + std::prev(next)->second;
  }
  void configure(const char *text) {
    settings.clear();
    configured = true;
    for (std::string rest = text ? text : ""; !rest.empty();) {
      size_t comma = rest.find(','), equals = rest.find('=');
      if (equals != std::string::npos)
        settings[rest.substr(0, equals)] = atoll(rest.c_str() + equals + 1);
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
  }
};

Driver &driver();
/// The device whose context is current on this thread; the first where none is.
Device &device();
Stream &streamOf(void *handle);
/// `work` behind what is on the stream, or into the graph that it captures.
Result enqueue(void *stream, Work work);

/// One launch of a kernel, as cuLaunchKernel or a node of a graph has it.
struct LaunchRequest {
  const Function *function;
  ptx::Dim3 grid, block;
  unsigned shared;
  void **parameters, **extra;
};
inline ptx::Dim3 dim3(const unsigned (&sizes)[3]) { return {sizes[0], sizes[1], sizes[2]}; }

/// What carries out a launch; its parameters are read now. Not Success: it cannot be.
Result prepare(const LaunchRequest &request, bool isCooperative, Work &work);

} // namespace fake

#define FAKE extern "C" __attribute__((visibility("default"))) fake::Result
#define LOCKED std::lock_guard<std::recursive_mutex> guard(fake::driver().lock)

#endif // TEST_GPU_FAKEDRIVER_H
