#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/kernels/cpu/Recurrent.h"
#include "passes/lowering/cpu/KernelCall.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"

namespace attn {
#define GEN_PASS_DEF_LOWERRECURRENTPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

class RecurrentLowering {
public:
  RecurrentLowering(ModuleOp module, WeightStorage weights)
      : symbols(module), globals(module, symbols), kernels(module), target(TargetAttr::lookup(module)),
        weights(weights), b(module.getContext()) {}

  void lower(const RecurrentLayer &layer);

private:
  std::optional<std::string> refusal(const RecurrentLayer &layer, const RecurrentSpec &spec);
  Value project(const RecurrentLayer &layer);
  Value inputBias(const RecurrentLayer &layer);
  Value resetBias(const RecurrentLayer &layer);
  /// How a gate of `units` units a panel is packed.
  using PackFn = function_ref<Attribute(FlatSymbolRefAttr gate, int64_t units)>;
  Value packedWeight(FlatSymbolRefAttr source, const RecurrentSpec &spec, const RecurrentSpec::Sweep &sweep,
                     RankedTensorType type, PackFn pack);
  SmallVector<Value> packedWeights(FlatSymbolRefAttr source, const RecurrentSpec &spec);
  FlatSymbolRefAttr derive(StringRef name, RankedTensorType type, Attribute expression) {
    return globals.get(name, type, expression, loc);
  }
  Value generic(ArrayRef<OpFoldResult> sizes, ValueRange inputs, ArrayRef<AffineMap> maps,
                function_ref<Value(OpBuilder &, ValueRange)> body);

  static remark::RemarkOpts remarkNamed(StringRef name) {
    return remark::RemarkOpts::name(name).category("attn-lower-recurrent");
  }

  SymbolTable symbols;
  DerivedGlobals globals;
  KernelTable kernels;
  TargetAttr target;
  WeightStorage weights;
  IRRewriter b;
  Location loc = UnknownLoc::get(b.getContext());
};

/// Why the layer has no kernel.
std::optional<std::string> RecurrentLowering::refusal(const RecurrentLayer &layer, const RecurrentSpec &spec) {
  std::string reason;
  if (!layer.elementType().isF32())
    return "only f32 has a kernel so far";
  if (!layer.recurrence.getDefiningOp<WeightOp>())
    return "its recurrent weights are no constant above 1 KiB";
  if (layer.direction == Direction::bidirectional)
    for (int64_t n = 0; n < layer.numFunctions(); ++n)
      if (layer.activation(0, n) != layer.activation(1, n))
        return "its directions have different activations";
  if (!canBuildRecurrent(spec, &reason))
    return reason;
  return std::nullopt;
}

Value RecurrentLowering::generic(ArrayRef<OpFoldResult> sizes, ValueRange inputs, ArrayRef<AffineMap> maps,
                                 function_ref<Value(OpBuilder &, ValueRange)> body) {
  Value empty = tensor::EmptyOp::create(b, loc, sizes, b.getF32Type());
  SmallVector<AffineMap> all(maps);
  all.push_back(b.getMultiDimIdentityMap(sizes.size()));
  SmallVector<utils::IteratorType> loops(sizes.size(), utils::IteratorType::parallel);
  return linalg::GenericOp::create(b, loc, empty.getType(), inputs, empty, all, loops,
                                   [&](OpBuilder &b, Location, ValueRange args) {
                                     linalg::YieldOp::create(b, loc, body(b, args.drop_back()));
                                   })
      .getResult(0);
}

/// The biases that are added to the projected input, D x G*H, or null. Not the
/// one inside the reset of a GRU.
Value RecurrentLowering::inputBias(const RecurrentLayer &layer) {
  if (!layer.bias)
    return {};
  int64_t directions = layer.numDirections(), rows = layer.numGates() * layer.hiddenSize();
  // In a loop a sum of constants would be taken in each round.
  if (DenseElementsAttr known; matchPattern(layer.bias, m_Constant(&known)) && known.getElementType().isF32()) {
    auto values = known.getValues<float>();
    SmallVector<float> sums;
    for (int64_t d = 0; d < directions; ++d)
      for (int64_t n = 0; n < rows; ++n) {
        bool isInReset = layer.linearBeforeReset && n >= 2 * layer.hiddenSize();
        sums.push_back(values[2 * d * rows + n] + (isInReset ? 0 : values[(2 * d + 1) * rows + n]));
      }
    auto type = RankedTensorType::get({directions, rows}, b.getF32Type());
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<float>(sums)));
  }
  auto part = [&](int64_t first) -> Value {
    SmallVector<OpFoldResult> offsets{b.getIndexAttr(0), b.getIndexAttr(first)},
        sizes{b.getIndexAttr(directions), b.getIndexAttr(rows)}, strides(2, b.getIndexAttr(1));
    return tensor::ExtractSliceOp::create(b, loc, layer.bias, offsets, sizes, strides);
  };
  AffineMap identity = b.getMultiDimIdentityMap(2);
  return generic({b.getIndexAttr(directions), b.getIndexAttr(rows)}, {part(0), part(rows)}, {identity, identity},
                 [&](OpBuilder &b, ValueRange args) -> Value {
                   Value second = args[1];
                   if (layer.linearBeforeReset) {
                     Value limit = arith::ConstantIndexOp::create(b, loc, 2 * layer.hiddenSize());
                     Value gate = linalg::IndexOp::create(b, loc, 1);
                     Value isOther = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, gate, limit);
                     Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
                     second = arith::SelectOp::create(b, loc, isOther, second, zero);
                   }
                   return arith::AddFOp::create(b, loc, args[0], second);
                 });
}

