// A stand-in for libcublasLt.so.13 on that for libcuda: what the runtime calls of
// it, computed by the host from the descriptors as cublasLt.h and the cuBLAS
// documentation (cublasLt, "cublasLtMatmul()") describe them. Layouts that do not
// fit, factors of two types or of 16 bits with another compute type than f32's,
// addresses less aligned than the algorithm was chosen for and memory that is
// not the device's are refused.
//
// Settings beside those of FakeCuda.cpp (without cublaslt=1 there is no library):
//   cublaslt_heuristic=N  cublasLtMatmulAlgoGetHeuristic returns N
//   cublaslt_least=N      and finds no algorithm for fewer than N multiply-adds
//   cublaslt_matmul=N     the Nth product fails
//   cublaslt_log=1        prints each product that an algorithm is found for to stderr

#include "test/gpu/FakeCuda.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

enum Status {
  Success = 0,
  NotInitialized = 1,
  InvalidValue = 7,
  ExecutionFailed = 13,
  NotSupported = 15,
};
constexpr int kIllegalAddress = 700;
enum Type { F32 = 0, F16 = 2, BF16 = 14 }; // cudaDataType
constexpr int kCompute32 = 68;

struct Description {
  int compute, scale;
  int32_t transA = 0, transB = 0, epilogue = 1;
  const void *bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t offset = 0;
  uint64_t elementBytes() const { return type == F32 ? 4 : 2; }
  uint64_t bytes() const {
    return elementBytes() * (uint64_t(batch - 1) * uint64_t(offset) + (columns - 1) * uint64_t(leading) + rows);
  }
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256}; // A, B, C, D
};
struct Choice {
  uint64_t algorithm[8];
  size_t workspaceBytes;
  int state;
  float waves;
  int reserved[4];
};
constexpr uint64_t kMagic = 0x746c5f73616c6275;
constexpr uint64_t kWorkspace = 4 << 20;

long long products = 0, questions = 0;

template <typename T> int set(T &place, const void *value, size_t bytes) {
  if (bytes != sizeof(T))
    return InvalidValue;
  memcpy(&place, value, bytes);
  return Success;
}

/// Whether there is such a product: the table of types in the documentation of cublasLtMatmul.
bool isSupported(const Description &op, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
  return a.type == b.type && c.type == d.type && (d.type == F32 || d.type == a.type) &&
         (a.type == F32 || op.compute == kCompute32);
}

/// Whether D = op(A) . op(B) has these layouts.
bool fits(const Description &op, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
  uint64_t m = op.transA ? a.columns : a.rows, ka = op.transA ? a.rows : a.columns;
  uint64_t n = op.transB ? b.rows : b.columns, kb = op.transB ? b.columns : b.rows;
  for (const Layout *each : {&a, &b, &c, &d})
    if (each->leading < int64_t(each->rows) || each->batch != d.batch || !each->rows || !each->columns)
      return false;
  return ka == kb && m == d.rows && n == d.columns && c.rows == d.rows && c.columns == d.columns && op.scale == 0;
}

/// To nearest, ties to even; numbers alone.
uint32_t roundedToBf16(uint32_t bits) { return (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000; }

float rounded(float x, int compute) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  switch (compute) {
  case 74:
    return float(_Float16(x));
  case 75:
    bits = roundedToBf16(bits);
    break;
  case 77: // tf32, ties away from zero
    bits = (bits + 0x1000) & 0xffffe000;
    break;
  }
  memcpy(&x, &bits, 4);
  return x;
}

float read(int type, const void *memory, int64_t at) {
  float x;
  if (type == F16) {
    _Float16 half;
    memcpy(&half, static_cast<const char *>(memory) + 2 * at, sizeof(half));
    return float(half);
  }
  if (type == BF16) {
    uint16_t upper;
    memcpy(&upper, static_cast<const char *>(memory) + 2 * at, sizeof(upper));
    uint32_t bits = uint32_t(upper) << 16;
    memcpy(&x, &bits, sizeof(x));
    return x;
  }
  memcpy(&x, static_cast<const char *>(memory) + 4 * at, sizeof(x));
  return x;
}

