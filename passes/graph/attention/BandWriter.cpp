#include "passes/graph/attention/BandMatch.h"

#include "passes/graph/Formulas.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/IR/IRMapping.h"

#include <limits>

using namespace mlir;

namespace attn {
namespace {

class BandWriter {
public:
  BandWriter(RewriterBase &b, const Band &band) : b(b), band(band), skewed(band.softmax), loc(skewed.getLoc()) {}

  /// The weighted sum; null where something is read that has no loop.
  Value write() {
    // The loops of the scores: the rows of the softmax, and the keys.
    SmallVector<OpFoldResult> results;
    for (unsigned n = 0; n != band.getKey(); ++n)
      results.push_back(sizeOf(n));
    SmallVector<unsigned> rows;
    for (auto [n, dim] : llvm::enumerate(band.dims))
      if (dim >= 0 || n == skewed.getDim())
        rows.push_back(dim >= 0 ? dim : band.getKey());
    loops.assign(band.coordinates.size(), -1);
    for (auto [n, coordinate] : llvm::enumerate(rows)) {
      loops[coordinate] = n;
      sizes.push_back(coordinate == band.getKey() ? countKeys() : sizeOf(coordinate));
    }
    if (band.front)
      loops[band.getKey() + 1] = loops[band.getKey()];
    Value scores = writeScores(), weights;
    if (scores) {
      auto whole = SoftmaxOp::create(b, loc, scores.getType(), scores, loops[band.getKey()]);
      whole->setDiscardableAttrs(skewed->getDiscardableAttrDictionary()); // what it takes for granted
      weights = whole.getResult();
    }
    if (weights && band.weight->kind != CaseExpr::Read) {
      softmax = weights;
      weights = writeWeights();
    }
    if (!weights)
      return {};
    // The loops of the sum are the result's dimensions and the key.
    unsigned rank = band.getKey();
    SmallVector<AffineExpr> exprs =
        llvm::map_to_vector(rows, [&](unsigned coordinate) -> AffineExpr { return b.getAffineDimExpr(coordinate); });
    for (unsigned n = 0; n != loops.size(); ++n)
      loops[n] = std::min(n, rank);
    sizes = results;
    sizes.push_back(countKeys());
    auto [values, map] = readValues();
    auto isRead = [&, &map = map](unsigned dim) { return llvm::is_contained(rows, dim) || map.isFunctionOfDim(dim); };
    if (!values || !addOnes(values, map, results, isRead))
      return {};
    return contraction(
        b, loc, results, band.element, weights, values,
        {AffineMap::get(rank + 1, 0, exprs, b.getContext()), map, b.getMultiDimIdentityMap(rank + 1).dropResult(rank)});
  }

private:
  /// A tensor that `read` reads, without the dimensions along which it is read at 0, and the loops along the others.
  std::pair<Value, AffineMap> readAt(const CaseExpr &read, unsigned numLoops, int summed = -1) {
    if (read.op)
      return gather(read, numLoops, summed);
    SmallVector<AffineExpr> exprs;
    SmallVector<unsigned> dropped;
    for (auto [n, along] : llvm::enumerate(read.place)) {
      const auto *is = llvm::find(band.coordinates, along);
      int loop = is != band.coordinates.end() ? loops[is - band.coordinates.begin()] : -1;
      bool isSummed = is == band.coordinates.end() && summed >= 0 && along == Linear::variable(summed);
      if (isSummed)
        loop = numLoops - 1;
      if (!isSummed && loop != loops[band.getKey()] && cast<RankedTensorType>(read.tensor.getType()).getDimSize(n) == 1)
        loop = -1; // wherever it is read
      // All of the tensor is read.
      if (loop >= 0 &&
          !(Extent::of(read.tensor, n) == (isSummed ? Extent(numTerms) : extentOf(is - band.coordinates.begin()))))
        return {};
      if (loop < 0 && cast<RankedTensorType>(read.tensor.getType()).getDimSize(n) != 1)
        return {};
      if (loop < 0)
        dropped.push_back(n);
      else
        exprs.push_back(b.getAffineDimExpr(loop));
    }
    Value tensor = read.tensor;
    for (unsigned n : llvm::reverse(dropped))
      tensor = placeAlong(b, loc, tensor, n, b.getIndexAttr(0));
    return {tensor, AffineMap::get(numLoops, 0, exprs, b.getContext())};
  }

