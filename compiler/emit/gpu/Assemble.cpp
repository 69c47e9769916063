#include "compiler/emit/gpu/Ptx.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

namespace attn {

/// CUDA_ROOT decides alone where it is set, so that a build can say which ptxas it means, or that it wants none.
static std::string findPtxas() {
  for (const char *variable : {"CUDA_ROOT", "CUDA_HOME", "CUDA_PATH"})
    if (llvm::StringRef root = std::getenv(variable) ? std::getenv(variable) : ""; !root.empty()) {
      llvm::SmallString<128> path(root);
      llvm::sys::path::append(path, "bin", "ptxas");
      if (llvm::sys::fs::can_execute(path))
        return path.str().str();
      if (llvm::StringRef(variable) == "CUDA_ROOT")
        return "";
    }
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  auto found = llvm::sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"});
  return found ? *found : "";
}

bool assemblePtx(llvm::StringRef ptx, const GpuArch &arch, std::optional<std::string> &cubin, std::string &error) {
  std::string program = findPtxas();
  if (program.empty())
    return true;
  llvm::SmallString<128> folder;
  if (std::error_code code = llvm::sys::fs::createUniqueDirectory("attnc-ptx", folder)) {
    error = "cannot make a temporary folder: " + code.message();
    return false;
  }
  auto side = [&](const char *name) {
    llvm::SmallString<128> path = folder;
    llvm::sys::path::append(path, name);
    return path.str().str();
  };
  std::string source = side("kernels.ptx"), result = side("kernels.cubin"), log = side("log");
  std::error_code code;
  {
    llvm::raw_fd_ostream os(source, code);
    if (!code)
      os << ptx;
  }
  std::string archName = "-arch=" + arch.name(), message;
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(log), llvm::StringRef(log)};
  int status = code ? -1
                    : llvm::sys::ExecuteAndWait(program, {program, archName, "-O3", source, "-o", result}, std::nullopt,
                                                redirects, /*SecondsToWait=*/600, 0, &message);
  if (status == 0) {
    if (auto bytes = llvm::MemoryBuffer::getFile(result, /*IsText=*/false, /*RequiresNullTerminator=*/false))
      cubin = (*bytes)->getBuffer().str();
    else
      error = "cannot read what ptxas wrote: " + bytes.getError().message();
  } else {
    auto text = llvm::MemoryBuffer::getFile(log);
    error = "'" + program + "' failed (" + std::to_string(status) + ") on kernels for " + arch.name() +
            ", which take a ptxas of CUDA 12 or later (of CUDA_ROOT, CUDA_HOME, CUDA_PATH or PATH): " + message +
            (text ? (*text)->getBuffer().str() : "");
  }
  llvm::sys::fs::remove_directories(folder);
  return error.empty();
}

} // namespace attn
