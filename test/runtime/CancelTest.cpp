// What ends a run early: a flag that cancels it, a deadline.
#include "test/runtime/Support.h"

#include <atomic>
#include <chrono>
#include <ctime>
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

// What this thread has computed, whatever else the machine does.
int64_t computed() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// 128 MiB of ids and 256 MiB of x, each one row again and again: without a look some 150 ms.
TEST_F(CancelTest, DenseCopiesOfInputs) {
  constexpr int64_t kRows = 1 << 24;
  Tensor<int64_t> ids({1}, 3);
  Tensor<float> x({1, 4}, 10, 1);
  ids.shape = {kRows};
  ids.strides = {0};
  ids.view.strides = ids.strides.data();
  x.shape[0] = kRows;
  x.strides = {0, 1};
  x.view.strides = x.strides.data();
  for (int32_t threads : {1, 2}) {
    session = makeSession(threads);
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.timeout_ns = 1;
    int64_t before = computed();
    run("lookup", {&ids.view, &x.view}, ATTNRT_DEADLINE_EXCEEDED, "the run of entry 'lookup' exceeded its deadline",
        options);
    EXPECT_LT(computed() - before, 50'000'000) << "ns, with " << threads << " threads";
  }
}

// The flag is set when the rows are computed, and only their copy to memory that is not aligned is left.
TEST_F(CancelTest, CopiesOfOutputs) {
  attnrt_cancel *flag = nullptr;
  ASSERT_EQ(attnrt_cancel_create(&flag), ATTNRT_OK);
  Cancel owner(flag);
  Tensor<int64_t> ids({9000}, 3);
  Tensor<float> x({9000, 4}, 10, 1), y({9001, 4}, -1);
  y.shape[0] = 9000;
  y.view.byte_offset = 4;
  const DLTensor *inputs[] = {&ids.view, &x.view};
  attnrt_output output = {&y.view, 0, nullptr};
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.cancel = flag;
  options.on_piece = [](void *context, int32_t, int64_t, int64_t) {
    attnrt_cancel_request(static_cast<attnrt_cancel *>(context));
  };
  options.piece_context = flag;
  session = makeSession(1);
  EXPECT_EQ(attnrt_session_run(session.get(), &options, inputs, 2, &output, 1), ATTNRT_CANCELLED);
  options.on_piece = nullptr;
  attnrt_cancel_reset(flag);
  EXPECT_EQ(attnrt_session_run(session.get(), &options, inputs, 2, &output, 1), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(y.data()[0], -1);
  for (int64_t n = 0; n < 36000; ++n)
    ASSERT_EQ(y.data()[n + 1], 3 + 0.25f * float(n % 4) + 10 + float(n)) << n;
}
} // namespace
