#include "GpuProducts.h"
#include "Memory.h"

#include <cstring>

using namespace attn::rt;

// cublasLt.h, cublas_api.h and library_types.h of CUDA 12 and 13.
namespace {
enum { kReal32 = 0, kReal16 = 2, kRealBf16 = 14 };
enum { kCompute32 = 68, kComputeFast16 = 74, kComputeFastBf16 = 75, kComputeFastTf32 = 77 };
enum { kDescTransA = 3, kDescTransB = 4, kDescEpilogue = 7, kDescBiasPointer = 8 };
enum { kLayoutBatchCount = 5, kLayoutBatchOffset = 6 };
enum { kPreferWorkspace = 1, kPreferAlignmentA = 5 }; // B, C, D follow
enum { kEpilogueDefault = 1, kEpilogueRelu = 2, kEpilogueBias = 4, kEpilogueGelu = 32 };
} // namespace

static uint64_t alignmentOf(const void *address) {
  constexpr uint64_t kMost = 256;
  uint64_t lowest = uint64_t(address) & -uint64_t(address);
  return lowest && lowest < kMost ? lowest : kMost;
}

bool GpuProducts::isSound(const attnrt_product &product) {
  // Leading dimensions and sizes are 32 bits wide in older versions.
  for (int64_t size : {product.batch, product.rows, product.columns, product.sums})
    if (size < 1 || size > INT32_MAX)
      return false;
  return true;
}

