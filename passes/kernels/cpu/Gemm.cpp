#include "passes/kernels/cpu/GemmEmitter.h"
#include "passes/kernels/cpu/HalfParts.h"

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kLineBytes = 64;
// Where one block of rows uses each panel once, the panels are a stream that is
// bound by memory: so far ahead of it lines are asked for.
constexpr int64_t kStreamAhead = 4096;
// A dearer epilogue would be copied too often, once for every tile height.
constexpr int64_t kDirectCost = 8;

/// Whether the sums go from their registers through the epilogue to C, at every tile height. Where all sizes are open,
/// those would be 108 masked stores with addresses of their own, a third of what such a product takes to compile; the
/// way through memory costs 1 % of a run at K = 512, 3 % at K = 64 (Zen 5).
bool goesDirect(const GemmSpec &spec) {
  bool isOpen = ShapedType::isDynamic(spec.m) && ShapedType::isDynamic(spec.n) && ShapedType::isDynamic(spec.k);
  return !isOpen && getCost(spec.epilogue) <= kDirectCost;
}

} // namespace

GemmEmitter::GemmEmitter(KernelFunction &f, const GemmSpec &spec)
    : PanelTasks(f.k, spec, spec.isBatched), spec(spec), width(spec.panelWidth()),
      rowElements(width * spec.rowsPerStep() * spec.parts), vectors(spec.usedVectors(spec.n)), f32(k.b.getF32Type()),
      panelType(elementType(spec.storage, k.b.getContext())), elementBytes(panelType.getIntOrFloatBitWidth() / 8),
      isDirect(goesDirect(spec)), result(k, spec, spec.n, width, spec.lanes) {
  takeArguments(f);
}

void GemmEmitter::takeArguments(KernelFunction &f) {
  a = spec.gathersRows ? f.buffer({spec.m}, k.b.getI64Type())
                       : f.buffer({spec.m, spec.k}, spec.hasNarrowRows ? panelType : f32);
  panels = f.buffer(spec.panelShape(), panelType);
  if (spec.storage == PanelStorage::I8)
    scales = f.buffer(spec.scaleShape(), f32);
  rowParts.push_back(a);
  for (int64_t part = 1; part < spec.parts; ++part)
    rowParts.push_back(f.buffer(a.memref()));
  if (spec.gathersRows) {
    depthAt = f.buffer({spec.k}, k.b.getI64Type());
    source = f.buffer({ShapedType::kDynamic}, f32);
  }
  result.takeOperands(f, spec.m);
  if (spec.prefetchesNext)
    next = f.buffer(SmallVector<int64_t>(3, ShapedType::kDynamic), panelType);
  if (spec.hasHalfTiles)
    partedRows = f.buffer(spec.rowPartShape(), k.b.getBF16Type());
  c = f.buffer({spec.m, spec.n}, spec.hasNarrowResult ? Type(k.b.getBF16Type()) : f32);
  result.takeResult(c);
}

/// Writes which part of the panels of the next product each of `tasks` asks for.
void GemmEmitter::emitPieces(const Index &tasks) {
  flatNext = next.flat();
  nextPanels = next.dim(0);
  nextElements = next.dim(1) * next.dim(2);
  pieces = maximum(minimum(tasks, numThreads()), 1); // as the runtime cuts parallel loops
  pieceSize = tasks / pieces;
  longPieces = tasks % pieces;
}

void GemmEmitter::emit() {
  prefetched = flatPanels = panels.flat();
  Index tasks = countTasks(a, panels, c);
  depth = spec.gathersRows ? k.index(spec.k) : a.dim(1);
  steps = spec.rowsPerStep() == 1 ? depth : k.index(llvm::divideCeil(spec.k, 2));
  panelElements = panels.dim(1) * rowElements;
  // Elements that the prefetch pointer moves a step, so that the blocks of one
  // panel together fetch the next one.
  prefetchStep = ceilDiv(k.index(rowElements), maximum(blocks, 1));
  if (spec.hasTiles) {
    Mask hasTiles = k.asMask(HasTilesOp::create(k.b, k.loc, k.b.getI1Type()));
    emitTileTasks(hasTiles);
    tasks = select(hasTiles, k.index(0), tasks);
  }
  Mask usesTiles = k.truth(false);
  if (spec.hasHalfTiles) {
    usesTiles = k.asMask(HasTilesOp::create(k.b, k.loc, k.b.getI1Type())) & (rows >= GemmSpec::kFewestTileRows);
    emitHalfTiles(usesTiles);
  }
  if (spec.sharesPanels) {
    emitSharedTasks(usesTiles);
    if (!ShapedType::isDynamic(spec.m))
      return;
    tasks = select(blocks > 1, k.index(0), tasks);
  }
  if (spec.prefetchesNext)
    emitPieces(tasks);
  k.parallel(tasks, [&](Index task) { emitTask(task); });
}

Index GemmEmitter::numThreads() { return k.asIndex(NumThreadsOp::create(k.b, k.loc, k.b.getIndexType())); }

