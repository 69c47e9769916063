#include "Model.h"

#include "CpuFeatures.h"
#include "Tensor.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

using namespace attn::rt;

attnrt_model::attnrt_model() : forkHook([](void *model) { static_cast<attnrt_model *>(model)->makeLocks(); }, this) {
  makeLocks();
}

void attnrt_model::makeLocks() {
  pthread_rwlockattr_t attributes;
  pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__
  // Else back-to-back runs of several sessions never let a writer in.
  pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
  pthread_rwlock_init(&weightsLock, &attributes);
  pthread_rwlockattr_destroy(&attributes);
  pthread_mutex_init(&gpuLock, nullptr);
}

static void pathOfElf(const LibraryFile &file, char (&path)[64]) {
  snprintf(path, sizeof(path), "/proc/self/fd/%d", file.elfDescriptor());
}

attnrt_model::~attnrt_model() {
  for (uint32_t i = 0; entries.data() && i < library.num_entries; ++i)
    free(entries[i].sameNames);
  while (GpuModel *gpu = gpus) {
    gpus = gpu->next;
    destroy(gpu);
  }
  if (code) {
    char path[64];
    pathOfElf(file, path);
    dlclose(code);
    // Still there: something else holds it. The loader would take the next
    // model with this descriptor's number for this one.
    if (void *still = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
      dlclose(still);
      file.leakElfDescriptor();
    }
  }
  pthread_rwlock_destroy(&weightsLock);
  pthread_mutex_destroy(&gpuLock);
}

attnrt_status attnrt_model::load(int descriptor, const char *name, const attnrt_load_options &options) {
  if (attnrt_status status = file.open(descriptor, name, options))
    return status;
  if (attnrt_status status = openCode())
    return status;
  if (attnrt_status status = checkLibrary())
    return status;
  if (attnrt_status status = planEntries())
    return status;
  const attnrt_footer &footer = file.footer();
  info = {library.abi_version,
          library.num_entries,
          entryInfos.data(),
          library.num_weights,
          library.weights,
          library.target,
          library.required_cpu_features,
          library.compiler_version,
          library.manifest_json,
          footer.file_size,
          footer.weights_size,
          {}};
  memcpy(info.digest, footer.digest, sizeof(info.digest));
  return ATTNRT_OK;
}

// The sizes that these had in ABI version 9; none has fewer fields.
static constexpr uint32_t kLibrarySize9 = 80, kEntrySize9 = 72, kGpuCodeSize9 = 32;
static_assert(sizeof(attnrt_library) >= kLibrarySize9 && sizeof(attnrt_entry) >= kEntrySize9 &&
                  sizeof(attnrt_gpu_code) >= kGpuCodeSize9,
              "structures of abi.h only grow");

// Copies what `from`, of whichever version, and `to` both have; the rest of `to` stays 0.
template <typename T> static bool copySized(const T *from, uint32_t fewest, T &to) {
  if (!from || from->struct_size < fewest)
    return false;
  memcpy(&to, from, std::min(size_t(from->struct_size), sizeof(T)));
  return true;
}

attnrt_status attnrt_model::readLibrary(const attnrt_library &found) {
  const char *name = file.name();
  if (!copySized(&found, kLibrarySize9, library))
    return fail(ATTNRT_CORRUPT_FILE, "%s: its description has %u bytes, fewer than %u", name, found.struct_size,
                kLibrarySize9);
  if (library.gpu && !copySized(library.gpu, kGpuCodeSize9, gpuCode))
    return fail(ATTNRT_CORRUPT_FILE, "%s: the description of its GPU code is not sound", name);
  library.gpu = library.gpu ? &gpuCode : nullptr;
  if (!library.num_entries || !library.entries)
    return fail(ATTNRT_CORRUPT_FILE, "%s: has no entries", name);
  if (!describedEntries.allocate(library.num_entries))
    return failMemory(library.num_entries * sizeof(attnrt_entry), "the entries");
  for (uint32_t i = 0; i < library.num_entries; ++i)
    if (!copySized(library.entries[i], kEntrySize9, describedEntries[i]))
      return fail(ATTNRT_CORRUPT_FILE, "%s: the description of entry %u is not sound", name, i);
  return ATTNRT_OK;
}

