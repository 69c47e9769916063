#ifndef FRONTENDS_ONNX_OPS_BLOCKS_H
#define FRONTENDS_ONNX_OPS_BLOCKS_H

#include "frontends/onnx/Importer.h"

// Numbers stored as small integers with a scale for each block of one dimension.

namespace attn::onnx {

struct Blocks {
  Tensor codes, scales;        ///< codes one a byte, in the numbers' shape
  std::optional<Tensor> zeros; ///< of the codes' type or the scales'
  int64_t axis = 0, block = 0, bits = 8;
  int64_t zeroPoint = 0;   ///< where there are no zeros
  bool isE4M3 = false;     ///< codes are those of float8e4m3fn
  bool narrowRows = false; ///< what is multiplied by the numbers may be rounded to 8 bits a block
};

/// The numbers, of the scales' type: attn.dequantize_blocks. The sizes of scales and zeros are checked here.
mlir::FailureOr<Tensor> dequantizeBlocks(Node &n, const Blocks &blocks);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_BLOCKS_H
