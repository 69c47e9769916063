#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/cpu/LaneBuilder.h"
#include "passes/kernels/cpu/RegionVectorizer.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace attn {
namespace {

using Values = LaneBuilder::Values;

constexpr int64_t kLineBytes = 64;
/// How far ahead of it lines are asked for where one block of rows reads all panels: a stream from memory.
constexpr int64_t kStreamAhead = 4096;

class IntegerGemmEmitter {
public:
  IntegerGemmEmitter(OpBuilder &builder, Location loc, const IntegerGemmSpec &spec)
      : k(builder, loc, spec.lanes, /*hasScalef=*/false), b(builder), loc(loc), spec(spec), width(spec.panelWidth()),
        group(spec.group()), stepBytes(width * group), i8(b.getI8Type()), i32(b.getI32Type()),
        sumType(VectorType::get({spec.lanes}, i32)) {}

  func::FuncOp emit();

private:
  func::FuncOp createFunction();
  void emitTask(Value task);
  void emitTile(int64_t height);
  void multiply(Values &sums, int64_t height, ArrayRef<Value> right, llvm::function_ref<Value(int64_t)> left);
  Value dot(Value sum, Value left, Value right);
  Value rowBytes(Value row, Value first, int64_t count);
  Value rowSum(Value row);
  void emitRows();
  void emitElements(Value row, int64_t vector, int64_t count, Value sum);
  void forColumns(llvm::function_ref<void(int64_t count)> emitColumns);

  VectorType bytesType(int64_t count) { return VectorType::get({count}, i8); }
  Value constant(Type type, int64_t value) { return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, value)); }
  Value splat(VectorType type, int64_t value) {
    auto element = b.getIntegerAttr(type.getElementType(), value);
    return arith::ConstantOp::create(b, loc, SplatElementsAttr::get(type, element));
  }
  Value broadcast(Value scalar) { return vector::BroadcastOp::create(b, loc, sumType, scalar); }
  Value addi(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value subi(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value muli(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value extend(Value x, Type type, bool isUnsigned) {
    return isUnsigned ? arith::ExtUIOp::create(b, loc, type, x).getResult()
                      : arith::ExtSIOp::create(b, loc, type, x).getResult();
  }
  Value maskOf(int64_t count) {
    return vector::ConstantMaskOp::create(b, loc, VectorType::get({spec.lanes}, b.getI1Type()), ArrayRef{count});
  }
  Value loadColumns(Value buffer, ValueRange indices, int64_t count);

  LaneBuilder k;
  OpBuilder &b;
  Location loc;
  const IntegerGemmSpec &spec;
  const int64_t width, group, stepBytes; ///< of a panel: columns; rows and bytes of a step
  const Type i8, i32;
  const VectorType sumType;

  Value a, panels, flatPanels, columnSums, rowZero, columnZero, c, scratch;
  Values operands;
  Value rows, blocks, height, extra, numPanels, panelBytes, prefetchStep;
  // Of the task at hand.
  Value panel, row, tileHeight, prefetchAt;
};

func::FuncOp IntegerGemmEmitter::createFunction() {
  auto byColumn = [&](EpilogueOperand kind, Type element) {
    switch (kind) {
    case EpilogueOperand::Scalar:
      return MemRefType::get({}, element);
    case EpilogueOperand::RowVector:
      return MemRefType::get({spec.n}, element);
    case EpilogueOperand::Column:
      return MemRefType::get({spec.m}, element);
    case EpilogueOperand::Full:
      return MemRefType::get({spec.m, spec.n}, element);
    }
    llvm_unreachable("covered switch");
  };
  SmallVector<Type> types = {MemRefType::get({spec.m, spec.k}, i8), MemRefType::get(spec.panelShape(), i8),
                             MemRefType::get(spec.sumShape(), i32)};
  if (spec.hasRowZero)
    types.push_back(MemRefType::get({}, i8));
  if (spec.columnZero != ZeroPoint::None)
    types.push_back(
        byColumn(spec.columnZero == ZeroPoint::Scalar ? EpilogueOperand::Scalar : EpilogueOperand::RowVector, i8));
  for (auto [n, kind] : llvm::enumerate(spec.operands))
    types.push_back(byColumn(kind, spec.epilogue->getArgument(n + (n >= spec.accumulator)).getType()));
  types.push_back(MemRefType::get({spec.m, spec.n}, spec.resultType(b.getContext())));
  auto function = func::FuncOp::create(b, loc, spec.symbol(), b.getFunctionType(types, {}));
  function.setPrivate();
  function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());
  return function;
}

func::FuncOp IntegerGemmEmitter::emit() {
  func::FuncOp function = createFunction();
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(function.addEntryBlock());
  ArrayRef<BlockArgument> arguments = function.getArguments();
  auto take = [&]() -> Value {
    Value first = arguments.front();
    arguments = arguments.drop_front();
    return first;
  };
  a = take();
  panels = take();
  columnSums = take();
  if (spec.hasRowZero)
    rowZero = extend(memref::LoadOp::create(b, loc, take(), ValueRange()), i32, /*isUnsigned=*/true);
  if (spec.columnZero != ZeroPoint::None)
    columnZero = take();
  for (size_t n = 0; n < spec.operands.size(); ++n)
    operands.push_back(take());
  c = arguments.back();
  flatPanels = k.flatten(panels);

  Value zero = k.index(0), one = k.index(1);
  rows = b.createOrFold<memref::DimOp>(loc, a, 0);
  numPanels = k.index(spec.numPanels());
  panelBytes = k.index(spec.panelShape()[1] * stepBytes);
  // ceil(M / tileRows) blocks whose heights differ by one at most: the first `extra` have one row more.
  blocks = k.ceilDiv(rows, spec.tileRows);
  Value divisor = k.max(blocks, one);
  height = k.div(rows, divisor);
  extra = k.rem(rows, divisor);
  auto parallel =
      scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{k.mul(numPanels, blocks)}, ValueRange{one});
  b.setInsertionPointToStart(parallel.getBody());
  emitTask(parallel.getInductionVars()[0]);
  b.setInsertionPointToEnd(&function.front());
  func::ReturnOp::create(b, loc);
  return function;
}

