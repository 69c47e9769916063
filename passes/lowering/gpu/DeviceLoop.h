#ifndef PASSES_LOWERING_GPU_DEVICELOOP_H
#define PASSES_LOWERING_GPU_DEVICELOOP_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/DeviceOps.h"
#include "passes/lowering/gpu/StepRanges.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <string>

namespace attn {

/// What is known of a loop that fetches, and whether its steps can be made on
/// the device. Values of its body are told apart: those that differ from step to
/// step (`isVarying`), and those that are the same in many steps.
class DeviceLoop {
public:
  explicit DeviceLoop(mlir::scf::WhileOp loop);

  /// Whether the loop fetches in its steps; else there is nothing to win.
  bool fetches() const { return !fetched.empty(); }
  /// Empty: the loop can go to the device. Otherwise why not, and at which op.
  llvm::StringRef reason() const { return why; }
  mlir::Operation *culprit() const { return where; }

  /// A number that grows by `step` each step: what is carried at `argument` of the body, plus `offset`.
  struct Counter {
    unsigned argument;
    int64_t offset, step;
  };
  std::optional<Counter> counterOf(mlir::Value value);
  /// Whether what computes `value` can stand in front of the steps.
  bool canHoist(mlir::Value value);

  /// A buffer that gets more room: argument number `argument` of the body, by `op`, which its condition (size <= room)
  /// decides.
  struct Growth {
    mlir::scf::IfOp op;
    unsigned argument;
    mlir::Value size;
    std::optional<Counter> counter; ///< of the size; none: it is the same in each step
  };
  /// A requirement that a counter is at most `bound`.
  struct Limit {
    RequireOp op; ///< null: of the loop's condition
    Counter counter;
    mlir::Value bound;
  };

  bool isVarying(mlir::Value value) const { return varying.contains(value); }
  mlir::Block &body() { return loop.getAfter().front(); }
  /// The number of the value that is carried, for each argument of the body.
  unsigned carriedBy(unsigned argument) const { return carried[argument]; }
  mlir::ValueRange yielded() { return body().getTerminator()->getOperands(); }

  mlir::scf::WhileOp loop;
  llvm::SmallVector<mlir::gpu::LaunchOp> launches; ///< all of the body
  llvm::SmallVector<FetchOp> fetched;
  llvm::SmallVector<ProductOp> products;
  llvm::SmallVector<Growth> growths;
  llvm::SmallVector<Limit> limits;
  llvm::SmallVector<RequireOp> kept;         ///< hold in all steps if they do in the first
  llvm::SmallVector<RequireOp> checks;       ///< what each step has to look at on the device
  llvm::SmallVector<WorkspaceOp> workspaces; ///< of sizes that differ from step to step
  StepRanges ranges{*this};                  ///< of these and of launches

private:
  bool fail(mlir::Operation *op, const llvm::Twine &reason);
  bool readCarried();
  bool readCondition();
  bool readBody();
  bool readNext();
  bool visit(mlir::Operation *op, bool isNested);
  bool visitLaunch(mlir::gpu::LaunchOp op);
  bool visitRequire(RequireOp op, bool isNested);
  bool visitGrowth(mlir::scf::IfOp op);
  std::optional<int64_t> rateOf(mlir::Value value);
  bool staysTrue(mlir::Value condition);
  bool usesVarying(mlir::Operation *op);

  llvm::SmallVector<unsigned> carried;
  llvm::DenseSet<mlir::Value> varying;
  std::string why;
  mlir::Operation *where = nullptr;
};

} // namespace attn

#endif // PASSES_LOWERING_GPU_DEVICELOOP_H
