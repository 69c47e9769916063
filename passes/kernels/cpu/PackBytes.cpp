#include "passes/kernels/cpu/PackBytes.h"

#include "passes/kernels/cpu/ByteProducts.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/spec/StepOrder.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {
namespace {

class PackBytesEmitter {
public:
  PackBytesEmitter(KernelFunction &f, const PackBytesSpec &spec)
      : k(f.k), spec(spec), i8(k.b.getI8Type()), i32(k.b.getI32Type()) {
    constexpr int64_t kDynamic = ShapedType::kDynamic;
    int64_t steps = ShapedType::isDynamic(spec.k) ? kDynamic : llvm::divideCeil(spec.k, spec.group);
    SmallVector<int64_t> shape = {kDynamic, spec.k, spec.n};
    if (spec.isTransposed)
      std::swap(shape[1], shape[2]);
    source = f.buffer(shape, i8);
    panels = f.buffer({kDynamic, steps, spec.width * spec.group}, i8);
    sums = f.buffer({kDynamic, spec.width}, i32);
    if (spec.ordersSteps) {
      StepOrder of{spec.k, spec.group};
      orderType = of.element(k.b.getContext());
      order = f.buffer({kDynamic, of.size()}, orderType);
    }
    depth = source.dim(spec.isTransposed ? 2 : 1);
    columns = source.dim(spec.isTransposed ? 1 : 2);
  }

  void emit() {
    Index panelsOfOne = ceilDiv(columns, spec.width);
    k.parallel(panels.dim(0), [&](Index at) {
      matrix = at / panelsOfOne;
      panel = at;
      first = at % panelsOfOne * spec.width;
      if (spec.isTransposed)
        packColumns();
      else
        k.when(first + spec.width <= columns, [&] { packRows(true); }, [&] { packRows(false); });
      if (spec.ordersSteps)
        orderSteps();
    });
  }

private:
  Vec loadRow(Index row, int64_t column, bool isWhole);
  void packRows(bool isWhole);
  void packColumns();
  void orderSteps();
  Vec flipped(const Vec &x) { return spec.isUnsigned ? x ^ k.splat(k.number(i8, int64_t(-128)), x.lanes()) : x; }