/// input * weight^T + biases, in the order of the input's dimensions, D x G*H
/// for each: one contraction for all steps and directions.
Value RecurrentLowering::project(const RecurrentLayer &layer) {
  int64_t rows = layer.numGates() * layer.hiddenSize();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, layer.input);
  sizes.pop_back();
  sizes.append({b.getIndexAttr(layer.numDirections()), b.getIndexAttr(rows)});
  AffineExpr s, i, d, n, k;
  bindDims(b.getContext(), s, i, d, n, k);
  auto map = [&](ArrayRef<AffineExpr> exprs) { return AffineMap::get(5, 0, exprs, b.getContext()); };
  Value empty = tensor::EmptyOp::create(b, loc, sizes, b.getF32Type());
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  Value init = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
  ArrayAttr maps = b.getAffineMapArrayAttr({map({s, i, k}), map({d, n, k}), map({s, i, d, n})});
  Value product = linalg::ContractOp::create(b, loc, init.getType(), ValueRange{layer.input, layer.weight}, init, maps)
                      .getResult(0);
  Value bias = inputBias(layer);
  if (!bias)
    return product;
  AffineMap identity = b.getMultiDimIdentityMap(4), perColumn = identity.getMinorSubMap(2);
  return generic(sizes, {product, bias}, {identity, perColumn}, [&](OpBuilder &b, ValueRange args) -> Value {
    return arith::AddFOp::create(b, loc, args[0], args[1]);
  });
}

Value RecurrentLowering::resetBias(const RecurrentLayer &layer) {
  int64_t hidden = layer.hiddenSize();
  SmallVector<OpFoldResult> offsets{b.getIndexAttr(0), b.getIndexAttr(5 * hidden)},
      sizes{b.getIndexAttr(layer.numDirections()), b.getIndexAttr(hidden)}, strides(2, b.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(b, loc, layer.bias, offsets, sizes, strides);
}

//===----------------------------------------------------------------------===//
// Recurrent weights
//===----------------------------------------------------------------------===//

/// D x G*H x H as D*P panels, the gates of a few units side by side: `type`,
/// each gate as `pack` says.
Value RecurrentLowering::packedWeight(FlatSymbolRefAttr source, const RecurrentSpec &spec,
                                      const RecurrentSpec::Sweep &sweep, RankedTensorType type, PackFn pack) {
  MLIRContext *context = b.getContext();
  StringRef name = source.getValue();
  int64_t hidden = spec.hidden, rows = spec.numGates() * hidden;
  auto f32 = [&](ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, b.getF32Type()); };
  auto packed = [&](int64_t panels, int64_t width) {
    return RankedTensorType::get({panels, type.getDimSize(1), width}, type.getElementType());
  };
  int64_t panels = spec.numPanels(sweep), width = type.getDimSize(2);
  SmallVector<FlatSymbolRefAttr> directions;
  for (int64_t d = 0; d < spec.numDirections(); ++d) {
    FlatSymbolRefAttr own = source;
    if (spec.numDirections() > 1)
      own = derive((name + "_d").str(), f32({1, rows, hidden}), SliceAttr::get(context, source, 0, d, 1));
    SmallVector<FlatSymbolRefAttr> gates;
    for (int64_t g = sweep.firstGate; g < sweep.firstGate + sweep.numGates; ++g) {
      FlatSymbolRefAttr part = own;
      if (spec.numGates() > 1)
        part = derive((name + "_gate").str(), f32({1, hidden, hidden}),
                      SliceAttr::get(context, own, 1, g * hidden, hidden));
      part = derive((name + "_matrix").str(), f32({hidden, hidden}), ReshapeAttr::get(context, part));
      gates.push_back(
          derive((name + "_panels").str(), packed(panels, width / sweep.numGates), pack(part, spec.panelUnits(sweep))));
    }
    directions.push_back(
        gates.size() == 1 ? gates[0]
                          : derive((name + "_gates").str(), packed(panels, width), ConcatAttr::get(context, gates, 2)));
  }
  FlatSymbolRefAttr all = directions.size() == 1
                              ? directions[0]
                              : derive((name + "_layer").str(), type, ConcatAttr::get(context, directions, 0));
  return WeightOp::create(b, loc, type, all);
}

