#include "passes/kernels/gpu/IntegerGemmEmitter.h"

// Few rows: a lane has a column and reads 16 rows of it at once. Lanes of a warp lie side by side in a panel; the warps
// of a block, and lanes where columns are few, share the sum.

using namespace mlir;

namespace attn {
namespace {

class IntegerGemvEmitter : public GpuIntegerEmitter {
public:
  IntegerGemvEmitter(OpBuilder &b, Location loc, const GpuIntegerSpec &spec, ArrayRef<Buffer> arguments, int64_t height)
      : GpuIntegerEmitter(b, loc, spec, arguments), height(height) {
    // Lines of 128 bytes are as short as a lane's columns may be.
    constexpr int64_t kFewest = 8, kMostWarps = 16, kLoads = 4;
    while (columns > kFewest && spec.n < 2 * kProcessors * columns)
      columns /= 2;
    sumLanes = kWarp / columns;
    groups = spec.panelShape()[1];
    int64_t most = std::clamp<int64_t>(groups / sumLanes, 1, kMostWarps);
    warps = most;
    for (int64_t n = most; 2 * n > most; --n) // so many that nothing is left over, if there are
      if (groups % (n * sumLanes) == 0) {
        warps = n;
        break;
      }
    int64_t steps = std::max<int64_t>(groups / (warps * sumLanes), 1);
    unroll = std::min(steps, height == 1 ? kLoads : kLoads / 2);
    while (steps % unroll)
      --unroll;
  }

  void emit() {
    OpBuilder::InsertionGuard guard(k.b);
    // Of no rows there is none to read in their place.
    Index blocks = minimum(numRows, k.index(1)) * ceilDiv(numColumns, columns);
    Buffer shared = k.launch(blocks, warps * kWarp, {warps * height * columns})[0];
    k.setResidentBlocks(1);
    Index lane = k.thread % kWarp, warp = k.thread / kWarp, within = lane % columns, sumLane = lane / columns;
    Index column = k.block * columns + within;
    Nums sums = sumUp(column, warp * sumLanes + sumLane);
    for (Num &sum : sums)
      sum = k.acrossThreads(sum, sumLanes, [](Num x, Num y) { return x + y; }, columns);
    k.when(sumLane < 1, [&] {
      for (int64_t row = 0; row < height; ++row)
        shared.set(k.asFloat(sums[row]), (warp * height + row) * columns + within);
    });
    k.barrier();
    k.loop(k.thread, height * columns, warps * kWarp, [&](Index at) {
      Index row = at / columns, columnAt = k.block * columns + at % columns;
      k.when((row < numRows) & (columnAt < numColumns), [&] {
        Nums parts;
        for (int64_t n = 0; n < warps; ++n)
          parts.push_back(bitcast(shared(at + n * height * columns), k.b.getI32Type()));
        Num sum = tree<Num>(parts, [](Num x, Num y) { return x + y; });
        store(finish({sum}, k.index(0), row, columnAt), row, columnAt);
      });
    });
  }

private:
  /// A lane's sums, one a row, of every so many groups from `first` on.
  Nums sumUp(Index column, Index first) {
    bool hasZero = spec.columnZero != ZeroPoint::None;
    Index panel = column / kWidth, inPanel = column % kWidth * kGroup;
    int64_t step = warps * sumLanes, sweep = unroll * step;
    bool isWhole = groups % sweep == 0;
    Nums zeros((hasZero ? 2 : 1) * height, k.i32(0));
    Nums sums = k.loop(first, numGroups, sweep, zeros, [&](Index at, Nums now) {
      SmallVector<Nums> matrix;
      auto place = [&](int64_t n) { return isWhole ? at + n * step : minimum(at + n * step, numGroups - 1); };
      for (int64_t n = 0; n < unroll; ++n)
        matrix.push_back(k.loadWords(panels, placeInPanels(panel, place(n)) + inPanel, kGroup / 4));
      for (int64_t n = 0; n < unroll; ++n)
        for (int64_t row = 0; row < height; ++row) {
          Mask isInside = isWhole ? k.truth(true) : at + n * step < numGroups;
          // A row that is not there is another one.
          for (auto [word, bytes] :
               llvm::zip_equal(matrix[n], readGroup(minimum(k.index(row), numRows - 1), place(n), isInside))) {
            now[row] = multiplyFours(k, bytes, word, now[row]);
            if (hasZero)
              now[height + row] = multiplyFours(k, bytes, k.i32(0x01010101), now[height + row]);
          }
        }
      return now;
    });
    if (hasZero) {
      Num zero = columnZeroAt(minimum(column, numColumns - 1));
      for (int64_t row = 0; row < height; ++row)
        sums[row] = sums[row] - zero * sums[height + row];
      sums.truncate(height);
    }
    return sums;
  }

  const int64_t height;
  int64_t columns = kWidth; ///< of a block
  int64_t sumLanes = 1, warps = 1, groups = 0, unroll = 1;
};

} // namespace

void emitIntegerGemv(OpBuilder &b, Location loc, const GpuIntegerSpec &spec, ArrayRef<Buffer> arguments,
                     int64_t height) {
  IntegerGemvEmitter(b, loc, spec, arguments, height).emit();
}

} // namespace attn
