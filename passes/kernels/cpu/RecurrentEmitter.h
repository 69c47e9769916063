#ifndef PASSES_KERNELS_CPU_RECURRENTEMITTER_H
#define PASSES_KERNELS_CPU_RECURRENTEMITTER_H

#include "passes/kernels/cpu/Recurrent.h"
#include "passes/kernels/shared/RecurrentCell.h"

namespace attn {

/// The kernel of one spec: Recurrent.cpp has its tasks and steps,
/// RecurrentTiles.cpp what becomes of one panel.
class RecurrentEmitter {
public:
  RecurrentEmitter(KernelFunction &f, const RecurrentSpec &spec)
      : k(f.k), spec(spec), lanes(spec.lanes), hidden(spec.hidden), sweeps(spec.sweeps()),
        arguments(RecurrentBuffers::take(f, spec, weightTypes(),
                                         {spec.numPlanes(), spec.numDirections(), spec.batch, spec.paddedHidden()})),
        places(spec, spec.paddedHidden(), arguments.projected) {}

  void emit();

private:
  /// What a tile works on.
  struct Task {
    Index direction, time, parity; ///< parity: the plane of h that the step reads
    Index firstRow, rows;          ///< of the group
  };
  class Cell;

  llvm::SmallVector<mlir::MemRefType> weightTypes();
  const Buffer &panels(unsigned sweep) { return at.weights[sweep]; }
  const Buffer &scales(unsigned sweep) { return at.weights[sweeps.size() + sweep]; }

  void emitGroups();
  void emitChunks();
  void emitSteps(Task &task, llvm::function_ref<void(unsigned sweep)> emitSweep);
  void emitInitial(const Task &task);
  void emitFinal(const Task &task, Index count);
  void emitPadding(const Task &task, Index count);
  Index countSteps(const Task &task);
  /// `body(row, unit, rest)` for each row of the group and each register of units; `rest` units are left.
  void forEachRegister(const Task &task, int64_t units, llvm::function_ref<void(Index, Index, Index)> body);

  int64_t tileRows(const RecurrentSpec::Sweep &sweep);
  void emitPanels(const Task &task, unsigned sweep, Index panel);
  void emitBlock(const Task &task, unsigned sweep, Index panel, Index row, int64_t height);
  Vecs emitSums(const Task &task, unsigned sweep, Index panel, Index row, int64_t height);
  /// Part of a panel times the states of a few rows.
  struct Products {
    unsigned sweep;
    int64_t height, vectors;
    Index panelAt;
    llvm::ArrayRef<Index> states; ///< where each row's begins
  };
  Vecs addProducts(const Products &of, Index begin, Index end, Vecs sums);
  Vec loadWeights(unsigned sweep, Index offset, int64_t part);
  Vec multiplyAdd(const Vec &x, const Vec &y, const Vec &sum);

  Vec splat(double value) { return k.splat(k.f32(value), lanes); }
  /// A register of units of a dense row, from `unit` on, 0 beyond the last.
  Vec loadUnits(const Buffer &flat, Index offset, Index unit) {
    return isWhole() ? flat.vector(lanes, offset) : flat.first(hidden - unit, lanes, offset);
  }
  void storeUnits(const Vec &x, const Buffer &flat, Index offset, Index unit) {
    isWhole() ? flat.setVector(x, offset) : flat.setFirst(x, hidden - unit, offset);
  }
  bool isWhole() {
    return llvm::all_of(sweeps, [&](auto &sweep) { return hidden % spec.panelUnits(sweep) == 0; });
  }

  Code &k;
  const RecurrentSpec &spec;
  const int64_t lanes, hidden;
  const llvm::SmallVector<RecurrentSpec::Sweep> sweeps;
  const RecurrentBuffers arguments;
  const RecurrentPlaces places;
  RecurrentBuffers at; ///< the flat ones where code is emitted
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_RECURRENTEMITTER_H
