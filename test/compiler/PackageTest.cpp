#include "test/compiler/Weights.h"

#include <random>
#include <tuple>

using namespace mlir;
using namespace attn;

namespace {

TEST_F(Weights, Transpose) {
  addFloats("w", 24);
  std::vector<float> got = evaluate(R"(
    attn.global @w : tensor<2x3x4xf32> = #attn.initializer<"w">
    attn.global @t : tensor<4x2x3xf32> = #attn.transpose<@w, [2, 0, 1]>)",
                                    "t");
  ASSERT_EQ(got.size(), 24u);
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 3; ++b)
      for (int c = 0; c < 4; ++c)
        EXPECT_EQ(got[(c * 2 + a) * 3 + b], (a * 3 + b) * 4 + c);
}

TEST_F(Weights, SliceAndConcatInEveryDimension) {
  addFloats("w", 12);
  const char *text = R"(
    attn.global @w : tensor<3x4xf32> = #attn.initializer<"w">
    attn.global @rows : tensor<2x4xf32> = #attn.slice<@w, dim 0 at 1 size 2>
    attn.global @columns : tensor<3x2xf32> = #attn.slice<@w, dim 1 at 1 size 2>
    attn.global @none : tensor<3x0xf32> = #attn.slice<@w, dim 1 at 4 size 0>
    attn.global @wide : tensor<3x6xf32> = #attn.concat<[@columns, @w], dim 1>
    attn.global @tall : tensor<5x4xf32> = #attn.concat<[@w, @rows], dim 0>)";
  EXPECT_EQ(evaluate(text, "rows"), (std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11}));
  addFloats("w", 12);
  EXPECT_EQ(evaluate(text, "columns"), (std::vector<float>{1, 2, 5, 6, 9, 10}));
  addFloats("w", 12);
  EXPECT_TRUE(evaluate(text, "none").empty());
  addFloats("w", 12);
  EXPECT_EQ(evaluate(text, "wide"), (std::vector<float>{1, 2, 0, 1, 2, 3, 5, 6, 4, 5, 6, 7, 9, 10, 8, 9, 10, 11}));
  addFloats("w", 12);
  EXPECT_EQ(evaluate(text, "tall").size(), 20u);
}

TEST_F(Weights, PackPanels) {
  for (bool transposed : {false, true}) {
    for (int64_t n : {1, 15, 16, 17, 33}) {
      int64_t k = 5;
      addFloats("w", k * n);
      std::string shape = transposed ? std::to_string(n) + "x5" : "5x" + std::to_string(n);
      std::string text = "attn.global @w : tensor<" + shape +
                         "xf32> = #attn.initializer<\"w\">\n"
                         "attn.global @p : tensor<" +
                         std::to_string((n + 15) / 16) +
                         "x5x16xf32> = "
                         "#attn.pack_panels<@w, transposed = " +
                         (transposed ? "true" : "false") + ", width = 16>";
      std::vector<float> got = evaluate(text, "p");
      ASSERT_EQ(got.size(), static_cast<size_t>((n + 15) / 16 * 5 * 16));
      for (int64_t row = 0; row < k; ++row)
        for (int64_t column = 0; column < (n + 15) / 16 * 16; ++column) {
          float want = column >= n ? 0 : transposed ? column * k + row : row * n + column;
          EXPECT_EQ(got[(column / 16 * k + row) * 16 + column % 16], want) << n << ' ' << row << ' ' << column;
        }
    }
  }
}

