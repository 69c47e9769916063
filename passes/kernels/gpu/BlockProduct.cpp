#include "passes/kernels/gpu/BlockProduct.h"

#include "passes/kernels/gpu/ThreadCode.h"
#include "llvm/ADT/Twine.h"
#include <numeric>

using namespace mlir;

namespace attn {

static constexpr int64_t kWidth = GpuBlockSpec::kWidth;

std::string GpuBlockSpec::symbol() const {
  auto named = [](Type type) { return type.isF16() ? "h" : type.isF32() ? "f" : "i"; };
  std::string zeros = zero ? std::string("z") + named(zero) : "z" + std::to_string(zeroPoint);
  return (llvm::Twine(isUnsigned ? "u" : "s") + llvm::Twine(bits) + "b" + llvm::Twine(block) + named(scale) + "_k" +
          llvm::Twine(depth) + "_n" + llvm::Twine(columns) + "_" + zeros)
      .str();
}

bool canBuildGpuBlockProduct(const GpuBlockSpec &spec, std::string &reason) {
  if (spec.block % spec.group() == 0 || spec.numBlocks() == 1)
    return true;
  reason = ("blocks of " + llvm::Twine(spec.block) + " are not whole words of " + llvm::Twine(spec.group()) + " codes")
               .str();
  return false;
}

namespace {

/// The codes of a column and what they stand for.
class BlockReader {
public:
  BlockReader(ThreadCode &k, const GpuBlockSpec &spec, ArrayRef<Buffer> parts)
      : k(k), spec(spec), codes(parts[0].flat()), scales(parts[1].flat()),
        zeros(spec.zero ? parts[2].flat() : Buffer()) {}

  Num word(Index panel, Index number, Index lane) { return codes((panel * spec.numGroups() + number) * kWidth + lane); }

  /// Of a block: its scale, and what is subtracted from its codes, with 2^23 where that is exact.
  std::pair<Num, Num> factors(Index panel, Index number, Index lane) {
    Index at = (panel * spec.numBlocks() + number) * kWidth + lane;
    Num scale = convert(scales(at), k.b.getF32Type());
    double half = spec.isUnsigned ? 0 : double(int64_t(1) << (spec.bits - 1)); // codes are stored from 0 on
    if (!spec.zero)
      return {scale, k.f32(kTwoTo23 + half + spec.zeroPoint)};
    Num zero = zeros(at);
    if (zero.isFloating())
      return {scale, convert(zero, k.b.getF32Type()) + half};
    zero = spec.isUnsigned ? convertUnsigned(zero, k.b.getI32Type()) : convert(zero, k.b.getI32Type());
    return {scale, convert(zero, k.b.getF32Type()) + (kTwoTo23 + half)};
  }

  /// The code of row `place` of a word, less its zero point. As the lowest bits of 2^23 it needs no conversion.
  Num value(const Num &word, int64_t place, const Num &zero) {
    constexpr int64_t kBytes = 4, kTwoTo23Bits = 0x4b000000;
    int64_t shift = place % kBytes * 8 + place / kBytes * spec.bits;
    Num code = ((shift ? word >> shift : word) & ((int64_t(1) << spec.bits) - 1)) | k.i32(kTwoTo23Bits);
    Num number = bitcast(code, k.b.getF32Type());
    return spec.zero && isa<FloatType>(spec.zero) ? number - kTwoTo23 - zero : number - zero;
  }

private:
  static constexpr double kTwoTo23 = 8388608;

  ThreadCode &k;
  const GpuBlockSpec &spec;
  Buffer codes, scales, zeros;
};

/// The product, for one number of rows after the other.
class BlockProductEmitter {
public:
  BlockProductEmitter(ThreadCode &k, const GpuBlockSpec &spec, ArrayRef<Buffer> arguments)
      : k(k), spec(spec), rows(arguments[0].dim(0)), lhs(arguments[0].flat()), result(arguments.back().flat()),
        reader(k, spec, arguments.drop_front().drop_back()) {
    // Words that a thread has on their way at once; they are of one block.
    constexpr int64_t kUnit = 8;
    int64_t blockWords = (spec.block + spec.group() - 1) / spec.group();
    unit = spec.numBlocks() == 1 ? std::min(kUnit, spec.numGroups()) : std::gcd(blockWords, kUnit);
    numUnits = (spec.numGroups() + unit - 1) / unit;
    isWhole = spec.depth % (unit * spec.group()) == 0;
    constexpr int64_t kMostWarps = 16;
    while (2 * warps <= std::min(kMostWarps, numUnits))
      warps *= 2;
  }

  void emit() {
    if (!ShapedType::isDynamic(spec.rows))
      return emitRows(spec.rows);
    emitFrom(1);
  }

private:
  /// For `height` rows where there are no more, else for twice as many.
  void emitFrom(int64_t height) {
    if (height == GpuBlockSpec::kFewRows)
      return emitRows(height);
    k.when(rows <= height, [&] { emitRows(height); }, [&] { emitFrom(2 * height); });
  }

