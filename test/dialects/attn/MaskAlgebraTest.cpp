#include "dialects/attn/MaskAlgebra.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/MLIRContext.h"
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace attn;
using namespace mlir;

// Key ranges against the definition of each term, key by key.

namespace {

constexpr int64_t kInf = WindowAttr::kInf;

struct Integers {
  int64_t constant(int64_t x) { return x; }
  int64_t add(int64_t x, int64_t y) { return x + y; }
  int64_t sub(int64_t x, int64_t y) { return x - y; }
  int64_t min(int64_t x, int64_t y) { return std::min(x, y); }
  int64_t max(int64_t x, int64_t y) { return std::max(x, y); }
  int64_t selectLess(int64_t x, int64_t y, int64_t a, int64_t b) { return x < y ? a : b; }
};

class MaskAlgebraTest : public ::testing::Test {
protected:
  MaskAlgebraTest() { context.loadDialect<AttnDialect>(); }

  /// A term whose operand has value values[n][i] for query i (the operand is
  /// only told apart by its type here).
  struct Term {
    Attribute attr;
    std::vector<double> values;
    bool isReal = false;
  };

  static bool shows(const Term &term, int64_t i, int64_t j) {
    double x = term.values.empty() ? 0 : term.values[i];
    if (auto causal = dyn_cast<CausalAttr>(term.attr))
      return j <= i + (term.values.empty() ? double(causal.getOffset()) : x);
    if (auto window = dyn_cast<WindowAttr>(term.attr)) {
      double c = window.getBase() == WindowBase::centre ? x : i + x;
      return !std::isnan(c) && (window.getLeft() == kInf || j >= c - window.getLeft()) &&
             (window.getRight() == kInf || j <= c + window.getRight());
    }
    if (auto prefix = dyn_cast<PrefixAttr>(term.attr))
      return j < (term.values.empty() ? double(prefix.getSize()) : x);
    if (isa<LengthsAttr>(term.attr))
      return j < x;
    return (i * 7 + j * 5) % 3 != 0; // dense
  }

  static bool isVisible(ArrayRef<Term> terms, int64_t i, int64_t j) {
    bool near = true, narrow = true, prefix = false;
    for (const Term &term : terms) {
      bool shown = shows(term, i, j);
      if (isa<PrefixAttr>(term.attr))
        prefix |= shown;
      else if (isa<CausalAttr, WindowAttr>(term.attr))
        near &= shown;
      else
        narrow &= shown;
    }
    return narrow && (near || prefix);
  }

  /// Checks every tile of `rows` queries over `keys` keys. Returns how many
  /// keys in all stand outside of the ranges, and how many need no test.
  std::pair<int64_t, int64_t> check(ArrayRef<Term> terms, int64_t rows, int64_t keys) {
    SmallVector<MaskTerm> attrs;
    for (const Term &term : terms)
      attrs.push_back({term.attr, Value(), AffineMap()});
    SmallVector<MaskSpan> spans = describeMaskOf(terms, attrs);
    std::pair<int64_t, int64_t> saved{0, 0};
    Integers arith;
    for (int64_t first = 0; first < rows; ++first)
      for (int64_t last = first; last < rows; ++last) {
        auto extreme = [&](unsigned n, bool isLower, bool isLargest) {
          std::optional<int64_t> found;
          for (int64_t i = first; i <= last; ++i) {
            double x = terms[n].values[i];
            int64_t value = int64_t(isLower ? std::ceil(x) : std::floor(x));
            found = !found ? value : isLargest ? std::max(*found, value) : std::min(*found, value);
          }
          return *found;
        };
        std::function<int64_t(unsigned, bool)> smallest = [&](unsigned n, bool l) { return extreme(n, l, false); };
        std::function<int64_t(unsigned, bool)> largest = [&](unsigned n, bool l) { return extreme(n, l, true); };
        KeyRange<int64_t> range = keyRange(arith, spans, first, last, keys, smallest, largest);
        EXPECT_LE(0, range.begin);
        EXPECT_LE(range.begin, range.fullBegin);
        EXPECT_LE(range.fullBegin, range.fullEnd);
        EXPECT_LE(range.fullEnd, range.end);
        EXPECT_LE(range.end, keys);
        for (int64_t j = 0; j < keys; ++j) {
          bool any = false, all = true;
          for (int64_t i = first; i <= last; ++i) {
            any |= isVisible(terms, i, j);
            all &= isVisible(terms, i, j);
          }
          bool inside = j >= range.begin && j < range.end, full = j >= range.fullBegin && j < range.fullEnd;
          EXPECT_TRUE(inside || !any) << "key " << j << " matters to queries " << first << ".." << last;
          EXPECT_TRUE(all || !full) << "key " << j << " needs a test for queries " << first << ".." << last;
          saved.first += !inside;
          saved.second += full;
        }
      }
    return saved;
  }

  /// describeMask without operands in IR: their types are known here.
  SmallVector<MaskSpan> describeMaskOf(ArrayRef<Term> terms, ArrayRef<MaskTerm> attrs) {
    OpBuilder b(&context);
    SmallVector<MaskTerm> typed(attrs);
    Block block;
    for (auto [term, attr] : llvm::zip_equal(terms, typed))
      if (takesMaskOperand(attr.term))
        attr.operand = block.addArgument(
            RankedTensorType::get({}, term.isReal ? Type(b.getF32Type()) : Type(b.getI64Type())), b.getUnknownLoc());
    return describeMask(typed);
  }

