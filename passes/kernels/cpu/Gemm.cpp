#include "passes/kernels/cpu/GemmEmitter.h"

#include "passes/kernels/cpu/RegionVectorizer.h"
#include "passes/kernels/cpu/TileHeights.h"
#include "passes/kernels/shared/KernelFunction.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kLineBytes = 64;
// Where one block of rows uses each panel once, the panels are a stream that is
// bound by memory: so far ahead of it lines are asked for.
constexpr int64_t kStreamAhead = 4096;
// An epilogue up to this cost is applied to the sums in their registers, once
// for every tile height; a dearer one would be copied too often, and is one
// loop over the tile instead. One erf counts as kMathCost.
constexpr int64_t kDirectCost = 8;
constexpr int64_t kMathCost = 20;

int64_t getCost(Block *block) {
  int64_t cost = 0;
  if (block)
    for (Operation &op : block->without_terminator())
      cost += isa_and_nonnull<math::MathDialect>(op.getDialect()) ? kMathCost : 1;
  return cost;
}

/// Whether the sums go from their registers through the epilogue to C, at every
/// tile height. Where all sizes are open, those would be 108 masked stores with
/// addresses of their own, a third of what such a product takes to compile; the
/// way through memory costs 1 % of a run at K = 512, 3 % at K = 64 (Zen 5).
bool goesDirect(const GemmSpec &spec) {
  bool isOpen = ShapedType::isDynamic(spec.m) && ShapedType::isDynamic(spec.n) && ShapedType::isDynamic(spec.k);
  return !isOpen && getCost(spec.epilogue) <= kDirectCost;
}

} // namespace

//===----------------------------------------------------------------------===//
// GemmEmitter
//===----------------------------------------------------------------------===//

GemmEmitter::GemmEmitter(OpBuilder &builder, Location loc, const GemmSpec &spec)
    : b(builder), loc(loc), spec(spec), width(spec.panelWidth()), rowElements(width * spec.rowsPerStep() * spec.parts),
      panelType(elementType(spec.storage, builder.getContext())), elementBytes(panelType.getIntOrFloatBitWidth() / 8),
      vectorType(VectorType::get({spec.lanes}, builder.getF32Type())), isDirect(goesDirect(spec)) {}

/// A loop that LLVM must not unroll: the micro-kernel's order of loads
/// is what it is for the sake of the first-level cache.
scf::ForOp GemmEmitter::createLoop(Value begin, Value end, ValueRange inits) {
  auto loop = scf::ForOp::create(b, loc, begin, end, constant(1), inits);
  auto yes = BoolAttr::get(b.getContext(), true);
  auto unroll = LLVM::LoopUnrollAttr::get(b.getContext(), yes, {}, {}, {}, {}, {}, {});
  loop->setAttr("llvm.loop_annotation", LLVM::LoopAnnotationAttr::get(b.getContext(), {}, {}, {}, unroll, {}, {}, {},
                                                                      {}, {}, {}, {}, {}, {}, {}, {}));
  return loop;
}

