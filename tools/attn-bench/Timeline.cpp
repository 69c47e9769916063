#include "tools/attn-bench/Timeline.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace llvm;

namespace attn::tools {
namespace {

/// Rows of the page: that of runs, then the threads.
enum Row { kRuns, kFirstThread };

class Writer {
public:
  Writer(raw_ostream &os, ArrayRef<ProfiledRegion> regions, double peak) : os(os), regions(regions), peak(peak) {}

  void write(ArrayRef<ProfiledRun> runs, size_t fastest) {
    os << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    // Of runs on a GPU the threads are not told of.
    bool onGpu = any_of(runs, [](const ProfiledRun &run) { return !run.stream.empty(); });
    size_t threads = onGpu ? 0 : 1;
    for (const ProfiledRun &run : runs)
      threads = std::max(threads, run.pieces.size());
    nameRow(kRuns, "runs");
    if (onGpu)
      nameRow(kFirstThread, "stream of the GPU");
    for (size_t n = 0; n != threads; ++n)
      nameRow(kFirstThread + n, n ? formatv("thread {0}", n).str() : "thread 0, of the run");
    int64_t start = 0, last = 0;
    for (const ProfiledRun &run : runs) {
      bool follows = last && run.number == last + 1;
      shift = follows ? shift : start - run.begin;
      writeRun(run, run.number == fastest);
      start = run.begin + shift + run.duration();
      last = static_cast<int64_t>(run.number);
    }
    os << "]}\n";
  }

private:
  void event(json::Object fields) {
    os << (isFirst ? "\n" : ",\n");
    isFirst = false;
    fields["pid"] = 1;
    os << json::Value(std::move(fields));
  }

  void nameRow(size_t row, StringRef name) {
    event(json::Object{{"ph", "M"},
                       {"name", "thread_name"},
                       {"tid", static_cast<int64_t>(row)},
                       {"args", json::Object{{"name", name.str()}}}});
    event(json::Object{{"ph", "M"},
                       {"name", "thread_sort_index"},
                       {"tid", static_cast<int64_t>(row)},
                       {"args", json::Object{{"sort_index", static_cast<int64_t>(row)}}}});
  }

  double microseconds(int64_t time) const { return static_cast<double>(time + shift) * 1e-3; }

  void span(size_t row, StringRef name, int64_t begin, int64_t end, json::Object facts) {
    event(json::Object{{"ph", "X"},
                       {"name", json::fixUTF8(name)},
                       {"tid", static_cast<int64_t>(row)},
                       {"ts", microseconds(begin)},
                       {"dur", static_cast<double>(end - begin) * 1e-3},
                       {"args", std::move(facts)}});
  }

  void counter(StringRef name, int64_t time, double value) {
    event(json::Object{
        {"ph", "C"}, {"name", name.str()}, {"ts", microseconds(time)}, {"args", json::Object{{"value", value}}}});
  }

  void writeRun(const ProfiledRun &run, bool isFastest) {
    int64_t end = run.begin + run.duration();
    std::string name = formatv("run {0}{1}", run.number, isFastest ? ", the fastest" : "");
    span(kRuns, name, run.begin, end, json::Object());
    for (const ProfiledRun::Work &work : run.stream)
      span(kFirstThread, work.name, work.begin, work.end, json::Object());
    if (!run.stream.empty())
      return;
    for (const ProfiledRun::Mark &mark : run.marks)
      writeMark(mark);
    for (auto [thread, pieces] : enumerate(run.pieces))
      writePieces(run, thread, pieces);
    writeThreadsAtWork(run, end);
    for (StringRef rate : {"GFLOP/s", "GB/s"})
      counter(rate, end, 0);
  }

  /// On the run's own thread, which waits for the others where it is done.
  void writeMark(const ProfiledRun::Mark &mark) {
    const ProfiledRegion &region = regions[static_cast<size_t>(mark.region)];
    double ns = static_cast<double>(std::max<int64_t>(mark.end - mark.begin, 1));
    json::Object facts{{"nodes", json::fixUTF8(region.nodes)}, {"bytes", mark.bytes}};
    if (mark.flops > 0) {
      facts["flops"] = mark.flops;
      facts["peak_percent"] = shareOfPeak(mark.flops, ns * 1e-6, peak);
    }
    span(kFirstThread, region.name, mark.begin, mark.end, std::move(facts));
    counter("GFLOP/s", mark.begin, static_cast<double>(mark.flops) / ns);
    counter("GB/s", mark.begin, static_cast<double>(mark.bytes) / ns);
  }

  /// Of the regions in which they lie; pieces of the run's own thread stand below its regions.
  void writePieces(const ProfiledRun &run, size_t thread, ArrayRef<ProfiledRun::Piece> pieces) {
    size_t n = 0;
    for (const ProfiledRun::Piece &piece : pieces) {
      while (n != run.marks.size() && run.marks[n].end <= piece.begin)
        ++n;
      bool isKnown = n != run.marks.size();
      StringRef name =
          isKnown ? StringRef(regions[static_cast<size_t>(run.marks[n].region)].name) : "after the last region";
      span(kFirstThread + thread, thread ? name : "at work", piece.begin, piece.end, json::Object());
    }
  }

  /// The run's own thread always is: between loops it does what is not parallel.
  void writeThreadsAtWork(const ProfiledRun &run, int64_t end) {
    std::vector<std::pair<int64_t, int>> changes{{run.begin, 1}, {end, -1}};
    for (ArrayRef<ProfiledRun::Piece> pieces : drop_begin(run.pieces))
      for (const ProfiledRun::Piece &piece : pieces) {
        changes.push_back({std::min(piece.begin, end), 1});
        changes.push_back({std::min(piece.end, end), -1});
      }
    sort(changes);
    int atWork = 0;
    for (auto [n, change] : enumerate(changes)) {
      atWork += change.second;
      if (n + 1 == changes.size() || changes[n + 1].first != change.first)
        counter("threads at work", change.first, atWork);
    }
  }

  raw_ostream &os;
  ArrayRef<ProfiledRegion> regions;
  double peak;
  int64_t shift = 0; ///< from the clock to the page
  bool isFirst = true;
};

} // namespace

double shareOfPeak(int64_t flops, double ms, double peak) {
  return flops > 0 && ms > 0 && peak > 0 ? 100 * static_cast<double>(flops) / (ms * 1e-3) / peak : 0;
}

void writeTimeline(raw_ostream &os, ArrayRef<ProfiledRegion> regions, ArrayRef<ProfiledRun> runs, size_t fastest,
                   double peak) {
  Writer(os, regions, peak).write(runs, fastest);
}

} // namespace attn::tools
