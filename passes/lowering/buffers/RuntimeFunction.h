#ifndef ATTNC_PASSES_LOWERING_BUFFERS_RUNTIMEFUNCTION_H
#define ATTNC_PASSES_LOWERING_BUFFERS_RUNTIMEFUNCTION_H

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace attn {

/// A function that the runtime calls or that a called one calls (entry, kernel
/// or task): its signature as `attnrt/abi.h` has it, and what its ops are
/// lowered with. `b` stands where ops are written.
class RuntimeFunction {
protected:
  RuntimeFunction(mlir::func::FuncOp function, mlir::LLVMTypeConverter &types);

  mlir::Location loc() { return current ? current->getLoc() : function.getLoc(); }

  mlir::Value constant(mlir::Type type, int64_t value);
  mlir::Value isNonzero(mlir::Value status);
  mlir::Value asI64(mlir::Value index);
  mlir::Value asIndex(mlir::Value number);
  mlir::Value cast(mlir::Value value, mlir::Type type);
  mlir::Value field(mlir::Value base, int64_t offset);
  mlir::Value load(mlir::Type type, mlir::Value base, int64_t offset, bool invariant = true);
  /// Stack memory of the function, not of the loop around the insertion point,
  /// aligned as its type asks: a captured vector is stored with its own alignment.
  mlir::Value stack(mlir::Type element, int64_t count);
  mlir::Value storeSizes(mlir::ValueRange sizes);
  /// Calls the function pointer at `offset` of attnrt_run.
  mlir::Value callRuntime(int64_t offset, mlir::Type result, mlir::ValueRange arguments);
  /// Nonzero: the run is to end.
  mlir::Value poll();
  /// The attnrt_device of an entry with GPU code, and a call of its function pointer at `offset`.
  mlir::Value deviceTable();
  mlir::Value callDevice(int64_t offset, mlir::Type result, mlir::ValueRange arguments);
  /// Calls the function pointer at `offset` of `table`; functions get the run first.
  mlir::Value callTable(mlir::Value table, int64_t offset, mlir::Type result, mlir::ValueRange arguments);
  /// Leaves the function with ATTNRT_RUN_STOPPED if `condition`; `b` goes on
  /// where it does not hold.
  void stopIf(mlir::Value condition);
  mlir::Block *stopBlock();
  /// A dense buffer at `data`; `sizes` are those of the dynamic dimensions.
  mlir::Value describe(mlir::MemRefType type, mlir::Value data, llvm::ArrayRef<mlir::Value> sizes);

  /// (attnrt_run *, const attnrt_buffer *) -> int32_t
  void takeInputs();
  /// (attnrt_run *, parts...) -> int32_t, and where the caller provides scratch (attnrt_run *, scratch, parts...), of
  /// each argument its parts.
  void takeRun();
  /// The same of a function without a body.
  void declareRun();
  void returnStatus();
  /// The parts in which a value is handed to a task or a kernel: of a buffer with strides the address, and what its
  /// type leaves open: sizes, the offset, strides (those of a dense one follow from its sizes); else its LLVM form.
  void appendParts(mlir::Type type, llvm::SmallVectorImpl<mlir::Type> &parts);
  /// Those of `value`; fails where its type has no LLVM form.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> takeApart(mlir::Value value);
  /// The value of `type` that has these parts.
  mlir::Value putTogether(mlir::Type type, llvm::ArrayRef<mlir::Value> parts);
  mlir::LLVM::LLVMStructType captureStruct(mlir::TypeRange captures);
  mlir::Value structField(mlir::Value base, mlir::Type structType, int32_t index);
  /// (void *arg, int64_t begin, int64_t end)
  void takeCaptures();

  mlir::func::FuncOp function;
  mlir::LLVMTypeConverter &types;
  mlir::OpBuilder b;
  mlir::Type ptr, i32, i64;
  mlir::Operation *current = nullptr;
  mlir::Value runContext;
  mlir::Value scratch; ///< that an entry asked for, or of a kernel
  mlir::Block *stop = nullptr;
};

} // namespace attn

#endif