/// The function without a body; its arguments get their names.
func::FuncOp GemmEmitter::createFunction() {
  Type f32 = b.getF32Type();
  auto memref = [&](ArrayRef<int64_t> shape) { return MemRefType::get(shape, f32); };
  Type rowType = spec.hasNarrowRows ? panelType : f32;
  SmallVector<Type> types = {MemRefType::get({spec.m, spec.k}, rowType), MemRefType::get(spec.panelShape(), panelType)};
  bool hasScales = spec.storage == PanelStorage::I8;
  if (hasScales)
    types.push_back(memref(spec.scaleShape()));
  types.append(spec.parts - 1, types.front());
  for (EpilogueOperand kind : spec.operands)
    switch (kind) {
    case EpilogueOperand::Scalar:
      types.push_back(memref({}));
      break;
    case EpilogueOperand::RowVector:
      types.push_back(memref({spec.n}));
      break;
    case EpilogueOperand::Column:
      types.push_back(memref({spec.m}));
      break;
    case EpilogueOperand::Full:
      types.push_back(memref({spec.m, spec.n}));
      break;
    }
  if (spec.prefetchesNext)
    types.push_back(MemRefType::get(SmallVector<int64_t>(3, ShapedType::kDynamic), panelType));
  if (spec.hasHalfTiles)
    types.push_back(MemRefType::get(spec.rowPartShape(), b.getBF16Type()));
  types.push_back(MemRefType::get({spec.m, spec.n}, spec.hasNarrowResult ? b.getBF16Type() : f32));
  auto function = func::FuncOp::create(b, loc, spec.symbol(), b.getFunctionType(types, {}));
  function.setPrivate();
  function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());
  function->setAttr(AttnDialect::kProductAttr, b.getUnitAttr());

  function.addEntryBlock();
  a = function.getArgument(0);
  panels = function.getArgument(1);
  if (hasScales)
    scales = function.getArgument(2);
  auto others = function.getArguments().drop_front(hasScales ? 3 : 2).drop_back();
  if (spec.hasHalfTiles) {
    partedRows = others.back();
    others = others.drop_back();
  }
  if (spec.prefetchesNext) {
    nextOperand = others.back();
    others = others.drop_back();
  }
  rowParts.push_back(a);
  llvm::append_range(rowParts, others.take_front(spec.parts - 1));
  llvm::append_range(operands, others.drop_front(spec.parts - 1));
  c = function.getArguments().back();
  return function;
}

Value GemmEmitter::flatten(Value cube) {
  Value flat = memref::CollapseShapeOp::create(b, loc, cube, ArrayRef<ReassociationIndices>{{0, 1, 2}});
  auto type = MemRefType::get({ShapedType::kDynamic}, panelType);
  return flat.getType() == type ? flat : memref::CastOp::create(b, loc, type, flat).getResult();
}

Value GemmEmitter::atLeastOne(Value x) { return arith::MaxUIOp::create(b, loc, x, constant(1)); }

/// Writes the sizes of a product and of its tiles; the number of tasks.
Value GemmEmitter::emitSizes() {
  zero = constant(0);
  auto sizeOf = [&](int64_t size, Value buffer, int64_t dim) -> Value {
    return ShapedType::isDynamic(size) ? memref::DimOp::create(b, loc, buffer, dim).getResult() : constant(size);
  };
  kSize = sizeOf(spec.k, a, 1);
  steps = spec.rowsPerStep() == 1 ? kSize : constant(llvm::divideCeil(spec.k, 2));
  Value panelSteps = spec.rowsPerStep() == 1 ? kSize : constant(spec.panelShape()[1]);
  panelElements = mul(panelSteps, constant(rowElements));
  columns = sizeOf(spec.n, c, 1);
  numPanels = ShapedType::isDynamic(spec.n) ? arith::CeilDivUIOp::create(b, loc, columns, constant(width)).getResult()
                                            : constant(spec.numPanels());
  rows = memref::DimOp::create(b, loc, a, 0);
  totalPanels = numPanels;
  Value batches;
  if (spec.isBatched) {
    totalPanels = memref::DimOp::create(b, loc, panels, 0);
    batches = arith::DivUIOp::create(b, loc, totalPanels, atLeastOne(numPanels));
    rows = arith::DivUIOp::create(b, loc, rows, atLeastOne(batches));
  }
  // M rows in ceil(M / tileRows) blocks whose heights differ by one at most: the
  // first `extra` have height + 1 rows. M = 50 in tiles of 8 is 8 + 6 * 7.
  blocks = arith::CeilDivUIOp::create(b, loc, rows, constant(spec.tileRows));
  Value divisor = atLeastOne(blocks);
  height = arith::DivUIOp::create(b, loc, rows, divisor);
  extra = arith::RemUIOp::create(b, loc, rows, divisor);
  // Elements that the prefetch pointer moves a step, so that the blocks of one
  // panel together fetch the next one.
  prefetchStep = arith::CeilDivUIOp::create(b, loc, constant(rowElements), divisor);
  Value tasks = mul(numPanels, blocks);
  return batches ? mul(tasks, batches) : tasks;
}

