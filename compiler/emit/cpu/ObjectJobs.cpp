#include "compiler/emit/cpu/ObjectJobs.h"
#include "compiler/emit/cpu/Target.h"

#include "llvm/Support/TimeProfiler.h"

namespace attn {

ObjectJobs::ObjectJobs(Options options, mlir::TimingScope &timing)
    : options(std::move(options)), timing(timing), isTraced(llvm::timeTraceProfilerEnabled()) {}

bool ObjectJobs::add(llvm::function_ref<std::unique_ptr<llvm::Module>(llvm::LLVMContext &)> make) {
  Job &job = jobs.emplace_back();
  job.module = make(job.context);
  if (!job.module)
    return false;
  threads.async([this, &job] { run(job); });
  return true;
}

bool ObjectJobs::finish(std::vector<Object> &objects, std::string &error) {
  threads.wait();
  for (Job &job : jobs) {
    if (!job.error.empty()) {
      error = std::move(job.error);
      return false;
    }
    objects.push_back(std::move(job.object));
  }
  return true;
}

void ObjectJobs::run(Job &job) {
  constexpr unsigned kGranularityMicroseconds = 10;
  if (isTraced)
    llvm::timeTraceProfilerInitialize(kGranularityMicroseconds, "attnc");
  compile(job);
  job.module = nullptr; // most of the memory
  if (isTraced)
    llvm::timeTraceProfilerFinishThread();
}

void ObjectJobs::compile(Job &job) {
  ObjectCache cache = options.cache;
  if (cache.load(*job.module, options.target, options.optLevel, job.object))
    return;
  std::unique_ptr<llvm::TargetMachine> machine = takeMachine(job.error);
  if (!machine)
    return;
  {
    mlir::TimingScope scope = timing.nest("LLVM optimisation");
    if (!optimizeModule(*job.module, *machine, options.target, options.optLevel, options.shared, job.error))
      return;
  }
  mlir::TimingScope scope = timing.nest("machine code");
  if (emitObject(*job.module, *machine, options.optLevel, job.object, job.error))
    cache.store(job.object);
  giveBack(std::move(machine));
}

std::unique_ptr<llvm::TargetMachine> ObjectJobs::takeMachine(std::string &error) {
  {
    std::scoped_lock lock(mutex);
    if (!idleMachines.empty())
      return idleMachines.pop_back_val();
  }
  return makeTargetMachine(options.target, options.optLevel, error);
}

void ObjectJobs::giveBack(std::unique_ptr<llvm::TargetMachine> machine) {
  std::scoped_lock lock(mutex);
  idleMachines.push_back(std::move(machine));
}

} // namespace attn
