// The sums of a product of f32 by a weight in f16 with AMX. A number of f32 is the sum of three of bf16, one of f16 of
// two, whose products are exact and summed in f32. Of the six the least one is left out: it is below 2^-23 of the
// greatest.
#include "passes/kernels/cpu/GemmEmitter.h"
#include "passes/kernels/cpu/HalfParts.h"
#include "passes/kernels/cpu/TileRegisters.h"

using namespace mlir;

namespace attn {

namespace {

constexpr int64_t kTileRows = TileRegisters::kRows, kTileBytes = TileRegisters::kBytes,
                  kBlockRows = GemmSpec::kPartedRows;
static_assert(kBlockRows == 2 * kTileRows);
constexpr int64_t kDepth = 32, kLanes = 16; // elements of a row of a tile, of a register
constexpr int64_t kTileElements = kTileRows * kDepth, kRowParts = GemmSpec::kRowParts, kColumnParts = 2;
constexpr int64_t kStepElements = kRowParts * kBlockRows * kDepth;    // of a block of rows
constexpr int64_t kStepBytes = kColumnParts * kTileRows * kTileBytes; // of a vector of columns
constexpr int64_t kGroupRows = PanelCut::kGroupRows;
constexpr int64_t kLinesAhead = 4;

} // namespace

SmallVector<int64_t> GemmSpec::rowPartShape() const {
  int64_t blocks = ShapedType::isDynamic(m) ? m : static_cast<int64_t>(llvm::divideCeil(m, kBlockRows));
  return {blocks, static_cast<int64_t>(llvm::divideCeil(k, kDepth)) * kStepElements};
}

class GemmEmitter::HalfTiles {
public:
  explicit HalfTiles(GemmEmitter &gemm)
      : gemm(gemm), k(gemm.k), spec(gemm.spec), steps(llvm::divideCeil(gemm.spec.k, kDepth)), a(gemm.a),
        panels(gemm.panels), rowParts(gemm.partedRows) {}

  void partRows(const Mask &usesTiles);
  void emitTasks(const Mask &usesTiles);

private:
  void partStep(const Index &row, const Index &place, const Index &step, int64_t size);
  void unpack();
  void unpackStep(const Index &step, int64_t size);
  void emitBlock(const Index &block);
  void addStep(const Index &left, const Index &right);
  void prefetch(const Index &turn, const Index &step);

