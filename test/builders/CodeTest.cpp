// Loops, branches and memory, compiled and run on guarded memory.
#include "builders/Code.h"
#include "builders/Lanes.h"
#include "dialects/attn/AttnOps.h"
#include "test/kernels/KernelHarness.h"

#include "gtest/gtest.h"
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace attn;
using attn::test::hostRuns;
using attn::test::Kernel;
using Array = attn::test::Buffer;

namespace {

class CodeTest : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (!hostRuns(GetParam()))
      GTEST_SKIP() << "this machine does not run " << GetParam();
  }

  static MemRefType dynamic(OpBuilder &b, Type element, int64_t rank = 1) {
    return MemRefType::get(SmallVector<int64_t>(rank, ShapedType::kDynamic), element);
  }

  /// A kernel on buffers of `types`; `body` emits it.
  static std::unique_ptr<Kernel> compile(llvm::function_ref<SmallVector<Type>(OpBuilder &)> types,
                                         llvm::function_ref<void(Code &, ArrayRef<Buffer>)> body) {
    return Kernel::compile(GetParam(), [&](OpBuilder &b, Location loc) -> FailureOr<func::FuncOp> {
      auto function = func::FuncOp::create(b, loc, "k", b.getFunctionType(types(b), {}));
      function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(function.addEntryBlock());
      Code k(b, loc);
      body(k, llvm::map_to_vector(function.getArguments(), [&](Value v) { return k.asBuffer(v); }));
      func::ReturnOp::create(b, loc);
      return function;
    });
  }
  static SmallVector<Type> twoFloats(OpBuilder &b) { return {dynamic(b, b.getF32Type()), dynamic(b, b.getF32Type())}; }

  static Array numbers(int64_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 1.0f);
    return Array({count}, values);
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, CodeTest, testing::ValuesIn(attn::test::kIsas), [](auto &info) { return info.param; });

TEST_P(CodeTest, LoopCarriesVectorsAndTails) {
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    Buffer in = given[0], out = given[1];
    Index count = in.dim(0);
    Vec squares = k.loop(0, count, 8, k.splat(k.f32(0), 8), [&](Index n, Vec sum) {
      Vec x = in.first(count - n, 8, n);
      return fma(x, x, sum);
    });
    out.set(sumOfLanes(squares), 0);
  });
  ASSERT_TRUE(kernel);
  for (int64_t count : {0, 1, 7, 8, 9, 31}) {
    Array in = numbers(count), out({1});
    ASSERT_TRUE(kernel->call({&in, &out}));
    EXPECT_EQ(out[0], count * (count + 1) * (2 * count + 1) / 6) << count;
  }
}

TEST_P(CodeTest, LoopCarriesTuplesAndLists) {
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    SmallVector<Num> ends{k.f32(0), k.f32(0)}; // the last two
    auto [sum, place, last] =
        k.loop(0, given[0].dim(0), 1, std::tuple(k.f32(0), k.index(0), ends),
               [&](Index n, Num sum, Index place, SmallVector<Num> last) {
                 Num x = given[0](n);
                 return std::tuple(sum + x, select(x == 3.0, n, place), SmallVector<Num>{last[1], x});
               });
    given[1].set(sum, 0);
    given[1].set(convert(toNum(place, k.b.getI32Type()), k.b.getF32Type()), 1);
    given[1].set(last[0], 2);
    given[1].set(last[1], 3);
  });
  ASSERT_TRUE(kernel);
  Array in = numbers(5), out({4});
  ASSERT_TRUE(kernel->call({&in, &out}));
  EXPECT_EQ(out.values(), (std::vector<float>{15, 2, 4, 5}));
}

TEST_P(CodeTest, ManyBecomeOne) {
  for (int64_t lanes : {1, 4, 16}) {
    auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
      Vec sum = acrossLanes(given[0].vector(lanes, 0), [](Vec x, Vec y) { return x + y; });
      given[1].setVector(sum, 0);
      SmallVector<Num> five;
      for (int64_t n = 0; n < 5; ++n)
        five.push_back(given[0](n));
      auto combine = [](Num x, Num y) { return 2 * x + y; };
      given[1].set(tree<Num>(five, combine), lanes);
      given[1].set(tree<Num>(ArrayRef(five).take_front(1), combine), lanes + 1);
    });
    ASSERT_TRUE(kernel);
    Array in = numbers(std::max<int64_t>(lanes, 5)), out({lanes + 2});
    ASSERT_TRUE(kernel->call({&in, &out}));
    std::vector<float> want(lanes, lanes * (lanes + 1) / 2);
    want.push_back(2 * (2 * (2 * 1 + 2) + (2 * 3 + 4)) + 5);
    want.push_back(1);
    EXPECT_EQ(out.values(), want) << lanes;
  }
}

