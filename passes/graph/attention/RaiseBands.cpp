#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"
#include "passes/graph/attention/BandMatch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Iterators.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <limits>

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISEBANDSPASS
#include "passes/Passes.h.inc"

namespace {

/// Steps of reading that are taken for one softmax: about five times those of Longformer.
constexpr unsigned kMaxSteps = 30000;

/// Writes a band as an attention over all keys that hides those outside of it.
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
      sizes.push_back(sizeOf(coordinate));
    }
    Value scores = elementwise(band.score, hide);
    Value weights;
    if (scores) {
      auto whole = SoftmaxOp::create(b, loc, scores.getType(), scores, loops[band.getKey()]);
      whole->setDiscardableAttrs(skewed->getDiscardableAttrDictionary()); // what it takes for granted
      weights = whole.getResult();
    }
    if (weights && band.weight->kind != CaseExpr::Read) {
      softmax = weights;
      weights = elementwise(band.weight, nullptr);
    }
    if (!weights)
      return {};
    // The loops of the sum are the result's dimensions and the key.
    unsigned rank = band.getKey();
    SmallVector<AffineExpr> exprs =
        llvm::map_to_vector(rows, [&](unsigned coordinate) -> AffineExpr { return b.getAffineDimExpr(coordinate); });
    for (unsigned n = 0; n != loops.size(); ++n)
      loops[n] = n;
    auto [values, map] = readAt(*band.value, rank + 1);
    auto isRead = [&, &map = map](unsigned dim) { return llvm::is_contained(rows, dim) || map.isFunctionOfDim(dim); };
    if (!values || !llvm::all_of(llvm::seq(rank), isRead))
      return {};
    Type element = getElementTypeOrSelf(band.result);
    return contraction(
        b, loc, results, element, weights, values,
        {AffineMap::get(rank + 1, 0, exprs, b.getContext()), map, b.getMultiDimIdentityMap(rank + 1).dropResult(rank)});
  }

