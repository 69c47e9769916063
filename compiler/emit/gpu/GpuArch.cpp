#include "compiler/emit/gpu/GpuArch.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace attn {

// What LLVM 22 and PTX 8.0 know, from the first with asynchronous copies on.
static constexpr unsigned kKnown[] = {80, 86, 87, 89, 90};

/// `number`: of an "sm_N", else 0.
static std::string describeUnknown(llvm::StringRef part, unsigned number) {
  std::string use = "; use sm_80, sm_86, sm_87, sm_89, sm_90 or sm_90a, separated by commas";
  if (number && number < kKnown[0])
    return "the GPU architecture '" + part.str() +
           "' is too old: kernels copy asynchronously, which GPUs do from sm_80 on" + use;
  if (number > 90 && number < 1000)
    return "the GPU architecture '" + part.str() +
           "' is newer than this compiler: the driver of such a GPU compiles the PTX of sm_90" + use;
  return "unknown GPU architecture '" + part.str() + "'" + use;
}

std::vector<GpuArch> parseGpuArchs(llvm::StringRef text, std::string &error) {
  std::vector<GpuArch> archs;
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  for (llvm::StringRef part : parts) {
    GpuArch arch;
    llvm::StringRef digits = part;
    bool isWellFormed = digits.consume_front("sm_");
    arch.exact = digits.consume_back("a");
    if (!isWellFormed || digits.getAsInteger(10, arch.number) || !llvm::is_contained(kKnown, arch.number) ||
        (arch.exact && arch.number != 90)) {
      error = describeUnknown(part, isWellFormed && !arch.exact && arch.number ? arch.number : 0);
      return {};
    }
    archs.push_back(arch);
  }
  auto isNewer = [](const GpuArch &a, const GpuArch &b) {
    return a.number != b.number ? a.number > b.number : a.exact && !b.exact;
  };
  llvm::sort(archs, isNewer);
  archs.erase(llvm::unique(archs, [](const GpuArch &a, const GpuArch &b) { return a.name() == b.name(); }),
              archs.end());
  return archs;
}

} // namespace attn