TEST_P(CodeTest, RepeatsAndChooses) {
  // Steps of Collatz: halves where even, else three times and one more.
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    k.parallel(given[0].dim(0), [&](Index n) {
      Num start = convert(given[0](n), k.b.getI64Type());
      Num x, steps;
      std::tie(x, steps) = k.repeat(
          std::tuple(start, k.i64(0)), [&](Num x, Num) { return x > 1; },
          [&](Num x, Num steps) {
            Num next = k.choose((x & 1) == 0, [&] { return x >> 1; }, [&] { return 3 * x + 1; });
            return std::tuple(next, steps + 1);
          });
      k.when(
          steps > 5, [&] { given[1].set(convert(steps, k.b.getF32Type()), n); }, [&] { given[1].set(k.f32(-1), n); });
      k.when(x != 1, [&] { given[1].set(k.f32(NAN), n); });
    });
  });
  ASSERT_TRUE(kernel);
  Array in = numbers(7), out({7});
  for (int64_t pieces : {1, 3}) {
    ASSERT_TRUE(kernel->call({&in, &out}, pieces));
    EXPECT_EQ(out.values(), (std::vector<float>{-1, -1, 7, -1, -1, 8, 16}));
  }
}

TEST_P(CodeTest, ReadsAndWritesNoMoreThanItMay) {
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    Index count = given[0].dim(0);
    k.loop(0, count, 8, [&](Index n) {
      Vec x = given[0].padded(k.f32(100), 8, n);
      Vec y = given[0].where(firstLanes(count - n, 8), k.splat(k.f32(0), 8), n);
      given[1].setFirst(x + y, count - n, n);
    });
    k.when(count > 0, [&] {
      Mask odd = k.asMask(arith::ConstantOp::create(
          k.b, k.loc, k.b.getBoolVectorAttr({true, false, false, false, false, false, false, false})));
      given[1].setWhere(odd, k.splat(k.f32(-1), 8), 0);
    });
  });
  ASSERT_TRUE(kernel);
  for (int64_t count : {1, 7, 8, 9, 20}) {
    Array in = numbers(count), out({count});
    ASSERT_TRUE(kernel->call({&in, &out}));
    for (int64_t n = 0; n < count; ++n)
      EXPECT_EQ(out[n], n ? 2 * (n + 1) : -1) << count;
    EXPECT_TRUE(out.guardIntact());
  }
}

TEST_P(CodeTest, TakesRegistersSideBySide) {
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    given[0].prefetch(k.index(0));
    for (int64_t count : {-1, 3, 4, 9}) // of four lanes
      given[1].setFirst(given[0].first(count, 4, 1), 4, 4 * (count + 1));
    given[1].setFirst(k.splat(k.f32(-7), 8), 2, 20);
    Buffer table = k.scratch({2, 8}, k.b.getF32Type());
    table.setVectors(given[0].vectors(2, 4), 1);
    for (auto [n, x] : llvm::enumerate(table.vectors(2, 4, 1)))
      given[1].setVector(x, 24 + 4 * static_cast<int64_t>(n));
    given[1].set(convert(toNum(table.count() + table.count(1), k.b.getI64Type()), k.b.getF32Type()), 22);
    given[1].set(convert(toNum(table.count(0, 1), k.b.getI64Type()), k.b.getF32Type()), 23);
  });
  ASSERT_TRUE(kernel);
  Array in = numbers(8), out({44});
  ASSERT_TRUE(kernel->call({&in, &out}));
  std::vector<float> all = out.values();
  auto at = [&](int64_t first, int64_t count) {
    return std::vector<float>(all.begin() + first, all.begin() + first + count);
  };
  EXPECT_EQ(at(0, 4), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(at(16, 4), (std::vector<float>{2, 3, 4, 0}));
  EXPECT_EQ(at(20, 4), (std::vector<float>{-7, -7, 24, 2}));
  EXPECT_EQ(at(24, 8), (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(at(40, 4), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_TRUE(out.guardIntact());
}

TEST_P(CodeTest, MatchesNumbers) {
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    k.loop(0, given[1].dim(0), 1, [&](Index n) {
      k.match(n + toIndex(n < 2), 1, 3, [&](int64_t known) { given[1].set(given[0](known) * 10, n); });
    });
    k.match(given[0].dim(0), 2, 2, [&](int64_t known) { given[1].set(given[0](known), 0); });
  });
  ASSERT_TRUE(kernel);
  Array in = numbers(4), out({5});
  ASSERT_TRUE(kernel->call({&in, &out}));
  EXPECT_EQ(out.values(), (std::vector<float>{3, 30, 30, 40, 40}));
}

TEST_P(CodeTest, WordsOfBytes) {
  auto kernel =
      compile([](OpBuilder &b) { return SmallVector<Type>{dynamic(b, b.getI8Type()), dynamic(b, b.getI32Type())}; },
              [&](Code &k, ArrayRef<Buffer> given) {
                Type i32 = k.b.getI32Type();
                k.loop(0, given[0].dim(0), 4, [&](Index n) {
                  Vec word = given[0].word(8, n);                // the same four bytes in each lane
                  Vec bytes = bitcast(word, k.b.getI8Type());    // 32 of them
                  Num sum = sumOfLanes(convert(bytes, i32)) * 1; // eight times the four
                  Num raw = sumOfLanes(convertUnsigned(bytes, i32));
                  given[1].set(sum, n / 2);
                  given[1].set(raw, n / 2 + 1);
                });
              });
  ASSERT_TRUE(kernel);
  Array in({8}, std::vector<int8_t>{1, 2, 3, -4, -128, 127, 0, 5}), out({4}, sizeof(int32_t));
  ASSERT_TRUE(kernel->call({&in, &out}));
  EXPECT_EQ(out.values<int32_t>(), (std::vector<int32_t>{16, 2064, 32, 2080}));
}

TEST_P(CodeTest, ShufflesAndScratch) {
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    // Column 1 of rows of three, by way of scratch in the order of Vec.
    Buffer kept = k.scratch({4}, k.b.getF32Type());
    k.loop(0, given[0].dim(0) / 3, 1, [&](Index n) { kept.set(given[0](n * 3 + 1), n); });
    Vec x = kept.vector(4, 0);
    given[1].setVector(shuffle(x, x, {3, 2, 1, 0}), 0);
    given[1].set(extract(x, 2) + maximumOfLanes(x), 4);
  });
  ASSERT_TRUE(kernel);
  Array in = numbers(12), out({5});
  ASSERT_TRUE(kernel->call({&in, &out}));
  EXPECT_EQ(out.values(), (std::vector<float>{11, 8, 5, 2, 19}));
}

