#include "Tensor.h"

#include "Memory.h"
#include <cstring>

using namespace attn::rt;

namespace {
struct DType {
  int32_t value;
  uint32_t size; // bytes
  const char *name;
};
} // namespace

static constexpr DType kDTypes[] = {
    {ATTNRT_I8, 1, "int8"},
    {ATTNRT_I16, 2, "int16"},
    {ATTNRT_I32, 4, "int32"},
    {ATTNRT_I64, 8, "int64"},
    {ATTNRT_U8, 1, "uint8"},
    {ATTNRT_U16, 2, "uint16"},
    {ATTNRT_U32, 4, "uint32"},
    {ATTNRT_U64, 8, "uint64"},
    {ATTNRT_F16, 2, "float16"},
    {ATTNRT_F32, 4, "float32"},
    {ATTNRT_F64, 8, "float64"},
    {ATTNRT_BF16, 2, "bfloat16"},
    {ATTNRT_BOOL, 1, "bool"},
    {ATTNRT_F8_E4M3FN, 1, "float8_e4m3fn"},
    {ATTNRT_F8_E4M3FNUZ, 1, "float8_e4m3fnuz"},
    {ATTNRT_F8_E5M2, 1, "float8_e5m2"},
    {ATTNRT_F8_E5M2FNUZ, 1, "float8_e5m2fnuz"},
    {ATTNRT_F8_E8M0, 1, "float8_e8m0fnu"},
    {ATTNRT_F4_E2M1, 1, "float4_e2m1fn"},
    {ATTNRT_I4, 1, "int4"},
    {ATTNRT_U4, 1, "uint4"},
    {ATTNRT_I2, 1, "int2"},
    {ATTNRT_U2, 1, "uint2"},
};

static const DType *findDType(int32_t value) {
  for (const DType &type : kDTypes)
    if (type.value == value)
      return &type;
  return nullptr;
}

uint64_t attnrt_dtype_size(int32_t dtype) {
  const DType *type = findDType(dtype);
  return type ? type->size : 0;
}

const char *attnrt_dtype_name(int32_t dtype) {
  const DType *type = findDType(dtype);
  return type ? type->name : "unknown";
}

bool attn::rt::denseBytes(int32_t dtype, int32_t rank, const int64_t *shape, uint64_t &bytes) {
  int64_t total = int64_t(attnrt_dtype_size(dtype));
  bool empty = false, fits = total > 0;
  for (int32_t dim = 0; dim < rank; ++dim) {
    if (shape[dim] < 0)
      return false;
    // 0 x 2^62 x 2^62 is an empty tensor, not an overflow.
    empty |= shape[dim] == 0;
    if (shape[dim] > 0 && fits)
      fits = !__builtin_mul_overflow(total, shape[dim], &total);
  }
  bytes = empty ? 0 : uint64_t(total);
  return fits || empty;
}

static bool isDense(const DLTensor &tensor) {
  if (!tensor.strides)
    return true;
  for (int32_t dim = 0; dim < tensor.ndim; ++dim)
    if (tensor.shape[dim] == 0)
      return true;
  int64_t expected = 1;
  for (int32_t dim = tensor.ndim - 1; dim >= 0; --dim) {
    if (tensor.shape[dim] != 1 && tensor.strides[dim] != expected)
      return false;
    expected *= tensor.shape[dim];
  }
  return true;
}

// A field of a C enumeration, which may hold any number: callers' libraries know
// more devices than our header.
static int32_t deviceTypeOf(const DLTensor &tensor) {
  int32_t type;
  memcpy(&type, &tensor.device.device_type, sizeof(type));
  return type;
}

// Whether `tensor` can serve as a scalar: one element under any number of
// dimensions, as peers accept it.
static bool isOneElement(const DLTensor &tensor) {
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank)
    return false;
  for (int32_t dim = 0; dim < tensor.ndim; ++dim)
    if (!tensor.shape || tensor.shape[dim] != 1)
      return false;
  return true;
}

