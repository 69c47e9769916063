#include "passes/lowering/search/SearchLoop.h"
#include "dialects/attn/DimBounds.h"
#include "dialects/attn/LoopOps.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

SearchLoop::SearchLoop(SearchOp op, KernelTable &kernels, const SearchKernels &target, bool traces)
    : op(op), kernels(kernels), target(target), traces(traces),
      step(SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, op.getStepAttr())), b(op), loc(op.getLoc()),
      width(op.getWidth()) {
  spec.isBeam = op.isBeam();
  spec.width = width;
  spec.eos = op.getEos();
  if (std::optional<uint64_t> pad = op.getPad())
    spec.padding = static_cast<int64_t>(*pad);
  spec.shrink = op.getShrink();
  spec.earlyStop = op.getEarlyStop();
  spec.coverage = !op.getCoveragePenalty().isZero();
  target.adapt(spec);
}

//===----------------------------------------------------------------------===//
// Small pieces
//===----------------------------------------------------------------------===//

Value SearchLoop::index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
Value SearchLoop::integer(int64_t value) { return arith::ConstantIntOp::create(b, loc, value, 64); }
Value SearchLoop::value(OpFoldResult size) { return getValueOrCreateConstantIndexOp(b, loc, size); }

Value SearchLoop::fill(RankedTensorType type, ArrayRef<OpFoldResult> sizes, TypedAttr number) {
  Value empty = tensor::EmptyOp::create(b, loc, sizes, type.getElementType());
  Value constant = arith::ConstantOp::create(b, loc, number);
  return castTo(linalg::FillOp::create(b, loc, constant, empty).getResult(0), type);
}

Value SearchLoop::sizeOf(Value tensor, int64_t dim) { return value(tensor::getMixedSize(b, loc, tensor, dim)); }

void SearchLoop::require(Value a, Value c, StringRef message) {
  if (a == c)
    return;
  Value same = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, a, c);
  RequireOp::create(b, loc, same, message, ValueRange{a, c});
}

Value SearchLoop::castTo(Value tensor, Type type) {
  return tensor.getType() == type ? tensor : tensor::CastOp::create(b, loc, type, tensor).getResult();
}

