#ifndef FRONTENDS_ONNX_OPS_CONCATENATE_H
#define FRONTENDS_ONNX_OPS_CONCATENATE_H

#include "frontends/onnx/Importer.h"

namespace attn::onnx {

/// `parts` one after the other in dimension `dim` of `shape`; sizes have been
/// checked.
Tensor concatenate(Node &node, llvm::ArrayRef<Tensor> parts, int64_t dim, llvm::ArrayRef<Expr> shape);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_CONCATENATE_H
