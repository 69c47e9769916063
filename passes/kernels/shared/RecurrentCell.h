#ifndef PASSES_KERNELS_SHARED_RECURRENTCELL_H
#define PASSES_KERNELS_SHARED_RECURRENTCELL_H

#include "dialects/attn/Activation.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/spec/Recurrent.h"

/// What the recurrent kernels of all targets have in common: their arguments,
/// where numbers lie in them, and the cells.
namespace attn {

/// The arguments of a kernel; those that its layer lacks are null.
struct RecurrentBuffers {
  Buffer projected;
  llvm::SmallVector<Buffer, 4> weights;
  Buffer resetBias, peephole, lengths, initialH, initialC, sequence, lastH, lastC, states;

  /// Declares them in this order. Weights and states differ from target to target.
  static RecurrentBuffers take(KernelFunction &f, const RecurrentSpec &spec, llvm::ArrayRef<mlir::MemRefType> weights,
                               llvm::ArrayRef<int64_t> states);
  /// Each as one dimension.
  RecurrentBuffers flat() const;
};

/// Where numbers lie in the flat buffers.
struct RecurrentPlaces {
  /// Planes of the states behind the two of h, of which steps read one and write the other.
  enum { kPlaneC = 2, kPlaneUpdate = 2, kPlaneReset = 3 };

  const RecurrentSpec &spec;
  int64_t pitch; ///< of a row of states
  Index steps, batch;

  RecurrentPlaces(const RecurrentSpec &spec, int64_t pitch, const Buffer &projected)
      : spec(spec), pitch(pitch), steps(projected.dim(spec.batchFirst ? 1 : 0)),
        batch(projected.dim(spec.batchFirst ? 0 : 1)) {}

  Index projected(Index direction, Index time, Index item, int64_t gate, Index unit) const;
  Index sequence(Index direction, Index time, Index item, Index unit) const;
  /// In the initial states and the last ones.
  Index result(Index direction, Index item, Index unit) const;
  Index state(Index plane, Index direction, Index item, Index unit) const;
  Index state(int64_t plane, Index direction, Index item, Index unit) const {
    return state(constantLike(item, plane), direction, item, unit);
  }
  /// The time of a step, of `count` in all.
  Index timeOf(Index direction, Index step, Index count) const;
};

/// One unit (Num) or a register of them (Vec) of one item in one step.
template <typename T> class RecurrentCell {
public:
  RecurrentCell(Code &k, const RecurrentSpec &spec, Mask isActive) : k(k), spec(spec), isActive(isActive) {}
  virtual ~RecurrentCell() = default;

  /// What follows the sums of a sweep, one per gate: new states, and with the last sweep the result of the step.
  void update(unsigned sweep, llvm::ArrayRef<T> gates);

protected:
  virtual T lastH() = 0;
  virtual void setH(const T &x) = 0;
  virtual T state(int64_t plane) = 0;
  virtual void setState(const T &x, int64_t plane) = 0;
  virtual T projected(int64_t gate) = 0;
  /// Of the input gate, the output gate and the forget gate.
  virtual T peephole(int64_t position) = 0;
  /// The result of the step.
  virtual void show(const T &x) = 0;
  virtual T activation(ActivationAttr kind, const T &x) { return x.with(emitActivation(k.b, k.loc, kind, x)); }
  virtual T multiplyAdd(const T &x, const T &y, const T &sum) { return fma(x, y, sum); }

  Code &k;
  const RecurrentSpec &spec;

private:
  T function(int64_t number, T x, bool isClipped = true);
  T lstm(llvm::ArrayRef<T> gates);
  T gru(llvm::ArrayRef<T> gates);

  Mask isActive; ///< whether the item has this step; null where all items have all of them
};

} // namespace attn

#endif // PASSES_KERNELS_SHARED_RECURRENTCELL_H