/// Writes which part of the next product's panels each of `tasks` asks for.
void GemmEmitter::emitPieces(Value tasks) {
  flatNext = flatten(nextOperand);
  nextPanels = memref::DimOp::create(b, loc, nextOperand, 0);
  nextElements = mul(memref::DimOp::create(b, loc, nextOperand, 1), memref::DimOp::create(b, loc, nextOperand, 2));
  // As the runtime cuts parallel loops.
  pieces = atLeastOne(arith::MinUIOp::create(b, loc, tasks, NumThreadsOp::create(b, loc, b.getIndexType())));
  pieceSize = arith::DivUIOp::create(b, loc, tasks, pieces);
  longPieces = arith::RemUIOp::create(b, loc, tasks, pieces);
}

func::FuncOp GemmEmitter::emit() {
  func::FuncOp function = createFunction();
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&function.front());
  prefetched = flatPanels = flatten(panels);
  Value tasks = emitSizes();
  if (spec.hasTiles) {
    Value hasTiles = HasTilesOp::create(b, loc, b.getI1Type());
    emitTileTasks(hasTiles);
    tasks = arith::SelectOp::create(b, loc, hasTiles, zero, tasks);
  }
  Value usesTiles;
  if (spec.hasHalfTiles) {
    Value areMany = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge, rows, constant(GemmSpec::kFewestTileRows));
    usesTiles = arith::AndIOp::create(b, loc, areMany, HasTilesOp::create(b, loc, b.getI1Type()));
    emitHalfTiles(usesTiles);
  }
  if (spec.sharesPanels)
    tasks = arith::SelectOp::create(b, loc, emitSharedTasks(usesTiles), zero, tasks);
  if (!spec.sharesPanels || ShapedType::isDynamic(spec.m)) {
    if (nextOperand)
      emitPieces(tasks);
    auto parallel = scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{tasks}, ValueRange{constant(1)});
    b.setInsertionPointToStart(parallel.getBody());
    emitTask(parallel.getInductionVars()[0]);
    b.setInsertionPointToEnd(&function.front());
  }
  func::ReturnOp::create(b, loc);
  return function;
}

void GemmEmitter::emitTask(Value task) {
  if (!isDirect)
    scratch = memref::AllocaOp::create(b, loc, MemRefType::get({spec.tileRows, width}, b.getF32Type()), ValueRange(),
                                       b.getI64IntegerAttr(64));
  Value group = blocks, firstBlock, batch, number = task;
  if (spec.isBatched) {
    Value perBatch = mul(numPanels, blocks);
    batch = arith::DivUIOp::create(b, loc, task, perBatch);
    task = arith::RemUIOp::create(b, loc, task, perBatch);
  }
  if (spec.chunkBlocks) {
    // All chunks are whole but the last.
    Value chunkSize = constant(spec.chunkBlocks), perChunk = mul(numPanels, chunkSize);
    Value chunk = arith::DivUIOp::create(b, loc, task, perChunk);
    task = arith::RemUIOp::create(b, loc, task, perChunk);
    firstBlock = mul(chunk, chunkSize);
    group = arith::MinUIOp::create(b, loc, chunkSize, arith::SubIOp::create(b, loc, blocks, firstBlock));
    prefetchStep = arith::CeilDivUIOp::create(b, loc, constant(rowElements), group);
  }
  panel = panelAt = arith::DivUIOp::create(b, loc, task, group);
  Value inGroup = arith::RemUIOp::create(b, loc, task, group), block = inGroup;
  if (firstBlock)
    block = add(block, firstBlock);
  row = add(mul(block, height), arith::MinUIOp::create(b, loc, block, extra));
  if (batch) {
    row = add(row, mul(batch, rows));
    panelAt = add(panel, mul(batch, numPanels));
  }
  firstColumn = mul(panel, constant(width));
  Value isTaller = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, block, extra);
  tileHeight = add(height, arith::IndexCastUIOp::create(b, loc, b.getIndexType(), isTaller));
  // The last panel has none after it and touches itself instead.
  Value last = arith::SubIOp::create(b, loc, totalPanels, constant(1));
  Value next = arith::MinUIOp::create(b, loc, add(panelAt, constant(1)), last);
  prefetchAt = add(mul(next, panelElements), mul(inGroup, mul(prefetchStep, steps)));
  Value isStream = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, blocks, constant(1));
  Value ahead = add(mul(panelAt, panelElements), constant(kStreamAhead / elementBytes));
  prefetchAt = arith::SelectOp::create(b, loc, isStream, ahead, prefetchAt);

  if (spec.prefetchesNext)
    emitNext(number, group, inGroup, isStream);

  SmallVector<int64_t> heights = tileHeights(spec.m, spec.tileRows);
  if (heights.empty())
    return;
  atHeight(b, loc, tileHeight, heights, [&](int64_t height) { emitTile(height); });
  if (!isDirect)
    emitStaged();
}

