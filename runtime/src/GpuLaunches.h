#ifndef RUNTIME_SRC_GPULAUNCHES_H
#define RUNTIME_SRC_GPULAUNCHES_H

#include "CudaDriver.h"
#include "GpuProducts.h"
#include "GpuTrace.h"
#include "Memory.h"

namespace attn::rt {

class GpuModel;

/// In place of a kernel's number: its parameters are those of a product by cuBLASLt.
constexpr int32_t kProductLaunch = -2;
/// The same: a loop begins; it ends, and its condition is at the address that is its parameter.
constexpr int32_t kLoopBegin = -3, kLoopEnd = -4;

/// Of a multiple of 8 bytes.
uint64_t hashOf(const uint8_t *bytes, uint64_t size);

/// The parameters of a launch as the driver takes them. Bytes that are laid out as PTX does are at their places on the
/// device as they are, but for tensor maps: these are aligned to 64 bytes where the device keeps parameters, which
/// begins at 528 on sm_90. Those of kernels that may have maps are given one by one.
class LaunchParameters {
public:
  LaunchParameters(const void *bytes, size_t size)
      : bytes(static_cast<const uint8_t *>(bytes)), size(size),
        // CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END
        packed{reinterpret_cast<void *>(1), const_cast<void *>(bytes), reinterpret_cast<void *>(2), &this->size,
               nullptr} {}
  LaunchParameters(const LaunchParameters &) = delete;

  /// Of a kernel of the library. A code of the driver.
  int find(const CudaDriver &driver, void *function);
  void **each() { return count ? places : nullptr; }
  void **extra() { return count ? nullptr : packed; }

private:
  static constexpr size_t kMost = 4352 / 4; ///< parameters: so many bytes there are for them, of 4 at least
  const uint8_t *bytes;
  size_t size, count = 0;
  void *packed[5], *places[kMost];
};

/// The launches of a session's run. They are kept until the entry is through or
/// reads from the device. A run whose launches are those of an earlier one, to
/// the last parameter, goes to the device as one CUDA graph: shapes, addresses
/// and all that the entry computes have been compared when the parameters have.
/// A run that may stop is a few launches ahead of the device, so that it can answer
/// soon; where one of the same launches was brief it goes as any other.
class GpuLaunches {
public:
  explicit GpuLaunches(GpuModel &model);
  GpuLaunches(const GpuLaunches &) = delete;
  ~GpuLaunches() { free(kept); }

  struct Shape {
    int32_t kernel;
    uint32_t grid[3], block[3], shared;
    uint32_t cooperative; ///< 1: all blocks are to run at once
    uint32_t parameterBytes;
  };

  /// Where launches go, and what is to be told of them.
  struct Target {
    void *stream;
    void *captureStream; ///< nothing else is captured there
    int32_t &kernel;     ///< the one that was launched last
    const char *call;    ///< the one that failed
    bool mayStop;        ///< the run can be cancelled or has a deadline
    bool (*isToStop)(void *run);
    void *run;
  };

  void begin();
  /// Frees the graphs, with the model's context current and nothing under way.
  void release();
  /// In a child of fork(): forgets the graphs, which the parent has.
  void abandon() { products.abandon(); }
  /// Keeps a launch, or puts it on the stream where there is no room. A code of the
  /// driver or a kCublasError.
  int add(const Shape &shape, const void *parameters, Target &target);
  /// What is added between the two is the body of a loop.
  int beginLoop(Target &target);
  int endLoop(DeviceAddress condition, Target &target);
  bool inLoop() const { return isInLoop; }
  /// All that is kept to the stream; the run gets no graph but for its loops.
  int flush(Target &target);
  /// The same at a run's end, by a graph if there is one. Where the run is to stop, some of it is not launched.
  int finish(Target &target);
  /// All of the run since `begin` is done.
  void ended();

  GpuProducts products;
  GpuTrace trace; ///< while it is on, there are no graphs

private:
  struct Known {
    uint8_t *bytes; ///< owned, as in `kept`; null: free
    uint64_t size, hash, lastUse;
    void *graph;  ///< instantiated; null: seen once
    void *source; ///< what it was made of, where that has conditions
    bool isBrief; ///< its last run took less than kBriefNs
  };
  /// A part of `kept`.
  struct Range {
    uint64_t begin, end;
  };
  static constexpr uint64_t kMaxBytes = 1 << 20, kMaxLoopBytes = 16 << 20;
  static constexpr int kMaxKnown = 16, kFewest = 2;
  /// A run or step that cannot be stopped takes less than that. Of one that can, the device has twice kPace launches
  /// before it at most.
  static constexpr int64_t kBriefNs = 20'000'000;
  static constexpr uint64_t kPace = 4;

  Range all() const { return {0, size}; }
  Shape shapeAt(uint64_t at) const;
  static uint64_t bytesOf(const Shape &shape) { return sizeof(Shape) + (shape.parameterBytes + 7) / 8 * 8; }
  int launchAll(Range range, void *stream, int32_t &kernel);
  int launchAll(Range range, Target &target);
  int pace(uint64_t group, Target &target);
  int launch(const Shape &shape, const void *parameters, void *stream);
  bool reserve(uint64_t bytes);
  void forget(Known &known);
  Known *find(Range range, uint64_t hash);
  Known *remember(Range range, uint64_t hash);
  void *captureSource(Range range, void *stream);
  void *capture(Range range, void *stream);

  // GpuLoops.cpp
  Range nextLoop(uint64_t at, DeviceAddress &condition) const;
  int runLoops(Target &target);
  int runSteps(Range body, DeviceAddress condition, Target &target);
  bool openSetter();
  bool fillBody(void *body, Range range, uint64_t handle, DeviceAddress condition);
  bool fill(void *graph, void *captureStream);
  void build(Known &known, void *captureStream);

  GpuModel &model;
  uint8_t *kept = nullptr; ///< Shape and parameters, one after the other, in multiples of 8 bytes
  uint64_t size = 0, capacity = 0, count = 0, runs = 0;
  int32_t last = -1;    ///< kernel of what is kept
  bool isWhole = true;  ///< nothing of the run is on the stream yet
  bool refuses = false; ///< the driver makes no graphs
  bool isInLoop = false;
  uint64_t numLoops = 0;     ///< in what is kept
  bool refusesLoops = false; ///< the driver makes no graphs of loops
  void *setterModule = nullptr, *setter = nullptr;
  Known known[kMaxKnown] = {};
  Known *current = nullptr; ///< what this run is, as a whole
  int64_t begun = 0;        ///< when it was, in nanoseconds
  void *marks[2] = {};      ///< events behind the last groups of kPace launches
};

} // namespace attn::rt

#endif // RUNTIME_SRC_GPULAUNCHES_H