attnrt_status attnrt_model::openCode() {
  const char *name = file.name();
  char path[64];
  pathOfElf(file, path);
  code = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!code)
    return fail(ATTNRT_IO, "%s: its code cannot be loaded: %s", name, dlerror());
  auto query = reinterpret_cast<attnrt_library_query_fn>(dlsym(code, "attnrt_library_query"));
  if (!query)
    return fail(ATTNRT_CORRUPT_FILE, "%s: has no symbol attnrt_library_query", name);
  const attnrt_library *found = query(ATTNRT_ABI_VERSION);
  if (!found)
    return fail(ATTNRT_INCOMPATIBLE, "%s: its code does not serve ABI version %u", name, ATTNRT_ABI_VERSION);
  if (attnrt_status status = readLibrary(*found))
    return status;
  if (library.abi_version != file.footer().abi_version)
    return fail(ATTNRT_CORRUPT_FILE, "%s: its code has ABI version %u, its footer says %u", name, library.abi_version,
                file.footer().abi_version);
  Text missing;
  if (library.required_cpu_features && !haveCpuFeatures(library.required_cpu_features, missing))
    return fail(ATTNRT_INCOMPATIBLE, "%s: needs CPU features that this machine lacks: %s (of %s)", name, missing.str(),
                library.required_cpu_features);
  hasTiles = library.optional_cpu_features && mayUseTiles(library.optional_cpu_features);
  return ATTNRT_OK;
}

static bool isSound(const attnrt_tensor_info &tensor) {
  if (!tensor.name || !attnrt_dtype_size(tensor.dtype) || tensor.rank < 0 || tensor.rank > kMaxRank ||
      (tensor.rank && !tensor.dims))
    return false;
  for (int32_t dim = 0; dim < tensor.rank; ++dim)
    if (tensor.dims[dim].size < -1 || !tensor.dims[dim].name)
      return false;
  return true;
}

static bool isSound(const attnrt_entry &entry) {
  if (!entry.name || !entry.fn || entry.num_inputs < 0 || entry.num_outputs < 0 || entry.num_messages < 0 ||
      (entry.num_inputs && !entry.inputs) || (entry.num_outputs && !entry.outputs) ||
      (entry.num_messages && !entry.messages))
    return false;
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    if (!isSound(entry.inputs[i]))
      return false;
  for (int32_t i = 0; i < entry.num_outputs; ++i)
    if (!isSound(entry.outputs[i]))
      return false;
  for (int32_t i = 0; entry.optional_inputs && i < entry.num_inputs; ++i)
    for (int32_t dim = 0; entry.optional_inputs[i] && dim < entry.inputs[i].rank; ++dim)
      if (entry.inputs[i].dims[dim].size != -1 || *entry.inputs[i].dims[dim].name)
        return false;
  if (entry.num_states < 0 || (entry.num_states && !entry.states))
    return false;
  for (int32_t i = 0; i < entry.num_states; ++i) {
    const attnrt_state_info &state = entry.states[i];
    if (state.input < 0 || state.input >= entry.num_inputs || state.output < 0 || state.output >= entry.num_outputs)
      return false;
    const attnrt_tensor_info &input = entry.inputs[state.input], &output = entry.outputs[state.output];
    if (input.rank != output.rank || input.dtype != output.dtype || state.dim < -2 || state.dim >= input.rank)
      return false;
    for (int32_t j = 0; j < i; ++j)
      if (entry.states[j].input == state.input || entry.states[j].output == state.output)
        return false;
  }
  return true;
}

static bool isSound(const attnrt_weight_info &weight, uint64_t weightsSize) {
  return weight.name && weight.layout && attnrt_dtype_size(weight.dtype) && weight.rank >= 0 &&
         weight.rank <= kMaxRank && (!weight.rank || weight.shape) && weight.offset <= weightsSize &&
         weight.size <= weightsSize - weight.offset;
}

