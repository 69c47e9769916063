// Replacing weights.
#include "test/runtime/Support.h"

#include <atomic>
#include <cfloat>
#include <cmath>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace attn::test;

namespace {
using Floats = std::vector<float>;

Floats counted(float first, float kStep, float nStep) {
  Floats values;
  for (int k = 0; k < 5; ++k)
    for (int n = 0; n < 7; ++n)
      values.push_back(first + kStep * float(k) + nStep * float(n));
  return values;
}

class WeightTest : public FixtureTest {
protected:
  /// The weights as 5 x 7 matrices: stored plainly, in panels, in panels of the transpose.
  std::vector<Floats> stored(attnrt_session *runner) {
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.entry = "weights";
    attnrt_output outputs[3] = {};
    EXPECT_EQ(attnrt_session_run(runner, &options, nullptr, 0, outputs, 3), ATTNRT_OK) << attnrt_last_error();
    std::vector<Floats> values;
    for (attnrt_output &output : outputs)
      values.push_back(valuesOf<float>(*Managed(output.tensor)));
    return values;
  }
  /// Whether some page of the model's file can be written.
  bool isWritable() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find(file) != std::string::npos && line[line.find(' ') + 2] == 'w')
        return true;
    return false;
  }
};

TEST_F(WeightTest, ReplacesEveryPlace) {
  Floats before = counted(0, 10, 1), after = counted(100, 7, 1);
  EXPECT_EQ(stored(session.get()), (std::vector<Floats>{before, before, before}));
  Tensor<float> matrix({5, 7}, 100, 1);
  ASSERT_EQ(attnrt_model_set_weight(model.get(), "matrix", &matrix.view), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(stored(session.get()), (std::vector<Floats>{after, after, before}));
  EXPECT_FALSE(isWritable());
  // Row-major 7 x 5, seen as its transpose.
  Tensor<float> turned({7, 5}, 100, 1);
  ASSERT_EQ(attnrt_model_set_weight(model.get(), "turned", &turned.view), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(stored(session.get()), (std::vector<Floats>{after, after, counted(100, 1, 5)}));
}

TEST_F(WeightTest, RoundsWhatIsStoredIn16Bits) {
  // Ties to even, denormals, the largest float, what has no number.
  Tensor<float> values({8});
  float given[] = {1 + 1 / 256.0f, 1 + 3 / 256.0f, -0.0f, 3e-8f, 65519, -FLT_MAX, INFINITY, NAN};
  memcpy(values.data(), given, sizeof given);
  for (const char *name : {"brain", "half"})
    ASSERT_EQ(attnrt_model_set_weight(model.get(), name, &values.view), ATTNRT_OK) << attnrt_last_error();
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "narrow";
  attnrt_output output = {};
  ASSERT_EQ(attnrt_session_run(session.get(), &options, nullptr, 0, &output, 1), ATTNRT_OK) << attnrt_last_error();
  std::vector<int64_t> got = valuesOf<int64_t>(*Managed(output.tensor));
  got.resize(16);
  std::vector<int64_t> want = {0x3f80, 0x3f82, 0x8000, 0x3301, 0x4780, 0xff7f, 0x7f80, 0x7fc0,
                               0x3c04, 0x3c0c, 0x8000, 0x0001, 0x7bff, 0xfbff, 0x7c00, 0x7e00};
  EXPECT_EQ(got, want);
}

TEST_F(WeightTest, ReplacesColumnsBesideOthers) {
  auto bits = [&] {
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.entry = "narrow";
    attnrt_output output = {};
    EXPECT_EQ(attnrt_session_run(session.get(), &options, nullptr, 0, &output, 1), ATTNRT_OK) << attnrt_last_error();
    std::vector<int64_t> all = valuesOf<int64_t>(*Managed(output.tensor));
    return std::vector<int64_t>(all.begin() + 16, all.end());
  };
  // 1, 2, ... 9, and -1 everywhere.
  Tensor<float> second({3, 3}, 1, 1), first({3, 2}, -1, 0);
  std::vector<int64_t> want(30, 0);
  ASSERT_EQ(attnrt_model_set_weight(model.get(), "second", &second.view), ATTNRT_OK) << attnrt_last_error();
  for (size_t n = 0; n < 9; ++n) {
    uint32_t word;
    memcpy(&word, second.data() + n, sizeof word);
    want[n / 3 * 5 + 2 + n % 3] = word;
    want[15 + n / 3 * 5 + 2 + n % 3] = word >> 16;
  }
  EXPECT_EQ(bits(), want);
  ASSERT_EQ(attnrt_model_set_weight(model.get(), "first", &first.view), ATTNRT_OK) << attnrt_last_error();
  for (size_t n = 0; n < 6; ++n)
    want[n / 2 * 5 + n % 2] = 0xbf800000;
  EXPECT_EQ(bits(), want);
  // Columns beyond the row, and columns that two have.
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "beyond", &second.view), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("is stored as 'columns:3:5' in 60 bytes, which this runtime cannot write"));
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "over", &second.view), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("it shares its bytes with weight 'under'"));
}

TEST_F(WeightTest, IsPrivateToTheModel) {
  attnrt_model *other = nullptr;
  ASSERT_EQ(attnrt_model_load(file.c_str(), nullptr, &other), ATTNRT_OK) << attnrt_last_error();
  Model owner(other);
  Tensor<float> matrix({5, 7}, 100, 1);
  ASSERT_EQ(attnrt_model_set_weight(other, "matrix", &matrix.view), ATTNRT_OK);
  EXPECT_EQ(stored(session.get())[0], counted(0, 10, 1));
  EXPECT_EQ(readFile(file), makeLibrary(fixtureElf(), fixtureWeights())) << "the file is never written";
  // All sessions of the other model see it.
  attnrt_session *runner = nullptr;
  ASSERT_EQ(attnrt_session_create(other, nullptr, &runner), ATTNRT_OK);
  EXPECT_EQ(stored(Session(runner).get())[0], counted(100, 7, 1));
}