TEST_P(CodeTest, TransposesAndCountsLanes) {
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    auto rows = llvm::map_to_vector(llvm::seq(8), [&](int64_t row) { return given[0].vector(4, 4 * row); });
    for (auto [n, column] : llvm::enumerate(transpose(rows)))
      given[1].setVector(column, static_cast<int64_t>(8 * n));
    given[1].setVector(convert(k.consecutive(5, 4), k.b.getF32Type()), 32);
  });
  ASSERT_TRUE(kernel);
  Array in = numbers(32), out({36});
  ASSERT_TRUE(kernel->call({&in, &out}));
  for (int64_t n = 0; n < 32; ++n)
    EXPECT_EQ(out[n % 4 * 8 + n / 4], in[n]) << n;
  for (int64_t n = 0; n < 4; ++n)
    EXPECT_EQ(out[32 + n], 5 + n);
}

TEST_P(CodeTest, GathersAndCombinesLanes) {
  auto kernel =
      compile([](OpBuilder &b) { return SmallVector<Type>{dynamic(b, b.getI32Type()), dynamic(b, b.getI32Type())}; },
              [&](Code &k, ArrayRef<Buffer> given) {
                Vec x = vectorOf({given[0](3), given[0](0), given[0](2), given[0](1)});
                given[1].setWhere(splat(given[0](0) > 5, 4), x, 0);
                given[1].set(orOfLanes(x), 4);
                given[1].set(andOfLanes(x), 5);
              });
  ASSERT_TRUE(kernel);
  Array in({4}, std::vector<int32_t>{6, 12, 4, 5}), out({6}, sizeof(int32_t));
  ASSERT_TRUE(kernel->call({&in, &out}));
  EXPECT_EQ(out.values<int32_t>(), (std::vector<int32_t>{5, 6, 4, 12, 15, 4}));
}

TEST_P(CodeTest, FlattensAndCountsAtomically) {
  auto kernel =
      compile([](OpBuilder &b) { return SmallVector<Type>{dynamic(b, b.getI64Type(), 2), dynamic(b, b.getI64Type())}; },
              [&](Code &k, ArrayRef<Buffer> given) {
                Buffer flat = given[0].flat();
                k.parallel(flat.dim(0), [&](Index n) { given[1].atomic(arith::AtomicRMWKind::addi, flat(n), 0); });
              });
  ASSERT_TRUE(kernel);
  Array in({2, 3}, std::vector<int64_t>{1, 2, 3, 4, 5, 6}), out({1}, std::vector<int64_t>{100});
  ASSERT_TRUE(kernel->call({&in, &out}, 3));
  EXPECT_EQ(*out.data<int64_t>(), 121);
}

TEST_P(CodeTest, CallsIntrinsics) {
  auto kernel = compile(twoFloats, [&](Code &k, ArrayRef<Buffer> given) {
    Vec x = given[0].vector(4, 0);
    given[1].setVector(k.asVec(k.intrinsic("llvm.fabs.v4f32", x.type(), {x - 2.5})), 0);
  });
  ASSERT_TRUE(kernel);
  Array in = numbers(4), out({4});
  ASSERT_TRUE(kernel->call({&in, &out}));
  EXPECT_EQ(out.values(), (std::vector<float>{1.5, 0.5, 0.5, 1.5}));
}

} // namespace