  GemmEmitter &gemm;
  Code &k;
  const GemmSpec &spec;
  const int64_t steps;
  Buffer a, panels, rowParts;
  Buffer columns, sums, rest;
  std::optional<TileRegisters> registers;
  Index panel, firstBlock;
};

/// Writes the rows of A in parts: of each block of 32 its steps, of a step its parts, the least first, of a part two
/// tiles.
void GemmEmitter::HalfTiles::partRows(const Mask &usesTiles) {
  int64_t whole = spec.k / kDepth, tail = spec.k % kDepth;
  k.parallel(select(usesTiles, a.dim(0), k.index(0)), [&](Index row) {
    Index place = row / kBlockRows * (steps * kStepElements) + row % kBlockRows * kDepth;
    k.loop(0, whole, 1, [&](Index step) { partStep(row, place, step, kDepth); });
    if (tail)
      partStep(row, place, k.index(whole), tail);
  });
}

void GemmEmitter::HalfTiles::partStep(const Index &row, const Index &place, const Index &step, int64_t size) {
  Buffer to = rowParts.flat();
  for (int64_t at = 0; at < kDepth; at += kLanes) {
    for (auto [n, part] :
         llvm::enumerate(splitIntoHalves(a.first(size - at, kLanes, row, step * kDepth + at), kRowParts))) {
      int64_t number = kRowParts - 1 - static_cast<int64_t>(n);
      to.setVector(toHalves(part), place + step * kStepElements + (number * kBlockRows * kDepth + at));
    }
  }
}

/// A task is one panel and up to 128 rows.
void GemmEmitter::HalfTiles::emitTasks(const Mask &usesTiles) {
  Index rows = a.dim(0), groups = ceilDiv(rows, kGroupRows);
  int64_t numPanels = spec.numPanels();
  k.parallel(select(usesTiles, groups * numPanels, k.index(0)), [&](Index task) {
    sums = k.scratch({kGroupRows, gemm.width}, k.b.getF32Type());
    rest = k.scratch({kBlockRows, kLanes}, k.b.getF32Type());
    columns = k.scratch({spec.tileVectors, steps * kStepBytes}, k.b.getI8Type());
    registers.emplace(k);
    panel = task % numPanels;
    Index first = task / numPanels * kGroupRows;
    firstBlock = first / kBlockRows;
    gemm.panel = gemm.panelAt = panel;
    gemm.row = first;
    Index height = minimum(rows - first, kGroupRows);
    gemm.tileHeight = height;
    gemm.scratch = sums;
    unpack();
    registers->configure(k.index(kTileRows), k.index(kTileRows));
    k.loop(0, ceilDiv(height, kBlockRows), 1, [&](Index block) { emitBlock(block); });
    registers->release();
    gemm.emitStaged();
  });
}

/// Writes the panel at hand out as tiles of bf16, two parts of each.
void GemmEmitter::HalfTiles::unpack() {
  int64_t whole = spec.k / kDepth, tail = spec.k % kDepth;
  k.loop(0, whole, 1, [&](Index step) { unpackStep(step, kDepth); });
  if (tail)
    unpackStep(k.index(whole), tail);
}

void GemmEmitter::HalfTiles::unpackStep(const Index &step, int64_t size) {
  Type f32 = k.b.getF32Type();
  for (int64_t v = 0; v < spec.tileVectors; ++v) {
    auto partsOf = [&](const Index &row) {
      return splitIntoHalves(convert(panels.vector(kLanes, panel, row, v * kLanes), f32), kColumnParts);
    };
    auto emitPair = [&](const Index &pair, bool isWhole) {
      Index row = step * kDepth + pair * 2;
      SmallVector<Vec> first = partsOf(row), second(kColumnParts, k.splat(k.f32(0), kLanes));
      if (isWhole)
        second = partsOf(row + 1);
      for (int64_t part = 0; part < kColumnParts; ++part)
        columns.setVector(bitcast(toPairs(first[part], second[part]), k.b.getI8Type()), v,
                          step * kStepBytes + (pair + part * kTileRows) * kTileBytes);
    };
    k.loop(0, size / 2, 1, [&](Index pair) { emitPair(pair, true); });
    if (size % 2)
      emitPair(k.index(size / 2), false);
    Vec none = k.splat(k.number(k.b.getI8Type(), int64_t(0)), kTileBytes);
    for (int64_t pair = (size + 1) / 2; pair < kTileRows; ++pair)
      for (int64_t part = 0; part < kColumnParts; ++part)
        columns.setVector(none, v, step * kStepBytes + (pair + part * kTileRows) * kTileBytes);
  }
}

/// The sums of 32 rows and all columns. Of a column's vector the greatest products have tiles of their own, the rest
/// other ones: four chains of additions, as many as keep the unit at work.
void GemmEmitter::HalfTiles::emitBlock(const Index &block) {
  Index left = rowParts.address() + (firstBlock + block) * (steps * kStepElements * 2);
  k.loop(0, spec.tileVectors, 1, [&](Index vector) {
    for (int64_t number = 0; number < 4; ++number)
      registers->zero(number);
    std::tuple<Index, Index> places(left, columns.address() + vector * (steps * kStepBytes));
    k.loop(0, steps, 1, places, [&](Index step, Index left, Index right) {
      addStep(left, right);
      prefetch(block * spec.tileVectors + vector, step);
      return std::tuple(left + kStepElements * 2, right + kStepBytes);
    });
    Index at = sums.address() + (block * kBlockRows * gemm.width + vector * kLanes) * 4;
    for (int64_t i = 0; i < 2; ++i) {
      registers->store(i, at + i * kTileRows * gemm.width * 4, k.index(gemm.width * 4));
      registers->store(2 + i, rest.address() + i * kTileRows * kTileBytes, k.index(kTileBytes));
    }
    k.loop(0, kBlockRows, 1, [&](Index r) {
      Index row = block * kBlockRows + r, column = vector * kLanes;
      Vec greatest = sums.vector(kLanes, row, column), others = rest.vector(kLanes, r, 0);
      // An infinity times the nothing that is left of a weight is no number: the greatest products know.
      sums.setVector(select(isNaN(others), greatest, greatest + others), row, column);
    });
  });
}

/// Sums 0 and 1 are the greatest products of two tiles of rows, 2 and 3 the others; rows in 4 and 5, columns in 6
/// and 7.
void GemmEmitter::HalfTiles::addStep(const Index &left, const Index &right) {
  for (int64_t part = 0; part < kColumnParts; ++part)
    registers->load(TileRegisters::columns(part), right + part * kTileRows * kTileBytes, k.index(kTileBytes));
  auto multiply = [&](int64_t to, int64_t i, int64_t columnPart) {
    registers->multiply("llvm.x86.tdpbf16ps", to, TileRegisters::rows(i), TileRegisters::columns(columnPart));
  };
  for (int64_t part = 0; part < kRowParts; ++part) {
    for (int64_t i = 0; i < 2; ++i)
      registers->load(TileRegisters::rows(i), left + (part * 2 + i) * kTileElements * 2, k.index(kDepth * 2));
    for (int64_t i = 0; i < 2 && part > 0; ++i)
      multiply(2 + i, i, 1);
    for (int64_t i = 0; i < 2; ++i)
      multiply(part == 0 ? 2 + i : i, i, 0);
  }
}

/// Of the next panel's lines that belong to a step a few, turn by turn.
void GemmEmitter::HalfTiles::prefetch(const Index &turn, const Index &step) {
  constexpr int64_t kLineElements = kTileBytes / 2;
  Index next = minimum(panel + 1, spec.numPanels() - 1) * (spec.k * gemm.width);
  Index at = next + step * (kDepth * gemm.width) + turn * (kLinesAhead * kLineElements);
  for (int64_t line = 0; line < kLinesAhead; ++line)
    gemm.flatPanels.prefetch(at + line * kLineElements);
}

void GemmEmitter::emitHalfTiles(const Mask &usesTiles) {
  HalfTiles(*this).partRows(usesTiles);
  GemmEmitter task(*this); // whose places those of other tasks are not
  HalfTiles(task).emitTasks(usesTiles);
}

} // namespace attn
