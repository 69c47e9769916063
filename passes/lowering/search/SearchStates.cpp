// What a search makes of states, histories and results; SearchLoop.cpp has the loop.
#include "dialects/attn/LoopOps.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/search/SearchLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

/// Row r of the result, in dimension `dim`, is row `chosen[r]` of `tensor`.
Value SearchLoop::gatherRows(Value tensor, int64_t dim, Value chosen) {
  auto type = cast<RankedTensorType>(tensor.getType());
  int64_t rank = type.getRank();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  auto rowMap = AffineMap::get(rank, 0, b.getAffineDimExpr(dim));
  auto pick = [&](OpBuilder &body, Location at, ValueRange args) -> Value {
    SmallVector<Value> position;
    for (int64_t n = 0; n < rank; ++n)
      position.push_back(n == dim ? arith::IndexCastOp::create(body, at, body.getIndexType(), args[0]).getResult()
                                  : linalg::IndexOp::create(body, at, n).getResult());
    return tensor::ExtractOp::create(body, at, tensor, position);
  };
  return castTo(elementwise(b, loc, sizes, type.getElementType(), chosen, rowMap, pick), type);
}

Value SearchLoop::countOn(Value positions) {
  auto type = cast<RankedTensorType>(positions.getType());
  Value next = elementwise(
      b, loc, tensor::getMixedSizes(b, loc, positions), type.getElementType(), positions,
      b.getMultiDimIdentityMap(type.getRank()), [&](OpBuilder &body, Location at, ValueRange args) -> Value {
        Value one = arith::ConstantOp::create(body, at, body.getIntegerAttr(type.getElementType(), 1));
        return arith::AddIOp::create(body, at, args[0], one);
      });
  return castTo(next, type);
}

/// The mask's buffer with one more column of ones.
Value SearchLoop::appendOnes(Argument &argument, Value &length) {
  Type element = argument.type.getElementType();
  TypedAttr one = isa<FloatType>(element) ? TypedAttr(b.getFloatAttr(element, 1)) : b.getIntegerAttr(element, 1);
  OpFoldResult rowCount = argument.sizes[0], single = b.getIndexAttr(1), zero = b.getIndexAttr(0);
  Value ones = fill(RankedTensorType::get({argument.type.getDimSize(0), 1}, element), {rowCount, single}, one);
  Value before = length;
  length = arith::AddIOp::create(b, loc, before, index(1));
  Value buffer = GrowOp::create(b, loc, argument.type, inside[argument.carried], length, 1);
  return tensor::InsertSliceOp::create(b, loc, ones, buffer, ArrayRef<OpFoldResult>{zero, before},
                                       ArrayRef<OpFoldResult>{rowCount, single},
                                       ArrayRef<OpFoldResult>{single, single});
}

func::FuncOp attn::getMoveKernel(KernelTable &kernels, const SearchKernels &target, const SearchMoveSpec &spec) {
  std::string symbol;
  llvm::raw_string_ostream text(symbol);
  text << "search_move_w" << spec.width << "_r" << spec.rowsDim << "_g" << spec.growDim;
  for (int64_t size : spec.state.getShape())
    ShapedType::isDynamic(size) ? text << "_n" : text << "_" << size;
  text << "_" << spec.state.getElementType();
  FailureOr<func::FuncOp> kernel =
      kernels.getOrBuild(symbol, [&](OpBuilder &at) { return target.move(at, symbol, spec); });
  assert(succeeded(kernel) && "a symbol of the model has the name of a kernel");
  return *kernel;
}

/// The first `length` positions of each row of `buffer` become those of its
/// parent: what the two do not share moves in place. A step adds `added`
/// positions, kDynamic if only the run knows.
Value SearchLoop::moveRows(const Argument &argument, Value buffer, Value length, int64_t added, Value chosen) {
  bool isKnown = !ShapedType::isDynamic(added);
  // Kin counts steps from the first token, which a step need not have made.
  int64_t before = isKnown && op.startsWithScores() ? added : 0;
  Value first = arith::SubIOp::create(b, loc, value(argument.sizes[argument.growDim]), index(before));
  Value each = index(isKnown ? added : 0);
  SearchMoveSpec move{width, argument.type, argument.rowsDim, argument.growDim};
  func::FuncOp kernel = getMoveKernel(kernels, target, move);
  // It writes nothing that it reads, which is as good as elementwise.
  auto call = KernelOp::create(b, loc, argument.type, SymbolRefAttr::get(kernel),
                               ValueRange{chosen, inside[kin], first, each, length, buffer}, buffer,
                               b.getDenseI64ArrayAttr({5}));
  call->setAttr(kMoveAttr, b.getDenseI64ArrayAttr({width, argument.rowsDim, argument.growDim}));
  return call.getResult(0);
}

