#ifndef PASSES_KERNELS_SHARED_KERNELFUNCTION_H
#define PASSES_KERNELS_SHARED_KERNELFUNCTION_H

#include "builders/Code.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/kernels/spec/Regions.h"

namespace attn {

/// A `func.func @symbol {attn.kernel}` that is being written: arguments are
/// declared one by one, in their order, and `k` stands in it until this ends.
class KernelFunction {
public:
  KernelFunction(mlir::OpBuilder &b, mlir::Location loc, llvm::StringRef symbol);
  KernelFunction(mlir::OpBuilder &b, llvm::StringRef symbol) : KernelFunction(b, b.getUnknownLoc(), symbol) {}

  Buffer buffer(llvm::ArrayRef<int64_t> shape, mlir::Type element);
  Buffer buffer(mlir::MemRefType type) { return k.asBuffer(argument(type)); }
  Num number(mlir::Type type) { return k.asNum(argument(type)); }
  Index index() { return k.asIndex(argument(k.b.getIndexType())); }
  Mask truth() { return k.asMask(argument(k.b.getI1Type())); }

private:
  mlir::Value argument(mlir::Type type);
  mlir::OpBuilder::InsertionGuard guard;

public:
  mlir::func::FuncOp function;
  Code k;
};

/// Declares the operands of an epilogue, of a product of `m` rows and `n` columns.
llvm::SmallVector<Buffer> takeOperands(KernelFunction &f, const EpilogueSpec &spec, int64_t m, int64_t n);

/// Says of the loop that was written last, right before `b`, that it may be long (kPollsAttr).
void markLong(mlir::OpBuilder &b);

/// Says of the loop that was written last that what it loads and stores in each iteration stays in memory. LLVM (licm)
/// would load it once, before the loop: into registers that the loop does not have.
void keepInMemory(mlir::OpBuilder &b);

} // namespace attn

#endif // PASSES_KERNELS_SHARED_KERNELFUNCTION_H
