// Operators on constants fold to the value that C++ gives for the same formula;
// on arguments they emit the op that is meant.
#include "builders/Code.h"
#include "builders/Mix.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/OwningOpRef.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace attn;

namespace {

class OperatorsTest : public testing::Test {
protected:
  OperatorsTest() : b(&context) {
    context.loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect,
                        memref::MemRefDialect, scf::SCFDialect, vector::VectorDialect>();
    module = ModuleOp::create(UnknownLoc::get(&context));
    b.setInsertionPointToEnd(module->getBody());
  }

  /// The value of a folded float, in each lane of a vector; NaN if it is none.
  static double real(Value x) {
    FloatAttr attr;
    SplatElementsAttr lanes;
    if (matchPattern(x, m_Constant(&lanes)))
      return lanes.getSplatValue<APFloat>().convertToDouble();
    return matchPattern(x, m_Constant(&attr)) ? attr.getValueAsDouble() : NAN;
  }
  static std::optional<int64_t> whole(Value x) {
    APInt value;
    if (!matchPattern(x, m_ConstantInt(&value)))
      return std::nullopt;
    return value.getBitWidth() == 1 ? int64_t(value.getZExtValue()) : value.getSExtValue();
  }
  static StringRef opOf(Value x) { return x.getDefiningOp()->getName().getStringRef(); }

  /// A function whose arguments are of these types.
  Block &open(TypeRange types) {
    auto function = func::FuncOp::create(b, b.getUnknownLoc(), "f", b.getFunctionType(types, {}));
    b.setInsertionPointToStart(function.addEntryBlock());
    return function.getBody().front();
  }