void write(int type, void *memory, int64_t at, double value) {
  auto x = float(value);
  if (type == F16) {
    auto half = _Float16(x);
    memcpy(static_cast<char *>(memory) + 2 * at, &half, sizeof(half));
  } else if (type == BF16) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    auto upper = uint16_t(roundedToBf16(bits) >> 16);
    memcpy(static_cast<char *>(memory) + 2 * at, &upper, sizeof(upper));
  } else {
    memcpy(static_cast<char *>(memory) + 4 * at, &x, sizeof(x));
  }
}

float elementAt(const Layout &matrix, const void *memory, int64_t at, int compute) {
  float x = read(matrix.type, memory, at);
  return matrix.type == F32 ? rounded(x, compute) : x;
}

double activate(int32_t epilogue, double x) {
  if (epilogue & 2)
    return x > 0 ? x : 0;
  if (epilogue & 32)
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

} // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

/// Products made, and questions to the heuristic, so far.
FAKE long long attnFakeCublasLtProducts() { return products; }
FAKE long long attnFakeCublasLtQuestions() { return questions; }

FAKE int cublasLtCreate(void **handle) {
  if (!attnFakeCudaSetting("cublaslt", 0))
    return NotInitialized;
  *handle = new int(0);
  return Success;
}
FAKE int cublasLtDestroy(void *handle) {
  delete static_cast<int *>(handle);
  return Success;
}
FAKE const char *cublasLtGetStatusName(int status) {
  switch (status) {
  case NotInitialized:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case InvalidValue:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case ExecutionFailed:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case NotSupported:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_...";
}

FAKE int cublasLtMatmulDescCreate(void **made, int compute, int scale) {
  *made = new Description{compute, scale};
  return Success;
}
FAKE int cublasLtMatmulDescDestroy(void *description) {
  delete static_cast<Description *>(description);
  return Success;
}
FAKE int cublasLtMatmulDescSetAttribute(void *description, int attribute, const void *value, size_t bytes) {
  auto &op = *static_cast<Description *>(description);
  switch (attribute) {
  case 3:
    return set(op.transA, value, bytes);
  case 4:
    return set(op.transB, value, bytes);
  case 7:
    return set(op.epilogue, value, bytes);
  case 8:
    return set(op.bias, value, bytes);
  }
  return InvalidValue;
}
FAKE int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  if (type != F32 && type != F16 && type != BF16)
    return NotSupported;
  *made = new Layout{type, rows, columns, leading};
  return Success;
}
FAKE int cublasLtMatrixLayoutDestroy(void *layout) {
  delete static_cast<Layout *>(layout);
  return Success;
}
FAKE int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t bytes) {
  auto &matrix = *static_cast<Layout *>(layout);
  switch (attribute) {
  case 5:
    return set(matrix.batch, value, bytes);
  case 6:
    return set(matrix.offset, value, bytes);
  }
  return InvalidValue;
}
FAKE int cublasLtMatmulPreferenceCreate(void **made) {
  *made = new Preference();
  return Success;
}
FAKE int cublasLtMatmulPreferenceDestroy(void *preference) {
  delete static_cast<Preference *>(preference);
  return Success;
}
FAKE int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes) {
  auto &wishes = *static_cast<Preference *>(preference);
  if (attribute == 1)
    return set(wishes.workspace, value, bytes);
  return attribute >= 5 && attribute <= 8 ? set(wishes.alignment[attribute - 5], value, bytes) : int(InvalidValue);
}

