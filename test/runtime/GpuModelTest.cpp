// How much shared memory a kernel is allowed: a driver that only notes it.
#include "Gpu.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace attn::rt {
/// Sees the private parts of GpuModel.
struct GpuModelTest : testing::Test {
  CudaDriver driver = {};
  GpuModel model;
  static inline std::vector<int> allowed;
  static inline int answer = kCudaSuccess;

  GpuModelTest() {
    allowed.clear();
    answer = kCudaSuccess;
    driver.cuFuncSetAttribute = [](void *, int attribute, int value) {
      EXPECT_EQ(attribute, 8) << "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES";
      if (!answer)
        allowed.push_back(value);
      return answer;
    };
    model.driver = &driver;
    EXPECT_TRUE(model.functions.allocate(2) && model.shared.allocate(2));
    model.shared[1].own = 1;
  }
  int allow(int32_t kernel, uint32_t bytes) { return model.allowShared(kernel, bytes); }
};

TEST_F(GpuModelTest, AsksWhereItsOwnArraysGoBeyond48KiB) {
  EXPECT_EQ(allow(0, 48 << 10), kCudaSuccess);
  EXPECT_EQ(allow(1, (48 << 10) - 1), kCudaSuccess);
  EXPECT_TRUE(allowed.empty());
  EXPECT_EQ(allow(1, 48 << 10), kCudaSuccess);
  EXPECT_EQ(allowed, std::vector<int>{48 << 10});
}

TEST_F(GpuModelTest, OnlyGrows) {
  for (uint32_t bytes : {60u << 10, 50u << 10, 60u << 10, 100u << 10, 99u << 10})
    EXPECT_EQ(allow(0, bytes), kCudaSuccess);
  EXPECT_EQ(allowed, (std::vector<int>{60 << 10, 100 << 10}));
  answer = kCudaInvalidValue;
  EXPECT_EQ(allow(0, 200 << 10), kCudaInvalidValue);
  answer = kCudaSuccess;
  EXPECT_EQ(allow(0, 150 << 10), kCudaSuccess) << "what was refused is not remembered";
  EXPECT_EQ(allowed.back(), 150 << 10);
}

TEST_F(GpuModelTest, TwoSessions) {
  std::vector<std::thread> sessions;
  for (uint32_t first : {49u, 50u})
    sessions.emplace_back([&, first] {
      for (uint32_t size = first; size < 220; size += 2)
        EXPECT_EQ(allow(0, size << 10), kCudaSuccess);
    });
  for (std::thread &session : sessions)
    session.join();
  EXPECT_TRUE(std::is_sorted(allowed.begin(), allowed.end()));
  EXPECT_EQ(allowed.back(), 219 << 10);
}
} // namespace attn::rt
