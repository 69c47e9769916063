#ifndef RUNTIME_SRC_CUBLASLT_H
#define RUNTIME_SRC_CUBLASLT_H

#include <cstddef>
#include <cstdint>

namespace attn::rt {

/// cublasLtMatmulHeuristicResult_t of cublasLt.h.
struct CublasLtChoice {
  uint64_t algorithm[8];
  size_t workspaceBytes;
  int state;
  float waves;
  int reserved[4];
};

/// What the runtime calls of libcublasLt.so, found by name when a session with GPU code first has a product for it.
struct CublasLt {
  int (*cublasLtCreate)(void **handle);
  int (*cublasLtDestroy)(void *handle);
  int (*cublasLtMatmulDescCreate)(void **description, int computeType, int scaleType);
  int (*cublasLtMatmulDescDestroy)(void *description);
  int (*cublasLtMatmulDescSetAttribute)(void *description, int attribute, const void *value, size_t bytes);
  int (*cublasLtMatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*cublasLtMatrixLayoutDestroy)(void *layout);
  int (*cublasLtMatrixLayoutSetAttribute)(void *layout, int attribute, const void *value, size_t bytes);
  int (*cublasLtMatmulPreferenceCreate)(void **preference);
  int (*cublasLtMatmulPreferenceDestroy)(void *preference);
  int (*cublasLtMatmulPreferenceSetAttribute)(void *preference, int attribute, const void *value, size_t bytes);
  int (*cublasLtMatmulAlgoGetHeuristic)(void *handle, void *description, void *a, void *b, void *c, void *d,
                                        void *preference, int wanted, CublasLtChoice *choices, int *found);
  int (*cublasLtMatmul)(void *handle, void *description, const void *alpha, const void *a, void *aLayout, const void *b,
                        void *bLayout, const void *beta, const void *c, void *cLayout, void *d, void *dLayout,
                        const uint64_t *algorithm, void *workspace, size_t workspaceBytes, void *stream);
  const char *(*cublasLtGetStatusName)(int status);
};

/// The library, of CUDA 13 or 12; null: this machine has none. Asked for once a process.
const CublasLt *openCublasLt();

} // namespace attn::rt

#endif // RUNTIME_SRC_CUBLASLT_H