  /// `tensor`, read at `map`, with its dimensions in the order of `other`; null where it has others.
  Value inOrder(Value tensor, AffineMap map, AffineMap other) {
    SmallVector<AffineExpr> exprs;
    SmallVector<OpFoldResult> extents(other.getNumResults());
    for (auto [n, along] : llvm::enumerate(map.getResults())) {
      std::optional<unsigned> dim = other.getResultPosition(along);
      if (!dim)
        return {};
      exprs.push_back(b.getAffineDimExpr(*dim));
      extents[*dim] = tensor::getMixedSize(b, loc, tensor, n);
    }
    if (map.getNumResults() != other.getNumResults())
      return {};
    return map == other ? tensor
                        : rearranged(b, loc, tensor, extents, AffineMap::get(extents.size(), 0, exprs, b.getContext()));
  }
  /// Of the sizes of `tensor`, but for that along `dim`.
  Value zeros(Value tensor, unsigned dim, OpFoldResult size) {
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, tensor);
    extents[dim] = size;
    return filledTensor(b, loc, extents, b.getZeroAttr(getElementTypeOrSelf(tensor)));
  }

  /// The values of all keys, those in front before the others.
  std::pair<Value, AffineMap> readValues() {
    unsigned numLoops = band.getKey() + 1;
    auto [values, map] = readAt(*band.value, numLoops);
    if (!values || !band.front)
      return {values, map};
    auto [first, firstMap] = readAt(*band.front->value, numLoops);
    first = first ? inOrder(first, firstMap, map) : first;
    std::optional<unsigned> dim = map.getResultPosition(b.getAffineDimExpr(band.getKey()));
    if (!first || !dim)
      return {};
    Value whole = insertAlong(b, loc, first, zeros(values, *dim, countKeys()), *dim, b.getIndexAttr(0));
    return {insertAlong(b, loc, values, whole, *dim, band.front->size), map};
  }

  /// What is there for some keys as a tensor of all, which has zeros for the others.
  Value extend(Value some, AffineMap map, bool isFront) {
    std::optional<unsigned> dim = map.getResultPosition(b.getAffineDimExpr(loops[band.getKey()]));
    if (!band.front || !dim)
      return some;
    Value whole = zeros(some, *dim, countKeys());
    return insertAlong(b, loc, some, whole, *dim, isFront ? OpFoldResult(b.getIndexAttr(0)) : band.front->size);
  }