FAKE int cublasLtMatmulAlgoGetHeuristic(void *, void *description, void *a, void *b, void *c, void *d, void *preference,
                                        int wanted, Choice *choices, int *found) {
  auto &op = *static_cast<Description *>(description);
  auto &left = *static_cast<Layout *>(a), &result = *static_cast<Layout *>(d);
  auto &wishes = *static_cast<Preference *>(preference);
  *found = 0;
  ++questions;
  if (long long refused = attnFakeCudaSetting("cublaslt_heuristic", 0))
    return int(refused);
  if (wanted < 1 || !fits(op, left, *static_cast<Layout *>(b), *static_cast<Layout *>(c), result))
    return InvalidValue;
  uint64_t k = op.transA ? left.rows : left.columns;
  if (!isSupported(op, left, *static_cast<Layout *>(b), *static_cast<Layout *>(c), result))
    return NotSupported;
  if (result.rows * result.columns * k < uint64_t(attnFakeCudaSetting("cublaslt_least", 0)) ||
      wishes.workspace < kWorkspace)
    return NotSupported;
  if (attnFakeCudaSetting("cublaslt_log", 0))
    fprintf(stderr, "fake cublasLt: %llu x %llu x %llu, batch %d, epilogue %d, compute %d, types %d x %d -> %d\n",
            (unsigned long long)result.rows, (unsigned long long)result.columns, (unsigned long long)k, result.batch,
            op.epilogue, op.compute, left.type, static_cast<Layout *>(b)->type, result.type);
  choices[0] = {{kMagic, wishes.alignment[0], wishes.alignment[1], wishes.alignment[2], wishes.alignment[3], 0, 0, 0},
                kWorkspace,
                Success,
                1,
                {}};
  *found = 1;
  return Success;
}

FAKE int cublasLtMatmul(void *, void *description, const float *alpha, const void *a, void *aLayout, const void *b,
                        void *bLayout, const float *beta, const void *c, void *cLayout, void *d, void *dLayout,
                        const uint64_t *algorithm, void *workspace, size_t workspaceBytes, void *stream) {
  Description op = *static_cast<Description *>(description);
  Layout la = *static_cast<Layout *>(aLayout), lb = *static_cast<Layout *>(bLayout),
         lc = *static_cast<Layout *>(cLayout), ld = *static_cast<Layout *>(dLayout);
  const void *addresses[] = {a, b, c, d};
  if (++products == attnFakeCudaSetting("cublaslt_matmul", 0))
    return ExecutionFailed;
  if (algorithm[0] != kMagic || workspaceBytes < kWorkspace || !fits(op, la, lb, lc, ld) ||
      !isSupported(op, la, lb, lc, ld))
    return InvalidValue;
  for (int i = 0; i < 4; ++i)
    if (uint64_t(addresses[i]) % algorithm[1 + i])
      return InvalidValue;
  float scale = *alpha, addend = *beta;
  return attnFakeCudaEnqueue(stream, [=]() -> int {
    auto memory = [](const void *address, uint64_t bytes) { return attnFakeCudaMemory(uint64_t(address), bytes); };
    const void *fa = memory(a, la.bytes()), *fb = memory(b, lb.bytes()), *fc = memory(c, lc.bytes());
    const void *bias = op.epilogue & 4 ? memory(op.bias, ld.elementBytes() * ld.rows) : nullptr;
    void *fd = memory(d, ld.bytes()), *scratch = memory(workspace, kWorkspace);
    if (!fa || !fb || !fc || !fd || !scratch || (op.epilogue & 4 && !bias))
      return kIllegalAddress;
    memset(scratch, 0xff, kWorkspace); // nothing else may lie there
    uint64_t k = op.transA ? la.rows : la.columns;
    for (int32_t n = 0; n < ld.batch; ++n)
      for (uint64_t i = 0; i < ld.rows; ++i)
        for (uint64_t j = 0; j < ld.columns; ++j) {
          double sum = 0;
          for (uint64_t s = 0; s < k; ++s) {
            uint64_t ra = op.transA ? s : i, ca = op.transA ? i : s, rb = op.transB ? j : s, cb = op.transB ? s : j;
            int64_t inA = n * la.offset + int64_t(ra) + int64_t(ca) * la.leading;
            int64_t inB = n * lb.offset + int64_t(rb) + int64_t(cb) * lb.leading;
            sum += double(elementAt(la, fa, inA, op.compute)) * double(elementAt(lb, fb, inB, op.compute));
          }
          double value = scale * sum;
          if (addend != 0)
            value += double(addend) * double(read(lc.type, fc, n * lc.offset + int64_t(i) + int64_t(j) * lc.leading));
          if (bias)
            value += double(read(ld.type, bias, int64_t(i)));
          write(ld.type, fd, n * ld.offset + int64_t(i) + int64_t(j) * ld.leading, activate(op.epilogue, value));
        }
    return 0;
  });
}
