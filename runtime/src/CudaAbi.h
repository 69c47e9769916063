#ifndef RUNTIME_SRC_CUDAABI_H
#define RUNTIME_SRC_CUDAABI_H

// What cuda.h declares and libcuda.so.1 is called with: shared by the runtime and the stand-in of its tests.

#include <cstdint>

namespace attn::rt {

/// CUresult, as far as the runtime or its tests tell results apart.
enum : int {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaNotInitialized = 3,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaInvalidImage = 200,
  kCudaInvalidContext = 201,
  kCudaNoBinaryForGpu = 209,
  kCudaInvalidPtx = 218,
  kCudaUnsupportedPtx = 222,
  kCudaInvalidHandle = 400,
  kCudaNotFound = 500,
  kCudaIllegalAddress = 700,
  kCudaLaunchFailed = 719,
  kCudaCooperativeLaunchTooLarge = 720,
  kCudaNotSupported = 801,
  kCudaCaptureUnsupported = 900,
  kCudaCaptureInvalidated = 901
};

/// An address on the device.
using DeviceAddress = uint64_t;

/// CUlaunchAttribute: its number, and its value as far as the runtime sets some.
struct CudaLaunchAttribute {
  int number;
  char padding[4];
  int value;
  char rest[60];
};
/// CUlaunchConfig.
struct CudaLaunchConfig {
  unsigned grid[3], block[3], shared;
  void *stream;
  CudaLaunchAttribute *attributes;
  unsigned numAttributes;
};

/// CUDA_KERNEL_NODE_PARAMS_v2.
struct CudaKernelNode {
  void *function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
  void *kernel, *context;
};
/// CUgraphNodeParams of a conditional node.
struct CudaConditionalNode {
  int type, reserved[3];
  uint64_t handle;
  int kind;
  unsigned size; ///< of `graphs`
  void **graphs; ///< set by the driver
  void *context;
  char rest[208];
};
static_assert(sizeof(CudaKernelNode) == 72 && sizeof(CudaConditionalNode) == 256, "as in cuda.h");

} // namespace attn::rt

#endif // RUNTIME_SRC_CUDAABI_H