// The digest says that these are the compiler's bytes; this catches a compiler
// that is wrong, so that it isn't found as a crash of the user's program.
attnrt_status attnrt_model::checkLibrary() const {
  const char *name = file.name();
  if (const attnrt_gpu_code *code = library.gpu; code && (!code->images || (code->num_kernels && !code->kernels)))
    return fail(ATTNRT_CORRUPT_FILE, "%s: the description of its GPU code is not sound", name);
  if (!library.required_cpu_features || !library.target || !library.compiler_version || !library.manifest_json)
    return fail(ATTNRT_CORRUPT_FILE, "%s: its description is incomplete", name);
  for (uint32_t i = 0; i < library.num_entries; ++i)
    if (!isSound(describedEntries[i]) || (library.gpu && describedEntries[i].num_states))
      return fail(ATTNRT_CORRUPT_FILE, "%s: the description of entry %u is not sound", name, i);
  if (library.num_weights && !library.weights)
    return fail(ATTNRT_CORRUPT_FILE, "%s: has no weight table", name);
  for (uint32_t i = 0; i < library.num_weights; ++i)
    if (!isSound(library.weights[i], file.footer().weights_size))
      return fail(ATTNRT_CORRUPT_FILE, "%s: the description of weight %u is not sound, or the weight not in the file",
                  name, i);
  return ATTNRT_OK;
}

// Finds dimensions of one name, so that a run only compares numbers.
static bool planNames(const attnrt_entry &entry, EntryPlan &plan) {
  int32_t numDims = 0;
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    numDims += entry.inputs[i].rank;
  plan.sameNames = static_cast<EntryPlan::SameName *>(calloc(size_t(numDims) + 1, sizeof(EntryPlan::SameName)));
  if (!plan.sameNames)
    return false;
  auto findFirst = [&](const char *name, int32_t beforeInput, int32_t beforeDim) -> EntryPlan::SameName {
    for (int32_t i = 0; i <= beforeInput; ++i)
      for (int32_t d = 0, e = i < beforeInput ? entry.inputs[i].rank : beforeDim; d < e; ++d)
        if (strcmp(entry.inputs[i].dims[d].name, name) == 0)
          return {beforeInput, beforeDim, i, d};
    return {-1, -1, -1, -1};
  };
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    for (int32_t d = 0; d < entry.inputs[i].rank; ++d) {
      const char *name = entry.inputs[i].dims[d].name;
      if (!*name)
        continue;
      EntryPlan::SameName same = findFirst(name, i, d);
      if (same.input >= 0)
        plan.sameNames[plan.numSameNames++] = same;
    }
  return true;
}

attnrt_status attnrt_model::planEntries() {
  uint32_t count = library.num_entries;
  if (!entries.allocate(count) || !entryInfos.allocate(count))
    return failMemory(count * sizeof(EntryPlan), "the entries");
  for (uint32_t i = 0; i < count; ++i) {
    const attnrt_entry &entry = describedEntries[i];
    EntryPlan &plan = entries[i];
    plan.entry = &entry;
    plan.info = {entry.name,           entry.num_inputs, entry.num_outputs, entry.inputs,         entry.outputs,
                 entry.num_states > 0, entry.num_states, entry.states,      entry.optional_inputs};
    entryInfos[i] = &plan.info;
    if (!planNames(entry, plan))
      return failMemory(sizeof(EntryPlan), "an entry");
  }
  return ATTNRT_OK;
}

attnrt_status attnrt_model::find(const char *name, const EntryPlan *&plan) const {
  for (uint32_t i = 0; i < library.num_entries; ++i)
    if (!name || strcmp(entries[i].info.name, name) == 0) {
      plan = &entries[i];
      return ATTNRT_OK;
    }
  Text names;
  for (uint32_t i = 0; i < library.num_entries; ++i)
    names.add(i ? ", '%s'" : "'%s'", entries[i].info.name);
  return fail(ATTNRT_NOT_FOUND, "%s: no entry '%s'; there is %s", file.name(), name, names.str());
}

