#ifndef COMPILER_EMIT_CPU_CHEADER_H
#define COMPILER_EMIT_CPU_CHEADER_H

#include "compiler/emit/cpu/LibraryTable.h"
#include <string>

namespace attn {

/// A C header with one typed function an entry, over attnrt/attnrt.h: sizes by
/// the model's names, a pointer for each tensor whose shape these give, an
/// attnrt_output for the others. Names begin with `prefix` (the library's), so
/// that a program may include the headers of several libraries.
std::string makeCHeader(const LibraryDescription &library, llvm::StringRef prefix);

} // namespace attn

#endif // COMPILER_EMIT_CPU_CHEADER_H
