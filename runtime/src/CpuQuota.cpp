#include "CpuQuota.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

using namespace attn::rt;

namespace {
using Path = char[PATH_MAX];

// The start of a small file as text; false: it cannot be read.
bool readText(const char *path, char *text, size_t room) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  ssize_t size = read(file, text, room - 1);
  close(file);
  text[size > 0 ? size : 0] = 0;
  return size > 0;
}

// Whole CPUs, rounded up; 0: no limit.
int32_t toCpus(long long quota, long long period) {
  if (quota <= 0 || period <= 0)
    return 0;
  long long cpus = quota / period + (quota % period != 0);
  return cpus > INT32_MAX ? INT32_MAX : int32_t(cpus);
}

int32_t stricter(int32_t a, int32_t b) { return !a || (b && b < a) ? b : a; }

// "max 100000" or "150000 100000".
int32_t readVersion2(const char *folder) {
  Path path;
  char text[64];
  long long quota, period;
  if (snprintf(path, sizeof(path), "%s/cpu.max", folder) >= int(sizeof(path)) || !readText(path, text, sizeof(text)) ||
      sscanf(text, "%lld %lld", &quota, &period) != 2)
    return 0;
  return toCpus(quota, period);
}

int32_t readVersion1(const char *folder) {
  Path path;
  char quota[32], period[32];
  auto readFile = [&](const char *name, char (&text)[32]) {
    return snprintf(path, sizeof(path), "%s/%s", folder, name) < int(sizeof(path)) &&
           readText(path, text, sizeof(text));
  };
  if (!readFile("cpu.cfs_quota_us", quota) || !readFile("cpu.cfs_period_us", period))
    return 0;
  return toCpus(atoll(quota), atoll(period));
}

// The strictest of `group` below `mount` and of each group that it lies in.
int32_t strictest(const char *root, const char *mount, const char *group, int32_t (*read)(const char *)) {
  Path folder;
  int length = snprintf(folder, sizeof(folder), "%s%s", root, mount);
  int total = snprintf(folder, sizeof(folder), "%s%s%s", root, mount, group);
  if (total >= int(sizeof(folder)))
    return 0;
  int32_t cpus = 0;
  for (;;) {
    cpus = stricter(cpus, read(folder));
    char *slash = strrchr(folder + length, '/');
    if (!slash)
      return cpus;
    *slash = 0;
  }
}

// Whether `name` is in the comma-separated `list`.
bool hasController(const char *list, const char *name) {
  size_t size = strlen(name);
  for (const char *next = list; *next; next += strcspn(next, ","), next += *next == ',')
    if (strncmp(next, name, size) == 0 && (next[size] == ',' || !next[size]))
      return true;
  return false;
}
} // namespace

int32_t attn::rt::quotaCpus(const char *root) {
  Path path;
  char groups[8192];
  if (snprintf(path, sizeof(path), "%s/proc/self/cgroup", root) >= int(sizeof(path)) ||
      !readText(path, groups, sizeof(groups)))
    return 0;
  int32_t cpus = 0;
  // Lines of "number:controllers:/path".
  for (char *line = groups; *line;) {
    char *end = line + strcspn(line, "\n");
    char *next = *end ? end + 1 : end;
    *end = 0;
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : nullptr;
    line = next;
    if (!group)
      continue;
    *group++ = 0;
    if (!*++controllers) {
      cpus = stricter(cpus, strictest(root, "/sys/fs/cgroup", group, readVersion2));
      continue;
    }
    if (hasController(controllers, "cpu"))
      for (const char *mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"})
        cpus = stricter(cpus, strictest(root, mount, group, readVersion1));
  }
  return cpus;
}