attnrt_status attnrt_model::openGpu(int32_t device, GpuModel *&gpu) {
  // Whoever changes a weight meanwhile would change the device's copy, too.
  pthread_rwlock_rdlock(&weightsLock);
  pthread_mutex_lock(&gpuLock);
  AtExit unlock([&] {
    pthread_mutex_unlock(&gpuLock);
    pthread_rwlock_unlock(&weightsLock);
  });
  for (gpu = gpus; gpu; gpu = gpu->next)
    if (gpu->device == device)
      return ATTNRT_OK;
  GpuModel *made = make<GpuModel>();
  if (!made)
    return failMemory(sizeof(GpuModel), "a model");
  attnrt_status status = made->load(library, device, file.name(), file.weights(), file.footer().weights_size);
  if (status != ATTNRT_OK) {
    destroy(made);
    return status;
  }
  made->next = gpus;
  gpu = gpus = made;
  return ATTNRT_OK;
}

attnrt_status attnrt_model::beginRun() {
  pthread_rwlock_rdlock(&weightsLock);
  while (file.wasModified()) {
    pthread_rwlock_unlock(&weightsLock);
    pthread_rwlock_wrlock(&weightsLock);
    // Another session may have done it meanwhile.
    attnrt_status status = file.wasModified() ? file.verifyAgain() : ATTNRT_OK;
    pthread_rwlock_unlock(&weightsLock);
    if (status != ATTNRT_OK)
      return status;
    pthread_rwlock_rdlock(&weightsLock);
  }
  return ATTNRT_OK;
}

//===----------------------------------------------------------------------===//
// C API
//===----------------------------------------------------------------------===//

static attnrt_status loadDescriptor(int descriptor, const char *name, const attnrt_load_options *given,
                                    attnrt_model **model) {
  attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
  attnrt_status status = readOptions(given, sizeof(options), "attnrt_load_options", &options);
  if (status == ATTNRT_OK && options.num_threads < 0)
    status = fail(ATTNRT_INVALID_ARGUMENT, "attnrt_load_options: num_threads is %d", options.num_threads);
  if (status == ATTNRT_OK && (options.verify < ATTNRT_VERIFY_ALWAYS || options.verify > ATTNRT_VERIFY_NEVER))
    status = fail(ATTNRT_INVALID_ARGUMENT, "attnrt_load_options: verify is %d, no attnrt_verify", options.verify);
  attnrt_model *loaded = status == ATTNRT_OK ? make<attnrt_model>() : nullptr;
  if (!loaded) {
    close(descriptor);
    return status == ATTNRT_OK ? failMemory(sizeof(attnrt_model), "a model") : status;
  }
  status = loaded->load(descriptor, name, options);
  if (status != ATTNRT_OK)
    destroy(loaded);
  else
    *model = loaded;
  return status;
}

attnrt_status attnrt_model_load(const char *path, const attnrt_load_options *options, attnrt_model **model) {
  if (!path || !model)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_model_load: %s is NULL", path ? "model" : "path");
  // Nonblocking: opening a pipe must not wait for a writer.
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0)
    return fail(errno == ENOENT || errno == ENOTDIR ? ATTNRT_NOT_FOUND : ATTNRT_IO, "%s: cannot be opened: %s", path,
                strerror(errno));
  return loadDescriptor(descriptor, path, options, model);
}

attnrt_status attnrt_model_load_fd(int fd, const attnrt_load_options *options, attnrt_model **model) {
  if (!model)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_model_load_fd: model is NULL");
  int descriptor = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_model_load_fd: descriptor %d cannot be duplicated: %s", fd,
                strerror(errno));
  char name[64];
  snprintf(name, sizeof(name), "descriptor %d", fd);
  return loadDescriptor(descriptor, name, options, model);
}

void attnrt_model_retain(attnrt_model *model) {
  if (model)
    model->references.fetch_add(1, std::memory_order_relaxed);
}

void attnrt_model_release(attnrt_model *model) {
  if (model && model->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    destroy(model);
}

attnrt_status attnrt_model_get_info(const attnrt_model *model, const attnrt_model_info **info) {
  if (!model || !info)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_model_get_info: %s is NULL", model ? "info" : "model");
  *info = &model->info;
  return ATTNRT_OK;
}

attnrt_status attnrt_model_find_entry(const attnrt_model *model, const char *name, const attnrt_entry_info **entry) {
  if (!model || !entry)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_model_find_entry: %s is NULL", model ? "entry" : "model");
  const EntryPlan *plan = nullptr;
  if (attnrt_status status = model->find(name, plan))
    return status;
  *entry = &plan->info;
  return ATTNRT_OK;
}