/// `state` is a concatenation that begins with what the step was given: only
/// what follows is written, and rows whose parent is another one move. False
/// where it is not.
bool SearchLoop::leaveAppended(Argument &argument, Value state, Value chosen) {
  bool moves = width > 1 && argument.rowsDim >= 0;
  auto withoutCasts = [](Value value) {
    while (auto cast = value.getDefiningOp<tensor::CastOp>())
      value = cast.getSource();
    return value;
  };
  int64_t dim = argument.growDim;
  SmallVector<tensor::InsertSliceOp> inserts; // the last one first
  Value end = withoutCasts(state);
  while (auto insert = end.getDefiningOp<tensor::InsertSliceOp>()) {
    if (insert.getSourceType().getRank() != insert.getDestType().getRank() || !insert.hasUnitStride())
      return false;
    for (auto [n, offset] : llvm::enumerate(insert.getMixedOffsets()))
      if (static_cast<int64_t>(n) != dim && !isConstantIntValue(offset, 0))
        return false;
    inserts.push_back(insert);
    end = insert.getDest();
  }
  if (inserts.size() < 2 || !end.getDefiningOp<tensor::EmptyOp>())
    return false;
  tensor::InsertSliceOp first = inserts.pop_back_val();
  if (withoutCasts(first.getSource()) != argument.inside || !isConstantIntValue(first.getMixedOffsets()[dim], 0))
    return false;
  // Everything behind it touches what follows, without gaps.
  tensor::InsertSliceOp last = inserts.front();
  Value buffer = inside[argument.carried], length = argument.length;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(last);
  SmallVector<Value> ends;
  std::optional<int64_t> added = 0;
  for (tensor::InsertSliceOp insert : llvm::reverse(inserts)) {
    Value size = value(insert.getMixedSizes()[dim]);
    std::optional<int64_t> number = getConstantIntValue(insert.getMixedSizes()[dim]);
    added = added && number ? std::optional(*added + *number) : std::nullopt;
    ends.push_back(arith::AddIOp::create(b, loc, ends.empty() ? length : ends.back(), size));
  }
  SmallVector<OpFoldResult> sizes = cast<tensor::EmptyOp>(end.getDefiningOp()).getMixedSizes();
  buffer = GrowOp::create(b, loc, argument.type, buffer, ends.back(), dim);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0)), strides(sizes.size(), b.getIndexAttr(1));
  for (auto [n, insert] : llvm::enumerate(llvm::reverse(inserts))) {
    SmallVector<OpFoldResult> at = offsets;
    at[dim] = n ? ends[n - 1] : length;
    buffer = tensor::InsertSliceOp::create(b, loc, insert.getSource(), buffer, at, insert.getMixedSizes(), strides);
  }
  if (last.getType().isDynamicDim(dim))
    sizes[dim] = ends.back();
  Value all = tensor::ExtractSliceOp::create(b, loc, last.getType(), buffer, offsets, sizes, strides);
  last.getResult().replaceAllUsesWith(all);
  if (moves) {
    b.setInsertionPointAfterValue(chosen);
    buffer = moveRows(argument, buffer, ends.back(), added.value_or(kDynamic), chosen);
  }
  yielded[argument.carried] = buffer;
  yielded[argument.carried + 1] = ends.back();
  return true;
}

void SearchLoop::leaveGrowing(Argument &argument, Value state, Value chosen) {
  for (int64_t dim = 0; dim < argument.type.getRank(); ++dim)
    if (dim != argument.growDim)
      require(sizeOf(state, dim), value(argument.sizes[dim]),
              "search: a state of size {1} in a dimension is {0} after the step");
  if (leaveAppended(argument, state, chosen))
    return;
  Value length = sizeOf(state, argument.growDim);
  if (width > 1 && argument.rowsDim >= 0)
    state = gatherRows(state, argument.rowsDim, chosen);
  SmallVector<OpFoldResult> sizes = argument.sizes;
  sizes[argument.growDim] = length;
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0)), strides(sizes.size(), b.getIndexAttr(1));
  Value buffer = GrowOp::create(b, loc, argument.type, inside[argument.carried], length, argument.growDim);
  yielded[argument.carried] =
      tensor::InsertSliceOp::create(b, loc, castTo(state, argument.type), buffer, offsets, sizes, strides);
  yielded[argument.carried + 1] = length;
}