/// In the last panel of a thread, what follows in B is another's: its own first
/// panel of the next product is prefetched instead. Cold weights then cost next
/// to nothing (M = 32, two threads of Zen 5, prototype: 445 -> 495 GF).
void GemmEmitter::emitNext(Value task, Value group, Value inGroup, Value isStream) {
  Value one = constant(1), longSize = add(pieceSize, one), inLong = mul(longPieces, longSize);
  auto below = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, y);
  };
  auto select = [&](Value condition, Value x, Value y) -> Value {
    return arith::SelectOp::create(b, loc, condition, x, y);
  };
  Value isLong = below(task, inLong);
  Value offset = arith::SubIOp::create(b, loc, task, select(isLong, zero, inLong));
  Value piece = add(select(isLong, zero, longPieces),
                    arith::DivUIOp::create(b, loc, offset, select(isLong, longSize, pieceSize)));
  Value end = add(mul(add(piece, one), pieceSize), arith::MinUIOp::create(b, loc, add(piece, one), longPieces));
  Value last = arith::SubIOp::create(b, loc, end, one);
  // The rest of the piece is in this panel: the last task is no further than the panel's last.
  Value left = arith::SubIOp::create(b, loc, last, task);
  Value isLast = below(add(left, inGroup), group);
  Value panels = arith::DivUIOp::create(b, loc, mul(piece, nextPanels), pieces);
  Value at = add(mul(panels, nextElements), mul(inGroup, mul(prefetchStep, steps)));
  Value no = arith::ConstantOp::create(b, loc, b.getBoolAttr(false));
  isLast = select(isStream, no, isLast);
  prefetched = select(isLast, flatNext, flatPanels);
  prefetchAt = select(isLast, at, prefetchAt);
}

void GemmEmitter::emitTile(int64_t height) {
  SmallVector<Value> sums = emitSums(height);
  if (isDirect)
    return emitDirect(height, sums);
  for (int64_t r = 0; r < height; ++r)
    for (int64_t v = 0; v < spec.tileVectors; ++v)
      vector::StoreOp::create(b, loc, sums[r * spec.tileVectors + v], scratch,
                              ValueRange{constant(r), constant(v * spec.lanes)});
}

