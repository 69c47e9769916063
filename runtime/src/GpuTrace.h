#ifndef RUNTIME_SRC_GPUTRACE_H
#define RUNTIME_SRC_GPUTRACE_H

#include "CudaDriver.h"
#include "attnrt/attnrt.h"
#include <cstdint>

namespace attn::rt {

/// Events around what a run puts on its stream (attnrt_run_options.on_kernel). Where the driver refuses one, or there
/// is no memory, that work is not told of; the run goes on.
class GpuTrace {
public:
  explicit GpuTrace(const CudaDriver &driver) : driver(driver) {}
  GpuTrace(const GpuTrace &) = delete;
  ~GpuTrace();

  /// From here on work on `stream` is told of. Waits for what is there.
  void begin(void *stream);
  bool isOn() const { return on; }
  /// Calls `fn` for each piece of work, all of which is done, and is off.
  void end(decltype(attnrt_run_options::on_kernel) fn, void *context);
  /// Is off and tells nothing, as of a run that has failed.
  void cancel() { on = false; }
  /// Frees the events, with the context current.
  void release();

  /// What is put on the stream in its scope. `name` outlives the run.
  class Span {
  public:
    Span(GpuTrace &trace, const char *name) : trace(trace), isTold(trace.on && trace.open(name)) {}
    Span(const Span &) = delete;
    ~Span() {
      if (isTold)
        trace.close();
    }

  private:
    GpuTrace &trace;
    bool isTold;
  };

private:
  bool open(const char *name);
  void close();
  bool grow();

  struct Work {
    const char *name;
    void *before, *after;
  };
  const CudaDriver &driver;
  void *stream = nullptr, *base = nullptr;
  int64_t start = 0; ///< of `base`, in nanoseconds of CLOCK_MONOTONIC
  Work *works = nullptr;
  uint64_t numWorks = 0, numMade = 0, capacity = 0; ///< of this run; with events; that there is room for
  bool on = false;
};

} // namespace attn::rt

#endif // RUNTIME_SRC_GPUTRACE_H