  Code &k;
  const PackBytesSpec &spec;
  const Type i8, i32;
  Buffer source, panels, sums, order;
  Type orderType;
  Index depth, columns;
  // Of the panel at hand.
  Index matrix, panel, first;
};

/// `lanes` columns of a row from `column` of the panel on, zeros beyond N.
Vec PackBytesEmitter::loadRow(Index row, int64_t column, bool isWhole) {
  Index from = first + column;
  if (isWhole)
    return flipped(source.vector(spec.lanes, matrix, row, from));
  // What is beyond N stays 0.
  Vec zeros = k.splat(k.number(i8, int64_t(0)), spec.lanes);
  return select(firstLanes(columns - from, spec.lanes),
                flipped(source.first(columns - from, spec.lanes, matrix, row, from)), zeros);
}

/// The rows of a step side by side: of each column, `group` of them.
static Vec interleaved(Code &k, ArrayRef<Vec> rows) {
  if (rows.size() == 1)
    return rows.front();
  SmallVector<Vec> even, odd;
  for (auto [n, row] : llvm::enumerate(rows))
    (n % 2 ? odd : even).push_back(row);
  return k.asVec(vector::InterleaveOp::create(k.b, k.loc, interleaved(k, even).value(), interleaved(k, odd).value()));
}

void PackBytesEmitter::packRows(bool isWhole) {
  int64_t vectors = spec.width / spec.lanes;
  Index whole = depth / spec.group;
  SmallVector<Vec> totals(vectors, k.splat(k.i32(0), spec.lanes));
  // `left` rows are there, or all.
  auto packStep = [&](Index step, SmallVector<Vec> totals, std::optional<Index> left) {
    for (int64_t v = 0; v < vectors; ++v) {
      SmallVector<Vec> rows;
      for (int64_t r = 0; r < spec.group; ++r) {
        Index row = step * spec.group + r;
        Vec zeros = k.splat(k.number(i8, int64_t(0)), spec.lanes);
        Vec x = left ? select(*left > r, loadRow(minimum(row, depth - 1), v * spec.lanes, isWhole), zeros)
                     : loadRow(row, v * spec.lanes, isWhole);
        rows.push_back(x);
        totals[v] = totals[v] + convert(x, i32);
      }
      panels.setVector(interleaved(k, rows), panel, step, v * spec.lanes * spec.group);
    }
    return totals;
  };
  totals = k.loop(0, whole, 1, totals,
                  [&](Index step, SmallVector<Vec> totals) { return packStep(step, totals, std::nullopt); });
  markLong(k.b);
  if (ShapedType::isDynamic(spec.k) || spec.k % spec.group)
    totals = k.loop(whole, ceilDiv(depth, spec.group), 1, totals, [&](Index step, SmallVector<Vec> totals) {
      return packStep(step, totals, depth - step * spec.group);
    });
  sums.setVectors(totals, panel);
}

/// Of a matrix whose columns are dense: the rows of a step are a word.
void PackBytesEmitter::packColumns() {
  int64_t bytes = spec.lanes;
  k.loop(0, spec.width, 1, [&](Index column) {
    Index from = first + column, whole = depth / bytes * bytes;
    auto store = [&](const Vec &x, Index row, bool isWhole) { // `bytes` rows, some steps
      for (int64_t n = 0; n < bytes; n += spec.group) {
        auto word = vector::ExtractStridedSliceOp::create(k.b, k.loc, x.value(), n, spec.group, 1);
        auto storeStep = [&] { panels.setVector(k.asVec(word), panel, (row + n) / spec.group, column * spec.group); };
        if (isWhole)
          storeStep();
        else
          k.when(row + n < depth, storeStep);
      }
    };
    k.when(
        from < columns,
        [&] {
          Vec total = k.loop(0, whole, bytes, k.splat(k.i32(0), bytes), [&](Index row, Vec total) {
            Vec x = flipped(source.vector(bytes, matrix, from, row));
            store(x, row, true);
            return total + convert(x, i32);
          });
          markLong(k.b);
          Vec zeros = k.splat(k.number(i8, int64_t(0)), bytes);
          Vec rest = select(firstLanes(depth - whole, bytes),
                            flipped(source.first(depth - whole, bytes, matrix, from, whole)), zeros);
          store(rest, whole, false);
          sums.set(sumOfLanes(total + convert(rest, i32)), panel, column);
        },
        [&] {
          Vec zeros = k.splat(k.number(i8, int64_t(0)), spec.group);
          k.loop(0, ceilDiv(depth, spec.group), 1,
                 [&](Index step) { panels.setVector(zeros, panel, step, column * spec.group); });
          sums.set(k.i32(0), panel, column);
        });
  });
}

/// Narrow steps from the front on, wide ones from the back, and no doubles, to look for which takes longer than they
/// save once. Reads the panel, which is in the nearest cache, again.
void PackBytesEmitter::orderSteps() {
  ByteProducts bytes(k, ByteDot::Pairs);
  int64_t bytesOfVector = spec.lanes * spec.group;
  Index whole = depth / spec.group;
  Index numNarrow = k.loop(0, whole, 1, k.index(0), [&](Index step, Index before) {
    Mask isWide = k.truth(false);
    for (int64_t at = 0; at < spec.width * spec.group; at += bytesOfVector)
      isWide = isWide | bytes.hasWide(panels.vector(bytesOfVector, panel, step, at));
    Index place = select(isWide, whole - 1 - (step - before), before);
    order.set(toNum(step, orderType), panel, place + StepOrder::kCounts);
    return before + toIndex(!isWide);
  });
  markLong(k.b);
  order.set(k.number(orderType, int64_t(0)), panel, 0);
  order.set(toNum(numNarrow, orderType), panel, 1);
}

} // namespace

std::string PackBytesSpec::symbol() const {
  return llvm::formatv("pack_bytes_k{0}_n{1}_w{2}x{3}x{4}{5}{6}{7}", sizeText(k), sizeText(n), width, group, lanes,
                       isTransposed ? "_t" : "", isUnsigned ? "_u" : "", ordersSteps ? "_ordered" : "");
}

func::FuncOp buildPackBytes(OpBuilder &b, Location loc, const PackBytesSpec &spec) {
  KernelFunction f(b, loc, spec.symbol());
  f.function.setPrivate();
  PackBytesEmitter(f, spec).emit();
  return f.function;
}

} // namespace attn