// In words: byte i of a word has rows i, i + 4, ..., the first in its low bits; signed numbers get half their range.
TEST_F(Weights, BytePanelsInWords) {
  int64_t k = 21, n = 5, width = 4;
  for (int64_t bits : {2, 4, 8})
    for (bool isUnsigned : {false, true})
      for (bool transposed : {false, true}) {
        std::vector<int8_t> w(k * n);
        int64_t half = int64_t(1) << (bits - 1), group = 32 / bits, steps = (k + group - 1) / group;
        for (size_t i = 0; i < w.size(); ++i)
          w[i] = static_cast<int8_t>((7 * i + 3) % (2 * half) - (isUnsigned ? 0 : half));
        store.addCopy("w", ArrayRef<char>(reinterpret_cast<char *>(w.data()), w.size()));
        std::string text = std::string("attn.global @w : tensor<") + (transposed ? "5x21" : "21x5") +
                           "xi8> = #attn.initializer<\"w\">\nattn.global @p : tensor<2x" + std::to_string(steps) +
                           "x4xi32> = #attn.byte_panels<@w, transposed = " + (transposed ? "true" : "false") +
                           ", width = 4, group = " + std::to_string(group) +
                           ", unsigned = " + (isUnsigned ? "true" : "false") + ">";
        OwningOpRef<ModuleOp> module = parse(text.c_str());
        std::vector<char> bytes;
        FailureOr<WeightPlan> plan = WeightPlan::create(*module, {"p"}, store);
        ASSERT_TRUE(succeeded(plan));
        ASSERT_TRUE(succeeded(plan->write(*module, store, [&](ArrayRef<char> part) {
          bytes.insert(bytes.end(), part.begin(), part.end());
          return true;
        })));
        ASSERT_EQ(bytes.size(), static_cast<size_t>(2 * steps * width * 4));
        for (int64_t column = 0; column < 8; ++column)
          for (int64_t row = 0; row < steps * group; ++row) {
            uint32_t word;
            std::memcpy(&word, &bytes[((column / width * steps + row / group) * width + column % width) * 4], 4);
            int64_t place = row % group, got = word >> (place % 4 * 8 + place / 4 * bits) & (2 * half - 1);
            int64_t want = 0;
            if (row < k && column < n)
              want = (w[transposed ? column * k + row : row * n + column] + (isUnsigned ? 0 : half)) & (2 * half - 1);
            EXPECT_EQ(got, want) << bits << ' ' << row << ' ' << column;
          }
      }
}

// Bytes stay what they are, but for 128 less where they were unsigned; groups of rows side by side, sums by column.
TEST_F(Weights, BytePanels) {
  int64_t k = 6, n = 5, width = 4;
  std::vector<int8_t> w(k * n);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<int8_t>(37 * i + 11);
  auto pack = [&](const std::string &shape, const std::string &global) {
    return evaluateBytes("attn.global @w : tensor<" + shape + "xi8> = #attn.initializer<\"w\">\n" + global, w);
  };
  for (bool transposed : {false, true})
    for (bool isUnsigned : {false, true})
      for (int64_t group : {1, 2, 4}) {
        std::string shape = transposed ? "5x6" : "6x5",
                    source = std::string("<@w, transposed = ") + (transposed ? "true" : "false") + ", width = 4";
        std::string flag = std::string(", unsigned = ") + (isUnsigned ? "true" : "false") + ">";
        int64_t steps = (k + group - 1) / group;
        std::vector<char> panels =
            pack(shape, "attn.global @p : tensor<2x" + std::to_string(steps) + "x" + std::to_string(width * group) +
                            "xi8> = #attn.byte_panels" + source + ", group = " + std::to_string(group) + flag);
        std::vector<char> sums = pack(shape, "attn.global @p : tensor<2x4xi32> = #attn.column_sums" + source + flag);
        ASSERT_EQ(panels.size(), static_cast<size_t>(2 * steps * width * group));
        ASSERT_EQ(sums.size(), 32u);
        for (int64_t column = 0; column < 8; ++column) {
          int32_t expected = 0, sum;
          for (int64_t row = 0; row < steps * group; ++row) {
            int8_t want = 0;
            if (row < k && column < n)
              want = w[transposed ? column * k + row : row * n + column] ^ (isUnsigned ? 0x80 : 0);
            expected += want;
            int64_t at = ((column / width * steps + row / group) * width + column % width) * group + row % group;
            EXPECT_EQ(static_cast<int8_t>(panels[at]), want) << row << ' ' << column << ' ' << group;
          }
          std::memcpy(&sum, &sums[column * sizeof sum], sizeof sum);
          EXPECT_EQ(sum, expected) << column;
        }
      }
}

