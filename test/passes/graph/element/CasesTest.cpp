#include "passes/graph/element/Cases.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "gtest/gtest.h"
#include <numeric>
#include <random>

using namespace attn;
using namespace mlir;

namespace {

/// Numbers of the elements of a tensor, row by row: which of the source each one is, -1 for padding.
struct Shadow {
  SmallVector<int64_t> shape;
  std::vector<int64_t> from;

  SmallVector<int64_t> placeOf(int64_t number) const {
    SmallVector<int64_t> place(shape.size());
    for (size_t n = shape.size(); n-- != 0; number /= shape[n])
      place[n] = number % shape[n];
    return place;
  }
  int64_t numberOf(ArrayRef<int64_t> place) const {
    int64_t number = 0;
    for (auto [at, size] : llvm::zip_equal(place, shape))
      number = number * size + at;
    return number;
  }
  int64_t size() const { return from.size(); }
};

/// A chain of moves of elements, as ops and as what they do.
class CasesTest : public ::testing::Test {
protected:
  CasesTest() {
    context.loadDialect<arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect, tensor::TensorDialect>();
    module = ModuleOp::create(loc);
  }

  void start(ArrayRef<int64_t> shape) {
    b.setInsertionPointToEnd(module->getBody());
    auto type = RankedTensorType::get(shape, b.getF32Type());
    auto function = func::FuncOp::create(b, loc, "f" + std::to_string(numFunctions++), b.getFunctionType(type, {}));
    b.setInsertionPointToStart(function.addEntryBlock());
    source = whole = function.getArgument(0);
    original.shape = shadow.shape = SmallVector<int64_t>(shape);
    shadow.from.resize(type.getNumElements());
    std::iota(shadow.from.begin(), shadow.from.end(), 0);
    original.from = shadow.from;
  }

  /// Into a tensor of zeros, with some of them in front and behind.
  void pad(ArrayRef<int64_t> before, ArrayRef<int64_t> behind) {
    Shadow padded;
    for (auto [size, low, high] : llvm::zip_equal(shadow.shape, before, behind))
      padded.shape.push_back(low + size + high);
    padded.from.assign(std::accumulate(padded.shape.begin(), padded.shape.end(), int64_t(1), std::multiplies<>()), -1);
    for (int64_t n = 0; n != shadow.size(); ++n) {
      SmallVector<int64_t> place = shadow.placeOf(n);
      for (auto [at, low] : llvm::zip_equal(place, before))
        at += low;
      padded.from[padded.numberOf(place)] = shadow.from[n];
    }
    Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
    Value empty = tensor::EmptyOp::create(b, loc, padded.shape, b.getF32Type());
    Value fill = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
    whole = tensor::InsertSliceOp::create(b, loc, whole, fill, toFold(before), toFold(shadow.shape),
                                          toFold(SmallVector<int64_t>(before.size(), 1)));
    shadow = std::move(padded);
  }

  void slice(ArrayRef<int64_t> first, ArrayRef<int64_t> count) {
    Shadow cut{SmallVector<int64_t>(count), {}};
    int64_t size = std::accumulate(count.begin(), count.end(), int64_t(1), std::multiplies<>());
    cut.from.resize(size);
    for (int64_t n = 0; n != size; ++n) {
      SmallVector<int64_t> place = cut.placeOf(n);
      for (auto [at, low] : llvm::zip_equal(place, first))
        at += low;
      cut.from[n] = shadow.from[shadow.numberOf(place)];
    }
    whole = tensor::ExtractSliceOp::create(b, loc, whole, toFold(first), toFold(count),
                                           toFold(SmallVector<int64_t>(count.size(), 1)));
    shadow = std::move(cut);
  }

  /// Row by row in another shape of two dimensions.
  void reshape(int64_t rows) {
    SmallVector<ReassociationIndices> all{{0, 1}};
    Value flat = tensor::CollapseShapeOp::create(b, loc, whole, all);
    shadow.shape = {rows, shadow.size() / rows};
    whole = tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get(shadow.shape, b.getF32Type()), flat, all);
  }

