// Sound runs, and what compiled code reports.
#include "test/runtime/Support.h"

#include <array>
#include <cmath>
#include <fstream>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace attn::test;

namespace {
using RunTest = FixtureTest;
using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

const Floats kLookedUp = {17, 18.25, 19.5, 20.75, 14, 15.25, 16.5, 17.75, 20, 21.25, 22.5, 23.75};

struct LookupInputs {
  Tensor<int64_t> ids{{3}};
  Tensor<float> x{{3, 4}, 10, 1};
  LookupInputs() { ids.data()[0] = 7, ids.data()[1] = 0, ids.data()[2] = 2; }
};

TEST_F(RunTest, AllocatesOutputs) {
  LookupInputs in;
  Managed y = run("lookup", {&in.ids.view, &in.x.view});
  ASSERT_TRUE(y);
  EXPECT_EQ(y->dl_tensor.ndim, 2);
  EXPECT_EQ(y->dl_tensor.shape[0], 3);
  EXPECT_EQ(y->dl_tensor.shape[1], 4);
  EXPECT_EQ(y->dl_tensor.strides[0], 4);
  EXPECT_EQ(y->dl_tensor.strides[1], 1);
  EXPECT_EQ(y->dl_tensor.device.device_type, kDLCPU);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(y->dl_tensor.data) % 64, 0u);
  EXPECT_EQ(valuesOf<float>(*y), kLookedUp);
  // Outputs outlive the session and the model.
  session.reset();
  model.reset();
  EXPECT_EQ(valuesOf<float>(*y), kLookedUp);
}

TEST_F(RunTest, TheFirstEntryIsTheDefault) {
  LookupInputs in;
  const DLTensor *inputs[] = {&in.ids.view, &in.x.view};
  attnrt_output output = {};
  ASSERT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, &output, 1), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(valuesOf<float>(*Managed(output.tensor)), kLookedUp);
}

TEST_F(RunTest, UnknownEntry) {
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "encode";
  EXPECT_EQ(attnrt_session_run(session.get(), &options, nullptr, 0, nullptr, 0), ATTNRT_NOT_FOUND);
  EXPECT_TRUE(errorSays("no entry 'encode'; there is 'lookup', 'weights'"));
}

TEST_F(RunTest, WritesToCallersBuffers) {
  LookupInputs in;
  const DLTensor *inputs[] = {&in.ids.view, &in.x.view};
  Tensor<float> y({3, 4}, -1);
  attnrt_output output = {&y.view, 0, nullptr};
  ASSERT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, &output, 1), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(output.tensor, nullptr);
  EXPECT_EQ(y.values(), kLookedUp);
}

TEST_F(RunTest, WritesToUnalignedBuffers) {
  LookupInputs in;
  const DLTensor *inputs[] = {&in.ids.view, &in.x.view};
  Tensor<float> y({5, 4}, -1);
  y.shape[0] = 3;
  y.view.byte_offset = 12;
  attnrt_output output = {&y.view, 0, nullptr};
  ASSERT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, &output, 1), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(Floats(y.data(), y.data() + 3), Floats(3, -1));
  EXPECT_EQ(Floats(y.data() + 3, y.data() + 15), kLookedUp);
  EXPECT_EQ(Floats(y.data() + 15, y.data() + 20), Floats(5, -1));
}

TEST_F(RunTest, CapacityTakesAnyShapeThatFits) {
  LookupInputs in;
  const DLTensor *inputs[] = {&in.ids.view, &in.x.view};
  Tensor<float> y({5, 4}, -1);
  y.shape = {-7, 0}; // unspecified before the run
  y.strides = {9, 9};
  y.view.shape = y.shape.data();
  y.view.strides = y.strides.data();
  attnrt_output output = {&y.view, 5 * 4 * sizeof(float), nullptr};
  ASSERT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, &output, 1), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(y.shape, (Ints{3, 4}));
  EXPECT_EQ(y.strides, (Ints{4, 1}));
  EXPECT_EQ(y.values(), kLookedUp);
}

TEST_F(RunTest, CapacityTooSmall) {
  LookupInputs in;
  const DLTensor *inputs[] = {&in.ids.view, &in.x.view};
  Tensor<float> y({3, 4});
  y.shape[0] = 99;
  attnrt_output output = {&y.view, 47, nullptr};
  EXPECT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, &output, 1), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("output 'y' of shape 3x4 has 48 bytes, its buffer only 47"));
  EXPECT_EQ(y.shape, (Ints{99, 4})) << "a failed run leaves the shape alone";
}