/// A kernel called by what it does, of which a module may need several: the
/// symbol holds all that its text depends on.
SmallVector<Value> SearchLoop::call(StringRef role, ValueRange ins,
                                    ArrayRef<std::pair<RankedTensorType, SmallVector<OpFoldResult>>> outs,
                                    BuildFn build, ArrayRef<int64_t> inPlace) {
  SmallVector<Value> destinations;
  SmallVector<Type> types;
  for (const auto &[type, sizes] : outs) {
    types.push_back(type);
    if (destinations.size() < inPlace.size()) {
      destinations.push_back(castTo(ins[inPlace[destinations.size()]], type));
      continue;
    }
    SmallVector<Value> dynamic;
    for (auto [n, size] : llvm::enumerate(sizes))
      if (type.isDynamicDim(n))
        dynamic.push_back(value(size));
    destinations.push_back(tensor::EmptyOp::create(b, loc, type, dynamic));
  }
  std::string key;
  llvm::raw_string_ostream text(key);
  text << role << "_w" << width << "_b" << op.getNBest() << (spec.shrink ? "_s" : "") << (spec.earlyStop ? "_e" : "")
       << (spec.coverage ? "_c" : "");
  for (int64_t id : spec.eos)
    text << "_" << id;
  if (spec.padding)
    text << "_p" << *spec.padding;
  FailureOr<func::FuncOp> kernel = kernels.getOrBuild(key, [&](OpBuilder &at) {
    func::FuncOp function = build(at, key);
    target.finish(function);
    return function;
  });
  assert(succeeded(kernel) && "a symbol of the model has the name of a kernel");
  auto result =
      KernelOp::create(b, loc, types, SymbolRefAttr::get(*kernel), ins, destinations, b.getDenseI64ArrayAttr(inPlace));
  return SmallVector<Value>(result.getOutputs());
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

Value SearchLoop::tokensFor(RankedTensorType type, Value chosen) {
  if (!type.getElementType().isInteger(64)) {
    Type narrow = type.getElementType();
    chosen = elementwise(b, loc, {rows}, narrow, chosen, b.getMultiDimIdentityMap(1),
                         [&](OpBuilder &body, Location at, ValueRange args) -> Value {
                           return arith::TruncIOp::create(body, at, narrow, args[0]);
                         });
  }
  if (type.getRank() == 2) {
    SmallVector<OpFoldResult> shape{rows, b.getIndexAttr(1)};
    auto wide = RankedTensorType::get({kDynamic, 1}, type.getElementType());
    SmallVector<ReassociationIndices> groups{{0, 1}};
    chosen = tensor::ExpandShapeOp::create(b, loc, wide, chosen, groups, shape);
  }
  return castTo(chosen, type);
}

/// What each argument of the step is in this iteration.
void SearchLoop::enterArguments() {
  for (auto [n, argument] : llvm::enumerate(arguments)) {
    if (argument.source == SearchOp::kToken) {
      argument.inside = tokensFor(argument.type, inside[tokens]);
    } else if (argument.source == SearchOp::kConstant) {
      argument.inside = argument.init;
    } else if (argument.growDim < 0) {
      argument.inside = inside[argument.carried];
    } else {
      argument.length = inside[argument.carried + 1];
      SmallVector<OpFoldResult> sizes = argument.sizes;
      sizes[argument.growDim] = argument.length;
      SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0)), strides(sizes.size(), b.getIndexAttr(1));
      argument.inside =
          tensor::ExtractSliceOp::create(b, loc, argument.type, inside[argument.carried], offsets, sizes, strides);
    }
    BlockArgument block = step.getArgument(n);
    inner.map(block, argument.inside);
    if (argument.source == SearchOp::kConstant)
      outer.map(block, argument.init);
  }
  requireEqualNames(/*inBody=*/true);
}

/// Whether an op of the step may stand before the loop: there it does the same.
static bool canHoist(Operation &op, const IRMapping &outer) {
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(op.getRegions(), captured);
  auto isKnown = [&](Value value) { return outer.contains(value); };
  return llvm::all_of(op.getOperands(), isKnown) && llvm::all_of(captured, isKnown) &&
         (isMemoryEffectFree(&op) || isa<RequireOp>(op));
}

/// What costs nothing stands in both places.
static bool isCheap(Operation &op) {
  return op.hasTrait<OpTrait::ConstantLike>() || isa<tensor::EmptyOp, linalg::FillOp, WeightOp>(op);
}

SmallVector<Value> SearchLoop::cloneStep() {
  OpBuilder before(loop);
  auto tokenDims = llvm::find_if(arguments, [](Argument &argument) { return argument.source == SearchOp::kToken; });
  auto names = step.getArgAttrOfType<ArrayAttr>(tokenDims - arguments.begin(), AttnDialect::kDimsAttr);
  Attribute rowsName = names && !names.empty() ? names[0] : Attribute();
  for (Operation &each : step.getBody().front().without_terminator()) {
    auto dim = dyn_cast<tensor::DimOp>(each);
    auto argument = dim ? dyn_cast<BlockArgument>(dim.getSource()) : BlockArgument();
    std::optional<int64_t> position = dim ? dim.getConstantIndex() : std::nullopt;
    if (argument && position && *position >= 0 && *position < cast<RankedTensorType>(argument.getType()).getRank()) {
      Argument &of = arguments[argument.getArgNumber()];
      bool grows = of.growDim == *position;
      OpFoldResult size = grows ? OpFoldResult(of.length) : of.sizes[*position];
      Value known = isa<Value>(size)
                        ? cast<Value>(size)
                        : arith::ConstantIndexOp::create(before, loc, *getConstantIntValue(size)).getResult();
      inner.map(dim.getResult(), known);
      if (!grows)
        outer.map(dim.getResult(), known);
      continue;
    }
    // A bound of the batch is one of the items, not of their rows.
    if (Attribute bound = each.getAttr(kBoundOfAttr); width > 1 && bound && bound == rowsName)
      continue;
    bool hoists = canHoist(each, outer);
    if (hoists)
      before.clone(each, outer);
    if (!hoists || isCheap(each))
      b.clone(each, inner);
    else
      for (Value result : each.getResults())
        inner.map(result, outer.lookup(result));
  }
  return llvm::map_to_vector(step.getBody().front().getTerminator()->getOperands(),
                             [&](Value result) { return inner.lookup(result); });
}

