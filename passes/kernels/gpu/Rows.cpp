#include "passes/kernels/gpu/Rows.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/gpu/BlockBuilder.h"
#include <limits>

using namespace mlir;

namespace attn {
namespace {

using Values = LaneBuilder::Values;
constexpr int64_t kWarp = 32;

/// Rows of the trailing dimensions of buffers of one type, one at a time.
class RowEmitter {
public:
  RowEmitter(OpBuilder &b, Location loc, MemRefType type, int64_t axis) : k(b, loc), type(type), axis(axis) {
    int64_t known = 1;
    for (int64_t extent : type.getShape().drop_front(axis))
      known = ShapedType::isDynamic(known) || ShapedType::isDynamic(extent) ? ShapedType::kDynamic : known * extent;
    warps = ShapedType::isDynamic(known) ? 4 : known <= 1024 ? 1 : 8;
  }

  /// `row` emits the work of a thread on a row.
  func::FuncOp emit(StringRef symbol, TypeRange types, llvm::function_ref<void(ArrayRef<Value>)> row) {
    func::FuncOp function = k.function(symbol, types);
    Value buffer = function.getArgument(0), rows = k.index(1);
    size = k.index(1);
    for (int64_t n = 0; n < type.getRank(); ++n) {
      Value extent = k.b.createOrFold<memref::DimOp>(k.loc, buffer, n);
      (n < axis ? rows : size) = k.mul(n < axis ? rows : size, extent);
    }
    Values flat;
    for (Value argument : function.getArguments())
      flat.push_back(k.flatten(argument));
    int64_t rowsOfBlock = warps == 1 ? 4 : 1;
    Values shared = k.launch(k.ceilDiv(rows, rowsOfBlock), kWarp * warps * rowsOfBlock,
                             warps == 1 ? ArrayRef<int64_t>() : ArrayRef<int64_t>(warps));
    Value number = k.block;
    lane = k.thread;
    if (warps > 1) {
      partial = shared[0];
    } else {
      lane = k.rem(k.thread, k.index(kWarp));
      number = k.add(k.mul(k.block, rowsOfBlock), k.div(k.thread, k.index(kWarp)));
    }
    base = k.mul(number, size);
    if (warps > 1)
      row(flat);
    else
      k.branch(k.less(number, rows), [&] { row(flat); }); // all of a warp or none
    return function;
  }

  Value load(Value flat, Value element) { return k.loadWide(flat, k.add(base, element), 1)[0]; }
  void store(Value value, Value flat, Value element) {
    memref::StoreOp::create(k.b, k.loc, k.fromF32(value, type.getElementType()), flat, k.add(base, element));
  }
  void forEach(llvm::function_ref<void(Value)> body) { k.loop(lane, size, warps * kWarp, body); }
  /// `combine` over the `element`s of a row, the same in all threads.
  Value reduce(float start, llvm::function_ref<Value(Value, Value)> combine, llvm::function_ref<Value(Value)> element) {
    Value mine = k.loop(lane, size, warps * kWarp, k.scalar(start),
                        [&](Value n, ValueRange carried) { return Values{combine(carried[0], element(n))}; })[0];
    Value sum = k.acrossThreads(mine, kWarp, combine);
    if (warps == 1)
      return sum;
    k.barrier(); // all have read the last one's
    k.branch(k.b.createOrFold<arith::CmpIOp>(k.loc, arith::CmpIPredicate::eq, k.rem(lane, k.index(kWarp)), k.index(0)),
             [&] { memref::StoreOp::create(k.b, k.loc, sum, partial, k.div(lane, k.index(kWarp))); });
    k.barrier();
    Values parts;
    for (int64_t n = 0; n < warps; ++n)
      parts.push_back(k.load(partial, k.index(n)));
    return k.tree(parts, combine);
  }

  BlockBuilder k;
  Value size, base;

private:
  MemRefType type;
  int64_t axis, warps;
  Value lane, partial;
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
  OpBuilder::InsertionGuard guard(builder);
  RowEmitter rows(builder, loc, spec.type, spec.type.getRank() - 1);
  BlockBuilder &k = rows.k;
  return rows.emit(symbol, {spec.type, spec.type}, [&](ArrayRef<Value> buffers) {
    Value input = buffers[0], output = buffers[1];
    auto max = [&](Value x, Value y) { return k.greater(x, y); };
    auto add = [&](Value x, Value y) { return k.addf(x, y); };
    auto exponential = [&](Value n, Value top) -> Value {
      return math::ExpOp::create(k.b, k.loc, k.subf(rows.load(input, n), top));
    };
    Value top = rows.reduce(-std::numeric_limits<float>::infinity(), max, [&](Value n) { return rows.load(input, n); });
    Value sum = rows.reduce(0, add, [&](Value n) { return exponential(n, top); });
    Value last = spec.log ? math::LogOp::create(k.b, k.loc, sum).getResult() : k.divf(k.scalar(1), sum);
    rows.forEach([&](Value n) {
      // (x - max) - log(sum), not x - (max + log(sum)): a large maximum cancels.
      Value result = spec.log ? k.subf(k.subf(rows.load(input, n), top), last) : k.mulf(exponential(n, top), last);
      rows.store(result, output, n);
    });
  });
}

func::FuncOp buildGpuLayerNorm(OpBuilder &builder, Location loc, StringRef symbol, const LayerNormSpec &spec) {
  OpBuilder::InsertionGuard guard(builder);
  RowEmitter rows(builder, loc, spec.type, spec.axis);
  BlockBuilder &k = rows.k;
  SmallVector<Type> types{spec.type, spec.scaleType};
  if (spec.biasType)
    types.push_back(spec.biasType);
  types.push_back(spec.type);
  return rows.emit(symbol, types, [&](ArrayRef<Value> buffers) {
    Value input = buffers[0], scale = buffers[1], bias = spec.biasType ? buffers[2] : Value(), output = buffers.back();
    auto add = [&](Value x, Value y) { return k.addf(x, y); };
    Value count = arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), rows.size);
    count = arith::SIToFPOp::create(k.b, k.loc, k.b.getF32Type(), count);
    Value mean = k.divf(rows.reduce(0, add, [&](Value n) { return rows.load(input, n); }), count);
    Value variance = rows.reduce(0, add, [&](Value n) {
      Value difference = k.subf(rows.load(input, n), mean);
      return k.mulf(difference, difference);
    });
    variance = k.addf(k.divf(variance, count), k.scalar(spec.epsilon));
    Value factor = k.divf(k.scalar(1), math::SqrtOp::create(k.b, k.loc, variance));
    rows.forEach([&](Value n) {
      Value normal = k.mulf(k.subf(rows.load(input, n), mean), factor), scales = k.loadWide(scale, n, 1)[0];
      Value result = bias ? k.fma(normal, scales, k.loadWide(bias, n, 1)[0]) : k.mulf(normal, scales);
      rows.store(result, output, n);
    });
  });
}

} // namespace attn
