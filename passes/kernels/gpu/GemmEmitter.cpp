#include "passes/kernels/gpu/GemmEmitter.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

void GpuGemmEmitter::prepare(ValueRange buffers) {
  arguments = Values(buffers);
  for (unsigned dim = 0; dim < spec.sizes.size(); ++dim)
    sizes.push_back(sizeOf(dim));
  numRows = product(spec.rows), numColumns = product(spec.columns), numSums = product(spec.sums);
  sides[0] = makeSide(arguments[0], spec.leftMap, spec.rows, tile.rows, tile.threadRows);
  sides[1] = makeSide(arguments[1], spec.rightMap, spec.columns, tile.columns, tile.threadColumns);
  sides[1].begin = 2 * sides[0].elements;
}

void GpuGemmEmitter::emitLaunch(ValueRange buffers) {
  OpBuilder::InsertionGuard guard(k.b);
  prepare(buffers);
  Value rowTiles = k.ceilDiv(numRows, tile.rows), columnTiles = k.ceilDiv(numColumns, tile.columns);
  Value blocks = k.mul(k.mul(rowTiles, columnTiles), product(spec.batch));
  int64_t elements = std::max(2 * (sides[0].elements + sides[1].elements), stagedElements());
  shared = k.launch(blocks, tile.threads(), {elements})[0];

  k.setResidentBlocks(1);
  Value position = k.rem(k.block, k.mul(rowTiles, columnTiles));
  batchIndices = delinearize(k, k.div(k.block, k.mul(rowTiles, columnTiles)), sizesOf(spec.batch));
  sides[0].first = k.mul(k.div(position, columnTiles), tile.rows);
  sides[1].first = k.mul(k.rem(position, columnTiles), tile.columns);
  // Threads, or warps, cut the tile into columns first.
  Value worker = tile.isMatrix ? k.div(k.thread, k.index(32)) : k.thread;
  Value across = k.index(tile.columns / tile.threadColumns / (tile.isMatrix ? 8 : 1));
  sides[0].lane = k.div(worker, across), sides[1].lane = k.rem(worker, across);
  for (Side &side : sides)
    prepareCopies(side);
  if (tile.isMatrix)
    finishMatrices(multiplyMatrices());
  else
    finish(multiply());
}

Value GpuGemmEmitter::sizeOf(unsigned dim) {
  if (!ShapedType::isDynamic(spec.sizes[dim]))
    return k.index(spec.sizes[dim]);
  for (auto [argument, map] : {std::pair(arguments[0], spec.leftMap), std::pair(arguments[1], spec.rightMap)})
    if (auto n = map.getResultPosition(getAffineDimExpr(dim, map.getContext())))
      return k.b.createOrFold<memref::DimOp>(k.loc, argument, *n);
  llvm_unreachable("a loop of the result alone has no kernel");
}

Value GpuGemmEmitter::product(ArrayRef<unsigned> dims) {
  Value result = k.index(1);
  for (unsigned dim : dims)
    result = k.mul(result, sizes[dim]);
  return result;
}

GpuGemmEmitter::Side GpuGemmEmitter::makeSide(Value buffer, AffineMap map, ArrayRef<unsigned> outer, int64_t extent,
                                              int64_t perThread) {
  Side side;
  Values strides = rowMajorStrides(k, buffer);
  side.flat = k.flatten(buffer);
  side.map = map, side.outer = outer, side.tile = extent, side.perThread = perThread;
  side.extent = product(outer);
  side.strides.resize(sizes.size());
  for (auto [n, expr] : llvm::enumerate(map.getResults()))
    side.strides[cast<AffineDimExpr>(expr).getPosition()] = strides[n];
  unsigned last = map.getNumResults() ? map.getDimPosition(map.getNumResults() - 1) : ~0u;
  side.isDeep = outer.empty() || last != outer.back();
  bool isInner = last != ~0u && last == (side.isDeep ? spec.sums.back() : outer.back());
  auto isGroup = [&](int64_t width) {
    return isInner && !ShapedType::isDynamic(spec.sizes[last]) && spec.sizes[last] % width == 0;
  };
  Type type = cast<MemRefType>(buffer.getType()).getElementType();
  constexpr int64_t kNarrowGroup = 8;
  side.isNarrow = tile.isMatrix && precisionOf(type) == spec.precision && isGroup(kNarrowGroup);
  side.isWidened = !type.isF32() && !side.isNarrow;
  side.isVector = !side.isWidened && isGroup(side.width());
  // What 8 (16) lanes read at once lies in different banks: readFragment, readMatrices.
  side.pitch = side.isDeep ? tile.depth + (tile.isMatrix ? 8 : 4) : extent + (tile.isMatrix ? 4 : 0);
  // There ldmatrix reads 16 bytes of each of 8 rows.
  if (side.isNarrow)
    side.pitch = (side.isDeep ? tile.depth : extent) / 2 + 4;
  side.elements = side.pitch * (side.isDeep ? extent : tile.depth);
  side.begin = 0;
  return side;
}

Value GpuGemmEmitter::offsetOf(const Side &side, ArrayRef<unsigned> dims, ArrayRef<Value> indices) {
  Value offset = k.index(0);
  for (auto [dim, index] : llvm::zip_equal(dims, indices))
    if (side.strides[dim])
      offset = k.add(offset, k.mul(index, side.strides[dim]));
  return offset;
}

