#ifndef RUNTIME_SRC_CPUQUOTA_H
#define RUNTIME_SRC_CPUQUOTA_H

#include <cstdint>

namespace attn::rt {

/// The CPU time that this process's control groups grant it, in whole CPUs,
/// rounded up; 0: as much as there is. `root` is what lies before /proc and
/// /sys: "" but for tests.
///
/// The strictest of the group and all that it lies in counts, of version 2
/// (cpu.max) and 1 (cpu.cfs_quota_us), at the places where distributions mount
/// them. Where the group's own path is not there, as in a container that sees
/// the host's names, the mount's root is what holds.
int32_t quotaCpus(const char *root);

} // namespace attn::rt

#endif // RUNTIME_SRC_CPUQUOTA_H
