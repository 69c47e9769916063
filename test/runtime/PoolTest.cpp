#include "Pool.h"
#include "Threads.h"
#include "gtest/gtest.h"

#include <array>
#include <atomic>
#include <chrono>
#include <malloc.h>
#include <mutex>
#include <thread>
#include <vector>

using namespace attn::rt;

namespace {
struct Record {
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> pieces;
  static void task(void *self, int64_t begin, int64_t end) {
    Record &record = *static_cast<Record *>(self);
    std::lock_guard<std::mutex> lock(record.mutex);
    record.pieces.push_back({begin, end});
  }
};

std::vector<std::pair<int64_t, int64_t>> piecesOf(Pool &pool, int64_t n, StopCondition &stop) {
  Record record;
  EXPECT_TRUE(pool.run(Record::task, &record, n, stop));
  std::sort(record.pieces.begin(), record.pieces.end());
  return record.pieces;
}

// The pieces tile [0, n), none is empty, and their sizes differ by at most one.
void expectTiles(const std::vector<std::pair<int64_t, int64_t>> &pieces, int64_t n, int32_t threads) {
  ASSERT_EQ(int64_t(pieces.size()), std::min<int64_t>(n, threads));
  int64_t next = 0;
  for (auto [begin, end] : pieces) {
    EXPECT_EQ(begin, next);
    EXPECT_GT(end, begin);
    EXPECT_LE(end - begin - 1, n / std::min<int64_t>(n, threads));
    next = end;
  }
  EXPECT_EQ(next, n);
}

TEST(PoolTest, Pieces) {
  for (int32_t threads : {1, 2, 3, 7, 16}) {
    Pool pool;
    ASSERT_TRUE(pool.initialize(threads, nullptr, 0));
    pool.beginRun();
    StopCondition stop;
    for (int64_t n : {0, -5, 1, 2, 3, 5, 6, 7, 8, 100, 1023}) {
      auto pieces = piecesOf(pool, n, stop);
      if (n <= 0)
        EXPECT_TRUE(pieces.empty());
      else
        expectTiles(pieces, n, threads);
    }
    expectTiles(piecesOf(pool, INT64_MAX, stop), INT64_MAX, threads);
    pool.endRun();
  }
}

// Each piece is told once, by a thread of the pool, with times within those of the loop.
TEST(PoolTest, Observer) {
  struct Heard {
    std::mutex mutex;
    std::vector<std::array<int64_t, 3>> pieces;
  };
  auto hear = [](void *context, int32_t thread, int64_t begin, int64_t end) {
    auto &heard = *static_cast<Heard *>(context);
    std::lock_guard<std::mutex> lock(heard.mutex);
    heard.pieces.push_back({thread, begin, end});
  };
  for (int32_t threads : {1, 2, 5})
    for (bool spins : {true, false}) {
      Pool pool;
      ASSERT_TRUE(pool.initialize(threads, nullptr, 0, spins));
      pool.beginRun();
      for (int64_t n : {0, 1, 3, 100}) {
        Heard heard;
        PieceObserver observer = {hear, &heard};
        StopCondition stop;
        Record record;
        int64_t before = monotonicNow();
        EXPECT_TRUE(pool.run(Record::task, &record, n, stop, &observer));
        int64_t after = monotonicNow();
        EXPECT_EQ(heard.pieces.size(), record.pieces.size());
        for (auto [thread, begin, end] : heard.pieces) {
          EXPECT_TRUE(thread >= 0 && thread < threads) << thread;
          EXPECT_TRUE(before <= begin && begin <= end && end <= after);
        }
      }
      pool.endRun();
    }
}

// A piece that the caller takes back from a worker is his own.
TEST(PoolTest, ObserverKnowsWhoWorked) {
  struct Told {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> callers{0}, wrong{0};
  };
  auto tell = [](void *context, int32_t thread, int64_t, int64_t) {
    auto &told = *static_cast<Told *>(context);
    bool isCaller = std::this_thread::get_id() == told.caller;
    told.callers += isCaller;
    told.wrong += isCaller != (thread == 0);
  };
  Pool pool;
  ASSERT_TRUE(pool.initialize(16, nullptr, 0, /*spins=*/false));
  Told told;
  PieceObserver observer = {tell, &told};
  StopCondition stop;
  std::vector<int64_t> counts(16);
  pool.beginRun();
  int regions = 0;
  for (; regions < 100 || (told.callers == regions && regions < 100000); ++regions)
    ASSERT_TRUE(pool.run([](void *, int64_t, int64_t) {}, nullptr, 16, stop, &observer));
  pool.endRun();
  EXPECT_GT(told.callers, regions) << "none was taken back";
  EXPECT_EQ(told.wrong, 0);
}

// What is asked about a thread's stack is given back.
TEST(PoolTest, StackLeftKeepsNothing) {
  auto ask = [](int threads) {
    for (int n = 0; n < threads; ++n)
      std::thread([] { EXPECT_GT(stackLeft(), 0u); }).join();
    return mallinfo2().uordblks;
  };
  size_t before = ask(20);
  EXPECT_LT(ask(400), before + 4000);
}

void add(void *counts, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    ++static_cast<int64_t *>(counts)[i];
}

// Spinning workers, and those of a quota, which sleep.
class PoolModeTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Spins, PoolModeTest, testing::Bool());

