#ifndef PASSES_LOWERING_CHOOSE_EPILOGUE_H
#define PASSES_LOWERING_CHOOSE_EPILOGUE_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "passes/kernels/cpu/Gemm.h"
#include <string>

namespace attn {

/// An elementwise user of a product that becomes part of its kernel.
struct Epilogue {
  mlir::linalg::GenericOp op;
  unsigned accumulator = 0;
  llvm::SmallVector<mlir::Value> operands;  ///< the others
  llvm::SmallVector<mlir::AffineMap> maps;  ///< from the result's dimensions to theirs: of dimensions and constants
  llvm::SmallVector<EpilogueOperand> kinds; ///< matchEpilogue sets it

  EpilogueSpec getSpec() const {
    EpilogueSpec spec;
    spec.epilogue = mlir::linalg::GenericOp(op).getBody();
    spec.accumulator = accumulator;
    spec.operands = kinds;
    return spec;
  }
};

/// The elementwise op that uses `product` alone, on the same elements. Without
/// one, `reason` is empty where there is nothing to fuse.
std::optional<Epilogue> findEpilogue(mlir::OpResult product, std::string &reason);

/// The same where it reads its operands as panels' kernels can: `product` is a
/// tensor of `rows` leading and then `columns` dimensions.
std::optional<Epilogue> matchEpilogue(mlir::OpResult product, unsigned rows, unsigned columns, std::string &reason);

/// The spec of a kernel, as `makeSpec` makes it, of a product and `epilogue`. An epilogue that `canBuild` refuses is
/// dropped, and `reason` says why.
template <typename Spec>
Spec fitEpilogue(std::optional<Epilogue> &epilogue, llvm::function_ref<Spec()> makeSpec,
                 llvm::function_ref<bool(const Spec &, std::string *)> canBuild, std::string &reason) {
  Spec spec = makeSpec();
  if (!epilogue || canBuild(spec, &reason))
    return spec;
  epilogue.reset();
  return makeSpec();
}

/// The dimensions [first, end) as one group of a reshape.
mlir::ReassociationIndices dimRange(int64_t first, int64_t end);
/// Number of elements along the dimensions [first, first + count) of a type.
int64_t countElements(mlir::RankedTensorType type, unsigned first, unsigned count);
/// `value` as a matrix whose rows are its first `leading` dimensions.
mlir::Value toMatrix(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, unsigned leading);
/// `value` as matrices, one for each place of its first `batch` dimensions, whose rows are the next `rows`; of `sizes`.
mlir::Value toCube(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, unsigned batch, unsigned rows,
                   llvm::ArrayRef<mlir::OpFoldResult> sizes);
/// The inverse of toMatrix: `matrix` as a tensor of `type` and `sizes`, the first `leading` of which are rows.
mlir::Value fromMatrix(mlir::OpBuilder &b, mlir::Location loc, mlir::Value matrix, mlir::RankedTensorType type,
                       llvm::ArrayRef<mlir::OpFoldResult> sizes, unsigned leading);
/// An operand of the epilogue of a product with `rows` leading dimensions in the shape that the kernel reads.
mlir::Value flattenOperand(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, EpilogueOperand kind,
                           unsigned rows);
/// The product of sizes, which folds.
mlir::OpFoldResult multiplySizes(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> sizes);
/// ceil(size / step), as a value.
mlir::Value ceilDivide(mlir::OpBuilder &b, mlir::Location loc, mlir::OpFoldResult size, int64_t step);

} // namespace attn

#endif // PASSES_LOWERING_CHOOSE_EPILOGUE_H
