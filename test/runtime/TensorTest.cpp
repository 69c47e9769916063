// Tensors that do not fit what an entry declares, and attnrt_tensor_create.
#include "test/runtime/Support.h"

using namespace attn::test;

namespace {
class TensorTest : public FixtureTest {
protected:
  Tensor<int64_t> ids{{3}};
  Tensor<float> x{{3, 4}};
  Tensor<float> y{{3, 4}};

  void expectRefused(const std::string &message) {
    run("lookup", {&ids.view, &x.view}, ATTNRT_INVALID_ARGUMENT, message);
  }
  void expectOutputRefused(const std::string &message, uint64_t capacity = 0) {
    const DLTensor *inputs[] = {&ids.view, &x.view};
    attnrt_output output = {&y.view, capacity, nullptr};
    EXPECT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, &output, 1), ATTNRT_INVALID_ARGUMENT);
    EXPECT_TRUE(errorSays(message));
  }
};

TEST_F(TensorTest, Counts) {
  run("lookup", {&ids.view}, ATTNRT_INVALID_ARGUMENT, "entry 'lookup' has 2 inputs, not 1");
  run("lookup", {&ids.view, &x.view, &x.view}, ATTNRT_INVALID_ARGUMENT, "entry 'lookup' has 2 inputs, not 3");
  const DLTensor *inputs[] = {&ids.view, &x.view};
  attnrt_output outputs[2] = {};
  EXPECT_EQ(attnrt_session_run(session.get(), nullptr, inputs, 2, outputs, 2), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("entry 'lookup' has 1 outputs, not 2"));
  EXPECT_EQ(attnrt_session_run(session.get(), nullptr, inputs, -1, outputs, 1), ATTNRT_INVALID_ARGUMENT);
}

TEST_F(TensorTest, Null) {
  run("lookup", {&ids.view, nullptr}, ATTNRT_INVALID_ARGUMENT, "input 'x' is NULL");
  x.view.data = nullptr;
  expectRefused("input 'x' has no data (NULL), 48 bytes are expected");
}

TEST_F(TensorTest, NullShape) {
  x.view.shape = nullptr;
  expectRefused("input 'x' has no shape");
}

TEST_F(TensorTest, OffsetThatWraps) {
  x.view.byte_offset = UINT64_MAX - 63;
  expectRefused("input 'x': its byte_offset of 18446744073709551552 leads beyond the address space");
  x.view.byte_offset = UINT64_MAX - 63 - reinterpret_cast<uintptr_t>(x.view.data) + 32;
  expectRefused("input 'x': its 48 bytes lead beyond the address space");
}

// Of a library that knows more devices than our header.
TEST_F(TensorTest, OtherDevices) {
  for (int32_t type : {0, 17, -1, INT32_MAX}) {
    memcpy(&x.view.device.device_type, &type, sizeof(type));
    expectRefused("input 'x' is on DLPack device type " + std::to_string(type) + ", not on the CPU (1)");
  }
}

TEST_F(TensorTest, DType) {
  x.view.dtype.bits = 64;
  expectRefused("input 'x' is of type float64, the model has float32");
  x.view.dtype = {kDLFloat, 32, 2};
  expectRefused("input 'x' is of type unknown (DLPack code 2, 32 bits, 2 lanes), the model has float32");
  x.view.dtype = {kDLComplex, 64, 1};
  expectRefused("input 'x' is of type unknown");
}

// A scalar may have dimensions of one element.
TEST_F(TensorTest, Scalars) {
  Tensor<int64_t> one({1, 1}, 5), two({1, 2}, 5), deep(std::vector<int64_t>(33, 1), 5);
  EXPECT_EQ(valuesOf<int64_t>(*run("hungry", {&one.view})), std::vector<int64_t>{0});
  run("hungry", {&two.view}, ATTNRT_INVALID_ARGUMENT, "has rank 2, in the model 0");
  run("hungry", {&deep.view}, ATTNRT_INVALID_ARGUMENT, "has rank 33, in the model 0");
  one.view.shape = nullptr;
  run("hungry", {&one.view}, ATTNRT_INVALID_ARGUMENT, "");
}

TEST_F(TensorTest, Rank) {
  x.view.ndim = 1;
  expectRefused("input 'x' has rank 1, in the model 2");
  x.view.ndim = -1;
  expectRefused("input 'x' has rank -1, in the model 2");
  x.view.ndim = INT32_MAX;
  expectRefused("input 'x' has rank 2147483647, in the model 2");
}

TEST_F(TensorTest, StaticSize) {
  x.shape[1] = 5;
  expectRefused("input 'x': dimension 1 has size 5, not 4");
}

