#include "passes/kernels/gpu/IntegerGemmEmitter.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

bool GpuIntegerEmitter::areBytes(Type type) { return type.isIntOrFloat() && type.getIntOrFloatBitWidth() >= 8; }

SmallVector<int64_t> GpuIntegerSpec::panelShape() const {
  auto pieces = [](int64_t size, int64_t step) {
    return ShapedType::isDynamic(size) ? size : (size + step - 1) / step;
  };
  return {isBatched ? ShapedType::kDynamic : pieces(n, kWidth), pieces(k, kGroup), kWidth * kGroup};
}

std::string GpuIntegerSpec::symbol() const {
  return llvm::formatv("gpu_gemm_i8_{0}m{1}_k{2}_n{3}{4}{5}", isBatched ? "b_" : "", sizeText(m), sizeText(k),
                       sizeText(n), zeroKey(), getEpilogueSuffix());
}

GpuIntegerEmitter::GpuIntegerEmitter(OpBuilder &b, Location loc, const GpuIntegerSpec &spec, ArrayRef<Buffer> arguments)
    : k(b, loc), spec(spec), rows(arguments[0].flat()), panels(arguments[1].flat()), columnSums(arguments[2].flat()),
      result(arguments.back()), numRows(arguments[0].dim(0)), depth(arguments[0].dim(1)),
      numGroups(ceilDiv(depth, kGroup)), numColumns(result.dim(1)), panelsOfMatrix(ceilDiv(numColumns, kWidth)) {
  arguments = arguments.drop_front(3).drop_back();
  for (auto [isThere, zero] :
       {std::pair(spec.hasRowZero, &rowZero), std::pair(spec.columnZero != ZeroPoint::None, &columnZero)})
    if (isThere) {
      *zero = arguments.front();
      arguments = arguments.drop_front();
    }
  operands.assign(arguments.begin(), arguments.end());
}

Nums GpuIntegerEmitter::readGroup(Index row, Index number, Mask isInside) {
  Type i32 = k.b.getI32Type();
  Index base = row * depth + number * kGroup;
  Num zero = k.i32(0);
  if (isVector()) {
    Nums words = k.loadWords(rows, select(isInside, base, k.index(0)), kGroup / 4);
    for (Num &word : words)
      word = select(isInside, word, zero);
    return words;
  }
  Nums words(kGroup / 4, zero);
  for (int64_t n = 0; n < kGroup; ++n) {
    Mask isThere = isInside & (number * kGroup + n < depth);
    Num byte = k.choose(isThere, [&] { return convertUnsigned(rows(base + n), i32); }, [&] { return zero; });
    words[n / 4] = words[n / 4] | (byte << (n % 4 * 8));
  }
  return words;
}

Num GpuIntegerEmitter::columnZeroAt(Index column) {
  if (spec.columnZero == ZeroPoint::None)
    return {};
  return convert(spec.columnZero == ZeroPoint::Scalar ? columnZero() : columnZero(column), k.b.getI32Type());
}

Nums GpuIntegerEmitter::finish(Nums sums, Index matrix, Index row, Index column) {
  Type i32 = k.b.getI32Type();
  int64_t count = sums.size();
  if (spec.hasRowZero) {
    Num zero = convertUnsigned(rowZero(), i32);
    Num depth32 = k.asNum(arith::IndexCastOp::create(k.b, k.loc, i32, depth));
    for (int64_t n = 0; n < count; ++n) {
      Num ofColumn = columnSums(matrix * panelsOfMatrix * kWidth + column + n);
      if (Num columnZero = columnZeroAt(column + n); columnZero.value())
        ofColumn = ofColumn - columnZero * depth32;
      sums[n] = sums[n] - zero * ofColumn;
    }
  }
  if (!spec.epilogue)
    return sums;
  SmallVector<Nums> values; // of each operand, by column
  for (auto [buffer, kind] : llvm::zip_equal(operands, spec.operands)) {
    bool isByColumn = kind == EpilogueOperand::RowVector || kind == EpilogueOperand::Full;
    if (!isByColumn) {
      values.push_back(Nums(count, kind == EpilogueOperand::Scalar ? buffer() : buffer(row)));
      continue;
    }
    Index at = kind == EpilogueOperand::Full ? row * numColumns + column : column;
    if (Buffer flat = buffer.flat(); count > 1 && areBytes(flat.memref().getElementType()))
      values.push_back(k.loadFew(flat, at, count));
    else
      values.push_back(llvm::map_to_vector<6>(llvm::seq(count), [&](int64_t n) { return flat(at + n); }));
  }
  for (int64_t n = 0; n < count; ++n) {
    SmallVector<Value> given = llvm::map_to_vector(values, [&](const Nums &each) { return each[n].value(); });
    sums[n] = k.cloneScalar(*spec.epilogue, spec.getArguments(given, sums[n]));
  }
  return sums;
}

void GpuIntegerEmitter::store(ArrayRef<Num> results, Index row, Index column) {
  if (results.size() > 1)
    return k.storeFew(results, result.flat(), row * numColumns + column);
  result.set(results.front(), row, column);
}

func::FuncOp buildGpuIntegerGemm(OpBuilder &builder, Location loc, const GpuIntegerSpec &spec) {
  KernelFunction f(builder, loc, spec.symbol());
  Type i8 = builder.getI8Type();
  SmallVector<Buffer> arguments = {f.buffer({spec.m, spec.k}, i8), f.buffer(spec.panelShape(), i8),
                                   f.buffer(spec.sumShape(), builder.getI32Type())};
  if (spec.hasRowZero)
    arguments.push_back(f.buffer({}, i8));
  if (spec.columnZero == ZeroPoint::Scalar)
    arguments.push_back(f.buffer({}, i8));
  else if (spec.columnZero == ZeroPoint::ByColumn)
    arguments.push_back(f.buffer({spec.n}, i8));
  llvm::append_range(arguments, takeOperands(f, spec, spec.m, spec.n));
  arguments.push_back(f.buffer({spec.m, spec.n}, spec.resultType(builder.getContext())));

  auto tiles = [&] { emitIntegerTiles(builder, loc, spec, arguments); };
  auto lines = [&](int64_t height) { emitIntegerGemv(builder, loc, spec, arguments, height); };
  bool isOpen = ShapedType::isDynamic(spec.m);
  // Matrices that the run packs have been read by then.
  if (spec.isBatched || (!isOpen && (spec.m == 0 || spec.m > GpuIntegerSpec::kFewRows)))
    tiles();
  else if (!isOpen)
    lines(spec.m);
  else {
    Index rows = arguments.front().dim(0);
    constexpr int64_t kSome = 4;
    auto more = [&] { f.k.when(rows <= GpuIntegerSpec::kFewRows, [&] { lines(GpuIntegerSpec::kFewRows); }, tiles); };
    auto some = [&] { f.k.when(rows <= kSome, [&] { lines(kSome); }, more); };
    f.k.when(rows <= 1, [&] { lines(1); }, some);
  }
  return f.function;
}

} // namespace attn
