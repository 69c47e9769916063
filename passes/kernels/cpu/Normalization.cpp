#include "passes/kernels/cpu/Normalization.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/cpu/KernelAttrs.h"
#include "passes/kernels/cpu/LaneBuilder.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {
namespace {

using Values = LaneBuilder::Values;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// Vectors a sweep handles at once, each with its own accumulator: the latency
/// of an addition is 4 cycles, two start each cycle.
constexpr int64_t kUnroll = 4;

/// A row of `size` elements, swept in registers with a masked tail.
class Row {
public:
  Row(LaneBuilder &k, Value size) : k(k), size(size) {}

  /// Some elements of the row: `lanes` from `first` on, or `count` where given.
  struct Piece {
    Value first, count;
  };

  /// Of `flat`, a row of which starts at `base`; lanes beyond the row hold `fill`.
  Value load(Value flat, Value base, Piece piece, float fill = 0) {
    Value offset = k.add(base, piece.first);
    if (!piece.count)
      return k.loadVector(flat, offset);
    Value loaded = k.loadFirst(flat, offset, piece.count, k.lanes);
    if (fill == 0)
      return loaded;
    auto maskType = VectorType::get({k.lanes}, k.b.getI1Type());
    Value mask = vector::CreateMaskOp::create(k.b, k.loc, maskType, piece.count);
    return k.select(mask, loaded, k.splat(fill));
  }
  void store(Value vector, Value flat, Value base, Piece piece) {
    Value offset = k.add(base, piece.first);
    if (piece.count)
      k.storeFirst(vector, flat, offset, piece.count);
    else
      k.store(vector, flat, offset);
  }
  /// `vector` with 0 in the lanes beyond the row.
  Value masked(Value vector, Piece piece) {
    if (!piece.count)
      return vector;
    auto maskType = VectorType::get({k.lanes}, k.b.getI1Type());
    return k.select(vector::CreateMaskOp::create(k.b, k.loc, maskType, piece.count), vector, k.splat(0));
  }

  /// `body` for each piece of the row.
  void forEach(llvm::function_ref<void(Piece)> body) {
    Value whole = k.floorTo(size, k.lanes);
    k.loop(k.index(0), whole, k.lanes, [&](Value first) { body({first, Value()}); });
    if (hasTail())
      k.branch(k.less(whole, size), [&] { body({whole, k.sub(size, whole)}); });
  }

  /// `combine` over all that `body` gives, in every lane; `neutral` of nothing.
  Value reduce(float neutral, llvm::function_ref<Value(Value, Value)> combine, llvm::function_ref<Value(Piece)> body) {
    Value wide = k.floorTo(size, kUnroll * k.lanes), whole = k.floorTo(size, k.lanes);
    Values sums(kUnroll, k.splat(neutral));
    sums = k.loop(k.index(0), wide, kUnroll * k.lanes, sums, [&](Value first, ValueRange carried) {
      Values next;
      for (auto [n, sum] : llvm::enumerate(carried))
        next.push_back(combine(sum, body({k.add(first, n * k.lanes), Value()})));
      return next;
    });
    Values sum{k.tree(sums, combine)};
    sum = k.loop(wide, whole, k.lanes, sum, [&](Value first, ValueRange carried) -> Values {
      return {combine(carried.front(), body({first, Value()}))};
    });
    if (hasTail())
      sum = k.branch(
          k.less(whole, size), k.vectorType(),
          [&]() -> Values { return {combine(sum.front(), body({whole, k.sub(size, whole)}))}; }, [&] { return sum; });
    return k.acrossLanes(sum.front(), combine);
  }

private:
  bool hasTail() {
    std::optional<int64_t> known = LaneBuilder::constant(size);
    return !known || *known % k.lanes;
  }

