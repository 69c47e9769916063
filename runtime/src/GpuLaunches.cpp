#include "GpuLaunches.h"
#include "Gpu.h"
#include "Pool.h"

#include <cstring>

using namespace attn::rt;

GpuLaunches::GpuLaunches(GpuModel &model) : trace(*model.driver), model(model) {}

void GpuLaunches::begin() {
  size = count = numLoops = 0;
  isWhole = true;
  isInLoop = false;
  current = nullptr;
  begun = monotonicNow();
  ++runs;
}

void GpuLaunches::ended() {
  if (current)
    current->isBrief = monotonicNow() - begun < kBriefNs;
}

bool GpuLaunches::reserve(uint64_t bytes) {
  if (size + bytes <= capacity)
    return true;
  uint64_t wanted = capacity ? 2 * capacity : 16384;
  while (wanted < size + bytes)
    wanted *= 2;
  void *grown = wanted <= (isInLoop ? kMaxLoopBytes : kMaxBytes) ? realloc(kept, wanted) : nullptr;
  if (!grown)
    return false;
  kept = static_cast<uint8_t *>(grown), capacity = wanted;
  return true;
}

int LaunchParameters::find(const CudaDriver &driver, void *function) {
  if (size < kTensorMapBytes || !driver.cuFuncGetParamInfo)
    return kCudaSuccess;
  for (size_t at = 0; at < size; ++count) {
    size_t ignored, length;
    if (int code = driver.cuFuncGetParamInfo(function, count, &ignored, &length))
      return code;
    size_t alignment = length == kTensorMapBytes ? kTensorMapAlignment : length;
    at = (at + alignment - 1) / alignment * alignment;
    if (count == kMost || at + length > size)
      return kCudaInvalidValue;
    places[count] = const_cast<uint8_t *>(bytes + at);
    at += length;
  }
  return kCudaSuccess;
}

int GpuLaunches::launch(const Shape &shape, const void *parameters, void *stream) {
  if (shape.kernel == kProductLaunch) {
    attnrt_product product;
    memcpy(&product, parameters, sizeof(product));
    GpuTrace::Span span(trace, "product by cuBLASLt");
    return products.enqueue(product, stream);
  }
  void *function = model.functions[uint64_t(shape.kernel)];
  if (int code = model.allowShared(shape.kernel, shape.shared))
    return code;
  LaunchParameters given(parameters, shape.parameterBytes);
  if (int code = given.find(*model.driver, function))
    return code;
  const uint32_t *grid = shape.grid, *block = shape.block;
  GpuTrace::Span span(trace, model.code->kernels[shape.kernel]);
  if (shape.cooperative) {
    constexpr int kCooperative = 2; // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    CudaLaunchAttribute attribute = {kCooperative, {}, 1, {}};
    CudaLaunchConfig config = {
        {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shape.shared, stream, &attribute, 1};
    return model.driver->cuLaunchKernelEx(&config, function, given.each(), given.extra());
  }
  return model.driver->cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shape.shared,
                                      stream, given.each(), given.extra());
}

GpuLaunches::Shape GpuLaunches::shapeAt(uint64_t at) const {
  Shape shape;
  memcpy(&shape, kept + at, sizeof(Shape));
  return shape;
}

int GpuLaunches::add(const Shape &shape, const void *parameters, Target &target) {
  if (!reserve(bytesOf(shape))) {
    if (isInLoop) {
      target.call = "malloc";
      return kCudaOutOfMemory;
    }
    if (int code = flush(target))
      return code;
    target.kernel = shape.kernel;
    target.call = "cuLaunchKernel";
    return launch(shape, parameters, target.stream);
  }
  uint8_t *to = kept + size;
  memcpy(to, &shape, sizeof(Shape));
  memset(to + sizeof(Shape), 0, bytesOf(shape) - sizeof(Shape));
  memcpy(to + sizeof(Shape), parameters, shape.parameterBytes);
  size += bytesOf(shape);
  ++count;
  if (shape.kernel >= 0)
    last = shape.kernel;
  return kCudaSuccess;
}

int GpuLaunches::launchAll(Range range, void *stream, int32_t &kernel) {
  for (uint64_t at = range.begin; at < range.end;) {
    Shape shape = shapeAt(at);
    kernel = shape.kernel;
    if (int code = launch(shape, kept + at + sizeof(Shape), stream))
      return code;
    at += bytesOf(shape);
  }
  return kCudaSuccess;
}

/// Marks what has been launched, and waits for the mark before.
int GpuLaunches::pace(uint64_t group, Target &target) {
  constexpr unsigned kNoTiming = 2; // CU_EVENT_DISABLE_TIMING
  const CudaDriver &driver = *model.driver;
  void *&mark = marks[group % 2];
  target.call = "cuEventRecord";
  int code = mark ? kCudaSuccess : driver.cuEventCreate(&mark, kNoTiming);
  if (!code)
    code = driver.cuEventRecord(mark, target.stream);
  if (!code && group) {
    target.call = "cuEventSynchronize";
    code = driver.cuEventSynchronize(marks[(group + 1) % 2]);
  }
  return code;
}

