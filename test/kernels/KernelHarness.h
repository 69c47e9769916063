#ifndef TEST_KERNELS_KERNELHARNESS_H
#define TEST_KERNELS_KERNELHARNESS_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <cstring>
#include <memory>
#include <string>
#include <vector>

// Compiles one kernel in process and calls it on guarded memory. Nothing here
// knows GoogleTest, so that benchmarks use it too.
namespace attn::test {

/// A dense row-major array whose last element ends at an inaccessible page and
/// whose start has another one before it: an access beyond the end is a fault,
/// one before the start a fault or a changed guard byte. All bytes start as
/// 0xff: a NaN in every float type, so that what a kernel forgets to write, or
/// reads without right, shows. Aligned to the element only, as a caller's
/// tensors are.
class Buffer {
public:
  Buffer(std::vector<int64_t> shape, size_t elementSize = sizeof(float));
  template <typename T>
  Buffer(std::vector<int64_t> shape, const std::vector<T> &values) : Buffer(std::move(shape), sizeof(T)) {
    if (!values.empty())
      std::memcpy(bytes, values.data(), values.size() * sizeof(T));
  }
  Buffer(Buffer &&other) noexcept;
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer();

  template <typename T = float> T *data() const { return reinterpret_cast<T *>(bytes); }
  float &operator[](int64_t index) const { return data<float>()[index]; }
  int64_t size() const { return numElements; }
  const std::vector<int64_t> &shape() const { return dims; }
  template <typename T = float> std::vector<T> values() const {
    return std::vector<T>(data<T>(), data<T>() + numElements);
  }

  /// Sets every byte to 0xff again.
  void poison();
  /// Whether the bytes just before the array are as they were.
  bool guardIntact() const;

private:
  std::vector<int64_t> dims;
  int64_t numElements = 1;
  size_t numBytes = 0;
  size_t mappedBytes = 0;
  char *mapping = nullptr;
  char *bytes = nullptr;
};

/// The steps of the kernel ladder, for parametrised tests.
inline constexpr const char *kIsas[] = {"portable", "avx2", "avx512"};
/// Whether this machine runs code for `isa`.
bool hostRuns(llvm::StringRef isa);
/// The target that a test compiles for: LLVM's generic CPU of that step.
TargetAttr makeTarget(mlir::MLIRContext &context, llvm::StringRef isa);

/// A kernel compiled for this machine.
class Kernel {
public:
  /// Builds the kernel at the builder's insertion point, the end of an empty
  /// module that carries the target; must emit a diagnostic where it fails.
  using BuildFn = llvm::function_ref<mlir::FailureOr<mlir::func::FuncOp>(mlir::OpBuilder &, mlir::Location)>;

  /// Compiles for `isa`. Null on failure, with the diagnostics on stderr.
  static std::unique_ptr<Kernel> compile(llvm::StringRef isa, BuildFn build);
  /// The same for a module in textual form, whose kernel is its first function.
  static std::unique_ptr<Kernel> compileText(llvm::StringRef isa, llvm::StringRef text);
  ~Kernel();

  /// Calls with buffers for the function's memref arguments. The range of each
  /// top-level scf.parallel, one after the other, is cut into
  /// `pieces` parts that run in reverse order: a kernel whose iterations depend
  /// on each other, or on the cut, gives other results. False, without a call,
  /// if an argument does not fit the signature.
  bool call(llvm::ArrayRef<const Buffer *> buffers, int64_t pieces = 1);

  /// The machine code as text.
  const std::string &assembly() const;
  /// The kernel as built, before lowering.
  const std::string &ir() const;

private:
  struct Impl;
  explicit Kernel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace attn::test

#endif // TEST_KERNELS_KERNELHARNESS_H
