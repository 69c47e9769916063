// Times of runs on a GPU, by the events of its driver.
#ifndef TOOLS_ATTNBENCH_DEVICETIMER_H
#define TOOLS_ATTNBENCH_DEVICETIMER_H

#include <memory>
#include <string>

namespace attn::tools {

/// A stream for the runs of a library with GPU code, and two events around each.
/// The driver is the libcuda.so.1 that the runtime has loaded with the library.
class DeviceTimer {
public:
  /// For runs on GPU number `device`. Null, with `error` set, where the driver refuses.
  static std::unique_ptr<DeviceTimer> create(int device, std::string &error);
  ~DeviceTimer();
  DeviceTimer(const DeviceTimer &) = delete;

  /// The CUstream on which runs are to go.
  void *stream() const { return queue; }
  bool begin() { return record(first); }
  /// Waits for the run; the milliseconds between the events, or less than 0.
  double end();

private:
  DeviceTimer() = default;
  bool record(void *event);

  struct Driver;
  std::unique_ptr<Driver> driver;
  void *queue = nullptr, *first = nullptr, *last = nullptr;
  bool hasContext = false;
};

} // namespace attn::tools

#endif // TOOLS_ATTNBENCH_DEVICETIMER_H