// Steps in the order of what 16 bits hold: of 255 times two bytes side by side, of one step or of two together.
TEST_F(Weights, StepOrder) {
  constexpr int64_t kRows = 400, kColumns = 5, kWidth = 4, kGroup = 4, kSteps = kRows / kGroup;
  std::mt19937 random(1);
  for (bool transposed : {false, true})
    for (bool isUnsigned : {false, true})
      for (const char *type : {"i16", "i32"})
        for (int64_t range : {20, 40, 70, 128}) {
          std::vector<int8_t> w(kRows * kColumns);
          for (int8_t &byte : w)
            byte = static_cast<int8_t>(static_cast<int64_t>(random() % (2 * range)) - range);
          std::string shape = transposed ? "5x400" : "400x5";
          std::string text = "attn.global @w : tensor<" + shape + "xi8> = #attn.initializer<\"w\">\n" +
                             "attn.global @p : tensor<2x102x" + type +
                             "> = #attn.step_order<@w, transposed = " + (transposed ? "true" : "false") +
                             ", width = 4, group = 4, unsigned = " + (isUnsigned ? "true" : "false") + ">";
          std::vector<char> bytes = evaluateBytes(text, w);
          size_t size = StringRef(type) == "i16" ? 2 : 4;
          ASSERT_EQ(bytes.size(), 2 * (kSteps + 2) * size);
          for (int64_t panel = 0; panel < 2; ++panel) {
            auto number = [&](int64_t n) {
              int32_t value = 0; // none is negative
              std::memcpy(&value, &bytes[(panel * (kSteps + 2) + n) * size], size);
              return value;
            };
            auto fit = [&](ArrayRef<int64_t> steps) {
              for (int64_t column = panel * kWidth; column < std::min((panel + 1) * kWidth, kColumns); ++column)
                for (int64_t pair : {0, 2}) {
                  int most = 0, least = 0;
                  for (int64_t step : steps)
                    for (int64_t row : {step * kGroup + pair, step * kGroup + pair + 1}) {
                      auto byte = static_cast<uint8_t>(w[transposed ? column * kRows + row : row * kColumns + column]);
                      int stored = isUnsigned ? byte - 128 : static_cast<int8_t>(byte);
                      (stored > 0 ? most : least) += 255 * stored;
                    }
                  if (most > INT16_MAX || least < INT16_MIN)
                    return false;
                }
              return true;
            };
            int64_t doubles = number(0), narrow = number(1);
            ASSERT_TRUE(doubles % 2 == 0 && doubles + narrow <= kSteps);
            std::vector<bool> seen(kSteps);
            for (int64_t n = 0; n < kSteps; ++n) {
              int64_t step = number(2 + n);
              ASSERT_TRUE(step >= 0 && step < kSteps && !seen[step]) << step;
              seen[step] = true;
              EXPECT_EQ(fit(step), n < doubles + narrow) << step;
              if (n < doubles && n % 2)
                EXPECT_TRUE(fit({number(1 + n), step})) << step;
              int64_t next = step + 1; // narrow, too: with it there would be a double
              while (next < kSteps && !fit(next))
                ++next;
              if (n >= doubles && n < doubles + narrow && next < kSteps)
                EXPECT_FALSE(fit({step, next})) << step;
            }
            // Of small numbers all are doubles, of any none.
            if (range == 20 && !isUnsigned)
              EXPECT_EQ(doubles, kSteps);
            if (range == 128)
              EXPECT_LT(doubles, kSteps / 4);
          }
        }
}

TEST_F(Weights, StepOrderNeedsPairsAndRoom) {
  auto error = [&](const std::string &type, int64_t rows, int64_t group) {
    std::string shape = std::to_string(rows) + "x5", size = std::to_string(rows / group + 2);
    std::string text = "attn.global @w : tensor<" + shape + "xi8> = #attn.initializer<\"w\">\n" +
                       "attn.global @p : tensor<2x" + size + "x" + type +
                       "> = #attn.step_order<@w, transposed = false, width = 4, group = " + std::to_string(group) +
                       ", unsigned = false>";
    store.addCopy("w", std::vector<char>(rows * 5));
    return errorOf(text, "p");
  };
  EXPECT_EQ(error("i16", 12, 4), "accepted");
  EXPECT_NE(error("i16", 12, 3).find("expects an even group"), std::string::npos);
  EXPECT_NE(error("i8", 12, 4).find("an order in i32"), std::string::npos);
  EXPECT_EQ(error("i16", 32767 * 2, 2), "accepted");
  EXPECT_NE(error("i16", 32768 * 2, 2).find("i16 where that counts 32768 steps"), std::string::npos);
  EXPECT_EQ(error("i32", 32768 * 2, 2), "accepted");
}

