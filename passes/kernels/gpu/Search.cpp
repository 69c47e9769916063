#include "passes/kernels/gpu/Search.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/kernels/gpu/SearchRows.h"
#include "llvm/ADT/SetVector.h"
#include <limits>

using namespace mlir;
using namespace attn;

using Values = LaneBuilder::Values;

//===----------------------------------------------------------------------===//
// A row of scores
//===----------------------------------------------------------------------===//

Value ScoreRow::element(Value n) { return memref::LoadOp::create(k.b, k.loc, scores, ValueRange{k.block, n}); }

Value ScoreRow::logSum(Value logSums) {
  auto greater = [&](Value x, Value y) { return k.greater(x, y); };
  Value least = k.scalar(-std::numeric_limits<float>::infinity());
  Value top = k.loop(k.thread, size, kThreads, least,
                     [&](Value n, ValueRange best) { return Values{k.greater(best[0], element(n))}; })[0];
  top = k.acrossBlock(top, kThreads, shared, greater);
  Value sum = k.loop(k.thread, size, kThreads, k.scalar(0), [&](Value n, ValueRange sums) {
    return Values{k.addf(sums[0], math::ExpOp::create(k.b, k.loc, k.subf(element(n), top)))};
  })[0];
  sum = k.acrossBlock(sum, kThreads, shared, [&](Value x, Value y) { return k.addf(x, y); });
  k.branch(arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, k.thread, k.index(0)), [&] {
    Value logSum = k.addf(top, math::LogOp::create(k.b, k.loc, sum));
    memref::StoreOp::create(k.b, k.loc, logSum, logSums, k.block);
  });
  return top;
}

Value ScoreRow::isEnd(Value token) {
  Value ended = arith::ConstantIntOp::create(k.b, k.loc, 0, 1);
  for (int64_t id : spec.eos)
    if (id >= 0 && id < std::numeric_limits<int32_t>::max()) {
      Value end = arith::ConstantIntOp::create(k.b, k.loc, id, 32);
      ended = k.either(ended, arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, token, end));
    }
  return ended;
}

// Candidates come one after the other: the best of those that come after the
// last one in order, by value and then by place. A sweep over the row for each.
func::FuncOp attn::buildGpuSearchRows(OpBuilder &builder, Location loc, StringRef symbol,
                                      const SearchKernelSpec &spec) {
  constexpr int64_t kThreads = ScoreRow::kThreads, kWarp = 32, kDynamic = ShapedType::kDynamic;
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  OpBuilder::InsertionGuard guard(builder);
  BlockBuilder k(builder, loc);
  Type f32 = builder.getF32Type(), i64 = builder.getI64Type(), i32 = builder.getI32Type(), bit = builder.getI1Type();
  func::FuncOp function = k.function(
      symbol, {MemRefType::get({kDynamic, kDynamic}, f32), bit, MemRefType::get({kDynamic, spec.candidates()}, f32),
               MemRefType::get({kDynamic, spec.candidates()}, i64), MemRefType::get({kDynamic}, f32)});
  Value scores = function.getArgument(0), noEnd = function.getArgument(1), values = function.getArgument(2),
        tokens = function.getArgument(3);
  Value rows = builder.createOrFold<memref::DimOp>(loc, scores, 0);
  Value size = builder.createOrFold<memref::DimOp>(loc, scores, 1);
  Value shared = k.launch(rows, kThreads, {kThreads / kWarp})[0];

  using Predicate = arith::CmpIPredicate;
  auto number = [&](int32_t value) -> Value { return arith::ConstantIntOp::create(builder, loc, value, 32); };
  auto compare = [&](Predicate predicate, Value x, Value y) -> Value {
    return arith::CmpIOp::create(builder, loc, predicate, x, y);
  };
  auto floats = [&](arith::CmpFPredicate predicate, Value x, Value y) -> Value {
    return arith::CmpFOp::create(builder, loc, predicate, x, y);
  };
  ScoreRow row(k, spec, scores, size, shared);
  auto greater = [&](Value x, Value y) { return k.greater(x, y); };
  Value least = k.scalar(-kInfinity), isFirst = compare(Predicate::eq, k.thread, k.index(0));

  row.logSum(function.getArgument(4));
  Value noneYet = number(-1), nobody = number(kNone);
  k.loop(k.index(0), k.index(spec.candidates()), 1, {k.scalar(kInfinity), noneYet}, [&](Value c, ValueRange last) {
    Values mine = k.loop(k.thread, size, kThreads, {least, nobody}, [&](Value n, ValueRange best) {
      Value x = row.element(n), token = arith::IndexCastOp::create(builder, loc, i32, n);
      Value ties = k.both(floats(arith::CmpFPredicate::OEQ, x, last[0]), compare(Predicate::sgt, token, last[1]));
      Value follows = k.either(floats(arith::CmpFPredicate::OLT, x, last[0]), ties);
      Value banned = k.both(row.isEnd(token), noEnd);
      Value better = k.both(follows, floats(arith::CmpFPredicate::OGT, x, best[0]));
      Value takes = k.both(better, compare(Predicate::eq, banned, arith::ConstantIntOp::create(builder, loc, 0, 1)));
      return Values{k.select(takes, x, best[0]), k.select(takes, token, best[1])};
    });
    Value value = k.acrossBlock(mine[0], kThreads, shared, greater);
    Value place = k.select(floats(arith::CmpFPredicate::OEQ, mine[0], value), mine[1], nobody);
    place = k.acrossBlock(place, kThreads, shared,
                          [&](Value x, Value y) -> Value { return arith::MinSIOp::create(builder, loc, x, y); });
    k.branch(isFirst, [&] {
      Value token = k.select(compare(Predicate::eq, place, nobody), number(0), place);
      token = arith::ExtSIOp::create(builder, loc, i64, token);
      memref::StoreOp::create(builder, loc, value, values, ValueRange{k.block, c});
      memref::StoreOp::create(builder, loc, token, tokens, ValueRange{k.block, c});
    });
    return Values{value, place};
  });
  return function;
}

