#include "passes/graph/attention/BandMatch.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {
namespace {

/// The parts of `expr` that `isFound` takes, but for those of such a part.
SmallVector<const CaseExpr *> partsOf(const CaseExpr &expr, llvm::function_ref<bool(const CaseExpr &)> isFound) {
  SmallVector<const CaseExpr *> found;
  (void)worklist(SmallVector<const CaseExpr *>{&expr}, [&](const CaseExpr *next, auto &list) {
    if (isFound(*next))
      found.push_back(next);
    else
      llvm::append_range(list, llvm::map_range(next->operands, [](const CaseExprRef &e) { return e.get(); }));
    return false;
  });
  return found;
}

/// The one place at which `expr` reads `tensor`; null where there is none, or another.
const CaseExpr *findRead(const CaseExpr &expr, Value tensor) {
  auto reads =
      partsOf(expr, [&](const CaseExpr &part) { return part.kind == CaseExpr::Read && part.tensor == tensor; });
  bool isOne = !reads.empty() && llvm::all_of(reads, [&](const CaseExpr *read) {
    return llvm::equal(read->place, reads.front()->place);
  });
  return isOne ? reads.front() : nullptr;
}

bool isMinusInfinity(const CaseExpr &expr) {
  return expr.kind == CaseExpr::Number && expr.number.getValue().isInfinity() && expr.number.getValue().isNegative();
}

bool isZero(const CaseExpr &expr) { return expr.kind == CaseExpr::Number && expr.number.getValue().isZero(); }

/// The loops of a weighted sum.
struct SumLoops {
  OpOperand *weights;
  linalg::LinalgOp sum;
  SmallVector<Linear> places = {};
  unsigned key = 0;

  explicit SumLoops(OpOperand *weights)
      : weights(weights), sum(weights ? cast<linalg::LinalgOp>(weights->getOwner()) : linalg::LinalgOp()) {}
  OpOperand &getValues() { return *sum.getDpsInputOperand(1 - weights->getOperandNumber()); }
  int64_t countTerms() { return SmallVector<int64_t>(sum.getStaticLoopRanges())[key]; }
  /// The place of an operand with the key at `place` of its loop.
  SmallVector<Linear> placeOf(OpOperand &operand, const Linear &place) {
    places[key] = place;
    return llvm::map_to_vector(sum.getMatchingIndexingMap(&operand).getResults(),
                               [&](AffineExpr along) { return places[cast<AffineDimExpr>(along).getPosition()]; });
  }
};

/// One reading of a weighted sum, with some of the result's coordinates cut in digits.
class BandReader {
public:
  BandReader(SoftmaxOp softmax, const WeightedSum &sum, const std::optional<FrontSum> &front, CaseReader reader,
             bool gathersRows)
      : loops(sum.weights), frontLoops(front ? front->weights : nullptr), front(front), reader(std::move(reader)),
        gathersRows(gathersRows) {
    band.softmax = softmax;
    band.result = sum.result;
    band.element = getElementTypeOrSelf(sum.weights->getOwner()->getResult(0));
    if (front) {
      band.front.emplace();
      band.front->size = front->size;
      numFront = this->reader.getSize(front->size);
    }
  }

  /// `digits`: by which bases each coordinate is cut, the last one first.
  bool read(ArrayRef<SmallVector<int64_t>> digits) {
    return addCoordinates(digits) && findLoops(loops, band.result) && findWindow() && findKeys() && readKeys() &&
           (!front || (findLoops(frontLoops, front->result) && readFront()));
  }
  /// Which coordinate of the result is to be cut at which of its digits, where that would help.
  std::optional<std::pair<unsigned, unsigned>> getCut(int64_t &base) const {
    std::optional<CaseReader::Cut> cut = reader.getCut();
    if (!cut || cut->variable >= digitOf.size())
      return std::nullopt;
    base = cut->base;
    return digitOf[cut->variable];
  }
  Band take() { return std::move(band); }

private:
  Linear addDigit(const Linear &size, unsigned dim, unsigned number);
  bool addCoordinates(ArrayRef<SmallVector<int64_t>> digits);
  bool findLoops(SumLoops &of, Value result);
  bool findWindow();
  bool findKeys();
  bool readKeys();
  bool readFront();
  /// Whether both scores are made of one product each, of queries and keys.
  bool areProducts(const CaseExpr &score, const CaseExpr &other);
  /// Whether their queries are known to be the same.
  bool shareQueries(const CaseExpr &score, const CaseExpr &other);
  using Cases = SmallVector<std::pair<Guards, CaseExprRef>>;
  void readWeights(BandTerm &found, SumLoops &of, const Linear &term, const Linear &place, const Guards &guards);
  void readValues(BandTerm &found, SumLoops &of, const Linear &term, const Guards &guards);
  /// The one of the cases that is all of them where they hold: at few places, one may look like others. Null for none.
  CaseExprRef unify(const Cases &cases);

