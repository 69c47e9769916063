#ifndef COMPILER_EMIT_GPU_PTX_H
#define COMPILER_EMIT_GPU_PTX_H

#include "compiler/emit/gpu/GpuArch.h"
#include "mlir/Support/LogicalResult.h"
#include <optional>

namespace mlir {
class ModuleOp;
}

namespace attn {

/// PTX of the kernels in `module`, whose gpu.module is in the LLVM dialect.
/// Needs neither a GPU nor a CUDA toolkit. Errors are reported at the module.
mlir::FailureOr<std::string> emitPtx(mlir::ModuleOp module, const GpuArch &arch, unsigned optLevel);

/// Machine code for `ptx` by the ptxas of a CUDA toolkit (bin of CUDA_ROOT, which
/// decides alone, of CUDA_HOME or CUDA_PATH; the search path; /usr/local/cuda).
/// Nothing where there is none.
/// False, with `error` set, if ptxas refuses the PTX.
bool assemblePtx(llvm::StringRef ptx, const GpuArch &arch, std::optional<std::string> &cubin, std::string &error);

} // namespace attn

#endif // COMPILER_EMIT_GPU_PTX_H
