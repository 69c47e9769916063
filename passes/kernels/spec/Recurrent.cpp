#include "passes/kernels/spec/Recurrent.h"
#include "passes/kernels/spec/Regions.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace attn {
RecurrentSpec RecurrentSpec::get(const RecurrentLayer &layer, TargetAttr target, WeightStorage weights) {
  RecurrentSpec spec;
  spec.cell = layer.cell;
  spec.linearBeforeReset = layer.linearBeforeReset;
  spec.mirrored = layer.mirrored;
  spec.inputForget = layer.inputForget;
  spec.batchFirst = layer.batchFirst;
  spec.direction = layer.direction;
  spec.hidden = layer.hiddenSize();
  auto input = cast<RankedTensorType>(layer.input.getType());
  spec.steps = input.getDimSize(layer.stepDim());
  spec.batch = input.getDimSize(layer.batchDim());
  spec.hasLengths = layer.lengths != nullptr;
  spec.hasInitialH = layer.initialH != nullptr;
  spec.hasInitialC = layer.initialC != nullptr;
  spec.hasPeephole = layer.peephole != nullptr;
  spec.hasResetBias = layer.linearBeforeReset && layer.bias;
  spec.clip = layer.clip;
  for (int64_t n = 0; n < layer.numFunctions(); ++n)
    spec.functions.push_back(layer.activation(0, n));
  spec.storage = weights.storage;
  if (spec.storage == PanelStorage::I8)
    spec.group = weights.group ? std::min(weights.group, spec.hidden) : spec.hidden;
  spec.lanes = target.getF32Lanes();
  return spec;
}

SmallVector<RecurrentSpec::Sweep> RecurrentSpec::sweeps() const {
  if (hasTwoSweeps())
    return {{0, 2, 2}, {2, 1, 4}};
  return {{0, numGates(), cell == RecurrentLayer::Rnn ? 4 : 1}};
}

SmallVector<int64_t> RecurrentSpec::panelShape(const Sweep &sweep) const {
  int64_t panels = numDirections() * numPanels(sweep), perStep = rowsPerStep();
  return {panels, static_cast<int64_t>(llvm::divideCeil(hidden, perStep)), perStep * panelWidth(sweep)};
}

SmallVector<int64_t> RecurrentSpec::scaleShape(const Sweep &sweep) const {
  return {numDirections() * numPanels(sweep), static_cast<int64_t>(llvm::divideCeil(hidden, group)), panelWidth(sweep)};
}

std::string RecurrentSpec::symbol() const {
  static constexpr StringLiteral cells[] = {"rnn", "gru", "lstm"};
  std::string options;
  llvm::raw_string_ostream os(options);
  for (bool flag : {linearBeforeReset, mirrored, inputForget, batchFirst, hasLengths, hasInitialH, hasInitialC,
                    hasPeephole, hasResetBias, hasFma()})
    os << flag;
  if (clip)
    os << "clip" << APFloat(*clip).bitcastToAPInt();
  for (ActivationAttr function : functions)
    os << function;
  std::string narrow = storage == PanelStorage::F32    ? ""
                       : storage == PanelStorage::F16  ? "_f16"
                       : storage == PanelStorage::BF16 ? "_bf16"
                                                       : "_i8g" + std::to_string(group);
  return llvm::formatv("{0}_f32{7}_{1}_s{2}_b{3}_h{4}_v{5}_{6:x-16}", cells[cell], stringifyDirection(direction),
                       sizeText(steps), sizeText(batch), hidden, lanes, llvm::xxh3_64bits(options), narrow);
}

bool canBuildRecurrent(const RecurrentSpec &spec, std::string *reason) {
  if (spec.hidden < 1 || spec.hidden > (int64_t(1) << 20))
    return fail(reason, "its number of units (" + Twine(spec.hidden) + ") is not in [1, 2^20]");
  if (spec.lanes != 4 && spec.lanes != 8 && spec.lanes != 16)
    return fail(reason, "no kernel has " + Twine(spec.lanes) + " lanes");
  if (spec.storage == PanelStorage::I8 && spec.group < 1)
    return fail(reason, "a group of " + Twine(spec.group) + " rows is empty");
  return true;
}

} // namespace attn