void GemmEmitter::emitTask(const Index &task) {
  if (!isDirect)
    scratch = k.scratch({spec.tileRows, width}, f32);
  takeBlock(task);
  if (spec.chunkBlocks)
    prefetchStep = ceilDiv(k.index(rowElements), inChunk);
  Mask isStream = blocks == 1;
  prefetchAt = select(isStream, panelAt * panelElements + kStreamAhead / elementBytes,
                      findNext(task, isStream) + at * (prefetchStep * steps));
  emitBlock();
}

void GemmEmitter::emitBlock() {
  if (spec.m == 0)
    return;
  auto [least, most] = tileHeights(spec.m, spec.tileRows);
  if ((wide || filled) && ShapedType::isDynamic(spec.m))
    least += (spec.tileRows - 1) / 2; // rows that one block doesn't hold are at least two halves of one
  k.match(tileHeight, least, most, [&](int64_t height) { emitTile(height); });
  if (!isDirect)
    emitStaged();
}

/// Where the panel begins that is prefetched: the next one, from `prefetched`.
///
/// In the last panel of a thread, what follows in B is another's: its own first
/// panel of the next product is prefetched instead. Cold weights then cost next
/// to nothing (M = 32, two threads of Zen 5, prototype: 445 -> 495 GF).
Index GemmEmitter::findNext(const Index &task, const Mask &isStream) {
  // The last panel has none after it and touches itself instead.
  Index following = minimum(panelAt + 1, allPanels - 1) * panelElements;
  prefetched = flatPanels;
  if (!spec.prefetchesNext)
    return following;
  Index longSize = pieceSize + 1, inLong = longPieces * longSize;
  Mask isLong = task < inLong;
  Index offset = task - select(isLong, k.index(0), inLong);
  Index piece = select(isLong, k.index(0), longPieces) + offset / select(isLong, longSize, pieceSize);
  Index last = (piece + 1) * pieceSize + minimum(piece + 1, longPieces) - 1;
  // The rest of the piece is in this panel: the last task is no further than the panel's last.
  Mask isLast = select(isStream, k.truth(false), last - task + at < inChunk);
  prefetched = select(isLast, flatNext, flatPanels);
  return select(isLast, piece * nextPanels / pieces * nextElements, following);
}

void GemmEmitter::emitTile(int64_t height) {
  Vecs sums = emitSums(height);
  if (isDirect)
    return emitDirect(height, sums);
  for (int64_t r = 0; r < height; ++r)
    scratch.setVectors(ArrayRef(sums).slice(r * vectors, vectors), r);
}

/// The sums of `height` rows and one panel: height * vectors of them.
Vecs GemmEmitter::emitSums(int64_t height) {
  rowsAt.clear();
  for (int64_t r = 0; spec.gathersRows && r < height; ++r)
    rowsAt.push_back(toIndex(a(row + r)));
  Sums carried(Vecs(height * vectors, k.splat(k.f32(0), spec.lanes)), prefetchAt);
  bool hasScales = spec.storage == PanelStorage::I8, isScaledLast = hasScales && spec.group >= spec.k;
  if (hasScales && !isScaledLast) {
    carried = k.loop(0, spec.scaleShape()[1], 1, carried, [&](Index group, Vecs now, Index at) {
      Index begin = group * spec.group;
      return loopSteps(height, begin, minimum(begin + spec.group, depth), loadScale(group), Sums(now, at));
    });
  } else {
    bool isOdd = rowsPerStep() == 2 && spec.k % 2;
    Index whole = isOdd ? k.index(spec.k / 2) : wide ? depth : steps;
    carried = loopSteps(height, 0, whole, {}, carried);
    if (isOdd)
      addStep(height, whole, 1, {}, carried);
  }
  Vecs sums = std::get<0>(carried);
  if (isScaledLast) // one scale a column
    for (auto [v, scale] : llvm::enumerate(loadScale(k.index(0))))
      for (int64_t r = 0; r < height; ++r)
        sums[r * vectors + v] = sums[r * vectors + v] * scale;
  return sums;
}

GemmEmitter::Sums GemmEmitter::loopSteps(int64_t height, Place begin, Place end, const Vecs &scale, const Sums &inits) {
  Sums sums = k.loop(begin, end, 1, inits, [&](Index step, Vecs now, Index at) {
    Sums next(now, at);
    addStep(height, step, rowsPerStep(), scale, next);
    return next;
  });
  markLong(k.b);
  return sums;
}