  Value getInput() { return band.softmax->getOperand(0); }
  /// The place in the window of a place of the softmax.
  Linear inWindow(const Linear &place) { return place - numFront; }
  unsigned getDim() { return band.softmax.getDim(); }
  /// The place of the softmax's element in `expr` with `along` in its window; none where it is no row of the result.
  std::optional<SmallVector<int>> findRow(const CaseExpr &expr, const Guards &guards);

  Band band;
  SumLoops loops, frontLoops;
  const std::optional<FrontSum> &front;
  Linear numFront;
  CaseReader reader;
  SmallVector<CaseReader::Coordinate> coordinates;
  bool gathersRows;                                   ///< of queries and keys: what is gathered is read as it is
  SmallVector<std::pair<unsigned, unsigned>> digitOf; ///< of each variable: dimension of the result, and which digit
  Linear window;                                      ///< the place in the window is this, and the key's loop
};

Linear BandReader::addDigit(const Linear &size, unsigned dim, unsigned number) {
  unsigned variable = reader.addVariable(size);
  digitOf.resize(variable + 1, {~0u, 0});
  digitOf[variable] = {dim, number};
  return Linear::variable(variable);
}

bool BandReader::addCoordinates(ArrayRef<SmallVector<int64_t>> digits) {
  for (auto [dim, bases] : llvm::enumerate(digits)) {
    Linear size = reader.getSize(band.result, dim);
    for (int64_t base : bases) {
      if (size.constant % base != 0 || llvm::any_of(size.factors, [&](int64_t f) { return f % base != 0; }))
        return false;
      size.constant /= base;
      for (int64_t &factor : size.factors)
        factor /= base;
    }
    Linear place = addDigit(size, dim, bases.size());
    for (unsigned n = bases.size(); n-- != 0;)
      place = place * bases[n] + addDigit(Linear{bases[n]}, dim, n);
    band.coordinates.push_back(place);
    coordinates.push_back({place, reader.getSize(band.result, dim)});
  }
  reader.closeCuttable();
  return true;
}

bool BandReader::findLoops(SumLoops &of, Value result) {
  std::optional<unsigned> key = onlyReducedLoop(of.sum);
  AffineMap written = of.sum.getIndexingMapsArray().back();
  if (!key || !isZeroFill(of.sum.getDpsInits()[0]))
    return false;
  of.key = *key;
  reader.stopAtCoordinates({});
  reader.stopAt(of.sum->getResult(0));
  reader.stopAt(band.softmax.getResult());
  unsigned count = 0;
  ArrayRef<Linear> place = ArrayRef(band.coordinates).take_front(band.getKey());
  reader.read(result, place, reader.everywhere(), [&](const Guards &, const CaseExprRef &expr) {
    const CaseExpr *read = expr.get();
    while (read->kind == CaseExpr::Apply && isa<arith::TruncFOp, arith::ExtFOp>(read->op))
      read = read->operands.front().get();
    if (++count != 1 || read->kind != CaseExpr::Read || read->tensor != of.sum->getResult(0))
      return reader.fail();
    of.places.resize(of.sum.getNumLoops());
    for (auto [along, place] : llvm::zip_equal(written.getResults(), read->place))
      of.places[cast<AffineDimExpr>(along).getPosition()] = place;
  });
  return count == 1 && !reader.isFailed();
}

std::optional<SmallVector<int>> BandReader::findRow(const CaseExpr &expr, const Guards &guards) {
  SmallVector<int> row;
  for (unsigned n = 0; n != expr.place.size(); ++n) {
    const Linear &along = expr.place[n];
    if (n == getDim()) {
      row.push_back(-1);
      continue;
    }
    auto *is = llvm::find_if(band.coordinates, [&](const Linear &c) { return along == c || guards.isZero(along - c); });
    if (is != band.coordinates.end() && !llvm::is_contained(row, is - band.coordinates.begin()))
      row.push_back(is - band.coordinates.begin());
    else if (reader.getSize(band.softmax.getResult(), n).getConstant() == 1)
      row.push_back(-1);
    else
      return std::nullopt;
  }
  return row;
}

/// Which place of the window the weight of each term of the sum is of. Terms that have none count for nothing.
bool BandReader::findWindow() {
  int64_t numTerms = loops.countTerms();
  if (ShapedType::isDynamic(numTerms))
    return false;
  reader.stopAtCoordinates(coordinates);
  reader.follow(CaseReader::Follow::elementwise);
  unsigned variable = reader.addVariable(Linear{numTerms});
  Linear term = Linear::variable(variable);
  std::optional<int64_t> first, last;
  auto takeTerm = [&](const Guards &guards, const CaseExprRef &weight) {
    if (isZero(*weight))
      return;
    const CaseExpr *read = findRead(*weight, band.softmax.getResult());
    std::optional<SmallVector<int>> row = read ? findRow(*read, guards) : std::nullopt;
    if (!row || (first && *row != band.dims))
      return reader.fail();
    reader.read(getInput(), read->place, guards, [&](const Guards &inside, const CaseExprRef &score) {
      if (isMinusInfinity(*score)) {
        CaseExprRef none = CaseReader::makeNumber(FloatAttr::get(read->type, 0.0));
        if (!isZero(*reader.substitute(weight, band.softmax.getResult(), none)))
          reader.fail();
        return;
      }
      Linear along = inWindow(read->place[getDim()]);
      if (!first) {
        window = along - term;
        band.dims = *row;
      } else if (!inside.isZero(along - term - window)) {
        return reader.fail();
      }
      Guards::Bounds bounds = inside.bounds(along);
      if (!bounds.least || !bounds.greatest)
        return reader.fail();
      first = std::min(first.value_or(*bounds.least), *bounds.least);
      last = std::max(last.value_or(*bounds.greatest), *bounds.greatest);
    });
  };
  reader.read(loops.weights->get(), loops.placeOf(*loops.weights, term), reader.everywhere(), takeTerm);
  // The softmax is over what the sum is over.
  if (reader.isFailed() || !first || window.factor(variable) != 0 || *first != 0)
    return false;
  band.count = *last + 1;
  Extent all = Extent::of(band.softmax.getResult(), getDim());
  return front ? all.isMoreBy(band.count, Extent::of(front->size)) : all.constant() == band.count;
}

/// Which key the value at each place of the window is of.
bool BandReader::findKeys() {
  unsigned variable = reader.addVariable(Linear{band.count});
  Linear place = Linear::variable(variable);
  std::optional<std::pair<unsigned, int64_t>> found; // queries along this dimension, and the offset
  std::optional<int64_t> numKeys;
  reader.follow(CaseReader::Follow::moves);
  reader.stopAtCoordinates({});
  reader.read(loops.getValues().get(), loops.placeOf(loops.getValues(), place - window), reader.everywhere(),
              [&](const Guards &guards, const CaseExprRef &value) {
                if (value->kind != CaseExpr::Read) {
                  if (value->kind == CaseExpr::Number && !value->number.getValue().isFinite())
                    reader.fail(); // NaN, where the weight is 0
                  return;          // padding
                }
                for (unsigned n = 0; n != value->place.size() && !found; ++n)
                  for (int dim : band.dims)
                    if (dim >= 0 && !found) {
                      // Keys may be the leading digits of a dimension.
                      int64_t step = std::max<int64_t>(value->place[n].factor(variable), 1);
                      Guards::Bounds bounds = guards.bounds(value->place[n] - (band.coordinates[dim] + place) * step);
                      std::optional<int64_t> size = reader.getSize(value->tensor, n).getConstant();
                      if (!bounds.least || !bounds.greatest || !size || *size % step != 0)
                        continue;
                      int64_t offset = llvm::divideFloorSigned(*bounds.least, step);
                      if (offset == llvm::divideFloorSigned(*bounds.greatest, step)) {
                        found.emplace(dim, offset);
                        numKeys = *size / step;
                      }
                    }
              });
  if (reader.isFailed() || !found || !numKeys)
    return false;
  std::tie(band.queryDim, band.offset) = *found;
  band.numKeys = *numKeys;
  return true;
}

CaseExprRef BandReader::unify(const Cases &cases) {
  constexpr size_t kMaxCases = 64;
  if (cases.size() > kMaxCases)
    return nullptr;
  for (const auto &known : cases)
    if (llvm::all_of(cases,
                     [&](const auto &other) { return reader.isSame(*known.second, *other.second, other.first); }))
      return known.second;
  return nullptr;
}

/// Reads weight and score of the key at `term` of the loops' sum, which is to be at `place` of the softmax.
void BandReader::readWeights(BandTerm &found, SumLoops &of, const Linear &term, const Linear &place,
                             const Guards &guards) {
  Cases weights, scores;
  reader.read(of.weights->get(), of.placeOf(*of.weights, term), guards,
              [&](const Guards &here, const CaseExprRef &weight) {
                const CaseExpr *read = findRead(*weight, band.softmax.getResult());
                if (!read || findRow(*read, here) != band.dims || !here.isZero(read->place[getDim()] - place))
                  return reader.fail();
                weights.emplace_back(here, weight);
                reader.stopAtGathers(gathersRows && &of == &loops);
                reader.read(getInput(), read->place, here,
                            [&](const Guards &there, const CaseExprRef &score) { scores.emplace_back(there, score); });
                reader.stopAtGathers(false);
              });
  found.weight = unify(weights);
  found.score = unify(scores);
}

void BandReader::readValues(BandTerm &found, SumLoops &of, const Linear &term, const Guards &guards) {
  Cases values;
  reader.read(of.getValues().get(), of.placeOf(of.getValues(), term), guards,
              [&](const Guards &here, const CaseExprRef &value) { values.emplace_back(here, value); });
  found.value = unify(values);
  if (!found.score || !found.weight || !found.value || found.value->kind != CaseExpr::Read)
    reader.fail();
}

/// Reads score, weight and value of each query and each key of its band: all are the same function of both.
bool BandReader::readKeys() {
  Linear key = Linear::variable(reader.addVariable(Linear{band.numKeys}));
  Linear along = key - band.coordinates[band.queryDim] - Linear{band.offset};
  band.coordinates.push_back(key);
  coordinates.push_back({key, Linear{band.numKeys}});
  reader.stopAtCoordinates(coordinates);
  reader.follow(CaseReader::Follow::all);
  Guards guards = reader.everywhere();
  guards.addRange(along, Linear{band.count});
  Linear term = along - window;
  if (!guards.isAtLeastZero(term) || !guards.isAtLeastZero(Linear{loops.countTerms() - 1} - term))
    return false;
  readWeights(band, loops, term, along + numFront, guards);
  readValues(band, loops, term, guards);
  if (reader.isFailed())
    return false;
  // Keys outside of the band, to which the softmax over all keys gives 0, are to have no weight either.
  CaseExprRef none = CaseReader::makeNumber(FloatAttr::get(getElementTypeOrSelf(band.softmax.getType()), 0.0));
  if (!isZero(*reader.substitute(band.weight, band.softmax.getResult(), none)))
    return false;
  // Places of the window that are no key's count for nothing.
  Linear place = Linear::variable(reader.addVariable(Linear{band.count}));
  SmallVector<Linear> row;
  for (auto [n, dim] : llvm::enumerate(band.dims))
    row.push_back(n == getDim() ? place + numFront : dim < 0 ? Linear() : band.coordinates[dim]);
  for (bool isBehind : {false, true}) {
    Guards outside = reader.everywhere();
    Linear at = place + band.coordinates[band.queryDim] + Linear{band.offset};
    outside.add(isBehind ? at - Linear{band.numKeys} : at * -1 - Linear{1});
    if (!outside.isEmpty())
      reader.read(getInput(), row, outside, [&](const Guards &, const CaseExprRef &score) {
        if (!isMinusInfinity(*score))
          reader.fail();
      });
  }
  return !reader.isFailed();
}

bool BandReader::areProducts(const CaseExpr &score, const CaseExpr &other) {
  const CaseExpr *products[] = {findProduct(score), findProduct(other)};
  auto readsOneKey = [&](const CaseExpr *product) {
    return llvm::all_of(product->operands, [](const CaseExprRef &e) { return e->kind == CaseExpr::Read; }) &&
           llvm::count_if(product->operands, [&](const CaseExprRef &e) { return band.namesKey(*e); }) == 1;
  };
  return products[0] && products[1] && products[0]->type == products[1]->type && llvm::all_of(products, readsOneKey);
}

bool BandReader::shareQueries(const CaseExpr &score, const CaseExpr &other) {
  const CaseExpr *products[] = {findProduct(score), findProduct(other)};
  // Both read the term of the sum at one variable.
  auto rename = [&](Linear along) {
    if (int64_t factor = along.factor(products[1]->summed))
      along = along + (Linear::variable(products[0]->summed) - Linear::variable(products[1]->summed)) * factor;
    return along;
  };
  if (countTerms(*products[0]) != countTerms(*products[1]))
    return false;
  Guards guards = reader.everywhere();
  guards.addRange(Linear::variable(products[0]->summed), Linear{countTerms(*products[0])});
  // Where it comes from, whatever moves it.
  reader.stopAtCoordinates({});
  reader.follow(CaseReader::Follow::moves);
  auto readSource = [&](const CaseExpr &operand, ArrayRef<Linear> place) {
    CaseExprRef source;
    unsigned count = 0;
    reader.read(operand.tensor, place, guards, [&](const Guards &, const CaseExprRef &expr) {
      source = expr;
      ++count;
    });
    return count == 1 && !reader.isFailed() && source->kind == CaseExpr::Read && !source->op ? source : CaseExprRef();
  };
  CaseExprRef queries[2];
  for (unsigned n : {0, 1})
    for (const CaseExprRef &operand : products[n]->operands)
      if (!band.namesKey(*operand))
        queries[n] = readSource(*operand, llvm::map_to_vector(operand->place, [&](const Linear &along) {
          return n == 0 ? along : rename(along);
        }));
  return queries[0] && queries[1] && reader.isSame(*queries[0], *queries[1], guards);
}

/// Reads score, weight and value of each query and each key in front.
bool BandReader::readFront() {
  Linear key = Linear::variable(reader.addVariable(numFront));
  band.coordinates.push_back(key);
  // Weights and scores are looked into, the keys themselves are not.
  reader.stopAtCoordinates(coordinates);
  reader.stopInProductsAt({key, numFront});
  reader.follow(CaseReader::Follow::all);
  readWeights(*band.front, frontLoops, key, key, reader.everywhere());
  coordinates.push_back({key, numFront});
  reader.stopAtCoordinates(coordinates);
  readValues(*band.front, frontLoops, key, reader.everywhere());
  // What becomes of the softmax's weights is the same, wherever these are read.
  auto ofSoftmax = [&](const CaseExprRef &weight) {
    return reader.substitute(weight, band.softmax.getResult(), CaseReader::makeRead(band.softmax.getResult(), {}));
  };
  if (reader.isFailed() ||
      !reader.isSame(*ofSoftmax(band.front->weight), *ofSoftmax(band.weight), reader.everywhere()) ||
      !areProducts(*band.front->score, *band.score))
    return false;
  band.front->sharesQueries = shareQueries(*band.front->score, *band.score);
  return true;
}

} // namespace