//===----------------------------------------------------------------------===//
// Choosing
//===----------------------------------------------------------------------===//

/// Scores of the last position as [rows, vocabulary].
Value SearchLoop::lastScores(Value logits) {
  auto type = cast<RankedTensorType>(logits.getType());
  require(sizeOf(logits, 0), rows, "search: the scores have {0} rows, the tokens have {1}");
  if (type.getRank() == 2)
    return logits;
  Value count = sizeOf(logits, 1), none = index(0);
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, count, none);
  RequireOp::create(b, loc, some, "search: a step returned the scores of {0} positions", ValueRange{count});
  Value last = arith::SubIOp::create(b, loc, count, index(1));
  OpFoldResult one = b.getIndexAttr(1), zero = b.getIndexAttr(0), vocabulary = tensor::getMixedSize(b, loc, logits, 2);
  auto flat = RankedTensorType::get({type.getDimSize(0), type.getDimSize(2)}, type.getElementType());
  OpFoldResult rowCount = type.isDynamicDim(0) ? OpFoldResult(rows) : b.getIndexAttr(type.getDimSize(0));
  return tensor::ExtractSliceOp::create(b, loc, flat, logits, ArrayRef<OpFoldResult>{zero, last, zero},
                                        ArrayRef<OpFoldResult>{rowCount, one, vocabulary},
                                        ArrayRef<OpFoldResult>{one, one, one});
}

/// What the sum of a hypothesis that ends after `count` tokens is divided by.
Value SearchLoop::penaltyAt(Value count) {
  double alpha = op.getLengthPenalty().convertToDouble();
  auto constant = [&](double x) { return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(x)).getResult(); };
  if (alpha == 0)
    return constant(1);
  Value number = arith::SIToFPOp::create(b, loc, b.getF32Type(), count);
  if (op.getGnmt())
    number = arith::DivFOp::create(b, loc, arith::AddFOp::create(b, loc, number, constant(5)), constant(6));
  if (alpha == 1)
    return number;
  return math::ExpOp::create(b, loc,
                             arith::MulFOp::create(b, loc, math::LogOp::create(b, loc, number), constant(alpha)));
}

