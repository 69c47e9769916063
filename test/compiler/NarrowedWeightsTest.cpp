// Panels of weights in fewer bits.
#include "test/compiler/Weights.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace attn;

namespace {

/// 1/3, -2/3, ... in 3 rows and 5 columns: of panels of 4 columns there are two, and the last of pairs of rows is half.
struct NarrowedWeights : Weights {
  NarrowedWeights() : w(15) {
    for (int i = 0; i < 15; ++i)
      w[i] = (i % 2 ? -1.0f : 1.0f) * (i + 1) / 3;
  }

  /// What `global`, named p, is made to; nothing where it cannot be made.
  std::vector<char> bytes(const std::string &global) {
    store.addCopy("w", ArrayRef<char>(reinterpret_cast<char *>(w.data()), sizeof(float) * w.size()));
    OwningOpRef<ModuleOp> module = parse("attn.global @w : tensor<3x5xf32> = #attn.initializer<\"w\">\n"
                                         "attn.global @t : tensor<5x3xf32> = #attn.transpose<@w, [1, 0]>\n" +
                                         global);
    std::vector<char> result;
    FailureOr<WeightPlan> plan = WeightPlan::create(*module, {"p"}, store);
    EXPECT_TRUE(succeeded(plan));
    auto append = [&](ArrayRef<char> part) {
      result.insert(result.end(), part.begin(), part.end());
      return true;
    };
    if (failed(plan) || failed(plan->write(*module, store, append, &narrowed)))
      result.clear();
    return result;
  }

  static std::string sourceOf(bool transposed) {
    return transposed ? "@t, transposed = true" : "@w, transposed = false";
  }
  /// Element (row, column), 0 where panels are filled up.
  float at(int64_t row, int64_t column) const { return row < 3 && column < 5 ? w[row * 5 + column] : 0; }

  std::vector<float> w;
  std::vector<NarrowedWeight> narrowed;
};

TEST_F(NarrowedWeights, Bf16) {
  for (bool transposed : {false, true}) {
    std::string source = sourceOf(transposed);
    narrowed.clear();
    std::vector<char> bf16 =
        bytes("attn.global @p : tensor<2x2x8xbf16> = #attn.narrow_panels<" + source + ", width = 4, group = 0>");
    ASSERT_EQ(bf16.size(), 2u * 2 * 8 * 2);
    ASSERT_EQ(narrowed.size(), 1u);
    EXPECT_EQ(narrowed[0].name, "w");
    EXPECT_EQ(narrowed[0].lost.elements, 15u); // not those that fill up the panels
    EXPECT_GT(narrowed[0].lost.maxError, 0);
    EXPECT_LE(narrowed[0].lost.meanError(), 1.0 / 256);
    for (int64_t row = 0; row < 4; ++row)
      for (int64_t column = 0; column < 8; ++column) {
        uint16_t half;
        std::memcpy(&half, &bf16[2 * ((column / 4 * 2 + row / 2) * 8 + 2 * (column % 4) + row % 2)], 2);
        uint32_t word = uint32_t(half) << 16;
        float got;
        std::memcpy(&got, &word, sizeof got);
        float want = at(row, column);
        EXPECT_NEAR(got, want, std::fabs(want) / 256) << row << ' ' << column;
      }
  }
}

TEST_F(NarrowedWeights, SumsOfBf16) {
  for (bool transposed : {false, true}) {
    std::string source = sourceOf(transposed);
    for (int64_t parts : {2, 3}) { // K padded to 32 rows
      std::string shape = "2x16x" + std::to_string(8 * parts) + "xbf16";
      std::vector<char> split = bytes("attn.global @p : tensor<" + shape + "> = #attn.narrow_panels<" + source +
                                      ", width = 4, group = 0 depth 32 parts " + std::to_string(parts) + ">");
      ASSERT_EQ(split.size(), 2u * 16 * 8 * parts * 2);
      EXPECT_LE(narrowed.back().lost.meanError(), std::ldexp(1, -8 * parts));
      for (int64_t row = 0; row < 32; ++row)
        for (int64_t column = 0; column < 8; ++column) {
          double got = 0, want = at(row, column);
          for (int64_t part = 0; part < parts; ++part) {
            int64_t at = ((column / 4 * 16 + row / 2) * parts + part) * 8 + 2 * (column % 4) + row % 2;
            uint32_t word = 0;
            std::memcpy(reinterpret_cast<char *>(&word) + 2, &split[2 * at], 2);
            float value;
            std::memcpy(&value, &word, sizeof value);
            EXPECT_LE(std::fabs(value), std::ldexp(std::fabs(want), 1 - 8 * part)) << row << ' ' << column;
            got += value;
          }
          EXPECT_NEAR(got, want, std::ldexp(std::fabs(want), -8 * parts)) << row << ' ' << column;
        }
    }
  }
}

TEST_F(NarrowedWeights, Int8) {
  for (bool transposed : {false, true}) {
    std::string source = sourceOf(transposed);
    for (int64_t group : {1, 2, 3, 100}) {
      int64_t groups = (3 + group - 1) / group;
      std::string common = source + ", width = 4, group = " + std::to_string(group) + ">";
      std::vector<char> steps = bytes("attn.global @p : tensor<2x3x4xi8> = #attn.narrow_panels<" + common);
      std::vector<char> scaleBytes =
          bytes("attn.global @p : tensor<2x" + std::to_string(groups) + "x4xf32> = #attn.panel_scales<" + common);
      ASSERT_EQ(steps.size(), 24u);
      std::vector<float> scales(scaleBytes.size() / 4);
      ASSERT_EQ(scales.size(), 8u * groups);
      std::memcpy(scales.data(), scaleBytes.data(), scaleBytes.size());
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t column = 0; column < 8; ++column) {
          float scale = scales[(column / 4 * groups + row / group) * 4 + column % 4];
          float got = scale * static_cast<int8_t>(steps[(column / 4 * 3 + row) * 4 + column % 4]);
          EXPECT_NEAR(got, at(row, column), 0.501 * scale) << group << ' ' << row << ' ' << column;
        }
    }
  }
}

