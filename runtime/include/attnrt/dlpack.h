// Our own declarations of the DLPack interface (version 1.0, the unversioned
// exchange), layout-compatible with https://github.com/dmlc/dlpack. A program
// that uses DLPack's own header includes that one first; ours then steps back.
#ifndef ATTNRT_DLPACK_H
#define ATTNRT_DLPACK_H

#ifndef DLPACK_DLPACK_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLOpaqueHandle = 3U,
  kDLBfloat = 4U,
  kDLComplex = 5U,
  kDLBool = 6U
} DLDataTypeCode;

typedef struct {
  uint8_t code;   // DLDataTypeCode
  uint8_t bits;   // of one element
  uint16_t lanes; // 1 here
} DLDataType;

typedef struct {
  void *data; // the first element is at data + byte_offset
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;       // ndim sizes, in elements
  int64_t *strides;     // ndim strides, in elements; NULL: dense row-major
  uint64_t byte_offset; // bytes
} DLTensor;

// A tensor that owns its memory. Whoever holds it calls `deleter` once.
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#ifdef __cplusplus
}
#endif

#endif // DLPACK_DLPACK_H_
#endif // ATTNRT_DLPACK_H