attnrt_status attn::rt::checkTensor(const DLTensor *tensor, const char *what, const attnrt_tensor_info &declared,
                                    uint64_t capacity, TensorView &view, int32_t gpu) {
  const char *name = declared.name;
  if (!tensor)
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' is NULL", what, name);
  int32_t device = deviceTypeOf(*tensor);
  bool onDevice = gpu >= 0 && device == kDLCUDA;
  if (device != kDLCPU && device != kDLCUDAHost && !onDevice)
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' is on DLPack device type %d, not on the CPU (%d)", what, name, device,
                int(kDLCPU));
  if (onDevice && tensor->device.device_id != gpu)
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' is on CUDA device %d, the model runs on device %d", what, name,
                tensor->device.device_id, gpu);
  uintptr_t begin;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(tensor->data), tensor->byte_offset, &begin))
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s': its byte_offset of %llu leads beyond the address space", what, name,
                (unsigned long long)tensor->byte_offset);
  // Other tensors than of one of our dtypes have no name: their DLPack type says more.
  if (int32_t dtype = dtypeOf(tensor->dtype); dtype != declared.dtype && attnrt_dtype_size(dtype))
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' is of type %s, the model has %s", what, name,
                attnrt_dtype_name(dtype), attnrt_dtype_name(declared.dtype));
  else if (dtype != declared.dtype)
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' is of type %s (DLPack code %u, %u bits, %u lanes), the model has %s",
                what, name, attnrt_dtype_name(dtypeOf(tensor->dtype)), tensor->dtype.code, tensor->dtype.bits,
                tensor->dtype.lanes, attnrt_dtype_name(declared.dtype));
  bool isScalarInput = declared.rank == 0 && strcmp(what, "input") == 0 && isOneElement(*tensor);
  if (tensor->ndim != declared.rank && !isScalarInput)
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' has rank %d, in the model %d", what, name, tensor->ndim,
                declared.rank);
  if (declared.rank > 0 && !tensor->shape)
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' has no shape", what, name);
  if (capacity) {
    view = {reinterpret_cast<char *>(begin), capacity, true, onDevice};
  } else {
    for (int32_t dim = 0; dim < declared.rank; ++dim) {
      int64_t size = tensor->shape[dim], wanted = declared.dims[dim].size;
      if (size < 0)
        return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s': dimension %d has the negative size %lld", what, name, dim,
                    (long long)size);
      if (wanted >= 0 && size != wanted)
        return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s': dimension %d has size %lld, not %lld", what, name, dim,
                    (long long)size, (long long)wanted);
      // Also of a tensor without elements: compiled code adds and multiplies sizes in 64 bits.
      if (size > kMaxSize)
        return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s': dimension %d has size %lld, beyond %lld", what, name, dim,
                    (long long)size, (long long)kMaxSize);
    }
    uint64_t bytes;
    if (!denseBytes(declared.dtype, declared.rank, tensor->shape, bytes))
      return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' of shape %s has more than 2^63 bytes", what, name,
                  Text().addShape(tensor->ndim, tensor->shape).str());
    view = {reinterpret_cast<char *>(begin), bytes, isDense(*tensor), onDevice};
  }
  if (uintptr_t end; !capacity && __builtin_add_overflow(begin, view.bytes, &end))
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s': its %llu bytes lead beyond the address space", what, name,
                (unsigned long long)view.bytes);
  if (!tensor->data && view.bytes)
    return fail(ATTNRT_INVALID_ARGUMENT, "%s '%s' has no data (NULL), %llu bytes are expected", what, name,
                (unsigned long long)view.bytes);
  return ATTNRT_OK;
}

namespace {
struct DenseCopy {
  const char *from;
  char *to;
  int64_t count; // of all elements
  uint64_t element;
  int32_t rank; // at least 1
  int64_t shape[kMaxRank], strides[kMaxRank];
};
} // namespace

static constexpr int64_t kCopiedAtOnce = 4096; // elements

static void copyRun(const DenseCopy &copy, const char *from, char *to, int64_t count) {
  int64_t stride = copy.strides[copy.rank - 1] * int64_t(copy.element);
  if (stride == int64_t(copy.element))
    memcpy(to, from, size_t(count) * copy.element);
  else
    for (int64_t i = 0; i < count; ++i, to += copy.element)
      memcpy(to, from + i * stride, copy.element);
}

