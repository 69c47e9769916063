#ifndef RUNTIME_SRC_GPUPRODUCTS_H
#define RUNTIME_SRC_GPUPRODUCTS_H

#include "CublasLt.h"
#include "CudaDriver.h"
#include "attnrt/abi.h"

namespace attn::rt {

/// A code of GpuLaunches from here on is cuBLASLt's status, plus this.
constexpr int kCublasError = 1 << 16;

/// The products that a session leaves to cuBLASLt. Its heuristic is asked once for each shape, alignment and epilogue;
/// the answer, no included, is kept, so that a run is made of the same kernels every time.
class GpuProducts {
public:
  GpuProducts() = default;
  GpuProducts(const GpuProducts &) = delete;
  ~GpuProducts() { release(); }

  /// Products are left to the code's own kernels from here on.
  void refuse() { isRefused = true; }
  bool isUsed() const { return library && !isRefused; }

  /// Whether cuBLASLt makes this product, with the model's context current. It asks `workspace` for memory of the
  /// device, of which null means that there is none.
  template <typename F> bool serves(const attnrt_product &product, F &&workspace) {
    if (!open() || !isSound(product))
      return false;
    if (!memory && !(memory = workspace(kWorkspaceBytes)))
      refuse(); // the generated kernels need less
    return memory && find(product)->isUsable;
  }
  /// Puts a product that `serves` accepted on `stream`. A code of GpuLaunches.
  int enqueue(const attnrt_product &product, void *stream);
  /// "CUBLAS_STATUS_EXECUTION_FAILED"
  const char *nameOf(int code) const { return library->cublasLtGetStatusName(code - kCublasError); }
  void release();
  /// In a child of fork(): forgets what the parent has.
  void abandon();

private:
  struct Plan {
    attnrt_product key; ///< alignments in place of addresses
    Plan *next;
    bool isUsable;
    void *description, *left, *right, *result;
    uint64_t algorithm[8];
  };
  static constexpr uint64_t kWorkspaceBytes = 32 << 20; // what NVIDIA recommends for sm_90
  static constexpr int kBuckets = 256, kMaxPlans = 1024;

  bool open();
  static bool isSound(const attnrt_product &product);
  Plan *find(const attnrt_product &product);
  bool describe(Plan &plan);
  bool choose(Plan &plan);
  void forget(Plan &plan);
  void forgetAll();

  const CublasLt *library = nullptr;
  void *handle = nullptr;
  bool isRefused = false;
  DeviceAddress memory = 0;
  Plan *buckets[kBuckets] = {}, none = {};
  int numPlans = 0;
};

} // namespace attn::rt

#endif // RUNTIME_SRC_GPUPRODUCTS_H
