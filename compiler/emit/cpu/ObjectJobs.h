#ifndef COMPILER_EMIT_CPU_OBJECTJOBS_H
#define COMPILER_EMIT_CPU_OBJECTJOBS_H

#include "compiler/emit/cpu/Object.h"
#include "compiler/emit/cpu/ObjectCache.h"
#include "mlir/Support/Timing.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Target/TargetMachine.h"
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace attn {

/// The objects of a library, compiled on a thread per core while the one that adds them lowers the next.
class ObjectJobs {
public:
  /// What all objects have in common.
  struct Options {
    TargetAttr target;
    unsigned optLevel;
    llvm::StringSet<> shared; ///< as for optimizeModule
    ObjectCache cache;        ///< looked up first
  };

  ObjectJobs(Options options, mlir::TimingScope &timing);

  /// Compiles what `make` makes in the context that it is given, a context of the module's own; false if it makes
  /// nothing, having said why.
  bool add(llvm::function_ref<std::unique_ptr<llvm::Module>(llvm::LLVMContext &)> make);
  /// Waits for the objects, in the order in which they were added; false, with `error` set, where one failed.
  bool finish(std::vector<Object> &objects, std::string &error);

private:
  struct Job {
    llvm::LLVMContext context;
    std::unique_ptr<llvm::Module> module;
    Object object;
    std::string error;
  };
  void run(Job &job);
  void compile(Job &job);
  /// A machine that no other thread uses: each has tables that take long to fill. Null, with `error` set, where LLVM
  /// has no such target.
  std::unique_ptr<llvm::TargetMachine> takeMachine(std::string &error);
  void giveBack(std::unique_ptr<llvm::TargetMachine> machine);

  Options options;
  mlir::TimingScope &timing;
  const bool isTraced; ///< a timeline is wanted, of which each thread keeps its part
  std::deque<Job> jobs;
  std::mutex mutex;
  llvm::SmallVector<std::unique_ptr<llvm::TargetMachine>> idleMachines; ///< guarded by mutex
  llvm::DefaultThreadPool threads;                                      ///< last: they end before what they use
};

} // namespace attn

#endif // COMPILER_EMIT_CPU_OBJECTJOBS_H
