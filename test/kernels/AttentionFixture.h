#ifndef TEST_KERNELS_ATTENTIONFIXTURE_H
#define TEST_KERNELS_ATTENTIONFIXTURE_H

#include "test/kernels/AttentionHarness.h"

#include "gtest/gtest.h"

namespace attn::test {

/// A score region that scales, and its reference.
constexpr char kScale[] = "%k = arith.constant 0.125 : f32\n%y = arith.mulf %s, %k : f32";
inline double scaled(double s, const At &) { return 0.125 * s; }
/// One that adds its first capture, too.
constexpr char kScaleAdd[] = "%k = arith.constant 0.125 : f32\n%x = arith.mulf %s, %k : f32\n"
                             "%y = arith.addf %x, %c0 : f32";

/// Makes `buffer` hold `values`, again and again.
template <typename T> void set(const Buffer &buffer, std::initializer_list<T> values) {
  int64_t n = 0;
  while (n < buffer.size())
    for (T value : values)
      if (n < buffer.size())
        buffer.data<T>()[n++] = value;
}

/// A test of attention kernels for each step of the ISA that this machine has.
class AttentionFixture : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (!hostRuns(GetParam()))
      GTEST_SKIP() << "this machine does not run " << GetParam();
    if (!isInThisRun(testing::UnitTest::GetInstance()->current_test_info()->name(), GetParam()))
      GTEST_SKIP() << "left to the full run";
  }
  std::string isa = GetParam();
};

} // namespace attn::test

#endif // TEST_KERNELS_ATTENTIONFIXTURE_H
