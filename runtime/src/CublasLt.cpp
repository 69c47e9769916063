#include "CublasLt.h"

#include "Fork.h"
#include <dlfcn.h>
#include <pthread.h>

using namespace attn::rt;

namespace {
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
CublasLt table;
bool isAsked = false, isThere = false;
ForkHook hook([](void *) { pthread_mutex_init(&lock, nullptr); }, nullptr);

bool load(const char *name) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return false;
#define ATTNRT_CUBLASLT(name)                                                                                          \
  {                                                                                                                    \
    #name, reinterpret_cast<void **>(&table.name)                                                                      \
  }
  const struct {
    const char *name;
    void **place;
  } names[] = {ATTNRT_CUBLASLT(cublasLtCreate),
               ATTNRT_CUBLASLT(cublasLtDestroy),
               ATTNRT_CUBLASLT(cublasLtMatmulDescCreate),
               ATTNRT_CUBLASLT(cublasLtMatmulDescDestroy),
               ATTNRT_CUBLASLT(cublasLtMatmulDescSetAttribute),
               ATTNRT_CUBLASLT(cublasLtMatrixLayoutCreate),
               ATTNRT_CUBLASLT(cublasLtMatrixLayoutDestroy),
               ATTNRT_CUBLASLT(cublasLtMatrixLayoutSetAttribute),
               ATTNRT_CUBLASLT(cublasLtMatmulPreferenceCreate),
               ATTNRT_CUBLASLT(cublasLtMatmulPreferenceDestroy),
               ATTNRT_CUBLASLT(cublasLtMatmulPreferenceSetAttribute),
               ATTNRT_CUBLASLT(cublasLtMatmulAlgoGetHeuristic),
               ATTNRT_CUBLASLT(cublasLtMatmul),
               ATTNRT_CUBLASLT(cublasLtGetStatusName)};
#undef ATTNRT_CUBLASLT
  for (const auto &each : names)
    if (!(*each.place = dlsym(library, each.name))) {
      dlclose(library);
      return false;
    }
  return true;
}
} // namespace

const CublasLt *attn::rt::openCublasLt() {
  pthread_mutex_lock(&lock);
  if (!isAsked)
    isThere = load("libcublasLt.so.13") || load("libcublasLt.so.12");
  isAsked = true;
  pthread_mutex_unlock(&lock);
  return isThere ? &table : nullptr;
}
