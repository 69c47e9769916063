// Devices of the stand-in for libcuda and their primary contexts, a stack of which each thread has.

#include "test/gpu/FakeDriver.h"

using namespace fake;

static std::vector<Device *> &currentDevices() {
  static thread_local std::vector<Device *> stack;
  return stack;
}

fake::Current::Current(Device *device) { currentDevices().push_back(device); }
fake::Current::~Current() { currentDevices().pop_back(); }

static Device &numbered(int number) {
  auto &device = driver().devices[number];
  if (!device)
    device = std::make_unique<Device>(number);
  return *device;
}

Device &fake::device() { return currentDevices().empty() ? numbered(0) : *currentDevices().back(); }

Result fake::Device::drain(Stream &stream) {
  Current scope(this);
  std::vector<Work> queue = std::move(stream.queue);
  stream.queue.clear();
  for (Work &work : queue)
    if (!sticky)
      sticky = work();
  return sticky;
}

Result fake::Device::drainAll() {
  drain(defaultStream);
  for (Stream *stream : streams)
    drain(*stream);
  return sticky;
}

FAKE cuDevicePrimaryCtxRetain(void **context, int number) {
  LOCKED;
  if (!driver().initialized)
    return NotInitialized;
  if (number < 0 || number >= driver().setting("devices", 1))
    return InvalidDevice;
  ++numbered(number).references;
  *context = &numbered(number);
  return Success;
}
FAKE cuDevicePrimaryCtxRelease_v2(int number) {
  LOCKED;
  Device &device = numbered(number);
  if (device.references == 0)
    return InvalidContext;
  if (--device.references == 0) {
    // The context and what it holds are gone, a sticky error with them.
    device.sticky = Success;
    device.memory = device.newMemory();
  }
  return Success;
}
FAKE cuCtxPushCurrent_v2(void *context) {
  LOCKED;
  for (auto &[number, device] : driver().devices)
    if (device.get() == context && device->references) {
      currentDevices().push_back(device.get());
      return Success;
    }
  return InvalidContext;
}
FAKE cuCtxPopCurrent_v2(void **context) {
  if (currentDevices().empty())
    return InvalidContext;
  *context = currentDevices().back();
  currentDevices().pop_back();
  return Success;
}
FAKE cuCtxSynchronize() {
  LOCKED;
  return device().drainAll();
}
