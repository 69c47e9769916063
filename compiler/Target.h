#ifndef COMPILER_TARGET_H
#define COMPILER_TARGET_H

#include "compiler/Compiler.h"
#include "compiler/emit/cpu/LibraryTable.h"
#include "compiler/pipelines/Stages.h"
#include "passes/graph/Pipeline.h"

namespace attn {

/// What a compile does in a way of its own for one kind of machine. Entries, sizes and memory are the host's on all of
/// them; a target knows which kernels there are, and what is made of the code on buffers.
class Target {
public:
  virtual ~Target() = default;

  /// What the options ask for and `cpu`, the host's machine facts, does not have; "": nothing.
  virtual std::string findMissing(TargetAttr cpu) const { return ""; }
  /// Notes on the ops, as a file would, what the options permit them.
  virtual void permit(mlir::ModuleOp module) const {}
  /// What passes/graph asks about kernels.
  virtual GraphOptions graphOptions() const = 0;
  /// Searches to loops, before all else.
  /// With `traces`, attn-expose-attention follows.
  virtual void buildSearchPipeline(mlir::OpPassManager &pm, bool traces) const = 0;
  /// Kernels for what has one, linalg for the rest. A pass for whose argument `wants` is false is left out.
  virtual void buildKernelPipeline(mlir::OpPassManager &pm, llvm::function_ref<bool(llvm::StringRef)> wants) const = 0;
  /// Whether each kernel is compiled by itself, for the host.
  virtual bool separatesKernels() const { return true; }
  /// Makes code for devices of what is on buffers; the module keeps what the host does.
  virtual mlir::LogicalResult compileDevice(mlir::ModuleOp module, Stages &stages) { return mlir::success(); }
  /// The text for devices (EmitKind::Ptx), made by then.
  virtual llvm::StringRef deviceText() const { return ""; }
  /// Whether what is left for the host has loops, and in regions that can be marked for profiles.
  virtual bool hasLoops(const CompileReport &report) const { return true; }
  virtual bool canMarkRegions() const { return true; }
  /// Hands over the code for devices.
  virtual void describe(LibraryDescription &library) {}
};

// `options` must outlive them.
std::unique_ptr<Target> makeCpuTarget(const CompileOptions &options);
std::unique_ptr<Target> makeGpuTarget(const CompileOptions &options);
/// The one that `options` asks for.
std::unique_ptr<Target> makeTarget(const CompileOptions &options);

} // namespace attn

#endif // COMPILER_TARGET_H