/// What the next step is given for an argument that changes.
void SearchLoop::leaveState(Argument &argument, Value state, Value chosen) {
  // Positions and masks are the same in all rows of an item.
  if (argument.source == SearchOp::kPosition) {
    yielded[argument.carried] = countOn(inside[argument.carried]);
    return;
  }
  if (argument.source == SearchOp::kMask) {
    Value length = argument.length;
    yielded[argument.carried] = appendOnes(argument, length);
    yielded[argument.carried + 1] = length;
    return;
  }
  if (argument.growDim >= 0)
    return leaveGrowing(argument, state, chosen);
  for (int64_t dim = 0; dim < argument.type.getRank(); ++dim)
    require(sizeOf(state, dim), value(argument.sizes[dim]),
            "search: a state of size {1} in a dimension is {0} after the step");
  state = castTo(state, argument.type);
  yielded[argument.carried] = width > 1 && argument.rowsDim >= 0 ? gatherRows(state, argument.rowsDim, chosen) : state;
}

//===----------------------------------------------------------------------===//
// Coverage
//===----------------------------------------------------------------------===//

/// [rows, source]: what each row has seen of the source with the weights of this step.
Value SearchLoop::coveredBy(Value weights) {
  Value before = inside[coverage];
  require(sizeOf(weights, 0), rows, "search: an alignment has {0} rows, the tokens have {1}");
  require(sizeOf(weights, 1), sizeOf(before, 1), "search: an alignment has {0} positions, the source has {1}");
  weights = castTo(weights, before.getType());
  AffineMap identity = b.getMultiDimIdentityMap(2);
  return elementwise(b, loc, tensor::getMixedSizes(b, loc, before), b.getF32Type(), {before, weights},
                     {identity, identity}, [](OpBuilder &body, Location at, ValueRange args) -> Value {
                       return arith::AddFOp::create(body, at, args[0], args[1]);
                     });
}

/// [rows]: what the score of a hypothesis that ends in a row gets for its coverage.
Value SearchLoop::coverageTerms(Value covered) {
  auto ofRows = RankedTensorType::get({kDynamic}, b.getF32Type());
  Value zero = fill(ofRows, {rows}, b.getF32FloatAttr(0));
  double penalty = op.getCoveragePenalty().convertToDouble();
  auto perRow = AffineMap::get(2, 0, b.getAffineDimExpr(0));
  return reduction(b, loc, covered, b.getMultiDimIdentityMap(2), zero, perRow,
                   [&](OpBuilder &body, Location at, ValueRange args) -> Value {
                     auto constant = [&](double x) { return floatConstant(body, at, body.getF32Type(), x); };
                     Value none = constant(0), most = constant(1);
                     Value seen = arith::CmpFOp::create(body, at, arith::CmpFPredicate::OGT, args[0], none);
                     Value safe = arith::SelectOp::create(body, at, seen, args[0], most);
                     Value share = arith::MinimumFOp::create(body, at, safe, most);
                     Value term = arith::MulFOp::create(body, at, math::LogOp::create(body, at, share).getResult(),
                                                        constant(penalty));
                     return arith::AddFOp::create(body, at, args[1], term);
                   });
}

//===----------------------------------------------------------------------===//
// Beginning and end
//===----------------------------------------------------------------------===//

/// Before the first choice all rows of an item are one hypothesis.
Value SearchLoop::firstKin() {
  auto body = [&](OpBuilder &at, Location where, ValueRange) -> Value {
    Value row = linalg::IndexOp::create(at, where, 0), column = linalg::IndexOp::create(at, where, 1);
    Value count = arith::ConstantIndexOp::create(at, where, width);
    Value rank = arith::RemUIOp::create(at, where, row, count);
    Value steps = arith::ConstantIndexOp::create(at, where, op.startsWithScores() ? 1 : 0);
    Value isRank = arith::CmpIOp::create(at, where, arith::CmpIPredicate::eq, column, count);
    Value number = arith::SelectOp::create(at, where, isRank, rank, steps);
    return arith::IndexCastOp::create(at, where, at.getI64Type(), number);
  };
  return elementwise(b, loc, {rows, b.getIndexAttr(width + 1)}, b.getI64Type(), {}, {}, body);
}

