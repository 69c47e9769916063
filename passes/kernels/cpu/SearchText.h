#ifndef PASSES_KERNELS_CPU_SEARCHTEXT_H
#define PASSES_KERNELS_CPU_SEARCHTEXT_H

#include "passes/kernels/cpu/Search.h"
#include <string>
#include <utility>

namespace attn {

/// `text`, one function with each `{name}` replaced, as a function at `b`.
mlir::func::FuncOp parseKernel(mlir::OpBuilder &b, llvm::StringRef text,
                               llvm::ArrayRef<std::pair<llvm::StringRef, std::string>> replacements);

/// Ops that make `%ended` true if the i64 `token` is one of `eos`.
std::string isEnd(llvm::ArrayRef<int64_t> eos, llvm::StringRef token);

/// What stands behind the end of a result.
std::string padOf(const SearchKernelSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_SEARCHTEXT_H
