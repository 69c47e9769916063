#ifndef TOOLS_INTERPRET_INTERPRETER_H
#define TOOLS_INTERPRET_INTERPRETER_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/SegmentAttentionOp.h"
#include "dialects/attn/TopKOp.h"
#include "tools/interpret/Datum.h"
#include "tools/interpret/ScalarOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/AffineExpr.h"
#include "llvm/ADT/DenseMap.h"

// Runs imported and canonical IR on tensors, one element at a time and in
// double precision, straight from what each op is defined to mean. It shares no
// code with decomposition, kernels or lowering, so that they can be compared
// with it.

namespace attn::interpret {

class Interpreter;

/// A block of scalar ops, prepared to be run many times: the body of a linalg
/// op or a region of attn.attention.
class ScalarBody {
public:
  /// Prepares `block`. Values from outside are taken from `interpreter`.
  static mlir::FailureOr<ScalarBody> prepare(Interpreter &interpreter, mlir::Block &block);

  /// Runs it on `arguments` (a prefix of the block's is enough); `index` is what
  /// linalg.index and attn.index read. The operands of the terminator, or
  /// failure after a diagnostic.
  mlir::FailureOr<llvm::ArrayRef<Scalar>> run(llvm::ArrayRef<Scalar> arguments, llvm::ArrayRef<int64_t> index);

private:
  struct Step {
    mlir::Operation *op;
    ScalarRule rule; ///< null for the ops that `run` knows
    llvm::SmallVector<unsigned, 3> operands;
    unsigned result;
    DatumRef tensor; ///< of tensor.extract
  };
  llvm::SmallVector<Step> steps;
  llvm::SmallVector<Scalar> slots, yields;
  llvm::SmallVector<unsigned> yielded;
};

class Interpreter {
public:
  /// The results of `function` on `arguments`; fails after a diagnostic.
  mlir::FailureOr<llvm::SmallVector<DatumRef>> call(mlir::func::FuncOp function, llvm::ArrayRef<DatumRef> arguments);

  DatumRef get(mlir::Value value) const { return environment.lookup(value); }

private:
  friend class TensorRunner;

  mlir::FailureOr<llvm::SmallVector<DatumRef>> runRegion(mlir::Region &region, llvm::ArrayRef<DatumRef> arguments);
  mlir::LogicalResult run(mlir::Operation *op);
  mlir::LogicalResult runScalar(mlir::Operation *op, ScalarRule rule);
  mlir::LogicalResult runConstant(mlir::Operation *op, mlir::Attribute value);
  mlir::LogicalResult runLinalg(mlir::linalg::LinalgOp op);
  mlir::LogicalResult runTensor(mlir::Operation *op, bool &known);
  mlir::LogicalResult runControl(mlir::Operation *op, bool &known);
  mlir::LogicalResult runAttn(mlir::Operation *op, bool &known);
  mlir::LogicalResult runSoftmax(SoftmaxOp op);
  mlir::LogicalResult runLayerNorm(LayerNormOp op);
  mlir::LogicalResult runTopK(TopKOp op);
  mlir::LogicalResult runSegmentAttention(SegmentAttentionOp op);
  mlir::LogicalResult runAttention(AttentionOp op);

  /// The sizes that a mixed static and dynamic list stands for.
  llvm::SmallVector<int64_t> sizesOf(llvm::ArrayRef<mlir::OpFoldResult> mixed) const;
  /// A tensor of zeros for `result` of `shape`, or failure when it is too large
  /// or differs from the static type.
  mlir::FailureOr<std::shared_ptr<Datum>> make(mlir::Value result, llvm::ArrayRef<int64_t> shape);
  void set(mlir::Value value, DatumRef datum) { environment[value] = std::move(datum); }

  llvm::DenseMap<mlir::Value, DatumRef> environment;
  unsigned depth = 0;
};

/// `expr` at the point `dims` (and `symbols`).
int64_t evaluate(mlir::AffineExpr expr, llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> symbols = {});

/// The row-major position of `index` in `shape`, or -1 outside of it.
int64_t positionIn(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> index);

} // namespace attn::interpret

#endif // TOOLS_INTERPRET_INTERPRETER_H
