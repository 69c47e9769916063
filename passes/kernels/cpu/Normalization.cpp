#include "passes/kernels/cpu/Normalization.h"

#include "builders/Lanes.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/spec/KernelAttrs.h"

using namespace mlir;

namespace attn {
namespace {

/// Vectors a sweep handles at once, each with its own accumulator: the latency
/// of an addition is 4 cycles, two start each cycle.
constexpr int64_t kUnroll = 4;

using Combine = Vec (*)(const Vec &, const Vec &);
Vec plus(const Vec &x, const Vec &y) { return x + y; }

/// A row of `size` elements, swept in registers with a masked tail.
class Row {
public:
  Row(Code &k, Index size, Index base, int64_t lanes) : k(k), size(size), base(base), lanes(lanes) {}

  /// Some elements of the row: `lanes` from `first` on, or `count` where given.
  struct Piece {
    Index first, count;
    bool isWhole() const { return !count.value(); }
  };

  Vec splat(double value) { return k.splat(k.f32(value), lanes); }
  /// Of `flat`, which holds rows; lanes beyond the row hold `fill`.
  Vec load(const Buffer &flat, Piece piece, double fill = 0) { return loadAt(flat, base + piece.first, piece, fill); }
  /// Of `flat`, which holds one row.
  Vec loadShared(const Buffer &flat, Piece piece) { return loadAt(flat, piece.first, piece, 0); }
  void store(const Vec &x, const Buffer &flat, Piece piece) {
    Index offset = base + piece.first;
    if (piece.isWhole())
      flat.setVector(x, offset);
    else
      flat.setFirst(x, piece.count, offset);
  }
  /// `x` with 0 in the lanes beyond the row.
  Vec masked(const Vec &x, Piece piece) {
    return piece.isWhole() ? x : select(firstLanes(piece.count, lanes), x, splat(0));
  }

  /// `body` for each piece of the row.
  void forEach(llvm::function_ref<void(Piece)> body) {
    Index whole = floorTo(size, lanes);
    k.loop(0, whole, lanes, [&](Index first) { body({first, Index()}); });
    if (hasTail())
      k.when(whole < size, [&] { body({whole, size - whole}); });
  }

  /// `combine` over all that `body` gives, in every lane; `neutral` of nothing.
  Vec reduce(double neutral, Combine combine, llvm::function_ref<Vec(Piece)> body) {
    Index wide = floorTo(size, kUnroll * lanes), whole = floorTo(size, lanes);
    SmallVector<Vec> sums(kUnroll, splat(neutral));
    sums = k.loop(0, wide, kUnroll * lanes, sums, [&](Index first, SmallVector<Vec> next) {
      for (auto [n, sum] : llvm::enumerate(next))
        sum = combine(sum, body({first + n * lanes, Index()}));
      return next;
    });
    Vec all = k.loop(wide, whole, lanes, tree<Vec>(sums, combine),
                     [&](Index first, Vec sum) { return combine(sum, body({first, Index()})); });
    if (hasTail())
      all = k.choose(whole < size, [&] { return combine(all, body({whole, size - whole})); }, [&] { return all; });
    return acrossLanes(all, combine);
  }

private:
  Vec loadAt(const Buffer &flat, Index offset, Piece piece, double fill) {
    if (piece.isWhole())
      return flat.vector(lanes, offset);
    Vec loaded = flat.first(piece.count, lanes, offset);
    return fill == 0 ? loaded : select(firstLanes(piece.count, lanes), loaded, splat(fill));
  }
  bool hasTail() {
    std::optional<int64_t> known = getConstantIntValue(size.value());
    return !known || *known % lanes;
  }

