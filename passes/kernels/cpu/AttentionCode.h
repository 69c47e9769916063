#ifndef PASSES_KERNELS_CPU_ATTENTIONCODE_H
#define PASSES_KERNELS_CPU_ATTENTIONCODE_H

#include "builders/Code.h"
#include "builders/Lanes.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "passes/kernels/shared/AttentionMask.h"
#include "passes/kernels/shared/AttentionOperands.h"
#include "passes/kernels/shared/Exponential.h"
#include <array>
#include <limits>

namespace attn {

/// A HeadView as terms: element (i, j, d, e) stands at base + i*strides[I] + j*strides[J] + ... of `flat`.
struct AttentionView {
  Buffer flat;
  Index base;
  /// By iteration dimension; null where the operand does not vary with it.
  std::array<Index, 6> strides;

  bool has(int64_t dim) const { return static_cast<bool>(strides[dim].value()); }
  bool isContiguous(int64_t dim) const { return has(dim) && getConstantIntValue(strides[dim].value()) == 1; }
  mlir::Type elementType() const { return flat.memref().getElementType(); }
  int64_t elementBytes() const { return elementType().getIntOrFloatBitWidth() / 8; }
  /// `offset` moved by `count` along `dim`; unchanged where it does not vary.
  template <typename Count> Index along(const Index &offset, int64_t dim, const Count &count) const {
    return has(dim) ? offset + count * strides[dim] : offset;
  }
  HeadView untyped() const {
    HeadView view{flat, base, {}};
    llvm::copy(strides, view.strides);
    return view;
  }
};

/// Where both hold; `x` may be null.
inline Mask joined(const Mask &x, const Mask &y) { return x.value() ? x & y : y; }

/// The kernel of an attention where it is written, in registers of f32.
class AttentionCode : public Code {
public:
  AttentionCode(const Code &code, const AttentionSpec &spec, mlir::ValueRange buffers)
      : Code(code), spec(spec), buffers(buffers), lanes(spec.lanes), untyped(b, loc, spec.lanes, spec.hasScalef) {}

  static constexpr float kLog2E = 1.44269504f;
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  const AttentionSpec &spec;
  const mlir::ValueRange buffers; ///< the kernel's arguments
  const int64_t lanes;            ///< of a register
  LaneBuilder untyped;            ///< for what ../shared offers

  //===--- operands -------------------------------------------------------===//
  Index size(int64_t dim) { return asIndex(getDimSize(untyped, spec, buffers, dim)); }
  AttentionView view(size_t operand, const Index &batch, const Index &head) {
    HeadView from = viewHead(untyped, buffers[operand], spec.maps[operand], batch, head);
    AttentionView view{asBuffer(from.flat), asIndex(from.base), {}};
    for (auto [stride, of] : llvm::zip_equal(view.strides, from.strides))
      if (of)
        stride = asIndex(of);
    return view;
  }

  //===--- registers ------------------------------------------------------===//
  mlir::Type f32Type() { return b.getF32Type(); }
  Vec splat(double value) { return attn::splat(f32(value), lanes); }
  Vec splat(const Num &x) { return attn::splat(x, lanes); }
  Num toF32(const Num &x) { return convert(x, f32Type()); }
  Vec toF32(const Vec &x) { return convert(x, f32Type()); }
  /// As f32: a number for all lanes, or one each.
  Vec toLanes(mlir::Value x) {
    return mlir::isa<mlir::VectorType>(x.getType()) ? toF32(asVec(x)) : splat(toF32(asNum(x)));
  }
  Mask isNonZero(mlir::Value x) { return asVec(x) != 0; }
  Mask toLanes(const Mask &x) { return mlir::isa<mlir::VectorType>(x.type()) ? x : attn::splat(x, lanes); }
  /// The 32 bits from `at` on, as f32 in every lane.
  Vec word(const Buffer &flat, const Index &at) {
    return splat(extract(bitcast(flat.vector(32 / flat.memref().getElementTypeBitWidth(), at), f32Type()), 0));
  }
  /// `first`, `first` + 1...
  Vec indicesFrom(const Index &first) {
    auto type = mlir::VectorType::get({lanes}, b.getIndexType());
    return splat(asNum(first)) + asVec(mlir::vector::StepOp::create(b, loc, type));
  }
  Buffer scratch(int64_t elements) { return scratch(elements, f32Type()); }
  Buffer scratch(int64_t elements, mlir::Type type) { return Code::scratch({elements}, type); }

  //===--- arithmetic -----------------------------------------------------===//
  Vec exp2(const Vec &x) { return attn::exp2(*this, x, spec.hasScalef); }
  /// x within [-bound, bound]; NaN stays.
  Vec clamp(const Vec &x, double bound) { return greaterOf(splat(-bound), atMost(x, splat(bound))); }
  /// The greater of x and |y|; infinity where y is NaN.
  Vec greaterMagnitude(const Vec &x, const Vec &y) {
    Vec magnitude = abs(y);
    return greaterOf(x, select(y == y, magnitude, splat(kInfinity)));
  }
  /// See LaneBuilder.
  Vec addEstimatedQuotient(const Vec &sum, const Vec &x, const Vec &y) {
    return asVec(untyped.addEstimatedQuotient(sum, x, y));
  }
  llvm::SmallVector<Vec> transpose(llvm::ArrayRef<Vec> rows) {
    llvm::SmallVector<mlir::Value> columns = untyped.transpose(llvm::SmallVector<mlir::Value>(rows));
    return llvm::map_to_vector(columns, [&](mlir::Value column) { return asVec(column); });
  }

  //===--- pairs of bf16, see LaneBuilder ---------------------------------===//
  Vec pack(const Vec &low, const Vec &high) { return asVec(untyped.pack(low, high)); }
  std::pair<Vec, Vec> unpack(const Vec &pairs) { return both(untyped.unpack(pairs)); }
  Vec addProducts(const Vec &sum, const Vec &x, const Vec &y) { return asVec(untyped.addProducts(sum, x, y)); }
  std::pair<Vec, Vec> interleave(const Vec &x, const Vec &y) { return both(untyped.interleave(x, y)); }

private:
  std::pair<Vec, Vec> both(std::pair<mlir::Value, mlir::Value> x) { return {asVec(x.first), asVec(x.second)}; }
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONCODE_H
