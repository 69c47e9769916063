#include "passes/graph/attention/AttentionSink.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;

namespace attn {
namespace {

/// Whether `slice` takes all of each dimension but `dim`, of which it takes `size` from `first` on.
bool takesColumns(OffsetSizeAndStrideOpInterface slice, const Extent &first, const Extent &size, Value scores,
                  int64_t dim) {
  return isWholeBeside(slice, scores, dim) && Extent::of(slice.getMixedOffsets()[dim]) == first &&
         Extent::of(slice.getMixedSizes()[dim]) == size;
}

/// Scores and one column beside them.
struct Joined {
  Value scores;
  Value column; ///< null: `constant`
  std::optional<double> constant;
  Extent start = Extent(0); ///< of the scores: 1 behind the column
};

/// The ways to read `joined` as scores and one column in `dim`: two, where there is one score.
SmallVector<Joined> readJoined(Value joined, int64_t dim) {
  SmallVector<Joined> found;
  auto last = joined.getDefiningOp<tensor::InsertSliceOp>();
  int64_t rank = cast<RankedTensorType>(joined.getType()).getRank();
  if (!last || last.getSourceType().getRank() != rank)
    return found;
  auto startOf = [&](tensor::InsertSliceOp piece) {
    return isConstantIntValue(piece.getMixedOffsets()[dim], 0) ? Extent(0) : Extent(1);
  };
  auto fits = [&](const Joined &pieces, tensor::InsertSliceOp piece) {
    return takesColumns(piece, pieces.start, Extent::of(pieces.scores, dim), pieces.scores, dim);
  };
  // Scores put into a constant.
  if (auto around = dyn_cast_or_null<FloatAttr>(splatConstant(last.getDest()))) {
    Joined pieces{last.getSource(), {}, around.getValueAsDouble(), startOf(last)};
    if (around.getValue().isFinite() && fits(pieces, last) &&
        Extent::of(joined, dim).isMoreBy(1, Extent::of(pieces.scores, dim)))
      found.push_back(pieces);
    return found;
  }
  auto first = last.getDest().getDefiningOp<tensor::InsertSliceOp>();
  if (!first || first.getSourceType().getRank() != rank)
    return found;
  for (auto [piece, column] : {std::pair(first, last), std::pair(last, first)}) {
    Joined pieces{piece.getSource(), column.getSource(), {}, startOf(piece)};
    Extent beside = pieces.start.isOne() ? Extent(0) : Extent::of(pieces.scores, dim);
    if (column.getSourceType().getDimSize(dim) == 1 && fits(pieces, piece) &&
        takesColumns(column, beside, Extent(1), pieces.scores, dim))
      found.push_back(pieces);
  }
  return found;
}

/// Whether `shift` is the maximum of the rows of `scores` and `sink`, taken where they stand side by side.
bool isMaximumOfBoth(RowReader &rows, const Element &shift, const Element &scores, const Element &sink,
                     AffineExpr key) {
  std::optional<Reduced> maximum = rows.reduced(shift, Combiner::maximum);
  if (!maximum || maximum->loops.size() != 1)
    return false;
  AffineExpr summed = maximum->loops.front();
  const Element &joined = maximum->element;
  auto *dim = llvm::find(joined.at.getResults(), summed);
  if (dim == joined.at.getResults().end())
    return false;
  SmallVector<AffineExpr> place(joined.at.getResults()), first(place);
  place[dim - joined.at.getResults().begin()] = key;
  first[dim - joined.at.getResults().begin()] = getAffineConstantExpr(0, summed.getContext());
  return llvm::any_of(readJoined(joined.value, dim - joined.at.getResults().begin()), [&](const Joined &pieces) {
    return pieces.column && rows.isSame(rows.at(pieces.scores, place), scores) &&
           rows.isSame(rows.at(pieces.column, first), sink);
  });
}

/// The operands of which `element` is the greater one, as a maximum or as x < c ? c : x, which a lower bound is.
std::optional<std::pair<unsigned, unsigned>> findMaximum(const Element &element) {
  if (getAs<arith::MaximumFOp>(element) || getAs<arith::MaxNumFOp>(element))
    return std::pair(0u, 1u);
  auto select = getAs<arith::SelectOp>(element);
  auto compare = select ? select.getCondition().getDefiningOp<arith::CmpFOp>() : nullptr;
  if (compare && compare.getPredicate() == arith::CmpFPredicate::OLT && compare.getLhs() == select.getFalseValue() &&
      compare.getRhs() == select.getTrueValue())
    return std::pair(1u, 2u);
  return std::nullopt;
}

/// A sink as a term of the sum: exp(sink - maximum).
struct SinkTerm {
  Element sink;
  std::optional<double> score; ///< where it is a number
  std::optional<Element> column;
};

/// What a row's maximum, which is subtracted from its scores, is the maximum of.
enum class Maximum { scores, andNumber, andSink, unknown };

/// A number beside the scores counts where exp(sink - number), which alone is the sum of a row of -inf, is far from 0.
Maximum readMaximum(RowReader &rows, const Element &shift, const Element &scores, const SinkTerm &term,
                    const Places &keys) {
  if (rows.combines(shift, scores, Combiner::maximum, keys))
    return Maximum::scores;
  if (std::optional<std::pair<unsigned, unsigned>> either = findMaximum(shift))
    for (auto [n, rest] : {*either, std::pair(either->second, either->first)}) {
      Element other = rows.of(shift, n);
      std::optional<double> number = numberOf(other);
      constexpr double kFarBelow = 8;
      if (number && std::isfinite(*number) && term.score && *term.score > *number - kFarBelow)
        return Maximum::andNumber;
      if (rows.isSame(other, term.sink) && rows.combines(rows.operand(shift, rest), scores, Combiner::maximum, keys))
        return Maximum::andSink;
    }
  bool isOfBoth = keys.size() == 1 && isMaximumOfBoth(rows, shift, scores, term.sink, keys.front());
  return isOfBoth ? Maximum::andSink : Maximum::unknown;
}

/// The dimension of the root at which each dimension of a tensor that is read at `at` stands; -1: it has size 1.
std::optional<SmallVector<int64_t>> findPlaces(RowReader &rows, AffineMap at) {
  SmallVector<int64_t> dims;
  for (AffineExpr place : at.getResults()) {
    bool isUnit = rows.parts(place).empty();
    std::optional<int64_t> dim = isUnit ? std::nullopt : rows.findDim({place});
    if (!isUnit && !dim)
      return std::nullopt;
    dims.push_back(dim.value_or(-1));
  }
  return dims;
}

std::optional<SinkTerm> readSinkTerm(RowReader &rows, const Element &term, const Element &maximum) {
  if (!getAs<math::ExpOp>(term))
    return std::nullopt;
  Element distance = rows.of(term, 0);
  SinkTerm found{distance, 0, {}};
  if (getAs<arith::SubFOp>(distance)) {
    found.sink = rows.of(distance, 0);
    found.score = numberOf(found.sink);
    found.column = found.score ? std::nullopt : rows.tensor(rows.operand(distance, 0));
    if (!found.score && !found.column)
      return std::nullopt;
  } else if (!getAs<arith::NegFOp>(distance)) {
    return std::nullopt;
  }
  Element shift = rows.operand(distance, distance.getOp()->getNumOperands() - 1);
  bool isShifted = rows.isSame(shift, maximum) && (!found.score || std::isfinite(*found.score));
  return isShifted ? std::optional(found) : std::nullopt;
}

} // namespace

std::optional<Normalization> findShiftedSink(RowReader &rows, Value result, const Quotient &quotient) {
  Element exponential = rows.strip(quotient.numerator), divisor = rows.strip(quotient.denominator);
  if (!getAs<math::ExpOp>(exponential) || !getAs<arith::AddFOp>(divisor))
    return std::nullopt;
  Element difference = rows.of(exponential, 0);
  std::optional<Element> scores =
      getAs<arith::SubFOp>(difference) ? rows.tensor(rows.operand(difference, 0)) : std::nullopt;
  if (!scores || !rows.isWhole(*scores))
    return std::nullopt;
  Element maximum = rows.of(difference, 1);
  for (unsigned n : {0, 1}) {
    std::optional<SinkTerm> term = readSinkTerm(rows, rows.of(divisor, n), maximum);
    std::optional<Places> keys =
        term ? rows.combined(rows.operand(divisor, 1 - n), exponential, Combiner::sum) : std::nullopt;
    std::optional<int64_t> dim = keys ? rows.findDim(*keys) : std::nullopt;
    // What is subtracted is one number a row, and so is the sink.
    if (!dim || rows.names(maximum.at, *keys))
      continue;
    Maximum of = readMaximum(rows, maximum, *scores, *term, *keys);
    if (of == Maximum::unknown)
      continue;
    Normalization found(Normalizer::softmax, scores->value, result, *dim);
    found.sinkScore = term->score;
    if (term->column) {
      std::optional<SmallVector<int64_t>> dims = findPlaces(rows, term->column->at);
      if (!dims || llvm::is_contained(*dims, found.dim))
        continue;
      found.sink = term->column->value;
      found.sinkDims = *dims;
    }
    found.isSinkLost = of == Maximum::scores;
    found.isSinkInMaximum = of == Maximum::andSink;
    return found;
  }
  return std::nullopt;
}

std::optional<Normalization> findSink(SoftmaxOp softmax) {
  int64_t dim = softmax.getDim(), rank = softmax.getType().getRank();
  if (softmax.getLog() || !softmax->hasOneUse())
    return std::nullopt;
  auto cut = dyn_cast<tensor::ExtractSliceOp>(*softmax->user_begin());
  if (!cut || cut.getType().getRank() != rank)
    return std::nullopt;
  for (const Joined &pieces : readJoined(softmax.getInput(), dim)) {
    if (!takesColumns(cut, pieces.start, Extent::of(pieces.scores, dim), pieces.scores, dim))
      continue;
    Normalization found(softmax);
    found.input = pieces.scores;
    found.result = cut.getResult();
    found.sink = pieces.column;
    found.sinkScore = pieces.constant;
    if (pieces.column) {
      found.sinkDims = llvm::to_vector(llvm::seq<int64_t>(rank));
      found.sinkDims[dim] = -1;
      found.isSinkInMaximum = true;
    }
    // softmax of x - max(x) and c: of x and c + max(x). The difference is NaN in rows of -inf.
    if (Value scores = findUnshifted(pieces.scores, 0, dim)) {
      found.input = scores;
      found.isSinkShifted = found.isSinkLost = true;
    }
    return found;
  }
  return std::nullopt;
}

} // namespace attn
