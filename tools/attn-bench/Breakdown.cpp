#include "tools/attn-bench/Breakdown.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include <algorithm>
#include <chrono>
#include <map>

using namespace llvm;

namespace attn::tools {
namespace {

/// Of CLOCK_MONOTONIC, as the runtime counts.
int64_t nowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace

bool Breakdown::initialize(StringRef manifest, std::string &error) {
  Expected<json::Value> value = json::parse(manifest);
  if (!value) {
    error = "its manifest cannot be read: " + toString(value.takeError());
    return false;
  }
  const json::Object *object = value->getAsObject();
  const json::Array *list = object ? object->getArray("regions") : nullptr;
  if (!list || list->empty()) {
    error = "it was not compiled with --mark-regions (attnc has it; a model given here is compiled so)";
    return false;
  }
  for (const json::Value &each : *list) {
    ProfiledRegion &region = regions.emplace_back();
    const json::Object *fields = each.getAsObject();
    if (!fields)
      continue;
    region.name = fields->getString("name").value_or("").str();
    if (const json::Array *nodes = fields->getArray("nodes"))
      for (const json::Value &node : *nodes)
        region.nodes += (region.nodes.empty() ? "" : ", ") + node.getAsString().value_or("").str();
  }
  return true;
}

void Breakdown::attach(runner::Model &model, bool hearsThreads) {
  model.onMark(
      [](void *context, int32_t region, int64_t flops, int64_t bytes) {
        auto &self = *static_cast<Breakdown *>(context);
        int64_t now = nowNs();
        int64_t begin = self.current.marks.empty() ? self.current.begin : self.current.marks.back().end;
        if (region >= 0 && static_cast<size_t>(region) < self.regions.size())
          self.current.marks.push_back({region, flops, bytes, begin, now});
      },
      this);
  if (!hearsThreads)
    return;
  current.pieces.resize(static_cast<size_t>(model.threads()));
  model.onPiece(
      [](void *context, int32_t thread, int64_t begin, int64_t end) {
        static_cast<Breakdown *>(context)->current.pieces[static_cast<size_t>(thread)].push_back({begin, end});
      },
      this);
}

void Breakdown::attachStream(runner::Model &model) {
  hearsStream = true;
  model.onKernel([](void *context, const char *name, int64_t begin,
                    int64_t end) { static_cast<Breakdown *>(context)->current.stream.push_back({name, begin, end}); },
                 this);
}

void Breakdown::beginRun() {
  current.marks.clear();
  current.stream.clear();
  for (std::vector<ProfiledRun::Piece> &pieces : current.pieces)
    pieces.clear();
  ++current.number;
  current.begin = nowNs();
}

void Breakdown::endRun() {
  if ((hearsStream || !current.pieces.empty()) && first.size() < kFirstRuns && numMarks < kMostMarks) {
    first.push_back(current);
    numMarks += current.marks.size() + current.stream.size();
  }
  if (best.isEmpty() || current.duration() < best.duration())
    best = current;
}

/// `text` on `width` columns: its begin and its end. --profile has all of it.
static std::string elide(StringRef text, size_t width) {
  if (text.size() <= width)
    return text.str();
  auto isInside = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; }; // of a character
  size_t back = width / 3, front = width - back - 3, end = text.size() - back;
  while (front > 0 && isInside(front))
    --front;
  while (end < text.size() && isInside(end))
    ++end;
  return (text.take_front(front) + "..." + text.drop_front(end)).str();
}

std::vector<Breakdown::Line> Breakdown::lines() const {
  std::map<std::pair<std::string, int64_t>, Line> byKey;
  for (auto [i, mark] : enumerate(best.marks)) {
    Line &line = byKey[{regions[static_cast<size_t>(mark.region)].name, mark.bytes}];
    if (line.count++ == 0) {
      line.first = i;
      line.region = mark.region;
    }
    line.ms += static_cast<double>(mark.end - mark.begin) * 1e-6;
    line.flops += mark.flops;
    line.bytes += mark.bytes;
  }
  std::vector<Line> lines;
  for (auto &[key, line] : byKey)
    lines.push_back(line);
  sort(lines, [](const Line &x, const Line &y) { return x.ms > y.ms || (x.ms == y.ms && x.first < y.first); });
  return lines;
}

void Breakdown::print(raw_ostream &os, double peak) const {
  double total = static_cast<double>(best.duration()) * 1e-6;
  os << format("  regions of the fastest run, %.3f ms in all", total);
  if (peak > 0)
    os << format("; peak %.0f GFLOP/s", peak * 1e-9);
  os << "\n         ms      %   times   GFLOP/s  peak %    GB/s  region (nodes of the first)\n";
  for (const Line &line : lines()) {
    const ProfiledRegion &region = regions[static_cast<size_t>(line.region)];
    os << format("  %9.4f  %5.1f  %6zu", line.ms, total > 0 ? 100 * line.ms / total : 0, line.count);
    if (line.flops > 0)
      os << format("  %8.1f  %6.1f", static_cast<double>(line.flops) / line.ms * 1e-6,
                   shareOfPeak(line.flops, line.ms, peak));
    else
      os << "         -       -";
    os << format("  %6.1f  ", line.ms > 0 ? static_cast<double>(line.bytes) / line.ms * 1e-6 : 0)
       << elide(region.name, 36);
    if (!region.nodes.empty())
      os << " (" << elide(region.nodes, 64) << ")";
    os << '\n';
  }
  bool hasOthers =
      any_of(best.marks, [&](const auto &mark) { return regions[static_cast<size_t>(mark.region)].name != "start"; });
  if (regions.size() > 1 && !hasOthers)
    os << "  The run has no other regions: of two sizes with different names one is 1 in it, and it took the code for "
          "that,\n"
          "  whose regions are not marked. Other sizes show them, or --dim=NAME:1 does as the model is compiled.\n";
}

json::Object Breakdown::toJson(double peak) const {
  json::Array rows;
  for (const Line &line : lines()) {
    const ProfiledRegion &region = regions[static_cast<size_t>(line.region)];
    json::Object row{{"region", json::fixUTF8(region.name)},
                     {"nodes", json::fixUTF8(region.nodes)},
                     {"ms", line.ms},
                     {"times", static_cast<int64_t>(line.count)},
                     {"bytes", line.bytes}};
    if (line.flops > 0) {
      row["flops"] = line.flops;
      row["peak_percent"] = shareOfPeak(line.flops, line.ms, peak);
    }
    rows.push_back(std::move(row));
  }
  return json::Object{{"ms", static_cast<double>(best.duration()) * 1e-6}, {"regions", std::move(rows)}};
}

void Breakdown::writeTimeline(raw_ostream &os, double peak) const {
  std::vector<ProfiledRun> runs(first);
  if (none_of(runs, [&](const ProfiledRun &run) { return run.number == best.number; }))
    runs.push_back(best);
  attn::tools::writeTimeline(os, regions, runs, best.number, peak);
}

} // namespace attn::tools