TEST_F(RunTest, ReadsStridedInputs) {
  LookupInputs in;
  // Columns of a 4 x 3 tensor, and ids backwards.
  Tensor<float> columns({4, 3});
  for (int i = 0; i < 12; ++i)
    columns.data()[(i % 4) * 3 + i / 4] = float(10 + i);
  columns.shape = {3, 4};
  columns.strides = {1, 3};
  columns.view.shape = columns.shape.data();
  columns.view.strides = columns.strides.data();
  std::swap(in.ids.data()[0], in.ids.data()[2]);
  in.ids.strides = {-1};
  in.ids.view.strides = in.ids.strides.data();
  in.ids.view.byte_offset = 16;
  Managed y = run("lookup", {&in.ids.view, &columns.view});
  ASSERT_TRUE(y);
  EXPECT_EQ(valuesOf<float>(*y), kLookedUp);
}

TEST_F(RunTest, ReadsBroadcastInputs) {
  LookupInputs in;
  in.x.strides = {0, 1};
  in.x.view.strides = in.x.strides.data();
  Managed y = run("lookup", {&in.ids.view, &in.x.view});
  ASSERT_TRUE(y);
  EXPECT_EQ(valuesOf<float>(*y), (Floats{17, 18.25, 19.5, 20.75, 10, 11.25, 12.5, 13.75, 12, 13.25, 14.5, 15.75}));
}

// Larger than what is copied at once, by threads that begin in the middle of a row.
TEST_F(RunTest, ReadsLargeStridedInputs) {
  constexpr int64_t kRows = 5003;
  Tensor<int64_t> ids({2 * kRows});
  Tensor<float> x({4, kRows}, 0, 1), dense({kRows + 1, 4}, 0, 1);
  for (int64_t n = 0; n < 2 * kRows; ++n)
    ids.data()[n] = n % 2 ? -1 : n / 2 % 8;
  ids.shape = {kRows};
  ids.strides = {2};
  ids.view.strides = ids.strides.data();
  x.shape = {kRows, 4};
  x.strides = {1, kRows};
  x.view.strides = x.strides.data();
  dense.shape[0] = kRows;
  dense.view.byte_offset = 2; // misaligned
  memmove(reinterpret_cast<char *>(dense.data()) + 2, dense.data(), kRows * 4 * sizeof(float));
  for (int32_t threads : {1, 3}) {
    session = makeSession(threads);
    for (int repeat = 0; repeat < 2; ++repeat) { // the first run starts the threads
      Managed y = run("lookup", {&ids.view, &x.view}), z = run("lookup", {&ids.view, &dense.view});
      ASSERT_TRUE(y && z);
      Floats values = valuesOf<float>(*y), others = valuesOf<float>(*z);
      for (int64_t n = 0; n < kRows * 4; ++n) {
        float looked = float(n / 4 % 8) + 0.25f * float(n % 4);
        ASSERT_EQ(values[size_t(n)], looked + float(n % 4 * kRows + n / 4)) << n;
        ASSERT_EQ(others[size_t(n)], looked + float(n)) << n;
      }
    }
  }
}

TEST_F(RunTest, ReadsMisalignedInputs) {
  LookupInputs in;
  char bytes[8 * 3 + 1];
  memcpy(bytes + 1, in.ids.data(), 24);
  in.ids.view.data = bytes;
  in.ids.view.byte_offset = 1;
  Managed y = run("lookup", {&in.ids.view, &in.x.view});
  ASSERT_TRUE(y);
  EXPECT_EQ(valuesOf<float>(*y), kLookedUp);
}

TEST_F(RunTest, StridesOfSingleAndEmptyDimensionsDoNotMatter) {
  Tensor<int64_t> ids({1}, 3);
  Tensor<float> x({1, 4});
  ids.strides = {77};
  x.strides = {-5, 1};
  ids.view.strides = ids.strides.data();
  x.view.strides = x.strides.data();
  Managed y = run("lookup", {&ids.view, &x.view});
  EXPECT_EQ(valuesOf<float>(*y), (Floats{3, 3.25, 3.5, 3.75}));
}

TEST_F(RunTest, EmptyTensors) {
  Tensor<int64_t> ids({0});
  Tensor<float> x({0, 4});
  ids.view.data = nullptr;
  x.view.data = nullptr;
  Managed y = run("lookup", {&ids.view, &x.view});
  ASSERT_TRUE(y);
  EXPECT_EQ(y->dl_tensor.shape[0], 0);
  EXPECT_NE(y->dl_tensor.data, nullptr);
  // And into a caller's buffer without memory.
  const DLTensor *inputs[] = {&ids.view, &x.view};
  Tensor<float> buffer({0, 4});
  buffer.view.data = nullptr;
  attnrt_output output = {&buffer.view, 0, nullptr};
  EXPECT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, &output, 1), ATTNRT_OK) << attnrt_last_error();
}

