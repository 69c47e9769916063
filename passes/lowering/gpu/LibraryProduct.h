#ifndef PASSES_LOWERING_GPU_LIBRARYPRODUCT_H
#define PASSES_LOWERING_GPU_LIBRARYPRODUCT_H

#include "dialects/attn/AttnOps.h"
#include "passes/kernels/gpu/Gemm.h"

namespace attn {

/// On the kernel of a product that cuBLASLt can make, too: how its operands are that product's, a dictionary.
inline constexpr llvm::StringLiteral kLibraryProductAttr = "attn.library_product";

/// In it, where the library makes a part of the epilogue: the kernel of the rest (buildGpuGemmRest).
inline constexpr llvm::StringLiteral kProductRest = "rest";

struct LibraryProduct {
  mlir::DictionaryAttr attribute; ///< null: none
  mlir::Value made;               ///< what of the epilogue it computes; null: all
};

/// The attribute for a kernel of `spec`, whose operands are (left, right, operands of the epilogue..., result, scratch
/// if any). There is none where the operands do not lie as cuBLASLt takes them, or where its epilogues cannot express
/// this one. Those are activation(scale * sum + bias + addend) with a bias along the columns, and none, ReLU or GELU by
/// tanh. Another epilogue may begin with such a part, if that is rounded to the result's type in the graph, too, and
/// the sums are so long that the library gains more than a launch for the rest costs.
LibraryProduct findLibraryProduct(mlir::MLIRContext *context, const GpuGemmSpec &spec);

/// The attn.product for the operands of a kernel with that attribute: its i1. A factor of f32 is rounded in front of it
/// where the other one is in 16 bits, if the product is made.
mlir::Value emitLibraryProduct(mlir::OpBuilder &b, mlir::Location loc, mlir::DictionaryAttr product,
                               mlir::ValueRange operands);

} // namespace attn

#endif // PASSES_LOWERING_GPU_LIBRARYPRODUCT_H
