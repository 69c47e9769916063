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
  for (int64_t n = 0, rank = slice.getMixedOffsets().size(); n != rank; ++n)
    if (!isConstantIntValue(slice.getMixedStrides()[n], 1) ||
        !(Extent::of(slice.getMixedOffsets()[n]) == (n == dim ? first : Extent(0))) ||
        !(Extent::of(slice.getMixedSizes()[n]) == (n == dim ? size : Extent::of(scores, n))))
      return false;
  return true;
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
        Extent::of(joined, dim).isOneMoreThan(Extent::of(pieces.scores, dim)))
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
bool isMaximumOfBoth(AtomSpace &space, const Scalar &shift, Read scores, const Scalar &sink) {
  auto reduction = shift.value.getDefiningOp<linalg::LinalgOp>();
  Atoms keys;
  std::optional<Read> joined =
      shift.op || !reduction ? std::nullopt : readReduced(space, {shift.value, shift.at}, Combiner::maximum, keys);
  if (!joined)
    return false;
  space.resolve(joined->access);
  space.resolve(keys);
  auto *dim = llvm::find(joined->access, keys);
  if (dim == joined->access.end())
    return false;
  for (const Joined &pieces : readJoined(joined->value, dim - joined->access.begin())) {
    if (pieces.scores != scores.value || !pieces.column)
      continue;
    space.resolve(scores.access);
    Access row(scores.access), other(joined->access);
    row[dim - joined->access.begin()].clear();
    other[dim - joined->access.begin()].clear();
    if (row == other && isSame(space, readScalar(space, {pieces.column, other}), sink))
      return true;
  }
  return false;
}

/// The operands of which `scalar` is the greater one, as a maximum or as x < c ? c : x, which a lower bound is.
std::optional<std::pair<unsigned, unsigned>> findMaximum(const Scalar &scalar) {
  if (getAs<arith::MaximumFOp>(scalar) || getAs<arith::MaxNumFOp>(scalar))
    return std::pair(0u, 1u);
  auto select = getAs<arith::SelectOp>(scalar);
  auto compare = select ? select.getCondition().getDefiningOp<arith::CmpFOp>() : nullptr;
  if (compare && compare.getPredicate() == arith::CmpFPredicate::OLT && compare.getLhs() == select.getFalseValue() &&
      compare.getRhs() == select.getTrueValue())
    return std::pair(1u, 2u);
  return std::nullopt;
}

/// What a row's maximum, which is subtracted from its scores, is the maximum of.
enum class Maximum { scores, andNumber, andSink, unknown };

/// A number beside the scores counts where exp(sink - number), which alone is the sum of a row of -inf, is far from 0.
Maximum readMaximum(AtomSpace &space, const Scalar &shift, const Read &row, const Read &scores, const Scalar &sink,
                    std::optional<double> sinkScore) {
  std::optional<unsigned> unitDim;
  if (findReducedAtoms(space, row, scores, Combiner::maximum, unitDim))
    return Maximum::scores;
  std::optional<std::pair<unsigned, unsigned>> either = findMaximum(shift);
  if (either)
    for (auto [n, rest] : {*either, std::pair(either->second, either->first)}) {
      Scalar other = readOperand(space, shift, n);
      auto number = dyn_cast_or_null<FloatAttr>(splatConstant(other.value));
      constexpr double kFarBelow = 8;
      if (number && number.getValue().isFinite() && sinkScore && *sinkScore > number.getValueAsDouble() - kFarBelow)
        return Maximum::andNumber;
      Scalar maximum = readOperand(space, shift, rest);
      if (isSame(space, other, sink) && !maximum.op &&
          findReducedAtoms(space, {maximum.value, maximum.at}, scores, Combiner::maximum, unitDim))
        return Maximum::andSink;
    }
  return isMaximumOfBoth(space, shift, scores, sink) ? Maximum::andSink : Maximum::unknown;
}

/// The tensor that operand `n` of the op that computes `scalar` reads.
std::optional<Read> readTensor(AtomSpace &space, Scalar scalar, unsigned n) {
  OpOperand *input = getInput(scalar.op, scalar.value.getDefiningOp()->getOperand(n));
  if (!input || !isa<RankedTensorType>(input->get().getType()))
    return std::nullopt;
  Access loops(scalar.at);
  space.resolve(loops);
  std::optional<Access> at = AtomSpace::operandAccess(scalar.op.getMatchingIndexingMap(input), loops);
  return at ? std::optional(Read{input->get(), *at}) : std::nullopt;
}

