#ifndef PASSES_LOWERING_CHOOSE_KERNELCALL_H
#define PASSES_LOWERING_CHOOSE_KERNELCALL_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"

namespace attn {

/// The kernels of a module, by symbol. A symbol is the key of its spec, so a
/// kernel that is there already is the one that would be built.
class KernelTable {
public:
  explicit KernelTable(mlir::ModuleOp module) : module(module), symbols(module) {}

  using BuildFn = llvm::function_ref<mlir::func::FuncOp(mlir::OpBuilder &)>;

  /// The kernel `symbol`, built at the end of the module where it is missing.
  /// Fails where another symbol has the name.
  mlir::FailureOr<mlir::func::FuncOp> getOrBuild(llvm::StringRef symbol, BuildFn build);
  /// The kernel that `build` makes of `spec`.
  template <typename Spec, typename Build>
  mlir::FailureOr<mlir::func::FuncOp> getOrBuild(const Spec &spec, mlir::Location loc, Build build) {
    return getOrBuild(spec.symbol(), [&](mlir::OpBuilder &builder) { return build(builder, loc, spec); });
  }

  /// The module's, for whoever adds others.
  mlir::SymbolTable &getSymbols() { return symbols; }

private:
  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
};

/// The first arguments of `kernel`, of `inputs`: an operand may know a size that another one does not.
void castToArguments(mlir::OpBuilder &b, mlir::Location loc, mlir::func::FuncOp kernel,
                     llvm::MutableArrayRef<mlir::Value> inputs);

/// Calls `kernel` on `inputs` and `inits`, what it writes; the inputs in `elementwise` may be the result's buffer.
KernelOp callKernel(mlir::OpBuilder &b, mlir::Location loc, mlir::func::FuncOp kernel, mlir::ValueRange inputs,
                    mlir::ValueRange inits, llvm::ArrayRef<int64_t> elementwise = {});

/// An empty tensor for each result of `op`; `sizes` are those of the results.
llvm::SmallVector<mlir::Value> makeResultInits(mlir::RewriterBase &rewriter, mlir::Operation *op,
                                               llvm::ArrayRef<llvm::SmallVector<mlir::OpFoldResult>> sizes);

/// Calls `kernel` on `inputs` and `inits` in place of `op`, whose results are the
/// first of the call's. An `attn.flops` of `op` goes along.
void replaceByCall(mlir::RewriterBase &rewriter, mlir::Operation *op, mlir::func::FuncOp kernel,
                   mlir::ValueRange inputs, mlir::ValueRange inits, llvm::ArrayRef<int64_t> elementwise = {});

/// Replaces `op` by a call of `kernel` on `inputs` and an empty tensor for each
/// result; `sizes` are those of the results.
void replaceByKernel(mlir::RewriterBase &rewriter, mlir::Operation *op, mlir::func::FuncOp kernel,
                     mlir::ValueRange inputs, llvm::ArrayRef<llvm::SmallVector<mlir::OpFoldResult>> sizes,
                     llvm::ArrayRef<int64_t> elementwise = {});

/// A call of a GEMM kernel whose second operand is a packed weight.
struct ProductCall {
  KernelOp op;
  bool prefetches; ///< its last operand is for the panels of the next product
};

/// Tells each call which panels its block takes next; the last one is followed
/// by the first: of the next iteration, or of the next run.
void linkProducts(mlir::RewriterBase &rewriter, llvm::ArrayRef<ProductCall> products);

} // namespace attn

#endif // PASSES_LOWERING_CHOOSE_KERNELCALL_H
