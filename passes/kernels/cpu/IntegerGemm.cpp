#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/cpu/RegionVectorizer.h"
#include "passes/kernels/cpu/TileHeights.h"
#include "passes/kernels/shared/KernelFunction.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {
namespace {

using Vecs = SmallVector<Vec>;

constexpr int64_t kLineBytes = 64;
/// How far ahead of it lines are asked for where one block of rows reads all panels: a stream from memory.
constexpr int64_t kStreamAhead = 4096;

class IntegerGemmEmitter {
public:
  IntegerGemmEmitter(KernelFunction &f, const IntegerGemmSpec &spec)
      : k(f.k), spec(spec), width(spec.panelWidth()), group(spec.group()), stepBytes(width * group),
        i8(k.b.getI8Type()), i32(k.b.getI32Type()) {
    takeArguments(f);
  }

  void emit();

private:
  void takeArguments(KernelFunction &f);
  void emitTask(Index task);
  void emitTile(int64_t height);
  void multiply(Vecs &sums, int64_t height, const Vecs &right, llvm::function_ref<Vec(int64_t)> left);
  Vec dot(const Vec &sum, const Vec &left, const Vec &right);
  Vec rowBytes(Index row, Index first, int64_t count);
  Num rowSum(Index row);
  void emitRows();
  void emitElements(Index row, int64_t vector, int64_t count, Vec sum);
  void forColumns(llvm::function_ref<void(int64_t count)> emitColumns);

  /// A vector of a buffer's elements, of which the first `count` are there.
  template <typename... Places> Vec loadColumns(const Buffer &buffer, int64_t count, const Places &...at) {
    return count == spec.lanes ? buffer.vector(spec.lanes, at...) : buffer.first(k.index(count), spec.lanes, at...);
  }
  Vec sumsOf(int64_t value) { return k.splat(k.i32(value), spec.lanes); }

  Code &k;
  const IntegerGemmSpec &spec;
  const int64_t width, group, stepBytes; ///< of a panel: columns; rows and bytes of a step
  const Type i8, i32;