//===----------------------------------------------------------------------===//
// Kernels of one thread
//===----------------------------------------------------------------------===//

/// The loop at the top of a kernel, of which nothing but memory is left.
static Operation *topLoop(Block &block) {
  for (Operation &op : block)
    if (isa<scf::ParallelOp, scf::ForOp>(op) && op.getNumResults() == 0)
      return &op;
  return nullptr;
}

void attn::launchSearchKernel(func::FuncOp kernel, int64_t threads, bool perBlock) {
  Block &block = kernel.getBody().front();
  Operation *loop = topLoop(block), *last = block.getTerminator();
  Location loc = kernel.getLoc();
  OpBuilder b(loop ? loop : last);
  auto index = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
  Value one = index(1), count = one;
  if (auto parallel = dyn_cast_or_null<scf::ParallelOp>(loop))
    count = parallel.getUpperBound()[0];
  else if (loop)
    count = cast<scf::ForOp>(loop).getUpperBound();
  SmallVector<memref::AllocaOp> arrays(block.getOps<memref::AllocaOp>());
  assert((arrays.empty() || threads == 1) && "threads of a block have one array");
  SmallVector<Type> shared;
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  for (memref::AllocaOp array : arrays)
    shared.push_back(MemRefType::get(array.getType().getShape(), array.getType().getElementType(),
                                     MemRefLayoutAttrInterface(), space));
  bool shares = loop && !perBlock;
  Value blocks = shares ? arith::CeilDivUIOp::create(b, loc, count, index(threads)).getResult() : count;
  auto launch = gpu::LaunchOp::create(b, loc, blocks, one, one, loop ? index(threads) : one, one, one,
                                      /*dynamicSharedMemorySize=*/Value(), /*asyncTokenType=*/Type(),
                                      /*asyncDependencies=*/ValueRange(), shared);
  for (auto [array, argument] : llvm::zip_equal(arrays, launch.getWorkgroupAttributions())) {
    array.replaceAllUsesWith(argument);
    array.erase();
  }
  Block &body = launch.getBody().front();
  b.setInsertionPointToStart(&body);
  auto end = gpu::TerminatorOp::create(b, loc);
  if (!loop) {
    // Constants and sizes stay with the host, which knows them.
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (&op == launch.getOperation())
        break;
      if (!op.hasTrait<OpTrait::ConstantLike>() && !isa<memref::DimOp>(op))
        op.moveBefore(end);
    }
  } else {
    b.setInsertionPoint(end);
    Value number = launch.getBlockIds().x;
    Operation *before = end;
    if (shares) {
      Value first = arith::MulIOp::create(b, loc, number, index(threads));
      number = arith::AddIOp::create(b, loc, first, launch.getThreadIds().x);
      Value isInside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, number, count);
      auto guard = scf::IfOp::create(b, loc, isInside);
      before = guard.thenBlock()->getTerminator();
    }
    Block &iteration = loop->getRegion(0).front();
    iteration.getArgument(0).replaceAllUsesWith(number);
    for (Operation &op : llvm::make_early_inc_range(iteration.without_terminator()))
      op.moveBefore(before);
    loop->erase();
  }

  // Addresses are no matter of the host, nor what it compares.
  SetVector<Value> above;
  SmallVector<Value> pending;
  getUsedValuesDefinedAbove(launch.getBody(), above);
  pending.assign(above.begin(), above.end());
  b.setInsertionPointToStart(&body);
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *definition = value.getDefiningOp();
    if (definition && (value.getType().isInteger(1) || isa<memref::ExtractAlignedPointerAsIndexOp>(definition))) {
      Operation *copy = b.clone(*definition);
      b.setInsertionPoint(copy); // what it uses comes before it
      replaceAllUsesInRegionWith(value, copy->getResult(0), launch.getBody());
      llvm::append_range(pending, copy->getOperands());
    }
  }
}