  LaneBuilder &k;
  Value size;
};

/// The product of the dimensions [first, end) of `buffer`.
Value countElements(LaneBuilder &k, Value buffer, int64_t first, int64_t end) {
  Value count = k.index(1);
  for (int64_t n = first; n < end; ++n)
    count = k.mul(count, k.b.createOrFold<memref::DimOp>(k.loc, buffer, n));
  return count;
}

/// A kernel of `types` whose rows, the dimensions before `axis` of its first
/// argument, `emitRow` handles one by one.
func::FuncOp emitRows(OpBuilder &builder, Location loc, StringRef symbol, ArrayRef<Type> types, int64_t axis,
                      int64_t lanes,
                      llvm::function_ref<void(LaneBuilder &, ValueRange buffers, Value size, Value base)> emitRow) {
  auto function = func::FuncOp::create(builder, loc, symbol, builder.getFunctionType(types, {}));
  function->setAttr(AttnDialect::kKernelAttr, builder.getUnitAttr());
  function->setAttr(kPollsAttr, builder.getUnitAttr());
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(function.addEntryBlock());
  LaneBuilder k(builder, loc, lanes, /*hasScalef=*/lanes == 16);
  Value input = function.getArgument(0);
  Value rows = countElements(k, input, 0, axis);
  scf::ParallelOp::create(builder, loc, ValueRange{k.index(0)}, ValueRange{rows}, ValueRange{k.index(1)},
                          [&](OpBuilder &, Location, ValueRange position) {
                            Value size = countElements(k, input, axis, cast<MemRefType>(types[0]).getRank());
                            auto flat = llvm::map_to_vector(function.getArguments(),
                                                            [&](Value buffer) { return k.flatten(buffer); });
                            emitRow(k, flat, size, k.mul(position[0], size));
                          });
  func::ReturnOp::create(builder, loc);
  return function;
}

std::string shapeText(MemRefType type) {
  std::string text;
  for (int64_t size : type.getShape())
    text += (text.empty() ? "" : "x") + (ShapedType::isDynamic(size) ? std::string("n") : std::to_string(size));
  return text;
}

bool fail(std::string *reason, const Twine &text) {
  if (reason)
    *reason = text.str();
  return false;
}

MemRefType bufferOf(Value tensor) {
  auto type = cast<RankedTensorType>(tensor.getType());
  return MemRefType::get(type.getShape(), type.getElementType());
}

} // namespace

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

RowSoftmaxSpec RowSoftmaxSpec::get(SoftmaxOp op, TargetAttr target) {
  return {bufferOf(op.getInput()), op.getLog(), target.getF32Lanes()};
}

std::string RowSoftmaxSpec::symbol() const {
  return llvm::formatv("{0}softmax_{1}_{2}_v{3}", log ? "log_" : "", type.getElementType(), shapeText(type), lanes);
}

bool canBuildRowSoftmax(const RowSoftmaxSpec &spec, std::string *reason) {
  if (!spec.type.getElementType().isF32())
    return fail(reason, "only f32 has a kernel so far");
  if (spec.type.getRank() == 0)
    return fail(reason, "a scalar has no rows");
  return true;
}

FailureOr<func::FuncOp> buildRowSoftmax(OpBuilder &builder, Location loc, const RowSoftmaxSpec &spec) {
  std::string reason;
  if (!canBuildRowSoftmax(spec, &reason))
    return emitError(loc, "cannot build a softmax kernel: ") << reason;
  auto emitRow = [&](LaneBuilder &k, ValueRange buffers, Value size, Value base) {
    Value input = buffers[0], output = buffers[1];
    Row row(k, size);
    auto max = [&](Value x, Value y) { return k.maxf(x, y); };
    auto add = [&](Value x, Value y) { return k.addf(x, y); };
    Value top = row.reduce(-kInfinity, max, [&](Row::Piece piece) { return row.load(input, base, piece, -kInfinity); });
    Value sum = row.reduce(0, add, [&](Row::Piece piece) {
      Value shifted = k.subf(row.load(input, base, piece, -kInfinity), top);
      Value exp = math::ExpOp::create(k.b, k.loc, shifted);
      if (!spec.log)
        row.store(exp, output, base, piece);
      return row.masked(exp, piece); // where all is -inf, exp is NaN beyond the row too
    });
    Value last = spec.log ? math::LogOp::create(k.b, k.loc, sum).getResult() : k.divf(k.splat(1), sum);
    row.forEach([&](Row::Piece piece) {
      // (x - max) - log(sum), not x - (max + log(sum)): a large maximum cancels.
      Value result = spec.log ? k.subf(k.subf(row.load(input, base, piece), top), last)
                              : k.mulf(row.load(output, base, piece), last);
      row.store(result, output, base, piece);
    });
  };
  return emitRows(builder, loc, spec.symbol(), {spec.type, spec.type}, spec.type.getRank() - 1, spec.lanes, emitRow);
}

