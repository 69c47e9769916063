#include "test/runtime/Support.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace attn::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {
using RunTest = FixtureTest;

TEST_F(RunTest, LooksUp) {
  Tensor<int64_t> ids({3});
  ids.data()[0] = 7, ids.data()[1] = 0, ids.data()[2] = 2;
  Tensor<float> x({3, 4}, 10, 1);
  Managed y = run("lookup", {&ids.view, &x.view});
  ASSERT_TRUE(y);
  EXPECT_EQ(y->dl_tensor.ndim, 2);
  EXPECT_EQ(y->dl_tensor.shape[0], 3);
  EXPECT_EQ(y->dl_tensor.shape[1], 4);
  EXPECT_EQ(y->dl_tensor.strides[0], 4);
  EXPECT_EQ(y->dl_tensor.strides[1], 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(y->dl_tensor.data) % 64, 0u);
  EXPECT_THAT(valuesOf<float>(*y), ElementsAre(17, 18.25, 19.5, 20.75, 14, 15.25, 16.5, 17.75, 20, 21.25, 22.5, 23.75));
}
} // namespace