  Code &k;
  Index size, base;
  int64_t lanes;
};

/// A kernel on `types` whose rows, the dimensions before `axis` of its first
/// argument, `emitRow` handles one by one.
func::FuncOp emitRows(OpBuilder &builder, Location loc, StringRef symbol, ArrayRef<MemRefType> types, int64_t axis,
                      int64_t lanes, llvm::function_ref<void(Code &, Row &, ArrayRef<Buffer>, Index size)> emitRow) {
  KernelFunction f(builder, loc, symbol);
  f.function->setAttr(kPollsAttr, builder.getUnitAttr());
  Code &k = f.k;
  auto buffers = llvm::map_to_vector(types, [&](MemRefType type) { return f.buffer(type); });
  k.parallel(buffers[0].count(0, axis), [&](Index position) {
    Index size = buffers[0].count(axis);
    auto flat = llvm::map_to_vector(buffers, [](const Buffer &buffer) { return buffer.flat(); });
    Row row(k, size, position * size, lanes);
    emitRow(k, row, flat, size);
  });
  return f.function;
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

func::FuncOp buildRowSoftmax(OpBuilder &builder, Location loc, const SoftmaxSpec &spec) {
  auto emitRow = [&](Code &k, Row &row, ArrayRef<Buffer> buffers, Index) {
    Buffer input = buffers[0], output = buffers[1];
    Vec top = row.reduce(-Code::kInfinity, greaterOf,
                         [&](Row::Piece piece) { return row.load(input, piece, -Code::kInfinity); });
    Vec sum = row.reduce(0, plus, [&](Row::Piece piece) {
      Vec weight = exp(row.load(input, piece, -Code::kInfinity) - top);
      if (!spec.log)
        row.store(weight, output, piece);
      return row.masked(weight, piece); // where all is -inf, it is NaN beyond the row too
    });
    Vec last = spec.log ? log(sum) : 1.0 / sum;
    row.forEach([&](Row::Piece piece) {
      // (x - max) - log(sum), not x - (max + log(sum)): a large maximum cancels.
      Vec result = spec.log ? row.load(input, piece) - top - last : row.load(output, piece) * last;
      row.store(result, output, piece);
    });
  };
  return emitRows(builder, loc, spec.symbol(), {spec.type, spec.type}, spec.dim, spec.lanes, emitRow);
}

func::FuncOp buildColumnSoftmax(OpBuilder &builder, Location loc, const SoftmaxSpec &spec) {
  KernelFunction f(builder, loc, spec.symbol());
  f.function->setAttr(kPollsAttr, builder.getUnitAttr());
  Code &k = f.k;
  Buffer input = f.buffer(spec.type), output = f.buffer(spec.type);
  Index matrices = input.count(0, spec.dim), rows = input.dim(spec.dim);
  Index columns = input.count(spec.dim + 1), perRow = ceilDiv(columns, spec.lanes);
  k.parallel(matrices * perRow, [&](Index n) {
    Buffer from = input.flat(), to = output.flat();
    Index column = n % perRow * spec.lanes, left = columns - column, first = n / perRow * (rows * columns) + column;
    auto at = [&](Index row) { return first + row * columns; };
    auto load = [&](const Buffer &x, Index row) { return x.first(left, spec.lanes, at(row)); };
    Vec top = k.loop(0, rows, 1, k.splat(k.f32(-Code::kInfinity), spec.lanes),
                     [&](Index row, Vec top) { return greaterOf(top, load(from, row)); });
    Vec sum = k.loop(0, rows, 1, k.splat(k.f32(0), spec.lanes), [&](Index row, Vec sum) {
      Vec weight = exp(load(from, row) - top);
      if (!spec.log)
        to.setFirst(weight, left, at(row));
      return sum + weight;
    });
    Vec last = spec.log ? log(sum) : 1.0 / sum;
    k.loop(0, rows, 1, [&](Index row) {
      to.setFirst(spec.log ? load(from, row) - top - last : load(to, row) * last, left, at(row));
    });
  });
  return f.function;
}

} // namespace

func::FuncOp buildSoftmax(OpBuilder &builder, Location loc, const SoftmaxSpec &spec) {
  assert(canBuildSoftmax(spec));
  return spec.isOverLast() ? buildRowSoftmax(builder, loc, spec) : buildColumnSoftmax(builder, loc, spec);
}

//===----------------------------------------------------------------------===//
// Layer normalisation
//===----------------------------------------------------------------------===//

func::FuncOp buildLayerNorm(OpBuilder &builder, Location loc, const LayerNormSpec &spec) {
  assert(canBuildLayerNorm(spec));
  auto emitRow = [&](Code &k, Row &row, ArrayRef<Buffer> buffers, Index size) {
    Buffer input = buffers[0], scale = buffers[1], bias = buffers[2], output = buffers.back();
    Vec count = k.splat(convert(toNum(size, k.b.getI64Type()), k.b.getF32Type()), spec.lanes);
    Vec mean = row.reduce(0, plus, [&](Row::Piece piece) { return row.load(input, piece); }) / count;
    Vec variance = row.reduce(0, plus, [&](Row::Piece piece) {
      Vec difference = row.masked(row.load(input, piece) - mean, piece);
      return difference * difference;
    });
    Vec factor = 1.0 / sqrt(variance / count + row.splat(spec.epsilon));
    row.forEach([&](Row::Piece piece) {
      Vec normal = (row.load(input, piece) - mean) * factor, scales = row.loadShared(scale, piece);
      Vec result = spec.biasType ? fma(normal, scales, row.loadShared(bias, piece)) : normal * scales;
      row.store(result, output, piece);
    });
  };
  SmallVector<MemRefType> types{spec.type, spec.scaleType};
  if (spec.biasType)
    types.push_back(spec.biasType);
  types.push_back(spec.type);
  return emitRows(builder, loc, spec.symbol(), types, spec.axis, spec.lanes, emitRow);
}

} // namespace attn