void GemmEmitter::addStep(int64_t height, const Index &step, int64_t numRows, const Vecs &scale, Sums &carried) {
  Vecs &sums = std::get<0>(carried);
  Index &at = std::get<1>(carried);
  SmallVector<Vecs> loaded;
  for (int64_t i = 0; !spec.hasNarrowRows && i < numRows; ++i)
    loaded.push_back(loadPanelRow(step, i, scale));
  for (int64_t i = 0; filled && i < numRows; ++i)
    filled->setVectors(loaded[i], step * rowsPerStep() + i);
  // With one or two blocks a step moves by several lines, and each of them must
  // be asked for (M = 8, cold: 85 -> 115 GF). A step of 96 bytes asks for one: two
  // would ask for each third line twice, and a line that is there already costs
  // (one row of 16-bit weights, Zen 4, 2 threads: 44 GB/s instead of 62). With more
  // blocks the same lines are asked for again, which costs nothing that can be
  // measured.
  int64_t bytes = (wide ? width : rowElements) * elementBytes;
  for (int64_t p = 0; p < std::max(bytes - kLineBytes + 1, int64_t(1)); p += kLineBytes)
    prefetched.prefetch(at + p / elementBytes);
  at = at + prefetchStep;
  if (spec.hasNarrowRows)
    return addPairs(height, step, sums);
  for (int64_t i = 0; i < numRows; ++i) {
    Index place = rowsPerStep() == 1 ? step : step * 2 + i;
    Index gathered = spec.gathersRows ? toIndex(depthAt(place)) : place;
    for (int64_t r = 0; r < height; ++r) {
      Vec left = k.splat(spec.gathersRows ? source(rowsAt[r] + gathered) : a(row + r, place), spec.lanes);
      for (int64_t v = 0; v < vectors; ++v) {
        Vec &sum = sums[r * vectors + v];
        sum = spec.hasFma() ? fma(left, loaded[i][v], sum) : sum + left * loaded[i][v];
      }
    }
  }
}

/// Adds the products of two rows of B, and two elements of each row of A; of
/// factors in parts the smallest first.
void GemmEmitter::addPairs(int64_t height, const Index &step, Vecs &sums) {
  Vecs loaded;
  for (int64_t part = 0; part < spec.parts; ++part)
    for (int64_t v = 0; v < vectors; ++v)
      loaded.push_back(panels.vector(2 * spec.lanes, panelAt, step, 2 * (part * width + v * spec.lanes)));
  Index place = step * 2;
  for (int64_t r = 0; r < height; ++r) {
    Vecs left;
    for (const Buffer &part : rowParts)
      left.push_back(bitcast(part.word(spec.lanes, row + r, place), panelType));
    for (int64_t order = spec.parts - 1; order >= 0; --order)
      for (int64_t i = order; i >= 0; --i)
        for (int64_t v = 0; v < vectors; ++v) {
          Vec &sum = sums[r * vectors + v], &right = loaded[(order - i) * vectors + v];
          sum = k.asVec(k.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", sum.type(), {sum, left[i], right}));
        }
  }
}

/// Row number `row` of a step as f32, times `scale` if there is one.
Vecs GemmEmitter::loadPanelRow(const Index &step, int64_t row, const Vecs &scale) {
  if (wide)
    return wide->vectors(vectors, spec.lanes, step);
  int64_t stored = spec.lanes * spec.rowsPerStep();
  Vecs loaded;
  for (int64_t v = 0; v < vectors; ++v) {
    Vec x = widened(panels.vector(stored, panelAt, step, v * stored), spec.storage, row);
    loaded.push_back(scale.empty() ? x : x * scale[v]);
  }
  return loaded;
}

Vecs GemmEmitter::loadScale(const Index &group) { return scales.vectors(vectors, spec.lanes, panelAt, group); }

/// Runs `emitColumns` for those of the panel at hand. Where only the run knows their number, all code is masked: a
/// second form of every tile height takes long to compile.
void GemmEmitter::forPanelColumns(function_ref<void(const PanelColumns &)> emitColumns) {
  if (ShapedType::isDynamic(spec.n))
    return emitColumns(result.openColumns(panel));
  result.forColumns(panel, emitColumns);
}

void GemmEmitter::emitDirect(int64_t height, const Vecs &sums) {
  forPanelColumns([&](const PanelColumns &columns) {
    // LLVM can't know that C is not where a bias is, and would read that once a row.
    SmallVector<SmallVector<Value>> shared;
    for (int64_t v = 0; v < result.vectorsOf(columns); ++v)
      shared.push_back(result.readShared(panel, columns, v));
    for (int64_t r = 0; r < height; ++r)
      for (int64_t v = 0; v < result.vectorsOf(columns); ++v)
        result.store(sums[r * vectors + v], row + r, panel, columns, v, shared[v]);
  });
}

void GemmEmitter::emitStaged() {
  k.loop(0, tileHeight, 1, [&](Index r) {
    forPanelColumns([&](const PanelColumns &columns) {
      for (int64_t v = 0; v < result.vectorsOf(columns); ++v)
        result.store(scratch.vector(spec.lanes, r, v * spec.lanes), row + r, panel, columns, v);
    });
  });
}

func::FuncOp buildGemm(OpBuilder &builder, Location loc, const GemmSpec &spec) {
  assert(canBuildGemm(spec));
  KernelFunction f(builder, loc, spec.symbol());
  f.function.setPrivate();
  f.function->setAttr(AttnDialect::kProductAttr, builder.getUnitAttr());
  GemmEmitter(f, spec).emit();
  return f.function;
}

} // namespace attn
