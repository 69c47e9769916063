#include "CpuFeatures.h"

#include <cstdio>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace attn::rt;

// What the kernel lists: all there is on other architectures.
static bool listedByKernel(const char *name, size_t length) {
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (!file)
    return false;
  char line[4096];
  bool found = false;
  while (!found && fgets(line, sizeof(line), file)) {
    if (strncmp(line, "flags", 5) != 0 && strncmp(line, "Features", 8) != 0 && strncmp(line, "isa", 3) != 0)
      continue;
    char *colon = strchr(line, ':');
    for (char *next = colon ? colon + 1 : line, *word; (word = strtok_r(next, " \t\n", &next));)
      found |= strlen(word) == length && memcmp(word, name, length) == 0;
  }
  fclose(file);
  return found;
}

#if defined(__x86_64__)

namespace {
enum Register { EAX, EBX, ECX, EDX };

/// State that the kernel must save at a context switch: bits of XCR0.
enum Saved : uint32_t { Nothing = 0, Ymm = 0x6, Zmm = 0xe6, Tiles = 0x60000 };

struct Feature {
  const char *name;
  uint32_t leaf, subleaf;
  Register reg;
  unsigned bit;
  Saved saved;
};
} // namespace

// Intel SDM vol. 2A, CPUID; AMD APM vol. 3, appendix E. Names: Linux,
// arch/x86/include/asm/cpufeatures.h.
static constexpr Feature kFeatures[] = {
    {"cmov", 1, 0, EDX, 15, Nothing},
    {"cx8", 1, 0, EDX, 8, Nothing},
    {"fxsr", 1, 0, EDX, 24, Nothing},
    {"mmx", 1, 0, EDX, 23, Nothing},
    {"sse", 1, 0, EDX, 25, Nothing},
    {"sse2", 1, 0, EDX, 26, Nothing},
    {"pni", 1, 0, ECX, 0, Nothing},
    {"pclmulqdq", 1, 0, ECX, 1, Nothing},
    {"ssse3", 1, 0, ECX, 9, Nothing},
    {"fma", 1, 0, ECX, 12, Ymm},
    {"cx16", 1, 0, ECX, 13, Nothing},
    {"sse4_1", 1, 0, ECX, 19, Nothing},
    {"sse4_2", 1, 0, ECX, 20, Nothing},
    {"movbe", 1, 0, ECX, 22, Nothing},
    {"popcnt", 1, 0, ECX, 23, Nothing},
    {"aes", 1, 0, ECX, 25, Nothing},
    {"xsave", 1, 0, ECX, 26, Nothing},
    {"avx", 1, 0, ECX, 28, Ymm},
    {"f16c", 1, 0, ECX, 29, Ymm},
    {"rdrand", 1, 0, ECX, 30, Nothing},
    {"fsgsbase", 7, 0, EBX, 0, Nothing},
    {"bmi1", 7, 0, EBX, 3, Nothing},
    {"avx2", 7, 0, EBX, 5, Ymm},
    {"bmi2", 7, 0, EBX, 8, Nothing},
    {"avx512f", 7, 0, EBX, 16, Zmm},
    {"avx512dq", 7, 0, EBX, 17, Zmm},
    {"rdseed", 7, 0, EBX, 18, Nothing},
    {"adx", 7, 0, EBX, 19, Nothing},
    {"avx512ifma", 7, 0, EBX, 21, Zmm},
    {"clflushopt", 7, 0, EBX, 23, Nothing},
    {"clwb", 7, 0, EBX, 24, Nothing},
    {"avx512cd", 7, 0, EBX, 28, Zmm},
    {"sha_ni", 7, 0, EBX, 29, Nothing},
    {"avx512bw", 7, 0, EBX, 30, Zmm},
    {"avx512vl", 7, 0, EBX, 31, Zmm},
    {"avx512vbmi", 7, 0, ECX, 1, Zmm},
    {"avx512_vbmi2", 7, 0, ECX, 6, Zmm},
    {"gfni", 7, 0, ECX, 8, Nothing},
    {"vaes", 7, 0, ECX, 9, Ymm},
    {"vpclmulqdq", 7, 0, ECX, 10, Ymm},
    {"avx512_vnni", 7, 0, ECX, 11, Zmm},
    {"avx512_bitalg", 7, 0, ECX, 12, Zmm},
    {"avx512_vpopcntdq", 7, 0, ECX, 14, Zmm},
    {"rdpid", 7, 0, ECX, 22, Nothing},
    {"movdiri", 7, 0, ECX, 27, Nothing},
    {"movdir64b", 7, 0, ECX, 28, Nothing},
    {"avx512_vp2intersect", 7, 0, EDX, 8, Zmm},
    {"serialize", 7, 0, EDX, 14, Nothing},
    {"amx_bf16", 7, 0, EDX, 22, Tiles},
    {"avx512_fp16", 7, 0, EDX, 23, Zmm},
    {"amx_tile", 7, 0, EDX, 24, Tiles},
    {"amx_int8", 7, 0, EDX, 25, Tiles},
    {"avx_vnni", 7, 1, EAX, 4, Ymm},
    {"avx512_bf16", 7, 1, EAX, 5, Zmm},
    {"amx_fp16", 7, 1, EAX, 21, Tiles},
    {"avx_ifma", 7, 1, EAX, 23, Ymm},
    {"avx_vnni_int8", 7, 1, EDX, 4, Ymm},
    {"avx_ne_convert", 7, 1, EDX, 5, Ymm},
    {"amx_complex", 7, 1, EDX, 8, Tiles},
    {"avx_vnni_int16", 7, 1, EDX, 10, Ymm},
    {"xsaveopt", 0xd, 1, EAX, 0, Nothing},
    {"xsavec", 0xd, 1, EAX, 1, Nothing},
    {"xsaves", 0xd, 1, EAX, 3, Nothing},
    {"lahf_lm", 0x80000001, 0, ECX, 0, Nothing},
    {"abm", 0x80000001, 0, ECX, 5, Nothing},
    {"sse4a", 0x80000001, 0, ECX, 6, Nothing},
    {"3dnowprefetch", 0x80000001, 0, ECX, 8, Nothing},
    {"xop", 0x80000001, 0, ECX, 11, Ymm},
    {"fma4", 0x80000001, 0, ECX, 16, Ymm},
    {"tbm", 0x80000001, 0, ECX, 21, Nothing},
    {"clzero", 0x80000008, 0, EBX, 0, Nothing},
    {"wbnoinvd", 0x80000008, 0, EBX, 9, Nothing},
};

