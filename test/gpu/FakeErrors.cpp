// What the stand-in for libcuda calls its errors.

#include "test/gpu/FakeDriver.h"

using namespace fake;

static const struct {
  Result code;
  const char *name, *text;
} kErrors[] = {{Success, "CUDA_SUCCESS", "no error"},
               {InvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
               {OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
               {NotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
               {NoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
               {InvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
               {InvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
               {NoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available"},
               {InvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
               {InvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
               {InvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
               {NotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
               {IllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
               {LaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
               {LaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
               {CooperativeLaunchTooLarge, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks"},
               {NotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
               {CaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted while capturing"},
               {CaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "capture was invalidated"}};
FAKE cuGetErrorName(Result code, const char **name) {
  for (auto &error : kErrors)
    if (error.code == code) {
      *name = error.name;
      return Success;
    }
  return InvalidValue;
}
FAKE cuGetErrorString(Result code, const char **text) {
  for (auto &error : kErrors)
    if (error.code == code) {
      *text = error.text;
      return Success;
    }
  return InvalidValue;
}