/// Position in the tile of group `n` of a thread: (outer, depth).
std::pair<Value, Value> GpuGemmEmitter::groupAt(const Side &side, int64_t n) {
  Value group = k.add(k.thread, n * tile.threads());
  int64_t inner = (side.isDeep ? tile.depth : side.tile) / side.width();
  Value major = k.div(group, k.index(inner)), minor = k.mul(k.rem(group, k.index(inner)), side.width());
  return side.isDeep ? std::pair(major, minor) : std::pair(minor, major);
}

void GpuGemmEmitter::prepareCopies(Side &side) {
  Value base = offsetOf(side, spec.batch, batchIndices);
  for (int64_t n = 0; n < copiesOf(side); ++n) {
    auto [outer, depth] = groupAt(side, n);
    // Elements of a group lie in one row of the tile if it is deep, else in four.
    for (int64_t e = 0; e < (side.isVector || side.isDeep ? 1 : 4); ++e) {
      Value at = k.add(k.add(side.first, outer), e);
      side.isInside.push_back(k.less(at, side.extent));
      side.offsets.push_back(k.add(base, offsetOf(side, side.outer, delinearize(k, at, sizesOf(side.outer)))));
    }
  }
}

/// Starts to copy the part of the tile from `depth` of the sum on.
void GpuGemmEmitter::copyTile(const Side &side, Value depthBegin, Value stage) {
  Value target = stageOf(side, stage);
  for (int64_t n = 0; n < copiesOf(side); ++n) {
    auto [outer, depth] = groupAt(side, n);
    Value major = side.isDeep ? outer : depth, minor = side.isDeep ? depth : outer;
    Value place = k.add(k.mul(major, side.pitch), side.isNarrow ? k.div(minor, k.index(2)) : minor);
    place = k.add(target, place);
    for (int64_t e = 0; e < (side.isVector ? 1 : 4); ++e) {
      size_t known = side.isVector || side.isDeep ? n : 4 * n + e;
      Value at = k.add(k.add(depthBegin, depth), side.isDeep ? e : 0);
      Value offset = k.add(side.offsets[known], offsetOf(side, spec.sums, delinearize(k, at, sizesOf(spec.sums))));
      Value isInside = k.both(side.isInside[known], k.less(at, numSums));
      if (!side.isWidened) {
        k.copyAsync(shared, k.add(place, e), side.flat, offset, side.isVector ? 4 : 1, isInside);
        continue;
      }
      auto read = [&] { return k.loadWide(side.flat, offset, 1); };
      Value x = k.branch(isInside, k.b.getF32Type(), read, [&] { return Values{k.scalar(0)}; })[0];
      memref::StoreOp::create(k.b, k.loc, x, shared, k.add(place, e));
    }
  }
}

Values GpuGemmEmitter::sumUp(int64_t count, llvm::function_ref<Values(Value, ValueRange)> add) {
  Values zeros(count, k.scalar(0));
  Value zero = k.index(0), two = k.index(2);
  for (Side &side : sides)
    copyTile(side, zero, zero);
  k.commitCopies();
  Values sums = k.loop(zero, k.ceilDiv(numSums, tile.depth), 1, zeros, [&](Value step, ValueRange sums) {
    k.keepRolled(); // copies of a step in a row need registers that are not there
    Value next = k.add(step, 1), stage = k.rem(step, two);
    for (Side &side : sides)
      copyTile(side, k.mul(next, tile.depth), k.rem(next, two));
    k.commitCopies();
    k.waitForCopies(1);
    k.barrier();
    Values result = add(stage, sums);
    k.barrier(); // the next step's copies go where this one has read
    return result;
  });
  k.waitForCopies(0); // none may be under way when the block ends
  return sums;
}

void GpuGemmEmitter::startLoops() {
  loops.resize(sizes.size());
  placeLoops(spec.batch, batchIndices);
}
void GpuGemmEmitter::placeLoops(ArrayRef<unsigned> dims, ArrayRef<Value> indices) {
  for (auto [dim, index] : llvm::zip_equal(dims, indices))
    loops[dim] = index;
}
Values GpuGemmEmitter::resultIndices() {
  Values at;
  for (AffineExpr expr : spec.resultMap.getResults())
    at.push_back(loops[cast<AffineDimExpr>(expr).getPosition()]);
  return at;
}

Value GpuGemmEmitter::applyEpilogue(Value sum, ArrayRef<Value> at) {
  if (!spec.epilogue)
    return k.fromF32(sum, spec.result.getElementType());
  sum = k.fromF32(sum, spec.epilogue->getArgument(spec.accumulator).getType());
  Values values;
  for (auto [n, map] : llvm::enumerate(spec.operandMaps)) {
    Values indices;
    for (AffineExpr expr : map.getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      indices.push_back(dim ? at[dim.getPosition()] : k.index(cast<AffineConstantExpr>(expr).getValue()));
    }
    values.push_back(memref::LoadOp::create(k.b, k.loc, arguments[2 + n], indices));
  }
  values.insert(values.begin() + spec.accumulator, sum);
  // An output that the ops do not read is the last argument.
  while (values.size() < spec.epilogue->getNumArguments())
    values.push_back(sum);
  return k.cloneScalar(*spec.epilogue, values, [&](Operation &op) {
    auto index = dyn_cast<linalg::IndexOp>(op);
    return index ? at[index.getDim()] : Value();
  });
}

} // namespace attn
