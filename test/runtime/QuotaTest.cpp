// How many threads a session has where nobody says: from a made-up /proc and /sys.
#include "CpuQuota.h"
#include "Threads.h"
#include "attnrt/attnrt.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <fstream>
#include <sched.h>
#include <unistd.h>

using namespace attn::rt;
namespace fs = std::filesystem;

namespace {
class QuotaTest : public testing::Test {
protected:
  fs::path root = fs::temp_directory_path() / ("attnrt-quota-" + std::to_string(getpid()));

  ~QuotaTest() override { fs::remove_all(root); }
  void write(const std::string &path, const std::string &text) {
    fs::path file = root.string() + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int32_t quota() { return quotaCpus(root.c_str()); }
};

TEST_F(QuotaTest, NothingThere) {
  EXPECT_EQ(quota(), 0);
  write("/proc/self/cgroup", "");
  EXPECT_EQ(quota(), 0);
  write("/proc/self/cgroup", "0::/nowhere\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(QuotaTest, Version2) {
  write("/proc/self/cgroup", "0::/user.slice/job\n");
  write("/sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
  write("/sys/fs/cgroup/user.slice/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 3) << "rounded up";
  write("/sys/fs/cgroup/user.slice/job/cpu.max", "1000 100000\n");
  EXPECT_EQ(quota(), 1);
  write("/sys/fs/cgroup/user.slice/job/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4);
  // The slice around it is stricter.
  write("/sys/fs/cgroup/user.slice/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
}

// A container: its own group is the mount's root, whatever name it is given.
TEST_F(QuotaTest, RootOfAContainer) {
  write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  for (const char *line : {"0::/\n", "0::/kubepods/pod1/abc\n"}) {
    write("/proc/self/cgroup", line);
    EXPECT_EQ(quota(), 2) << line;
  }
}

TEST_F(QuotaTest, Version1) {
  write("/proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 0);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(quota(), 1);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "600000\n");
  EXPECT_EQ(quota(), 6);
  // Of another controller, which has the files, too.
  write("/proc/self/cgroup", "12:memory:/docker/abc\n");
  EXPECT_EQ(quota(), 0);
  write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n");
  // The same hierarchy by its other name, seen from within the container.
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(QuotaTest, OddFiles) {
  write("/proc/self/cgroup", "nonsense\n1:name=systemd:/x\n2:cpuset,cpuacct:/x\n0::/a\n");
  for (const char *text : {"", "max\n", "-5 100000\n", "5 0\n", "100000\n", "999999999999999999999999 1\n", "x y\n"}) {
    write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_GE(quota(), 0) << text;
  }
  write("/sys/fs/cgroup/a/cpu.max", "9000000000000000000 1\n");
  EXPECT_EQ(quota(), INT32_MAX);
  write("/proc/self/cgroup", "0::/" + std::string(6000, 'a') + "\n");
  EXPECT_EQ(quota(), 0);
}

TEST(ThreadsTest, AvailableCpus) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(attnrt_available_cpus(), 1);
  EXPECT_LE(attnrt_available_cpus(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before))
      CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(attnrt_available_cpus(), 1);
  sched_setaffinity(0, sizeof(before), &before);
}

TEST(ThreadsTest, WhichCounts) {
  EXPECT_EQ(chooseThreads(nullptr, 8, 0), 8);
  EXPECT_EQ(chooseThreads(nullptr, 8, 3), 3);
  EXPECT_EQ(chooseThreads(nullptr, 2, 3), 2);
  EXPECT_EQ(chooseThreads("5", 2, 1), 5) << "what is asked for, as OpenMP does";
  EXPECT_EQ(chooseThreads("6,2", 8, 0), 6) << "the outermost level";
  EXPECT_EQ(chooseThreads(" 7 ", 8, 0), 7);
  EXPECT_EQ(chooseThreads("1000000", 8, 0), 4096);
  for (const char *odd : {"", "0", "-3", "many", "4x", " ", ","})
    EXPECT_EQ(chooseThreads(odd, 8, 3), 3) << odd;
}
} // namespace