/// The sums of `height` rows and one panel: height * tileVectors vectors.
SmallVector<Value> GemmEmitter::emitSums(int64_t height) {
  int64_t vectors = spec.tileVectors;
  Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(vectorType));
  SmallVector<Value> sums(height * vectors, none);
  sums.push_back(prefetchAt);
  bool hasScales = spec.storage == PanelStorage::I8;
  if (hasScales && spec.group < spec.k) {
    scf::ForOp groups = createLoop(zero, constant(spec.scaleShape()[1]), sums);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(groups.getBody());
    Value begin = mul(groups.getInductionVar(), constant(spec.group));
    Value end = arith::MinUIOp::create(b, loc, add(begin, constant(spec.group)), kSize);
    scf::YieldOp::create(
        b, loc, loopSteps(height, begin, end, loadScale(groups.getInductionVar()), groups.getRegionIterArgs()));
    sums.assign(groups.result_begin(), groups.result_end());
  } else {
    bool isOdd = rowsPerStep() == 2 && spec.k % 2;
    Value whole = isOdd ? constant(spec.k / 2) : wide ? kSize : steps;
    sums = loopSteps(height, zero, whole, {}, sums);
    if (isOdd)
      emitStep(height, whole, 1, {}, sums);
  }
  sums.pop_back();
  if (hasScales && spec.group >= spec.k) // one scale a column: after the sum
    for (auto [v, scale] : llvm::enumerate(loadScale(zero)))
      for (int64_t r = 0; r < height; ++r)
        sums[r * vectors + v] = arith::MulFOp::create(b, loc, sums[r * vectors + v], scale);
  return sums;
}

SmallVector<Value> GemmEmitter::loopSteps(int64_t height, Value begin, Value end, ArrayRef<Value> scale,
                                          ValueRange inits) {
  scf::ForOp loop = createLoop(begin, end, inits);
  markLong(b);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> sums(loop.getRegionIterArgs());
  emitStep(height, loop.getInductionVar(), rowsPerStep(), scale, sums);
  scf::YieldOp::create(b, loc, sums);
  return SmallVector<Value>(loop.getResults());
}

void GemmEmitter::emitStep(int64_t height, Value step, int64_t numRows, ArrayRef<Value> scale,
                           SmallVectorImpl<Value> &sums) {
  SmallVector<SmallVector<Value>> loaded;
  for (int64_t i = 0; !spec.hasNarrowRows && i < numRows; ++i)
    loaded.push_back(loadPanelRow(step, i, scale));
  // With one or two blocks a step moves by several lines, and each of them must
  // be asked for (M = 8, cold: 85 -> 115 GF). With more blocks the same lines are
  // asked for again, which costs nothing that can be measured.
  Value &at = sums.back();
  int64_t stepBytes = (wide ? width : rowElements) * elementBytes;
  for (int64_t p = 0; p < stepBytes; p += kLineBytes)
    memref::PrefetchOp::create(b, loc, prefetched, ValueRange{add(at, constant(p / elementBytes))}, /*isWrite=*/false,
                               /*localityHint=*/2, /*isDataCache=*/true);
  at = add(at, prefetchStep);
  if (spec.hasNarrowRows)
    return emitPairs(height, step, sums);
  for (int64_t i = 0; i < numRows; ++i) {
    Value k = rowsPerStep() == 1 ? step : add(mul(step, constant(2)), constant(i));
    for (int64_t r = 0; r < height; ++r) {
      Value scalar = memref::LoadOp::create(b, loc, a, ValueRange{add(row, constant(r)), k});
      Value splat = vector::BroadcastOp::create(b, loc, vectorType, scalar);
      for (int64_t v = 0; v < spec.tileVectors; ++v) {
        Value &sum = sums[r * spec.tileVectors + v];
        if (spec.hasFma) {
          sum = vector::FMAOp::create(b, loc, splat, loaded[i][v], sum);
        } else {
          auto contract = arith::FastMathFlagsAttr::get(b.getContext(), arith::FastMathFlags::contract);
          Value product = arith::MulFOp::create(b, loc, splat, loaded[i][v], contract);
          sum = arith::AddFOp::create(b, loc, sum, product, contract);
        }
      }
    }
  }
}