private:
  using Finish = Value (*)(BandWriter &, OpBuilder &, Value);

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
    Value gathered =
        attn::elementwise(b, loc, extents, read.type, {}, {}, [&](OpBuilder &body, Location loc, ValueRange) -> Value {
          Value index = arith::ConstantIndexOp::create(body, loc, rest.constant);
          for (auto [n, step] : llvm::enumerate(steps)) {
            Value factor = arith::ConstantIndexOp::create(body, loc, step.first);
            Value along = linalg::IndexOp::create(body, loc, n);
            index = arith::AddIOp::create(body, loc, index, arith::MulIOp::create(body, loc, along, factor));
          }
          if (check) {
            IRMapping mapping;
            mapping.map(check->getOperand(0), index);
            index = body.clone(*check, mapping)->getResult(0);
          }
          return tensor::ExtractOp::create(body, loc, read.tensor, index);
        });
    return {gathered, AffineMap::get(numLoops, 0, exprs, b.getContext())};
  }

  Extent extentOf(unsigned coordinate) {
    return coordinate == band.getKey() ? Extent(band.numKeys) : Extent::of(band.result, coordinate);
  }
  OpFoldResult sizeOf(unsigned coordinate) { return extentOf(coordinate).materialize(b, loc); }

  Value product(const CaseExpr &expr) {
    auto sum = cast<linalg::LinalgOp>(expr.op);
    SmallVector<unsigned> reduced;
    sum.getReductionDims(reduced);
    numTerms = SmallVector<int64_t>(sum.getStaticLoopRanges())[reduced.front()];
    auto [lhs, lhsMap] = readAt(*expr.operands[0], sizes.size() + 1, expr.summed);
    auto [rhs, rhsMap] = readAt(*expr.operands[1], sizes.size() + 1, expr.summed);
    auto isRead = [left = lhsMap, right = rhsMap](unsigned dim) {
      return left.isFunctionOfDim(dim) || right.isFunctionOfDim(dim);
    };
    if (!lhs || !rhs || !llvm::all_of(llvm::seq(unsigned(sizes.size())), isRead))
      return {};
    return contraction(b, expr.op->getLoc(), sizes, expr.type, lhs, rhs,
                       {lhsMap, rhsMap, b.getMultiDimIdentityMap(sizes.size() + 1).dropResult(sizes.size())});
  }

  /// Adds what `expr` reads, and where; false where it reads something that has no loop.
  bool addInputs(const CaseExpr &expr) {
    if (inputOf.contains(&expr))
      return true;
    Value tensor;
    AffineMap map = b.getMultiDimIdentityMap(sizes.size());
    if (expr.kind == CaseExpr::Read && softmax && expr.tensor == skewed.getResult())
      tensor = softmax;
    else if (expr.kind == CaseExpr::Read)
      std::tie(tensor, map) = readAt(expr, sizes.size());
    else if (expr.kind == CaseExpr::Product &&
             llvm::all_of(expr.operands, [](const CaseExprRef &operand) { return operand->kind == CaseExpr::Read; }))
      tensor = product(expr);
    else if (expr.kind == CaseExpr::Apply)
      return llvm::all_of(expr.operands, [&](const CaseExprRef &operand) { return addInputs(*operand); });
    else
      return expr.kind == CaseExpr::Number || (expr.kind == CaseExpr::Integer && expr.integer.getConstant());
    if (!tensor)
      return false;
    inputOf[&expr] = inputs.size();
    inputs.push_back(tensor);
    maps.push_back(map);
    return true;
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

  Value elementwise(const CaseExprRef &expr, Finish finish) {
    inputs.clear();
    maps.clear();
    inputOf.clear();
    if (!addInputs(*expr))
      return {};
    return attn::elementwise(b, loc, sizes, expr->type, inputs, maps, [&](OpBuilder &body, Location, ValueRange args) {
      Value value = compute(body, *expr, args);
      return finish ? finish(*this, body, value) : value;
    });
  }

  /// -inf in the place of the score of a key outside of the query's band.
  static Value hide(BandWriter &writer, OpBuilder &body, Value score) {
    const Band &band = writer.band;
    Location loc = writer.loc;
    Value query = linalg::IndexOp::create(body, loc, writer.loops[band.queryDim]);
    Value key = linalg::IndexOp::create(body, loc, writer.loops[band.getKey()]);
    Value first = arith::AddIOp::create(body, loc, query, arith::ConstantIndexOp::create(body, loc, band.offset));
    Value last = arith::AddIOp::create(body, loc, query,
                                       arith::ConstantIndexOp::create(body, loc, band.offset + band.count - 1));
    Value isBehind = arith::CmpIOp::create(body, loc, arith::CmpIPredicate::sge, key, first);
    Value isBefore = arith::CmpIOp::create(body, loc, arith::CmpIPredicate::sle, key, last);
    Value sees = arith::AndIOp::create(body, loc, isBehind, isBefore);
    Value hidden = floatConstant(body, loc, score.getType(), -std::numeric_limits<double>::infinity());
    return arith::SelectOp::create(body, loc, sees, score, hidden);
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

/// The one contraction that weights of `softmax` come to, through moves and elementwise ops, with a skew among them: a
/// part of the softmax that is put into another tensor.
OpOperand *findSkewedSum(SoftmaxOp softmax) {
  OpOperand *sum = nullptr;
  bool isSkewed = false;
  bool fails = worklist(Values{softmax.getResult()}, [&](Value next, Values &list) {
    for (OpOperand &use : next.getUses()) {
      Operation *user = use.getOwner();
      if (isContraction(user)) {
        if (sum && sum != &use)
          return true;
        sum = &use;
      } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(user)) {
        if (insert.getSource() != next)
          return true;
        isSkewed = true;
        list.push_back(insert.getResult());
      } else if (isView(user) || isPointwise(user) || isa<tensor::ExtractSliceOp>(user)) {
        list.push_back(user->getResult(0));
      } else if (!isa<tensor::DimOp>(user)) {
        return true;
      }
    }
    return false;
  });
  return fails || !isSkewed ? nullptr : sum;
}

/// The sum, and what are views of it alone.
SmallVector<Value> findResults(Operation *sum) {
  SmallVector<Value> results = {sum->getResult(0)};
  while (results.back().hasOneUse() && isView(*results.back().user_begin()))
    results.push_back((*results.back().user_begin())->getResult(0));
  return results;
}

struct RaiseBandsPass : impl::RaiseBandsPassBase<RaiseBandsPass> {
  using RaiseBandsPassBase::RaiseBandsPassBase;
  explicit RaiseBandsPass(const WeightStore *weights) : weights(weights) {}

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    IRRewriter b(&getContext());
    bool isRead = false;
    for (SoftmaxOp softmax : collect<SoftmaxOp>(getOperation()))
      if (OpOperand *sum = softmax.getLog() ? nullptr : findSkewedSum(softmax)) {
        raise(b, softmax, *sum, symbols);
        isRead = true;
      }
    // The chunks, and what was written for none: no verdict is given on their softmax.
    if (isRead)
      getOperation()->walk<WalkOrder::PostOrder, ReverseIterator>([&](Operation *op) {
        if (isOpTriviallyDead(op))
          b.eraseOp(op);
      });
  }

private:
  void raise(RewriterBase &b, SoftmaxOp softmax, OpOperand &sum, const SymbolTable &symbols) {
    CaseReader::Shared shared;
    shared.numSteps = kMaxSteps;
    for (Value result : findResults(sum.getOwner())) {
      std::optional<Band> band = matchBand(softmax, sum, result, symbols, weights, shared);
      if (!band)
        continue;
      b.setInsertionPointAfterValue(result);
      Value written = BandWriter(b, *band).write();
      if (!written)
        continue;
      remark::passed(softmax.getLoc(), remark::RemarkOpts::name("Band").category("attn-raise-bands"))
          << "a softmax over keys by their distance is one over all keys in a band";
      b.replaceAllUsesWith(result, castTo(b, softmax.getLoc(), written, result.getType()));
      return;
    }
  }

  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createRaiseBandsPass(const WeightStore *weights) {
  return std::make_unique<RaiseBandsPass>(weights);
}

} // namespace attn
