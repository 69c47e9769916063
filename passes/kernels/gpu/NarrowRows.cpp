#include "passes/kernels/gpu/NarrowRows.h"
#include "passes/kernels/gpu/Float8.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kWarp = 32, kRowsOfBlock = 4, kMostWidth = 1024;

/// `type` as views have it, but for the elements of a row, which lie side by side.
MemRefType viewOf(MemRefType type) {
  SmallVector<int64_t> strides(type.getRank(), ShapedType::kDynamic);
  strides.back() = 1;
  auto layout = StridedLayoutAttr::get(type.getContext(), ShapedType::kDynamic, strides);
  return MemRefType::get(type.getShape(), type.getElementType(), layout);
}

/// The work of a warp on a row.
class NarrowRow {
public:
  NarrowRow(ThreadCode &k, const Buffer &rows, const Buffer &bytes, Indices at)
      : k(k), rows(rows), bytes(bytes), at(std::move(at)), width(rows.memref().getShape().back()),
        isFloat8(isa<Float8E4M3FNType>(bytes.memref().getElementType())), lane(k.thread % kWarp) {}

  void emit() {
    Nums row;
    for (int64_t n = 0; n < width; n += kWarp)
      row.push_back(load(n));
    Num top = topOf(row);
    top = k.acrossThreads(top, kWarp, [](const Num &x, const Num &y) { return maximum(x, y); });
    Num factor = select(top < kLeastOfRow, k.f32(0), kGreatestCode / top);
    for (int64_t n = 0; n < width; n += kWarp)
      whereInside(n, [&] {
        Num x = row[n / kWarp] * factor;
        store(isFloat8 ? toFloat8(k, x) : toInteger(x), lane + n);
      });
    Num scale = bitcast(top / kGreatestCode, k.b.getI32Type());
    k.when(lane < kScaleBytes, [&] {
      Num shift = toNum(lane * 8, k.b.getI32Type());
      store(scale >> shift, lane + width);
    });
  }

private:
  /// The lane's element from column `first` on, or an element of the row again.
  Num load(int64_t first) {
    Index column = lane + first;
    if (first + kWarp > width)
      column = minimum(column, k.index(width - 1));
    return convert(k.asNum(memref::LoadOp::create(k.b, k.loc, rows, placesOf(column))), k.b.getF32Type());
  }
  /// The lowest byte of `word`.
  void store(const Num &word, const Index &column) {
    Num byte = bitcast(convert(word, k.b.getI8Type()), bytes.memref().getElementType());
    memref::StoreOp::create(k.b, k.loc, byte, bytes, placesOf(column));
  }
  Num toInteger(const Num &x) {
    return convert(atMost(atLeast(roundEven(x), k.f32(-kGreatestCode)), k.f32(kGreatestCode)), k.b.getI32Type());
  }
  void whereInside(int64_t first, llvm::function_ref<void()> body) {
    first + kWarp <= width ? body() : k.when(lane < width - first, body);
  }
  SmallVector<Value> placesOf(const Index &column) {
    SmallVector<Value> places(at.begin(), at.end());
    places.push_back(column);
    return places;
  }
  static Num topOf(ArrayRef<Num> row) {
    Num top = abs(row.front());
    for (const Num &x : row.drop_front())
      top = maximum(top, abs(x));
    return top;
  }

  ThreadCode &k;
  const Buffer &rows, &bytes;
  const Indices at;
  const int64_t width;
  const bool isFloat8;
  const Index lane;
};

} // namespace

bool canBuildGpuNarrowRows(const NarrowRowsSpec &spec, std::string *reason) {
  if (!canBuildNarrowRows(spec, reason))
    return false;
  int64_t width = spec.type.getShape().back();
  if (width < 1 || width > kMostWidth)
    return fail(reason, "a row has " + Twine(width) + " numbers, and not from 1 to " + Twine(kMostWidth));
  return true;
}

func::FuncOp buildGpuNarrowRows(OpBuilder &builder, Location loc, StringRef symbol, const NarrowRowsSpec &spec) {
  KernelFunction f(builder, loc, symbol);
  ThreadCode k(builder, loc);
  Buffer rows = f.buffer(viewOf(spec.type)), bytes = f.buffer(viewOf(spec.resultType()));
  Indices sizes;
  Index count = k.index(1);
  for (int64_t n = 0; n + 1 < spec.type.getRank(); ++n) {
    sizes.push_back(rows.dim(n));
    count = count * sizes.back();
  }
  k.launch(ceilDiv(count, kRowsOfBlock), kRowsOfBlock * kWarp, {});
  Index number = k.block * kRowsOfBlock + k.thread / kWarp;
  k.when(number < count, [&] { NarrowRow(k, rows, bytes, delinearize(number, sizes)).emit(); });
  return f.function;
}

Nums codesOfWord(ThreadCode &k, const Num &word, Type element) {
  if (isa<Float8E4M3FNType>(element))
    return fromFloat8Word(k, word);
  // As the lowest bits of 2^23 a code, which counts from -128 on, needs no conversion.
  constexpr int64_t kSigns = static_cast<int32_t>(0x80808080), kTwoTo23Bits = 0x4b000000, kBytes = 4;
  Num counted = word ^ k.i32(kSigns);
  Nums codes;
  for (int64_t n = 0; n < kBytes; ++n) {
    Num code = ((n ? counted >> 8 * n : counted) & 0xff) | k.i32(kTwoTo23Bits);
    codes.push_back(bitcast(code, k.b.getF32Type()) - (0x1p23 + 128));
  }
  return codes;
}

} // namespace attn
