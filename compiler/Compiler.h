#ifndef COMPILER_COMPILER_H
#define COMPILER_COMPILER_H

#include "compiler/package/WeightPlan.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace mlir {
class DialectRegistry;
class MLIRContext;
} // namespace mlir

namespace attn {
class WeightStore;

/// How far a compile goes and what it writes.
enum class EmitKind {
  Attn,   ///< IR after import (text)
  Linalg, ///< IR after passes/graph (text)
  Llvm,   ///< LLVM IR (text)
  Ptx,    ///< PTX of the kernels, for the first of gpuArchs (text)
  Obj,    ///< ELF object, without weights
  Lib     ///< the model library
};

struct CompileOptions {
  EmitKind emit = EmitKind::Lib;
  /// 0: no graph optimisation, LLVM O0. 1, 2: LLVM's levels. 3: LLVM's passes that
  /// pay off for vector code.
  unsigned optLevel = 3;
  /// "native" (the features that CPUID reports, never the model name), or an
  /// LLVM CPU name ("x86-64-v3", "x86-64-v4", "x86-64", "znver5").
  std::string cpu = "native";
  /// How the constant operands of GEMMs are stored, from level 1 on: "f32",
  /// "bf16", "int8" (a scale a column) or "int8:GROUP" (a scale a column and
  /// GROUP rows).
  std::string weights = "f32";
  /// "bf16": the products of GEMMs with constant operands are of bf16 values, and where
  /// the processor multiplies such those of attention; sums and all else f32. "bf16x3",
  /// "bf16x6": the products of such GEMMs are made of three or six of bf16 parts of their
  /// factors, to be about what f32 gives; the CPU must have them. "int8": rows that are
  /// multiplied by a matrix stored in blocks are rounded to 8 bits, each block with a
  /// scale of its own, where the processor multiplies bytes; all else f32. For a GPU also
  /// "tf32" and "f16": all GEMMs and attention.
  std::string precision = "f32";
  /// How caches of keys and values are stored that a library or a search keeps: "model" (as the model computes
  /// them), or from level 1 on "int8", a scale a row; for a GPU also "fp8".
  std::string cache = "model";
  /// For an NVIDIA GPU: its architectures, as "sm_90a,sm_80". "": for the CPU.
  /// `cpu` is then the host's, which computes sizes and launches kernels.
  std::string gpuArchs;
  /// What has no kernel on the GPU runs on the CPU (CompileReport::hostOps), instead of being an error.
  bool allowHostOps = false;
  /// Passes of the graph and kernel stages that are left out, by argument
  /// ("attn-fold-layout").
  std::vector<std::string> disabledPasses;
  /// Masks by finite constants are computed as the graph does: no tile of keys
  /// is skipped for them, and no score is assumed to be small.
  bool exactMasks = false;
  /// Nodes of attentions whose weights become outputs of their entry ("all":
  /// each that is fused), and as what: "weights", "head-mean", "argmax",
  /// "entropy", "top-k:K". From level 1 on.
  std::vector<std::string> exposedNodes, exposedAs;
  /// Only the first so many of our own passes of these stages run; 0 is the
  /// unfused form, in which nothing is recognised and no kernel chosen.
  size_t maxFusionPasses = std::numeric_limits<size_t>::max();
  /// A folder of objects of earlier compiles, as trusted as the compiler: what
  /// is found there is not compiled again ("": none).
  std::string cacheDir;
  /// Our own passes and kernels are those of `optLevel`, and LLVM's are those of 0: for code that runs once or twice, a
  /// third of the time.
  bool quickCode = false;
  /// The library tells the runtime at the end of each fused region, for profiles.
  bool marksRegions = false;
  /// Print the IR to stderr after every pass.
  bool printIrAfterAll = false;
  /// Write the IR after every pass into this folder ("" : do not).
  std::string dumpIrDir;
  /// Print a table of pass times to stderr.
  bool timing = false;
  /// What messages call the output ("": its path).
  std::string outputName;
  /// Where an MLIR reproducer goes if a pass fails or crashes ("" : nowhere), other than those that lower kernels,
  /// which would be copied before: 2 % of a compile. Where there is one, the process ends within kReproducerSeconds of
  /// that, by SIGALRM if need be: a crash may leave a lock held.
  std::string reproducerPath;
  static constexpr unsigned kReproducerSeconds = 20;
  /// Called as each stage begins ("recognising attentions", "linking"), for
  /// progress and for the message of a compile that dies. May be empty.
  std::function<void(llvm::StringRef stage)> onStage;
};

/// What an entry keeps from run to run, and how.
struct KeptState {
  std::string entry, input, output;
  std::string reason;   ///< why a run makes a new tensor of it
  bool inPlace = false; ///< runs append to its memory, or write rows of it
  bool grows = false;   ///< runs append to it, or a dimension has another name in the output
};

/// What became of a cache that was to be stored in fewer bits.
struct StoredCache {
  std::string entry, name;
  std::string reason;                  ///< why it stays as the model computes it
  uint64_t bytesBefore = 0, bytes = 0; ///< of one position of one sequence
};

/// What a compile did, for the tools to report.
struct CompileReport {
  /// The compile failed because its output cannot be written.
  bool outputFailed = false;
  /// The compile failed because the options ask for what the model does not
  /// allow, or because the model holds what the target cannot run.
  bool unsupported = false;
  uint64_t elfBytes = 0;
  uint64_t weightBytes = 0;
  /// Weights stored in fewer bits, and what that loses.
  std::vector<NarrowedWeight> narrowed;
  std::vector<KeptState> states;
  /// Nodes that run on the CPU in a library for the GPU, "node 'wave' (Sin)", in order, each once.
  std::vector<std::string> hostOps;
  /// Softmaxes whose attention became one attn.attention, and all softmaxes.
  unsigned fusedAttentions = 0;
  unsigned softmaxes = 0;
  /// A C header with a typed function an entry (of a library).
  std::string header;
  /// The verdicts as a JSON array, one object a softmax.
  std::string fusionJson = "[]";
  /// How each product of quantised operands is computed, as a JSON array.
  std::string productsJson = "[]";
  /// Our own passes of the graph and kernel stages that ran, by argument, but
  /// for attn-decompose, which every form needs.
  std::vector<std::string> fusionPasses;
  /// Of CompileOptions::cache.
  std::vector<StoredCache> caches;
};

/// Whether `text` says how weights are stored (CompileOptions::weights).
bool isWeightStorage(llvm::StringRef text);

/// What CompileOptions::disabledPasses may name: our own passes of the graph and
/// kernel stages but attn-decompose, in their order.
std::vector<std::string> optionalPasses();

/// Registers the dialects, extensions and interfaces that a compile uses.
void registerCompilerDialects(mlir::DialectRegistry &registry);

/// Compiles `module`, as a frontend made it (entries as attn.entry functions on
/// tensors, weights as attn.global), and writes `options.emit` to `outputPath`
/// atomically: a temporary file beside it, fsync, rename. "-" is stdout for the
/// text kinds. Errors go to the context's diagnostic handler, with the location
/// of the node. `module` and `weights` are consumed. One compile at a time a
/// context; several contexts may compile at once.
mlir::LogicalResult compileModule(mlir::OwningOpRef<mlir::ModuleOp> module, WeightStore &weights,
                                  const CompileOptions &options, llvm::StringRef outputPath,
                                  CompileReport *report = nullptr);

/// Writes `module`, as a frontend made it, as text with the passes that
/// compileModule runs on it, for `attn-opt --run-reproducer`: what is left when
/// a compile died without a word. Weights are not in it.
mlir::LogicalResult writeReproducer(mlir::ModuleOp module, const CompileOptions &options, llvm::StringRef path);

} // namespace attn

#endif // COMPILER_COMPILER_H