TEST_F(RunTest, IndexOutOfRange) {
  for (int64_t bad : {int64_t(8), int64_t(-1), INT64_MAX, INT64_MIN}) {
    LookupInputs in;
    in.ids.data()[1] = bad;
    run("lookup", {&in.ids.view, &in.x.view}, ATTNRT_OUT_OF_RANGE,
        ("node 'emb' (Gather): an index is out of range: " + std::to_string(bad) + " in a dimension of size 8")
            .c_str());
    in.ids.data()[1] = 0;
    EXPECT_EQ(valuesOf<float>(*run("lookup", {&in.ids.view, &in.x.view})), kLookedUp) << "the next run is right";
  }
}

TEST_F(RunTest, RequirementFails) {
  Tensor<uint8_t> left({3}), right({5}), same({3});
  run("require", {&left.view, &right.view}, ATTNRT_INVALID_ARGUMENT,
      "node 'add' (Add): dimensions 5 and 3 of {x} differ, 5 is not 3 {7}");
  run("require", {&left.view, &same.view});
}

TEST_F(RunTest, WorkspaceGrowsAndStays) {
  for (int64_t bytes : {0, 1, 63, 4096, 100000, 3 << 20, 9 << 20, 5}) {
    Tensor<int64_t> size({}, bytes);
    EXPECT_EQ(valuesOf<int64_t>(*run("hungry", {&size.view})), Ints{0}) << bytes << " bytes: aligned to 64";
  }
}

// Large ones begin on huge pages; what is mapped to reach one is given back, and what a larger one replaces.
TEST_F(RunTest, WorkspacesGoWithTheirSessions) {
  auto pages = [] {
    long count = 0;
    std::ifstream("/proc/self/statm") >> count;
    return count;
  };
  Tensor<int64_t> size({}, 3 << 20), more({}, 7 << 20);
  long before = 0;
  for (int n = 0; n < 64; ++n) {
    session = makeSession(1);
    run("hungry", {&size.view});
    run("hungry", {&more.view});
    before = n == 8 ? pages() : before;
  }
  EXPECT_LT(pages() - before, (8 << 20) / 4096);
}

TEST_F(RunTest, WorkspaceOutOfMemory) {
  for (int64_t bytes : {int64_t(1) << 46, int64_t(1) << 62, INT64_MAX, int64_t(-1)}) {
    Tensor<int64_t> size({}, bytes);
    // What leaves 63 bits is no number of bytes that anybody asked for.
    bool isSize = bytes > 0 && bytes < INT64_MAX;
    run("hungry", {&size.view}, ATTNRT_OUT_OF_MEMORY,
        isSize ? "cannot allocate " + std::to_string(bytes) + " bytes"
               : std::string("cannot allocate the workspace of a run: its size in bytes is beyond 63 bits"));
    size.data()[0] = 5000;
    EXPECT_EQ(valuesOf<int64_t>(*run("hungry", {&size.view})), Ints{0});
  }
}

TEST_F(RunTest, CodeThatBreaksItsContract) {
  run("stops", {}, ATTNRT_INTERNAL, "entry 'stops' stopped with 1 and without a reason");
  run("forgets", {}, ATTNRT_INTERNAL, "entry 'forgets' did not make output 'y'");
  run("misshapes", {}, ATTNRT_INTERNAL, "output 'y' with shape 63, dimension 0 is declared as 64");
  run("repeats", {}, ATTNRT_INTERNAL, "asked for output 0 of rank 1, which it doesn't declare or asked for before");
  for (int64_t number : {1, 7, -1}) { // of a message
    Tensor<int64_t> message({}, number);
    run("mutes", {&message.view}, ATTNRT_OUT_OF_RANGE, "the model's code reports an error without a message");
  }
}

#if defined(__x86_64__)
TEST_F(RunTest, CallersFloatingPointStateDoesNotMatter) {
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040 | 0x6000); // flush to zero, denormals are zero, round to zero
  Managed y = run("tiny", {});
  unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & 0xffc0, (before | 0x8040 | 0x6000) & 0xffc0) << "the caller's state is restored";
  for (float value : valuesOf<float>(*y))
    EXPECT_NE(value, 0.0f);
}
#endif