TEST_F(Weights, EqualWeightsShareAPlace) {
  addFloats("a", 48);
  addFloats("tied", 48);
  addFloats("other", 48, 1);
  OwningOpRef<ModuleOp> module = parse(R"(
    attn.global @a : tensor<3x16xf32> = #attn.initializer<"a">
    attn.global @tied : tensor<3x16xf32> = #attn.initializer<"tied">
    attn.global @other : tensor<3x16xf32> = #attn.initializer<"other">
    attn.global @p : tensor<1x3x16xf32> = #attn.pack_panels<@a, transposed = false, width = 16>
    attn.global @q : tensor<1x3x16xf32> = #attn.pack_panels<@tied, transposed = false, width = 16>)");
  FailureOr<WeightPlan> plan = WeightPlan::create(*module, {"a", "tied", "other", "p", "q"}, store);
  ASSERT_TRUE(succeeded(plan));
  EXPECT_EQ(plan->offsetOf("a"), plan->offsetOf("tied"));
  EXPECT_NE(plan->offsetOf("a"), plan->offsetOf("other"));
  EXPECT_EQ(plan->offsetOf("p"), plan->offsetOf("q"));
  EXPECT_NE(plan->offsetOf("p"), plan->offsetOf("a"));
  EXPECT_EQ(plan->totalBytes(), 3u * 48 * 4);
  EXPECT_EQ(plan->offsetOf("nothing"), std::nullopt);
  std::vector<std::string> names;
  for (const WeightRow &row : plan->table()) {
    EXPECT_EQ(row.offset % WeightPlan::kAlignment, 0u);
    names.push_back(row.name);
  }
  // Both names of a shared place are listed, once a place.
  EXPECT_EQ(names, (std::vector<std::string>{"a", "tied", "other", "a", "tied"}));
  write(*module, *plan);
  EXPECT_EQ(store.lookup("a").size(), 0u) << "a source is dropped after its last use";
}

TEST_F(Weights, PartsSideBySideAreWeightsOfTheirOwn) {
  addFloats("a", 48);
  addFloats("b", 60, 100);
  OwningOpRef<ModuleOp> module = parse(R"(
    attn.global @a : tensor<3x16xf32> = #attn.initializer<"a">
    attn.global @b : tensor<3x20xf32> = #attn.initializer<"b">
    attn.global @pa : tensor<1x3x16xf32> = #attn.pack_panels<@a, transposed = false, width = 16>
    attn.global @pb : tensor<2x3x16xf32> = #attn.pack_panels<@b, transposed = false, width = 16>
    attn.global @ab : tensor<3x3x16xf32> = #attn.concat<[@pa, @pb], dim 0>
    attn.global @ba : tensor<3x3x16xf32> = #attn.concat<[@pb, @pa], dim 0>
    attn.global @again : tensor<3x3x16xf32> = #attn.concat<[@pa, @pb], dim 0>)");
  FailureOr<WeightPlan> plan = WeightPlan::create(*module, {"pb", "ab", "ba", "again"}, store);
  ASSERT_TRUE(succeeded(plan));
  // Who reads a part alone finds it in the whole; another order is another place.
  EXPECT_EQ(plan->offsetOf("ab"), 0u);
  EXPECT_EQ(plan->offsetOf("pb"), 3u * 16 * 4);
  EXPECT_EQ(plan->offsetOf("ba"), 9u * 16 * 4);
  EXPECT_EQ(plan->offsetOf("again"), 0u);
  EXPECT_EQ(plan->totalBytes(), 2u * 9 * 16 * 4);
  std::vector<std::tuple<std::string, uint64_t, uint64_t, std::string>> rows, want;
  for (const WeightRow &row : plan->table())
    rows.emplace_back(row.name, row.offset, row.size, row.layout);
  want = {{"a", 0, 192, "panels:16"},
          {"b", 192, 384, "panels:16"},
          {"b", 576, 384, "panels:16"},
          {"a", 960, 192, "panels:16"}};
  EXPECT_EQ(rows, want);
  std::vector<float> got = write(*module, *plan);
  ASSERT_EQ(got.size(), 288u);
  for (auto [offset, first] : {std::pair(0, 0), {48, 100}, {144, 100}, {240, 0}})
    EXPECT_EQ(got[offset], first);
  EXPECT_EQ(got[48 + 48], 116) << "the second panel of b";
}

TEST_F(Weights, Layouts) {
  addFloats("w", 48);
  addFloats("e", 3); // twelve bytes
  OwningOpRef<ModuleOp> module = parse(R"(
    attn.global @w : tensor<3x16xf32> = #attn.initializer<"w">
    attn.global @t : tensor<16x3xf32> = #attn.transpose<@w, [1, 0]>
    attn.global @p : tensor<1x3x16xf32> = #attn.pack_panels<@w, transposed = false, width = 16>
    attn.global @q : tensor<1x16x16xf32> = #attn.pack_panels<@t, transposed = false, width = 16>
    attn.global @s : tensor<3x2xf32> = #attn.slice<@w, dim 1 at 0 size 2>
    attn.global @b : tensor<1x2x32xbf16> = #attn.narrow_panels<@w, transposed = false, width = 16, group = 0>
    attn.global @i : tensor<1x3x16xi8> = #attn.narrow_panels<@w, transposed = false, width = 16, group = 3>
    attn.global @c : tensor<1x1x16xf32> = #attn.panel_scales<@w, transposed = false, width = 16, group = 3>
    attn.global @e : tensor<3x4xi8> = #attn.initializer<"e">
    attn.global @f : tensor<3x4xf8E4M3FN> = #attn.reshape<@e>)");
  FailureOr<WeightPlan> plan = WeightPlan::create(*module, {"w", "p", "q", "s", "b", "i", "c", "f"}, store);
  ASSERT_TRUE(succeeded(plan));
  std::vector<std::string> layouts;
  for (const WeightRow &row : plan->table())
    layouts.push_back(row.layout);
  EXPECT_EQ(layouts, (std::vector<std::string>{"plain", "panels:16", "panels-t:16", "derived", "panels-bf16:16",
                                               "panels-int8:16", "scales:16", "plain"}));
}

// Each in columns of its own can be replaced alone, unless it stands there twice or in another form.
TEST_F(Weights, LayoutsOfColumns) {
  addFloats("v", 6);
  addFloats("w", 12, 100);
  OwningOpRef<ModuleOp> module = parse(R"(
    attn.global @v : tensor<3x2xf32> = #attn.initializer<"v">
    attn.global @w : tensor<3x4xf32> = #attn.initializer<"w">
    attn.global @t : tensor<4x3xf32> = #attn.transpose<@w, [1, 0]>
    attn.global @u : tensor<3x4xf32> = #attn.transpose<@t, [1, 0]>
    attn.global @vw : tensor<3x6xf32> = #attn.concat<[@v, @w], dim 1>
    attn.global @wv : tensor<3x6xf32> = #attn.concat<[@w, @v], dim 1>
    attn.global @bv : tensor<3x6xbf16> = #attn.reshape<@wv>
    attn.global @vv : tensor<3x4xf32> = #attn.concat<[@v, @v], dim 1>
    attn.global @vu : tensor<3x6xf32> = #attn.concat<[@v, @u], dim 1>
    attn.global @p : tensor<1x3x8xf32> = #attn.pack_panels<@vw, transposed = false, width = 8>)");
  FailureOr<WeightPlan> plan = WeightPlan::create(*module, {"vw", "bv", "vv", "vu", "p"}, store);
  ASSERT_TRUE(succeeded(plan));
  std::vector<std::pair<std::string, std::string>> rows, want;
  for (const WeightRow &row : plan->table())
    rows.emplace_back(row.name, row.layout);
  want = {{"v", "columns:0:6"},      {"w", "columns:2:6"},      {"v", "derived"}, {"v", "derived"}, {"w", "derived"},
          {"w", "columns-bf16:0:6"}, {"v", "columns-bf16:4:6"}, {"v", "derived"}, {"w", "derived"}};
  EXPECT_EQ(rows, want);
}

TEST_F(Weights, WrongExpressionsAreRefused) {
  addFloats("w", 12);
  const std::string w = "attn.global @w : tensor<3x4xf32> = #attn.initializer<\"w\">\n";
  auto expect = [&](const std::string &text, const char *message) {
    EXPECT_NE(errorOf(w + text, "x").find(message), std::string::npos) << text << "\n" << errorOf(w + text, "x");
  };
  expect(R"(attn.global @x : tensor<3xf32> = #attn.initializer<"missing">)", "'missing', which is not there");
  expect(R"(attn.global @x : tensor<3xf32> = #attn.initializer<"w">)", "needs 12 bytes of initialiser 'w', got 48");
  expect(R"(attn.global @x : tensor<4x3xf32> = #attn.transpose<@w, [1, 1]>)", "a permutation of 2 dimensions");
  expect(R"(attn.global @x : tensor<3x4xf32> = #attn.transpose<@w, [1, 0]>)", "expects the type of its expression");
  expect(R"(attn.global @x : tensor<3x4xf32> = #attn.transpose<@gone, [1, 0]>)", "which is no attn.global");
  expect(R"(attn.global @x : tensor<11xf32> = #attn.reshape<@w>)", "(12), got 11");
  expect(R"(attn.global @x : tensor<3x3xf32> = #attn.slice<@w, dim 1 at 2 size 3>)", "within [0, 4)");
  expect(R"(attn.global @x : tensor<3x4xf32> = #attn.slice<@w, dim 1 at -1 size 4>)", "within [0, 4)");
  expect(R"(attn.global @x : tensor<6x4xf16> = #attn.concat<[@w, @w], dim 0>)", "sources of its element type");
  expect(R"(attn.global @x : tensor<1x2x8xbf16> = #attn.narrow_panels<@w, transposed = false, width = 4, group = 2>)",
         "expects group 0 of elements in bf16, got 2");
  expect(R"(attn.global @x : tensor<1x2x8xbf16> =
             #attn.narrow_panels<@w, transposed = false, width = 4, group = 0 depth 3>)",
         "expects a depth that is 1 or even, at most 65536, got 3");
  expect(R"(attn.global @x : tensor<1x2x8xbf16> =
             #attn.narrow_panels<@w, transposed = false, width = 4, group = 0 parts 4>)",
         "expects elements in 1 to 3 parts, got 4");
  expect(R"(attn.global @x : tensor<1x2x8xbf16> =
             #attn.narrow_panels<@w, transposed = false, width = 4, group = 0 parts 2>)",
         "expects the type of its expression");
  expect(R"(attn.global @x : tensor<1x3x4xi8> =
             #attn.narrow_panels<@w, transposed = false, width = 4, group = 3 parts 2>)",
         "expects depth and parts of elements in bf16 alone");
  expect(R"(attn.global @x : tensor<1x3x4xi8> = #attn.narrow_panels<@w, transposed = false, width = 4, group = 0>)",
         "expects a positive group, got 0");
  expect(R"(attn.global @x : tensor<1x3x4xi16> = #attn.narrow_panels<@w, transposed = false, width = 4, group = 1>)",
         "expects panels in bf16 or i8");
  expect(R"(attn.global @x : tensor<1x3x4xi8> = #attn.panel_scales<@w, transposed = false, width = 4, group = 1>)",
         "expects scales in f32");
  expect(R"(attn.global @x : tensor<1x3x4xi8> = #attn.narrow_panels<@w, transposed = true, width = 4, group = 1>)",
         "expects the type of its expression");
  expect(R"(attn.global @x : tensor<3x4xi8> = #attn.block_codes<@w, transposed = false, block = 0, bits = 4>)",
         "an f32 matrix to store and blocks of 1 or more");
  expect(R"(attn.global @x : tensor<3x4xf32> = #attn.block_codes<@w, transposed = false, block = 2, bits = 4>)",
         "expects codes in i8");
  expect(R"(attn.global @x : tensor<2x4xi8> = #attn.block_scales<@w, transposed = false, block = 2, bits = 4>)",
         "expects scales in f32");
  expect(R"(attn.global @x : tensor<3x4xi8> = #attn.block_codes<@w, transposed = false, block = 2, bits = 3>)",
         "expects codes of 4 or 8 bits, got 3");
  expect(R"(attn.global @x : tensor<2x4xf32> = #attn.block_scales<@w, transposed = true, block = 2, bits = 4>)",
         "expects the type of its expression");
  expect(R"(attn.global @x : tensor<1x3x4xi8> = #attn.narrow_panels<@w, transposed = false, width = 0, group = 1>)",
         "an f32 matrix to pack and a width");
  expect(R"(attn.global @x : tensor<3x4xf32> = #attn.transpose<@x, [0, 1]>)", "goes in a circle");
}

} // namespace
