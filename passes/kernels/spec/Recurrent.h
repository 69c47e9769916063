#ifndef PASSES_KERNELS_SPEC_RECURRENT_H
#define PASSES_KERNELS_SPEC_RECURRENT_H

#include "dialects/attn/RecurrentLayer.h"
#include "passes/kernels/spec/Storage.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <string>

namespace attn {

/// All steps of a recurrent layer in f32, from the projected input on; weights
/// may be stored in fewer bits, and are widened in registers.
///
/// The recurrent weights are panels of a few units with all gates of these side
/// by side, so that a panel ends with whole gates in registers and the cell is
/// updated there. A GRU whose reset gate is applied before the product takes
/// two sweeps over the weights a step, every other layer one.
struct RecurrentSpec {
  RecurrentLayer::Cell cell = RecurrentLayer::Rnn;
  bool linearBeforeReset = false, mirrored = false, inputForget = false, batchFirst = false;
  Direction direction = Direction::forward;
  int64_t hidden = 0;
  int64_t steps = mlir::ShapedType::kDynamic, batch = mlir::ShapedType::kDynamic;
  bool hasLengths = false, hasInitialH = false, hasInitialC = false, hasPeephole = false;
  bool hasResetBias = false; ///< of a GRU with linearBeforeReset: the bias inside the reset
  std::optional<double> clip;
  llvm::SmallVector<ActivationAttr> functions; ///< of each direction

  PanelStorage storage = PanelStorage::F32;
  int64_t group = 0; ///< I8: rows of the weights that share a scale

  int64_t lanes = 4;
  bool hasFma() const { return lanes > 4; }

  /// Part of the gates, computed from one vector in one pass over the weights.
  struct Sweep {
    int64_t firstGate, numGates;
    int64_t vectors; ///< of each gate in a panel
  };

  static RecurrentSpec get(const RecurrentLayer &layer, TargetAttr target, WeightStorage weights = {});

  int64_t numGates() const { return cell == RecurrentLayer::Lstm ? 4 : cell == RecurrentLayer::Gru ? 3 : 1; }
  int64_t numDirections() const { return direction == Direction::bidirectional ? 2 : 1; }
  bool hasTwoSweeps() const { return cell == RecurrentLayer::Gru && !linearBeforeReset; }
  llvm::SmallVector<Sweep> sweeps() const;
  int64_t panelUnits(const Sweep &sweep) const { return sweep.vectors * lanes; }
  int64_t panelWidth(const Sweep &sweep) const { return sweep.numGates * panelUnits(sweep); }
  int64_t numPanels(const Sweep &sweep) const { return (hidden + panelUnits(sweep) - 1) / panelUnits(sweep); }
  /// Of the weights of a sweep, and of their scales (I8); see #attn.narrow_panels.
  llvm::SmallVector<int64_t> panelShape(const Sweep &sweep) const;
  llvm::SmallVector<int64_t> scaleShape(const Sweep &sweep) const;
  /// Rows of the weights in a row of a panel: 2 where they are interleaved.
  int64_t rowsPerStep() const { return storage == PanelStorage::BF16 ? 2 : 1; }
  /// Rows of the states in scratch memory hold whole panels of each sweep.
  int64_t paddedHidden() const { return (hidden + 4 * lanes - 1) / (4 * lanes) * (4 * lanes); }
  /// Planes of D x B x paddedHidden in scratch memory: h before and after a
  /// step, then c, or the update gate and the reset state.
  int64_t numPlanes() const { return cell == RecurrentLayer::Lstm ? 3 : hasTwoSweeps() ? 4 : 2; }

  /// The kernel's name and cache key: equal names, identical code.
  std::string symbol() const;
};

/// Whether buildRecurrent can emit `spec`; otherwise `reason`, if given, says why not.
bool canBuildRecurrent(const RecurrentSpec &spec, std::string *reason = nullptr);

} // namespace attn

#endif // PASSES_KERNELS_SPEC_RECURRENT_H