// Runs of the last dimension, and an odometer over the others.
static void copyPieces(void *arg, int64_t begin, int64_t end) {
  const DenseCopy &copy = *static_cast<const DenseCopy *>(arg);
  int64_t at = begin * kCopiedAtOnce, last = end > copy.count / kCopiedAtOnce ? copy.count : end * kCopiedAtOnce;
  int64_t index[kMaxRank], rest = at, row = copy.shape[copy.rank - 1];
  for (int32_t dim = copy.rank - 1; dim >= 0; rest /= copy.shape[dim--])
    index[dim] = rest % copy.shape[dim];
  int64_t first = index[copy.rank - 1];
  while (at < last) {
    int64_t offset = first * copy.strides[copy.rank - 1];
    for (int32_t dim = 0; dim < copy.rank - 1; ++dim)
      offset += index[dim] * copy.strides[dim];
    int64_t count = row - first < last - at ? row - first : last - at;
    copyRun(copy, copy.from + offset * int64_t(copy.element), copy.to + uint64_t(at) * copy.element, count);
    at += count;
    first = 0;
    for (int32_t dim = copy.rank - 2; dim >= 0 && ++index[dim] == copy.shape[dim]; --dim)
      index[dim] = 0;
  }
}

bool attn::rt::copyDense(const DLTensor &tensor, const char *from, void *to, Pool *pool, StopCondition *stop) {
  constexpr uint64_t kFew = 1 << 16; // bytes that are copied before a thread has begun
  uint64_t bytes, element = attnrt_dtype_size(dtypeOf(tensor.dtype));
  denseBytes(dtypeOf(tensor.dtype), tensor.ndim, tensor.shape, bytes);
  if (bytes == 0)
    return true;
  DenseCopy copy = {from, static_cast<char *>(to), int64_t(bytes / element), element, 1, {}, {1}};
  copy.shape[0] = copy.count;
  if (!isDense(tensor)) {
    copy.rank = tensor.ndim;
    memcpy(copy.shape, tensor.shape, size_t(copy.rank) * sizeof(int64_t));
    memcpy(copy.strides, tensor.strides, size_t(copy.rank) * sizeof(int64_t));
  }
  int64_t pieces = (copy.count - 1) / kCopiedAtOnce + 1;
  if (pool && bytes > kFew)
    return pool->run(copyPieces, &copy, pieces, *stop);
  copyPieces(&copy, 0, pieces);
  return true;
}

attnrt_status attnrt_tensor_create(int32_t dtype, int32_t rank, const int64_t *shape, DLManagedTensor **tensor) {
  if (!tensor || (!shape && rank > 0))
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_tensor_create: %s is NULL", tensor ? "shape" : "tensor");
  if (rank < 0 || rank > kMaxRank)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_tensor_create: rank %d is not between 0 and %d", rank, kMaxRank);
  if (!attnrt_dtype_size(dtype))
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_tensor_create: 0x%x is no attnrt_dtype", unsigned(dtype));
  for (int32_t dim = 0; dim < rank; ++dim)
    if (shape[dim] < 0)
      return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_tensor_create: dimension %d has the negative size %lld", dim,
                  (long long)shape[dim]);
  // One block: the tensor, its shape and strides, then the elements.
  struct Block {
    DLManagedTensor tensor;
    int64_t shape[kMaxRank], strides[kMaxRank];
  };
  constexpr uint64_t kHead = (sizeof(Block) + 63) / 64 * 64;
  uint64_t bytes;
  void *memory = nullptr;
  if (!denseBytes(dtype, rank, shape, bytes) || bytes > INT64_MAX - kHead ||
      posix_memalign(&memory, 64, kHead + bytes) != 0)
    return fail(ATTNRT_OUT_OF_MEMORY, "cannot allocate a tensor of %s elements of type %s",
                Text().addShape(rank, shape).str(), attnrt_dtype_name(dtype));
  Block *block = new (memory) Block();
  int64_t stride = 1;
  for (int32_t dim = rank - 1; dim >= 0; --dim) {
    block->shape[dim] = shape[dim];
    block->strides[dim] = stride;
    // Unsigned: the strides of an empty tensor may wrap, nobody uses them.
    stride = int64_t(uint64_t(stride) * uint64_t(shape[dim]));
  }
  DLTensor &view = block->tensor.dl_tensor;
  view.data = static_cast<char *>(memory) + kHead;
  view.device = {kDLCPU, 0};
  view.ndim = rank;
  view.dtype = {uint8_t(dtype >> 8), uint8_t(dtype & 0xff), 1};
  view.shape = block->shape;
  view.strides = block->strides;
  view.byte_offset = 0;
  block->tensor.deleter = [](DLManagedTensor *self) { free(self); };
  *tensor = &block->tensor;
  return ATTNRT_OK;
}