  Buffer a, panels, flatPanels, columnSums, columnZero, c, scratch;
  Num rowZero;
  SmallVector<Buffer> operands;
  Index rows, blocks, height, extra, numPanels, panelBytes, prefetchStep;
  // Of the task at hand.
  Index panel, row, tileHeight, prefetchAt;
};

void IntegerGemmEmitter::takeArguments(KernelFunction &f) {
  auto take = [&](EpilogueOperand kind, Type element) {
    switch (kind) {
    case EpilogueOperand::Scalar:
      return f.buffer({}, element);
    case EpilogueOperand::RowVector:
      return f.buffer({spec.n}, element);
    case EpilogueOperand::Column:
      return f.buffer({spec.m}, element);
    case EpilogueOperand::Full:
      return f.buffer({spec.m, spec.n}, element);
    }
    llvm_unreachable("covered switch");
  };
  a = f.buffer({spec.m, spec.k}, i8);
  panels = f.buffer(spec.panelShape(), i8);
  columnSums = f.buffer(spec.sumShape(), i32);
  if (spec.hasRowZero)
    rowZero = convertUnsigned(f.buffer({}, i8)(), i32);
  if (spec.columnZero != ZeroPoint::None)
    columnZero = take(spec.columnZero == ZeroPoint::Scalar ? EpilogueOperand::Scalar : EpilogueOperand::RowVector, i8);
  for (auto [n, kind] : llvm::enumerate(spec.operands))
    operands.push_back(take(kind, spec.epilogue->getArgument(n + (n >= spec.accumulator)).getType()));
  c = f.buffer({spec.m, spec.n}, spec.resultType(k.b.getContext()));
}

void IntegerGemmEmitter::emit() {
  flatPanels = panels.flat();
  rows = a.dim(0);
  numPanels = k.index(spec.numPanels());
  panelBytes = k.index(spec.panelShape()[1] * stepBytes);
  // ceil(M / tileRows) blocks whose heights differ by one at most: the first `extra` have one row more.
  blocks = ceilDiv(rows, spec.tileRows);
  Index divisor = maximum(blocks, 1);
  height = rows / divisor;
  extra = rows % divisor;
  k.parallel(numPanels * blocks, [&](Index task) { emitTask(task); });
}

void IntegerGemmEmitter::emitTask(Index task) {
  scratch = k.scratch({spec.tileRows, width}, i32);
  Index inChunk = blocks, firstBlock = k.index(0);
  if (spec.chunkBlocks) { // all chunks are whole but the last
    Index perChunk = numPanels * spec.chunkBlocks;
    firstBlock = task / perChunk * spec.chunkBlocks;
    task = task % perChunk;
    inChunk = minimum(k.index(spec.chunkBlocks), blocks - firstBlock);
  }
  panel = task / inChunk;
  Index at = task % inChunk, block = firstBlock + at;
  row = block * height + minimum(block, extra);
  tileHeight = height + k.asIndex(toNum(block < extra, k.b.getIndexType()));
  // The blocks of a panel together ask for the next one; a single block for what it will read itself.
  prefetchStep = (inChunk - 1 + stepBytes) / inChunk;
  Index next = minimum(panel + 1, numPanels - 1);
  prefetchAt = next * panelBytes + at * prefetchStep * spec.panelShape()[1];
  prefetchAt = select(blocks == 1, panel * panelBytes + kStreamAhead, prefetchAt);
  atHeight(k.b, k.loc, tileHeight.value(), tileHeights(spec.m, spec.tileRows),
           [&](int64_t height) { emitTile(height); });
  if (spec.m != 0)
    emitRows();
}

/// The sums of `height` rows and one panel, to the scratch.
void IntegerGemmEmitter::emitTile(int64_t height) {
  int64_t vectors = spec.tileVectors, whole = spec.k / group, tail = spec.k % group;
  auto loadRight = [&](Index step) {
    Vecs right;
    for (int64_t v = 0; v < vectors; ++v)
      right.push_back(panels.vector(spec.lanes * group, panel, step, v * spec.lanes * group));
    return right;
  };
  std::tuple<Vecs, Index> carried(Vecs(height * vectors, sumsOf(0)), prefetchAt);
  carried = k.rolledLoop(0, whole, 1, carried, [&](Index step, Vecs sums, Index at) {
    Vecs right = loadRight(step);
    for (int64_t byte = 0; byte < stepBytes; byte += kLineBytes)
      memref::PrefetchOp::create(k.b, k.loc, flatPanels, ValueRange{at + byte}, /*isWrite=*/false,
                                 /*localityHint=*/2, /*isDataCache=*/true);
    Index first = step * group;
    multiply(sums, height, right, [&](int64_t r) { return rowBytes(row + r, first, group); });
    return std::tuple(sums, at + prefetchStep);
  });
  Vecs &sums = std::get<0>(carried);
  if (tail) // the panel has zeros there, A has not
    multiply(sums, height, loadRight(k.index(whole)),
             [&](int64_t r) { return rowBytes(row + r, k.index(whole * group), tail); });
  for (int64_t r = 0; r < height; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      scratch.setVector(sums[r * vectors + v], r, v * spec.lanes);
}

void IntegerGemmEmitter::multiply(Vecs &sums, int64_t height, const Vecs &right, function_ref<Vec(int64_t)> left) {
  for (int64_t r = 0; r < height; ++r) {
    Vec bytes = left(r);
    for (auto [v, columns] : llvm::enumerate(right)) {
      Vec &sum = sums[r * right.size() + v];
      sum = dot(sum, bytes, columns);
    }
  }
}

/// sum + the products of bytes 0 to 255 by bytes -128 to 127, `group` of them in each lane.
Vec IntegerGemmEmitter::dot(const Vec &sum, const Vec &left, const Vec &right) {
  bool isWide = spec.lanes == 16;
  auto call = [&](StringRef name, ArrayRef<Value> operands) {
    return k.asVec(k.intrinsic(name, sum.type(), operands));
  };
  switch (spec.dot) {
  case ByteDot::Quads:
    return call(isWide ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256", {sum, left, right});
  case ByteDot::Pairs: {
    Type i16 = k.b.getI16Type();
    Vec wideLeft = convertUnsigned(left, i16), wideRight = convert(right, i16);
    return sum + call(isWide ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd", {wideLeft, wideRight});
  }
  case ByteDot::Single:
    return sum + convertUnsigned(left, i32) * convert(right, i32);
  }
  llvm_unreachable("covered switch");
}

/// `count` bytes of A, at most `group`, with zeros behind them, in every lane.
Vec IntegerGemmEmitter::rowBytes(Index row, Index first, int64_t count) {
  if (group == 1)
    return k.splat(a(row, first), spec.lanes);
  Type word = k.b.getIntegerType(8 * group);
  Num bits = k.number(word, int64_t(0));
  if (count == group)
    bits = extract(bitcast(a.vector(group, row, first), word), 0);
  else
    for (int64_t n = 0; n < count; ++n)
      bits = bits | (convertUnsigned(a(row, first + n), word) << 8 * n);
  return bitcast(k.splat(bits, spec.lanes), i8);
}

/// The sum of a row of A.
Num IntegerGemmEmitter::rowSum(Index row) {
  int64_t bytes = spec.lanes * group, whole = spec.k / bytes * bytes, rest = spec.k % bytes;
  Vec ones = k.splat(k.number(i8, int64_t(1)), bytes);
  Vec sum = k.rolledLoop(0, whole, bytes, sumsOf(0),
                         [&](Index first, Vec sum) { return dot(sum, a.vector(bytes, row, first), ones); });
  if (rest)
    sum = dot(sum, a.first(k.index(rest), bytes, row, whole), ones);
  return sumOfLanes(sum);
}

/// Corrects the sums by the zero points, applies the epilogue and stores the rows of the tile.
void IntegerGemmEmitter::emitRows() {
  forColumns([&](int64_t count) {
    int64_t vectors = llvm::divideCeil(count, spec.lanes);
    Vecs corrections, zeros;
    for (int64_t v = 0; v < vectors; ++v) {
      int64_t first = v * spec.lanes, lanes = std::min(count - first, spec.lanes);
      if (spec.hasRowZero)
        corrections.push_back(rowZero * columnSums.vector(spec.lanes, panel, first));
      if (spec.columnZero == ZeroPoint::Scalar)
        zeros.push_back(k.splat(convert(columnZero(), i32), spec.lanes));
      else if (spec.columnZero == ZeroPoint::ByColumn)
        zeros.push_back(convert(loadColumns(columnZero, lanes, panel * width + first), i32));
    }
    k.rolledLoop(0, tileHeight, 1, [&](Index r) {
      Index at = row + r;
      Vec difference;
      if (spec.columnZero != ZeroPoint::None) { // K za - sum of the row
        Num all = spec.hasRowZero ? rowZero * spec.k : k.i32(0);
        difference = k.splat(all - rowSum(at), spec.lanes);
      }
      for (int64_t v = 0; v < vectors; ++v) {
        Vec sum = scratch.vector(spec.lanes, r, v * spec.lanes);
        if (spec.hasRowZero)
          sum = sum - corrections[v];
        if (spec.columnZero != ZeroPoint::None)
          sum = sum + zeros[v] * difference;
        emitElements(at, v, count, sum);
      }
    });
  });
}

/// Runs `emitColumns` for the number of columns of the panel at hand: all, or what is left in the last one.
void IntegerGemmEmitter::forColumns(function_ref<void(int64_t)> emitColumns) {
  int64_t rest = spec.n % width;
  if (rest == 0)
    return emitColumns(width);
  if (spec.numPanels() == 1)
    return emitColumns(rest);
  k.when(panel == spec.numPanels() - 1, [&] { emitColumns(rest); }, [&] { emitColumns(width); });
}

/// Applies the epilogue to vector number `vector` of a row whose panel has `count` columns, and stores it.
void IntegerGemmEmitter::emitElements(Index row, int64_t vector, int64_t count, Vec sum) {
  int64_t first = vector * spec.lanes, lanes = std::min(count - first, spec.lanes);
  Index column = panel * width + first;
  Vec result = sum;
  if (spec.epilogue) {
    auto read = [&](EpilogueOperand kind, const Buffer &buffer) -> Value {
      switch (kind) {
      case EpilogueOperand::Scalar:
        return buffer();
      case EpilogueOperand::RowVector:
        return loadColumns(buffer, lanes, column);
      case EpilogueOperand::Column:
        return buffer(row);
      case EpilogueOperand::Full:
        return loadColumns(buffer, lanes, row, column);
      }
      llvm_unreachable("covered switch");
    };
    SmallVector<Value> arguments;
    for (auto [kind, buffer] : llvm::zip_equal(spec.operands, operands))
      arguments.push_back(read(kind, buffer));
    arguments.insert(arguments.begin() + spec.accumulator, sum.value());
    // Arguments that nothing uses.
    for (BlockArgument argument : spec.epilogue->getArguments().drop_front(arguments.size()))
      arguments.push_back(k.number(argument.getType(), int64_t(0)));
    result = k.asVec(*vectorizeBlock(k.b, *spec.epilogue, arguments, spec.lanes, nullptr));
  }
  if (lanes < spec.lanes)
    c.setFirst(result, k.index(lanes), row, column);
  else
    c.setVector(result, row, column);
}

} // namespace

FailureOr<func::FuncOp> buildIntegerGemm(OpBuilder &builder, Location loc, const IntegerGemmSpec &spec) {
  std::string reason;
  if (!canBuildIntegerGemm(spec, &reason))
    return emitError(loc, "cannot build a GEMM kernel of integers: ") << reason;
  KernelFunction f(builder, loc, spec.symbol());
  f.function.setPrivate();
  IntegerGemmEmitter(f, spec).emit();
  return f.function;
}

} // namespace attn