/// The scores for the first token are there: it is chosen before the loop. All
/// rows of an item are still the same, so no state moves.
void SearchLoop::chooseFirst() {
  auto matrix = RankedTensorType::get({kDynamic, kDynamic}, b.getF32Type());
  Value scores = expandRows(castTo(op.getFirst(), matrix), 0, matrix);
  Value one = index(1), zero = index(0);
  SmallVector<Value> hypotheses{inits[live], inits[best], inits[info], inits[open]};
  if (op.isBeam())
    hypotheses.push_back(inits[kin]);
  SmallVector<Value> chosen =
      choose(scores, hypotheses, one, chosenBefore(inits), spec.coverage ? inits[coverage] : Value());
  tell(chosen[5], chosen[2], one);
  inits[go] = chosen[6];
  inits[steps] = one;
  inits[tokens] = chosen[5];
  if (sequenceAfter)
    inits[sequence] = sequenceAfter;
  const size_t places[] = {live, best, info, open};
  for (auto [place, value] : llvm::zip(places, chosen))
    inits[place] = value;
  inits[history] = appendRow(inits[history], chosen[5], zero, one);
  if (op.isBeam()) {
    inits[parents] = appendRow(inits[parents], chosen[4], zero, one);
    inits[kin] = chosen[7];
  }
  if (op.getAlignmentResult()) {
    Value none = fill(matrix, {rows, alignmentSize()}, b.getF32FloatAttr(0));
    inits[alignments] = appendRow(inits[alignments], none, zero, one);
  }
}

/// [.., length, source]: of each token that was chosen the weights of the row it
/// came from. `chosenRows` ([batch, best, length], -1: none) is null where each row is its own.
Value SearchLoop::alignmentOf(Value chosenRows, Value lengths) {
  Value weights = results[alignments];
  Value longest = sizeOf(op.isBeam() ? chosenRows : lengths, op.isBeam() ? 2 : 1);
  SmallVector<OpFoldResult> sizes{batch};
  if (op.isBeam())
    sizes.push_back(b.getIndexAttr(op.getNBest()));
  sizes.append({longest, tensor::getMixedSize(b, loc, weights, 2)});
  int64_t rank = sizes.size();
  auto body = [&](OpBuilder &at, Location where, ValueRange args) -> Value {
    Value source = linalg::IndexOp::create(at, where, rank - 1), time = linalg::IndexOp::create(at, where, rank - 2);
    Value none = arith::ConstantOp::create(at, where, at.getF32FloatAttr(0));
    Value zero = arith::ConstantIntOp::create(at, where, 0, 64);
    Value has = arith::CmpIOp::create(at, where, arith::CmpIPredicate::sge, args[0], zero);
    Value safe = arith::IndexCastOp::create(at, where, at.getIndexType(),
                                            arith::MaxSIOp::create(at, where, args[0], zero).getResult());
    Value weight = tensor::ExtractOp::create(at, where, weights, ValueRange{time, safe, source});
    return arith::SelectOp::create(at, where, has, weight, none);
  };
  return elementwise(b, loc, sizes, b.getF32Type(), op.isBeam() ? chosenRows : lengths,
                     b.getMultiDimIdentityMap(rank).dropResult(rank - 1), body);
}

