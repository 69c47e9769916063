#ifndef PASSES_LOWERING_CPU_ROWPRODUCT_H
#define PASSES_LOWERING_CPU_ROWPRODUCT_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "passes/graph/Collect.h"
#include "passes/lowering/choose/Epilogue.h"
#include "passes/lowering/choose/KernelCall.h"

namespace attn {

/// A kernel's product of rows by K x N matrices.
struct RowProduct {
  mlir::Value lhs;             ///< its last dimension is K
  mlir::RankedTensorType type; ///< of the result, with the epilogue
  int64_t m = 0, k = 0, n = 0; ///< as the kernel has them: m may be dynamic
  mlir::Value columns;         ///< how many there are, where n is dynamic
  int64_t scratchMultiple = 1; ///< rows of what the kernel writes for itself are the product's, rounded up to it

  unsigned leading() const { return mlir::cast<mlir::RankedTensorType>(lhs.getType()).getRank() - 1; }
};

/// A K x N matrix (N x K when transposed) that is a weight or a constant in panels of `width` columns, as
/// #attn.pack_panels has them.
mlir::Value readPanels(mlir::RewriterBase &rewriter, mlir::Location loc, DerivedGlobals &globals, mlir::Value matrix,
                       bool transposed, int64_t width);

/// Adds the operands of an epilogue to a kernel's `inputs`, and to `elementwise` which of them may be its result.
void addEpilogueInputs(mlir::RewriterBase &rewriter, mlir::Location loc, const Epilogue &epilogue, mlir::Type result,
                       unsigned leading, llvm::SmallVectorImpl<mlir::Value> &inputs,
                       llvm::SmallVectorImpl<int64_t> &elementwise);

/// Calls `kernel` on `inputs`, cast to its arguments, and returns the result as `product.type`. What the kernel writes
/// for itself, matrices of types `scratch`, are results before it.
mlir::Value emitRowProduct(mlir::RewriterBase &rewriter, mlir::Location loc, const RowProduct &product,
                           mlir::func::FuncOp kernel, llvm::SmallVector<mlir::Value> inputs,
                           llvm::ArrayRef<int64_t> elementwise, llvm::ArrayRef<mlir::RankedTensorType> scratch = {});

/// Replaces each `Op` of a module, a product of rows by a matrix, by the call of a kernel of `Spec`, which takes the
/// elementwise op behind it, too, where it can. What no kernel serves stays, and a remark and the report say why.
template <typename Op, typename Spec> class RowProductLowering {
public:
  RowProductLowering(mlir::ModuleOp module, llvm::StringRef category)
      : module(module), kernels(module), symbols(kernels.getSymbols()), globals(module, symbols),
        target(TargetAttr::lookup(module)), rewriter(module.getContext()), category(category) {}
  virtual ~RowProductLowering() = default;

  void run() {
    for (Op op : collect<Op>(module))
      lower(op);
  }

protected:
  using MaybeEpilogue = std::optional<Epilogue>;

  /// Makes `op` what kernels take, whatever its epilogue. Why no kernel serves it, or "".
  virtual std::string prepare(Op) { return ""; }
  virtual Spec makeSpec(Op op, const MaybeEpilogue &epilogue) = 0;
  virtual bool canBuild(const Spec &spec, std::string *reason) = 0;
  virtual mlir::func::FuncOp build(mlir::OpBuilder &builder, mlir::Location loc, const Spec &spec) = 0;
  /// Builds what other kernels the call needs; fails where the name of one is taken.
  virtual mlir::LogicalResult buildOthers(Op, const Spec &) { return mlir::success(); }
  /// What stands in place of the product, or of its epilogue.
  virtual mlir::Value emitCall(Op op, const MaybeEpilogue &epilogue, const Spec &spec, mlir::func::FuncOp kernel) = 0;
  /// Notes the kernel of `spec`; without one why there is none.
  virtual void report(Op op, const Spec *spec, llvm::StringRef text) = 0;

  static unsigned leadingDims(Op op) { return mlir::cast<mlir::RankedTensorType>(op.getLhs().getType()).getRank() - 1; }
  static mlir::RankedTensorType resultType(Op op, const MaybeEpilogue &epilogue) {
    mlir::Value result = epilogue ? mlir::linalg::GenericOp(epilogue->op)->getResult(0) : op->getResult(0);
    return mlir::cast<mlir::RankedTensorType>(result.getType());
  }
  mlir::Location locationOf(Op op, const MaybeEpilogue &epilogue) {
    if (!epilogue)
      return op.getLoc();
    return rewriter.getFusedLoc({op.getLoc(), mlir::linalg::GenericOp(epilogue->op).getLoc()});
  }
  mlir::remark::RemarkOpts remarkNamed(llvm::StringRef name) const {
    return mlir::remark::RemarkOpts::name(name).category(category);
  }

  mlir::ModuleOp module;
  KernelTable kernels;
  mlir::SymbolTable &symbols;
  DerivedGlobals globals;
  TargetAttr target;
  mlir::IRRewriter rewriter;

private:
  void lower(Op op);

  llvm::StringRef category;
};

template <typename Op, typename Spec> void RowProductLowering<Op, Spec>::lower(Op op) {
  auto missed = [&](llvm::StringRef why) {
    mlir::remark::missed(op.getLoc(), remarkNamed("product")) << mlir::remark::reason("{0}", why);
    report(op, nullptr, why);
  };
  if (std::string obstacle = prepare(op); !obstacle.empty())
    return missed(obstacle);
  std::string reason;
  MaybeEpilogue epilogue = matchEpilogue(op->getResult(0), leadingDims(op), 1, reason);
  auto spec = fitEpilogue<Spec>(
      epilogue, [&] { return makeSpec(op, epilogue); },
      [&](const Spec &fitted, std::string *why) { return canBuild(fitted, why); }, reason);
  if (!epilogue && !reason.empty())
    mlir::remark::missed(op.getLoc(), remarkNamed("epilogue")) << mlir::remark::reason("{0}", reason);
  if (!canBuild(spec, &reason))
    return missed(reason);
  mlir::FailureOr<mlir::func::FuncOp> kernel =
      kernels.getOrBuild(spec.symbol(), [&](mlir::OpBuilder &builder) { return build(builder, op.getLoc(), spec); });
  if (failed(kernel))
    return missed("the name '" + spec.symbol() + "' is taken");
  if (failed(buildOthers(op, spec)))
    return missed("the name of the kernel that packs is taken");
  mlir::remark::passed(op.getLoc(), remarkNamed("product")) << mlir::remark::add("{0}", spec.symbol());
  report(op, &spec, spec.symbol());
  mlir::Operation *last = op;
  if (epilogue)
    last = epilogue->op;
  rewriter.setInsertionPoint(last);
  rewriter.replaceOp(last, emitCall(op, epilogue, spec, *kernel));
  if (epilogue)
    rewriter.eraseOp(op);
}

} // namespace attn

#endif // PASSES_LOWERING_CPU_ROWPRODUCT_H