  void emitRows(int64_t height) {
    OpBuilder::InsertionGuard guard(k.b);
    Index panels = minimum(rows, k.index(1)) * spec.numPanels(); // of no rows there is none to read in their place
    Buffer shared = k.launch(panels, warps * kWidth, {warps * height * kWidth})[0];
    Index lane = k.thread % kWidth, warp = k.thread / kWidth, panel = k.block;
    Nums zeros(height, k.f32(0));
    Nums sums = k.loop(warp, numUnits, warps, zeros, [&](Index number, Nums now) {
      addUnit(now, panel, number, lane);
      return now;
    });
    for (int64_t row = 0; row < height; ++row)
      shared.set(sums[row], (warp * height + row) * kWidth + lane);
    k.barrier();
    k.loop(k.thread, height * kWidth, warps * kWidth, [&](Index at) {
      Index row = at / kWidth, column = panel * kWidth + at % kWidth;
      k.when((row < rows) & (column < spec.columns), [&] {
        Nums parts;
        for (int64_t n = 0; n < warps; ++n)
          parts.push_back(shared(at + n * height * kWidth));
        result.set(tree<Num>(parts, [](const Num &x, const Num &y) { return x + y; }), row * spec.columns + column);
      });
    });
  }

  /// Adds the products of the codes of unit `number`, which have one scale.
  void addUnit(Nums &sums, Index panel, Index number, Index lane) {
    int64_t height = sums.size();
    auto [scale, zero] =
        reader.factors(panel, spec.numBlocks() == 1 ? k.index(0) : number * (unit * spec.group()) / spec.block, lane);
    Nums words;
    for (int64_t n = 0; n < unit; ++n) {
      Index at = number * unit + n;
      words.push_back(reader.word(panel, isWhole ? at : minimum(at, k.index(spec.numGroups() - 1)), lane));
    }
    Nums parts(height, k.f32(0));
    for (int64_t n = 0; n < unit; ++n) {
      Index first = (number * unit + n) * spec.group();
      Nums values;
      for (int64_t place = 0; place < spec.group(); ++place)
        values.push_back(reader.value(words[n], place, zero));
      for (int64_t row = 0; row < height; ++row)
        for (auto [place, x] : llvm::enumerate(readRow(k.index(row), first)))
          parts[row] = fma(x, values[place], parts[row]);
    }
    for (int64_t row = 0; row < height; ++row)
      sums[row] = fma(parts[row], scale, sums[row]);
  }

  /// As many of a row as a word has codes, zeros beyond its end. A row that is not there is another one.
  Nums readRow(Index row, Index first) {
    Index base = minimum(row, rows - 1) * spec.depth;
    constexpr int64_t kVector = 4;
    if (isWhole && spec.depth % kVector == 0)
      return k.loadWide(lhs, base + first, spec.group());
    Nums values;
    for (int64_t n = 0; n < spec.group(); ++n) {
      Index at = first + n;
      Mask isInside = at < spec.depth;
      Num x = lhs(base + minimum(at, k.index(spec.depth - 1)));
      values.push_back(isWhole ? x : select(isInside, x, k.f32(0)));
    }
    return values;
  }

  ThreadCode &k;
  const GpuBlockSpec &spec;
  Index rows;
  Buffer lhs, result;
  BlockReader reader;
  int64_t unit = 1, numUnits = 1, warps = 1;
  bool isWhole = false; ///< units end where the sum ends
};

/// Declares the codes, scales and zero points.
void declareParts(KernelFunction &f, const GpuBlockSpec &spec, SmallVectorImpl<Buffer> &arguments) {
  arguments.push_back(f.buffer(spec.codeShape(), f.k.b.getI32Type()));
  arguments.push_back(f.buffer(spec.scaleShape(), spec.scale));
  if (spec.zero)
    arguments.push_back(f.buffer(spec.scaleShape(), spec.zero));
}

} // namespace

func::FuncOp buildGpuBlockProduct(OpBuilder &builder, Location loc, StringRef symbol, const GpuBlockSpec &spec) {
  KernelFunction f(builder, loc, symbol);
  ThreadCode k(builder, loc);
  Type f32 = builder.getF32Type();
  SmallVector<Buffer> arguments = {f.buffer({spec.rows, spec.depth}, f32)};
  declareParts(f, spec, arguments);
  arguments.push_back(f.buffer({spec.rows, spec.columns}, f32));
  BlockProductEmitter(k, spec, arguments).emit();
  return f.function;
}

func::FuncOp buildGpuUnpackBlocks(OpBuilder &builder, Location loc, StringRef symbol, const GpuBlockSpec &spec) {
  constexpr int64_t kThreads = 128;
  KernelFunction f(builder, loc, symbol);
  ThreadCode k(builder, loc);
  SmallVector<Buffer> arguments;
  declareParts(f, spec, arguments);
  Buffer result = f.buffer({spec.depth, spec.columns}, builder.getF32Type());
  int64_t words = spec.numPanels() * spec.numGroups() * kWidth;
  BlockReader reader(k, spec, arguments);
  k.launch(k.index((words + kThreads - 1) / kThreads), kThreads, {});
  Index at = k.block * kThreads + k.thread;
  Index lane = at % kWidth, number = at / kWidth % spec.numGroups(), panel = at / (kWidth * spec.numGroups());
  Index column = panel * kWidth + lane, first = number * spec.group();
  k.when((at < words) & (column < spec.columns), [&] {
    auto [scale, zero] = reader.factors(panel, spec.numBlocks() == 1 ? k.index(0) : first / spec.block, lane);
    Num word = reader.word(panel, number, lane);
    for (int64_t place = 0; place < spec.group(); ++place) {
      Num value = reader.value(word, place, zero) * scale;
      Index row = first + place;
      auto store = [&] { result.set(value, row, column); };
      if (spec.depth % spec.group() == 0)
        store();
      else
        k.when(row < spec.depth, store);
    }
  });
  return f.function;
}

} // namespace attn
