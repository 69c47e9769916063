#ifndef PASSES_KERNELS_CPU_BYTEPRODUCTS_H
#define PASSES_KERNELS_CPU_BYTEPRODUCTS_H

#include "builders/Code.h"
#include "passes/kernels/cpu/ByteDot.h"

namespace attn {

/// Exact sums of products of bytes, in lanes of i32: of one side 0 to 255, of the other -128 to 127.
class ByteProducts {
public:
  ByteProducts(const Code &code, ByteDot dot) : k(code), dot(dot) {}

  /// Bytes of the unsigned side and of the signed one, as `add` takes them: what many products share is made once.
  Vecs unsignedFactors(const Vec &bytes);
  Vecs signedFactors(const Vec &bytes);
  /// sum + the products of all bytes of a lane.
  Vec add(const Vec &sum, const Vecs &left, const Vecs &right);
  /// The same of bytes as they are, of which all products at places 2n and 2n + 1 together fit 16 bits (not of Single).
  Vec addNarrow(const Vec &sum, llvm::ArrayRef<Vec> left, llvm::ArrayRef<Vec> right);

  /// Whether some sum of two products by these signed bytes might not fit 16 bits.
  Mask hasWide(const Vec &bytes);

private:
  Vec call(llvm::StringRef wide, llvm::StringRef narrow, mlir::Type type, llvm::ArrayRef<mlir::Value> operands);
  Vec addWords(const Vec &left, const Vec &right);

  Code k;
  const ByteDot dot;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_BYTEPRODUCTS_H