  /// A tensor of what `read` gathers, which has a dimension for each coordinate that the index is made of.
  std::pair<Value, AffineMap> gather(const CaseExpr &read, unsigned numLoops, int summed) {
    auto extract = cast<tensor::ExtractOp>(read.op);
    auto check = extract.getIndices().front().getDefiningOp<CheckIndexOp>();
    // The bound of a check is read from outside of the body.
    if (read.place.size() != 1 || (check && check->getOperand(1).getParentBlock() == check->getBlock()))
      return {};
    SmallVector<Linear> all(band.coordinates);
    if (summed >= 0)
      all.push_back(Linear::variable(summed));
    Linear rest = read.place.front();
    SmallVector<std::pair<int64_t, OpFoldResult>> steps; // and how far each goes
    SmallVector<AffineExpr> exprs;
    for (auto [n, along] : llvm::enumerate(all)) {
      // The last digit of a coordinate counts by 1.
      const auto *unit = llvm::find(along.factors, 1);
      int64_t step = unit == along.factors.end() ? 0 : rest.factor(unit - along.factors.begin());
      int loop = n < band.coordinates.size() ? loops[n] : numLoops - 1;
      if (step == 0)
        continue;
      if (loop < 0)
        return {};
      rest = rest - along * step;
      steps.emplace_back(step, n < band.coordinates.size() ? sizeOf(n) : OpFoldResult(b.getIndexAttr(numTerms)));
      exprs.push_back(b.getAffineDimExpr(loop));
    }
    // At each query and at each key the graph reads it, too, but not at each pair of them.
    auto has = [&](unsigned coordinate) { return llvm::is_contained(exprs, b.getAffineDimExpr(loops[coordinate])); };
    if (!rest.getConstant() || (has(band.queryDim) && has(band.getKey())))
      return {};
    SmallVector<OpFoldResult> extents = llvm::map_to_vector(steps, [](auto &step) { return step.second; });
    Value gathered = elementwise(b, loc, extents, read.type, {}, {}, formula([&](Code &k, ArrayRef<Num>) {
                                   Index index = k.index(rest.constant);
                                   for (auto [n, step] : llvm::enumerate(steps))
                                     index = index + loopIndex(k, n) * step.first;
                                   if (check) {
                                     IRMapping mapping;
                                     mapping.map(check->getOperand(0), index.value());
                                     index = k.asIndex(k.b.clone(*check, mapping)->getResult(0));
                                   }
                                   return elementAt(k, read.tensor, index.value());
                                 }));
    return {gathered, AffineMap::get(numLoops, 0, exprs, b.getContext())};
  }

  Extent extentOf(unsigned coordinate) {
    if (coordinate > band.getKey())
      return Extent::of(band.front->size);
    return coordinate == band.getKey() ? Extent(band.numKeys) : Extent::of(band.result, coordinate);
  }
  OpFoldResult sizeOf(unsigned coordinate) { return extentOf(coordinate).materialize(b, loc); }
  /// Of the softmax.
  OpFoldResult countKeys() {
    if (!band.front)
      return b.getIndexAttr(band.numKeys);
    if (std::optional<int64_t> constant = getConstantIntValue(band.front->size))
      return b.getIndexAttr(*constant + band.numKeys);
    Value others = arith::ConstantIndexOp::create(b, loc, band.numKeys);
    return arith::AddIOp::create(b, loc, cast<Value>(band.front->size), others).getResult();
  }

  /// Gives `tensor`, read at `map`, a dimension for each loop of one turn that nothing reads; whether all others are
  /// read.
  bool addOnes(Value &tensor, AffineMap &map, ArrayRef<OpFoldResult> turns, llvm::function_ref<bool(unsigned)> isRead) {
    SmallVector<AffineExpr> exprs;
    for (auto [dim, count] : llvm::enumerate(turns))
      if (!isRead(dim)) {
        if (!isConstantIntValue(count, 1))
          return false;
        exprs.push_back(b.getAffineDimExpr(dim));
      }
    if (exprs.empty())
      return true;
    SmallVector<OpFoldResult> extents(exprs.size(), b.getIndexAttr(1));
    llvm::append_range(extents, tensor::getMixedSizes(b, loc, tensor));
    AffineMap read = b.getMultiDimIdentityMap(extents.size())
                         .dropResults(llvm::to_vector(llvm::seq<int64_t>(static_cast<int64_t>(exprs.size()))));
    tensor = rearranged(b, loc, tensor, extents, read);
    llvm::append_range(exprs, map.getResults());
    map = AffineMap::get(map.getNumDims(), 0, exprs, b.getContext());
    return true;
  }

  /// One of the operands of a product, which sums over `numTerms`.
  std::pair<Value, AffineMap> readOperand(const CaseExpr &product, bool isKey) {
    numTerms = countTerms(product);
    const CaseExpr &operand = *product.operands[band.namesKey(*product.operands[0]) == isKey ? 0 : 1];
    return readAt(operand, sizes.size() + 1, product.summed);
  }

