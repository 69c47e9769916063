// What an entry keeps from run to run.
#include "test/runtime/Support.h"

#include <chrono>
#include <thread>

using namespace attn::test;

namespace {
using Floats = std::vector<float>;

struct Destroy {
  void operator()(attnrt_state *state) const { attnrt_state_destroy(state); }
};
using State = std::unique_ptr<attnrt_state, Destroy>;

class StateTest : public FixtureTest {
protected:
  State makeState(const char *entry = "append") {
    attnrt_state *made = nullptr;
    EXPECT_EQ(attnrt_state_create(session.get(), entry, &made), ATTNRT_OK) << attnrt_last_error();
    return State(made);
  }

  /// Appends `rows`; the sum of all rows comes back.
  float append(attnrt_state *state, Tensor<float> &rows, attnrt_status wanted = ATTNRT_OK,
               const char *entry = "append") {
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.entry = entry;
    options.state = state;
    const DLTensor *inputs[] = {&rows.view};
    float y = -1;
    int64_t shape = 1;
    DLTensor buffer = {&y, {kDLCPU, 0}, 1, {2, 32, 1}, &shape, nullptr, 0};
    attnrt_output output = {&buffer, 0, nullptr};
    EXPECT_EQ(attnrt_session_run(session.get(), &options, inputs, 1, &output, 1), wanted) << attnrt_last_error();
    return y;
  }

  /// Runs "wide"; the sums come back.
  Floats widen(attnrt_state *state, const DLTensor &scale, const DLTensor &rows, attnrt_status wanted = ATTNRT_OK) {
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.entry = "wide";
    options.state = state;
    const DLTensor *inputs[] = {&scale, &rows};
    attnrt_output output = {};
    EXPECT_EQ(attnrt_session_run(session.get(), &options, inputs, 2, &output, 1), wanted) << attnrt_last_error();
    Managed y(output.tensor);
    return y ? valuesOf<float>(*y) : Floats();
  }

  int64_t lengthOf(attnrt_state *state) {
    int64_t length = -1;
    EXPECT_EQ(attnrt_state_length(state, &length), ATTNRT_OK);
    return length;
  }