  MLIRContext context;
  OpBuilder b;
  OwningOpRef<ModuleOp> module;
};

TEST_F(OperatorsTest, FoldFloats) {
  Code k(b, b.getUnknownLoc());
  Num x = k.f32(3), y = k.f32(-0.5);
  EXPECT_EQ(real(x + y), 2.5);
  EXPECT_EQ(real(x - y), 3.5);
  EXPECT_EQ(real(x * y), -1.5);
  EXPECT_EQ(real(x / y), -6);
  EXPECT_EQ(real(-x), -3);
  EXPECT_EQ(real(2 * x - 1.5), 4.5);
  EXPECT_EQ(real(12.0 / x), 4);
  EXPECT_EQ(real(abs(y)), 0.5);
  EXPECT_EQ(real(sqrt(k.f32(9))), 3);
  EXPECT_EQ(real(maximum(x, y)), 3);
  EXPECT_EQ(real(minimum(x, 1.0)), 1);
  EXPECT_EQ(real(atLeast(y, k.f32(0))), 0);
  EXPECT_EQ(real(atMost(x, k.f32(2))), 2);
  EXPECT_EQ(real(greaterOf(y, x)), 3);
  EXPECT_EQ(real(greaterOf(k.f32(NAN), x)), 3);
  EXPECT_EQ(real(copySign(x, y)), -3);
  EXPECT_EQ(real(floor(y)), -1);
  EXPECT_EQ(real(ceil(y)), 0);
  EXPECT_NEAR(real(sigmoid(k.f64(2))), 1 / (1 + std::exp(-2)), 1e-12);
  EXPECT_EQ(real(splat(x, 8) * splat(y, 8)), -1.5);
  EXPECT_EQ(real(splat(x, 8) + y), 2.5);
}

TEST_F(OperatorsTest, FoldIntegers) {
  Code k(b, b.getUnknownLoc());
  Num x = k.i32(-7), y = k.i32(3);
  EXPECT_EQ(whole(x + y), -4);
  EXPECT_EQ(whole(x - y), -10);
  EXPECT_EQ(whole(x * y), -21);
  EXPECT_EQ(whole(-x), 7);
  EXPECT_EQ(whole(abs(x)), 7);
  EXPECT_EQ(whole(x & 6), 0);
  EXPECT_EQ(whole(x | y), -5);
  EXPECT_EQ(whole(x ^ y), -6);
  EXPECT_EQ(whole(!y), -4);
  EXPECT_EQ(whole(y << 4), 48);
  EXPECT_EQ(whole(x >> 28), 15); // zeros come in
  EXPECT_EQ(whole(k.i64(int64_t(0x9e3779b97f4a7c15)) + 1), int64_t(0x9e3779b97f4a7c16));
  EXPECT_EQ(whole(maximum(x, y)), 3);
  EXPECT_EQ(whole(minimum(x, 0)), -7);
  EXPECT_EQ(whole(countOnes(k.i32(255))), 8);
  EXPECT_EQ(whole(convert(x, b.getI8Type())), -7);
  EXPECT_EQ(whole(convertUnsigned(k.number(b.getI8Type(), int64_t(-1)), b.getI32Type())), 255);
  EXPECT_EQ(real(convert(x, b.getF64Type())), -7);
  EXPECT_EQ(whole(convert(k.f32(-2.9), b.getI32Type())), -2);
  EXPECT_EQ(whole(k.number(b.getI32Type(), -2.9)), -2);
  EXPECT_EQ(whole(k.number(b.getI8Type(), -128.0)), -128);
  EXPECT_EQ(whole(k.number(b.getI8Type(), int64_t(255))), -1);
  EXPECT_EQ(whole(bitcast(k.f32(1), b.getI32Type())), 0x3f800000);
}

/// The first numbers that Vigna's splitmix64.c gives from the state 0.
TEST_F(OperatorsTest, MixAsSplitmix64) {
  Code k(b, b.getUnknownLoc());
  EXPECT_EQ(whole(mix(k.i64(0))), int64_t(0xe220a8397b1dcdaf));
  EXPECT_EQ(whole(mix(k.i64(1) * kMixStep)), int64_t(0x6e789e6aa1b965f4));
  EXPECT_EQ(whole(mix(k.i64(2) * kMixStep)), int64_t(0x06c45d188009454f));
}

TEST_F(OperatorsTest, FoldIndicesAndComparisons) {
  Code k(b, b.getUnknownLoc());
  Index n = k.index(100);
  EXPECT_EQ(whole(n + 5), 105);
  EXPECT_EQ(whole(2 * n - 1), 199);
  EXPECT_EQ(whole(n / 16), 6);
  EXPECT_EQ(whole(n % 16), 4);
  EXPECT_EQ(whole(floorTo(n, 16)), 96);
  EXPECT_EQ(whole(ceilDiv(n, 16)), 7);
  EXPECT_EQ(whole(ceilDiv(n, k.index(25))), 4);
  EXPECT_EQ(whole(ceilTo(n, 16)), 112);
  EXPECT_EQ(whole(minimum(n, 64)), 64);
  EXPECT_EQ(whole(toNum(n, b.getI64Type())), 100);
  EXPECT_EQ(whole(toIndex(k.i64(-1))), -1);
  EXPECT_EQ(whole(n < 100), 0);
  EXPECT_EQ(whole(n <= 100), 1);
  EXPECT_EQ(whole(n - 101 < 0), 1); // signed
  EXPECT_EQ(whole(n > 99), 1);
  EXPECT_EQ(whole(n >= 101), 0);
  EXPECT_EQ(whole(n == 100), 1);
  EXPECT_EQ(whole(n != 100), 0);
  Num nan = k.f32(NAN), one = k.f32(1);
  for (Mask no : {nan<one, nan <= one, nan> one, nan >= one, nan == nan})
    EXPECT_EQ(whole(no), 0);
  EXPECT_EQ(whole(nan != nan), 1);
  EXPECT_EQ(whole(isNaN(nan)), 1);
  EXPECT_EQ(whole((one > 0.0) & (one < 2.0)), 1);
  EXPECT_EQ(whole((one < 0.0) | !(one < 2.0)), 0);
  EXPECT_EQ(whole(toNum(k.truth(true), b.getI64Type())), 1);
  EXPECT_EQ(real(select(one > 0.0, one, nan)), 1);
}

TEST_F(OperatorsTest, EmitWhatTheTypeAsksFor) {
  auto bytes = VectorType::get({64}, b.getI8Type()), floats = VectorType::get({16}, b.getF32Type());
  Block &f = open({b.getF32Type(), b.getI32Type(), b.getIndexType(), bytes, floats});
  Code k(b, b.getUnknownLoc());
  Num x = k.asNum(f.getArgument(0)), i = k.asNum(f.getArgument(1));
  Index n = k.asIndex(f.getArgument(2));
  Vec v = k.asVec(f.getArgument(3)), w = k.asVec(f.getArgument(4));
  EXPECT_EQ(opOf(x + x), "arith.addf");
  EXPECT_EQ(opOf(i + i), "arith.addi");
  EXPECT_EQ(opOf(n / n), "arith.divui");
  EXPECT_EQ(opOf(w * x), "arith.mulf");
  EXPECT_EQ((w * x).lanes(), 16);
  EXPECT_EQ((x < 1.0).type(), b.getI1Type());
  EXPECT_EQ((w < x).type(), VectorType::get({16}, b.getI1Type()));
  EXPECT_EQ(opOf(convert(v, b.getI32Type())), "arith.extsi");
  EXPECT_EQ(opOf(convertUnsigned(v, b.getI32Type())), "arith.extui");
  EXPECT_EQ(opOf(convert(w, b.getBF16Type())), "arith.truncf");
  Value half = convert(convert(w, b.getBF16Type()), b.getF16Type()); // of one width: through f32
  EXPECT_EQ(half.getType(), VectorType::get({16}, b.getF16Type()));
  EXPECT_EQ(opOf(half), "arith.truncf");
  EXPECT_EQ(opOf(half.getDefiningOp()->getOperand(0)), "arith.extf");
  EXPECT_EQ(real(convert(k.number(b.getBF16Type(), 1.5), b.getF16Type())), 1.5);
  EXPECT_EQ(bitcast(v, b.getI32Type()).type(), VectorType::get({16}, b.getI32Type()));
  EXPECT_EQ(opOf(fma(w, w, w)), "vector.fma");
  EXPECT_EQ(opOf(fma(x, x, x)), "math.fma");
  EXPECT_EQ(opOf(any(w > 0.0)), "vector.reduction");
  EXPECT_EQ((i + 0).value(), i.value()); // nothing is emitted
  EXPECT_EQ((n * 1).value(), n.value());
}

} // namespace
