// What ends a run early: a flag that cancels it, a deadline.
#include "test/runtime/Support.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace attn::test;
using namespace std::chrono_literals;

namespace {
using CancelTest = FixtureTest;

TEST_F(CancelTest, Flag) {
  for (int32_t threads : {1, 2, 5}) {
    session = makeSession(threads);
    attnrt_cancel *flag = nullptr;
    ASSERT_EQ(attnrt_cancel_create(&flag), ATTNRT_OK);
    Cancel owner(flag);
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.cancel = flag;
    Tensor<int64_t> steps({}, 1'000'000); // 200 s on one thread
    std::atomic<int64_t> requested{0};
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      requested = std::chrono::steady_clock::now().time_since_epoch().count();
      attnrt_cancel_request(flag);
    });
    run("slow", {&steps.view}, ATTNRT_CANCELLED, "the run of entry 'slow' was cancelled", options);
    int64_t latency = std::chrono::steady_clock::now().time_since_epoch().count() - requested;
    EXPECT_LT(latency, 50'000'000) << "ns, with " << threads << " threads";
    other.join();
    run("slow", {&steps.view}, ATTNRT_CANCELLED, "cancelled", options); // stays set
    attnrt_cancel_reset(flag);
    steps.data()[0] = 7;
    EXPECT_EQ(valuesOf<int64_t>(*run("slow", {&steps.view}, ATTNRT_OK, "", options)), std::vector<int64_t>{7});
  }
}

TEST_F(CancelTest, Deadline) {
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.timeout_ns = 60'000'000;
  Tensor<int64_t> steps({}, 1'000'000);
  auto start = std::chrono::steady_clock::now();
  run("slow", {&steps.view}, ATTNRT_DEADLINE_EXCEEDED, "the run of entry 'slow' exceeded its deadline", options);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 60ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 110ms);
  steps.data()[0] = 7;
  options.timeout_ns = INT64_MAX;
  EXPECT_EQ(valuesOf<int64_t>(*run("slow", {&steps.view}, ATTNRT_OK, "", options)), std::vector<int64_t>{7});
  options.timeout_ns = 1;
  run("slow", {&steps.view}, ATTNRT_DEADLINE_EXCEEDED, "", options);
  options.timeout_ns = -1;
  run("slow", {&steps.view}, ATTNRT_INVALID_ARGUMENT, "timeout_ns is -1", options);
}
} // namespace
