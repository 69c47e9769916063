#include "GpuTrace.h"

#include <cstdlib>
#include <ctime>

using namespace attn::rt;

static int64_t nowNs() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

GpuTrace::~GpuTrace() { free(works); }

void GpuTrace::begin(void *to) {
  stream = to;
  numWorks = 0;
  on = (base || !driver.cuEventCreate(&base, 0)) && !driver.cuEventRecord(base, stream) &&
       !driver.cuEventSynchronize(base);
  start = nowNs();
}

bool GpuTrace::grow() {
  if (numMade == capacity) {
    uint64_t wanted = capacity ? 2 * capacity : 256;
    auto *grown = static_cast<Work *>(realloc(works, wanted * sizeof(Work)));
    if (!grown)
      return false;
    works = grown, capacity = wanted;
  }
  Work &work = works[numMade];
  if (driver.cuEventCreate(&work.before, 0))
    return false;
  if (driver.cuEventCreate(&work.after, 0)) {
    driver.cuEventDestroy_v2(work.before);
    return false;
  }
  ++numMade;
  return true;
}

bool GpuTrace::open(const char *name) {
  if (numWorks == numMade && !grow())
    return false;
  works[numWorks].name = name;
  return !driver.cuEventRecord(works[numWorks].before, stream);
}

void GpuTrace::close() {
  if (!driver.cuEventRecord(works[numWorks].after, stream))
    ++numWorks;
}

void GpuTrace::end(decltype(attnrt_run_options::on_kernel) fn, void *context) {
  on = false;
  for (uint64_t n = 0; n < numWorks; ++n) {
    const Work &work = works[n];
    float before, after; // milliseconds
    if (!driver.cuEventElapsedTime(&before, base, work.before) && !driver.cuEventElapsedTime(&after, base, work.after))
      fn(context, work.name, start + int64_t(double(before) * 1e6), start + int64_t(double(after) * 1e6));
  }
}

void GpuTrace::release() {
  for (uint64_t n = 0; n < numMade; ++n) {
    driver.cuEventDestroy_v2(works[n].before);
    driver.cuEventDestroy_v2(works[n].after);
  }
  numMade = 0;
  if (base)
    driver.cuEventDestroy_v2(base);
  base = nullptr;
}
