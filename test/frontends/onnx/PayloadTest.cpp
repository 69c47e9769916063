#include "frontends/onnx/Payload.h"
#include "frontends/onnx/Limits.h"
#include "gtest/gtest.h"
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace attn::onnx;
using Type = proto::TensorProto;

namespace {

proto::TensorProto tensorOf(int type, std::initializer_list<int64_t> dims) {
  proto::TensorProto tensor;
  tensor.set_data_type(type);
  for (int64_t dim : dims)
    tensor.add_dims(dim);
  return tensor;
}

struct Reading {
  std::optional<Payload> payload;
  PayloadError error;
};

Reading read(proto::TensorProto tensor, const std::string &model = "/nonexistent/model.onnx") {
  ExternalFiles files(model);
  Reading result;
  result.payload = readPayload(tensor, /*take=*/true, files, result.error);
  return result;
}

int64_t intAt(const Payload &payload, int64_t i) { return *std::get<Expr>(*payload.element(i)).constant(); }
double floatAt(const Payload &payload, int64_t i) { return std::get<double>(*payload.element(i)); }

TEST(Payload, RawData) {
  auto tensor = tensorOf(Type::FLOAT, {2});
  float values[] = {1.5f, -2.25f};
  tensor.set_raw_data(values, sizeof(values));
  Reading got = read(tensor);
  ASSERT_TRUE(got.payload);
  EXPECT_EQ(floatAt(*got.payload, 0), 1.5);
  EXPECT_EQ(floatAt(*got.payload, 1), -2.25);

  tensor.mutable_raw_data()->pop_back();
  EXPECT_EQ(read(tensor).error.message, "has 7 bytes, but its shape 2 of float32 needs 8");
  tensor.mutable_raw_data()->append("ab");
  EXPECT_EQ(read(tensor).error.message, "has 9 bytes, but its shape 2 of float32 needs 8");
}

TEST(Payload, TypedFields) {
  auto f32 = tensorOf(Type::FLOAT, {1});
  f32.add_float_data(0.5f);
  EXPECT_EQ(floatAt(*read(f32).payload, 0), 0.5);
  auto f64 = tensorOf(Type::DOUBLE, {1});
  f64.add_double_data(1e300);
  EXPECT_EQ(floatAt(*read(f64).payload, 0), 1e300);
  auto i64 = tensorOf(Type::INT64, {2});
  i64.add_int64_data(INT64_MIN);
  i64.add_int64_data(-1);
  EXPECT_EQ(intAt(*read(i64).payload, 0), INT64_MIN);
  auto u64 = tensorOf(Type::UINT64, {2});
  u64.add_uint64_data(UINT64_MAX);
  u64.add_uint64_data(7);
  EXPECT_FALSE(read(u64).payload->element(0)); // above 2^63 - 1
  EXPECT_EQ(intAt(*read(u64).payload, 1), 7);
  auto u32 = tensorOf(Type::UINT32, {1});
  u32.add_uint64_data(4000000000u);
  EXPECT_EQ(intAt(*read(u32).payload, 0), 4000000000);
  u32.set_uint64_data(0, uint64_t(1) << 32);
  EXPECT_EQ(read(u32).error.message, "element 0 is 4294967296, which its type cannot hold");
}

TEST(Payload, Int32DataCarriesSmallTypes) {
  for (auto [type, value] : {std::pair(int(Type::INT8), -128),
                             {Type::INT16, -32768},
                             {Type::UINT8, 255},
                             {Type::UINT16, 65535},
                             {Type::INT32, -5},
                             {Type::BOOL, 1}}) {
    auto tensor = tensorOf(type, {1});
    tensor.add_int32_data(value);
    EXPECT_EQ(intAt(*read(tensor).payload, 0), value);
  }
  auto u8 = tensorOf(Type::UINT8, {1});
  u8.add_int32_data(256);
  EXPECT_EQ(read(u8).error.message, "element 0 is 256, which its type cannot hold");
  auto f16 = tensorOf(Type::FLOAT16, {2});
  f16.add_int32_data(0x3e00); // 1.5
  f16.add_int32_data(0xfc00); // -inf
  EXPECT_EQ(floatAt(*read(f16).payload, 0), 1.5);
  EXPECT_EQ(floatAt(*read(f16).payload, 1), -INFINITY);
  auto bf16 = tensorOf(Type::BFLOAT16, {1});
  bf16.add_int32_data(0xc020); // -2.5
  EXPECT_EQ(floatAt(*read(bf16).payload, 0), -2.5);
}

TEST(Payload, BoolIsZeroOrOne) {
  auto tensor = tensorOf(Type::BOOL, {3});
  tensor.set_raw_data(std::string("\0\2\1", 3));
  Payload payload = *read(tensor).payload;
  EXPECT_EQ(std::string(payload.data.bytes.data(), 3), std::string("\0\1\1", 3));
}

TEST(Payload, ScalarsAndEmptyTensors) {
  auto scalar = tensorOf(Type::INT64, {});
  scalar.add_int64_data(3);
  EXPECT_EQ(read(scalar).payload->numElements(), 1);
  EXPECT_EQ(read(tensorOf(Type::INT64, {0})).payload->numElements(), 0);
  EXPECT_EQ(read(tensorOf(Type::INT64, {})).error.message, "has 0 bytes, but its shape scalar of int64 needs 8");
}

TEST(Payload, RefusesShapes) {
  EXPECT_EQ(read(tensorOf(Type::FLOAT, {2, -1})).error.message, "has a dimension of size -1");
  int64_t big = int64_t(1) << 32;
  EXPECT_EQ(read(tensorOf(Type::FLOAT, {big, big})).error.message,
            "of shape 4294967296x4294967296 is larger than the limit of 1099511627776 bytes");
  EXPECT_EQ(read(tensorOf(Type::FLOAT, {0, big, big})).error.message,
            "of shape 0x4294967296x4294967296 is larger than the limit of 1099511627776 bytes");
  EXPECT_TRUE(read(tensorOf(Type::FLOAT, {0, 1, 1, 1, 1, 1, 1, 1})).payload);
  EXPECT_EQ(read(tensorOf(Type::FLOAT, {0, 1, 1, 1, 1, 1, 1, 1, 1})).error.message, "has 9 dimensions, the limit is 8");
}

TEST(Payload, RefusesTypesAndMixtures) {
  Reading strings = read(tensorOf(Type::STRING, {1}));
  EXPECT_TRUE(strings.error.unsupported);
  EXPECT_EQ(strings.error.message, "has element type STRING, which is not supported");
  Reading unknown = read(tensorOf(99, {1}));
  EXPECT_FALSE(unknown.error.unsupported);
  EXPECT_EQ(unknown.error.message, "has the unknown element type 99");
  auto both = tensorOf(Type::FLOAT, {1});
  both.set_raw_data("abcd");
  both.add_float_data(1);
  EXPECT_EQ(read(both).error.message, "has both raw data and 1 typed elements");
  auto segment = tensorOf(Type::FLOAT, {0});
  segment.mutable_segment()->set_begin(0);
  EXPECT_EQ(read(segment).error.message, "is stored in segments, which ONNX does not define");
}

TEST(Limits, CheckedArithmetic) {
  EXPECT_EQ(checkedAdd(INT64_MAX, 0), INT64_MAX);
  EXPECT_EQ(checkedAdd(INT64_MAX, 1), std::nullopt);
  EXPECT_EQ(checkedMul(int64_t(1) << 31, int64_t(1) << 31), int64_t(1) << 62);
  EXPECT_EQ(checkedMul(int64_t(1) << 32, int64_t(1) << 31), std::nullopt);
  EXPECT_EQ(checkedElements({2, 0, 3}), 0);
  EXPECT_EQ(checkedElements({0, INT64_MAX, 2}), std::nullopt);
  EXPECT_EQ(checkedElements({3, -1}), std::nullopt);
  EXPECT_EQ(checkedBytes({int64_t(1) << 38}, 4), int64_t(kMaxTensorBytes));
  EXPECT_EQ(checkedBytes({(int64_t(1) << 38) + 1}, 4), std::nullopt);
}

TEST(Scalars, RoundAndWrite) {
  EXPECT_EQ(roundTo(DType::F32, 0.1), double(0.1f));
  EXPECT_EQ(roundTo(DType::F16, 65504), 65504);
  EXPECT_EQ(roundTo(DType::F16, 70000), INFINITY);
  EXPECT_EQ(roundTo(DType::BF16, 1.001), 1.0);
  char bytes[8];
  EXPECT_TRUE(writeScalar(Expr(255), DType::U8, bytes));
  EXPECT_FALSE(writeScalar(Expr(256), DType::U8, bytes));
  EXPECT_FALSE(writeScalar(Expr(-1), DType::U64, bytes));
  EXPECT_FALSE(writeScalar(Expr(2), DType::Bool, bytes));
  EXPECT_FALSE(writeScalar(1.5, DType::I32, bytes));
}

//===----------------------------------------------------------------------===//
// External data
//===----------------------------------------------------------------------===//

class External : public ::testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/attnc-external-XXXXXX";
    ASSERT_TRUE(mkdtemp(name));
    root = name;
    mkdir((root + "/models").c_str(), 0700);
    mkdir((root + "/models/sub").c_str(), 0700);
    mkdir((root + "/models_evil").c_str(), 0700);
    write("models/data.bin", "abcdefgh");
    write("models/sub/data.bin", "abcdefgh");
    write("models_evil/data.bin", "secret!!");
    write("secret.bin", "secret!!");
  }
  void TearDown() override { std::system(("rm -rf " + root).c_str()); }
  void write(const std::string &path, const std::string &bytes) { std::ofstream(root + "/" + path) << bytes; }
  void link(const std::string &target, const std::string &path) {
    ASSERT_EQ(symlink(target.c_str(), (root + "/models/" + path).c_str()), 0);
  }

  /// What reading `length` bytes says; "" and the bytes in `got` when all is well.
  std::string open(const std::string &location, std::map<std::string, std::string> more = {}, int64_t length = 8) {
    auto tensor = tensorOf(Type::UINT8, {length});
    tensor.set_data_location(Type::EXTERNAL);
    more["location"] = location;
    for (const auto &[key, value] : more) {
      auto *entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    Reading reading = read(tensor, root + "/models/model.onnx");
    got = reading.payload ? std::string(reading.payload->data.bytes.begin(), reading.payload->data.bytes.end()) : "";
    return reading.error.message;
  }

  std::string root, got;
};

