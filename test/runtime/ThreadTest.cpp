// Several threads: sessions side by side, destruction.
#include "test/runtime/Support.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

using namespace attn::test;
using namespace std::chrono_literals;

namespace {
class ThreadTest : public FixtureTest {
protected:
  static std::chrono::milliseconds since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  }

  std::vector<float> sumRows(attnrt_session *runner, Tensor<float> &x) {
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.entry = "rows";
    const DLTensor *inputs[] = {&x.view};
    attnrt_output output = {};
    EXPECT_EQ(attnrt_session_run(runner, &options, inputs, 1, &output, 1), ATTNRT_OK) << attnrt_last_error();
    return output.tensor ? valuesOf<float>(*Managed(output.tensor)) : std::vector<float>();
  }

  Tensor<float> x{{61, 57}, -40, 0.0713f};
};

TEST_F(ThreadTest, SameBitsForAnyNumberOfThreads) {
  std::vector<float> expected = sumRows(makeSession(1).get(), x);
  for (int32_t threads : {2, 3, 8, 61, 64}) {
    Session runner = makeSession(threads);
    for (int i = 0; i < 20; ++i)
      ASSERT_EQ(sumRows(runner.get(), x), expected) << threads << " threads";
  }
}

TEST_F(ThreadTest, SessionsSideBySide) {
  std::vector<float> expected = sumRows(makeSession(1).get(), x);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Session mine = makeSession(1 + t % 3);
      for (int i = 0; i < 300; ++i)
        wrong += sumRows(mine.get(), x) != expected;
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ThreadTest, MessagesBelongToTheirThread) {
  run("stops", {}, ATTNRT_INTERNAL);
  std::thread([] {
    EXPECT_STREQ(attnrt_last_error(), "");
    EXPECT_EQ(attnrt_model_load(nullptr, nullptr, nullptr), ATTNRT_INVALID_ARGUMENT);
  }).join();
  EXPECT_TRUE(errorSays("'stops'"));
}

TEST_F(ThreadTest, ASessionServesOneThread) {
  Tensor<int64_t> steps({}, 500);
  std::atomic<bool> begun{false};
  std::thread other([&] {
    begun = true;
    run("slow", {&steps.view});
  });
  while (!begun)
    std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "stops";
  EXPECT_EQ(attnrt_session_run(session.get(), &options, nullptr, 0, nullptr, 0), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("the session is running on another thread"));
  other.join();
  run("tiny", {});
}

TEST_F(ThreadTest, DestroyedDuringARun) {
  Tensor<int64_t> steps({}, 300);
  std::atomic<bool> begun{false};
  attnrt_session *mine = makeSession(2).release();
  std::thread other([&] {
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.entry = "slow";
    const DLTensor *inputs[] = {&steps.view};
    attnrt_output output = {};
    begun = true;
    EXPECT_EQ(attnrt_session_run(mine, &options, inputs, 1, &output, 1), ATTNRT_OK);
    EXPECT_EQ(valuesOf<int64_t>(*Managed(output.tensor)), std::vector<int64_t>{300});
  });
  while (!begun)
    std::this_thread::yield();
  std::this_thread::sleep_for(10ms);
  attnrt_session_destroy(mine);
  session.reset();
  model.reset(); // also unloads the code, when the run is over
  other.join();
}

TEST_F(ThreadTest, SameBitsWhenItCanBeStopped) {
  std::vector<float> expected = sumRows(makeSession(1).get(), x);
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.timeout_ns = INT64_MAX;
  EXPECT_EQ(valuesOf<float>(*run("rows", {&x.view}, ATTNRT_OK, "", options)), expected);
}

TEST_F(ThreadTest, AsManyAsTheEnvironmentSays) {
  const char *before = getenv("OMP_NUM_THREADS");
  std::string kept = before ? before : "";
  setenv("OMP_NUM_THREADS", "3", 1);
  attnrt_session *made = nullptr;
  ASSERT_EQ(attnrt_session_create(model.get(), nullptr, &made), ATTNRT_OK);
  EXPECT_EQ(attnrt_session_num_threads(made), 3);
  attnrt_session_destroy(made);
  EXPECT_EQ(attnrt_session_num_threads(makeSession(2).get()), 2) << "a count that is given holds";
  if (before)
    setenv("OMP_NUM_THREADS", kept.c_str(), 1);
  else
    unsetenv("OMP_NUM_THREADS");
}

TEST_F(ThreadTest, Pinned) {
  int32_t cpus[] = {0, 0};
  attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
  options.num_threads = 3;
  options.cpus = cpus;
  options.num_cpus = 2;
  attnrt_session *made = nullptr;
  ASSERT_EQ(attnrt_session_create(model.get(), &options, &made), ATTNRT_OK);
  Session pinned(made);
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof(before), &before);
  EXPECT_EQ(sumRows(made, x), sumRows(session.get(), x));
  sched_getaffinity(0, sizeof(after), &after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "the caller is unpinned again";
  auto last = static_cast<int32_t>(sysconf(_SC_NPROCESSORS_CONF)) - 1;
  for (int32_t outside : {-1, last + 1, 100000}) {
    cpus[1] = outside;
    EXPECT_EQ(attnrt_session_create(model.get(), &options, &made), ATTNRT_INVALID_ARGUMENT);
    EXPECT_TRUE(errorSays("cpus[1] is " + std::to_string(outside) + "; this machine has CPUs 0 to "));
  }
  options.cpus = nullptr;
  EXPECT_EQ(attnrt_session_create(model.get(), &options, &made), ATTNRT_INVALID_ARGUMENT);
  options = ATTNRT_SESSION_OPTIONS_INIT;
  options.num_threads = 5000;
  EXPECT_EQ(attnrt_session_create(model.get(), &options, &made), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("num_threads is 5000, not between 0 and 4096"));
}

// Signals that come while a thread waits for a processor are one: on a busy machine as many take longer.
TEST_F(ThreadTest, SignalStorm) {
  static std::atomic<int> signals;
  struct sigaction action = {}, before;
  action.sa_handler = [](int) { ++signals; };
  sigaction(SIGALRM, &action, &before); // without SA_RESTART: calls return EINTR
  itimerval often = {{0, 200}, {0, 200}}, never = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  std::vector<float> expected = sumRows(session.get(), x);
  auto start = std::chrono::steady_clock::now();
  int runs = 0;
  for (; since(start) < 200ms || (signals <= 100 && since(start) < 60s); ++runs) {
    ASSERT_EQ(sumRows(session.get(), x), expected);
    if (runs % 50 == 0) {
      attnrt_model *again = nullptr;
      ASSERT_EQ(attnrt_model_load(file.c_str(), nullptr, &again), ATTNRT_OK) << attnrt_last_error();
      attnrt_model_release(again);
      std::this_thread::sleep_for(1ms); // workers go to sleep
    }
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(signals, 100);
}
} // namespace