// Ties to even, denormals, the largest float, what has no number.
TEST_F(NarrowedWeights, AreRounded) {
  w = {1 + 1 / 256.0f, 1 + 3 / 256.0f, -0.0f, 3e-8f, 65519, -3.4028235e38f, INFINITY, NAN, 0, 0, 0, 0, 0, 0, 0};
  for (auto [type, want] :
       {std::pair("bf16", std::vector<uint16_t>{0x3f80, 0x3f82, 0x8000, 0x3301, 0x4780, 0xff7f, 0x7f80, 0x7fc0}),
        std::pair("f16", std::vector<uint16_t>{0x3c04, 0x3c0c, 0x8000, 0x0001, 0x7bff, 0xfbff, 0x7c00, 0x7e00})}) {
    narrowed.clear();
    std::vector<char> got = bytes("attn.global @p : tensor<5x3x" + std::string(type) + "> = #attn.reshape<@w>");
    ASSERT_EQ(got.size(), 30u);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), 16), 0) << type;
    ASSERT_EQ(narrowed.size(), 1u);
    EXPECT_EQ(narrowed[0].storage, type);
    EXPECT_EQ(narrowed[0].lost.elements, 15u);
    EXPECT_GT(narrowed[0].lost.maxError, 0);
  }
}

// Numbers of e4m3, the scale of each column 1: between two of them the nearer, else the one whose code is even.
TEST_F(NarrowedWeights, Float8) {
  constexpr float kLeast = 0x1p-9f; // below the normal numbers all are multiples of it
  w.assign(5, 127);
  for (float value : {1.0f, 1.0625f, 1.1875f, kLeast, 0.5f * kLeast})
    w.push_back(value);
  for (float value : {-7.5f * kLeast, 1.5f * kLeast, -0.25f * kLeast, 17.0f, -19.0f})
    w.push_back(value);
  const uint8_t want[] = {0x70, 0x70, 0x70, 0x70, 0x70, 0x38, 0x38, 0x3a, 0x01, 0x00, 0x88, 0x02, 0x80, 0x58, 0xda};
  for (bool transposed : {false, true}) {
    std::string shape = transposed ? "5x3" : "3x5";
    std::vector<char> codes = bytes("attn.global @p : tensor<" + shape + "xf8E4M3FN> = #attn.block_codes<" +
                                    sourceOf(transposed) + ", block = 3, bits = 8>");
    ASSERT_EQ(codes.size(), 15u);
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t column = 0; column < 5; ++column)
        EXPECT_EQ(static_cast<uint8_t>(codes[transposed ? column * 3 + row : row * 5 + column]), want[row * 5 + column])
            << row << ' ' << column;
    EXPECT_EQ(narrowed.back().storage, "fp8");
    EXPECT_EQ(narrowed.back().lost.maxError, 1) << "127 is stored as 128";
  }
}