/// The panels of each sweep, then their scales where they have some.
SmallVector<Value> RecurrentLowering::packedWeights(FlatSymbolRefAttr source, const RecurrentSpec &spec) {
  MLIRContext *context = b.getContext();
  SmallVector<Value> values;
  for (const RecurrentSpec::Sweep &sweep : spec.sweeps()) {
    auto type = RankedTensorType::get(spec.panelShape(sweep), elementType(spec.storage, context));
    values.push_back(packedWeight(source, spec, sweep, type, [&](FlatSymbolRefAttr gate, int64_t units) -> Attribute {
      if (spec.storage == PanelStorage::F32)
        return PackPanelsAttr::get(context, gate, /*transposed=*/true, units);
      return NarrowPanelsAttr::get(context, gate, /*transposed=*/true, units, spec.group, /*depth=*/1, /*parts=*/1);
    }));
  }
  if (spec.storage != PanelStorage::I8)
    return values;
  for (const RecurrentSpec::Sweep &sweep : spec.sweeps()) {
    auto type = RankedTensorType::get(spec.scaleShape(sweep), b.getF32Type());
    values.push_back(packedWeight(source, spec, sweep, type, [&](FlatSymbolRefAttr gate, int64_t units) -> Attribute {
      return PanelScalesAttr::get(context, gate, /*transposed=*/true, units, spec.group);
    }));
  }
  return values;
}

//===----------------------------------------------------------------------===//
// The call
//===----------------------------------------------------------------------===//

void RecurrentLowering::lower(const RecurrentLayer &layer) {
  loc = layer.op->getLoc();
  StringRef name = layer.op->getName().stripDialect();
  RecurrentSpec spec = RecurrentSpec::get(layer, target, weights);
  if (std::optional<std::string> reason = refusal(layer, spec)) {
    remark::missed(loc, remarkNamed(name)) << remark::reason("{0}", *reason);
    return;
  }
  FailureOr<func::FuncOp> kernel =
      kernels.getOrBuild(spec.symbol(), [&](OpBuilder &builder) { return buildRecurrent(builder, loc, spec); });
  if (failed(kernel)) {
    remark::missed(loc, remarkNamed(name)) << remark::reason("the name '{0}' is taken", spec.symbol());
    return;
  }
  remark::passed(loc, remarkNamed(name)) << remark::add("{0}", spec.symbol());

  b.setInsertionPoint(layer.op);
  SmallVector<Value> inputs{project(layer)};
  llvm::append_range(inputs, packedWeights(layer.recurrence.getDefiningOp<WeightOp>().getGlobalAttr(), spec));
  if (spec.hasResetBias)
    inputs.push_back(resetBias(layer));
  for (Value operand : {layer.peephole, layer.lengths, layer.initialH, layer.initialC})
    if (operand)
      inputs.push_back(operand);

  ReifiedRankedShapedTypeDims shapes;
  layer.reifyShapes(b, shapes);
  OpFoldResult batch = tensor::getMixedSize(b, loc, layer.input, layer.batchDim());
  shapes.push_back({b.getIndexAttr(spec.numPlanes()), b.getIndexAttr(spec.numDirections()), batch,
                    b.getIndexAttr(spec.paddedHidden())});
  auto castTo = [&](Value value, Type type) -> Value {
    return value.getType() == type ? value : Value(tensor::CastOp::create(b, loc, type, value));
  };
  // The kernel's types are what the layer was matched with; an operand may know more or less.
  SmallVector<Value> inits;
  for (ArrayRef<OpFoldResult> shape : shapes)
    inits.push_back(tensor::EmptyOp::create(b, loc, shape, b.getF32Type()));
  ArrayRef<Type> types = kernel->getArgumentTypes();
  for (auto [n, operand] : llvm::enumerate(inputs)) {
    auto type = cast<MemRefType>(types[n]);
    operand = castTo(operand, RankedTensorType::get(type.getShape(), type.getElementType()));
  }
  for (auto [n, init] : llvm::enumerate(inits)) {
    auto type = cast<MemRefType>(types[inputs.size() + n]);
    init = castTo(init, RankedTensorType::get(type.getShape(), type.getElementType()));
  }
  auto call = KernelOp::create(b, loc, ValueRange(inits).getTypes(), SymbolRefAttr::get(*kernel), inputs, inits,
                               b.getDenseI64ArrayAttr({}));
  SmallVector<Value> results;
  for (auto [n, result] : llvm::enumerate(layer.op->getResults()))
    results.push_back(castTo(call.getResult(n), result.getType()));
  b.replaceOp(layer.op, results);
}

struct LowerRecurrentPass : attn::impl::LowerRecurrentPassBase<LowerRecurrentPass> {
  using Base::Base;

  void runOnOperation() override {
    std::optional<WeightStorage> storage = WeightStorage::parse(weights);
    if (!storage) {
      getOperation().emitError("expects weights in f32, bf16, int8 or int8:GROUP, got '") << weights << "'";
      return signalPassFailure();
    }
    RecurrentLowering lowering(getOperation(), *storage);
    SmallVector<RecurrentLayer> layers;
    getOperation().walk([&](Operation *op) {
      if (std::optional<RecurrentLayer> layer = RecurrentLayer::get(op))
        layers.push_back(*layer);
    });
    for (RecurrentLayer &layer : layers) {
      // An earlier lowering may have replaced an operand.
      lowering.lower(*RecurrentLayer::get(layer.op));
    }
  }
};

} // namespace
