#ifndef ATTNC_PASSES_LOWERING_BUFFERS_KERNELPARAMETERS_H
#define ATTNC_PASSES_LOWERING_BUFFERS_KERNELPARAMETERS_H

#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/IR/BuiltinTypes.h"
#include <array>

namespace attn {

/// A kernel on a GPU has room for this many bytes of parameters (PTX ISA 4.4: before PTX 8.1).
constexpr int64_t kMaxParameterBytes = 4352;

/// What a kernel on a GPU takes of a buffer besides the address of its first element: the places, in the descriptor, of
/// the sizes that its type leaves open, and of the strides where these do not follow from the sizes. A whole
/// descriptor of four dimensions has 88 bytes, so that 49 of them are too many.
inline llvm::SmallVector<std::array<int64_t, 2>> openFields(mlir::MemRefType type) {
  llvm::SmallVector<std::array<int64_t, 2>> fields;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      fields.push_back({3, dim});
  if (type.getLayout().isIdentity())
    return fields;
  auto [strides, offset] = type.getStridesAndOffset();
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (mlir::ShapedType::isDynamic(strides[dim]))
      fields.push_back({4, dim});
  return fields;
}

/// Whether it is what attn.map_tiles gives.
inline bool isTileMap(mlir::Type type) { return mlir::isa<mlir::VectorType>(type); }

struct ParameterRoom {
  int64_t bytes, alignment;
};
constexpr ParameterRoom kTilesRoom = {128, 64};
inline ParameterRoom roomOf(mlir::Type type) {
  if (isTileMap(type))
    return kTilesRoom;
  int64_t bytes = mlir::isa<mlir::LLVM::LLVMPointerType>(type) ? 8 : type.getIntOrFloatBitWidth() / 8;
  return {bytes, bytes};
}

} // namespace attn

#endif
