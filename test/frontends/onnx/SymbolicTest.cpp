#include "frontends/onnx/Symbolic.h"
#include "frontends/onnx/Limits.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "gtest/gtest.h"

using namespace attn::onnx;

namespace {

class SymbolicTest : public ::testing::Test {
protected:
  Symbols symbols;
  Expr batch = symbols.dimension("batch", {}), seq = symbols.dimension("seq", {});
  std::string text(const Expr &e) { return symbols.print(e); }
};

TEST_F(SymbolicTest, EqualExpressionsAreOne) {
  EXPECT_EQ(batch * seq + seq, seq * (batch + Expr(1)));
  EXPECT_EQ(symbols.dimension("seq", {}), seq);
  EXPECT_NE(batch, seq);
  EXPECT_EQ(seq - seq, Expr(0));
  EXPECT_EQ((seq - seq).constant(), 0);
  EXPECT_EQ(text(batch * seq * Expr(12) - Expr(3)), "12*batch*seq - 3");
  EXPECT_EQ(text(Expr(0) - seq), "-seq");
}

TEST_F(SymbolicTest, PrintsNoNumbersOfAtoms) {
  Expr read = symbols.opaque({});
  EXPECT_EQ(text(read), "a size that the run tells");
  EXPECT_EQ(text(symbols.max(read, Expr(16))), "max(16, a size that the run tells)");
  EXPECT_EQ(text(read * Expr(4) + Expr(1)), "4*(a size that the run tells) + 1");
  EXPECT_TRUE(symbols.isNamed(symbols.max(batch * seq, Expr(16))));
  EXPECT_FALSE(symbols.isNamed(read * seq));
  EXPECT_FALSE(symbols.isNamed(symbols.floorDiv(symbols.max(read + seq, batch), Expr(3)) + batch));
}

TEST_F(SymbolicTest, DividesPolynomialsExactly) {
  EXPECT_EQ(symbols.floorDiv(batch * seq * Expr(12), seq), batch * Expr(12));
  EXPECT_EQ(symbols.floorDiv(batch * seq * Expr(384), batch * seq), Expr(384));
  EXPECT_EQ(symbols.floorDiv((seq + Expr(1)) * (batch + Expr(2)), seq + Expr(1)), batch + Expr(2));
  EXPECT_EQ(symbols.floorDiv(seq * seq - Expr(1), seq - Expr(1)), seq + Expr(1));
  EXPECT_EQ(Symbols::exactQuotient(seq * Expr(3), Expr(2)), std::nullopt);
  EXPECT_EQ(Symbols::exactQuotient(seq, batch), std::nullopt);
  EXPECT_EQ(Symbols::exactQuotient(seq, Expr(0)), std::nullopt);
}

TEST_F(SymbolicTest, SplitsDivisionByConstants) {
  EXPECT_EQ(symbols.floorDiv(seq * Expr(2) + Expr(3), Expr(2)), seq + Expr(1));
  EXPECT_EQ(symbols.mod(seq * Expr(4) + Expr(7), Expr(4)), Expr(3));
  EXPECT_EQ(text(symbols.floorDiv(seq * Expr(3), Expr(2))), "seq + floordiv(seq, 2)");
  EXPECT_EQ(symbols.ceilDiv(seq * Expr(2) + Expr(1), Expr(2)), seq + Expr(1));
  EXPECT_EQ(symbols.mod(seq, Expr(2)), symbols.mod(seq + Expr(2), Expr(2)));
}

// Sizes of one strided window behind another.
TEST_F(SymbolicTest, JoinsQuotients) {
  auto halved = [&](const Expr &a) { return symbols.floorDiv(a - Expr(1), Expr(2)) + Expr(1); };
  EXPECT_EQ(halved(halved(halved(seq))), symbols.floorDiv(seq + Expr(7), Expr(8)));
  Expr thirds = symbols.floorDiv(seq - Expr(5), Expr(3)) - Expr(4);
  EXPECT_EQ(symbols.floorDiv(thirds, Expr(4)), symbols.floorDiv(seq - Expr(17), Expr(12)));
  for (int64_t n = -40; n != 40; ++n) // of the constants, whose quotients do not depend on the rule
    EXPECT_EQ(symbols.floorDiv(symbols.floorDiv(Expr(n - 5), Expr(3)) - Expr(4), Expr(4)),
              symbols.floorDiv(Expr(n - 17), Expr(12)));
  // Near misses: twice the quotient, a size beside it, and divisors below 0, that are no numbers or too large.
  EXPECT_NE(symbols.floorDiv(Expr(2) * thirds, Expr(5)), symbols.floorDiv(Expr(2) * (seq - Expr(17)), Expr(15)));
  EXPECT_EQ(text(symbols.floorDiv(symbols.floorDiv(seq, Expr(3)) + batch, Expr(5))),
            "floordiv(batch + floordiv(seq, 3), 5)");
  EXPECT_EQ(text(symbols.floorDiv(symbols.floorDiv(seq, Expr(-3)), Expr(5))), "floordiv(floordiv(seq, -3), 5)");
  EXPECT_EQ(text(symbols.floorDiv(symbols.floorDiv(seq, batch), Expr(5))), "floordiv(floordiv(seq, batch), 5)");
  EXPECT_FALSE(symbols.floorDiv(symbols.floorDiv(seq, Expr(INT64_MAX / 2)), Expr(5)).overflowed());
  // Heads of a known number: the size is a multiple of the quotient from then on.
  Expr width = symbols.floorDiv(batch, Expr(4));
  symbols.assumeEqual(batch, Expr(4) * width);
  EXPECT_EQ(text(symbols.floorDiv(width, Expr(2))), "floordiv(floordiv(batch, 4), 2)");
  EXPECT_EQ(symbols.floorDiv(batch, Expr(8)), symbols.floorDiv(width, Expr(2)));
  // Each is a multiple of a quotient of the other.
  Expr x = symbols.dimension("x", {}), y = symbols.dimension("y", {});
  Expr ofX = symbols.floorDiv(x, Expr(4)), ofY = symbols.floorDiv(y, Expr(3));
  symbols.assumeEqual(x, Expr(4) * ofY);
  symbols.assumeEqual(y, Expr(3) * ofX);
  EXPECT_FALSE(symbols.floorDiv(ofX, Expr(2)).overflowed());
}

TEST_F(SymbolicTest, CancelsFactorsOfQuotients) {
  Expr chunks = symbols.floorDiv(seq + Expr(5), Expr(64));
  EXPECT_EQ(symbols.floorDiv(batch * (seq + Expr(5)) * Expr(32), batch * Expr(2048)), chunks);
  EXPECT_NE(symbols.floorDiv(batch * (seq + Expr(5)) * Expr(-4), batch * Expr(256)), chunks);
  EXPECT_EQ(text(symbols.floorDiv(seq * batch, batch * batch * Expr(3))), "floordiv(seq, 3*batch)");
  EXPECT_EQ(text(symbols.floorDiv(seq * Expr(4) + Expr(1), batch * Expr(4))), "floordiv(4*seq + 1, 4*batch)");
  EXPECT_EQ(symbols.floorDiv(Expr(INT64_MIN) * seq, Expr(2) * seq), Expr(INT64_MIN / 2));
}

TEST_F(SymbolicTest, DividesConstantsAsOnnxDoes) {
  EXPECT_EQ(symbols.floorDiv(Expr(-7), Expr(2)).constant(), -4);
  EXPECT_EQ(symbols.truncDiv(Expr(-7), Expr(2)).constant(), -3);
  EXPECT_EQ(symbols.ceilDiv(Expr(-7), Expr(2)).constant(), -3);
  EXPECT_EQ(symbols.mod(Expr(-7), Expr(3)).constant(), 2);
  EXPECT_EQ(symbols.mod(Expr(7), Expr(-3)).constant(), -2);
  EXPECT_TRUE(symbols.floorDiv(seq, Expr(0)).overflowed());
  EXPECT_TRUE(symbols.truncDiv(Expr(INT64_MIN), Expr(-1)).overflowed());
  EXPECT_TRUE(symbols.floorDiv(Expr(INT64_MIN), Expr(-1)).overflowed());
}

TEST_F(SymbolicTest, DecidesWhatDimensionsCanBe) {
  EXPECT_EQ(symbols.isEqual(seq, Expr(-1)), false);
  EXPECT_EQ(symbols.isEqual(seq, Expr(0)), std::nullopt); // an empty tensor is legal
  EXPECT_EQ(symbols.isEqual(seq + Expr(1), Expr(0)), false);
  EXPECT_EQ(symbols.isEqual(batch * seq, seq * batch), true);
  EXPECT_EQ(symbols.isEqual(batch, seq), std::nullopt);
  EXPECT_EQ(symbols.isLess(seq, seq + Expr(1)), true);
  EXPECT_EQ(symbols.isLess(seq, Expr(0)), false);
  EXPECT_EQ(symbols.isLess(seq, Expr(5)), std::nullopt);
  EXPECT_EQ(symbols.lowerBound(seq * batch + Expr(2)), 2);
  EXPECT_EQ(symbols.lowerBound(Expr(0) - seq), std::nullopt);
  EXPECT_EQ(symbols.upperBound(Expr(3) - seq), 3);
}

TEST_F(SymbolicTest, FoldsMinAndMax) {
  // 1 unless both are 0, which they are together.
  Expr some = symbols.min(Expr(1), seq);
  EXPECT_EQ(symbols.min(seq + some, Expr(1)), some);
  EXPECT_EQ(symbols.min(seq + batch + some, Expr(1)), symbols.min(seq + batch, Expr(1)));
  EXPECT_NE(symbols.min(batch + some, Expr(1)), symbols.min(batch, Expr(1)));
  EXPECT_NE(symbols.min(seq - some, Expr(1)), some);
  EXPECT_EQ(symbols.max(Expr(0), seq), seq);
  EXPECT_EQ(symbols.min(seq, seq + Expr(3)), seq);
  EXPECT_EQ(symbols.min(Expr(3), Expr(-2)).constant(), -2);
  Expr clamped = symbols.min(seq, Expr(512));
  EXPECT_EQ(symbols.min(clamped, Expr(512)), clamped);
  EXPECT_EQ(symbols.max(Expr(0), clamped), clamped);
  EXPECT_EQ(symbols.min(Expr(512), seq), clamped); // one atom either way
  EXPECT_EQ(symbols.isLess(seq, clamped), false);
  EXPECT_EQ(symbols.isLess(Expr(600), clamped), false);
  EXPECT_EQ(symbols.upperBound(clamped), 512);
  EXPECT_EQ(symbols.lowerBound(symbols.max(seq, batch) - seq), 0);
  EXPECT_EQ(symbols.lowerBound(seq - symbols.floorDiv(seq, Expr(2))), 0);
}

// A slice [start, end) of a dimension: the size is end - start, clamped.
TEST_F(SymbolicTest, FoldsSlices) {
  auto clamp = [&](const Expr &at) { return symbols.max(Expr(0), symbols.min(at, seq)); };
  EXPECT_EQ(symbols.max(Expr(0), clamp(seq) - clamp(Expr(0))), seq);
  Expr half = symbols.floorDiv(seq, Expr(2));
  EXPECT_EQ(clamp(half), half);
  EXPECT_EQ(symbols.max(Expr(0), seq - half), seq - half);
}

// Where(Equal(shape, -1), 1, shape), as exporters write Expand's shape.
TEST_F(SymbolicTest, FoldsSelections) {
  EXPECT_EQ(symbols.select(symbols.equal(seq, Expr(-1)), Expr(1), seq), seq);
  EXPECT_EQ(symbols.select(symbols.equal(Expr(-1), Expr(-1)), Expr(1), seq), Expr(1));
  Expr open = symbols.equal(seq, Expr(1));
  EXPECT_EQ(symbols.equal(Expr(1), seq), open);
  EXPECT_EQ(symbols.select(open, Expr(1), Expr(0)), open);
  EXPECT_EQ(symbols.lowerBound(symbols.select(open, batch, Expr(3))), 0);
  EXPECT_EQ(symbols.isLess(symbols.less(seq, batch), Expr(2)), true);
}

TEST_F(SymbolicTest, AssumptionsHoldInsideProducts) {
  Expr clamped = symbols.min(seq, Expr(512));
  EXPECT_EQ(symbols.isEqual(clamped * batch, seq * batch), std::nullopt);
  symbols.assumeEqual(clamped, seq);
  EXPECT_EQ(symbols.isEqual(clamped, seq), true);
  EXPECT_EQ(symbols.isEqual(clamped * batch, seq * batch), true);
  EXPECT_EQ(symbols.simplify(clamped + Expr(1)), seq + Expr(1));
  EXPECT_EQ(symbols.floorDiv(clamped * seq * batch, clamped), seq * batch);
  EXPECT_EQ(symbols.truncDiv(clamped * batch, seq), batch);
  EXPECT_EQ(symbols.mod(clamped * batch, seq), Expr(0));
  // Two sums: no atom gives way, but the difference is known.
  Expr a = symbols.opaque({}), b = symbols.opaque({});
  symbols.assumeEqual(a * b, seq * batch);
  EXPECT_EQ(symbols.isEqual(a * b, batch * seq), true);
  EXPECT_EQ(symbols.isEqual(a, batch), std::nullopt);
  // A multiple that is 0.
  symbols.assumeEqual(Expr(24) * seq, Expr(18) * seq);
  EXPECT_EQ(symbols.isEqual(seq * batch, Expr(0)), true);
  EXPECT_EQ(symbols.isEqual(batch, Expr(0)), std::nullopt);
}

TEST_F(SymbolicTest, AssumptionsChain) {
  Expr a = symbols.opaque({}), b = symbols.opaque({});
  symbols.assumeEqual(a, b);
  symbols.assumeEqual(b, seq);
  EXPECT_EQ(symbols.isEqual(a, seq), true);
  EXPECT_EQ(symbols.simplify(a), seq);
}

// Lengths of frames, as encoders of speech compute them beside their convolutions.
TEST_F(SymbolicTest, AssumptionsRaiseBounds) {
  Expr span = seq - Expr(10), before = symbols.truncDiv(span, Expr(5)) + Expr(1);
  Expr last = symbols.min(before, symbols.max(Expr(0), before - Expr(1)));
  EXPECT_EQ(symbols.isEqual(before - last, Expr(1)), std::nullopt);
  EXPECT_EQ(symbols.isEqual(before, symbols.floorDiv(span, Expr(5)) + Expr(1)), std::nullopt);
  symbols.assumeNotNegative(span);
  EXPECT_EQ(symbols.lowerBound(seq), 10);
  EXPECT_EQ(symbols.isEqual(before, symbols.floorDiv(span, Expr(5)) + Expr(1)), true);
  Expr frames = symbols.floorDiv(span, Expr(5)) + Expr(1);
  EXPECT_EQ(symbols.truncDiv(frames, Expr(2)), symbols.floorDiv(frames, Expr(2)));
  EXPECT_EQ(symbols.isEqual(seq, Expr(1)), false);
  // A slice from the last frame on, whose start was written before that was known.
  EXPECT_EQ(symbols.isEqual(before - last, Expr(1)), true);
  // Less than is known, or of the other sign, says nothing; what holds for a multiple holds for its size.
  symbols.assumeNotNegative(seq - Expr(3));
  symbols.assumeNotNegative(Expr(90) - seq);
  EXPECT_EQ(symbols.lowerBound(seq), 10);
  symbols.assumeNotNegative(Expr(2) * seq - Expr(25));
  EXPECT_EQ(symbols.lowerBound(seq), 13);
  // Near misses: two sizes, and what a branch assumes.
  symbols.assumeNotNegative(batch - seq);
  EXPECT_EQ(symbols.lowerBound(batch), 0);
  mlir::Block entry, branch;
  symbols.setHome(&entry);
  symbols.enterHome(&branch);
  symbols.assumeNotNegative(batch - Expr(7));
  symbols.leaveHome();
  EXPECT_EQ(symbols.lowerBound(batch), 0);
}

TEST_F(SymbolicTest, OverflowSpreads) {
  Expr big(INT64_MAX);
  EXPECT_FALSE(big.overflowed());
  EXPECT_TRUE((big + Expr(1)).overflowed());
  EXPECT_TRUE((big * seq + seq).overflowed());
  Expr lost = big * Expr(2);
  EXPECT_TRUE((lost - lost).overflowed());
  EXPECT_TRUE(symbols.min(lost, seq).overflowed());
  EXPECT_TRUE(symbols.mod(lost, Expr(2)).overflowed());
  EXPECT_EQ(symbols.isEqual(lost, lost), std::nullopt);
  EXPECT_EQ(symbols.isLess(lost, seq), std::nullopt);
  EXPECT_EQ(lost.constant(), std::nullopt);
}

TEST_F(SymbolicTest, LimitsOfAnExpression) {
  Expr sum;
  for (size_t i = 0; i < kMaxTerms; ++i)
    sum = sum + symbols.opaque({});
  EXPECT_FALSE(sum.overflowed());
  EXPECT_TRUE((sum + symbols.opaque({})).overflowed());
  Expr power(1);
  for (size_t i = 0; i < kMaxDegree; ++i)
    power = power * seq;
  EXPECT_FALSE(power.overflowed());
  EXPECT_TRUE((power * seq).overflowed());
  Expr nested = seq;
  for (size_t i = 0; i < kMaxExprDepth; ++i)
    nested = symbols.mod(nested + Expr(1), batch);
  EXPECT_FALSE(nested.overflowed());
  nested = symbols.mod(symbols.mod(nested + Expr(1), batch) + Expr(1), batch);
  EXPECT_TRUE(nested.overflowed());
}

TEST_F(SymbolicTest, NamesOutputs) {
  EXPECT_EQ(symbols.name(seq), "seq");
  EXPECT_EQ(symbols.name(seq * Expr(2)), "");
  EXPECT_EQ(symbols.outputName(batch + seq), "batch + seq");
  EXPECT_EQ(symbols.outputName(Expr(4)), "");
  EXPECT_EQ(symbols.outputName(symbols.min(seq, Expr(4))), "");
}

TEST(SymbolicIR, WritesEachExpressionOnce) {
  mlir::MLIRContext context;
  context.loadDialect<mlir::arith::ArithDialect, mlir::func::FuncDialect>();
  mlir::OpBuilder b(&context);
  mlir::Location loc = b.getUnknownLoc();
  auto module = mlir::OwningOpRef<mlir::ModuleOp>(mlir::ModuleOp::create(loc));
  b.setInsertionPointToEnd(module->getBody());
  auto function = mlir::func::FuncOp::create(b, loc, "f", b.getFunctionType({b.getIndexType(), b.getIndexType()}, {}));
  mlir::Block *block = function.addEntryBlock();
  b.setInsertionPointToEnd(block);
  Symbols symbols;
  symbols.setHome(block);
  Expr n = symbols.dimension("n", block->getArgument(0)), m = symbols.dimension("m", block->getArgument(1));

  EXPECT_EQ(symbols.materialize(b, loc, n), block->getArgument(0));
  mlir::Value product = symbols.materialize(b, loc, n * m);
  EXPECT_EQ(symbols.materialize(b, loc, m * n), product);
  mlir::Value sum = symbols.materialize(b, loc, n * m - Expr(2));
  EXPECT_TRUE(sum.getDefiningOp<mlir::arith::SubIOp>());
  EXPECT_EQ(sum.getDefiningOp()->getOperand(0), product);
  EXPECT_TRUE(mlir::isa<mlir::Attribute>(symbols.size(b, loc, Expr(7))));

  // A divisor that may be 0 is made 1: the processor would trap.
  mlir::Value quotient = symbols.materialize(b, loc, symbols.floorDiv(n, m));
  auto division = quotient.getDefiningOp<mlir::arith::DivSIOp>();
  ASSERT_TRUE(division);
  EXPECT_TRUE(division.getRhs().getDefiningOp<mlir::arith::MaxSIOp>());
  mlir::Value half = symbols.materialize(b, loc, symbols.floorDiv(n, Expr(2)));
  EXPECT_TRUE(half.getDefiningOp()->getOperand(1).getDefiningOp<mlir::arith::ConstantOp>());

  // From within a block that is elsewhere, values still go to the home.
  mlir::Block elsewhere;
  mlir::OpBuilder inner(&context);
  inner.setInsertionPointToEnd(&elsewhere);
  mlir::Value outer = symbols.materialize(inner, loc, n * n);
  EXPECT_EQ(outer.getParentBlock(), block);
  EXPECT_TRUE(elsewhere.empty());
}

} // namespace
