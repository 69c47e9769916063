#include "tools/interpret/Interpreter.h"

#include "mlir/IR/TypeUtilities.h"
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

// attn.attention from the formulas of its description, row by row, in double.

using namespace mlir;

namespace attn::interpret {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Dim = AttentionOp::Dim;
/// The iteration dimensions b, h, i, j, d, e.
using Point = std::array<int64_t, AttentionOp::kDims>;

/// A tensor read through its map.
class View {
public:
  View() = default;
  View(DatumRef datum, AffineMap map) : datum(std::move(datum)), map(map) {}
  /// Its element at a point (and at `last` of a dimension the map lacks); the
  /// verifier has seen to it that sizes which are static fit, the rest is tested here.
  FailureOr<Scalar> at(const Point &point, std::optional<int64_t> last = {}) const {
    SmallVector<int64_t, 6> index;
    for (AffineExpr expr : map.getResults())
      index.push_back(evaluate(expr, point));
    if (last)
      index.push_back(*last);
    int64_t position = positionIn(datum->shape, index);
    if (position < 0)
      return failure();
    return datum->data[position];
  }
  const Datum &get() const { return *datum; }
  AffineMap getMap() const { return map; }

private:
  DatumRef datum;
  AffineMap map;
};

/// All stages of the scores and weights, over (b, h, i, j).
struct Stages {
  std::vector<double> raw, scores, masked, weights, final;
  std::vector<double> lse; ///< over (b, h, i)
};

class AttentionEvaluator {
public:
  AttentionEvaluator(AttentionOp op, Interpreter &interpreter) : op(op), interpreter(interpreter) {}
  FailureOr<SmallVector<Datum>> evaluate();

private:
  LogicalResult prepare();
  LogicalResult findSizes();
  LogicalResult evaluateRow(Point point);
  FailureOr<double> rawScore(Point point);
  FailureOr<double> termOfScore(const Point &point);
  FailureOr<double> runBody(ScalarBody &body, double x, const Point &point);
  FailureOr<bool> isVisible(const Point &point);
  FailureOr<bool> shows(unsigned term, const Point &point);
  void normalize(ArrayRef<double> taken, bool isEmpty, MutableArrayRef<double> weights);
  LogicalResult weightedSum();
  FailureOr<Datum> extra(unsigned n);
  size_t rowOf(const Point &p) const { return ((p[0] * sizes[1]) + p[1]) * sizes[2] + p[2]; }
  size_t cellOf(const Point &p) const { return rowOf(p) * sizes[3] + p[3]; }
  LogicalResult outside() { return op.emitOpError("has operands whose sizes do not fit at run time"); }