TEST_P(PoolModeTest, ThousandsOfTinyRegions) {
  for (int32_t threads : {1, 2, 4, 9}) {
    Pool pool;
    ASSERT_TRUE(pool.initialize(threads, nullptr, 0, GetParam()));
    StopCondition stop;
    std::vector<int64_t> counts(11);
    pool.beginRun();
    for (int i = 0; i < 20000; ++i)
      ASSERT_TRUE(pool.run(add, counts.data(), 1 + i % 11, stop));
    pool.endRun();
    for (int64_t i = 0; i < 11; ++i)
      EXPECT_EQ(counts[size_t(i)], 20000 / 11 * (11 - i) + std::max<int64_t>(0, 20000 % 11 - i)) << threads;
  }
}

// Runs with pauses in between, so that workers fall asleep at every moment.
TEST_P(PoolModeTest, FallsAsleepAndWakes) {
  Pool pool;
  ASSERT_TRUE(pool.initialize(3, nullptr, 0, GetParam()));
  StopCondition stop;
  std::vector<int64_t> counts(64);
  for (int i = 0; i < 400; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(i % 5 == 0 ? 6000 : i * 997 % 300));
    if (i % 3)
      pool.beginRun(); // a region may also come when the workers were not told of a run
    else if (i == 0)
      pool.beginRun();
    for (int region = 0; region < 3; ++region)
      ASSERT_TRUE(pool.run(add, counts.data(), 64, stop));
    pool.endRun();
  }
  EXPECT_EQ(counts, std::vector<int64_t>(64, 1200));
}

// Who waits takes no time of a quota: the caller for a worker's nap, the workers
// of a run for a region.
TEST(PoolTest, SleepsUnderAQuota) {
  auto timeOf = [](clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  };
  Pool pool;
  ASSERT_TRUE(pool.initialize(2, nullptr, 0, /*spins=*/false));
  StopCondition stop;
  pool.beginRun();
  double before = timeOf(CLOCK_PROCESS_CPUTIME_ID);
  auto nap = [](void *, int64_t begin, int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(begin ? 60 : 10));
  };
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(pool.run(nap, nullptr, 2, stop));
  pool.endRun();
  EXPECT_LT(timeOf(CLOCK_PROCESS_CPUTIME_ID) - before, 0.1) << "of 0.3 s";
}

TEST_P(PoolModeTest, DestroyedWithoutARun) {
  Pool never, asleep;
  ASSERT_TRUE(never.initialize(4, nullptr, 0, GetParam()));
  ASSERT_TRUE(asleep.initialize(4, nullptr, 0, GetParam()));
  asleep.beginRun();
  asleep.endRun();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// More threads than CPUs, all of them busy.
TEST(PoolTest, Oversubscribed) {
  std::vector<std::thread> callers;
  for (int t = 0; t < 6; ++t)
    callers.emplace_back([] {
      Pool pool;
      ASSERT_TRUE(pool.initialize(4, nullptr, 0));
      StopCondition stop;
      std::vector<int64_t> counts(100);
      pool.beginRun();
      for (int i = 0; i < 2000; ++i)
        ASSERT_TRUE(pool.run(add, counts.data(), 100, stop));
      pool.endRun();
      EXPECT_EQ(counts, std::vector<int64_t>(100, 2000));
    });
  auto start = std::chrono::steady_clock::now();
  for (std::thread &caller : callers)
    caller.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// A piece that can be stopped is worked on in parts, which grow while they are short.
TEST(PoolTest, PartsGrow) {
  Pool pool;
  ASSERT_TRUE(pool.initialize(1, nullptr, 0));
  pool.beginRun();
  std::atomic<int32_t> flag{0};
  StopCondition stop;
  stop.cancel = &flag;
  EXPECT_LT(piecesOf(pool, 1 << 20, stop).size(), 1000u);
  pool.endRun();
}

TEST(PoolTest, StoppedBeforeAndBetween) {
  Pool pool;
  ASSERT_TRUE(pool.initialize(2, nullptr, 0));
  pool.beginRun();
  std::atomic<int32_t> flag{0};
  StopCondition stop;
  stop.cancel = &flag;
  std::vector<int64_t> counts(1000);
  EXPECT_TRUE(pool.run(add, counts.data(), 1000, stop));
  EXPECT_EQ(counts, std::vector<int64_t>(1000, 1)) << "parts tile the pieces";
  flag = 1;
  EXPECT_FALSE(pool.run(add, counts.data(), 1000, stop));
  EXPECT_EQ(counts, std::vector<int64_t>(1000, 1));
  EXPECT_EQ(stop.reason, StopCondition::Cancelled);
  StopCondition late;
  late.deadline = monotonicNow();
  EXPECT_FALSE(pool.run(add, counts.data(), 0, late));
  EXPECT_EQ(late.reason, StopCondition::TimedOut);
  pool.endRun();
}
} // namespace
