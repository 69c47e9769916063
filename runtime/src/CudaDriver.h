#ifndef RUNTIME_SRC_CUDADRIVER_H
#define RUNTIME_SRC_CUDADRIVER_H

#include "CudaAbi.h"
#include "Error.h"

namespace attn::rt {

constexpr uint64_t kTensorMapBytes = 128, kTensorMapAlignment = 64; // of a CUtensorMap

/// The functions of libcuda.so.1 that the runtime calls, found by name when the
/// first library with GPU code is loaded: a program without a GPU needs no CUDA.
struct CudaDriver {
  int (*cuInit)(unsigned);
  int (*cuDriverGetVersion)(int *);
  int (*cuDeviceGetCount)(int *);
  int (*cuDeviceGet)(int *, int);
  int (*cuDeviceGetName)(char *, int, int);
  int (*cuDeviceGetAttribute)(int *, int, int);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuDevicePrimaryCtxRelease_v2)(int);
  int (*cuCtxPushCurrent_v2)(void *);
  int (*cuCtxPopCurrent_v2)(void **);
  int (*cuMemAlloc_v2)(DeviceAddress *, size_t);
  int (*cuMemFree_v2)(DeviceAddress);
  int (*cuMemHostAlloc)(void **, size_t, unsigned);
  int (*cuMemFreeHost)(void *);
  int (*cuMemcpyHtoDAsync_v2)(DeviceAddress, const void *, size_t, void *);
  int (*cuMemcpyDtoHAsync_v2)(void *, DeviceAddress, size_t, void *);
  int (*cuMemcpyDtoDAsync_v2)(DeviceAddress, DeviceAddress, size_t, void *);
  int (*cuMemsetD8Async)(DeviceAddress, unsigned char, size_t, void *);
  int (*cuModuleLoadDataEx)(void **, const void *, unsigned, int *, void **);
  int (*cuModuleUnload)(void *);
  int (*cuModuleGetFunction)(void **, void *, const char *);
  int (*cuFuncGetAttribute)(int *, int, void *);
  int (*cuFuncSetAttribute)(void *, int, int);
  int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);
  int (*cuLaunchKernelEx)(const CudaLaunchConfig *, void *, void **, void **);
  int (*cuStreamCreate)(void **, unsigned);
  int (*cuStreamDestroy_v2)(void *);
  int (*cuStreamSynchronize)(void *);
  int (*cuStreamGetCtx)(void *, void **);
  int (*cuStreamIsCapturing)(void *, int *);
  int (*cuStreamBeginCapture_v2)(void *, int);
  int (*cuStreamEndCapture)(void *, void **);
  int (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long);
  int (*cuGraphLaunch)(void *, void *);
  int (*cuGraphDestroy)(void *);
  int (*cuGraphExecDestroy)(void *);
  int (*cuEventCreate)(void **, unsigned);
  int (*cuEventRecord)(void *, void *);
  int (*cuEventSynchronize)(void *);
  int (*cuEventElapsedTime)(float *, void *, void *);
  int (*cuEventDestroy_v2)(void *);
  int (*cuTensorMapEncodeTiled)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,
                                const uint32_t *, int, int, int, int);
  int (*cuGetErrorName)(int, const char **);
  int (*cuGetErrorString)(int, const char **);
  // For loops within graphs, which CUDA 12.4 brought; all of them are there where `hasLoops`.
  int (*cuGraphCreate)(void **, unsigned);
  int (*cuGraphAddKernelNode_v2)(void **, void *, void *const *, size_t, const CudaKernelNode *);
  int (*cuGraphKernelNodeSetAttribute)(void *, int, const void *);
  int (*cuGraphAddChildGraphNode)(void **, void *, void *const *, size_t, void *);
  int (*cuGraphConditionalHandleCreate)(uint64_t *, void *, void *, unsigned, unsigned);
  int (*cuGraphAddNode)(void **, void *, void *const *, size_t, CudaConditionalNode *);
  bool hasLoops;
  int (*cuFuncGetParamInfo)(void *, size_t, size_t *, size_t *); ///< null before CUDA 12.4
};

/// The driver, opened and initialised, with at least one device. Fails with a
/// message that says what is missing; a later call tries again. In a child of
/// fork() it fails if the parent has opened it.
attnrt_status openCudaDriver(const CudaDriver *&driver);

/// What `code`, which `call` returned, means to the caller; keeps the message
/// "<what>: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2: out of memory): <details>".
attnrt_status failCuda(const CudaDriver &driver, int code, const char *call, const char *what,
                       const char *details = "");

/// What a child of fork() is told about a GPU that its parent has opened.
attnrt_status failForked(const char *what);

} // namespace attn::rt

#endif // RUNTIME_SRC_CUDADRIVER_H