TEST_F(WeightTest, TakesAnyStrides) {
  Tensor<float> matrix({5, 7});
  for (int i = 0; i < 35; ++i)
    matrix.data()[(i % 7) * 5 + i / 7] = float(100 + i);
  matrix.strides = {1, 5};
  matrix.view.strides = matrix.strides.data();
  ASSERT_EQ(attnrt_model_set_weight(model.get(), "matrix", &matrix.view), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(stored(session.get())[0], counted(100, 7, 1));
}

TEST_F(WeightTest, WorksOnCopiedWeights) {
  attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
  options.copy_weights = 1;
  attnrt_model *copied = nullptr;
  ASSERT_EQ(attnrt_model_load(file.c_str(), &options, &copied), ATTNRT_OK) << attnrt_last_error();
  model.reset(copied);
  session = makeSession(1);
  ASSERT_EQ(truncate(file.c_str(), 0), 0); // nobody needs the file any more
  EXPECT_EQ(stored(session.get())[1], counted(0, 10, 1));
  Tensor<float> matrix({5, 7}, 100, 1);
  ASSERT_EQ(attnrt_model_set_weight(copied, "matrix", &matrix.view), ATTNRT_OK);
  EXPECT_EQ(stored(session.get())[1], counted(100, 7, 1));
}

TEST_F(WeightTest, Refuses) {
  Tensor<float> matrix({5, 7}), vector({4}), rank({35});
  Tensor<double> wide({5, 7});
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "nothing", &matrix.view), ATTNRT_NOT_FOUND);
  EXPECT_TRUE(errorSays("no weight 'nothing'"));
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "folded", &vector.view), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("weight 'folded' cannot be replaced alone"));
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "short", &vector.view), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("weight 'short' of shape 4 is stored as 'plain' in 12 bytes, which this runtime cannot write"));
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "flat", &vector.view), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("weight 'flat' of shape 4 is stored as 'panels:4' in 16 bytes"));
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "matrix", &rank.view), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("weight 'matrix' has rank 1, in the model 2"));
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "matrix", &wide.view), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("weight 'matrix' is of type float64"));
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "turned", &matrix.view), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("weight 'turned': dimension 0 has size 5, not 7"));
  matrix.view.data = nullptr;
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "matrix", &matrix.view), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_model_set_weight(model.get(), nullptr, &matrix.view), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(stored(session.get())[0], counted(0, 10, 1));
}

// A last panel that is full.
TEST_F(WeightTest, TakesWholePanels) {
  Tensor<float> even({2, 4}, 1), high({8, 1}, 1);
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "even", &even.view), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(attnrt_model_set_weight(model.get(), "even", &high.view), ATTNRT_INVALID_ARGUMENT);
}

TEST_F(WeightTest, RefusesAPlaceOfTwoNames) {
  Tensor<float> shared({4});
  for (const char *name : {"tied", "tied too"}) {
    EXPECT_EQ(attnrt_model_set_weight(model.get(), name, &shared.view), ATTNRT_UNSUPPORTED);
    EXPECT_TRUE(errorSays("shares its bytes with weight 'tied"));
  }
}

// fork() while one thread runs and another one changes weights: whatever lock they
// hold, the child runs and sets weights, and sees no weight that is half written.
TEST_F(WeightTest, ForkedWhileOthersRun) {
  Tensor<float> ones({5, 7}, 1), twos({5, 7}, 2), threes({5, 7}, 3);
  auto isWhole = [&](float value) {
    Floats constant(35, value);
    std::vector<Floats> values = stored(session.get());
    return values[0] == constant && values[1] == constant;
  };
  ASSERT_EQ(attnrt_model_set_weight(model.get(), "matrix", &ones.view), ATTNRT_OK);
  attnrt_model *loaded = nullptr; // later than the one that is in use
  ASSERT_EQ(attnrt_model_load(file.c_str(), nullptr, &loaded), ATTNRT_OK);
  Model other(loaded);
  std::atomic<bool> ended{false};
  std::thread running([&] {
    Session mine = makeSession(2);
    while (!ended)
      stored(mine.get());
  });
  std::thread writing([&] {
    for (bool first = true; !ended; first = !first)
      EXPECT_EQ(attnrt_model_set_weight(model.get(), "matrix", first ? &twos.view : &ones.view), ATTNRT_OK);
  });
  int good = 0;
  for (int i = 0; i < 80; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20); // instead of hanging
      bool before = isWhole(1) || isWhole(2);
      bool set = attnrt_model_set_weight(model.get(), "matrix", &threes.view) == ATTNRT_OK;
      _exit(before && set && isWhole(3) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  ended = true;
  running.join();
  writing.join();
  EXPECT_EQ(good, 80);
}

// A run sees one state of the weights from beginning to end.
TEST_F(WeightTest, WaitsForRuns) {
  std::atomic<bool> done{false};
  std::vector<std::thread> runners;
  std::atomic<int> torn{0};
  for (int t = 0; t < 2; ++t)
    runners.emplace_back([&] {
      Session mine = makeSession(1);
      while (!done) {
        std::vector<Floats> now = stored(mine.get());
        torn += now[0] != now[1];
      }
    });
  for (int i = 0; i < 300; ++i) {
    Tensor<float> matrix({5, 7}, float(i), 1);
    ASSERT_EQ(attnrt_model_set_weight(model.get(), "matrix", &matrix.view), ATTNRT_OK);
  }
  done = true;
  for (std::thread &runner : runners)
    runner.join();
  EXPECT_EQ(torn, 0);
}
} // namespace
