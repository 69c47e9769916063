#include "compiler/package/WeightExpression.h"

#include "compiler/package/BlockWeight.h"
#include "compiler/package/ByteWeight.h"
#include "compiler/package/NarrowWeight.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace mlir;

namespace attn {

uint64_t weightElementBytes(Type elementType) {
  if (elementType.isIndex())
    return 8;
  return llvm::divideCeil(elementType.getIntOrFloatBitWidth(), 8);
}

std::optional<uint64_t> weightTensorBytes(RankedTensorType type) {
  uint64_t bytes = weightElementBytes(type.getElementType());
  for (int64_t size : type.getShape()) {
    bool overflow = false;
    bytes = llvm::SaturatingMultiply(bytes, static_cast<uint64_t>(size), &overflow);
    if (overflow || bytes > (uint64_t(1) << 62))
      return std::nullopt;
  }
  return bytes;
}

SmallVector<FlatSymbolRefAttr> weightSources(GlobalOp global) {
  using Sources = SmallVector<FlatSymbolRefAttr>;
  return llvm::TypeSwitch<Attribute, Sources>(global.getExpression())
      .Case<TransposeAttr, ReshapeAttr, SliceAttr, PackPanelsAttr, NarrowPanelsAttr, PanelScalesAttr, BlockCodesAttr,
            BlockScalesAttr, BytePanelsAttr, ColumnSumsAttr, StepOrderAttr>(
          [](auto e) { return Sources{e.getSource()}; })
      .Case<ConcatAttr>([](ConcatAttr e) { return Sources(e.getSources()); })
      .Default([](Attribute) { return Sources{}; });
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// Whether elements get another type: a reshape of f32 may be bf16 or f16, rounded to the nearest, ties to even;
/// what is finite stays finite. One of bf16 or f16 may be f32, widened.
static bool convertsElements(GlobalOp global, ArrayRef<RankedTensorType> sources) {
  if (!isa<ReshapeAttr>(global.getExpression()))
    return false;
  Type element = cast<RankedTensorType>(global.getType()).getElementType(), source = sources.front().getElementType();
  auto isHalf = [](Type type) { return type.isBF16() || type.isF16(); };
  return (source.isF32() && isHalf(element)) || (isHalf(source) && element.isF32());
}

/// Whether the bytes of an i8 source are float8e4m3fn.
static bool namesFloat8(GlobalOp global, ArrayRef<RankedTensorType> sources) {
  return isa<ReshapeAttr>(global.getExpression()) && sources.front().getElementType().isInteger(8) &&
         isa<Float8E4M3FNType>(cast<RankedTensorType>(global.getType()).getElementType());
}

/// The shape that the expression gives, or an explanation.
static FailureOr<SmallVector<int64_t>> resultShape(GlobalOp global, ArrayRef<RankedTensorType> sources) {
  auto declared = cast<RankedTensorType>(global.getType());
  auto error = [&](const Twine &text) -> FailureOr<SmallVector<int64_t>> {
    return global.emitOpError(text), failure();
  };
  ArrayRef<int64_t> first = sources.empty() ? ArrayRef<int64_t>() : sources.front().getShape();
  Attribute expression = global.getExpression();
  if (isa<InitializerAttr>(expression))
    return SmallVector<int64_t>(declared.getShape());
  if (auto transpose = dyn_cast<TransposeAttr>(expression)) {
    SmallVector<bool> seen(first.size(), false);
    SmallVector<int64_t> shape;
    for (int64_t dim : transpose.getPermutation()) {
      if (dim < 0 || dim >= static_cast<int64_t>(first.size()) || seen[dim])
        return error("expects a permutation of " + Twine(first.size()) + " dimensions");
      seen[dim] = true;
      shape.push_back(first[dim]);
    }
    if (shape.size() != first.size())
      return error("expects a permutation of " + Twine(first.size()) + " dimensions");
    return shape;
  }
  if (isa<ReshapeAttr>(expression)) {
    if (declared.getNumElements() != sources.front().getNumElements())
      return error("expects a reshape to keep the number of elements (" + Twine(sources.front().getNumElements()) +
                   "), got " + Twine(declared.getNumElements()));
    return SmallVector<int64_t>(declared.getShape());
  }
  if (auto slice = dyn_cast<SliceAttr>(expression)) {
    int64_t dim = slice.getDim();
    if (dim < 0 || dim >= static_cast<int64_t>(first.size()))
      return error("expects a dimension of its source, got " + Twine(dim));
    if (slice.getOffset() < 0 || slice.getSize() < 0 || slice.getOffset() > first[dim] ||
        slice.getSize() > first[dim] - slice.getOffset())
      return error("expects a slice within [0, " + Twine(first[dim]) + "), got " + Twine(slice.getSize()) + " from " +
                   Twine(slice.getOffset()));
    SmallVector<int64_t> shape(first);
    shape[dim] = slice.getSize();
    return shape;
  }
  if (auto concat = dyn_cast<ConcatAttr>(expression)) {
    int64_t dim = concat.getDim();
    if (sources.empty() || dim < 0 || dim >= static_cast<int64_t>(first.size()))
      return error("expects sources that have dimension " + Twine(dim));
    SmallVector<int64_t> shape(first);
    shape[dim] = 0;
    for (RankedTensorType source : sources) {
      if (source.getRank() != static_cast<int64_t>(first.size()))
        return error("expects sources of one rank");
      for (auto [n, size] : llvm::enumerate(source.getShape()))
        if (static_cast<int64_t>(n) != dim && size != first[n])
          return error("expects sources of equal sizes beside dimension " + Twine(dim));
      shape[dim] += source.getDimSize(dim);
    }
    return shape;
  }
  if (isa<BytePanelsAttr, ColumnSumsAttr, StepOrderAttr>(expression))
    return byteShape(global, sources.front());
  if (isa<BlockCodesAttr, BlockScalesAttr>(expression))
    return blockShape(global, sources.front());
  if (!isa<PackPanelsAttr>(expression))
    return narrowShape(global, sources.front());
  auto pack = cast<PackPanelsAttr>(expression);
  if (first.size() != 2 || pack.getWidth() <= 0)
    return error("expects a matrix to pack and a positive width");
  int64_t k = first[pack.getTransposed() ? 1 : 0], n = first[pack.getTransposed() ? 0 : 1];
  return SmallVector<int64_t>{static_cast<int64_t>(llvm::divideCeil(n, pack.getWidth())), k, pack.getWidth()};
}

LogicalResult verifyWeightExpression(GlobalOp global, ArrayRef<RankedTensorType> sources) {
  auto declared = cast<RankedTensorType>(global.getType());
  if (!declared.getElementType().isIntOrIndexOrFloat())
    return global.emitOpError("expects elements that are numbers, got ") << declared.getElementType();
  if (!weightTensorBytes(declared))
    return global.emitOpError("is larger than a library can hold");
  bool converts = isa<NarrowPanelsAttr, PanelScalesAttr, BlockCodesAttr, BlockScalesAttr, BytePanelsAttr,
                      ColumnSumsAttr, StepOrderAttr>(global.getExpression()) ||
                  convertsElements(global, sources) || namesFloat8(global, sources);
  for (RankedTensorType source : sources)
    if (!converts && source.getElementType() != declared.getElementType())
      return global.emitOpError("expects sources of its element type, got ")
             << source.getElementType() << " and " << declared.getElementType();
  FailureOr<SmallVector<int64_t>> shape = resultShape(global, sources);
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != declared.getShape())
    return global.emitOpError("expects the type of its expression (")
           << RankedTensorType::get(*shape, declared.getElementType()) << "), got " << declared;
  return success();
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

/// Copies one element at a time with a compile-time size, which the optimiser
/// turns into a move.
template <size_t Bytes>
static void copyTransposed(const char *source, char *target, ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
  int64_t rank = shape.size();
  int64_t inner = shape[rank - 1], innerStride = strides[rank - 1];
  SmallVector<int64_t> index(rank, 0);
  for (;;) {
    const char *row = source;
    for (int64_t n = 0; n < rank - 1; ++n)
      row += index[n] * strides[n] * Bytes;
    for (int64_t i = 0; i < inner; ++i, target += Bytes)
      std::memcpy(target, row + i * innerStride * Bytes, Bytes);
    int64_t dim = rank - 2;
    for (; dim >= 0 && ++index[dim] == shape[dim]; --dim)
      index[dim] = 0;
    if (dim < 0)
      return;
  }
}

static void transposeBytes(const char *source, char *target, RankedTensorType type, ArrayRef<int64_t> permutation) {
  int64_t rank = type.getRank();
  if (type.getNumElements() == 0)
    return;
  if (rank == 0) {
    std::memcpy(target, source, weightElementBytes(type.getElementType()));
    return;
  }
  SmallVector<int64_t> sourceStrides(rank, 1), shape, strides;
  for (int64_t n = rank - 2; n >= 0; --n)
    sourceStrides[n] = sourceStrides[n + 1] * type.getDimSize(n + 1);
  for (int64_t dim : permutation) {
    shape.push_back(type.getDimSize(dim));
    strides.push_back(sourceStrides[dim]);
  }
  switch (weightElementBytes(type.getElementType())) {
  case 1:
    return copyTransposed<1>(source, target, shape, strides);
  case 2:
    return copyTransposed<2>(source, target, shape, strides);
  case 4:
    return copyTransposed<4>(source, target, shape, strides);
  case 8:
    return copyTransposed<8>(source, target, shape, strides);
  }
  llvm_unreachable("element sizes are 1, 2, 4 or 8 bytes");
}

static void packPanels(const char *source, char *target, int64_t k, int64_t n, int64_t width, bool transposed,
                       uint64_t bytes) {
  for (int64_t panel = 0; panel * width < n; ++panel) {
    int64_t columns = std::min(width, n - panel * width);
    for (int64_t row = 0; row < k; ++row, target += width * bytes) {
      if (!transposed) {
        std::memcpy(target, source + (row * n + panel * width) * bytes, columns * bytes);
      } else {
        const char *element = source + (panel * width * k + row) * bytes;
        for (int64_t column = 0; column < columns; ++column, element += k * bytes)
          std::memcpy(target + column * bytes, element, bytes);
      }
    }
  }
}

WeightBytes applyWeightExpression(GlobalOp global, ArrayRef<RankedTensorType> types, ArrayRef<WeightBytes> sources,
                                  Narrowing *narrowing) {
  auto declared = cast<RankedTensorType>(global.getType());
  uint64_t element = weightElementBytes(declared.getElementType());
  Attribute expression = global.getExpression();
  if (isa<ReshapeAttr>(expression) && !convertsElements(global, types))
    return sources.front();
  if (isa<BytePanelsAttr, ColumnSumsAttr, StepOrderAttr>(expression))
    return packBytes(global, types.front(), sources.front());
  if (isa<BlockCodesAttr, BlockScalesAttr>(expression))
    return storeInBlocks(global, types.front(), sources.front(), narrowing);
  if (isa<NarrowPanelsAttr, PanelScalesAttr, ReshapeAttr>(expression))
    return narrowWeight(global, types.front(), sources.front(), narrowing);

  auto result = std::make_shared<std::vector<char>>(*weightTensorBytes(declared), 0);
  char *target = result->data();
  if (auto transpose = dyn_cast<TransposeAttr>(expression)) {
    transposeBytes(sources.front().bytes.data(), target, types.front(), transpose.getPermutation());
  } else if (auto pack = dyn_cast<PackPanelsAttr>(expression)) {
    ArrayRef<int64_t> shape = types.front().getShape();
    bool transposed = pack.getTransposed();
    packPanels(sources.front().bytes.data(), target, shape[transposed], shape[!transposed], pack.getWidth(), transposed,
               element);
  } else {
    // Slice and concatenation copy runs: everything inside the dimension.
    auto slice = dyn_cast<SliceAttr>(expression);
    int64_t dim = slice ? slice.getDim() : cast<ConcatAttr>(expression).getDim();
    uint64_t inner = element, outer = 1;
    for (auto [n, size] : llvm::enumerate(declared.getShape()))
      (static_cast<int64_t>(n) < dim ? outer : inner) *= static_cast<int64_t>(n) == dim ? 1 : size;
    uint64_t targetRun = inner * declared.getDimSize(dim), at = 0;
    for (auto [type, source] : llvm::zip_equal(types, sources)) {
      uint64_t sourceRun = inner * type.getDimSize(dim);
      uint64_t skip = slice ? inner * slice.getOffset() : 0, run = slice ? targetRun : sourceRun;
      for (uint64_t o = 0; run && o < outer; ++o)
        std::memcpy(target + o * targetRun + at, source.bytes.data() + o * sourceRun + skip, run);
      at += run;
    }
  }
  return {ArrayRef<char>(result->data(), result->size()), result};
}

} // namespace attn
