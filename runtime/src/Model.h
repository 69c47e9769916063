#ifndef RUNTIME_SRC_MODEL_H
#define RUNTIME_SRC_MODEL_H

#include "Fork.h"
#include "Gpu.h"
#include "LibraryFile.h"
#include <atomic>
#include <pthread.h>

namespace attn::rt {

/// What a run needs to know about an entry beyond attnrt_entry.
struct EntryPlan {
  const attnrt_entry *entry;
  attnrt_entry_info info;
  /// Dimensions of inputs with a name that an earlier one has, too.
  struct SameName {
    int32_t input, dim, firstInput, firstDim;
  };
  SameName *sameNames; // owned
  int32_t numSameNames;
};

} // namespace attn::rt

struct attnrt_model {
  std::atomic<int32_t> references{1};
  attn::rt::LibraryFile file;
  void *code = nullptr;               // from dlopen
  attnrt_library library = {};        // a copy: of an older one, what it does not have is 0
  bool hasTiles = false;              // its code multiplies tiles, and may here
  attn::rt::GpuModel *gpus = nullptr; // owned; a device's first session of a library with GPU code makes it
  attnrt_model_info info = {};
  attnrt_gpu_code gpuCode = {};                   // what library.gpu points to
  attn::rt::Array<attnrt_entry> describedEntries; // copies
  attn::rt::Array<attn::rt::EntryPlan> entries;
  attn::rt::Array<const attnrt_entry_info *> entryInfos;
  // Runs hold it shared, whoever changes weights alone.
  pthread_rwlock_t weightsLock;
  pthread_mutex_t gpuLock;
  attn::rt::ForkHook forkHook;

  attnrt_model();
  ~attnrt_model();
  attnrt_model(const attnrt_model &) = delete;

  attnrt_status load(int descriptor, const char *name, const attnrt_load_options &options);
  attnrt_status find(const char *name, const attn::rt::EntryPlan *&plan) const;

  /// `gpu` is the model on GPU number `device`, made now if nobody has. A model can be looked at without a GPU.
  attnrt_status openGpu(int32_t device, attn::rt::GpuModel *&gpu);

  /// Between the two the weights don't change. beginRun fails if the file did.
  attnrt_status beginRun();
  void endRun() { pthread_rwlock_unlock(&weightsLock); }

private:
  void makeLocks();
  attnrt_status openCode();
  attnrt_status readLibrary(const attnrt_library &found);
  attnrt_status checkLibrary() const;
  attnrt_status planEntries();
};

#endif // RUNTIME_SRC_MODEL_H