  void transpose() {
    Shadow turned{{shadow.shape[1], shadow.shape[0]}, std::vector<int64_t>(shadow.size())};
    for (int64_t n = 0; n != shadow.size(); ++n) {
      SmallVector<int64_t> place = turned.placeOf(n);
      std::swap(place[0], place[1]);
      turned.from[n] = shadow.from[shadow.numberOf(place)];
    }
    Value empty = tensor::EmptyOp::create(b, loc, turned.shape, b.getF32Type());
    whole = linalg::TransposeOp::create(b, loc, whole, empty, ArrayRef<int64_t>{1, 0})->getResult(0);
    shadow = std::move(turned);
  }

  /// Compares each element with each of its cases. False where the reader gave up.
  bool check() {
    SmallVector<SmallVector<int64_t>> bases(shadow.shape.size()); // by which each coordinate is cut, the last one first
    for (int cuts = 0; cuts != 8; ++cuts) {
      CaseReader::Shared shared;
      shared.numSteps = 10000;
      SymbolTable symbols(*module);
      CaseReader reader(symbols, nullptr, shared);
      SmallVector<Linear> coordinates;
      SmallVector<SmallVector<unsigned>> digits(bases.size()); // variables, the last digit first
      SmallVector<std::pair<unsigned, unsigned>> owners;
      for (unsigned dim = 0; dim != bases.size(); ++dim) {
        int64_t size = shadow.shape[dim];
        Linear place;
        int64_t step = 1;
        for (unsigned n = 0; n != bases[dim].size() + 1; ++n) {
          bool isLast = n == bases[dim].size();
          if (!isLast && size % bases[dim][n] != 0)
            return false;
          digits[dim].push_back(reader.addVariable(Linear{isLast ? size : bases[dim][n]}));
          owners.emplace_back(dim, n);
          place = place + Linear::variable(digits[dim].back(), step);
          if (!isLast)
            step *= bases[dim][n], size /= bases[dim][n];
        }
        coordinates.push_back(place);
      }
      reader.closeCuttable();
      SmallVector<std::pair<Guards, CaseExprRef>> cases;
      reader.read(whole, coordinates, reader.everywhere(),
                  [&](const Guards &guards, const CaseExprRef &expr) { cases.emplace_back(guards, expr); });
      if (!reader.isFailed()) {
        compare(cases, digits, bases);
        return true;
      }
      std::optional<CaseReader::Cut> cut = reader.getCut();
      if (!cut || cut->variable >= owners.size())
        return false;
      auto [dim, digit] = owners[cut->variable];
      if (digit < bases[dim].size()) {
        if (bases[dim][digit] % cut->base != 0)
          return false;
        bases[dim][digit] /= cut->base;
      }
      bases[dim].insert(bases[dim].begin() + digit, cut->base);
    }
    return false;
  }

  std::mt19937 random{7};
  Shadow shadow;
  Value whole;

private:
  SmallVector<OpFoldResult> toFold(ArrayRef<int64_t> numbers) { return getAsIndexOpFoldResult(&context, numbers); }

