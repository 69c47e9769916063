#ifndef COMPILER_EMIT_CPU_LIBRARYTABLE_H
#define COMPILER_EMIT_CPU_LIBRARYTABLE_H

#include "attnrt/abi.h"
#include "compiler/package/WeightPlan.h"
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class Module;
}

namespace attn {

struct TensorDescription {
  std::string name;
  std::string dtype;                 // as NumPy spells it
  llvm::SmallVector<int64_t> shape;  // -1 where the run decides
  std::vector<std::string> dimNames; // one a dimension, "" for none
  bool isOptional = false;           // of an input: a caller may leave it out
  llvm::SmallVector<int64_t> givenShape;
  std::vector<std::string> givenNames; // of such an input where a caller gives it

  /// What readers are told.
  llvm::ArrayRef<int64_t> shownShape() const { return isOptional ? givenShape : shape; }
  llvm::ArrayRef<std::string> shownNames() const { return isOptional ? givenNames : dimNames; }
};

struct EntryDescription {
  std::string name;
  std::string function; // symbol of an attnrt_entry_fn in the module
  std::vector<TensorDescription> inputs, outputs;
  std::vector<std::string> messages;
  struct Bounds {
    std::string dim;
    int64_t lower, upper;
  };
  std::vector<Bounds> dimBounds;
  struct State {
    int32_t input, output, dim; // as attnrt_state_info
    std::string reason;         // why it is not appended to
  };
  std::vector<State> states;
  std::optional<int64_t> maxWorkspace; // bytes, where the bounds tell
};

/// One form of the GPU code, as attnrt_gpu_image.
struct GpuImage {
  bool isPtx;
  unsigned arch;
  bool exact;
  std::string bytes;
};

/// What an attn.mark counts.
struct RegionDescription {
  std::string name; // of the kernel, or "loop", "copy", "serial loop", "start"
  std::string entry;
  std::vector<std::string> nodes; // of the model
};

/// What attnrt_library (abi.h) says of a library.
struct LibraryDescription {
  std::vector<EntryDescription> entries;
  std::vector<WeightRow> weights;
  std::string requiredCpuFeatures;
  std::string optionalCpuFeatures;
  std::string target;
  std::string compilerVersion;
  std::string manifestJson;
  uint32_t neededAbi = ATTNRT_ABI_NEEDED; // the oldest version whose runtime runs it
  std::vector<RegionDescription> regions; // by their numbers; none: the library cannot be profiled
  std::vector<GpuImage> gpuImages;        // none: the code runs on the CPU
  std::vector<std::string> gpuKernels;    // names, by their numbers
};

/// The ABI's number for a dtype that the frontends use; 0 for any other.
int32_t abiDType(llvm::StringRef numpyName);

/// Adds the attnrt_library of `description` and attnrt_library_query to the
/// module, which has its data layout already.
void emitLibraryTable(llvm::Module &module, const LibraryDescription &description);

/// The manifest as a JSON object: entries, weights, target, compiler and the
/// fusion verdicts (a JSON array). Its digest is the one of the file's footer.
std::string makeManifest(const LibraryDescription &description, TargetAttr target, llvm::StringRef fusionJson,
                         llvm::StringRef productsJson = "[]");

} // namespace attn

#endif // COMPILER_EMIT_CPU_LIBRARYTABLE_H
