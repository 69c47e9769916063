#ifndef RUNTIME_SRC_GPU_H
#define RUNTIME_SRC_GPU_H

#include "CudaDriver.h"
#include "GpuLaunches.h"
#include "Memory.h"
#include "attnrt/abi.h"
#include "attnrt/attnrt.h"
#include <pthread.h>
#include <unistd.h>

struct attnrt_model;

namespace attn::rt {

struct Run;

/// What a model with GPU code holds on one device, shared by its sessions there:
/// the primary context, the code and the weights.
class GpuModel {
public:
  GpuModel() = default;
  GpuModel(const GpuModel &) = delete;
  ~GpuModel();

  /// Whether this is the process that opened the device: no child of fork() may touch it.
  bool isOurs() const { return process == getpid(); }

  attnrt_status load(const attnrt_library &library, int32_t number, const char *name, const uint8_t *weights,
                     uint64_t weightsSize);
  /// Copies [offset, offset + size) of the weights to the device again.
  attnrt_status update(const uint8_t *weights, uint64_t offset, uint64_t size);

  GpuModel *next = nullptr; ///< the model on another device
  const CudaDriver *driver = nullptr;
  int device = 0;
  void *context = nullptr;
  DeviceAddress weights = 0;
  Array<void *> functions; ///< one a kernel
  /// Lets kernel number `kernel` have `shared` bytes of dynamic shared memory, from
  /// now on and in each session: a launch may be under way with any size that was
  /// allowed before. A code of the driver.
  int allowShared(int32_t kernel, uint32_t shared);
  const attnrt_gpu_code *code = nullptr;
  int32_t exactArch = 0;                   ///< attnrt_device.exact_arch
  int32_t processors = 1, sharedBytes = 0; ///< as in attnrt_device

private:
  attnrt_status loadImage(const char *name);
  attnrt_status findKernels(const char *name);

  pid_t process = getpid();
  bool retained = false;
  void *module = nullptr;
  /// Bytes of shared memory that a kernel may have: its own arrays and what a launch asks for.
  struct Shared {
    uint32_t own, allowed;
  };
  Array<Shared> shared; ///< one per kernel
  pthread_mutex_t sharedLock = PTHREAD_MUTEX_INITIALIZER;
  friend struct GpuModelTest;
};

/// Makes a model's context current for the scope.
class GpuScope {
public:
  explicit GpuScope(const GpuModel &model) : driver(*model.driver) { code = driver.cuCtxPushCurrent_v2(model.context); }
  GpuScope(const GpuScope &) = delete;
  ~GpuScope() {
    void *popped;
    if (!code)
      driver.cuCtxPopCurrent_v2(&popped);
  }
  int code; ///< of the push

private:
  const CudaDriver &driver;
};

/// Device memory that grows and never shrinks.
struct DeviceBuffer {
  DeviceAddress address = 0;
  uint64_t capacity = 0;
};

/// Device memory of one request for workspace; kept for the next run's request
/// of that number.
struct GpuPiece {
  DeviceBuffer buffer;
  GpuPiece *next = nullptr;
};

/// What a session needs on the device.
class GpuSession {
public:
  explicit GpuSession(GpuModel &model) : model(model), launches(model) {}
  GpuSession(const GpuSession &) = delete;
  ~GpuSession();

  attnrt_status initialize(int32_t numInputs, int32_t numOutputs);
  /// At least `bytes` in `buffer`; 0: `status` is set.
  DeviceAddress atLeast(DeviceBuffer &buffer, uint64_t bytes, const char *what, attnrt_status &status);

  GpuModel &model;
  void *stream = nullptr; ///< the session's own
  Array<DeviceBuffer> inputs, outputs;
  GpuPiece *workspace = nullptr;
  DeviceBuffer error; ///< an attnrt_device_error, 0 between runs
  /// What a run found there. Page-locked: a copy to other memory of the host holds up every call that concerns the
  /// stream, from any thread, until it is over.
  attnrt_device_error *errorRead = nullptr;
  DeviceBuffer products; ///< workspace of cuBLASLt
  GpuLaunches launches;
};

} // namespace attn::rt

#endif // RUNTIME_SRC_GPU_H