//===----------------------------------------------------------------------===//
// Layer normalisation
//===----------------------------------------------------------------------===//

LayerNormSpec LayerNormSpec::get(LayerNormOp op, TargetAttr target) {
  LayerNormSpec spec;
  spec.type = bufferOf(op.getInput());
  spec.scaleType = bufferOf(op.getScale());
  if (op.getBias())
    spec.biasType = bufferOf(op.getBias());
  spec.axis = op.getAxis();
  spec.epsilon = op.getEpsilon().convertToFloat();
  spec.lanes = target.getF32Lanes();
  return spec;
}

std::string LayerNormSpec::symbol() const {
  return llvm::formatv("layer_norm_{0}_{1}_a{2}_s{3}_{4}_eps{5:x-}_v{6}", type.getElementType(), shapeText(type), axis,
                       shapeText(scaleType), biasType ? "b" + shapeText(biasType) : "nobias",
                       APFloat(epsilon).bitcastToAPInt().getZExtValue(), lanes);
}

bool canBuildLayerNorm(const LayerNormSpec &spec, std::string *reason) {
  for (MemRefType type : {spec.type, spec.scaleType, spec.biasType})
    if (type && !type.getElementType().isF32())
      return fail(reason, "only f32 has a kernel so far");
  if (spec.axis < 0 || spec.axis >= spec.type.getRank())
    return fail(reason, "axis " + Twine(spec.axis) + " is outside of a tensor of rank " + Twine(spec.type.getRank()));
  return true;
}

FailureOr<func::FuncOp> buildLayerNorm(OpBuilder &builder, Location loc, const LayerNormSpec &spec) {
  std::string reason;
  if (!canBuildLayerNorm(spec, &reason))
    return emitError(loc, "cannot build a layer normalisation kernel: ") << reason;
  auto emitRow = [&](LaneBuilder &k, ValueRange buffers, Value size, Value base) {
    Value input = buffers[0], scale = buffers[1], bias = spec.biasType ? buffers[2] : Value(), output = buffers.back();
    Row row(k, size);
    auto add = [&](Value x, Value y) { return k.addf(x, y); };
    Value count = arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), size);
    count = k.broadcast(arith::SIToFPOp::create(k.b, k.loc, k.b.getF32Type(), count));
    Value mean = row.reduce(0, add, [&](Row::Piece piece) { return row.load(input, base, piece); });
    mean = k.divf(mean, count);
    Value variance = row.reduce(0, add, [&](Row::Piece piece) {
      Value difference = row.masked(k.subf(row.load(input, base, piece), mean), piece);
      return k.mulf(difference, difference);
    });
    variance = k.addf(k.divf(variance, count), k.splat(spec.epsilon));
    Value factor = k.divf(k.splat(1), math::SqrtOp::create(k.b, k.loc, variance));
    Value zero = k.index(0);
    row.forEach([&](Row::Piece piece) {
      Value normal = k.mulf(k.subf(row.load(input, base, piece), mean), factor);
      Value scales = row.load(scale, zero, piece);
      Value result = bias ? k.fma(normal, scales, row.load(bias, zero, piece)) : k.mulf(normal, scales);
      row.store(result, output, base, piece);
    });
  };
  SmallVector<Type> types{spec.type, spec.scaleType};
  if (spec.biasType)
    types.push_back(spec.biasType);
  types.push_back(spec.type);
  return emitRows(builder, loc, spec.symbol(), types, spec.axis, spec.lanes, emitRow);
}

} // namespace attn
