// Where the time of a run goes, region by region.
#ifndef TOOLS_ATTN_BENCH_BREAKDOWN_H
#define TOOLS_ATTN_BENCH_BREAKDOWN_H

#include "tools/attn-run/runner/Model.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <string>
#include <vector>

namespace attn::tools {

/// Keeps the marks of the fastest run.
class Breakdown {
public:
  /// Reads the regions from a manifest; false with `error` set where it has none.
  bool initialize(llvm::StringRef manifest, std::string &error);

  void attach(runner::Model &model);
  /// Around each run: what it marked is kept if it took least so far.
  void beginRun();
  void endRun();

  /// A table of regions, those with one name and size in one line. `peak` is in
  /// FLOP/s, 0: unknown.
  void print(llvm::raw_ostream &os, double peak) const;
  /// The same as a JSON object.
  llvm::json::Object toJson(double peak) const;
  /// The fastest run as a JSON array of trace events.
  void writeTrace(llvm::raw_ostream &os, double peak) const;

private:
  struct Region {
    std::string name, nodes;
  };
  struct Mark {
    int32_t region;
    int64_t flops, bytes;
    double begin, end; // ms from the start of the run
  };
  /// Marks of one region and size.
  struct Line {
    double ms = 0;
    int64_t flops = 0, bytes = 0;
    size_t count = 0, first = 0;
    int32_t region = 0;
  };
  std::vector<Line> lines() const; ///< of the fastest run, the longest first
  double duration(const std::vector<Mark> &run) const { return run.empty() ? 0 : run.back().end; }

  std::vector<Region> regions;
  std::vector<Mark> current, best;
  double start = 0;
};

/// FLOP/s of fused multiply-adds in registers, in `threads` threads at once.
double measurePeak(int32_t threads);
/// Bytes/s that `threads` threads at once read from memory.
double measureBandwidth(int32_t threads);

} // namespace attn::tools

#endif // TOOLS_ATTN_BENCH_BREAKDOWN_H