TEST_F(TensorTest, NegativeSize) {
  ids.shape[0] = -3;
  expectRefused("input 'ids': dimension 0 has the negative size -3");
}

TEST_F(TensorTest, NamesakesDiffer) {
  x.shape[0] = 2;
  expectRefused("input 'x': dimension 0 ('n') has size 2, but 3 in input 'ids'");
}

TEST_F(TensorTest, HugeSize) {
  ids.shape[0] = x.shape[0] = (int64_t(1) << 40) + 1;
  expectRefused("input 'ids': dimension 0 has size 1099511627777, beyond 1099511627776");
}

TEST_F(TensorTest, Device) {
  x.view.device.device_type = kDLCUDA;
  expectRefused("input 'x' is on DLPack device type 2, not on the CPU (1)");
}

TEST_F(TensorTest, OutputShape) {
  y.shape[0] = 4;
  expectOutputRefused("output 'y' has shape 3x4, its buffer 4x4");
  y.shape[1] = 3;
  expectOutputRefused("output 'y': dimension 1 has size 3, not 4");
}

TEST_F(TensorTest, OutputDType) {
  y.view.dtype.code = kDLInt;
  expectOutputRefused("output 'y' is of type int32");
}

TEST_F(TensorTest, OutputStrides) {
  y.strides = {1, 3};
  y.view.strides = y.strides.data();
  expectOutputRefused("output 'y': the buffer's strides are not those of a dense row-major tensor");
}

TEST_F(TensorTest, OutputNull) {
  y.view.data = nullptr;
  expectOutputRefused("output 'y' has no data (NULL)");
  expectOutputRefused("output 'y' has no data (NULL)", 48);
}

TEST_F(TensorTest, OutputOverlapsInput) {
  y.view.data = x.data() + 11;
  expectOutputRefused("output 'y' overlaps input 'x'");
}

TEST_F(TensorTest, OutputsOverlap) {
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "weights";
  Tensor<float> a({5, 7}), b({5, 7});
  attnrt_output outputs[] = {{&a.view, 0, nullptr}, {&b.view, 0, nullptr}, {&a.view, 0, nullptr}};
  EXPECT_EQ(attnrt_session_run(session.get(), &options, nullptr, 0, outputs, 3), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("output 'panels-t' overlaps output 'plain'"));
}

TEST(TensorCreateTest, MakesTensors) {
  DLManagedTensor *tensor = nullptr;
  int64_t shape[] = {2, 3, 5};
  ASSERT_EQ(attnrt_tensor_create(ATTNRT_BF16, 3, shape, &tensor), ATTNRT_OK);
  Managed owner(tensor);
  EXPECT_EQ(tensor->dl_tensor.dtype.code, kDLBfloat);
  EXPECT_EQ(tensor->dl_tensor.dtype.bits, 16);
  EXPECT_EQ(tensor->dl_tensor.strides[0], 15);
  EXPECT_EQ(tensor->dl_tensor.strides[1], 5);
  EXPECT_EQ(tensor->dl_tensor.strides[2], 1);
  memset(tensor->dl_tensor.data, 1, 60);
}

TEST(TensorCreateTest, Refuses) {
  DLManagedTensor *tensor = nullptr;
  int64_t large[] = {INT64_MAX, INT64_MAX}, negative[] = {1, -1}, wide[40] = {}, empty[] = {INT64_MAX, 0, INT64_MAX};
  EXPECT_EQ(attnrt_tensor_create(ATTNRT_F32, 2, large, &tensor), ATTNRT_OUT_OF_MEMORY);
  EXPECT_EQ(attnrt_tensor_create(ATTNRT_I8, 1, large, &tensor), ATTNRT_OUT_OF_MEMORY);
  EXPECT_EQ(attnrt_tensor_create(ATTNRT_F32, 2, negative, &tensor), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_tensor_create(ATTNRT_F32, 40, wide, &tensor), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_tensor_create(0x0203, 1, large, &tensor), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(attnrt_tensor_create(ATTNRT_F32, 1, nullptr, &tensor), ATTNRT_INVALID_ARGUMENT);
  EXPECT_EQ(tensor, nullptr);
  EXPECT_EQ(attnrt_tensor_create(ATTNRT_F32, 3, empty, &tensor), ATTNRT_OK);
  tensor->deleter(tensor);
}

TEST(DTypeTest, NamesAndSizes) {
  EXPECT_STREQ(attnrt_dtype_name(ATTNRT_BOOL), "bool");
  EXPECT_STREQ(attnrt_dtype_name(-1), "unknown");
  EXPECT_EQ(attnrt_dtype_size(ATTNRT_BF16), 2u);
  EXPECT_EQ(attnrt_dtype_size(0), 0u);
}
} // namespace