bool GpuProducts::open() {
  if (isRefused)
    return false;
  if (handle)
    return true;
  library = openCublasLt();
  if (library && library->cublasLtCreate(&handle)) // made for another driver, say
    handle = nullptr;
  isRefused = !handle;
  return handle;
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// cuBLASLt's matrices are column-major: it makes the transposed result of the factors in turn, its A our right one.
bool GpuProducts::describe(Plan &plan) {
  const attnrt_product &key = plan.key;
  constexpr int kCompute[] = {kCompute32, kComputeFastTf32, kComputeFastBf16, kComputeFast16};
  constexpr int kFactors[] = {-1, -1, kRealBf16, kReal16};
  bool isNarrow = key.flags & ATTNRT_PRODUCT_NARROW, isAllNarrow = key.flags & ATTNRT_PRODUCT_NARROW_RESULT;
  if (key.precision < 0 || key.precision > 3 || (isNarrow && kFactors[key.precision] < 0) || (isAllNarrow && !isNarrow))
    return false;
  int factors = isNarrow ? kFactors[key.precision] : kReal32;
  if (library->cublasLtMatmulDescCreate(&plan.description, isNarrow ? kCompute32 : kCompute[key.precision], kReal32))
    return false;
  int32_t transA = key.right_transposed != 0, transB = key.left_transposed != 0;
  int32_t epilogue = key.activation == ATTNRT_ACTIVATION_RELU   ? kEpilogueRelu
                     : key.activation == ATTNRT_ACTIVATION_GELU ? kEpilogueGelu
                                                                : 0;
  epilogue |= key.bias ? kEpilogueBias : 0;
  epilogue = epilogue ? epilogue : kEpilogueDefault;
  auto set = [&](int attribute, const auto &value) {
    return !library->cublasLtMatmulDescSetAttribute(plan.description, attribute, &value, sizeof(value));
  };
  // The heuristic looks at the alignment of the bias, too.
  if (!set(kDescTransA, transA) || !set(kDescTransB, transB) || !set(kDescEpilogue, epilogue) ||
      (key.bias && !set(kDescBiasPointer, key.bias)))
    return false;
  auto layout = [&](void *&made, int type, int64_t rows, int64_t columns, int64_t batchStride) {
    if (library->cublasLtMatrixLayoutCreate(&made, type, uint64_t(rows), uint64_t(columns), rows))
      return false;
    int32_t count = int32_t(key.batch);
    return !library->cublasLtMatrixLayoutSetAttribute(made, kLayoutBatchCount, &count, sizeof(count)) &&
           !library->cublasLtMatrixLayoutSetAttribute(made, kLayoutBatchOffset, &batchStride, sizeof(batchStride));
  };
  int64_t m = key.columns, n = key.rows, k = key.sums;
  return layout(plan.right, factors, transA ? k : m, transA ? m : k, k * m) &&
         layout(plan.left, factors, transB ? n : k, transB ? k : n, k * n) &&
         layout(plan.result, isAllNarrow ? factors : kReal32, m, n, m * n);
}

bool GpuProducts::choose(Plan &plan) {
  void *preference = nullptr;
  if (library->cublasLtMatmulPreferenceCreate(&preference))
    return false;
  uint64_t bytes = kWorkspaceBytes;
  bool done = !library->cublasLtMatmulPreferenceSetAttribute(preference, kPreferWorkspace, &bytes, sizeof(bytes));
  // The key has alignments for addresses; what is not there is as aligned as can be.
  const void *operands[] = {plan.key.right, plan.key.left, plan.key.addend ? plan.key.addend : plan.key.result,
                            plan.key.result};
  for (int i = 0; i < 4 && done; ++i) {
    uint32_t alignment = uint32_t(uint64_t(operands[i]));
    done = !library->cublasLtMatmulPreferenceSetAttribute(preference, kPreferAlignmentA + i, &alignment,
                                                          sizeof(alignment));
  }
  CublasLtChoice choice = {};
  int found = 0;
  done = done &&
         !library->cublasLtMatmulAlgoGetHeuristic(handle, plan.description, plan.right, plan.left, plan.result,
                                                  plan.result, preference, 1, &choice, &found) &&
         found == 1 && choice.state == 0 && choice.workspaceBytes <= kWorkspaceBytes;
  library->cublasLtMatmulPreferenceDestroy(preference);
  memcpy(plan.algorithm, choice.algorithm, sizeof(plan.algorithm));
  return done;
}

GpuProducts::Plan *GpuProducts::find(const attnrt_product &product) {
  attnrt_product key = product;
  for (const void **operand : {&key.left, &key.right, &key.bias, &key.addend, const_cast<const void **>(&key.result)})
    if (*operand)
      *operand = reinterpret_cast<const void *>(alignmentOf(*operand));
  uint64_t hash = 0;
  for (size_t at = 0; at < sizeof(key); at += 8) {
    uint64_t word;
    memcpy(&word, reinterpret_cast<const char *>(&key) + at, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  Plan *&first = buckets[hash % kBuckets];
  for (Plan *plan = first; plan; plan = plan->next)
    if (memcmp(&plan->key, &key, sizeof(key)) == 0)
      return plan;
  if (numPlans == kMaxPlans)
    forgetAll();
  Plan *plan = make<Plan>();
  if (!plan)
    return &none;
  *plan = {};
  plan->key = key;
  plan->isUsable = describe(*plan) && choose(*plan);
  plan->next = first;
  first = plan;
  ++numPlans;
  return plan;
}

void GpuProducts::forget(Plan &plan) {
  if (plan.description)
    library->cublasLtMatmulDescDestroy(plan.description);
  for (void *layout : {plan.left, plan.right, plan.result})
    if (layout)
      library->cublasLtMatrixLayoutDestroy(layout);
  destroy(&plan);
}

void GpuProducts::forgetAll() {
  for (Plan *&bucket : buckets)
    while (Plan *plan = bucket) {
      bucket = plan->next;
      forget(*plan);
    }
  numPlans = 0;
}

void GpuProducts::release() {
  forgetAll();
  if (handle)
    library->cublasLtDestroy(handle);
  handle = nullptr;
}

void GpuProducts::abandon() {
  for (Plan *&bucket : buckets)
    bucket = nullptr;
  handle = nullptr;
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

int GpuProducts::enqueue(const attnrt_product &product, void *stream) {
  constexpr int kNotSupported = 15; // CUBLAS_STATUS_NOT_SUPPORTED
  Plan *plan = handle ? find(product) : &none;
  int status = plan->isUsable ? 0 : kNotSupported;
  if (!status && product.bias)
    status = library->cublasLtMatmulDescSetAttribute(plan->description, kDescBiasPointer, &product.bias,
                                                     sizeof(product.bias));
  float alpha = product.scale, beta = product.addend ? 1.0f : 0.0f;
  const void *addend = product.addend ? product.addend : product.result;
  if (!status)
    status = library->cublasLtMatmul(handle, plan->description, &alpha, product.right, plan->right, product.left,
                                     plan->left, &beta, addend, plan->result, product.result, plan->result,
                                     plan->algorithm, reinterpret_cast<void *>(memory), kWorkspaceBytes, stream);
  if (!status)
    return kCudaSuccess;
  refuse(); // the session's next run goes without
  return kCublasError + status;
}
