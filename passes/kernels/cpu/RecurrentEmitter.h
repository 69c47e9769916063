#ifndef PASSES_KERNELS_CPU_RECURRENTEMITTER_H
#define PASSES_KERNELS_CPU_RECURRENTEMITTER_H

#include "passes/kernels/cpu/Recurrent.h"
#include "passes/kernels/shared/LaneBuilder.h"

namespace attn {

/// The kernel of one spec: Recurrent.cpp has its tasks and steps,
/// RecurrentTiles.cpp what becomes of one panel.
class RecurrentEmitter {
public:
  using Values = LaneBuilder::Values;

  RecurrentEmitter(mlir::OpBuilder &builder, mlir::Location loc, const RecurrentSpec &spec)
      : b(builder), loc(loc), spec(spec), k(builder, loc, spec.lanes, /*hasScalef=*/spec.lanes == 16),
        sweeps(spec.sweeps()), padded(spec.paddedHidden()) {}

  mlir::func::FuncOp emit();

private:
  /// Planes of the scratch memory behind those of h.
  enum { kPlaneC = 2, kPlaneUpdate = 2, kPlaneReset = 3 };

  /// The kernel's buffers, each as one dimension.
  struct Buffers {
    llvm::SmallVector<mlir::Value> panels, scales;
    mlir::Value projected, resetBias, peephole, lengths, initialH, initialC, sequence, lastH, lastC, scratch;
  };
  /// What a tile works on.
  struct Place {
    mlir::Value direction, time, parity; ///< parity: the plane of h that the step reads
    mlir::Value firstRow, rows, blocks;  ///< of the group, and the blocks that its rows are cut into
  };

  llvm::SmallVector<mlir::Type> argumentTypes();
  Buffers flatten(mlir::func::FuncOp function);
  int64_t tileRows(const RecurrentSpec::Sweep &sweep);

  void emitGroups(mlir::func::FuncOp function);
  void emitChunks(mlir::func::FuncOp function);
  void emitInitial(const Place &place);
  void emitFinal(const Place &place, mlir::Value steps);
  void emitPadding(const Place &place, mlir::Value steps);
  mlir::Value countSteps(const Place &place);
  mlir::Value timeOf(mlir::Value direction, mlir::Value step, mlir::Value steps);
  void emitPanels(const Place &place, unsigned sweep, mlir::Value panel);
  void emitBlock(const Place &place, unsigned sweep, mlir::Value panel, mlir::Value row, int64_t height);
  llvm::SmallVector<mlir::Value> emitSums(const Place &place, unsigned sweep, mlir::Value panel, mlir::Value row,
                                          int64_t height);
  /// Part of a panel times the states of a few rows.
  struct Products {
    unsigned sweep;
    int64_t height, vectors;
    mlir::Value panelAt;
    llvm::ArrayRef<mlir::Value> states; ///< where each row's begins
  };
  Values addProducts(const Products &of, mlir::Value begin, mlir::Value end, mlir::ValueRange inits);
  mlir::Value loadWeights(unsigned sweep, mlir::Value offset, int64_t part);
  void emitUnits(const Place &place, unsigned sweep, mlir::Value row, mlir::Value unit,
                 llvm::ArrayRef<mlir::Value> gates);

  mlir::Value rnnState(llvm::ArrayRef<mlir::Value> gates) { return function(0, gates[0]); }
  mlir::Value lstmState(const Place &place, mlir::Value row, mlir::Value unit, llvm::ArrayRef<mlir::Value> gates,
                        mlir::Value active);

  //===--- places ---------------------------------------------------------===//
  mlir::Value projectedAt(const Place &place, mlir::Value row, int64_t gate, mlir::Value unit);
  mlir::Value sequenceAt(mlir::Value direction, mlir::Value time, mlir::Value row, mlir::Value unit);
  mlir::Value stateAt(mlir::Value direction, mlir::Value row, mlir::Value unit);
  mlir::Value scratchAt(mlir::Value plane, mlir::Value direction, mlir::Value row, mlir::Value unit);
  mlir::Value scratchAt(int64_t plane, mlir::Value direction, mlir::Value row, mlir::Value unit) {
    return scratchAt(k.index(plane), direction, row, unit);
  }
  /// `lanes` units of a dense row from `unit` on, 0 beyond the last.
  mlir::Value loadUnits(mlir::Value flat, mlir::Value offset, mlir::Value unit) {
    return isWhole() ? k.loadVector(flat, offset)
                     : k.loadFirst(flat, offset, k.sub(k.index(spec.hidden), unit), k.lanes);
  }
  void storeUnits(mlir::Value vector, mlir::Value flat, mlir::Value offset, mlir::Value unit) {
    if (isWhole())
      k.store(vector, flat, offset);
    else
      k.storeFirst(vector, flat, offset, k.sub(k.index(spec.hidden), unit));
  }
  bool isWhole() {
    return llvm::all_of(sweeps, [&](auto &sweep) { return spec.hidden % spec.panelUnits(sweep) == 0; });
  }

  //===--- arithmetic -----------------------------------------------------===//
  mlir::Value multiplyAdd(mlir::Value x, mlir::Value y, mlir::Value sum);
  mlir::Value function(int64_t number, mlir::Value x, bool clipped = true);
  mlir::Value sigmoid(mlir::Value x);
  mlir::Value tanh(mlir::Value x);
  mlir::Value limited(mlir::Value x);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const RecurrentSpec &spec;
  LaneBuilder k;
  const llvm::SmallVector<RecurrentSpec::Sweep> sweeps;
  const int64_t padded;
  Buffers at;
  mlir::Value steps, batch;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_RECURRENTEMITTER_H
