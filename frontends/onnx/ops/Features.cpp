#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Gather.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Reduce.h"
#include <cstring>

// What stands in front of a classical model: numbers and counts of what an input has (TfIdfVectorizer, and Binarizer
// and ArrayFeatureExtractor of ai.onnx.ml).

using namespace mlir;

namespace attn::onnx {
namespace {

LogicalResult importBinarizer(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  double threshold = n.floatAttr("threshold", 0);
  return setFormula(n, n.input(0).dtype, {n.input(0)}, [&](ArrayRef<Num> v) {
    Num x = v[0].isFloating() ? v[0] : convert(v[0], DType::F64);
    Num zero = v[0].constant(0);
    return select(x > x.constant(threshold), zero.constant(1), zero);
  });
}

/// Columns of X, all in one row where X is a vector.
LogicalResult importArrayFeatureExtractor(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  const Tensor &x = n.input(0), &columns = n.input(1);
  if (x.rank() < 1 || columns.dtype != DType::I64)
    return n.error() << "expects X of at least one dimension and Y of int64, has rank " << x.rank() << " and "
                     << dtypeName(columns.dtype);
  FailureOr<Tensor> list = n.reshape(columns, {product(columns.shape)});
  FailureOr<Tensor> taken = failed(list) ? list : gather(n, x, *list, x.rank() - 1);
  if (succeeded(taken) && x.rank() == 1)
    taken = n.reshape(*taken, {Expr(1), taken->shape[0]});
  if (failed(taken))
    return failure();
  n.setOutput(0, *taken);
  return success();
}

//===----------------------------------------------------------------------===//
// TfIdfVectorizer
//===----------------------------------------------------------------------===//

/// The n-grams of one length.
struct Grams {
  int64_t length, count; // numbers of each, and how many there are
  SmallVector<int64_t> numbers, columns;
};

template <typename T> Tensor constantOf(Node &n, DType dtype, ArrayRef<int64_t> shape, ArrayRef<T> numbers) {
  return n.constantTensor(dtype, shape, {reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(T)});
}

/// The pool's n-grams of the lengths that are counted, and how many columns the result has.
FailureOr<SmallVector<Grams>> readGrams(Node &n, int64_t &columns) {
  if (n.hasAttr("pool_strings"))
    return n.unsupported() << "n-grams of strings";
  std::optional<SmallVector<int64_t>> pool = n.intsAttr("pool_int64s"), begins = n.intsAttr("ngram_counts");
  std::optional<SmallVector<int64_t>> places = n.intsAttr("ngram_indexes");
  if (!pool || !begins || !places)
    return n.error() << "has no pool_int64s, ngram_counts or ngram_indexes";
  int64_t least = n.intAttr("min_gram_length", 1), most = n.intAttr("max_gram_length", 1);
  if (least < 1 || most < least || most > static_cast<int64_t>(begins->size()))
    return n.error() << "expects min_gram_length and max_gram_length in 1 to " << begins->size()
                     << " (ngram_counts) in this order, has " << least << " and " << most;
  SmallVector<Grams> result;
  size_t gram = 0;
  columns = 0;
  for (auto [at, begin] : llvm::enumerate(*begins)) {
    int64_t length = at + 1, end = at + 1 < begins->size() ? (*begins)[at + 1] : pool->size();
    if (begin < 0 || end < begin || end > static_cast<int64_t>(pool->size()) || (end - begin) % length)
      return n.error() << "ngram_counts has " << begin << " before " << end << " in a pool of " << pool->size()
                       << " numbers, which are no whole n-grams of " << length;
    Grams grams{length, (end - begin) / length, {}, {}};
    if (gram + grams.count > places->size())
      return n.error() << "has " << places->size() << " ngram_indexes for more n-grams";
    grams.numbers.append(pool->begin() + begin, pool->begin() + end);
    grams.columns.append(places->begin() + gram, places->begin() + gram + grams.count);
    gram += grams.count;
    if (length >= least && length <= most && grams.count > 0)
      result.push_back(std::move(grams));
  }
  for (int64_t place : *places) {
    if (place < 0 || place >= (1 << 24))
      return n.error() << "expects ngram_indexes of at least 0 and below 2^24, has " << place;
    columns = std::max(columns, place + 1);
  }
  return result;
}

/// How often each of `grams` stands in the rows of `x` [N, C], its numbers `distance` apart: [N, G] in f32.
FailureOr<Tensor> countGrams(Node &n, const Tensor &x, const Grams &grams, int64_t distance) {
  Symbols &symbols = n.symbols();
  Expr reach(distance * (grams.length - 1));
  Expr starts = symbols.max(x.shape[1] - reach, Expr(0));
  SmallVector<int64_t> shape{1, 1, grams.count};
  std::optional<Tensor> hits;
  for (int64_t k = 0; k < grams.length; ++k) {
    SmallVector<int64_t> numbers;
    for (int64_t gram = 0; gram < grams.count; ++gram)
      numbers.push_back(grams.numbers[gram * grams.length + k]);
    Expr offset = symbols.min(Expr(k * distance), x.shape[1]);
    FailureOr<Tensor> column = n.reshape(n.slice(x, 1, offset, starts), {x.shape[0], starts, Expr(1)});
    if (failed(column))
      return failure();
    std::vector<Tensor> operands{*column, constantOf<int64_t>(n, DType::I64, shape, numbers)};
    if (hits)
      operands.push_back(*hits);
    FailureOr<Tensor> both = formula(n, DType::Bool, operands, [](ArrayRef<Num> v) {
      Num same = v[0] == v[1];
      return v.size() > 2 ? same & v[2] : same;
    });
    if (failed(both))
      return failure();
    hits = *both;
  }
  return reduce(n, Combine::Sum, n.cast(*hits, DType::F32), int64_t(1));
}

/// All counts of `grams`, in the columns of the result.
FailureOr<Tensor> spreadCounts(Node &n, const Tensor &x, const Grams &grams, int64_t columns) {
  // A number alone is not further apart from itself.
  int64_t distances = grams.length == 1 ? 1 : n.intAttr("max_skip_count", 0) + 1;
  std::optional<Tensor> counts;
  for (int64_t distance = 1; distance <= distances; ++distance) {
    if (n.symbols().isLess(Expr(distance * (grams.length - 1)), x.shape[1]) == false)
      break;
    FailureOr<Tensor> own = countGrams(n, x, grams, distance);
    if (succeeded(own) && counts)
      own = formula(n, DType::F32, {*counts, *own}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
    if (failed(own))
      return failure();
    counts = *own;
  }
  if (!counts) {
    Tensor none;
    none.shape.append({x.shape[0], Expr(columns)});
    none.value = n.filled(DType::F32, none.shape, n.constant(DType::F32, 0));
    return none;
  }
  SmallVector<float> places(grams.count * columns, 0);
  for (auto [gram, column] : llvm::enumerate(grams.columns))
    places[gram * columns + column] = 1;
  Tensor spread = constantOf<float>(n, DType::F32, {grams.count, columns}, places);
  return contractLabels(n, DType::F32, {*counts, {0, 1}}, {spread, {1, 2}}, {0, 2});
}

/// The counts as `mode` wants them, with a weight for each column.
FailureOr<Tensor> weighted(Node &n, const Tensor &counts, int64_t columns) {
  std::string mode = n.stringAttr("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    return n.error() << "expects the mode TF, IDF or TFIDF, has '" << printableName(mode) << "'";
  std::optional<SmallVector<double>> given = n.floatsAttr("weights");
  if (given && static_cast<int64_t>(given->size()) != columns)
    return n.error() << "has " << given->size() << " weights for " << columns << " columns";
  if (mode == "TF")
    return counts;
  SmallVector<float> weights(columns, 1);
  if (given)
    llvm::copy(*given, weights.begin());
  return formula(n, DType::F32, {counts, constantOf<float>(n, DType::F32, {columns}, weights)}, [&](ArrayRef<Num> v) {
    Num zero = v[0].constant(0);
    return mode == "IDF" ? select(v[0] > zero, v[1], zero) : v[0] * v[1];
  });
}

LogicalResult importTfIdfVectorizer(Node &n) {
  int64_t columns = 0;
  if (failed(expectInputs(n, 1)))
    return failure();
  const Tensor &x = n.input(0);
  if ((x.dtype != DType::I32 && x.dtype != DType::I64) || x.rank() < 1 || x.rank() > 2)
    return n.error() << "expects int32 or int64 in one or two dimensions, has " << dtypeName(x.dtype) << " in "
                     << x.rank();
  // Each distance of an n-gram's words is a loop of its own, which takes time to compile.
  constexpr int64_t kMostSkipped = 64;
  if (int64_t skip = n.intAttr("max_skip_count", 0); skip < 0)
    return n.error() << "expects a max_skip_count of at least 0, has " << skip;
  else if (skip > kMostSkipped)
    return n.unsupported() << "a max_skip_count of " << skip << ", at most " << kMostSkipped;
  FailureOr<SmallVector<Grams>> all = readGrams(n, columns);
  if (failed(all))
    return failure();
  Expr rows = x.rank() == 2 ? x.shape[0] : Expr(1);
  FailureOr<Tensor> numbers = n.reshape(n.cast(x, DType::I64), {rows, x.shape.back()});
  Tensor counts;
  counts.shape.append({rows, Expr(columns)});
  counts.value = n.filled(DType::F32, counts.shape, n.constant(DType::F32, 0));
  for (const Grams &grams : *all) {
    FailureOr<Tensor> own = failed(numbers) ? numbers : spreadCounts(n, *numbers, grams, columns);
    if (succeeded(own))
      own = formula(n, DType::F32, {counts, *own}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
    if (failed(own))
      return failure();
    counts = *own;
  }
  FailureOr<Tensor> y = weighted(n, counts, columns);
  if (succeeded(y) && x.rank() == 1)
    y = n.reshape(*y, {Expr(columns)});
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerFeatureOps(OpRegistry &registry) {
  registry.add("TfIdfVectorizer", {9}, importTfIdfVectorizer);
  registry.add("Binarizer", {1}, importBinarizer, "ai.onnx.ml");
  registry.add("ArrayFeatureExtractor", {1}, importArrayFeatureExtractor, "ai.onnx.ml");
}

} // namespace attn::onnx
