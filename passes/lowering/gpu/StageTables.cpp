#include "passes/lowering/gpu/StageTables.h"
#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

namespace attn {

/// Whether all uses of a table are loads, kernels, or views that a kernel can
/// make for itself.
static bool movesIntoKernels(Value table) {
  return llvm::all_of(table.getUsers(), [&](Operation *user) {
    if (isa<memref::LoadOp, linalg::LinalgOp, KernelOp, memref::DimOp>(user))
      return true;
    auto view = dyn_cast<ViewLikeOpInterface>(user);
    if (!view || user->getNumResults() != 1 || view.getViewSource() != table)
      return false;
    bool isFixed = llvm::all_of(user->getOperands(),
                                [&](Value operand) { return operand == table || matchPattern(operand, m_Constant()); });
    return isFixed && movesIntoKernels(user->getResult(0));
  });
}

void stageTables(func::FuncOp entry) {
  SmallVector<memref::GetGlobalOp> tables;
  entry.walk([&](memref::GetGlobalOp op) {
    if (!movesIntoKernels(op))
      tables.push_back(op);
  });
  for (memref::GetGlobalOp table : tables) {
    OpBuilder b(table);
    Location loc = table.getLoc();
    b.setInsertionPointAfter(table);
    MemRefType type = table.getType();
    int64_t bytes = type.getNumElements() * ((type.getElementTypeBitWidth() + 7) / 8);
    Value size = arith::ConstantIndexOp::create(b, loc, bytes), zero = arith::ConstantIndexOp::create(b, loc, 0);
    auto arenaType = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
    Value arena = WorkspaceOp::create(b, loc, arenaType, size);
    Value copy = memref::ViewOp::create(b, loc, type, arena, zero, ValueRange());
    auto filled = linalg::CopyOp::create(b, loc, ValueRange{table}, ValueRange{copy});
    table.getResult().replaceUsesWithIf(
        copy, [&](OpOperand &use) { return use.getOwner() != filled && !isa<memref::LoadOp>(use.getOwner()); });
  }
}

} // namespace attn