bool Band::namesKey(const CaseExpr &read) const {
  // The coordinates from that of the key on are each a variable, the last of their factors.
  return llvm::any_of(read.place, [&](const Linear &along) {
    return llvm::any_of(ArrayRef(coordinates).drop_front(getKey()),
                        [&](const Linear &key) { return along.factor(key.factors.size() - 1) != 0; });
  });
}

const CaseExpr *findProduct(const CaseExpr &expr) {
  auto products = partsOf(expr, [](const CaseExpr &part) { return part.kind == CaseExpr::Product; });
  return products.size() == 1 ? products.front() : nullptr;
}

int64_t countTerms(const CaseExpr &product) {
  auto sum = cast<linalg::LinalgOp>(product.op);
  return SmallVector<int64_t>(sum.getStaticLoopRanges())[*onlyReducedLoop(sum)];
}

std::optional<Band> matchBand(SoftmaxOp softmax, const WeightedSum &sum, const std::optional<FrontSum> &front,
                              const SymbolTable &symbols, const WeightStore *store, CaseReader::Shared &shared) {
  constexpr unsigned kMaxCuts = 8;
  SmallVector<SmallVector<int64_t>> digits(cast<RankedTensorType>(sum.result.getType()).getRank());
  for (unsigned n = 0; n != kMaxCuts; ++n) {
    // Rows that are gathered may be those of the tensor behind, or others; one place of a tensor, all of it or a part.
    int64_t base = 0;
    std::optional<std::pair<unsigned, unsigned>> cut;
    for (unsigned way = 0; way != 4; ++way) {
      CaseReader cases(symbols, store, shared);
      cases.lookIntoPoints(way & 1);
      BandReader reader(softmax, sum, front, std::move(cases), way & 2);
      if (reader.read(digits))
        return reader.take();
      if (!cut)
        cut = reader.getCut(base);
    }
    if (!cut)
      return std::nullopt;
    // The digit becomes two: the lower one has the base.
    SmallVector<int64_t> &bases = digits[cut->first];
    unsigned place = cut->second;
    if (place < bases.size()) {
      if (bases[place] % base != 0)
        return std::nullopt;
      bases[place] /= base;
    }
    bases.insert(bases.begin() + place, base);
  }
  return std::nullopt;
}

} // namespace attn
