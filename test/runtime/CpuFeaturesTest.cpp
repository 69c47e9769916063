#include "CpuFeatures.h"
#include "gtest/gtest.h"

#include <fstream>
#include <set>
#include <sstream>

using namespace attn::rt;

namespace {
std::set<std::string> listedByTheKernel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::set<std::string> names;
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.compare(0, 5, "flags") == 0 && names.empty()) {
      std::istringstream words(line.substr(line.find(':') + 1));
      for (std::string word; words >> word;)
        names.insert(word);
    }
  return names;
}

bool have(const std::string &list) {
  Text missing;
  return haveCpuFeatures(list.c_str(), missing);
}

// The names that LLVM's features can stand for, as the kernel sees them. Not
// rdseed: kernels hide it on CPUs where it is broken, CPUID does not.
TEST(CpuFeaturesTest, AgreesWithTheKernel) {
  std::set<std::string> kernel = listedByTheKernel();
  if (kernel.empty())
    GTEST_SKIP() << "no flags in /proc/cpuinfo";
  for (const char *name : {"sse2",
                           "pni",
                           "ssse3",
                           "sse4_1",
                           "sse4_2",
                           "avx",
                           "avx2",
                           "fma",
                           "f16c",
                           "bmi1",
                           "bmi2",
                           "abm",
                           "popcnt",
                           "movbe",
                           "aes",
                           "pclmulqdq",
                           "vaes",
                           "vpclmulqdq",
                           "gfni",
                           "sha_ni",
                           "adx",
                           "avx512f",
                           "avx512bw",
                           "avx512cd",
                           "avx512dq",
                           "avx512vl",
                           "avx512ifma",
                           "avx512vbmi",
                           "avx512_vbmi2",
                           "avx512_vnni",
                           "avx512_bitalg",
                           "avx512_vpopcntdq",
                           "avx512_bf16",
                           "avx512_fp16",
                           "avx_vnni",
                           "avx_ifma",
                           "avx_vnni_int8",
                           "avx_ne_convert",
                           "avx512_vp2intersect",
                           "amx_tile",
                           "amx_int8",
                           "amx_bf16",
                           "amx_fp16",
                           "xsave",
                           "xsavec",
                           "xsaves",
                           "xsaveopt",
                           "cx16",
                           "lahf_lm",
                           "sse4a",
                           "3dnowprefetch",
                           "clflushopt",
                           "clwb",
                           "clzero",
                           "rdpid",
                           "serialize",
                           "movdiri",
                           "movdir64b",
                           "wbnoinvd",
                           "fsgsbase",
                           "rdrand",
                           "tbm"})
    EXPECT_EQ(have(name), kernel.count(name) == 1) << name;
}

// A kernel that lists tiles grants them, unless it is told not to; then or
// without them no library uses any.
TEST(CpuFeaturesTest, TilesNeedPermission) {
  constexpr char kAll[] = "amx_tile,amx_bf16,amx_int8";
  bool may = mayUseTiles(kAll);
  EXPECT_EQ(may, mayUseTiles(kAll));
  if (!have(kAll))
    EXPECT_FALSE(may);
  EXPECT_FALSE(mayUseTiles(""));
  EXPECT_FALSE(mayUseTiles("avx2"));
  EXPECT_FALSE(mayUseTiles("amx_tile,avx9000"));
}

TEST(CpuFeaturesTest, Lists) {
  EXPECT_TRUE(have(""));
  EXPECT_TRUE(have(",,"));
  EXPECT_FALSE(have("avx9000"));
  EXPECT_FALSE(have("avx2x"));
  EXPECT_FALSE(have("flags"));
  Text missing;
  EXPECT_FALSE(haveCpuFeatures("one,two,", missing));
  EXPECT_STREQ(missing.str(), "one, two");
}
} // namespace
