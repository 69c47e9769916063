#include "passes/kernels/gpu/Rows.h"

#include "passes/kernels/gpu/ThreadCode.h"
#include <limits>

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kWarp = 32;

Num greater(const Num &x, const Num &y) { return maximum(x, y); }
Num plus(const Num &x, const Num &y) { return x + y; }

/// Rows of the trailing dimensions of buffers of one type, one at a time.
class RowEmitter {
public:
  RowEmitter(OpBuilder &b, Location loc, StringRef symbol, MemRefType type, int64_t axis)
      : f(b, loc, symbol), k(b, loc), type(type), axis(axis) {
    int64_t known = 1;
    for (int64_t extent : type.getShape().drop_front(axis))
      known = ShapedType::isDynamic(known) || ShapedType::isDynamic(extent) ? ShapedType::kDynamic : known * extent;
    warps = ShapedType::isDynamic(known) ? 4 : known <= 1024 ? 1 : 8;
  }

  /// `row` emits the work of a thread on a row of buffers of `types`, the first of which has all rows.
  func::FuncOp emit(ArrayRef<MemRefType> types, llvm::function_ref<void(ArrayRef<Buffer>)> row) {
    auto buffers = llvm::map_to_vector(types, [&](MemRefType type) { return f.buffer(type); });
    Index rows = k.index(1);
    size = k.index(1);
    for (int64_t n = 0; n < type.getRank(); ++n)
      (n < axis ? rows : size) = (n < axis ? rows : size) * buffers[0].dim(n);
    auto flat = llvm::map_to_vector(buffers, [](const Buffer &buffer) { return buffer.flat(); });
    int64_t rowsOfBlock = warps == 1 ? 4 : 1;
    SmallVector<Buffer> shared = k.launch(ceilDiv(rows, rowsOfBlock), kWarp * warps * rowsOfBlock,
                                          warps == 1 ? ArrayRef<int64_t>() : ArrayRef<int64_t>(warps));
    lane = warps > 1 ? k.thread : k.thread % kWarp;
    Index number = warps > 1 ? k.block : k.block * rowsOfBlock + k.thread / kWarp;
    if (warps > 1)
      partial = shared[0];
    base = number * size;
    if (warps > 1)
      row(flat);
    else
      k.when(number < rows, [&] { row(flat); }); // all of a warp or none
    return f.function;
  }

  Num load(const Buffer &flat, Index element) { return read(flat, base + element); }
  Num read(const Buffer &flat, Index at) { return convert(flat(at), k.b.getF32Type()); }
  void store(const Num &x, const Buffer &flat, Index element) {
    flat.set(convert(x, type.getElementType()), base + element);
  }
  void forEach(llvm::function_ref<void(Index)> body) { k.rolledLoop(lane, size, warps * kWarp, body); }
  /// `combine` over the `element`s of a row, the same in all k.
  Num reduce(double start, Num (*combine)(const Num &, const Num &), llvm::function_ref<Num(Index)> element) {
    Num mine = k.rolledLoop(lane, size, warps * kWarp, k.f32(start),
                            [&](Index n, Num sum) { return combine(sum, element(n)); });
    Num sum = k.asNum(
        k.acrossThreads(mine, kWarp, [&](Value x, Value y) -> Value { return combine(k.asNum(x), k.asNum(y)); }));
    if (warps == 1)
      return sum;
    k.barrier(); // all have read the last one's
    k.when(lane % kWarp == 0, [&] { partial.set(sum, lane / kWarp); });
    k.barrier();
    SmallVector<Num> parts;
    for (int64_t n = 0; n < warps; ++n)
      parts.push_back(partial(n));
    return tree<Num>(parts, combine);
  }

private:
  KernelFunction f;

public:
  ThreadCode k;
  Index size;

private:
  MemRefType type;
  int64_t axis, warps;
  Index base, lane;
  Buffer partial;
};

} // namespace

bool canBuildGpuRows(MemRefType type, std::string &reason) {
  Type element = type.getElementType();
  if (element.isF32() || element.isF16() || element.isBF16())
    return true;
  reason = "only f32, f16 and bf16 have a kernel so far";
  return false;
}

func::FuncOp buildGpuRowSoftmax(OpBuilder &builder, Location loc, StringRef symbol, const RowSoftmaxSpec &spec) {
  RowEmitter rows(builder, loc, symbol, spec.type, spec.type.getRank() - 1);
  return rows.emit({spec.type, spec.type}, [&](ArrayRef<Buffer> buffers) {
    Buffer input = buffers[0], output = buffers[1];
    auto exponential = [&](Index n, Num top) { return exp(rows.load(input, n) - top); };
    Num top =
        rows.reduce(-std::numeric_limits<double>::infinity(), greater, [&](Index n) { return rows.load(input, n); });
    Num sum = rows.reduce(0, plus, [&](Index n) { return exponential(n, top); });
    Num last = spec.log ? log(sum) : 1.0 / sum;
    rows.forEach([&](Index n) {
      // (x - max) - log(sum), not x - (max + log(sum)): a large maximum cancels.
      Num result = spec.log ? rows.load(input, n) - top - last : exponential(n, top) * last;
      rows.store(result, output, n);
    });
  });
}

func::FuncOp buildGpuLayerNorm(OpBuilder &builder, Location loc, StringRef symbol, const LayerNormSpec &spec) {
  RowEmitter rows(builder, loc, symbol, spec.type, spec.axis);
  Code &k = rows.k;
  SmallVector<MemRefType> types{spec.type, spec.scaleType};
  if (spec.biasType)
    types.push_back(spec.biasType);
  types.push_back(spec.type);
  return rows.emit(types, [&](ArrayRef<Buffer> buffers) {
    Buffer input = buffers[0], scale = buffers[1], bias = buffers[2], output = buffers.back();
    Num count = convert(toNum(rows.size, k.b.getI64Type()), k.b.getF32Type());
    Num mean = rows.reduce(0, plus, [&](Index n) { return rows.load(input, n); }) / count;
    Num variance = rows.reduce(0, plus, [&](Index n) {
      Num difference = rows.load(input, n) - mean;
      return difference * difference;
    });
    Num factor = 1.0 / sqrt(variance / count + k.f32(spec.epsilon));
    rows.forEach([&](Index n) {
      Num normal = (rows.load(input, n) - mean) * factor, scales = rows.read(scale, n);
      rows.store(spec.biasType ? fma(normal, scales, rows.read(bias, n)) : normal * scales, output, n);
    });
  });
}

} // namespace attn