/// Adds the products of two rows of B, and two elements of each row of A; of
/// factors in parts the smallest first.
void GemmEmitter::emitPairs(int64_t height, Value step, SmallVectorImpl<Value> &sums) {
  auto pairs = VectorType::get({2 * spec.lanes}, panelType), words = VectorType::get({spec.lanes}, b.getI32Type());
  auto pair = VectorType::get({2}, panelType), word = VectorType::get({1}, b.getI32Type());
  SmallVector<Value> loaded;
  for (int64_t v = 0; v < spec.tileVectors * spec.parts; ++v)
    loaded.push_back(
        vector::LoadOp::create(b, loc, pairs, panels, ValueRange{panelAt, step, constant(2 * v * spec.lanes)}));
  Value k = mul(step, constant(2));
  for (int64_t r = 0; r < height; ++r) {
    SmallVector<Value> splats;
    for (Value part : rowParts) {
      Value two = vector::LoadOp::create(b, loc, pair, part, ValueRange{add(row, constant(r)), k});
      Value splat = vector::BroadcastOp::create(b, loc, words, vector::BitCastOp::create(b, loc, word, two));
      splats.push_back(vector::BitCastOp::create(b, loc, pairs, splat));
    }
    for (int64_t order = spec.parts - 1; order >= 0; --order)
      for (int64_t i = order; i >= 0; --i)
        for (int64_t v = 0; v < spec.tileVectors; ++v) {
          Value &sum = sums[r * spec.tileVectors + v], other = loaded[(order - i) * spec.tileVectors + v];
          sum = LLVM::CallIntrinsicOp::create(b, loc, vectorType, b.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512"),
                                              ValueRange{sum, splats[i], other})
                    .getResult(0);
        }
  }
}

/// Row number `row` of a step as f32, times `scale` if there is one.
SmallVector<Value> GemmEmitter::loadPanelRow(Value step, int64_t row, ArrayRef<Value> scale) {
  auto wordType = VectorType::get({spec.lanes}, b.getI32Type());
  auto words = [&](int64_t value) {
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(wordType, APInt(32, value)));
  };
  int64_t perLane = spec.rowsPerStep();
  auto stored = VectorType::get({spec.lanes * perLane}, panelType);
  SmallVector<Value> vectors;
  for (int64_t v = 0; wide && v < spec.tileVectors; ++v)
    vectors.push_back(vector::LoadOp::create(b, loc, vectorType, wide, ValueRange{step, constant(v * spec.lanes)}));
  if (wide)
    return vectors;
  for (int64_t v = 0; v < spec.tileVectors; ++v) {
    Value x =
        vector::LoadOp::create(b, loc, stored, panels, ValueRange{panelAt, step, constant(v * spec.lanes * perLane)});
    switch (spec.storage) {
    case PanelStorage::F32:
      break;
    case PanelStorage::F16: // one instruction, with the load
      x = arith::ExtFOp::create(b, loc, vectorType, x);
      break;
    case PanelStorage::BF16: // two rows in a word, the first one low
      x = vector::BitCastOp::create(b, loc, wordType, x);
      x = row == 0 ? arith::ShLIOp::create(b, loc, x, words(16)).getResult()
                   : arith::AndIOp::create(b, loc, x, words(0xffff0000)).getResult();
      x = arith::BitcastOp::create(b, loc, vectorType, x);
      break;
    case PanelStorage::I8:
      x = arith::SIToFPOp::create(b, loc, vectorType, arith::ExtSIOp::create(b, loc, wordType, x));
      break;
    }
    if (!scale.empty())
      x = arith::MulFOp::create(b, loc, x, scale[v]);
    vectors.push_back(x);
  }
  return vectors;
}

SmallVector<Value> GemmEmitter::loadScale(Value group) {
  SmallVector<Value> vectors;
  for (int64_t v = 0; v < spec.tileVectors; ++v)
    vectors.push_back(
        vector::LoadOp::create(b, loc, vectorType, scales, ValueRange{panelAt, group, constant(v * spec.lanes)}));
  return vectors;
}

FailureOr<func::FuncOp> buildGemm(OpBuilder &builder, Location loc, const GemmSpec &spec) {
  std::string reason;
  if (!canBuildGemm(spec, &reason))
    return emitError(loc, "cannot build a GEMM kernel: ") << reason;
  return GemmEmitter(builder, loc, spec).emit();
}

} // namespace attn
