#ifndef PASSES_LOWERING_BUFFERS_BODYEMITTER_H
#define PASSES_LOWERING_BUFFERS_BODYEMITTER_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace attn {

/// What a dynamic size is taken for when costs are estimated.
constexpr int64_t kUnknownSize = 128;

/// How a value of a loop's body differs between the lanes of a vector: not at
/// all, by one from lane to lane, or arbitrarily.
enum class Lanes { Same, Consecutive, Varying };

/// How the lanes of one operand lie in memory.
enum class Access { Same, Contiguous, Strided, Irregular };

/// Writes the body of a linalg.generic on buffers at one point of its loops,
/// for `lanes` neighbouring values of one loop at once.
class BodyEmitter {
public:
  /// `loop` is the vectorised loop, or -1.
  BodyEmitter(mlir::linalg::GenericOp op, int64_t loop);

  /// Whether every op that differs between lanes has a vector form.
  bool canVectorize() const { return vectorizable; }
  /// A lane that is masked off may not run the body (integer division).
  bool mayTrap() const { return trapping; }
  /// How operand number `operand` is read or written.
  Access accessOf(unsigned operand) const { return accesses[operand]; }
  /// How far apart the elements of a strided operand are that neighbouring lanes read, if that is known and small:
  /// loads of neighbours and shuffles then replace a gather.
  std::optional<int64_t> smallStep(unsigned operand) const;
  /// Costs of the body's ops: one element, in about the time of an addition.
  int64_t costOfBody() const { return cost; }
  /// Loads in the body whose lanes are not neighbours.
  int64_t numGathers() const { return gathers; }

  /// Where the body is emitted. `indices[vector loop]` is that of lane 0.
  struct Point {
    mlir::OpBuilder &b;
    mlir::ArrayRef<mlir::Value> indices;
    int64_t lanes = 1;
    /// Lanes that count (vector<lanes x i1>), or null: all.
    mlir::Value mask;
    /// Values of the output arguments, or empty: they are loaded.
    mlir::ArrayRef<mlir::Value> accumulators;
  };

  /// Writes what is the same in all lanes and needs no loop in `inner`; later
  /// calls of `emit` use it. Call it where the other loops' indices are known.
  void emitInvariants(const Point &point, mlir::ArrayRef<unsigned> inner);
  void dropInvariants() { invariants.clear(); }

  /// Writes the body; returns the yielded values.
  mlir::SmallVector<mlir::Value> emit(const Point &point);
  /// From here on output `number` is taken to be `start`, a scalar, until something is stored in it.
  void startFrom(unsigned number, mlir::Value start) { starts[number] = start; }
  /// The value of output `number` in memory, or what it starts from.
  mlir::Value loadOutput(const Point &point, unsigned number);
  void storeOutput(const Point &point, unsigned number, mlir::Value value);
  /// From here on whole vectors of output `number`, which are aligned to their size, are stored past the caches.
  void stream(unsigned number) { streamed.push_back(number); }

private:
  void classify(mlir::Operation &op);
  Lanes lanesOf(mlir::Value value) const;
  bool dependsOn(mlir::Value value, mlir::ArrayRef<unsigned> loops) const;
  Access accessOf(mlir::Value buffer, mlir::AffineMap map) const;
  mlir::Value loadOperand(const Point &point, mlir::OpOperand &operand);
  mlir::Value loadBody(const Point &point, mlir::memref::LoadOp load, mlir::IRMapping &map);
  mlir::Value emitOp(const Point &point, mlir::Operation &op, mlir::IRMapping &map);
  /// The value with one element a lane.
  mlir::Value widen(const Point &point, mlir::Location loc, mlir::Value value, Lanes lanes);

  mutable mlir::linalg::GenericOp op; // a handle: its accessors are not const
  int64_t loop;
  llvm::DenseMap<mlir::Value, Lanes> kinds;
  mlir::SmallVector<Access> accesses;
  mlir::SmallVector<unsigned> streamed;
  llvm::DenseMap<unsigned, mlir::Value> starts;
  mlir::IRMapping invariants;
  bool vectorizable = true, trapping = false;
  int64_t cost = 0, gathers = 0;
};

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_BODYEMITTER_H