  /// The products of queries and keys; with some in front, whose queries may be others. These then lie beside the
  /// queries, and each key has zeros where the queries are not its own.
  Value product(const CaseExpr &expr, const CaseExpr *front) {
    auto [queries, queryMap] = readOperand(expr, /*isKey=*/false);
    auto [keys, keyMap] = readOperand(expr, /*isKey=*/true);
    if (!queries || !keys)
      return {};
    if (front) {
      int64_t width = numTerms;
      auto [frontQueries, frontQueryMap] = readOperand(*front, /*isKey=*/false);
      auto [frontKeys, frontKeyMap] = readOperand(*front, /*isKey=*/true);
      bool isShared = band.front->sharesQueries;
      frontKeys = frontKeys ? inOrder(frontKeys, frontKeyMap, keyMap) : frontKeys;
      frontQueries = frontQueries && !isShared ? inOrder(frontQueries, frontQueryMap, queryMap) : frontQueries;
      auto keyDim = keyMap.getResultPosition(b.getAffineDimExpr(loops[band.getKey()]));
      auto keyTerm = keyMap.getResultPosition(b.getAffineDimExpr(sizes.size()));
      auto queryTerm = queryMap.getResultPosition(b.getAffineDimExpr(sizes.size()));
      if (!frontKeys || !frontQueries || !keyDim || !keyTerm || !queryTerm)
        return {};
      OpFoldResult start = b.getIndexAttr(0), behind = b.getIndexAttr(isShared ? 0 : width);
      OpFoldResult all = b.getIndexAttr(isShared ? width : width + numTerms);
      if (!isShared) {
        Value beside = zeros(frontQueries, *queryTerm, all);
        beside = insertAlong(b, loc, queries, beside, *queryTerm, start);
        queries = insertAlong(b, loc, frontQueries, beside, *queryTerm, behind);
      }
      Value joined = zeros(zeros(keys, *keyDim, countKeys()), *keyTerm, all);
      frontKeys =
          isShared ? frontKeys : insertAlong(b, loc, frontKeys, zeros(frontKeys, *keyTerm, all), *keyTerm, behind);
      keys = isShared ? keys : insertAlong(b, loc, keys, zeros(keys, *keyTerm, all), *keyTerm, start);
      joined = insertAlong(b, loc, frontKeys, joined, *keyDim, start);
      keys = insertAlong(b, loc, keys, joined, *keyDim, band.front->size);
    }
    auto isRead = [&, &first = queryMap, &second = keyMap](unsigned dim) {
      return first.isFunctionOfDim(dim) || second.isFunctionOfDim(dim);
    };
    if (!addOnes(queries, queryMap, sizes, isRead))
      return {};
    return contraction(b, expr.op->getLoc(), sizes, expr.type, queries, keys,
                       {queryMap, keyMap, b.getMultiDimIdentityMap(sizes.size() + 1).dropResult(sizes.size())});
  }

  /// Adds what `expr` reads, and where; false where it reads something that has no loop.
  bool addInputs(const CaseExpr &expr, bool isFront) {
    if (inputOf.contains(&expr))
      return true;
    Value tensor;
    AffineMap map = b.getMultiDimIdentityMap(sizes.size());
    if (expr.kind == CaseExpr::Read && softmax && expr.tensor == skewed.getResult()) {
      tensor = softmax;
    } else if (expr.kind == CaseExpr::Read) {
      std::tie(tensor, map) = readAt(expr, sizes.size());
      tensor = tensor ? extend(tensor, map, isFront) : tensor;
    } else if (expr.kind == CaseExpr::Product && areReads(expr.operands)) {
      const CaseExpr *front = band.front ? findProduct(*band.front->score) : nullptr;
      tensor = product(expr, front);
      if (front)
        inputOf[front] = inputs.size();
    } else if (expr.kind == CaseExpr::Apply) {
      return llvm::all_of(expr.operands, [&](const CaseExprRef &operand) { return addInputs(*operand, isFront); });
    } else {
      return expr.kind == CaseExpr::Number || (expr.kind == CaseExpr::Integer && expr.integer.getConstant());
    }
    if (!tensor)
      return false;
    inputOf[&expr] = inputs.size();
    inputs.push_back(tensor);
    maps.push_back(map);
    return true;
  }
  static bool areReads(ArrayRef<CaseExprRef> operands) {
    return llvm::all_of(operands, [](const CaseExprRef &operand) { return operand->kind == CaseExpr::Read; });
  }