/// As above, in groups where the run may stop: until it is to.
int GpuLaunches::launchAll(Range range, Target &target) {
  if (!target.mayStop) {
    target.call = "cuLaunchKernel";
    return launchAll(range, target.stream, target.kernel);
  }
  uint64_t group = 0;
  for (Range few = {range.begin, range.begin}; few.begin < range.end && !target.isToStop(target.run);
       few.begin = few.end) {
    for (uint64_t n = 0; n < kPace && few.end < range.end; ++n)
      few.end += bytesOf(shapeAt(few.end));
    target.call = "cuLaunchKernel";
    if (int code = launchAll(few, target.stream, target.kernel))
      return code;
    if (int code = pace(group++, target))
      return code;
  }
  return kCudaSuccess;
}

int GpuLaunches::flush(Target &target) {
  target.call = "cuLaunchKernel";
  if (isInLoop)
    return kCudaInvalidValue;
  int code = numLoops ? runLoops(target) : launchAll(all(), target);
  size = count = numLoops = 0;
  isWhole = false;
  return code;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

uint64_t attn::rt::hashOf(const uint8_t *bytes, uint64_t size) {
  uint64_t hash = 0xcbf29ce484222325;
  for (uint64_t at = 0; at < size; at += 8) {
    uint64_t word;
    memcpy(&word, bytes + at, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

GpuLaunches::Known *GpuLaunches::find(Range range, uint64_t hash) {
  uint64_t bytes = range.end - range.begin;
  for (Known &each : known)
    if (each.bytes && each.hash == hash && each.size == bytes && memcmp(each.bytes, kept + range.begin, bytes) == 0)
      return &each;
  return nullptr;
}

void GpuLaunches::forget(Known &each) {
  if (each.graph)
    model.driver->cuGraphExecDestroy(each.graph);
  if (each.source)
    model.driver->cuGraphDestroy(each.source);
  free(each.bytes);
  each = {};
}

/// In place of what was used longest ago; null where that is under way, or there is no memory.
GpuLaunches::Known *GpuLaunches::remember(Range range, uint64_t hash) {
  Known *place = &known[0];
  for (Known &each : known)
    if (each.lastUse < place->lastUse)
      place = &each;
  if (place->graph && place->lastUse == runs)
    return nullptr;
  forget(*place);
  uint64_t length = range.end - range.begin;
  uint8_t *bytes = static_cast<uint8_t *>(malloc(length));
  if (!bytes)
    return nullptr;
  memcpy(bytes, kept + range.begin, length);
  *place = {bytes, length, hash, runs, nullptr, nullptr, false};
  return place;
}

/// Launches as a graph that is no executable yet; null where the driver refuses, which is no error.
void *GpuLaunches::captureSource(Range range, void *stream) {
  constexpr int kThreadLocal = 1; // other threads may go on as they like
  const CudaDriver &driver = *model.driver;
  if (driver.cuStreamBeginCapture_v2(stream, kThreadLocal))
    return nullptr;
  int32_t kernel;
  int code = launchAll(range, stream, kernel);
  void *graph = nullptr;
  int ended = driver.cuStreamEndCapture(stream, &graph);
  if (graph && (code || ended)) {
    driver.cuGraphDestroy(graph);
    return nullptr;
  }
  return graph;
}

/// The same as an executable.
void *GpuLaunches::capture(Range range, void *stream) {
  void *graph = captureSource(range, stream), *executable = nullptr;
  if (!graph)
    return nullptr;
  if (model.driver->cuGraphInstantiateWithFlags(&executable, graph, 0))
    executable = nullptr;
  model.driver->cuGraphDestroy(graph);
  return executable;
}

int GpuLaunches::finish(Target &target) {
  if (!isWhole || numLoops || refuses || count < kFewest || trace.isOn())
    return flush(target);
  uint64_t hash = hashOf(kept, size);
  Known *before = find(all(), hash);
  current = before ? before : remember(all(), hash);
  if (current)
    current->lastUse = runs;
  if (!before || (target.mayStop && !before->isBrief))
    return flush(target);
  if (!before->graph) {
    before->graph = capture(all(), target.captureStream);
    refuses = !before->graph;
    if (refuses)
      return flush(target);
  }
  target.kernel = last; // which one fails is not told
  target.call = "cuGraphLaunch";
  return model.driver->cuGraphLaunch(before->graph, target.stream);
}

void GpuLaunches::release() {
  for (Known &each : known)
    if (each.bytes)
      forget(each);
  if (setterModule)
    model.driver->cuModuleUnload(setterModule);
  setterModule = setter = nullptr;
  for (void *&mark : marks) {
    if (mark)
      model.driver->cuEventDestroy_v2(mark);
    mark = nullptr;
  }
  products.release();
  trace.release();
}