TEST_F(RunTest, NullArguments) {
  EXPECT_EQ(attnrt_session_run(nullptr, nullptr, nullptr, 0, nullptr, 0), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_session_run(session.get(), nullptr, nullptr, 2, nullptr, 1), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("inputs is NULL"));
  LookupInputs in;
  const DLTensor *inputs[] = {&in.ids.view, &in.x.view};
  EXPECT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, nullptr, 1), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("outputs is NULL"));
  EXPECT_EQ(attnrt_session_create(nullptr, nullptr, nullptr), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_model_get_info(model.get(), nullptr), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_cancel_create(nullptr), ATTNRT_INVALID_ARGUMENT);
  attnrt_session_destroy(nullptr);
  attnrt_model_release(nullptr);
  attnrt_cancel_request(nullptr);
  attnrt_cancel_destroy(nullptr);
}

TEST_F(RunTest, MarksReachTheirListener) {
  Tensor<int64_t> count({}, 2), x({3}, 7);
  const DLTensor *inputs[] = {&count.view, &x.view};
  std::vector<std::array<int64_t, 3>> marks;
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "regions";
  for (bool listens : {true, false}) {
    options.on_mark =
        listens ? [](void *context, int32_t region, int64_t flops,
                     int64_t bytes) { static_cast<decltype(marks) *>(context)->push_back({region, flops, bytes}); }
                : decltype(options.on_mark)();
    options.mark_context = &marks;
    attnrt_output output = {};
    ASSERT_EQ(attnrt_session_run(session.get(), &options, inputs, 2, &output, 1), ATTNRT_OK) << attnrt_last_error();
    Managed y(output.tensor);
    EXPECT_EQ(valuesOf<int64_t>(*y), std::vector<int64_t>({9, 9, 9}));
  }
  EXPECT_EQ(marks, (std::vector<std::array<int64_t, 3>>{{0, 0, 0}, {1, 10, 20}}));
}

TEST_F(RunTest, OptionsOfOtherVersions) {
  // Older: a shorter structure, the rest are defaults.
  LookupInputs in;
  const DLTensor *inputs[] = {&in.ids.view, &in.x.view};
  attnrt_output output = {};
  attnrt_run_options older = ATTNRT_RUN_OPTIONS_INIT;
  older.struct_size = offsetof(attnrt_run_options, cancel);
  older.timeout_ns = -1; // beyond struct_size
  ASSERT_EQ(attnrt_session_run(session.get(), &older, inputs, 2, &output, 1), ATTNRT_OK) << attnrt_last_error();
  Managed y(output.tensor);
  // Newer: fine as long as what we don't know is not set.
  struct {
    attnrt_session_options known;
    int64_t extra;
  } newer = {ATTNRT_SESSION_OPTIONS_INIT, 0};
  newer.known.struct_size = sizeof(newer);
  attnrt_session *made = nullptr;
  EXPECT_EQ(attnrt_session_create(model.get(), &newer.known, &made), ATTNRT_OK);
  attnrt_session_destroy(made);
  newer.extra = 1;
  EXPECT_EQ(attnrt_session_create(model.get(), &newer.known, &made), ATTNRT_UNSUPPORTED);
  // Of any size that may be one.
  alignas(attnrt_session_options) char largest[4097] = {};
  for (size_t size : {7, 8, 4096, 4097}) {
    memcpy(largest, &size, sizeof(size));
    made = nullptr;
    EXPECT_EQ(attnrt_session_create(model.get(), reinterpret_cast<attnrt_session_options *>(largest), &made),
              size == 8 || size == 4096 ? ATTNRT_OK : ATTNRT_INVALID_ARGUMENT);
    attnrt_session_destroy(made);
  }
  newer.known.struct_size = 0;
  EXPECT_EQ(attnrt_session_create(model.get(), &newer.known, &made), ATTNRT_INVALID_ARGUMENT);
}

TEST_F(RunTest, NoEntryHasState) {
  attnrt_state *state = nullptr;
  EXPECT_EQ(attnrt_state_create(session.get(), "lookup", &state), ATTNRT_UNSUPPORTED);
  EXPECT_TRUE(errorSays("entry 'lookup' has no state"));
  EXPECT_EQ(attnrt_state_create(session.get(), "nothing", &state), ATTNRT_NOT_FOUND);
  attnrt_state_destroy(nullptr);
}

TEST(StatusTest, HasNames) {
  for (int status = 0; status <= ATTNRT_IO; ++status)
    EXPECT_STRNE(attnrt_status_name(attnrt_status(status)), "unknown status");
  EXPECT_STREQ(attnrt_status_name(attnrt_status(99)), "unknown status");
  EXPECT_STREQ(attnrt_version(), "0.1.0");
}
} // namespace