static uint64_t savedState() {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & (1u << 27))) // OSXSAVE
    return 0;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

static bool haveFeature(const char *name, size_t length) {
  for (const Feature &feature : kFeatures) {
    if (strlen(feature.name) != length || memcmp(feature.name, name, length) != 0)
      continue;
    unsigned regs[4];
    return __get_cpuid_count(feature.leaf, feature.subleaf, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX]) &&
           (regs[feature.reg] >> feature.bit & 1) && (savedState() & feature.saved) == feature.saved;
  }
  return listedByKernel(name, length); // newer than this table
}

// Documentation/arch/x86/xstate.rst. Granted once, it holds for every thread.
bool attn::rt::mayUseTiles(const char *features) {
  constexpr int kRequestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  Text missing;
  return strstr(features, "amx_tile") && haveCpuFeatures(features, missing) &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#else

bool attn::rt::mayUseTiles(const char *) { return false; }

static bool haveFeature(const char *name, size_t length) { return listedByKernel(name, length); }

#endif

bool attn::rt::haveCpuFeatures(const char *list, Text &missing) {
  bool all = true;
  for (const char *name = list; *name;) {
    size_t length = strcspn(name, ",");
    if (length && !haveFeature(name, length)) {
      missing.add(all ? "%.*s" : ", %.*s", int(length), name);
      all = false;
    }
    name += length + (name[length] == ',');
  }
  return all;
}