/// Each row has one result, its own.
void SearchLoop::finishRows(Value length) {
  Type i64 = b.getI64Type();
  OpFoldResult one = b.getIndexAttr(1), zero = b.getIndexAttr(0), rowCount = rows;
  Value lengths = tensor::ExtractSliceOp::create(
      b, loc, RankedTensorType::get({kDynamic}, i64), results[info], ArrayRef<OpFoldResult>{zero, zero, zero},
      ArrayRef<OpFoldResult>{rowCount, one, one}, ArrayRef<OpFoldResult>{one, one, one});
  Value scores = tensor::ExtractSliceOp::create(
      b, loc, RankedTensorType::get({kDynamic}, b.getF32Type()), results[live], ArrayRef<OpFoldResult>{zero, zero},
      ArrayRef<OpFoldResult>{rowCount, one}, ArrayRef<OpFoldResult>{one, one});
  Value all = results[history];
  auto perRow = AffineMap::get(2, 0, b.getAffineDimExpr(0));
  auto perToken = [&](llvm::function_ref<Value(OpBuilder &, Location, Value row, Value time, Value ended)> make) {
    auto body = [&](OpBuilder &at, Location where, ValueRange args) {
      Value row = linalg::IndexOp::create(at, where, 0), time = linalg::IndexOp::create(at, where, 1);
      Value count = arith::IndexCastOp::create(at, where, at.getIndexType(), args[0]);
      Value ended = arith::CmpIOp::create(at, where, arith::CmpIPredicate::sge, time, count);
      return make(at, where, row, time, ended);
    };
    return elementwise(b, loc, {rows, length}, i64, lengths, perRow, body);
  };
  Value chosen = perToken([&](OpBuilder &at, Location where, Value row, Value time, Value ended) -> Value {
    Value token = tensor::ExtractOp::create(at, where, all, ValueRange{time, row});
    if (!spec.padding) // stands there already
      return token;
    Value pad = arith::ConstantIntOp::create(at, where, *spec.padding, 64);
    return arith::SelectOp::create(at, where, ended, pad, token);
  });
  op.getTokens().replaceAllUsesWith(castTo(chosen, op.getTokens().getType()));
  op.getLengths().replaceAllUsesWith(castTo(lengths, op.getLengths().getType()));
  op.getScores().replaceAllUsesWith(castTo(scores, op.getScores().getType()));
  if (!op.getAlignment() && !traces)
    return;
  Value own = perToken([&](OpBuilder &at, Location where, Value row, Value, Value ended) {
    Value number = arith::IndexCastOp::create(at, where, at.getI64Type(), row);
    Value none = arith::ConstantIntOp::create(at, where, -1, 64);
    return arith::SelectOp::create(at, where, ended, none, number).getResult();
  });
  if (op.getAlignment())
    op.getAlignment().replaceAllUsesWith(castTo(alignmentOf(Value(), own), op.getAlignment().getType()));
  trace(own);
}

void SearchLoop::finishBeams(Value length) {
  Type i64 = b.getI64Type();
  int64_t count = op.getNBest();
  OpFoldResult best3 = b.getIndexAttr(count), one = b.getIndexAttr(1), zero = b.getIndexAttr(0), items = batch;
  auto table = RankedTensorType::get({kDynamic, count, kDynamic}, i64);
  auto list = RankedTensorType::get({kDynamic, count}, i64);
  SmallVector<Value> traced =
      call("search_trace", {results[history], results[parents], results[info]},
           {{table, {items, best3, length}}, {table, {items, best3, length}}, {list, {items, best3}}},
           [&](OpBuilder &at, StringRef symbol) { return buildSearchTrace(at, symbol, spec, count); });
  Value scores = tensor::ExtractSliceOp::create(b, loc, RankedTensorType::get({kDynamic, count}, b.getF32Type()),
                                                results[best], ArrayRef<OpFoldResult>{zero, zero},
                                                ArrayRef<OpFoldResult>{items, best3}, ArrayRef<OpFoldResult>{one, one});
  op.getTokens().replaceAllUsesWith(castTo(traced[0], op.getTokens().getType()));
  op.getLengths().replaceAllUsesWith(castTo(traced[2], op.getLengths().getType()));
  op.getScores().replaceAllUsesWith(castTo(scores, op.getScores().getType()));
  if (op.getAlignment())
    op.getAlignment().replaceAllUsesWith(castTo(alignmentOf(traced[1], Value()), op.getAlignment().getType()));
  trace(traced[1]);
}

void SearchLoop::trace(Value chosenRows) {
  if (traces)
    TraceOp::create(b, loc, chosenRows, rows, results[steps], op.startsWithScores());
}

void SearchLoop::finish() {
  SmallVector<Value> longest =
      call("search_length", {results[info]}, {{RankedTensorType::get({1}, b.getI64Type()), {b.getIndexAttr(1)}}},
           [&](OpBuilder &at, StringRef symbol) { return buildSearchLength(at, symbol, width, op.getNBest()); });
  Value number = tensor::ExtractOp::create(b, loc, longest[0], index(0));
  Value length = arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
  if (op.isBeam())
    finishBeams(length);
  else
    finishRows(length);
}
