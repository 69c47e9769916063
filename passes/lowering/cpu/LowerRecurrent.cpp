#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/kernels/cpu/Recurrent.h"
#include "passes/lowering/choose/KernelCall.h"
#include "passes/lowering/choose/RecurrentCall.h"
#include "passes/lowering/cpu/StoredHalves.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
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
      : kernels(module), globals(module, kernels.getSymbols()), halves(kernels.getSymbols(), globals),
        target(TargetAttr::lookup(module)), weights(weights), b(module.getContext()) {}

  void lower(const RecurrentLayer &layer);

private:
  std::optional<std::string> refusal(const RecurrentLayer &layer, const RecurrentSpec &spec);
  /// How a gate of `units` units a panel is packed.
  using PackFn = function_ref<Attribute(FlatSymbolRefAttr gate, int64_t units)>;
  Value packedWeight(FlatSymbolRefAttr source, const RecurrentSpec &spec, const RecurrentSpec::Sweep &sweep,
                     RankedTensorType type, PackFn pack);
  SmallVector<Value> packedWeights(FlatSymbolRefAttr source, const RecurrentSpec &spec);
  SmallVector<Value> packedWeights(DenseElementsAttr elements, const RecurrentSpec &spec);
  FlatSymbolRefAttr derive(StringRef name, RankedTensorType type, Attribute expression) {
    return globals.get(name, type, expression, loc);
  }

  static remark::RemarkOpts remarkNamed(StringRef name) {
    return remark::RemarkOpts::name(name).category("attn-lower-recurrent");
  }

  KernelTable kernels;
  DerivedGlobals globals;
  StoredHalves halves;
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
  DenseElementsAttr elements;
  if (!layer.recurrence.getDefiningOp<WeightOp>() && !matchPattern(layer.recurrence, m_Constant(&elements)))
    return "its recurrent weights are no constant";
  if (!hasEqualDirections(layer))
    return "its directions have different activations";
  if (!canBuildRecurrent(spec, &reason))
    return reason;
  return std::nullopt;
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
      if (spec.storage == PanelStorage::F16)
        return PackPanelsAttr::get(context, halves.get(gate, loc), /*transposed=*/true, units);
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

/// The panels of each sweep of a constant whose elements are in the IR, in f32.
SmallVector<Value> RecurrentLowering::packedWeights(DenseElementsAttr elements, const RecurrentSpec &spec) {
  SmallVector<float> source(elements.getValues<float>());
  SmallVector<Value> values;
  int64_t hidden = spec.hidden;
  for (const RecurrentSpec::Sweep &sweep : spec.sweeps()) {
    int64_t units = spec.panelUnits(sweep), width = spec.panelWidth(sweep), panels = spec.numPanels(sweep);
    auto type = RankedTensorType::get(spec.panelShape(sweep), b.getF32Type());
    SmallVector<float> packed(type.getNumElements(), 0);
    for (int64_t d = 0; d < spec.numDirections(); ++d)
      for (int64_t g = 0; g < sweep.numGates; ++g)
        for (int64_t unit = 0; unit < hidden; ++unit)
          for (int64_t k = 0; k < hidden; ++k) {
            int64_t panel = d * panels + unit / units, column = g * units + unit % units;
            int64_t row = (d * spec.numGates() + sweep.firstGate + g) * hidden + unit;
            packed[(panel * hidden + k) * width + column] = source[row * hidden + k];
          }
    values.push_back(arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<float>(packed))));
  }
  return values;
}

//===----------------------------------------------------------------------===//
// The call
//===----------------------------------------------------------------------===//

void RecurrentLowering::lower(const RecurrentLayer &layer) {
  loc = layer.op->getLoc();
  StringRef name = layer.op->getName().stripDialect();
  DenseElementsAttr small; // stays f32
  bool isSmall = matchPattern(layer.recurrence, m_Constant(&small));
  WeightStorage storage = isSmall ? WeightStorage() : weights;
  if (auto weight = layer.recurrence.getDefiningOp<WeightOp>(); weight && storage.storage == PanelStorage::F32)
    storage.storage = halves.getStorage(weight.getGlobalAttr(), target);
  RecurrentSpec spec = RecurrentSpec::get(layer, target, storage);
  if (std::optional<std::string> reason = refusal(layer, spec)) {
    remark::missed(loc, remarkNamed(name)) << remark::reason("{0}", *reason);
    return;
  }
  FailureOr<func::FuncOp> kernel = kernels.getOrBuild(spec, loc, buildRecurrent);
  if (failed(kernel)) {
    remark::missed(loc, remarkNamed(name)) << remark::reason("the name '{0}' is taken", spec.symbol());
    return;
  }
  remark::passed(loc, remarkNamed(name)) << remark::add("{0}", spec.symbol());

  b.setInsertionPoint(layer.op);
  SmallVector<Value> inputs{projectInput(b, layer)};
  if (isSmall)
    llvm::append_range(inputs, packedWeights(small, spec));
  else
    llvm::append_range(inputs, packedWeights(layer.recurrence.getDefiningOp<WeightOp>().getGlobalAttr(), spec));
  appendRecurrentOperands(b, layer, inputs);
  callRecurrent(b, layer, *kernel, inputs);
}

struct LowerRecurrentPass : attn::impl::LowerRecurrentPassBase<LowerRecurrentPass> {
  using Base::Base;

  void runOnOperation() override {
    std::optional<WeightStorage> storage = WeightStorage::parse(weights);
    if (!storage) {
      getOperation().emitError("expects weights in f32, bf16, int8, int8:GROUP or int4:BLOCK, got '") << weights << "'";
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
