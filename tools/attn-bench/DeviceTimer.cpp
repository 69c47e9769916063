#include "tools/attn-bench/DeviceTimer.h"

#include <dlfcn.h>

namespace attn::tools {

struct DeviceTimer::Driver {
  void *library = nullptr;
  int (*cuDeviceGet)(int *, int);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuDevicePrimaryCtxRelease_v2)(int);
  int (*cuCtxPushCurrent_v2)(void *);
  int (*cuStreamCreate)(void **, unsigned);
  int (*cuStreamDestroy_v2)(void *);
  int (*cuEventCreate)(void **, unsigned);
  int (*cuEventRecord)(void *, void *);
  int (*cuEventSynchronize)(void *);
  int (*cuEventElapsedTime)(float *, void *, void *);
  int (*cuEventDestroy_v2)(void *);
  int device = 0;

  ~Driver() {
    if (library)
      dlclose(library);
  }

  template <typename Fn> bool find(const char *name, Fn &function) {
    function = reinterpret_cast<Fn>(dlsym(library, name));
    return function;
  }

  bool open() {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library && find("cuDeviceGet", cuDeviceGet) && find("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain) &&
           find("cuDevicePrimaryCtxRelease_v2", cuDevicePrimaryCtxRelease_v2) &&
           find("cuCtxPushCurrent_v2", cuCtxPushCurrent_v2) && find("cuStreamCreate", cuStreamCreate) &&
           find("cuStreamDestroy_v2", cuStreamDestroy_v2) && find("cuEventCreate", cuEventCreate) &&
           find("cuEventRecord", cuEventRecord) && find("cuEventSynchronize", cuEventSynchronize) &&
           find("cuEventElapsedTime", cuEventElapsedTime) && find("cuEventDestroy_v2", cuEventDestroy_v2);
  }
};

std::unique_ptr<DeviceTimer> DeviceTimer::create(int device, std::string &error) {
  constexpr unsigned kNonBlocking = 1;
  std::unique_ptr<DeviceTimer> timer(new DeviceTimer());
  timer->driver = std::make_unique<Driver>();
  Driver &driver = *timer->driver;
  if (!driver.open()) {
    error = "libcuda.so.1 has no events";
    return nullptr;
  }
  auto works = [&](int code, const char *call) {
    if (code)
      error = std::string(call) + " failed with " + std::to_string(code);
    return code == 0;
  };
  // The runtime uses the device's primary context.
  void *context = nullptr;
  if (!works(driver.cuDeviceGet(&driver.device, device), "cuDeviceGet") ||
      !works(driver.cuDevicePrimaryCtxRetain(&context, driver.device), "cuDevicePrimaryCtxRetain"))
    return nullptr;
  timer->hasContext = true;
  bool made = works(driver.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent") &&
              works(driver.cuStreamCreate(&timer->queue, kNonBlocking), "cuStreamCreate") &&
              works(driver.cuEventCreate(&timer->first, 0), "cuEventCreate") &&
              works(driver.cuEventCreate(&timer->last, 0), "cuEventCreate");
  // The context stays current: events are recorded between the runs.
  return made ? std::move(timer) : nullptr;
}

DeviceTimer::~DeviceTimer() {
  for (void *event : {first, last})
    if (event)
      driver->cuEventDestroy_v2(event);
  if (queue)
    driver->cuStreamDestroy_v2(queue);
  if (hasContext)
    driver->cuDevicePrimaryCtxRelease_v2(driver->device);
}

bool DeviceTimer::record(void *event) { return driver->cuEventRecord(event, queue) == 0; }

double DeviceTimer::end() {
  float milliseconds = 0;
  if (!record(last) || driver->cuEventSynchronize(last) || driver->cuEventElapsedTime(&milliseconds, first, last))
    return -1;
  return static_cast<double>(milliseconds);
}

} // namespace attn::tools
