#ifndef RUNTIME_SRC_GPULAUNCHES_H
#define RUNTIME_SRC_GPULAUNCHES_H

#include "CudaDriver.h"
#include "GpuProducts.h"
#include "Memory.h"

namespace attn::rt {

class GpuModel;

/// In place of a kernel's number: its parameters are those of a product by cuBLASLt.
constexpr int32_t kProductLaunch = -2;

/// The launches of a session's run. They are kept until the entry is through or
/// reads from the device. A run whose launches are those of an earlier one, to
/// the last parameter, goes to the device as one CUDA graph: shapes, addresses
/// and all that the entry computes have been compared when the parameters have.
class GpuLaunches {
public:
  explicit GpuLaunches(GpuModel &model) : model(model) {}
  GpuLaunches(const GpuLaunches &) = delete;
  ~GpuLaunches() { free(kept); }

  struct Shape {
    int32_t kernel;
    uint32_t grid[3], block[3], shared;
    uint32_t cooperative; ///< 1: all blocks are to run at once
    uint32_t parameterBytes;
  };

  void begin();
  /// Frees the graphs, with the model's context current and nothing under way.
  void release();
  /// Keeps a launch, or puts it on `stream` where there is no room. A code of the
  /// driver or a kCublasError; `kernel` is the one that was launched last.
  int add(const Shape &shape, const void *parameters, void *stream, int32_t &kernel);
  /// All that is kept to `stream`, one by one; the run gets no graph.
  int flush(void *stream, int32_t &kernel);
  /// The same at a run's end, by a graph if there is one; `call` is what failed.
  /// Graphs are made on `captureStream`, where nothing else is captured.
  int finish(void *stream, void *captureStream, int32_t &kernel, const char *&call);

  GpuProducts products;

private:
  struct Known {
    uint8_t *bytes; ///< owned, as in `kept`; null: free
    uint64_t size, hash, lastUse;
    void *graph; ///< instantiated; null: seen once
  };
  static constexpr uint64_t kMaxBytes = 1 << 20;
  static constexpr int kMaxKnown = 8, kFewest = 2;

  int launchAll(void *stream, int32_t &kernel);
  int launch(const Shape &shape, const void *parameters, void *stream);
  bool reserve(uint64_t bytes);
  void forget(Known &known);
  Known *find(uint64_t hash);
  void remember(uint64_t hash);
  void *capture(void *stream);

  GpuModel &model;
  uint8_t *kept = nullptr; ///< Shape and parameters, one after the other, in multiples of 8 bytes
  uint64_t size = 0, capacity = 0, count = 0, runs = 0;
  int32_t last = -1;    ///< kernel of what is kept
  bool isWhole = true;  ///< nothing of the run is on the stream yet
  bool refuses = false; ///< the driver makes no graphs
  Known known[kMaxKnown] = {};
};

} // namespace attn::rt

#endif // RUNTIME_SRC_GPULAUNCHES_H