void IntegerGemmEmitter::emitTask(Value task) {
  scratch = memref::AllocaOp::create(b, loc, MemRefType::get({spec.tileRows, width}, i32), ValueRange(),
                                     b.getI64IntegerAttr(kLineBytes));
  Value inChunk = blocks, firstBlock = k.index(0);
  if (spec.chunkBlocks) { // all chunks are whole but the last
    Value size = k.index(spec.chunkBlocks), perChunk = k.mul(numPanels, size);
    firstBlock = k.mul(k.div(task, perChunk), size);
    task = k.rem(task, perChunk);
    inChunk = k.min(size, k.sub(blocks, firstBlock));
  }
  panel = k.div(task, inChunk);
  Value at = k.rem(task, inChunk), block = k.add(firstBlock, at);
  row = k.add(k.mul(block, height), k.min(block, extra));
  tileHeight = k.add(height, arith::IndexCastUIOp::create(b, loc, b.getIndexType(), k.less(block, extra)));
  // The blocks of a panel together ask for the next one; a single block for what it will read itself.
  prefetchStep = k.div(k.add(k.sub(inChunk, k.index(1)), stepBytes), inChunk);
  Value next = k.min(k.add(panel, 1), k.sub(numPanels, k.index(1)));
  prefetchAt = k.add(k.mul(next, panelBytes), k.mul(k.mul(at, prefetchStep), spec.panelShape()[1]));
  Value isStream = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, blocks, k.index(1));
  prefetchAt = k.select(isStream, k.add(k.mul(panel, panelBytes), kStreamAhead), prefetchAt);

  // The heights that occur: all for dynamic M, else M / blocks and one more.
  SmallVector<int64_t> heights;
  if (ShapedType::isDynamic(spec.m)) {
    llvm::append_range(heights, llvm::seq_inclusive<int64_t>(1, spec.tileRows));
  } else if (spec.m > 0) {
    int64_t count = llvm::divideCeil(spec.m, spec.tileRows);
    heights.push_back(spec.m / count);
    if (spec.m % count)
      heights.push_back(spec.m / count + 1);
  }
  if (heights.empty())
    return;
  int64_t tallest = heights.pop_back_val();
  auto choice = scf::IndexSwitchOp::create(b, loc, TypeRange(), tileHeight, heights, heights.size());
  {
    OpBuilder::InsertionGuard guard(b);
    for (auto [region, h] : llvm::zip_equal(choice.getCaseRegions(), heights)) {
      b.setInsertionPointToStart(&region.emplaceBlock());
      emitTile(h);
      scf::YieldOp::create(b, loc);
    }
    b.setInsertionPointToStart(&choice.getDefaultRegion().emplaceBlock());
    emitTile(tallest);
    scf::YieldOp::create(b, loc);
  }
  emitRows();
}

