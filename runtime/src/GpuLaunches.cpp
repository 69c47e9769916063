#include "GpuLaunches.h"
#include "Gpu.h"

#include <cstring>

using namespace attn::rt;

void GpuLaunches::begin() {
  size = count = 0;
  isWhole = true;
  ++runs;
}

bool GpuLaunches::reserve(uint64_t bytes) {
  if (size + bytes <= capacity)
    return true;
  uint64_t wanted = capacity ? 2 * capacity : 16384;
  while (wanted < size + bytes)
    wanted *= 2;
  void *grown = wanted <= kMaxBytes ? realloc(kept, wanted) : nullptr;
  if (!grown)
    return false;
  kept = static_cast<uint8_t *>(grown), capacity = wanted;
  return true;
}

int GpuLaunches::launch(const Shape &shape, const void *parameters, void *stream) {
  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES; less than that any kernel may have.
  constexpr int kMaxDynamicShared = 8;
  constexpr uint32_t kAlways = 48 << 10;
  if (shape.kernel == kProductLaunch) {
    attnrt_product product;
    memcpy(&product, parameters, sizeof(product));
    return products.enqueue(product, stream);
  }
  void *function = model.functions[uint64_t(shape.kernel)];
  if (shape.shared > kAlways)
    if (int code = model.driver->cuFuncSetAttribute(function, kMaxDynamicShared, int(shape.shared)))
      return code;
  size_t bytes = shape.parameterBytes;
  const uint32_t *grid = shape.grid, *block = shape.block;
  // CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END
  void *extra[] = {reinterpret_cast<void *>(1), const_cast<void *>(parameters), reinterpret_cast<void *>(2), &bytes,
                   nullptr};
  if (shape.cooperative) {
    constexpr int kCooperative = 2; // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    CudaLaunchAttribute attribute = {kCooperative, {}, 1, {}};
    CudaLaunchConfig config = {
        {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shape.shared, stream, &attribute, 1};
    return model.driver->cuLaunchKernelEx(&config, function, nullptr, extra);
  }
  return model.driver->cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shape.shared,
                                      stream, nullptr, extra);
}

int GpuLaunches::add(const Shape &shape, const void *parameters, void *stream, int32_t &kernel) {
  uint64_t padded = (shape.parameterBytes + 7) / 8 * 8;
  if (!reserve(sizeof(Shape) + padded)) {
    if (int code = flush(stream, kernel))
      return code;
    kernel = shape.kernel;
    return launch(shape, parameters, stream);
  }
  uint8_t *to = kept + size;
  memcpy(to, &shape, sizeof(Shape));
  memset(to + sizeof(Shape), 0, padded);
  memcpy(to + sizeof(Shape), parameters, shape.parameterBytes);
  size += sizeof(Shape) + padded;
  ++count;
  last = shape.kernel;
  return kCudaSuccess;
}

int GpuLaunches::launchAll(void *stream, int32_t &kernel) {
  for (uint64_t at = 0; at < size;) {
    Shape shape;
    memcpy(&shape, kept + at, sizeof(Shape));
    kernel = shape.kernel;
    if (int code = launch(shape, kept + at + sizeof(Shape), stream))
      return code;
    at += sizeof(Shape) + (shape.parameterBytes + 7) / 8 * 8;
  }
  return kCudaSuccess;
}

int GpuLaunches::flush(void *stream, int32_t &kernel) {
  int code = launchAll(stream, kernel);
  size = count = 0;
  isWhole = false;
  return code;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

static uint64_t hashOf(const uint8_t *bytes, uint64_t size) {
  uint64_t hash = 0xcbf29ce484222325;
  for (uint64_t at = 0; at < size; at += 8) {
    uint64_t word;
    memcpy(&word, bytes + at, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

GpuLaunches::Known *GpuLaunches::find(uint64_t hash) {
  for (Known &each : known)
    if (each.bytes && each.hash == hash && each.size == size && memcmp(each.bytes, kept, size) == 0)
      return &each;
  return nullptr;
}

void GpuLaunches::forget(Known &each) {
  if (each.graph)
    model.driver->cuGraphExecDestroy(each.graph);
  free(each.bytes);
  each = {};
}

/// In place of what was used longest ago.
void GpuLaunches::remember(uint64_t hash) {
  Known *place = &known[0];
  for (Known &each : known)
    if (each.lastUse < place->lastUse)
      place = &each;
  forget(*place);
  uint8_t *bytes = static_cast<uint8_t *>(malloc(size));
  if (!bytes)
    return;
  memcpy(bytes, kept, size);
  *place = {bytes, size, hash, runs, nullptr};
}

/// The launches as a graph; null where the driver refuses any step, which is no error.
void *GpuLaunches::capture(void *stream) {
  constexpr int kThreadLocal = 1; // other threads may go on as they like
  const CudaDriver &driver = *model.driver;
  if (driver.cuStreamBeginCapture_v2(stream, kThreadLocal))
    return nullptr;
  int32_t kernel;
  int code = launchAll(stream, kernel);
  void *graph = nullptr, *executable = nullptr;
  int ended = driver.cuStreamEndCapture(stream, &graph);
  if (!code && !ended && graph && driver.cuGraphInstantiateWithFlags(&executable, graph, 0))
    executable = nullptr;
  if (graph)
    driver.cuGraphDestroy(graph);
  return executable;
}

int GpuLaunches::finish(void *stream, void *captureStream, int32_t &kernel, const char *&call) {
  call = "cuLaunchKernel";
  if (!isWhole || refuses || count < kFewest)
    return flush(stream, kernel);
  uint64_t hash = hashOf(kept, size);
  Known *before = find(hash);
  if (!before) {
    remember(hash);
    return flush(stream, kernel);
  }
  before->lastUse = runs;
  if (!before->graph) {
    before->graph = capture(captureStream);
    refuses = !before->graph;
    if (refuses)
      return flush(stream, kernel);
  }
  kernel = last; // which one fails is not told
  call = "cuGraphLaunch";
  return model.driver->cuGraphLaunch(before->graph, stream);
}

void GpuLaunches::release() {
  for (Known &each : known)
    if (each.bytes)
      forget(each);
  products.release();
}