// What a type cannot hold.
TEST_F(NarrowedWeights, BeyondTheType) {
  w = {INFINITY, -INFINITY, NAN, 3.4e38f, -0.0f, 1e-45f, 1e-40f, 0, 0, 0, 0, 0, 0, 0, 0};
  std::vector<char> bf16 = bytes("attn.global @p : tensor<1x2x10xbf16> = #attn.narrow_panels<@w, transposed = false, "
                                 "width = 5, group = 0>");
  ASSERT_EQ(bf16.size(), 40u);
  auto half = [&](int64_t row, int64_t column) {
    uint16_t bits;
    std::memcpy(&bits, &bf16[2 * (row / 2 * 10 + 2 * column + row % 2)], 2);
    return bits;
  };
  EXPECT_EQ(half(0, 0), 0x7f80);
  EXPECT_EQ(half(0, 1), 0xff80);
  EXPECT_EQ(half(0, 2) & 0x7fc0, 0x7fc0);
  EXPECT_EQ(half(0, 3), 0x7f7f); // the largest: what is finite stays so
  EXPECT_EQ(narrowed[0].lost.maxValue, double(3.4e38f));
  EXPECT_NEAR(narrowed[0].lost.maxError, 3.4e38 - 3.3895314e38, 1e33);
  EXPECT_EQ(half(0, 4), 0x8000);
  std::string message;
  {
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &d) { message += d.str(); });
    EXPECT_TRUE(bytes("attn.global @p : tensor<1x3x5xi8> = #attn.narrow_panels<@w, transposed = false, width = 5, "
                      "group = 3>")
                    .empty());
  }
  EXPECT_NE(message.find("not finite, which int8 cannot hold"), std::string::npos) << message;
}

// The largest float, of which the scale times 127 would be infinite.
TEST_F(NarrowedWeights, ScaleOfTheLargest) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  w.assign(15, 1);
  w[0] = kLargest;
  w[1] = -kLargest;
  std::vector<char> most =
      bytes("attn.global @p : tensor<1x1x5xf32> = #attn.panel_scales<@w, transposed = false, width = 5, group = 3>");
  ASSERT_EQ(most.size(), 20u);
  float scale;
  std::memcpy(&scale, most.data(), sizeof scale);
  EXPECT_NEAR(127 * scale, kLargest, 1e32);
  bytes("attn.global @p : tensor<1x3x5xi8> = #attn.narrow_panels<@w, transposed = false, width = 5, group = 3>");
  ASSERT_EQ(narrowed.size(), 1u);
  EXPECT_EQ(narrowed[0].lost.maxValue, double(kLargest));
  EXPECT_GE(narrowed[0].lost.maxError, 1) << "the column's ones are lost";
}

// A scale below the normal numbers, and columns of nothing.
TEST_F(NarrowedWeights, ScaleOfTheLeast) {
  w.assign(15, 0);
  w[5] = 1e-45f;
  w[6] = 1e-40f;
  EXPECT_EQ(bytes("attn.global @p : tensor<1x3x5xi8> = #attn.narrow_panels<@w, transposed = false, width = 5, "
                  "group = 3>")
                .size(),
            15u);
}

} // namespace
