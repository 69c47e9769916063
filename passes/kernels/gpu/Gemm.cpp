#include "passes/kernels/gpu/Gemm.h"

#include "passes/kernels/gpu/GemmEmitter.h"
#include "passes/kernels/gpu/Warpgroups.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

/// Elements that a thread rounds.
constexpr int64_t kRounded = 8;

func::FuncOp buildGpuGemm(OpBuilder &builder, Location loc, const GpuGemmSpec &spec) {
  OpBuilder::InsertionGuard guard(builder);
  BlockBuilder k(builder, loc);
  SmallVector<Type> types = {spec.left, spec.right};
  types.append(spec.operands.begin(), spec.operands.end());
  types.push_back(spec.result);
  bool hasScratch = spec.warpgroupColumns || spec.hasRoundedFactor || (spec.lines && spec.lines->splits > 1);
  if (hasScratch)
    types.push_back(MemRefType::get({ShapedType::kDynamic}, builder.getF32Type()));
  func::FuncOp function = k.function(spec.symbol(), types);
  ValueRange buffers = function.getArguments();
  Value scratch = hasScratch ? buffers.back() : Value();
  buffers = buffers.drop_back(hasScratch);
  auto emitTiles = [&] {
    if (!spec.warpgroupColumns)
      return GpuGemmEmitter(builder, loc, spec, spec.tile).emitLaunch(buffers);
    k.branchOnSm90a(
        spec.sm90a, [&] { emitWarpgroupsGemm(builder, loc, spec, buffers, scratch); },
        [&] { GpuGemmEmitter(builder, loc, spec, spec.tile).emitLaunch(buffers); });
  };
  auto emitLines = [&] { emitGemv(builder, loc, spec, buffers, scratch); };
  if (!spec.lines) {
    emitTiles();
  } else if (!spec.hasTiles) {
    emitLines();
  } else {
    Value rows = GpuGemmEmitter(builder, loc, spec, spec.tile).countOuter(buffers, spec.lines->isFewLeft ? 0 : 1);
    Value isFew = k.both(k.less(k.index(0), rows), k.less(rows, k.index(GpuGemmSpec::kFewRows + 1)));
    k.branch(isFew, emitLines, emitTiles);
    k.b.getInsertionBlock()->getTerminator()->getPrevNode()->setAttr(kFewRowsAttr, builder.getUnitAttr());
  }
  return function;
}

Value countGpuGemmScratch(OpBuilder &builder, Location loc, const GpuGemmSpec &spec,
                          llvm::function_ref<Value(unsigned)> sizeOf) {
  BlockBuilder k(builder, loc);
  auto product = [&](ArrayRef<unsigned> dims) {
    Value result = k.index(1);
    for (unsigned dim : dims)
      result = k.mul(result, sizeOf(dim));
    return result;
  };
  auto padded = [&](Value size, int64_t step) { return k.mul(k.ceilDiv(size, step), step); };
  Value elements;
  if (spec.lines && spec.lines->splits > 1) {
    Value columns = product(spec.lines->isFewLeft ? spec.columns : spec.rows);
    elements = k.mul(k.mul(product(spec.batch), columns), spec.lines->splits * spec.lines->rows);
  }
  auto atLeast = [&](Value more) { elements = elements ? k.max(elements, more) : more; };
  if (spec.hasRoundedFactor) {
    bool isLeft = spec.left.getElementType().isF32();
    Value count = k.mul(product(spec.batch), k.mul(product(isLeft ? spec.rows : spec.columns), product(spec.sums)));
    atLeast(k.mul(k.ceilDiv(count, kRounded), kRounded / 2));
  }
  if (!spec.warpgroupColumns)
    return elements;
  Value outer = k.add(padded(product(spec.rows), GpuGemmSpec::kWarpgroupRows),
                      padded(product(spec.columns), spec.warpgroupColumns));
  // Two elements of 16 bits each.
  Value perBatch = k.mul(outer, k.mul(k.ceilDiv(product(spec.sums), Warpgroups::kPanel), Warpgroups::kPanel / 2));
  atLeast(k.mul(product(spec.batch), perBatch));
  return elements;
}

void emitRounding(OpBuilder &builder, Location loc, Value buffer, Value scratch, Precision precision) {
  OpBuilder::InsertionGuard guard(builder);
  constexpr int64_t kThreads = 256;
  BlockBuilder k(builder, loc);
  Value count = k.index(1);
  for (int64_t n = 0; n < cast<MemRefType>(buffer.getType()).getRank(); ++n)
    count = k.mul(count, builder.createOrFold<memref::DimOp>(loc, buffer, n));
  Value flat = k.flatten(buffer);
  k.launch(k.ceilDiv(count, kThreads * kRounded), kThreads, {});
  Value first = k.mul(k.add(k.mul(k.block, kThreads), k.thread), kRounded);
  auto store = [&](ArrayRef<Value> values) {
    BlockBuilder::Values words;
    for (size_t n = 0; n < values.size(); n += 4)
      for (Value pair : k.packed(values.slice(n, 4), precision))
        words.push_back(k.bitcast(pair, builder.getF32Type()));
    k.store4(words, scratch, k.div(first, k.index(2)));
  };
  auto whole = [&] {
    BlockBuilder::Values values = k.load4(flat, first);
    values.append(k.load4(flat, k.add(first, 4)));
    store(values);
  };
  // Behind the last one scratch gets zeros.
  auto tail = [&] {
    BlockBuilder::Values values;
    for (int64_t n = 0; n < kRounded; ++n) {
      Value at = k.add(first, n), isInside = k.less(at, count);
      values.push_back(k.select(isInside, k.load(flat, k.select(isInside, at, k.index(0))), k.scalar(0)));
    }
    store(values);
  };
  k.branch(k.less(first, count), [&] { k.branch(k.less(k.add(first, kRounded - 1), count), whole, tail); });
}

} // namespace attn
