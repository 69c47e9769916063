#include "passes/kernels/gpu/Gemm.h"

#include "passes/kernels/gpu/GemmEmitter.h"
#include "passes/kernels/gpu/Warpgroups.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

constexpr int64_t kWarpgroupRows = 2 * Warpgroups::kRows;
/// Elements that a thread rounds.
constexpr int64_t kRounded = 8;

static bool fail(std::string &reason, const Twine &text) {
  reason = text.str();
  return false;
}

bool GpuGemmSpec::sortLoops(std::string &reason) {
  for (unsigned dim = 0; dim < resultMap.getNumDims(); ++dim) {
    bool inLeft = leftMap.isFunctionOfDim(dim), inRight = rightMap.isFunctionOfDim(dim);
    if (!inLeft && !inRight)
      return fail(reason, "the result has a dimension of its own");
    if (!resultMap.isFunctionOfDim(dim)) {
      if (!inLeft || !inRight)
        return fail(reason, "an operand has a dimension of its own");
      sums.push_back(dim);
    } else {
      (inLeft && inRight ? batch : inLeft ? rows : columns).push_back(dim);
    }
  }
  if (sums.empty())
    return fail(reason, "nothing is summed");
  for (AffineMap map : {leftMap, rightMap, resultMap})
    if (!map.isProjectedPermutation())
      return fail(reason, "an operand is not read at its loops");
  return true;
}

bool GpuGemmSpec::canBeNarrow(bool isLeft) const {
  constexpr int64_t kVector = 8;
  AffineMap map = isLeft ? leftMap : rightMap;
  if (map.getNumResults() == 0)
    return false;
  unsigned last = map.getDimPosition(map.getNumResults() - 1);
  ArrayRef<unsigned> outer = isLeft ? rows : columns;
  bool isInner = last == sums.back() || (!outer.empty() && last == outer.back());
  return isInner && !ShapedType::isDynamic(sizes[last]) && sizes[last] % kVector == 0;
}

static int64_t guessProduct(ArrayRef<int64_t> sizes, ArrayRef<unsigned> dims) {
  constexpr int64_t kGuess = 64, kMany = 1 << 20;
  int64_t product = 1;
  for (unsigned dim : dims)
    product = std::min(kMany, product * std::min(kMany, ShapedType::isDynamic(sizes[dim]) ? kGuess : sizes[dim]));
  return product;
}

void GpuGemmSpec::chooseForm(Precision products, Sm90a sm90a) {
  // Operands of 16 bits are exact there, and so are their products.
  Precision own = precisionOf(left.getElementType());
  bool isOwn = own != Precision::f32 && left.getElementType() == right.getElementType();
  precision = isOwn ? own : products;
  chooseLines();
  if (hasTiles)
    chooseTile(sm90a);
}

void GpuGemmSpec::chooseLines() {
  // What is known of the product of sizes, and whether all is.
  auto known = [&](ArrayRef<unsigned> dims) {
    std::pair<int64_t, bool> product = {1, true};
    for (unsigned dim : dims)
      if (ShapedType::isDynamic(sizes[dim]))
        product.second = false;
      else
        product.first = std::min<int64_t>(kFewRows + 1, product.first * sizes[dim]);
    return product;
  };
  auto [numRows, isRows] = known(rows);
  auto [numColumns, isColumns] = known(columns);
  // None are not few: lanes read the matrix whether or not there is a row for it.
  auto isFew = [](int64_t count) { return 0 < count && count <= kFewRows; };
  bool isFewRows = isRows && isFew(numRows), isFewColumns = isColumns && isFew(numColumns);
  if (isFewRows || isFewColumns) {
    bool isLeft = isFewRows && (!isFewColumns || numRows <= numColumns);
    lines.emplace(*this, isLeft, isLeft ? numRows : numColumns);
    hasTiles = false;
    return;
  }
  // Rows of a number that the run tells, times weights.
  if (isRows != isColumns && (isRows ? numColumns : numRows) <= kFewRows)
    lines.emplace(*this, !isRows, kFewRows);
}

