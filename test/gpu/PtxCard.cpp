#include "test/gpu/PtxCard.h"
#include "test/gpu/interpreter/Machine.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace ptx;

namespace {

/// The driver's functions, called by name: cuda.h is not here.
class Driver {
public:
  Driver() : library(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (!library)
      throw Error(std::string("no driver: ") + dlerror());
    int device = 0, major = 0, minor = 0;
    call("cuInit", 0u);
    call("cuDeviceGet", &device, 0);
    call("cuDeviceGetAttribute", &major, 75, device);
    call("cuDeviceGetAttribute", &minor, 76, device);
    if (major != 9 || minor != 0)
      throw Error("the device's compute capability is " + std::to_string(major) + "." + std::to_string(minor) +
                  "; these kernels are for 9.0 (sm_90a)");
    void *context = nullptr;
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxPushCurrent_v2", context);
  }

  template <typename... Arguments> void call(const char *name, Arguments... arguments) {
    auto *function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
    if (!function)
      throw Error(std::string("the driver has no ") + name);
    if (int status = function(arguments...)) {
      const char *text = nullptr;
      reinterpret_cast<int (*)(int, const char **)>(dlsym(library, "cuGetErrorName"))(status, &text);
      throw Error(std::string(name) + ": " + (text ? text : std::to_string(status)));
    }
  }

private:
  void *library;
};

} // namespace

bool ptx::test::onCard() { return std::getenv("PTX_ON_CARD"); }

std::vector<uint8_t> ptx::test::runOnCard(const std::string &text, const std::vector<uint8_t> &in, size_t outBytes,
                                          unsigned threads, unsigned blocks, const Tiles *tiles) {
  static Driver *driver = new Driver(); // at the process' end the driver may be gone before it
  using Address = uint64_t;
  void *const stream = nullptr;
  void *module = nullptr, *function = nullptr;
  Address given = 0, result = 0;
  std::vector<uint8_t> out(outBytes);
  driver->call("cuModuleLoadDataEx", &module, text.c_str(), 0u, static_cast<int *>(nullptr),
               static_cast<void **>(nullptr));
  driver->call("cuModuleGetFunction", &function, module, "k");
  driver->call("cuMemAlloc_v2", &given, in.size() + 1);
  driver->call("cuMemAlloc_v2", &result, outBytes);
  driver->call("cuMemcpyHtoDAsync_v2", given, static_cast<const void *>(in.data()), in.size(), stream);
  driver->call("cuMemsetD8Async", result, static_cast<unsigned char>(0), outBytes, stream);
  alignas(kTileMapAlignment) uint8_t map[kTileMapBytes];
  if (tiles)
    driver->call("cuTensorMapEncodeTiled", static_cast<void *>(map), tiles->type, unsigned(tiles->sizes.size()),
                 reinterpret_cast<void *>(given), tiles->sizes.data(), tiles->pitches.data(), tiles->tile.data(),
                 tiles->steps.data(), 0, tiles->swizzle, 0, 0);
  void *parameters[] = {&given, &result, map};
  driver->call("cuLaunchKernel", function, blocks, 1u, 1u, threads, 1u, 1u, 0u, stream,
               static_cast<void **>(parameters), static_cast<void **>(nullptr));
  driver->call("cuMemcpyDtoHAsync_v2", static_cast<void *>(out.data()), result, outBytes, stream);
  driver->call("cuStreamSynchronize", stream);
  driver->call("cuMemFree_v2", given);
  driver->call("cuMemFree_v2", result);
  driver->call("cuModuleUnload", module);
  return out;
}
