#ifndef PASSES_KERNELS_SHARED_BLOCKSIGNATURE_H
#define PASSES_KERNELS_SHARED_BLOCKSIGNATURE_H

#include <string>

namespace mlir {
class Block;
}

namespace attn {

/// The generic form of `block` without locations and value names, constants
/// from outside included: equal for blocks that compute the same thing by the
/// same ops. Part of the key of a kernel that carries the block.
std::string blockSignature(mlir::Block &block);

} // namespace attn

#endif // PASSES_KERNELS_SHARED_BLOCKSIGNATURE_H