  Attribute causal(int64_t offset) { return CausalAttr::get(&context, offset); }
  Attribute window(int64_t left, int64_t right, WindowBase base = WindowBase::diagonal) {
    return WindowAttr::get(&context, left, right, base);
  }
  Attribute prefix(int64_t size) { return PrefixAttr::get(&context, size); }
  Attribute lengths() { return LengthsAttr::get(&context); }
  Attribute dense() { return DenseMaskAttr::get(&context); }

  MLIRContext context;
  std::mt19937 random{5};
  std::vector<double> values(int64_t rows, int64_t low, int64_t high, bool perRow) {
    std::uniform_int_distribution<int64_t> pick(low, high);
    std::vector<double> all(rows, double(pick(random)));
    if (perRow)
      for (double &x : all)
        x = double(pick(random));
    return all;
  }
};

TEST_F(MaskAlgebraTest, exampleOfTheHeader) {
  Integers arith;
  SmallVector<MaskSpan> spans = describeMask(MaskTerm{causal(0), Value(), AffineMap()});
  auto none = [](unsigned, bool) -> int64_t { return 0; };
  KeyRange<int64_t> range = keyRange<int64_t>(arith, spans, 8, 11, 16, none, none);
  EXPECT_EQ(range.begin, 0);
  EXPECT_EQ(range.end, 12);
  EXPECT_EQ(range.fullBegin, 0);
  EXPECT_EQ(range.fullEnd, 9);
}

TEST_F(MaskAlgebraTest, causalOffsets) {
  for (int64_t keys : {1, 4, 9})
    for (int64_t offset = -12; offset <= 12; ++offset)
      check(Term{causal(offset), {}}, 7, keys);
}

TEST_F(MaskAlgebraTest, windows) {
  for (int64_t left : {kInf, int64_t(-4), int64_t(-1), int64_t(0), int64_t(2), int64_t(20)})
    for (int64_t right : {kInf, int64_t(-4), int64_t(-1), int64_t(0), int64_t(2), int64_t(20)})
      for (int64_t keys : {1, 6, 11})
        check(Term{window(left, right), {}}, 8, keys);
}

TEST_F(MaskAlgebraTest, conjunctionsWithPrefixAndLengths) {
  for (int64_t offset : {-3, 0, 2})
    for (int64_t left : {int64_t(1), int64_t(3), kInf})
      for (int64_t size : {-1, 0, 1, 4, 20})
        for (int64_t length : {-2, 0, 3, 6, 30}) {
          Term terms[] = {{causal(offset), {}},
                          {window(left, kInf), {}},
                          {prefix(size), {}},
                          {lengths(), std::vector<double>(6, double(length))}};
          check(ArrayRef(terms).take_front(3), 6, 7);
          check(terms, 6, 7);
          check(ArrayRef(terms).drop_front(2), 6, 7);
        }
}

TEST_F(MaskAlgebraTest, operandsThatVaryWithTheQuery) {
  for (int round = 0; round < 200; ++round) {
    bool perRow = round % 2;
    Term terms[] = {{causal(ShapedType::kDynamic), values(6, -5, 8, perRow)},
                    {window(2, 1, WindowBase::offset), values(6, -5, 5, perRow)},
                    {window(1, 3, WindowBase::centre), values(6, -3, 9, perRow)},
                    {prefix(ShapedType::kDynamic), values(6, -2, 9, perRow)},
                    {lengths(), values(6, -1, 10, perRow)}};
    for (const Term &term : terms)
      check(term, 6, 8);
    check(terms, 6, 8);
    check(ArrayRef(terms).drop_front(2), 6, 8);
  }
}

TEST_F(MaskAlgebraTest, realCentres) {
  std::uniform_real_distribution<double> pick(-3, 11);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> centres(5);
    for (double &x : centres)
      x = round % 3 ? pick(random) : std::round(pick(random));
    check(Term{window(2, 2, WindowBase::centre), centres, true}, 5, 9);
    check(Term{window(0, kInf, WindowBase::centre), centres, true}, 5, 9);
  }
}

TEST_F(MaskAlgebraTest, denseNeedsEveryTest) {
  Term terms[] = {{dense(), {}}, {causal(0), {}}};
  EXPECT_EQ(check(terms, 6, 6).second, 0);
}

// A bound that is sound but never skips or frees anything would pass above.
TEST_F(MaskAlgebraTest, rangesAreExactForOneTerm) {
  Integers arith;
  auto none = [](unsigned, bool) -> int64_t { return 0; };
  for (Attribute attr : {causal(1), window(2, -1), window(1, 2), window(-2, 3)})
    for (int64_t first = 0; first < 6; ++first)
      for (int64_t last = first; last < 6; ++last) {
        Term term{attr, {}};
        SmallVector<MaskSpan> spans = describeMask(MaskTerm{attr, Value(), AffineMap()});
        KeyRange<int64_t> range = keyRange<int64_t>(arith, spans, first, last, 9, none, none);
        for (int64_t j = 0; j < 9; ++j) {
          bool any = false, all = true;
          for (int64_t i = first; i <= last; ++i) {
            any |= isVisible(term, i, j);
            all &= isVisible(term, i, j);
          }
          EXPECT_EQ(all, j >= range.fullBegin && j < range.fullEnd);
          // Two windows with a gap between them share one range.
          if (last - first <= 2)
            EXPECT_EQ(any, j >= range.begin && j < range.end);
        }
      }
}

} // namespace
