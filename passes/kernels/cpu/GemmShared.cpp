// Panels in 16 bits that several blocks of rows share: written out as f32 once for all of them. To widen them in
// registers for each block takes the ports that multiply: a quarter more for f16 on Intel, whose conversion is two
// instructions.
#include "passes/kernels/cpu/GemmEmitter.h"
#include "passes/kernels/cpu/TileHeights.h"
#include "passes/kernels/shared/KernelFunction.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;

namespace attn {

namespace {

/// Blocks that share a panel, at most, and tasks that a thread should get: fewer share one where there are few panels.
constexpr int64_t kMostBlocks = 16, kTasksOfThread = 4;

} // namespace

Value GemmEmitter::emitSharedTasks(Value usesTiles) {
  Value one = constant(1), tiles = mul(numPanels, blocks);
  Value threads = mul(NumThreadsOp::create(b, loc, b.getIndexType()), constant(kTasksOfThread));
  Value most = arith::MinUIOp::create(b, loc, atLeastOne(arith::CeilDivUIOp::create(b, loc, tiles, threads)),
                                      constant(kMostBlocks));
  Value groups = arith::CeilDivUIOp::create(b, loc, blocks, most);
  most = arith::CeilDivUIOp::create(b, loc, blocks, atLeastOne(groups)); // of one size
  Value areSeveral = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, blocks, one);
  groups = arith::CeilDivUIOp::create(b, loc, blocks, atLeastOne(most));
  Value tasks = arith::SelectOp::create(b, loc, areSeveral, mul(numPanels, groups), zero);
  if (usesTiles)
    tasks = arith::SelectOp::create(b, loc, usesTiles, zero, tasks);
  GemmEmitter shared(*this);
  if (nextOperand)
    shared.emitPieces(tasks);
  auto parallel = scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{tasks}, ValueRange{one});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(parallel.getBody());
  shared.emitSharedTask(parallel.getInductionVars()[0], most);
  return areSeveral;
}

/// A task is one panel and `most` blocks, or what is left of them.
void GemmEmitter::emitSharedTask(Value task, Value most) {
  auto scratchOf = [&](int64_t count) -> Value {
    return memref::AllocaOp::create(b, loc, MemRefType::get({count, width}, b.getF32Type()), ValueRange(),
                                    b.getI64IntegerAttr(64));
  };
  if (!isDirect)
    scratch = scratchOf(spec.tileRows);
  Value one = constant(1), no = arith::ConstantOp::create(b, loc, b.getBoolAttr(false));
  Value first = mul(arith::DivUIOp::create(b, loc, task, numPanels), most);
  Value count = arith::MinUIOp::create(b, loc, most, arith::SubIOp::create(b, loc, blocks, first));
  panel = panelAt = arith::RemUIOp::create(b, loc, task, numPanels);
  firstColumn = mul(panel, constant(width));
  // The blocks of a task together ask for the next panel.
  prefetchStep = arith::CeilDivUIOp::create(b, loc, constant(width), count);
  Value last = arith::SubIOp::create(b, loc, totalPanels, one);
  prefetchAt = mul(arith::MinUIOp::create(b, loc, add(panelAt, one), last), panelElements);
  if (spec.prefetchesNext)
    emitNext(task, /*group=*/one, /*inGroup=*/zero, /*isStream=*/no);
  Value buffer = scratchOf(llvm::alignTo(spec.k, spec.rowsPerStep()));
  widenPanel(buffer);
  wide = buffer;

  scf::ForOp loop = createLoop(zero, count, ValueRange());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value inTask = loop.getInductionVar(), block = add(first, inTask);
  row = add(mul(block, height), arith::MinUIOp::create(b, loc, block, extra));
  Value isTaller = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, block, extra);
  tileHeight = add(height, arith::IndexCastUIOp::create(b, loc, b.getIndexType(), isTaller));
  prefetchAt = add(prefetchAt, mul(inTask, mul(prefetchStep, kSize)));
  // Of several blocks none is lower than half of one.
  SmallVector<int64_t> heights = tileHeights(spec.m, spec.tileRows);
  if (ShapedType::isDynamic(spec.m))
    heights = llvm::to_vector(llvm::seq_inclusive<int64_t>((spec.tileRows + 1) / 2, spec.tileRows));
  atHeight(b, loc, tileHeight, heights, [&](int64_t height) { emitTile(height); });
  if (!isDirect)
    emitStaged();
}

/// Writes the panel at hand to `buffer` as f32.
void GemmEmitter::widenPanel(Value buffer) {
  scf::ForOp loop = createLoop(zero, steps, ValueRange());
  markLong(b);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value step = loop.getInductionVar();
  for (int64_t i = 0; i < spec.rowsPerStep(); ++i) {
    Value at = add(mul(step, constant(spec.rowsPerStep())), constant(i));
    for (auto [v, columns] : llvm::enumerate(loadPanelRow(step, i, {})))
      vector::StoreOp::create(b, loc, columns, buffer, ValueRange{at, constant(v * spec.lanes)});
  }
}

} // namespace attn