/// The sums of `height` rows and one panel, to the scratch.
void IntegerGemmEmitter::emitTile(int64_t height) {
  int64_t vectors = spec.tileVectors, whole = spec.k / group, tail = spec.k % group;
  auto loadRight = [&](Value step) {
    Values right;
    for (int64_t v = 0; v < vectors; ++v)
      right.push_back(vector::LoadOp::create(b, loc, bytesType(spec.lanes * group), panels,
                                             ValueRange{panel, step, k.index(v * spec.lanes * group)}));
    return right;
  };
  Values carried(height * vectors, splat(sumType, 0));
  carried.push_back(prefetchAt);
  carried = k.loop(k.index(0), k.index(whole), 1, carried, [&](Value step, ValueRange values) {
    Values sums(values.drop_back());
    Value at = values.back();
    Values right = loadRight(step);
    for (int64_t byte = 0; byte < stepBytes; byte += kLineBytes)
      memref::PrefetchOp::create(b, loc, flatPanels, ValueRange{k.add(at, byte)}, /*isWrite=*/false,
                                 /*localityHint=*/2, /*isDataCache=*/true);
    Value first = k.mul(step, group);
    multiply(sums, height, right, [&](int64_t r) { return rowBytes(k.add(row, r), first, group); });
    sums.push_back(k.add(at, prefetchStep));
    return sums;
  });
  carried.pop_back();
  if (tail) // the panel has zeros there, A has not
    multiply(carried, height, loadRight(k.index(whole)),
             [&](int64_t r) { return rowBytes(k.add(row, r), k.index(whole * group), tail); });
  for (int64_t r = 0; r < height; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      vector::StoreOp::create(b, loc, carried[r * vectors + v], scratch,
                              ValueRange{k.index(r), k.index(v * spec.lanes)});
}

void IntegerGemmEmitter::multiply(Values &sums, int64_t height, ArrayRef<Value> right,
                                  function_ref<Value(int64_t)> left) {
  for (int64_t r = 0; r < height; ++r) {
    Value bytes = left(r);
    for (auto [v, columns] : llvm::enumerate(right)) {
      Value &sum = sums[r * right.size() + v];
      sum = dot(sum, bytes, columns);
    }
  }
}

/// sum + the products of bytes 0 to 255 by bytes -128 to 127, `group` of them in each lane.
Value IntegerGemmEmitter::dot(Value sum, Value left, Value right) {
  bool isWide = spec.lanes == 16;
  auto call = [&](StringRef name, Type type, ValueRange operands) {
    return LLVM::CallIntrinsicOp::create(b, loc, type, b.getStringAttr(name), operands).getResult(0);
  };
  switch (spec.dot) {
  case ByteDot::Quads:
    return call(isWide ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256", sumType, {sum, left, right});
  case ByteDot::Pairs: {
    auto halves = VectorType::get({2 * spec.lanes}, b.getI16Type());
    Value pairs = call(isWide ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd", sumType,
                       {extend(left, halves, /*isUnsigned=*/true), extend(right, halves, /*isUnsigned=*/false)});
    return addi(sum, pairs);
  }
  case ByteDot::Single:
    return addi(sum, muli(extend(left, sumType, /*isUnsigned=*/true), extend(right, sumType, /*isUnsigned=*/false)));
  }
  llvm_unreachable("covered switch");
}

/// `count` bytes of A, at most `group`, with zeros behind them, in every lane.
Value IntegerGemmEmitter::rowBytes(Value row, Value first, int64_t count) {
  auto all = bytesType(spec.lanes * group);
  if (group == 1)
    return vector::BroadcastOp::create(b, loc, all, memref::LoadOp::create(b, loc, a, ValueRange{row, first}));
  Type word = b.getIntegerType(8 * group);
  Value bits;
  if (count == group) {
    Value few = vector::LoadOp::create(b, loc, bytesType(group), a, ValueRange{row, first});
    bits = vector::ExtractOp::create(b, loc, vector::BitCastOp::create(b, loc, VectorType::get({1}, word), few), 0);
  } else {
    bits = constant(word, 0);
    for (int64_t n = 0; n < count; ++n) {
      Value byte = memref::LoadOp::create(b, loc, a, ValueRange{row, k.add(first, n)});
      Value shifted = arith::ShLIOp::create(b, loc, extend(byte, word, /*isUnsigned=*/true), constant(word, 8 * n));
      bits = arith::OrIOp::create(b, loc, bits, shifted);
    }
  }
  Value lanes = vector::BroadcastOp::create(b, loc, VectorType::get({spec.lanes}, word), bits);
  return vector::BitCastOp::create(b, loc, all, lanes);
}

/// The sum of a row of A.
Value IntegerGemmEmitter::rowSum(Value row) {
  int64_t bytes = spec.lanes * group, whole = spec.k / bytes * bytes, rest = spec.k % bytes;
  Value ones = splat(bytesType(bytes), 1);
  Values sum{splat(sumType, 0)};
  sum = k.loop(k.index(0), k.index(whole), bytes, sum, [&](Value first, ValueRange values) -> Values {
    Value part = vector::LoadOp::create(b, loc, bytesType(bytes), a, ValueRange{row, first});
    return {dot(values.front(), part, ones)};
  });
  if (rest) {
    Value mask = vector::ConstantMaskOp::create(b, loc, VectorType::get({bytes}, b.getI1Type()), ArrayRef{rest});
    Value part = vector::MaskedLoadOp::create(b, loc, bytesType(bytes), a, ValueRange{row, k.index(whole)}, mask,
                                              splat(bytesType(bytes), 0));
    sum.front() = dot(sum.front(), part, ones);
  }
  return vector::ReductionOp::create(b, loc, vector::CombiningKind::ADD, sum.front());
}

/// Corrects the sums by the zero points, applies the epilogue and stores the rows of the tile.
void IntegerGemmEmitter::emitRows() {
  forColumns([&](int64_t count) {
    int64_t vectors = llvm::divideCeil(count, spec.lanes);
    Values corrections, zeros;
    for (int64_t v = 0; v < vectors; ++v) {
      Value first = k.index(v * spec.lanes);
      int64_t lanes = std::min(count - v * spec.lanes, spec.lanes);
      if (spec.hasRowZero) {
        Value sums = vector::LoadOp::create(b, loc, sumType, columnSums, ValueRange{panel, first});
        corrections.push_back(muli(broadcast(rowZero), sums));
      }
      if (spec.columnZero == ZeroPoint::Scalar)
        zeros.push_back(
            broadcast(extend(memref::LoadOp::create(b, loc, columnZero, ValueRange()), i32, /*isUnsigned=*/false)));
      else if (spec.columnZero == ZeroPoint::ByColumn)
        zeros.push_back(extend(loadColumns(columnZero, {k.add(k.mul(panel, width), first)}, lanes), sumType,
                               /*isUnsigned=*/false));
    }
    k.loop(k.index(0), tileHeight, 1, [&](Value r) {
      Value at = k.add(row, r), difference;
      if (spec.columnZero != ZeroPoint::None) { // K za - sum of the row
        difference = rowSum(at);
        Value all = spec.hasRowZero ? muli(rowZero, constant(i32, spec.k)) : constant(i32, 0);
        difference = broadcast(subi(all, difference));
      }
      for (int64_t v = 0; v < vectors; ++v) {
        Value sum = vector::LoadOp::create(b, loc, sumType, scratch, ValueRange{r, k.index(v * spec.lanes)});
        if (spec.hasRowZero)
          sum = subi(sum, corrections[v]);
        if (difference)
          sum = addi(sum, muli(zeros[v], difference));
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
  Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, panel, k.index(spec.numPanels() - 1));
  k.branch(
      isLast, TypeRange(),
      [&] {
        emitColumns(rest);
        return Values();
      },
      [&] {
        emitColumns(width);
        return Values();
      });
}

/// A vector of a buffer's elements, of which the first `count` are there.
Value IntegerGemmEmitter::loadColumns(Value buffer, ValueRange indices, int64_t count) {
  auto type = VectorType::get({spec.lanes}, cast<MemRefType>(buffer.getType()).getElementType());
  if (count == spec.lanes)
    return vector::LoadOp::create(b, loc, type, buffer, indices);
  Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
  return vector::MaskedLoadOp::create(b, loc, type, buffer, indices, maskOf(count), none);
}

/// Applies the epilogue to vector number `vector` of a row whose panel has `count` columns, and stores it.
void IntegerGemmEmitter::emitElements(Value row, int64_t vector, int64_t count, Value sum) {
  int64_t first = vector * spec.lanes, lanes = std::min(count - first, spec.lanes);
  Value column = k.add(k.mul(panel, width), first), result = sum;
  if (spec.epilogue) {
    Values arguments;
    for (auto [kind, buffer] : llvm::zip_equal(spec.operands, operands)) {
      if (arguments.size() == spec.accumulator)
        arguments.push_back(sum);
      switch (kind) {
      case EpilogueOperand::Scalar:
        arguments.push_back(memref::LoadOp::create(b, loc, buffer, ValueRange()));
        break;
      case EpilogueOperand::RowVector:
        arguments.push_back(loadColumns(buffer, {column}, lanes));
        break;
      case EpilogueOperand::Column:
        arguments.push_back(memref::LoadOp::create(b, loc, buffer, row));
        break;
      case EpilogueOperand::Full:
        arguments.push_back(loadColumns(buffer, {row, column}, lanes));
        break;
      }
    }
    if (arguments.size() == spec.accumulator)
      arguments.push_back(sum);
    // Arguments that nothing uses.
    for (BlockArgument argument : spec.epilogue->getArguments().drop_front(arguments.size()))
      arguments.push_back(arith::ConstantOp::create(b, loc, b.getZeroAttr(argument.getType())));
    result = *vectorizeBlock(b, *spec.epilogue, arguments, spec.lanes, nullptr);
  }
  if (lanes < spec.lanes)
    vector::MaskedStoreOp::create(b, loc, c, ValueRange{row, column}, maskOf(lanes), result);
  else
    vector::StoreOp::create(b, loc, result, c, ValueRange{row, column});
}

} // namespace

FailureOr<func::FuncOp> buildIntegerGemm(OpBuilder &builder, Location loc, const IntegerGemmSpec &spec) {
  std::string reason;
  if (!canBuildIntegerGemm(spec, &reason))
    return emitError(loc, "cannot build a GEMM kernel of integers: ") << reason;
  return IntegerGemmEmitter(builder, loc, spec).emit();
}

} // namespace attn