/// The dimension of a tensor read at `result` at which each dimension of one read at `access` stands; -1: it has
/// size 1.
std::optional<SmallVector<int64_t>> findDims(AtomSpace &space, Access access, Access result) {
  space.resolve(access);
  space.resolve(result);
  SmallVector<int64_t> dims;
  for (const Atoms &atoms : access) {
    auto *dim = llvm::find(result, atoms);
    if (!atoms.empty() && dim == result.end())
      return std::nullopt;
    dims.push_back(atoms.empty() ? -1 : dim - result.begin());
  }
  return dims;
}

/// Whether one of `atoms` is read at in `access`.
bool namesAnyOf(const Access &access, ArrayRef<unsigned> atoms) {
  return llvm::any_of(access, [&](const Atoms &list) {
    return llvm::any_of(list, [&](unsigned atom) { return llvm::is_contained(atoms, atom); });
  });
}

} // namespace

std::optional<Normalization> findShiftedSink(linalg::LinalgOp op, const Quotient &quotient, AtomSpace &space) {
  Value terms = quotient.numerator->get(), result = op->getResult(0);
  auto exponential = terms.getDefiningOp<linalg::LinalgOp>();
  OpOperand *exponent = isa_and_nonnull<math::ExpOp>(getScalarOp(exponential))
                            ? getInput(exponential, getScalarOp(exponential)->getOperand(0))
                            : nullptr;
  auto shift = exponent && isAligned(exponential, exponent) ? exponent->get().getDefiningOp<linalg::LinalgOp>()
                                                            : linalg::LinalgOp();
  auto difference = dyn_cast_or_null<arith::SubFOp>(getScalarOp(shift));
  OpOperand *scores = difference ? getInput(shift, difference.getLhs()) : nullptr;
  Scalar divisor = readScalar(space, quotient.denominator);
  if (!scores || !isAligned(shift, scores) || scores->get().getType() != result.getType() ||
      !getAs<arith::AddFOp>(divisor))
    return std::nullopt;
  std::optional<Read> row = readOperand(space, shift, getInput(shift, difference.getRhs()), quotient.result);
  if (!row)
    return std::nullopt;
  Scalar maximum = readScalar(space, *row);
  for (unsigned n : {0, 1}) {
    Scalar sum = readOperand(space, divisor, 1 - n), other = readOperand(space, divisor, n);
    if (sum.op || !getAs<math::ExpOp>(other))
      continue;
    Scalar distance = readOperand(space, other, 0), sink;
    std::optional<double> score;
    std::optional<Read> column;
    if (getAs<arith::SubFOp>(distance)) {
      sink = readOperand(space, distance, 0);
      if (auto number = dyn_cast_or_null<FloatAttr>(splatConstant(sink.value)))
        score = number.getValueAsDouble();
      else if (!(column = readTensor(space, distance, 0)))
        continue;
    } else if (getAs<arith::NegFOp>(distance)) {
      score = 0;
    } else {
      continue;
    }
    unsigned last = distance.value.getDefiningOp()->getNumOperands() - 1;
    if ((score && !std::isfinite(*score)) || !isSame(space, readOperand(space, distance, last), maximum))
      continue;
    Access at(quotient.result);
    space.resolve(at);
    std::optional<unsigned> unitDim;
    std::optional<Atoms> keys = findReducedAtoms(space, {sum.value, sum.at}, {terms, at}, Combiner::sum, unitDim);
    // What is subtracted is one number a row, and so is the sink.
    Read shiftRow = *row;
    space.walkUp(shiftRow.value, shiftRow.access);
    space.resolve(shiftRow.access);
    if (keys)
      space.resolve(*keys);
    if (keys && namesAnyOf(shiftRow.access, *keys))
      continue;
    Maximum of = keys ? readMaximum(space, maximum, *row, {scores->get(), at}, sink, score) : Maximum::unknown;
    if (of == Maximum::unknown)
      continue;
    space.resolve(at);
    space.resolve(*keys);
    auto *dim = unitDim ? at.begin() + *unitDim : llvm::find(at, *keys);
    if (dim == at.end())
      continue;
    Normalization found(Normalizer::softmax, scores->get(), result, dim - at.begin());
    found.sinkScore = score;
    if (column) {
      std::optional<SmallVector<int64_t>> dims = findDims(space, column->access, at);
      if (!dims || llvm::is_contained(*dims, found.dim))
        continue;
      found.sink = column->value;
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
    auto shift = pieces.scores.getDefiningOp<linalg::LinalgOp>();
    if (OpOperand *scores = findUnshifted(shift, 0, dim)) {
      found.input = scores->get();
      found.isSinkShifted = found.isSinkLost = true;
    }
    return found;
  }
  return std::nullopt;
}

} // namespace attn