/// `hypotheses` are live, best, info and open. Returns them anew, then the
/// parents and the tokens of the rows that live on, whether one does, and with
/// beams what is kin; asks for the run's end where there is nothing to choose
/// from. `hypotheses` end in kin with beams, `covered` is null where coverage
/// does not count.
SmallVector<Value> SearchLoop::choose(Value scores, ValueRange hypotheses, Value number, const StepTokens &before,
                                      Value covered) {
  Type f32 = b.getF32Type(), i64 = b.getI64Type();
  OpFoldResult candidates = b.getIndexAttr(spec.candidates()), columns = b.getIndexAttr(width);
  auto matrix = RankedTensorType::get({kDynamic, kDynamic}, f32);
  Value count = arith::IndexCastOp::create(b, loc, i64, number);
  Value noEnd =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, count, integerSetting("min_length", op.getMinLength()));
  auto [changed, logSums] = adjust(castTo(scores, matrix), number, before, noEnd);
  scores = changed;
  OpFoldResult vocabulary = sizeOf(scores, 1);
  auto type = [&](ArrayRef<int64_t> shape, Type element) { return RankedTensorType::get(shape, element); };
  auto values = type({kDynamic, spec.candidates()}, f32), ids = type({kDynamic, spec.candidates()}, i64);
  auto vector = type({kDynamic}, i64), reals = type({kDynamic}, f32);
  Value last = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, number, op.getMaxLength());
  SmallVector<Value> drawn;
  if (op.getKind() == "sample")
    drawn = call(
        "search_sample",
        {scores, noEnd, count, integerSetting("seed", op.getSeed()),
         realSetting("temperature", op.getTemperature().convertToDouble(), f32), integerSetting("top_k", op.getTopK()),
         realSetting("top_p", op.getTopP().convertToDouble(), b.getF64Type())},
        {{values, {rows, candidates}}, {ids, {rows, candidates}}, {reals, {rows}}, {matrix, {rows, vocabulary}}},
        [&](OpBuilder &at, StringRef symbol) { return target.sample(at, symbol, spec); });
  else
    drawn =
        call("search_rows", {scores, noEnd}, {{values, {rows, candidates}}, {ids, {rows, candidates}}, {reals, {rows}}},
             [&](OpBuilder &at, StringRef symbol) { return target.rows(at, symbol, spec); });
  SmallVector<Value> ins{drawn[0], drawn[1], logSums ? logSums : drawn[2]};
  llvm::append_range(ins, hypotheses.take_front(4));
  ins.append({penaltyAt(count), count, last});
  llvm::append_range(ins, hypotheses.drop_front(4));
  if (covered)
    ins.push_back(coverageTerms(covered));
  auto flags = type({2}, i64);
  SmallVector<std::pair<RankedTensorType, SmallVector<OpFoldResult>>> outs{
      {type({kDynamic, width}, f32), {batch, columns}},
      {type({kDynamic, width}, f32), {batch, columns}},
      {type({kDynamic, width, 3}, i64), {batch, columns, b.getIndexAttr(3)}},
      {vector, {batch}},
      {vector, {rows}},
      {vector, {rows}},
      {flags, {b.getIndexAttr(2)}}};
  if (op.isBeam())
    outs.push_back({type({kDynamic, width + 1}, i64), {rows, b.getIndexAttr(width + 1)}});
  // A row that is its item's only one is read before it is written; beams are not.
  SmallVector<int64_t> inPlace;
  if (!op.isBeam())
    inPlace = {3, 4, 5, 6};
  SmallVector<Value> chosen = call(
      op.isBeam() ? "search_beam" : "search_greedy", ins, outs,
      [&](OpBuilder &at, StringRef symbol) {
        return op.isBeam() ? buildSearchBeam(at, symbol, spec) : buildSearchGreedy(at, symbol, spec);
      },
      inPlace);
  // One word tells of both errors, since a GPU's is fetched: an odd one of numbers.
  Value bad = tensor::ExtractOp::create(b, loc, chosen[6], index(1));
  Value places = arith::ShRSIOp::create(b, loc, arith::SubIOp::create(b, loc, integer(-1), bad), integer(1));
  Value item = arith::IndexCastOp::create(b, loc, b.getIndexType(), places);
  auto requireZero = [&](Value word, StringRef message) {
    Value good = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, word, integer(0));
    RequireOp::create(b, loc, good, message, ValueRange{number, item});
  };
  requireZero(arith::AndIOp::create(b, loc, bad, integer(1)),
              "search: in step {0} the scores of item {1} have a NaN or +inf, or nothing but -inf; a mask that "
              "hides all of an item makes NaN");
  requireZero(bad,
              "search: in step {0} item {1} has no token to choose: suppressed and forbidden tokens, the least length "
              "and n-grams that may not repeat leave none with a score above -inf; allow more tokens");
  Value goes = tensor::ExtractOp::create(b, loc, chosen[6], index(0));
  chosen[6] = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, goes, integer(0));
  return chosen;
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

Value SearchLoop::appendRow(Value buffer, Value row, Value at, Value count) {
  buffer = GrowOp::create(b, loc, buffer.getType(), buffer, count, 0);
  return insertAlong(b, loc, row, buffer, 0, at);
}

