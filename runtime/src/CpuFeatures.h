#ifndef RUNTIME_SRC_CPUFEATURES_H
#define RUNTIME_SRC_CPUFEATURES_H

#include "Error.h"

namespace attn::rt {

/// Whether this CPU and kernel offer every feature in a comma-separated list in
/// the spelling of /proc/cpuinfo. The missing ones are appended to `missing`.
/// CPUID is asked, since a sandbox may hide /proc; the kernel's list only for
/// names that are not in our table.
bool haveCpuFeatures(const char *list, Text &missing);

/// Whether this CPU has all features in the list, some of AMX among them, and all
/// threads of the process may use its registers, for which this asks the operating
/// system: it then saves 8 KB more for each that does.
bool mayUseTiles(const char *features);

} // namespace attn::rt

#endif // RUNTIME_SRC_CPUFEATURES_H