void GpuGemmSpec::chooseTile(Sm90a sm90a) {
  constexpr int64_t kProcessors = 132; // of an H100; other cards have about as many
  int64_t numRows = guessProduct(sizes, rows), numColumns = guessProduct(sizes, columns);
  auto blocks = [&](const Tile &tile) {
    return llvm::divideCeil(numRows, tile.rows) * llvm::divideCeil(numColumns, tile.columns) *
           guessProduct(sizes, batch);
  };
  bool isMatrix = precision != Precision::f32;
  // A dear epilogue on 64 sums a thread takes longer to compile than it saves.
  bool isDear = !isMatrix && epilogue && std::distance(epilogue->begin(), epilogue->end()) > 16;
  Tile large = {128, 128, 8, 8}, medium = {64, 64, 8, 4}, small = {32, 32, 4, 4};
  if (isMatrix) {
    // Warps of 64 x 32, 32 x 32 and 16 x 32; deeper ones do not fit 48 KiB, unless both sides are of 16 bits.
    bool areNarrow = true;
    for (bool isLeft : {true, false})
      areNarrow &= precisionOf((isLeft ? left : right).getElementType()) == precision && canBeNarrow(isLeft);
    large = {128, 128, 8, 4, /*depth=*/areNarrow ? 32 : 16, /*isMatrix=*/true};
    medium = {64, 64, 4, 4, /*depth=*/32, /*isMatrix=*/true};
    small = {32, 64, 2, 4, /*depth=*/32, /*isMatrix=*/true};
  }
  if (!isDear && numRows >= 96 && numColumns >= 96 && blocks(large) >= kProcessors)
    tile = large;
  else
    tile = numRows > 32 && (isMatrix || numColumns > 32) ? medium : small;
  // Each element is rounded once, which takes as long as about 100 products of it: guesses, no card has told.
  constexpr int64_t kFewOuter = 256, kFewSums = 64;
  bool is16Bit = precision == Precision::bf16 || precision == Precision::f16;
  if (sm90a == Sm90a::none || !is16Bit || numRows < kFewOuter || numColumns < kFewOuter ||
      guessProduct(sizes, sums) < kFewSums)
    return;
  Tile wide = {kWarpgroupRows, 256, 1, 1};
  warpgroupColumns = blocks(wide) >= kProcessors ? 256 : 128;
}

func::FuncOp buildGpuGemm(OpBuilder &builder, Location loc, StringRef symbol, const GpuGemmSpec &spec, Sm90a sm90a) {
  OpBuilder::InsertionGuard guard(builder);
  BlockBuilder k(builder, loc);
  SmallVector<Type> types = {spec.left, spec.right};
  types.append(spec.operands.begin(), spec.operands.end());
  types.push_back(spec.result);
  bool hasScratch = spec.warpgroupColumns || spec.hasRoundedFactor || (spec.lines && spec.lines->splits > 1);
  if (hasScratch)
    types.push_back(MemRefType::get({ShapedType::kDynamic}, builder.getF32Type()));
  func::FuncOp function = k.function(symbol, types);
  ValueRange buffers = function.getArguments();
  Value scratch = hasScratch ? buffers.back() : Value();
  buffers = buffers.drop_back(hasScratch);
  auto emitTiles = [&] {
    if (!spec.warpgroupColumns)
      return GpuGemmEmitter(builder, loc, spec, spec.tile).emitLaunch(buffers);
    k.branchOnSm90a(
        sm90a, [&] { emitWarpgroupsGemm(builder, loc, spec, buffers, scratch); },
        [&] { GpuGemmEmitter(builder, loc, spec, spec.tile).emitLaunch(buffers); });
  };
  auto emitLines = [&] { emitGemv(builder, loc, spec, buffers, scratch); };
  if (!spec.lines) {
    emitTiles();
  } else if (!spec.hasTiles) {
    emitLines();
  } else {
    Value rows = GpuGemmEmitter(builder, loc, spec, spec.tile).countOuter(buffers, spec.lines->isFewLeft ? 0 : 1);
    Value isFew = k.both(k.less(k.index(0), rows), k.less(rows, k.index(GpuGemmSpec::kFewRows + 1)));
    k.branch(isFew, emitLines, emitTiles);
    k.b.getInsertionBlock()->getTerminator()->getPrevNode()->setAttr(kFewRowsAttr, builder.getUnitAttr());
  }
  return function;
}