  AttentionOp op;
  Interpreter &interpreter;
  Point sizes;
  View query, key, value, alignment;
  SmallVector<View> captures, masks; ///< masks: by term; empty where a term takes no operand
  SmallVector<MaskTerm> terms;
  std::optional<ScalarBody> score, weight, activation, masked;
  Stages stages;
  std::vector<char> takesPart; ///< over (b, h, i, j): the value is read
  SmallVector<Datum> results;
};

LogicalResult AttentionEvaluator::prepare() {
  auto view = [&](Value operand, AffineMap map) { return View(interpreter.get(operand), map); };
  query = view(op.getQuery(), op.getQueryMap());
  value = view(op.getValue(), op.getValueMap());
  if (op.getKey())
    key = view(op.getKey(), op.getKeyMap());
  if (op.getAlignment())
    alignment = view(op.getAlignment(), op.getAlignmentMap());
  for (auto [n, capture] : llvm::enumerate(op.getCaptures()))
    captures.push_back(view(capture, op.getCaptureMap(n)));
  terms = op.getMaskTerms();
  for (const MaskTerm &term : terms)
    masks.push_back(term.operand ? view(term.operand, term.map) : View());
  auto body = [&](Region &region, std::optional<ScalarBody> &into) -> LogicalResult {
    if (region.empty())
      return success();
    FailureOr<ScalarBody> prepared = ScalarBody::prepare(interpreter, region.front());
    if (failed(prepared))
      return failure();
    into = std::move(*prepared);
    return success();
  };
  if (failed(body(op.getScore(), score)) || failed(body(op.getWeight(), weight)) ||
      failed(body(op.getActivation(), activation)) || failed(body(op.getMasked(), masked)))
    return failure();
  return findSizes();
}

LogicalResult AttentionEvaluator::findSizes() {
  sizes.fill(-1);
  auto offer = [&](ArrayRef<int64_t> shape, AffineMap map, bool wantsHeadGroups) {
    for (auto [n, expr] : llvm::enumerate(map.getResults())) {
      std::optional<unsigned> dim = AttentionOp::getNamedDim(expr);
      int64_t divisor = AttentionOp::getDivisor(expr);
      if (!dim || sizes[*dim] >= 0 || shape[n] < 0 || (divisor > 1) != wantsHeadGroups ||
          (divisor > 1 && *dim != Dim::H))
        continue;
      sizes[*dim] = shape[n] * divisor;
    }
  };
  for (bool groups : {false, true}) {
    for (auto [n, operand] : llvm::enumerate(op->getOperands()))
      offer(interpreter.get(operand)->shape, op.getMap(n), groups);
    for (auto [n, result] : llvm::enumerate(op->getResults()))
      offer(cast<RankedTensorType>(result.getType()).getShape(), op.getMap(op->getNumOperands() + n), groups);
  }
  for (int64_t &size : sizes)
    size = size < 0 ? 1 : size;
  if (countElements(ArrayRef(sizes).take_front(4)) < 0)
    return op.emitOpError("has more scores than the interpreter takes");
  return success();
}

FailureOr<double> AttentionEvaluator::runBody(ScalarBody &body, double x, const Point &point) {
  SmallVector<Scalar> arguments{Scalar::of(x)};
  for (const View &capture : captures) {
    FailureOr<Scalar> element = capture.at(point);
    if (failed(element))
      return outside();
    arguments.push_back(*element);
  }
  FailureOr<ArrayRef<Scalar>> yields = body.run(arguments, ArrayRef(point).take_front(4));
  if (failed(yields))
    return failure();
  return yields->front().real;
}

FailureOr<double> AttentionEvaluator::rawScore(Point point) {
  if (op.getKind() == ScoreKind::given) {
    FailureOr<Scalar> s = query.at(point);
    return failed(s) ? FailureOr<double>(outside()) : s->real;
  }
  double sum = 0;
  for (point[Dim::D] = 0; point[Dim::D] < sizes[Dim::D]; ++point[Dim::D]) {
    FailureOr<double> term = termOfScore(point);
    if (failed(term))
      return failure();
    sum += *term;
  }
  return sum;
}

/// What one place of the width adds to a score that is not given.
FailureOr<double> AttentionEvaluator::termOfScore(const Point &point) {
  FailureOr<Scalar> q = query.at(point), k = key.at(point);
  if (failed(q) || failed(k))
    return outside();
  switch (op.getKind()) {
  case ScoreKind::dot:
    return q->real * k->real;
  case ScoreKind::distance:
    return (q->real - k->real) * (q->real - k->real);
  case ScoreKind::additive: {
    FailureOr<Scalar> a = alignment.at(point);
    if (failed(a))
      return outside();
    double x = q->real + k->real;
    if (!activation)
      return a->real * x;
    FailureOr<ArrayRef<Scalar>> y = activation->run(Scalar::of(x), {});
    if (failed(y))
      return failure();
    return a->real * y->front().real;
  }
  case ScoreKind::given:
    break;
  }
  llvm_unreachable("given scores have no terms");
}

/// Whether term number `n` shows key j to query i.
FailureOr<bool> AttentionEvaluator::shows(unsigned n, const Point &point) {
  using Wide = __int128; // operands may be any int64
  Attribute term = terms[n].term;
  Wide i = point[Dim::I], j = point[Dim::J];
  if (auto blocks = dyn_cast<BlocksAttr>(term)) {
    for (int64_t slot = 0; slot < masks[n].get().shape.back(); ++slot) {
      FailureOr<Scalar> entry = masks[n].at(point, slot);
      if (failed(entry))
        return outside();
      if (entry->integer >= 0 && j >= Wide(entry->integer) * blocks.getColumns() &&
          j < Wide(entry->integer + Wide(1)) * blocks.getColumns())
        return true;
    }
    return false;
  }
  Scalar x = Scalar::of(int64_t(0));
  if (terms[n].operand) {
    FailureOr<Scalar> element = masks[n].at(point);
    if (failed(element))
      return outside();
    x = *element;
  }
  if (auto causal = dyn_cast<CausalAttr>(term))
    return j <= i + (terms[n].operand ? Wide(x.integer) : Wide(causal.getOffset()));
  if (auto prefix = dyn_cast<PrefixAttr>(term))
    return j < (terms[n].operand ? Wide(x.integer) : Wide(prefix.getSize()));
  if (isa<LengthsAttr>(term))
    return j < Wide(x.integer);
  if (isa<DenseMaskAttr>(term))
    return x.integer != 0;
  constexpr int64_t kInf = WindowAttr::kInf;
  if (auto chunks = dyn_cast<ChunksAttr>(term)) {
    Wide size = chunks.getSize(), own = i / size;
    return (chunks.getLeft() == kInf || j >= (own - chunks.getLeft()) * size + x.integer) &&
           (chunks.getRight() == kInf || j < (own + chunks.getRight() + 1) * size + x.integer);
  }
  auto window = cast<WindowAttr>(term);
  if (terms[n].operand && isa<FloatType>(getElementTypeOrSelf(terms[n].operand))) {
    double distance = double(point[Dim::J]) - x.real;
    return !std::isnan(distance) && (window.getLeft() == kInf || distance >= -double(window.getLeft())) &&
           (window.getRight() == kInf || distance <= double(window.getRight()));
  }
  Wide centre = window.getBase() == WindowBase::centre ? Wide(x.integer) : i + Wide(x.integer);
  return (window.getLeft() == kInf || j >= centre - window.getLeft()) &&
         (window.getRight() == kInf || j <= centre + window.getRight());
}

FailureOr<bool> AttentionEvaluator::isVisible(const Point &point) {
  bool near = true, prefix = false;
  for (auto [n, term] : llvm::enumerate(terms)) {
    FailureOr<bool> shown = shows(n, point);
    if (failed(shown))
      return failure();
    if (isa<PrefixAttr>(term.term))
      prefix |= *shown;
    else if (isa<CausalAttr, WindowAttr>(term.term))
      near &= *shown;
    else if (!*shown)
      return false;
  }
  return near || prefix;
}

void AttentionEvaluator::normalize(ArrayRef<double> taken, bool isEmpty, MutableArrayRef<double> weights) {
  MaskedRows policy = op.getMaskedRows();
  if (op.getNormalizer() == Normalizer::none) {
    llvm::copy(taken, weights.begin());
    return;
  }
  if (isEmpty && (policy == MaskedRows::zero || policy == MaskedRows::uniform)) {
    llvm::fill(weights, policy == MaskedRows::zero ? 0 : 1 / double(taken.size()));
    return;
  }
  bool isSoftmax = op.getNormalizer() == Normalizer::softmax;
  std::optional<Type> type = op.getSoftmaxType();
  auto rounded = [&](double x) { return type && type->getIntOrFloatBitWidth() < 32 ? roundTo(x, *type) : x; };
  double max = -kInfinity, sum = 0;
  for (double x : taken)
    max = std::isnan(x) || std::isnan(max) ? std::numeric_limits<double>::quiet_NaN() : std::max(max, rounded(x));
  for (auto [x, weight] : llvm::zip_equal(taken, weights)) {
    weight = isSoftmax ? std::exp(rounded(x) - max) : x;
    sum += weight;
  }
  for (double &weight : weights)
    weight = rounded(weight / sum);
}

LogicalResult AttentionEvaluator::evaluateRow(Point point) {
  int64_t keys = sizes[Dim::J];
  size_t row = rowOf(point), first = row * keys;
  bool isSoftmax = op.getNormalizer() == Normalizer::softmax;
  double hidden = isSoftmax ? -kInfinity : 0;
  SmallVector<char> visible(keys);
  SmallVector<double> taken(keys);
  double max = -kInfinity, sum = 0;
  for (int64_t j = 0; j != keys; ++j) {
    point[Dim::J] = j;
    FailureOr<double> raw = rawScore(point);
    if (failed(raw))
      return failure();
    FailureOr<double> s = runBody(*score, *raw, point);
    FailureOr<bool> shown = isVisible(point);
    if (failed(s) || failed(shown))
      return failure();
    stages.raw[first + j] = *raw;
    stages.scores[first + j] = *s;
    visible[j] = *shown;
    stages.masked[first + j] = taken[j] = *shown ? *s : hidden;
    sum += taken[j];
    if (!(taken[j] <= max)) // NaN stays
      max = std::isnan(max) ? max : taken[j];
  }
  bool isEmpty = isSoftmax ? max == -kInfinity : sum == 0;
  if (op.getMaskedRows() == MaskedRows::finite && !terms.empty())
    for (int64_t j = 0; j != keys; ++j) {
      point[Dim::J] = j;
      if (visible[j])
        continue;
      FailureOr<double> s = stages.scores[first + j];
      if (masked)
        s = runBody(*masked, *s, point);
      if (failed(s))
        return failure();
      stages.masked[first + j] = *s;
      if (isEmpty)
        taken[j] = *s;
    }
  MutableArrayRef<double> weights = MutableArrayRef(stages.weights).slice(first, keys);
  normalize(taken, isEmpty, weights);
  max = -kInfinity;
  for (double x : taken)
    max = std::isnan(x) || std::isnan(max) ? std::numeric_limits<double>::quiet_NaN() : std::max(max, x);
  sum = 0;
  for (double x : taken)
    sum += std::exp(std::isinf(max) ? x : x - max);
  stages.lse[row] = (std::isinf(max) ? 0 : max) + std::log(sum);
  for (int64_t j = 0; j != keys; ++j) {
    point[Dim::J] = j;
    bool takes = visible[j] || weights[j] != 0;
    FailureOr<double> final = takes ? weights[j] : 0;
    if (takes && weight)
      final = runBody(*weight, weights[j], point);
    if (failed(final))
      return failure();
    stages.final[first + j] = *final;
    takesPart[first + j] = takes;
  }
  return success();
}

/// Runs through the elements of a result: `write` gets the point that its map names.
template <typename Write> LogicalResult forEachElement(const Point &sizes, AffineMap map, Datum &datum, Write write) {
  SmallVector<int64_t> index(datum.shape.size(), 0);
  size_t n = 0;
  for (bool more = !datum.data.empty(); more; more = step(index, datum.shape)) {
    Point point{};
    for (auto [expr, at] : llvm::zip(map.getResults(), index))
      if (std::optional<unsigned> dim = AttentionOp::getNamedDim(expr))
        point[*dim] = at;
    FailureOr<Scalar> element = write(point, ArrayRef(index));
    if (failed(element))
      return failure();
    datum.data[n++] = *element;
  }
  return success();
}

Datum emptyResult(const Point &sizes, Value result, AffineMap map) {
  Datum datum;
  auto type = cast<RankedTensorType>(result.getType());
  for (int64_t n = 0; n != type.getRank(); ++n) {
    std::optional<unsigned> dim;
    if (n < map.getNumResults())
      dim = AttentionOp::getNamedDim(map.getResult(n));
    datum.shape.push_back(dim ? sizes[*dim] : type.isDynamicDim(n) ? 1 : type.getDimSize(n));
  }
  datum.data.resize(std::max<int64_t>(countElements(datum.shape), 0), Scalar::of(0.0));
  return datum;
}

LogicalResult AttentionEvaluator::weightedSum() {
  Datum datum = emptyResult(sizes, op.getResult(), op.getResultMap());
  LogicalResult done =
      forEachElement(sizes, op.getResultMap(), datum, [&](Point point, ArrayRef<int64_t>) -> FailureOr<Scalar> {
        double sum = 0;
        for (point[Dim::J] = 0; point[Dim::J] < sizes[Dim::J]; ++point[Dim::J]) {
          if (!takesPart[cellOf(point)])
            continue;
          FailureOr<Scalar> v = value.at(point);
          if (failed(v))
            return outside();
          sum += stages.final[cellOf(point)] * v->real;
        }
        return fit(Scalar::of(sum), getElementTypeOrSelf(op.getResult()));
      });
  results.push_back(std::move(datum));
  return done;
}

/// Whether `x` comes before `y` in descending order, NaN first.
bool isBefore(double x, double y) { return x > y || (std::isnan(x) && !std::isnan(y)); }

FailureOr<Datum> AttentionEvaluator::extra(unsigned n) {
  ExtraAttr attr = op.getExtra(n);
  AffineMap map = op.getExtraMap(n);
  const std::vector<double> *sources[] = {&stages.lse,    &stages.raw,     &stages.scores,
                                          &stages.masked, &stages.weights, &stages.final};
  const std::vector<double> &source = *sources[unsigned(attr.getSource())];
  Datum datum = emptyResult(sizes, op.getExtraResults()[n], map);
  auto overKeys = [&](Point point) { return ArrayRef(source).slice(rowOf(point) * sizes[Dim::J], sizes[Dim::J]); };
  LogicalResult done =
      forEachElement(sizes, map, datum, [&](Point point, ArrayRef<int64_t> index) -> FailureOr<Scalar> {
        if (attr.getSource() == ExtraSource::lse)
          return Scalar::of(source[rowOf(point)]);
        switch (attr.getReduction()) {
        case Reduction::none:
          return Scalar::of(source[cellOf(point)]);
        case Reduction::sum:
        case Reduction::mean:
        case Reduction::max: {
          SmallVector<int64_t> extent(4, 1), at(4, 0);
          for (unsigned dim = 0; dim != 4; ++dim)
            if (!AttentionOp::names(map, dim))
              extent[dim] = sizes[dim];
          double sum = 0, max = -kInfinity;
          int64_t count = countElements(extent);
          for (bool more = count > 0; more; more = step(at, extent)) {
            Point cell = point;
            for (unsigned dim = 0; dim != 4; ++dim)
              cell[dim] += at[dim];
            double x = source[cellOf(cell)];
            sum += x;
            max = isBefore(x, max) ? x : max;
          }
          return Scalar::of(attr.getReduction() == Reduction::max    ? max
                            : attr.getReduction() == Reduction::mean ? sum / double(count)
                                                                     : sum);
        }
        case Reduction::entropy: {
          double sum = 0;
          for (double w : overKeys(point))
            sum -= w == 0 ? 0 : w * std::log(w);
          return Scalar::of(sum);
        }
        case Reduction::argmax:
        case Reduction::topk_values:
        case Reduction::topk_indices: {
          ArrayRef<double> row = overKeys(point);
          SmallVector<int64_t> order(row.size());
          std::iota(order.begin(), order.end(), 0);
          llvm::sort(order, [&](int64_t x, int64_t y) {
            return isBefore(row[x], row[y]) || (!isBefore(row[y], row[x]) && x < y);
          });
          size_t place = attr.getReduction() == Reduction::argmax ? 0 : index.back();
          if (place >= order.size())
            return attr.isIndex() ? Scalar::of(int64_t(0)) : Scalar::of(0.0);
          return attr.isIndex() ? Scalar::of(order[place]) : Scalar::of(row[order[place]]);
        }
        }
        return failure();
      });
  if (failed(done))
    return failure();
  return datum;
}

FailureOr<SmallVector<Datum>> AttentionEvaluator::evaluate() {
  if (failed(prepare()))
    return failure();
  size_t rows = sizes[0] * sizes[1] * sizes[2], cells = rows * sizes[3];
  for (std::vector<double> *stage : {&stages.raw, &stages.scores, &stages.masked, &stages.weights, &stages.final})
    stage->resize(cells);
  stages.lse.resize(rows);
  takesPart.resize(cells);
  Point point{};
  SmallVector<int64_t> index(3, 0);
  for (bool more = rows > 0; more; more = step(index, ArrayRef(sizes).take_front(3))) {
    llvm::copy(index, point.begin());
    if (failed(evaluateRow(point)))
      return failure();
  }
  if (failed(weightedSum()))
    return failure();
  for (unsigned n = 0; n != op.getExtraResults().size(); ++n) {
    FailureOr<Datum> datum = extra(n);
    if (failed(datum))
      return failure();
    results.push_back(std::move(*datum));
  }
  return std::move(results);
}

} // namespace

LogicalResult Interpreter::runAttention(AttentionOp op) {
  FailureOr<SmallVector<Datum>> results = AttentionEvaluator(op, *this).evaluate();
  if (failed(results))
    return failure();
  for (auto [value, datum] : llvm::zip_equal(op->getResults(), *results))
    set(value, std::make_shared<Datum>(std::move(datum)));
  return success();
}

} // namespace attn::interpret
