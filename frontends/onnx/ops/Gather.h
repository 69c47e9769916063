#ifndef FRONTENDS_ONNX_OPS_GATHER_H
#define FRONTENDS_ONNX_OPS_GATHER_H

#include "frontends/onnx/Importer.h"

namespace attn::onnx {

/// Slices of `data` along `axis` that `indices` name, as Gather has it. An index outside ends the run.
mlir::FailureOr<Tensor> gather(Node &n, const Tensor &data, const Tensor &indices, int64_t axis);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_GATHER_H