TEST_F(External, ReadsBeneathTheModel) {
  EXPECT_EQ(open("data.bin"), "");
  EXPECT_EQ(got, "abcdefgh");
  EXPECT_EQ(open("sub/data.bin", {{"offset", "3"}, {"length", "5"}, {"checksum", "?"}}, 5), "");
  EXPECT_EQ(got, "defgh");
}

TEST_F(External, RefusesEveryWayOut) {
  const char *folder = "the location leaves the model's folder";
  const char *plain = "the location is not a plain relative path";
  auto said = [&](const std::string &location) {
    std::string message = open(location);
    size_t at = message.find("': ");
    return at == std::string::npos ? message : message.substr(at + 3);
  };
  EXPECT_EQ(said("../secret.bin"), folder);        // CVE-2022-25882
  EXPECT_EQ(said("sub/../../secret.bin"), folder); // CVE-2024-27318
  EXPECT_EQ(said("../models_evil/data.bin"), folder);
  EXPECT_EQ(said(root + "/secret.bin"), "the location is an absolute path");
  EXPECT_EQ(said(""), "the location is empty");
  EXPECT_EQ(said("./data.bin"), plain);
  EXPECT_EQ(said("sub//data.bin"), plain);
  EXPECT_EQ(said("..\\secret.bin"), plain);
  EXPECT_EQ(said("C:secret.bin"), plain);
  EXPECT_EQ(said("*/_ORT_MEM_ADDR_/*"), plain);
  EXPECT_EQ(said(std::string("data.bin\0x", 10)), "the location is not a file name");
  EXPECT_EQ(said("\xff\xfe"), "the location is not a file name");
  EXPECT_EQ(said(std::string(kMaxNameBytes + 1, 'a')), "the location has 4097 bytes, the limit is 4096");

  const char *symbolic = "the location is or passes through a symbolic link, which might lead anywhere; copy the files "
                         "(cp -rL, or hf download --local-dir)";
  link("../secret.bin", "link.bin"); // CVE-2026-27489
  EXPECT_EQ(said("link.bin"), symbolic);
  link("data.bin", "inside.bin"); // also one that stays inside
  EXPECT_EQ(said("inside.bin"), symbolic);
  link("..", "up"); // CVE-2026-34447
  EXPECT_EQ(said("up/secret.bin"), symbolic);
  link("/proc/self/root", "magic");
  EXPECT_EQ(said("magic/etc/passwd"), symbolic);
  ASSERT_EQ(::link((root + "/secret.bin").c_str(), (root + "/models/hard.bin").c_str()), 0); // CVE-2026-34446
  EXPECT_EQ(said("hard.bin"), "the file has 2 names (hard links), and must have one");
  EXPECT_EQ(said("sub"), "it is not a regular file");
  ASSERT_EQ(mkfifo((root + "/models/fifo").c_str(), 0600), 0);
  EXPECT_EQ(said("fifo"), "it is not a regular file");
  EXPECT_EQ(said("missing.bin"), "it cannot be opened: No such file or directory");
}

TEST_F(External, ChecksOffsetAndLength) {
  EXPECT_EQ(open("data.bin", {{"offset", "1"}}),
            "external data 'data.bin': bytes 1 to 1 + 8 are not within its 8 bytes");
  EXPECT_EQ(open("data.bin", {{"length", "7"}}),
            "external data 'data.bin': has length 7, but the tensor needs 8 bytes");
  EXPECT_EQ(open("data.bin", {{"offset", "-1"}}),
            "the offset of its external data, '-1', is not a number in [0, 2^63)");
  EXPECT_EQ(open("data.bin", {{"offset", "9223372036854775808"}}),
            "the offset of its external data, '9223372036854775808', is not a number in [0, 2^63)");
  EXPECT_EQ(
      open("data.bin", {{"offset", "9223372036854775807"}}),
      "external data 'data.bin': bytes 9223372036854775807 to 9223372036854775807 + 8 are not within its 8 bytes");
  EXPECT_EQ(open("data.bin", {{"length", "0x8"}}),
            "the length of its external data, '0x8', is not a number in [0, 2^63)");
}

} // namespace