void SearchLoop::fillBody() {
  PollOp::create(b, loc);
  enterArguments();
  SmallVector<Value> returned = cloneStep();
  Value number = arith::AddIOp::create(b, loc, inside[steps], index(1));
  SmallVector<Value> hypotheses{inside[live], inside[best], inside[info], inside[open]};
  if (op.isBeam())
    hypotheses.push_back(inside[kin]);
  Value covered = spec.coverage ? coveredBy(returned[*op.getAlignmentResult()]) : Value();
  SmallVector<Value> chosen =
      choose(lastScores(returned[op.getLogitsResult()]), hypotheses, number, chosenBefore(inside), covered);
  tell(chosen[5], chosen[2], number);
  yielded.assign(inside.begin(), inside.end());
  yielded[go] = chosen[6];
  yielded[steps] = number;
  yielded[tokens] = chosen[5];
  if (sequenceAfter)
    yielded[sequence] = sequenceAfter;
  const size_t places[] = {live, best, info, open};
  for (auto [place, value] : llvm::zip(places, chosen))
    yielded[place] = value;
  yielded[history] = appendRow(inside[history], chosen[5], inside[steps], number);
  if (op.isBeam()) {
    yielded[parents] = appendRow(inside[parents], chosen[4], inside[steps], number);
    yielded[kin] = chosen[7];
  }
  if (op.getAlignmentResult()) {
    Value row = returned[*op.getAlignmentResult()];
    require(sizeOf(row, 0), rows, "search: an alignment has {0} rows, the tokens have {1}");
    require(sizeOf(row, 1), sizeOf(inside[alignments], 2),
            "search: an alignment has {0} positions, the source has {1}");
    row = castTo(row, RankedTensorType::get({kDynamic, kDynamic}, b.getF32Type()));
    yielded[alignments] = appendRow(inside[alignments], row, inside[steps], number);
  }
  if (covered)
    yielded[coverage] = gatherRows(covered, 0, chosen[4]);
  for (Argument &argument : arguments)
    if (argument.source != SearchOp::kToken && argument.source != SearchOp::kConstant)
      leaveState(argument, argument.source >= 0 ? returned[argument.source] : Value(), chosen[4]);
}

LogicalResult SearchLoop::run() {
  takeArguments();
  if (op.getAlignmentResult() && !alignmentSize())
    return op.emitOpError("returns alignments whose size no argument of '") << op.getStep() << "' has";
  Value least = index(1), fuel = index(op.getFuel()), most = op.getMaxLength();
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, most, least);
  RequireOp::create(b, loc, some, "search: the greatest length is {0}, which is less than 1", ValueRange{most});
  Value within = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, most, fuel);
  RequireOp::create(b, loc, within,
                    "search: the greatest length is {0}, the limit of iterations is {1} (--max-loop-iterations)",
                    ValueRange{most, fuel});
  startLoop();
  if (op.startsWithScores())
    chooseFirst();
  auto loop = scf::WhileOp::create(b, loc, ValueRange(inits).getTypes(), inits);
  this->loop = loop;
  Block *test = b.createBlock(&loop.getBefore());
  for (Value init : inits)
    test->addArgument(init.getType(), loc);
  scf::ConditionOp::create(b, loc, test->getArgument(go), test->getArguments());
  Block *body = b.createBlock(&loop.getAfter());
  for (Value init : inits)
    body->addArgument(init.getType(), loc);
  inside = body->getArguments();
  fillBody();
  for (auto [value, init] : llvm::zip(yielded, inits))
    value = isa<TensorType>(value.getType()) ? castTo(value, init.getType()) : value;
  scf::YieldOp::create(b, loc, yielded);
  b.setInsertionPointAfter(loop);
  results = loop.getResults();
  finish();
  auto module = op->getParentOfType<ModuleOp>();
  op.erase();
  // A step that is no entry has its text in the loop.
  if (step.isPrivate() && step.symbolKnownUseEmpty(module))
    step.erase();
  return success();
}
