// Where the time of a run goes, region by region.
#ifndef TOOLS_ATTN_BENCH_BREAKDOWN_H
#define TOOLS_ATTN_BENCH_BREAKDOWN_H

#include "tools/attn-bench/Timeline.h"
#include "tools/attn-run/runner/Model.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <string>
#include <vector>

namespace attn::tools {

/// Keeps the marks of the fastest run, and for a timeline those of the first ones.
class Breakdown {
public:
  /// Reads the regions from a manifest; false with `error` set where it has none.
  bool initialize(llvm::StringRef manifest, std::string &error);

  /// `hearsThreads`: for a timeline, what each thread does, which costs runs a few percent.
  void attach(runner::Model &model, bool hearsThreads);
  /// The same of a model on a GPU, whose runs have no regions: what is on their stream.
  void attachStream(runner::Model &model);
  /// Around each run.
  void beginRun();
  void endRun();

  /// A table of regions, those with one name and size in one line. `peak` is in
  /// FLOP/s, 0: unknown.
  void print(llvm::raw_ostream &os, double peak) const;
  /// The same as a JSON object.
  llvm::json::Object toJson(double peak) const;
  /// The first runs and the fastest as trace events.
  void writeTimeline(llvm::raw_ostream &os, double peak) const;

private:
  /// Marks of one region and size.
  struct Line {
    double ms = 0;
    int64_t flops = 0, bytes = 0;
    size_t count = 0, first = 0;
    int32_t region = 0;
  };
  std::vector<Line> lines() const; ///< of the fastest run, the longest first

  /// Runs of a timeline, and a limit for those of many regions: Perfetto reads some 10 MB well.
  static constexpr size_t kFirstRuns = 10, kMostMarks = 20'000;

  std::vector<ProfiledRegion> regions;
  ProfiledRun current, best;
  std::vector<ProfiledRun> first;
  size_t numMarks = 0; ///< of `first`
  bool hearsStream = false;
};

} // namespace attn::tools

#endif // TOOLS_ATTN_BENCH_BREAKDOWN_H
