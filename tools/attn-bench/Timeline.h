// Runs as a timeline that Perfetto and Chrome open.
#ifndef TOOLS_ATTNBENCH_TIMELINE_H
#define TOOLS_ATTNBENCH_TIMELINE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/raw_ostream.h"
#include <string>
#include <vector>

namespace attn::tools {

/// A region of a manifest: what runs as one loop or kernel, and the nodes that it is of.
struct ProfiledRegion {
  std::string name, nodes;
};

/// What one run did. Times are nanoseconds of CLOCK_MONOTONIC.
struct ProfiledRun {
  /// A region that the run has done. What it read and wrote is counted whole, an upper bound; flops 0: unknown.
  struct Mark {
    int32_t region;
    int64_t flops, bytes;
    int64_t begin, end;
  };
  /// A kernel or a copy on a GPU's stream.
  struct Work {
    std::string name;
    int64_t begin, end;
  };
  /// What a thread did of a loop.
  struct Piece {
    int64_t begin, end;
  };

  size_t number = 0; ///< from 1
  int64_t begin = 0;
  std::vector<Mark> marks;
  std::vector<Work> stream;
  std::vector<std::vector<Piece>> pieces; ///< by thread; the first is that of the run

  bool isEmpty() const { return marks.empty() && stream.empty(); }
  int64_t duration() const { return isEmpty() ? 0 : (marks.empty() ? stream.back().end : marks.back().end) - begin; }
};

/// In %, of a piece of work; 0: unknown. `peak` is in FLOP/s, 0: unknown.
double shareOfPeak(int64_t flops, double ms, double peak);

/// Writes trace events: a row of runs, a row per thread with the regions that it worked on, and counters of FLOP/s,
/// bytes/s and threads at work; of runs on a GPU, a row with what was on their stream. A run that does not follow the
/// one before it, as the fastest of many, is moved there.
void writeTimeline(llvm::raw_ostream &os, llvm::ArrayRef<ProfiledRegion> regions, llvm::ArrayRef<ProfiledRun> runs,
                   size_t fastest, double peak);

} // namespace attn::tools

#endif // TOOLS_ATTNBENCH_TIMELINE_H