Value countGpuGemmScratch(OpBuilder &builder, Location loc, const GpuGemmSpec &spec,
                          llvm::function_ref<Value(unsigned)> sizeOf) {
  BlockBuilder k(builder, loc);
  auto product = [&](ArrayRef<unsigned> dims) {
    Value result = k.index(1);
    for (unsigned dim : dims)
      result = k.mul(result, sizeOf(dim));
    return result;
  };
  auto padded = [&](Value size, int64_t step) { return k.mul(k.ceilDiv(size, step), step); };
  Value elements;
  if (spec.lines && spec.lines->splits > 1) {
    Value columns = product(spec.lines->isFewLeft ? spec.columns : spec.rows);
    elements = k.mul(k.mul(product(spec.batch), columns), spec.lines->splits * spec.lines->rows);
  }
  auto atLeast = [&](Value more) { elements = elements ? k.max(elements, more) : more; };
  if (spec.hasRoundedFactor) {
    bool isLeft = spec.left.getElementType().isF32();
    Value count = k.mul(product(spec.batch), k.mul(product(isLeft ? spec.rows : spec.columns), product(spec.sums)));
    atLeast(k.mul(k.ceilDiv(count, kRounded), kRounded / 2));
  }
  if (!spec.warpgroupColumns)
    return elements;
  Value outer = k.add(padded(product(spec.rows), kWarpgroupRows), padded(product(spec.columns), spec.warpgroupColumns));
  // Two elements of 16 bits each.
  Value perBatch = k.mul(outer, k.mul(k.ceilDiv(product(spec.sums), Warpgroups::kPanel), Warpgroups::kPanel / 2));
  atLeast(k.mul(product(spec.batch), perBatch));
  return elements;
}

void emitRounding(OpBuilder &builder, Location loc, Value buffer, Value scratch, Precision precision) {
  OpBuilder::InsertionGuard guard(builder);
  constexpr int64_t kThreads = 256;
  BlockBuilder k(builder, loc);
  Value count = k.index(1);
  for (int64_t n = 0; n < cast<MemRefType>(buffer.getType()).getRank(); ++n)
    count = k.mul(count, builder.createOrFold<memref::DimOp>(loc, buffer, n));
  Value flat = k.flatten(buffer);
  k.launch(k.ceilDiv(count, kThreads * kRounded), kThreads, {});
  Value first = k.mul(k.add(k.mul(k.block, kThreads), k.thread), kRounded);
  auto store = [&](ArrayRef<Value> values) {
    BlockBuilder::Values words;
    for (size_t n = 0; n < values.size(); n += 4)
      for (Value pair : k.packed(values.slice(n, 4), precision))
        words.push_back(k.bitcast(pair, builder.getF32Type()));
    k.store4(words, scratch, k.div(first, k.index(2)));
  };
  auto whole = [&] {
    BlockBuilder::Values values = k.load4(flat, first);
    values.append(k.load4(flat, k.add(first, 4)));
    store(values);
  };
  // Behind the last one scratch gets zeros.
  auto tail = [&] {
    BlockBuilder::Values values;
    for (int64_t n = 0; n < kRounded; ++n) {
      Value at = k.add(first, n), isInside = k.less(at, count);
      values.push_back(k.select(isInside, k.load(flat, k.select(isInside, at, k.index(0))), k.scalar(0)));
    }
    store(values);
  };
  k.branch(k.less(first, count), [&] { k.branch(k.less(k.add(first, kRounded - 1), count), whole, tail); });
}

} // namespace attn
