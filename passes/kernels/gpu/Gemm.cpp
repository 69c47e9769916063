#include "passes/kernels/gpu/Gemm.h"

#include "passes/kernels/gpu/GemmEmitter.h"
#include "passes/kernels/gpu/Warpgroups.h"

using namespace mlir;

namespace attn {

/// Elements that a thread rounds.
constexpr int64_t kRounded = 8;

func::FuncOp buildGpuGemm(OpBuilder &builder, Location loc, const GpuGemmSpec &spec) {
  KernelFunction f(builder, loc, spec.symbol());
  Code &k = f.k;
  SmallVector<Buffer> buffers;
  auto take = [&](MemRefType type) { buffers.push_back(f.buffer(type)); };
  take(spec.left), take(spec.right);
  llvm::for_each(spec.operands, take);
  take(spec.result);
  auto isSplit = [](const std::optional<GpuGemmSpec::Lines> &lines) { return lines && lines->splits > 1; };
  bool hasScratch = spec.hasPackedSide() || spec.hasRoundedFactor || isSplit(spec.lines) || isSplit(spec.singleLines);
  Buffer scratch = hasScratch ? f.buffer({ShapedType::kDynamic}, builder.getF32Type()) : Buffer();
  auto emitTiles = [&] {
    if (!spec.warpgroupColumns)
      return GpuGemmEmitter(builder, loc, spec, spec.tile).emitLaunch(buffers);
    ThreadCode(builder, loc)
        .whenSm90a(
            spec.sm90a, [&] { emitWarpgroupsGemm(builder, loc, spec, buffers, scratch); },
            [&] { GpuGemmEmitter(builder, loc, spec, spec.tile).emitLaunch(buffers); });
  };
  auto emitLines = [&] { emitGemv(builder, loc, spec, buffers, scratch); };
  if (!spec.lines) {
    emitTiles();
  } else if (!spec.hasTiles) {
    emitLines();
  } else {
    Index rows = GpuGemmEmitter(builder, loc, spec, spec.tile).countOuter(buffers, spec.lines->isFewLeft ? 0 : 1);
    Mask isFew = (0 < rows) & (rows < GpuGemmSpec::kFewRows + 1);
    auto emitSingle = [&] {
      GpuGemmSpec single = spec;
      single.lines = spec.singleLines;
      emitGemv(builder, loc, single, buffers, scratch);
    };
    k.when(isFew, [&] { k.when(rows < 2, emitSingle, emitLines); }, emitTiles);
    builder.getInsertionBlock()->getTerminator()->getPrevNode()->setAttr(kFewRowsAttr, builder.getUnitAttr());
  }
  return f.function;
}

Value countGpuGemmScratch(OpBuilder &builder, Location loc, const GpuGemmSpec &spec,
                          llvm::function_ref<Value(unsigned)> sizeOf) {
  Code k(builder, loc);
  auto product = [&](ArrayRef<unsigned> dims) {
    Index result = k.index(1);
    for (unsigned dim : dims)
      result = result * k.asIndex(sizeOf(dim));
    return result;
  };
  auto padded = [&](Index size, int64_t step) { return ceilDiv(size, step) * step; };
  Index elements;
  auto atLeast = [&](Index more) { elements = elements.value() ? maximum(elements, more) : more; };
  for (const auto &lines : {spec.lines, spec.singleLines})
    if (lines && lines->splits > 1) {
      Index columns = product(lines->isFewLeft ? spec.columns : spec.rows);
      atLeast(product(spec.batch) * columns * (lines->splits * lines->rows));
    }
  if (spec.hasRoundedFactor) {
    bool isLeft = spec.left.getElementType().isF32();
    Index count = product(spec.batch) * (product(isLeft ? spec.rows : spec.columns) * product(spec.sums));
    atLeast(ceilDiv(count, kRounded) * (kRounded / 2));
  }
  if (!spec.hasPackedSide())
    return elements;
  Index outer = k.index(0);
  if (!spec.isTiled(/*isLeft=*/true))
    outer = outer + padded(product(spec.rows), GpuGemmSpec::kWarpgroupRows);
  if (!spec.isTiled(/*isLeft=*/false) && !spec.hasFloat8())
    outer = outer + padded(product(spec.columns), spec.warpgroupColumns);
  // Two elements of 16 bits each.
  Index perBatch = outer * (ceilDiv(product(spec.sums), Warpgroups::kPanel) * (Warpgroups::kPanel / 2));
  atLeast(product(spec.batch) * perBatch);
  return elements;
}

void emitRounding(OpBuilder &builder, Location loc, Value buffer, Value scratch, Precision precision) {
  OpBuilder::InsertionGuard guard(builder);
  constexpr int64_t kThreads = 256;
  ThreadCode k(builder, loc);
  Buffer from = k.asBuffer(buffer), to = k.asBuffer(scratch);
  Index count = k.index(1);
  for (int64_t n = 0; n < from.memref().getRank(); ++n)
    count = count * from.dim(n);
  Buffer flat = from.flat();
  k.launch(ceilDiv(count, kThreads * kRounded), kThreads, {});
  Index first = (k.block * kThreads + k.thread) * kRounded;
  auto store = [&](ArrayRef<Num> values) {
    Nums words;
    for (size_t n = 0; n < values.size(); n += 4)
      for (Num pair : k.packed(values.slice(n, 4), precision))
        words.push_back(k.asFloat(pair));
    k.store4(words, to, first / 2);
  };
  auto whole = [&] {
    Nums values = k.load4(flat, first);
    values.append(k.load4(flat, first + 4));
    store(values);
  };
  // Behind the last one scratch gets zeros.
  auto tail = [&] {
    Nums values;
    for (int64_t n = 0; n < kRounded; ++n) {
      Index at = first + n;
      Mask isInside = at < count;
      values.push_back(select(isInside, flat(select(isInside, at, k.index(0))), k.f32(0)));
    }
    store(values);
  };
  k.when(first < count, [&] { k.when(first + (kRounded - 1) < count, whole, tail); });
}

} // namespace attn