  Value compute(OpBuilder &body, const CaseExpr &expr, ValueRange args) {
    if (auto it = inputOf.find(&expr); it != inputOf.end())
      return args[it->second];
    if (expr.kind == CaseExpr::Number)
      return arith::ConstantOp::create(body, loc, expr.number);
    if (expr.kind == CaseExpr::Integer)
      return arith::ConstantOp::create(body, loc, body.getIntegerAttr(expr.type, *expr.integer.getConstant()));
    IRMapping mapping;
    for (auto [operand, old] : llvm::zip_equal(expr.operands, expr.op->getOperands())) {
      Value value = compute(body, *operand, args);
      if (!mapping.contains(old))
        mapping.map(old, value);
    }
    return body.clone(*expr.op, mapping)->getResult(0);
  }

  void clearInputs() {
    inputs.clear();
    maps.clear();
    inputOf.clear();
  }

  Value writeWeights() {
    clearInputs();
    if (!addInputs(*band.weight, /*isFront=*/false))
      return {};
    return elementwise(b, loc, sizes, band.weight->type, inputs, maps,
                       [&](OpBuilder &body, Location, ValueRange args) { return compute(body, *band.weight, args); });
  }

  /// -inf in the place of the score of a key outside of the query's band.
  Value writeScores() {
    clearInputs();
    if (!addInputs(*band.score, /*isFront=*/false) || (band.front && !addInputs(*band.front->score, /*isFront=*/true)))
      return {};
    OpFoldResult numFront = band.front ? band.front->size : OpFoldResult(b.getIndexAttr(0));
    Value start = getValueOrCreateConstantIndexOp(b, loc, numFront);
    return elementwise(b, loc, sizes, band.score->type, inputs, maps, [&](OpBuilder &body, Location, ValueRange args) {
      Code k(body, loc);
      Num score = k.asNum(compute(body, *band.score, args));
      Index query = loopIndex(k, loops[band.queryDim]), key = loopIndex(k, loops[band.getKey()]);
      auto bound = [&](int64_t offset) { return band.front ? query + offset + k.asIndex(start) : query + offset; };
      Index first = bound(band.offset), last = bound(band.offset + band.count - 1);
      Mask sees = (key >= first) & (key <= last);
      if (band.front) {
        Mask isFront = key < k.asIndex(start);
        score = select(isFront, k.asNum(compute(body, *band.front->score, args)), score);
        sees = sees | isFront;
      }
      return select(sees, score, constantLike(score, -std::numeric_limits<double>::infinity())).value();
    });
  }

  RewriterBase &b;
  const Band &band;
  SoftmaxOp skewed; ///< the softmax of the band
  Location loc;
  SmallVector<OpFoldResult> sizes; ///< of the scores
  SmallVector<int> loops;          ///< of each coordinate, -1 for none
  int64_t numTerms = 0;            ///< of the product that is written
  Value softmax;
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  DenseMap<const CaseExpr *, unsigned> inputOf;
};

} // namespace

Value writeBand(RewriterBase &b, const Band &band) { return BandWriter(b, band).write(); }

} // namespace attn
