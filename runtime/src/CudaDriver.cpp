#include "CudaDriver.h"

#include "Fork.h"
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

using namespace attn::rt;

namespace {
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
CudaDriver table;
bool isOpen = false;
pid_t openedIn = 0;
ForkHook hook([](void *) { pthread_mutex_init(&lock, nullptr); }, nullptr);

// PTX 8.0, the oldest that the compiler writes, came with CUDA 12.0.
constexpr int kOldestVersion = 12000;
constexpr int kOldestWithLoops = 12040, kOldestWithParamInfo = 12040;

struct Name {
  const char *name;
  void **place;
};

#define ATTNRT_CUDA(name) {#name, reinterpret_cast<void **>(&table.name)}
const Name names[] = {ATTNRT_CUDA(cuInit),
                      ATTNRT_CUDA(cuDriverGetVersion),
                      ATTNRT_CUDA(cuDeviceGetCount),
                      ATTNRT_CUDA(cuDeviceGet),
                      ATTNRT_CUDA(cuDeviceGetName),
                      ATTNRT_CUDA(cuDeviceGetAttribute),
                      ATTNRT_CUDA(cuDevicePrimaryCtxRetain),
                      ATTNRT_CUDA(cuDevicePrimaryCtxRelease_v2),
                      ATTNRT_CUDA(cuCtxPushCurrent_v2),
                      ATTNRT_CUDA(cuCtxPopCurrent_v2),
                      ATTNRT_CUDA(cuMemAlloc_v2),
                      ATTNRT_CUDA(cuMemFree_v2),
                      ATTNRT_CUDA(cuMemHostAlloc),
                      ATTNRT_CUDA(cuMemFreeHost),
                      ATTNRT_CUDA(cuMemcpyHtoDAsync_v2),
                      ATTNRT_CUDA(cuMemcpyDtoHAsync_v2),
                      ATTNRT_CUDA(cuMemcpyDtoDAsync_v2),
                      ATTNRT_CUDA(cuMemsetD8Async),
                      ATTNRT_CUDA(cuModuleLoadDataEx),
                      ATTNRT_CUDA(cuModuleUnload),
                      ATTNRT_CUDA(cuModuleGetFunction),
                      ATTNRT_CUDA(cuFuncGetAttribute),
                      ATTNRT_CUDA(cuFuncSetAttribute),
                      ATTNRT_CUDA(cuLaunchKernel),
                      ATTNRT_CUDA(cuLaunchKernelEx),
                      ATTNRT_CUDA(cuStreamCreate),
                      ATTNRT_CUDA(cuStreamDestroy_v2),
                      ATTNRT_CUDA(cuStreamSynchronize),
                      ATTNRT_CUDA(cuStreamGetCtx),
                      ATTNRT_CUDA(cuStreamIsCapturing),
                      ATTNRT_CUDA(cuStreamBeginCapture_v2),
                      ATTNRT_CUDA(cuStreamEndCapture),
                      ATTNRT_CUDA(cuGraphInstantiateWithFlags),
                      ATTNRT_CUDA(cuGraphLaunch),
                      ATTNRT_CUDA(cuGraphDestroy),
                      ATTNRT_CUDA(cuGraphExecDestroy),
                      ATTNRT_CUDA(cuEventCreate),
                      ATTNRT_CUDA(cuEventRecord),
                      ATTNRT_CUDA(cuEventSynchronize),
                      ATTNRT_CUDA(cuEventElapsedTime),
                      ATTNRT_CUDA(cuEventDestroy_v2),
                      ATTNRT_CUDA(cuTensorMapEncodeTiled),
                      ATTNRT_CUDA(cuGetErrorName),
                      ATTNRT_CUDA(cuGetErrorString)};
const Name ofLoops[] = {ATTNRT_CUDA(cuGraphCreate),
                        ATTNRT_CUDA(cuGraphAddKernelNode_v2),
                        ATTNRT_CUDA(cuGraphKernelNodeSetAttribute),
                        ATTNRT_CUDA(cuGraphAddChildGraphNode),
                        ATTNRT_CUDA(cuGraphConditionalHandleCreate),
                        ATTNRT_CUDA(cuGraphAddNode)};
#undef ATTNRT_CUDA

attnrt_status load() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(ATTNRT_DEVICE, "no NVIDIA driver: %s", dlerror());
  for (const Name &name : names) {
    *name.place = dlsym(library, name.name);
    if (!*name.place) {
      dlclose(library);
      return fail(ATTNRT_DEVICE, "the NVIDIA driver is too old: it has no %s; CUDA 12.0 or newer is needed", name.name);
    }
  }
  int version = 0, count = 0;
  if (int code = table.cuInit(0)) {
    attnrt_status status = failCuda(table, code, "cuInit", "the NVIDIA driver cannot be used");
    dlclose(library);
    return status;
  }
  if (int code = table.cuDriverGetVersion(&version))
    return failCuda(table, code, "cuDriverGetVersion", "the NVIDIA driver cannot be used");
  if (version < kOldestVersion)
    return fail(ATTNRT_DEVICE, "the NVIDIA driver is too old: it serves CUDA %d.%d, needed is %d.%d", version / 1000,
                version % 1000 / 10, kOldestVersion / 1000, kOldestVersion % 1000 / 10);
  table.hasLoops = version >= kOldestWithLoops;
  for (const Name &name : ofLoops)
    table.hasLoops &= (*name.place = dlsym(library, name.name)) != nullptr;
  auto &paramInfo = reinterpret_cast<void *&>(table.cuFuncGetParamInfo);
  paramInfo = version >= kOldestWithParamInfo ? dlsym(library, "cuFuncGetParamInfo") : nullptr;
  if (int code = table.cuDeviceGetCount(&count))
    return failCuda(table, code, "cuDeviceGetCount", "the NVIDIA driver cannot be used");
  if (count < 1)
    return fail(ATTNRT_DEVICE, "the NVIDIA driver finds no GPU");
  return ATTNRT_OK;
}
} // namespace

attnrt_status attn::rt::openCudaDriver(const CudaDriver *&driver) {
  pthread_mutex_lock(&lock);
  attnrt_status status = !isOpen ? load() : openedIn == getpid() ? ATTNRT_OK : failForked("the NVIDIA driver");
  if (!isOpen && status == ATTNRT_OK) {
    isOpen = true;
    openedIn = getpid();
  }
  pthread_mutex_unlock(&lock);
  driver = &table;
  return status;
}

attnrt_status attn::rt::failForked(const char *what) {
  return fail(ATTNRT_DEVICE,
              "%s: the GPU was opened before fork(), and CUDA does not work in the child: fork before a session of a "
              "library with GPU code is made, or start the process anew (exec, spawn)",
              what);
}

attnrt_status attn::rt::failCuda(const CudaDriver &driver, int code, const char *call, const char *what,
                                 const char *details) {
  const char *name = nullptr, *text = nullptr;
  if (driver.cuGetErrorName(code, &name) || !name)
    name = "unknown error";
  if (driver.cuGetErrorString(code, &text) || !text)
    text = "no description";
  return fail(code == kCudaOutOfMemory ? ATTNRT_OUT_OF_MEMORY : ATTNRT_DEVICE, "%s: %s: %s (%d: %s)%s%s", what, call,
              name, code, text, *details ? ": " : "", details);
}