  /// The elements of a state in row-major order.
  Floats contents(attnrt_state *state, const char *input) {
    const DLTensor *value = nullptr;
    EXPECT_EQ(attnrt_state_get(state, input, &value), ATTNRT_OK) << attnrt_last_error();
    Floats result;
    if (!value)
      return result;
    if (value->ndim == 1)
      return {static_cast<float *>(value->data), static_cast<float *>(value->data) + value->shape[0]};
    for (int64_t b = 0; b < value->shape[0]; ++b)
      for (int64_t n = 0; n < value->shape[1]; ++n)
        for (int64_t d = 0; d < 3; ++d)
          result.push_back(
              static_cast<float *>(value->data)[b * value->strides[0] + n * value->strides[1] + d * value->strides[2]]);
    return result;
  }
};

TEST_F(StateTest, EntriesTell) {
  const attnrt_entry_info *entry = nullptr;
  ASSERT_EQ(attnrt_model_find_entry(model.get(), "step", &entry), ATTNRT_OK);
  EXPECT_EQ(entry->has_state, 1);
  ASSERT_EQ(entry->num_states, 2);
  EXPECT_EQ(entry->states[0].input, 1);
  EXPECT_EQ(entry->states[1].dim, -1);
  ASSERT_EQ(attnrt_model_find_entry(model.get(), "lookup", &entry), ATTNRT_OK);
  EXPECT_EQ(entry->has_state, 0);
}

TEST_F(StateTest, GrowsAcrossItsRoom) {
  State state = makeState();
  EXPECT_EQ(lengthOf(state.get()), 0);
  Floats first, second; // the rows of each of the batch
  float sum = 0;
  for (int n = 0; n < 100; ++n) {
    Tensor<float> rows({2, n % 3 + 1, 3}, float(n), 1);
    size_t half = rows.size() / 2;
    first.insert(first.end(), rows.data(), rows.data() + half);
    second.insert(second.end(), rows.data() + half, rows.data() + 2 * half);
    for (float x : rows.values())
      sum += x;
    EXPECT_EQ(append(state.get(), rows), sum);
    EXPECT_EQ(lengthOf(state.get()), int64_t(first.size() / 3));
  }
  Floats all = first;
  all.insert(all.end(), second.begin(), second.end());
  EXPECT_EQ(contents(state.get(), "past"), all);
}

TEST_F(StateTest, AppendsInPlace) {
  State state = makeState();
  Tensor<float> rows({1, 1, 3}, 1, 1);
  append(state.get(), rows);
  const DLTensor *before = nullptr, *after = nullptr;
  ASSERT_EQ(attnrt_state_get(state.get(), "past", &before), ATTNRT_OK);
  void *data = before->data;
  int moves = 0;
  for (int n = 1; n < 1000; ++n) {
    append(state.get(), rows);
    ASSERT_EQ(attnrt_state_get(state.get(), "past", &after), ATTNRT_OK);
    moves += after->data != data;
    data = after->data;
  }
  EXPECT_LE(moves, 7) << "room doubles";
  // With a limit, there is room from the start.
  ASSERT_EQ(attnrt_state_set_limit(state.get(), 1100), ATTNRT_OK);
  ASSERT_EQ(attnrt_state_get(state.get(), "past", &before), ATTNRT_OK);
  data = before->data;
  for (int n = 1000; n < 1100; ++n)
    append(state.get(), rows);
  ASSERT_EQ(attnrt_state_get(state.get(), "past", &after), ATTNRT_OK);
  EXPECT_EQ(after->data, data);
  EXPECT_EQ(lengthOf(state.get()), 1100);
  append(state.get(), rows, ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("state 'past' has a limit of 1100 rows, the run needs 1101"));
  EXPECT_EQ(lengthOf(state.get()), 1100);
}

TEST_F(StateTest, ReplacesInPlace) {
  State state = makeState("replace");
  attnrt_state *copy = nullptr;
  Tensor<float> zero({1}, 0), two({1}, 2), outside({1}, 4);
  EXPECT_EQ(append(state.get(), zero, ATTNRT_OK, "replace"), 1);
  const DLTensor *before = nullptr, *after = nullptr;
  ASSERT_EQ(attnrt_state_get(state.get(), "past", &before), ATTNRT_OK);
  void *data = before->data;
  EXPECT_EQ(append(state.get(), two, ATTNRT_OK, "replace"), 2);
  EXPECT_EQ(contents(state.get(), "past"), (Floats{1, 0, 1, 0}));
  ASSERT_EQ(attnrt_state_get(state.get(), "past", &after), ATTNRT_OK);
  EXPECT_EQ(after->data, data);
  ASSERT_EQ(attnrt_state_clone(state.get(), &copy), ATTNRT_OK);
  State clone(copy);
  // What a failed run leaves is no state to go on from.
  append(state.get(), outside, ATTNRT_OUT_OF_RANGE, "replace");
  EXPECT_TRUE(errorSays("a row is out of range"));
  append(state.get(), two, ATTNRT_INVALID_ARGUMENT, "replace");
  EXPECT_TRUE(errorSays("state 'past' holds what a run that ended early has written"));
  EXPECT_EQ(attnrt_state_get(state.get(), "past", &after), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_state_clone(state.get(), &copy), ATTNRT_INVALID_ARGUMENT);
  Tensor<float> values({4}, 1);
  ASSERT_EQ(attnrt_state_set(state.get(), "past", &values.view), ATTNRT_OK);
  EXPECT_EQ(append(state.get(), two, ATTNRT_OK, "replace"), 5);
  append(state.get(), outside, ATTNRT_OUT_OF_RANGE, "replace");
  ASSERT_EQ(attnrt_state_reset(state.get()), ATTNRT_OK);
  EXPECT_EQ(append(state.get(), two, ATTNRT_OK, "replace"), 1);
  EXPECT_EQ(append(clone.get(), two, ATTNRT_OK, "replace"), 3);
  // A first run that fails leaves it empty; one refused before it has begun, as it was.
  State fresh = makeState("replace");
  append(fresh.get(), outside, ATTNRT_OUT_OF_RANGE, "replace");
  EXPECT_EQ(append(fresh.get(), two, ATTNRT_OK, "replace"), 1);
  Tensor<float> wrong({2}, 0);
  append(fresh.get(), wrong, ATTNRT_INVALID_ARGUMENT, "replace");
  EXPECT_EQ(append(fresh.get(), two, ATTNRT_OK, "replace"), 2);
}

TEST_F(StateTest, RunsWithoutOneToo) {
  Tensor<float> rows({2, 1, 3}, 10, 1), past({2, 2, 3}, 1, 1);
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "append";
  const DLTensor *inputs[] = {&rows.view, &past.view};
  attnrt_output outputs[2] = {};
  ASSERT_EQ(attnrt_session_run(session.get(), &options, inputs, 2, outputs, 2), ATTNRT_OK) << attnrt_last_error();
  Managed y(outputs[0].tensor), present(outputs[1].tensor);
  EXPECT_EQ(valuesOf<float>(*present), (Floats{1, 2, 3, 4, 5, 6, 10, 11, 12, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(valuesOf<float>(*y), Floats{153});
  // A large one is copied by several threads.
  Tensor<float> longer({64, 500, 3}, 1), one({64, 1, 3}, 1);
  const DLTensor *large[] = {&one.view, &longer.view};
  attnrt_output made[2] = {};
  ASSERT_EQ(attnrt_session_run(session.get(), &options, large, 2, made, 2), ATTNRT_OK) << attnrt_last_error();
  Managed sum(made[0].tensor), all(made[1].tensor);
  EXPECT_EQ(valuesOf<float>(*sum), Floats{64 * 501 * 3});
  EXPECT_EQ(valuesOf<float>(*all), Floats(64 * 501 * 3, 1));
}

TEST_F(StateTest, FailedRunsChangeNothing) {
  State state = makeState();
  Tensor<float> good({1, 2, 3}, 1, 1), bad({1, 1, 3}, -1);
  append(state.get(), bad, ATTNRT_OUT_OF_RANGE);
  EXPECT_EQ(lengthOf(state.get()), 0);
  append(state.get(), good);
  append(state.get(), bad, ATTNRT_OUT_OF_RANGE);
  EXPECT_EQ(lengthOf(state.get()), 2);
  EXPECT_EQ(contents(state.get(), "past"), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(append(state.get(), good), 42);
}

TEST_F(StateTest, KeepsWhatDoesNotGrow) {
  State state = makeState("step");
  Tensor<float> rows({1, 1, 3}, 1), bad({1, 1, 3}, -1);
  for (int n = 0; n < 3; ++n)
    append(state.get(), rows, ATTNRT_OK, "step");
  EXPECT_EQ(contents(state.get(), "count"), Floats{3});
  append(state.get(), bad, ATTNRT_OUT_OF_RANGE, "step");
  EXPECT_EQ(contents(state.get(), "count"), Floats{3});
  Tensor<float> ten({1}, 10);
  ASSERT_EQ(attnrt_state_set(state.get(), "count", &ten.view), ATTNRT_OK);
  append(state.get(), rows, ATTNRT_OK, "step");
  EXPECT_EQ(contents(state.get(), "count"), Floats{11});
  append(state.get(), rows, ATTNRT_OK, "step");
  attnrt_state *made = nullptr; // of one that nobody looked at since
  ASSERT_EQ(attnrt_state_clone(state.get(), &made), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(contents(State(made).get(), "count"), Floats{12});
  EXPECT_EQ(attnrt_state_truncate(state.get(), 1), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("state 'count' does not keep what it was before"));
  ASSERT_EQ(attnrt_state_reset(state.get()), ATTNRT_OK);
  append(state.get(), rows, ATTNRT_OK, "step");
  EXPECT_EQ(contents(state.get(), "count"), Floats{1});
  EXPECT_EQ(lengthOf(state.get()), 1);
}

TEST_F(StateTest, SetTruncateClone) {
  State state = makeState();
  // A strided value: [2, 2, 3] of which the dimensions were swapped.
  Tensor<float> value({2, 2, 3}, 0, 1);
  value.strides = {3, 6, 1};
  value.view.strides = value.strides.data();
  ASSERT_EQ(attnrt_state_set(state.get(), "past", &value.view), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(contents(state.get(), "past"), (Floats{0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11}));
  ASSERT_EQ(attnrt_state_set(state.get(), "past", &value.view), ATTNRT_OK) << "once more";
  EXPECT_EQ(contents(state.get(), "past"), (Floats{0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11}));
  attnrt_state *made = nullptr;
  ASSERT_EQ(attnrt_state_clone(state.get(), &made), ATTNRT_OK) << attnrt_last_error();
  State copy(made);
  ASSERT_EQ(attnrt_state_truncate(state.get(), 1), ATTNRT_OK);
  EXPECT_EQ(contents(state.get(), "past"), (Floats{0, 1, 2, 3, 4, 5}));
  Tensor<float> rows({2, 1, 3}, 1);
  EXPECT_EQ(append(state.get(), rows), 21);
  EXPECT_EQ(append(copy.get(), rows), 72);
  EXPECT_EQ(attnrt_state_truncate(state.get(), 3), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("state 'past' has 2 rows, which cannot become 3"));
  EXPECT_EQ(attnrt_state_truncate(state.get(), -1), ATTNRT_INVALID_ARGUMENT);
  ASSERT_EQ(attnrt_state_truncate(state.get(), 0), ATTNRT_OK);
  EXPECT_EQ(append(state.get(), rows), 6);
  // Another batch only after a reset, into memory that had another shape.
  Tensor<float> wide({5, 1, 3}, 1);
  append(state.get(), wide, ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("has size"));
  ASSERT_EQ(attnrt_state_reset(state.get()), ATTNRT_OK);
  for (int n = 1; n < 40; ++n)
    EXPECT_EQ(append(state.get(), wide), 15 * n);
  EXPECT_EQ(attnrt_state_set_limit(state.get(), 3), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("state 'past' has 39 rows, the limit is to be 3"));
}

// As beam search does after a step: items change places, go on twice, end, begin.
TEST_F(StateTest, GatherGoesOnWithOtherItems) {
  State state = makeState("wide");
  Tensor<float> scale({3}, 1, 1), rows({3, 2, 3}, 1, 1), one({2}, 5), more({2, 1, 3}, 0.5f);
  EXPECT_EQ(widen(state.get(), scale.view, rows.view), (Floats{21, 57, 93}));
  const int64_t items[] = {2, 2, 0, -1};
  ASSERT_EQ(attnrt_state_gather(state.get(), nullptr, items, 4), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(lengthOf(state.get()), 2);
  Floats third = {13, 14, 15, 16, 17, 18}, first = {1, 2, 3, 4, 5, 6}, wanted;
  for (const Floats &item : {third, third, first, Floats(6)})
    wanted.insert(wanted.end(), item.begin(), item.end());
  EXPECT_EQ(contents(state.get(), "past"), wanted);
  EXPECT_EQ(contents(state.get(), "total"), (Floats{3, 3, 1, 0}));
  // Fewer, by the dimension's name; then a run with these.
  const int64_t two[] = {1, 2};
  ASSERT_EQ(attnrt_state_gather(state.get(), "batch", two, 2), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(widen(state.get(), one.view, more.view), (Floats{94.5f, 22.5f}));
  EXPECT_EQ(contents(state.get(), "total"), (Floats{8, 6}));
  ASSERT_EQ(attnrt_state_gather(state.get(), "batch", nullptr, 0), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(contents(state.get(), "past"), Floats());
}

// Against a loop over indices, with the batch before, behind and between a cache's
// rows, whose memory has room for more.
TEST_F(StateTest, GatherInAnyDimension) {
  State state = makeState("turned");
  ASSERT_EQ(attnrt_state_set_limit(state.get(), 7), ATTNRT_OK);
  Tensor<float> rows({4, 3, 3}, 0, 1), heads({2, 3, 2, 4, 3}, 100, 1), layers({2, 3}, 500, 1);
  const struct {
    const char *name;
    Tensor<float> &tensor;
  } inputs[] = {{"rows", rows}, {"heads", heads}, {"layers", layers}};
  for (auto &[name, tensor] : inputs)
    ASSERT_EQ(attnrt_state_set(state.get(), name, &tensor.view), ATTNRT_OK) << attnrt_last_error();
  const std::vector<int64_t> items = {1, 0, 2, 1, -1};
  ASSERT_EQ(attnrt_state_gather(state.get(), "batch", items.data(), 5), ATTNRT_OK) << attnrt_last_error();
  for (auto &[name, tensor] : inputs) {
    const DLTensor *value = nullptr;
    ASSERT_EQ(attnrt_state_get(state.get(), name, &value), ATTNRT_OK) << attnrt_last_error();
    std::vector<int64_t> index(tensor.shape.size());
    ASSERT_EQ(value->shape[1], 5);
    for (bool more = true; more;) {
      int64_t at = 0, from = 0;
      for (size_t d = 0; d < index.size(); ++d) {
        at += index[d] * value->strides[d];
        from = from * tensor.shape[d] + (d == 1 ? std::max<int64_t>(items[size_t(index[d])], 0) : index[d]);
      }
      float wanted = items[size_t(index[1])] < 0 ? 0 : tensor.data()[from];
      EXPECT_EQ(static_cast<float *>(value->data)[at], wanted) << name;
      size_t d = index.size();
      while (d > 0 && ++index[d - 1] == value->shape[d - 1])
        index[--d] = 0;
      more = d > 0;
    }
  }
}

TEST_F(StateTest, GatherRefuses) {
  State state = makeState("step"), turned = makeState("turned");
  const int64_t items[] = {0, 1, 5}, below[] = {-2};
  EXPECT_EQ(attnrt_state_gather(nullptr, nullptr, items, 1), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_state_gather(state.get(), nullptr, items, 1), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("state 'past' is empty"));
  Tensor<float> rows({2, 1, 3}, 1, 1), past({2, 3, 3});
  append(state.get(), rows, ATTNRT_OK, "step");
  EXPECT_EQ(attnrt_state_gather(state.get(), nullptr, items, 3), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("state 'past': item 2 is to be item 5, there are 2"));
  EXPECT_EQ(attnrt_state_gather(state.get(), nullptr, below, 1), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_state_gather(state.get(), nullptr, items, -1), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_state_gather(state.get(), nullptr, nullptr, 1), ATTNRT_INVALID_ARGUMENT);
  // "count" has no batch.
  EXPECT_EQ(attnrt_state_gather(state.get(), "batch", items, 2), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("state 'count' has no dimension 'batch'"));
  EXPECT_EQ(attnrt_state_gather(state.get(), nullptr, items, 2), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("state 'count': dimension 0 has size 1 in the model, not 2"));
  EXPECT_EQ(contents(state.get(), "past"), rows.values()) << "as it was";
  ASSERT_EQ(attnrt_state_set(turned.get(), "rows", &past.view), ATTNRT_OK);
  EXPECT_EQ(attnrt_state_gather(turned.get(), nullptr, items, 2), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("state 'rows': dimension 0 ('past') is the one in which it grows"));
}

TEST_F(StateTest, RefusedRunsLeaveTheRoomAsItIs) {
  State state = makeState("wide");
  Tensor<float> one({1}, 1), many({5000}, 1), rows({1, 1, 4}, 1), wide({5000, 1, 4}, 1), flat({5000, 4}, 1);
  EXPECT_EQ(widen(state.get(), one.view, rows.view), Floats{4});
  ASSERT_EQ(attnrt_state_reset(state.get()), ATTNRT_OK);
  widen(state.get(), many.view, flat.view, ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("input 'rows' has rank 2, in the model 3"));
  Tensor<float> other({4, 1, 8}, 1);
  widen(state.get(), many.view, other.view, ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("has size 4, but 5000 in input 'scale'"));
  EXPECT_EQ(widen(state.get(), many.view, wide.view), Floats(5000, 4));
  EXPECT_EQ(widen(state.get(), many.view, wide.view), Floats(5000, 8));
  ASSERT_EQ(attnrt_state_reset(state.get()), ATTNRT_OK);
  EXPECT_EQ(widen(state.get(), one.view, rows.view), Floats{4});
}

TEST_F(StateTest, RoomSurvivesReset) {
  State state = makeState();
  Tensor<float> rows({1, 1, 3}, 1);
  for (int n = 0; n < 40; ++n)
    append(state.get(), rows);
  const DLTensor *value = nullptr;
  ASSERT_EQ(attnrt_state_get(state.get(), "past", &value), ATTNRT_OK);
  void *data = value->data;
  ASSERT_EQ(attnrt_state_reset(state.get()), ATTNRT_OK);
  EXPECT_EQ(append(state.get(), rows), 3);
  ASSERT_EQ(attnrt_state_get(state.get(), "past", &value), ATTNRT_OK);
  EXPECT_EQ(value->data, data);
}

// Sizes come from inputs that are as declared, so that nothing is allocated for others.
TEST_F(StateTest, TakesSizesFromCheckedInputs) {
  State state = makeState("wide");
  Tensor<float> rows({1, 1, 4}, 1);
  int64_t size = 1000000000000;
  DLTensor scale = {nullptr, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &size, nullptr, 0};
  widen(state.get(), scale, rows.view, ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("input 'scale' has no data"));
  size = -5;
  widen(state.get(), scale, rows.view, ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("input 'scale': dimension 0 has the negative size -5"));
}

TEST_F(StateTest, ALimitThatCannotBeHadChangesNothing) {
  State state = makeState(), empty = makeState();
  Tensor<float> rows({1, 1, 3}, 1);
  EXPECT_EQ(append(state.get(), rows), 3);
  EXPECT_EQ(attnrt_state_set_limit(state.get(), int64_t(1) << 40), ATTNRT_OUT_OF_MEMORY);
  for (int n = 2; n < 40; ++n)
    EXPECT_EQ(append(state.get(), rows), 3 * n);
  ASSERT_EQ(attnrt_state_reset(state.get()), ATTNRT_OK);
  EXPECT_EQ(append(state.get(), rows), 3);
  // Where nothing is known yet, the first run asks for the room, and another limit helps.
  ASSERT_EQ(attnrt_state_set_limit(empty.get(), int64_t(1) << 40), ATTNRT_OK);
  append(empty.get(), rows, ATTNRT_OUT_OF_MEMORY);
  ASSERT_EQ(attnrt_state_set_limit(empty.get(), 2), ATTNRT_OK);
  EXPECT_EQ(append(empty.get(), rows), 3);
  EXPECT_EQ(append(empty.get(), rows), 6);
  append(empty.get(), rows, ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_state_set_limit(empty.get(), -1), ATTNRT_INVALID_ARGUMENT);
  ASSERT_EQ(attnrt_state_set_limit(empty.get(), 0), ATTNRT_OK); // none
  EXPECT_EQ(append(empty.get(), rows), 9);
}

TEST_F(StateTest, EmptyRuns) {
  State state = makeState();
  Tensor<float> none({2, 0, 3}), nobody({0, 1, 3}), rows({2, 1, 3}, 1);
  EXPECT_EQ(append(state.get(), none), 0);
  EXPECT_EQ(lengthOf(state.get()), 0);
  EXPECT_EQ(append(state.get(), rows), 6);
  State other = makeState();
  EXPECT_EQ(append(other.get(), nobody), 0);
  EXPECT_EQ(append(other.get(), nobody), 0);
  EXPECT_EQ(lengthOf(other.get()), 2);
}

TEST_F(StateTest, Misuse) {
  attnrt_state *made = nullptr;
  EXPECT_EQ(attnrt_state_create(session.get(), "lookup", &made), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("entry 'lookup' has no state"));
  EXPECT_EQ(attnrt_state_create(session.get(), "none", &made), ATTNRT_NOT_FOUND);
  EXPECT_EQ(attnrt_state_create(session.get(), nullptr, nullptr), ATTNRT_INVALID_ARGUMENT);
  State state = makeState(), stepState = makeState("step");
  Tensor<float> rows({1, 1, 3}, 1);
  append(stepState.get(), rows, ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("the state is of entry 'step', not 'append'"));
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "lookup";
  options.state = state.get();
  EXPECT_EQ(attnrt_session_run(session.get(), &options, nullptr, 0, nullptr, 0), ATTNRT_UNSUPPORTED);
  options.entry = "append";
  const DLTensor *both[] = {&rows.view, &rows.view};
  attnrt_output outputs[2] = {};
  EXPECT_EQ(attnrt_session_run(session.get(), &options, both, 2, outputs, 2), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("entry 'append' has 1 inputs beside its state, not 2"));
  EXPECT_EQ(attnrt_session_run(session.get(), &options, both, 1, outputs, 2), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("entry 'append' has 1 outputs beside its state, not 2"));
  const DLTensor *none[] = {nullptr};
  EXPECT_EQ(attnrt_session_run(session.get(), &options, none, 1, outputs, 1), ATTNRT_INVALID_ARGUMENT);
  const DLTensor *value = nullptr;
  EXPECT_EQ(attnrt_state_get(state.get(), "past", &value), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("state 'past' is empty"));
  EXPECT_EQ(attnrt_state_get(state.get(), "rows", &value), ATTNRT_NOT_FOUND);
  EXPECT_EQ(attnrt_state_set(state.get(), "past", nullptr), ATTNRT_INVALID_ARGUMENT);
  Tensor<float> wrong({1, 2, 4});
  EXPECT_EQ(attnrt_state_set(state.get(), "past", &wrong.view), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("state 'past': dimension 2 has size 4, not 3"));
  Tensor<double> wide({1, 2, 3});
  EXPECT_EQ(attnrt_state_set(state.get(), "past", &wide.view), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_state_reset(nullptr), ATTNRT_INVALID_ARGUMENT);
  attnrt_state_destroy(nullptr);
  // Another model, though from the same file.
  attnrt_model *other = nullptr;
  ASSERT_EQ(attnrt_model_load(file.c_str(), nullptr, &other), ATTNRT_OK);
  Model second(other);
  attnrt_session *loaded = nullptr;
  ASSERT_EQ(attnrt_session_create(other, nullptr, &loaded), ATTNRT_OK);
  session.reset(loaded);
  append(state.get(), rows, ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("the state is of another model"));
}

TEST_F(StateTest, ServesOneRunAtATime) {
  State state = makeState();
  Session other = makeSession(1);
  attnrt_state *raw = state.get();
  Tensor<float> slow({1, 1, 3}, -2), rows({1, 1, 3}, 1);
  std::thread runner([&] { append(raw, slow); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "append";
  options.state = raw;
  const DLTensor *inputs[] = {&rows.view};
  attnrt_output output = {};
  EXPECT_EQ(attnrt_session_run(other.get(), &options, inputs, 1, &output, 1), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("the state of entry 'append' is in use by another run"));
  EXPECT_EQ(attnrt_state_reset(raw), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("a run is using the state"));
  // It lives until the run has ended.
  state.reset();
  runner.join();
}

TEST_F(StateTest, OutlivesItsSession) {
  State state = makeState();
  Tensor<float> rows({1, 1, 3}, 1);
  append(state.get(), rows);
  session = makeSession(1);
  EXPECT_EQ(append(state.get(), rows), 6);
  session.reset();
  model.reset();
  EXPECT_EQ(contents(state.get(), "past"), Floats(6, 1));
}
} // namespace