  void compare(ArrayRef<std::pair<Guards, CaseExprRef>> cases, ArrayRef<SmallVector<unsigned>> digits,
               ArrayRef<SmallVector<int64_t>> bases) {
    for (int64_t n = 0; n != shadow.size(); ++n) {
      SmallVector<int64_t> place = shadow.placeOf(n), values;
      Guards here;
      for (unsigned dim = 0; dim != place.size(); ++dim) {
        int64_t rest = place[dim];
        for (auto [digit, variable] : llvm::enumerate(digits[dim])) {
          bool isLast = digit == bases[dim].size();
          int64_t value = isLast ? rest : rest % bases[dim][digit];
          rest = isLast ? 0 : rest / bases[dim][digit];
          values.resize(std::max<size_t>(values.size(), variable + 1));
          values[variable] = value;
        }
      }
      int numCases = 0;
      for (const auto &[guards, expr] : cases) {
        Guards pinned = guards;
        for (auto [variable, value] : llvm::enumerate(values))
          pinned.addRange(Linear::variable(variable) - Linear{value}, Linear{1});
        if (pinned.isEmpty())
          continue;
        ++numCases;
        if (expr->kind == CaseExpr::Number) {
          EXPECT_TRUE(shadow.from[n] == -1 && expr->number.getValue().isZero());
          continue;
        }
        ASSERT_EQ(expr->kind, CaseExpr::Read);
        ASSERT_EQ(expr->tensor, source);
        SmallVector<int64_t> read;
        for (const Linear &along : expr->place) {
          read.push_back(along.constant);
          for (auto [variable, value] : llvm::enumerate(values))
            read.back() += along.factor(variable) * value;
        }
        EXPECT_EQ(original.numberOf(read), shadow.from[n]);
      }
      EXPECT_EQ(numCases, 1);
    }
  }

  MLIRContext context;
  Location loc = UnknownLoc::get(&context);
  OwningOpRef<ModuleOp> module;
  OpBuilder b{&context};
  int numFunctions = 0;
  Value source;
  Shadow original;
};

TEST_F(CasesTest, SkewsRows) {
  // Longformer's: a row more than there is room for, so that each one begins a place further on.
  start({4, 7});
  pad({0, 0}, {0, 4});
  reshape(1);
  slice({0, 0}, {1, 40});
  reshape(4);
  ASSERT_TRUE(check());
  EXPECT_EQ(shadow.from[11], 7); // row 1, a place further on
}

TEST_F(CasesTest, CutsWindowsOfPaddedRows) {
  start({3, 8});
  transpose();
  pad({2, 0}, {2, 1});
  slice({1, 1}, {6, 2});
  ASSERT_TRUE(check());
}

TEST_F(CasesTest, FollowsRandomMoves) {
  auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  int numRead = 0, numAll = 300;
  for (int n = 0; n != numAll; ++n) {
    start({draw(1, 5), draw(1, 6)});
    for (int64_t move = draw(1, 5); move != 0; --move)
      switch (draw(0, 3)) {
      case 0:
        pad({draw(0, 2), draw(0, 3)}, {draw(0, 2), draw(0, 3)});
        break;
      case 1: {
        int64_t rows = draw(1, shadow.shape[0]), columns = draw(1, shadow.shape[1]);
        slice({draw(0, shadow.shape[0] - rows), draw(0, shadow.shape[1] - columns)}, {rows, columns});
        break;
      }
      case 2: {
        SmallVector<int64_t> divisors;
        for (int64_t rows = 1; rows <= shadow.size(); ++rows)
          if (shadow.size() % rows == 0)
            divisors.push_back(rows);
        reshape(divisors[draw(0, divisors.size() - 1)]);
        break;
      }
      default:
        transpose();
      }
    numRead += check();
    if (HasFailure())
      FAIL() << "graph " << n;
  }
  EXPECT_GT(numRead, numAll * 9 / 10);
}

TEST(GuardsTest, KnowsWhatHoldsNowhere) {
  Guards guards;
  Linear x = Linear::variable(0), y = Linear::variable(1);
  guards.addRange(x, Linear{10});
  guards.addRange(y, Linear{5});
  EXPECT_EQ(guards.bounds(x + y * 2).greatest, 17);
  EXPECT_EQ(guards.bounds(x - y).least, -4);
  EXPECT_FALSE(guards.isEmpty());
  EXPECT_FALSE(guards.isZero(x));
  guards.add(x * -1);
  EXPECT_TRUE(guards.isZero(x));
  EXPECT_TRUE(guards.isAtLeastZero(y - x));
  EXPECT_FALSE(guards.isAtLeastZero(x - y));
  guards.add(x - y - Linear{1});
  EXPECT_TRUE(guards.isEmpty());
  EXPECT_EQ(Guards().bounds(x).greatest, std::nullopt);
}

} // namespace
