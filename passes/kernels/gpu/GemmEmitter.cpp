#include "passes/kernels/gpu/GemmEmitter.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

void GpuGemmEmitter::prepare(ArrayRef<Buffer> buffers) {
  arguments.assign(buffers.begin(), buffers.end());
  for (unsigned dim = 0; dim < spec.sizes.size(); ++dim)
    sizes.push_back(sizeOf(dim));
  numRows = product(spec.rows), numColumns = product(spec.columns), numSums = product(spec.sums);
  sides[0] = makeSide(arguments[0], spec.leftMap, spec.rows, tile.rows, tile.threadRows);
  sides[1] = makeSide(arguments[1], spec.rightMap, spec.columns, tile.columns, tile.threadColumns);
  sides[1].begin = 2 * sides[0].elements;
}

void GpuGemmEmitter::emitLaunch(ArrayRef<Buffer> buffers) {
  OpBuilder::InsertionGuard guard(k.b);
  prepare(buffers);
  Index rowTiles = ceilDiv(numRows, tile.rows), columnTiles = ceilDiv(numColumns, tile.columns);
  Index blocks = rowTiles * columnTiles * product(spec.batch);
  int64_t elements = std::max(2 * (sides[0].elements + sides[1].elements), stagedElements());
  shared = k.launch(blocks, tile.threads(), {elements})[0];

  k.setResidentBlocks(1);
  Index position = k.block % (rowTiles * columnTiles);
  batchIndices = delinearize(k.block / (rowTiles * columnTiles), sizesOf(spec.batch));
  sides[0].first = position / columnTiles * tile.rows;
  sides[1].first = position % columnTiles * tile.columns;
  // Threads, or warps, cut the tile into columns first.
  Index worker = tile.isMatrix ? k.thread / 32 : k.thread;
  Index across = k.index(tile.columns / tile.threadColumns / (tile.isMatrix ? 8 : 1));
  sides[0].lane = worker / across, sides[1].lane = worker % across;
  for (Side &side : sides)
    prepareCopies(side);
  if (tile.isMatrix)
    finishMatrices(multiplyMatrices());
  else
    finish(multiply());
}

Index GpuGemmEmitter::sizeOf(unsigned dim) {
  if (!ShapedType::isDynamic(spec.sizes[dim]))
    return k.index(spec.sizes[dim]);
  for (auto [argument, map] : {std::pair(arguments[0], spec.leftMap), std::pair(arguments[1], spec.rightMap)})
    if (auto n = map.getResultPosition(getAffineDimExpr(dim, map.getContext())))
      return argument.dim(*n);
  llvm_unreachable("a loop of the result alone has no kernel");
}

Index GpuGemmEmitter::product(ArrayRef<unsigned> dims) {
  Index result = k.index(1);
  for (unsigned dim : dims)
    result = result * sizes[dim];
  return result;
}

GpuGemmEmitter::Side GpuGemmEmitter::makeSide(const Buffer &buffer, AffineMap map, ArrayRef<unsigned> outer,
                                              int64_t extent, int64_t perThread) {
  Side side;
  Indices strides = rowMajorStrides(k, buffer);
  side.flat = buffer.flat();
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
  Type type = buffer.memref().getElementType();
  constexpr int64_t kNarrowGroup = 8, kFloat8Group = 16;
  side.isNarrow = tile.isMatrix && precisionOf(type) == spec.precision && isGroup(kNarrowGroup);
  side.isFloat8 = tile.isMatrix && isa<Float8E4M3FNType>(type) && side.isDeep && isGroup(kFloat8Group);
  side.isWidened = !type.isF32() && !side.isNarrow && !side.isFloat8;
  // So that a shallow tile of e4m3 has a group for each thread, too.
  side.groupWidth = side.isFloat8 ? std::min(kFloat8Group, tile.depth / 2) : side.isNarrow ? kNarrowGroup : 4;
  side.isVector = !side.isWidened && isGroup(side.width());
  // What 8 (16) lanes read at once lies in different banks: readFragment, readMatrices.
  side.pitch = side.isDeep ? tile.depth + (tile.isMatrix ? 8 : 4) : extent + (tile.isMatrix ? 4 : 0);
  // There ldmatrix reads 16 bytes of each of 8 rows.
  if (side.isNarrow)
    side.pitch = (side.isDeep ? tile.depth : extent) / 2 + 4;
  // Eight rows that four lanes each read two words of.
  constexpr int64_t kShallow = 16;
  if (side.isFloat8)
    side.pitch = tile.depth / 4 + (tile.depth > kShallow ? 4 : 0);
  side.elements = side.pitch * (side.isDeep ? extent : tile.depth);
  side.begin = 0;
  return side;
}

Index GpuGemmEmitter::offsetOf(const Side &side, ArrayRef<unsigned> dims, ArrayRef<Index> indices) {
  Index offset = k.index(0);
  for (auto [dim, index] : llvm::zip_equal(dims, indices))
    if (side.strides[dim].value())
      offset = offset + index * side.strides[dim];
  return offset;
}

/// Position in the tile of group `n` of a thread: (outer, depth).
std::pair<Index, Index> GpuGemmEmitter::groupAt(const Side &side, int64_t n) {
  Index group = k.thread + n * tile.threads();
  int64_t inner = (side.isDeep ? tile.depth : side.tile) / side.width();
  Index major = group / inner, minor = group % inner * side.width();
  return side.isDeep ? std::pair(major, minor) : std::pair(minor, major);
}

void GpuGemmEmitter::prepareCopies(Side &side) {
  Index base = offsetOf(side, spec.batch, batchIndices);
  for (int64_t n = 0; n < copiesOf(side); ++n) {
    auto [outer, depth] = groupAt(side, n);
    // Elements of a group lie in one row of the tile if it is deep, else in four.
    for (int64_t e = 0; e < (side.isVector || side.isDeep ? 1 : 4); ++e) {
      Index at = side.first + outer + e;
      side.isInside.push_back(at < side.extent);
      side.offsets.push_back(base + offsetOf(side, side.outer, delinearize(at, sizesOf(side.outer))));
    }
  }
}

/// Starts to copy the part of the tile from `depth` of the sum on.
void GpuGemmEmitter::copyTile(const Side &side, Index depthBegin, Index stage) {
  Index target = stageOf(side, stage);
  for (int64_t n = 0; n < copiesOf(side); ++n) {
    auto [outer, depth] = groupAt(side, n);
    Index major = side.isDeep ? outer : depth, minor = side.isDeep ? depth : outer;
    Index place = major * side.pitch + (side.perWord() > 1 ? minor / side.perWord() : minor);
    place = target + place;
    for (int64_t e = 0; e < (side.isVector ? 1 : 4); ++e) {
      size_t known = side.isVector || side.isDeep ? n : 4 * n + e;
      Index at = depthBegin + depth + (side.isDeep ? e : 0);
      Index offset = side.offsets[known] + offsetOf(side, spec.sums, delinearize(at, sizesOf(spec.sums)));
      Mask isInside = side.isInside[known] & (at < numSums);
      if (!side.isWidened) {
        int64_t words = side.isVector ? side.width() / side.perWord() : 1;
        k.copyAsync(shared, place + e, side.flat, offset, words, isInside);
        continue;
      }
      auto read = [&] { return k.loadWide(side.flat, offset, 1)[0]; };
      shared.set(k.choose(isInside, read, [&] { return k.f32(0); }), place + e);
    }
  }
}

Nums GpuGemmEmitter::sumUp(int64_t count, llvm::function_ref<Nums(Index, Nums)> add) {
  Nums zeros(count, k.f32(0));
  Index zero = k.index(0), two = k.index(2);
  for (Side &side : sides)
    copyTile(side, zero, zero);
  k.commitCopies();
  Nums sums = k.loop(0, ceilDiv(numSums, tile.depth), 1, zeros, [&](Index step, Nums sums) {
    k.keepRolled(); // copies of a step in a row need registers that are not there
    Index next = step + 1, stage = step % two;
    for (Side &side : sides)
      copyTile(side, next * tile.depth, next % two);
    k.commitCopies();
    k.waitForCopies(1);
    k.barrier();
    Nums result = add(stage, sums);
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
void GpuGemmEmitter::placeLoops(ArrayRef<unsigned> dims, ArrayRef<Index> indices) {
  for (auto [dim, index] : llvm::zip_equal(dims, indices))
    loops[dim] = index;
}
Indices GpuGemmEmitter::resultIndices() {
  Indices at;
  for (AffineExpr expr : spec.resultMap.getResults())
    at.push_back(loops[cast<AffineDimExpr>(expr).getPosition()]);
  return at;
}

void GpuGemmEmitter::storeResult(const Num &x, ArrayRef<Index> at) {
  memref::StoreOp::create(k.b, k.loc, x, arguments.back(), ThreadCode::values(at));
}

Num GpuGemmEmitter::applyEpilogue(Num sum, ArrayRef<Index> at) {
  if (!spec.epilogue)
    return convert(sum, spec.result.getElementType());
  sum = convert(sum, spec.getSum().getType());
  SmallVector<Value> values;
  for (auto [n, map] : llvm::enumerate(spec.operandMaps)) {
    SmallVector<Value> indices;
    for (AffineExpr expr : map.getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      indices.push_back(dim ? at[dim.getPosition()] : k.index(cast<AffineConstantExpr>(expr).getValue()));
    }
    values.push_back(memref::LoadOp::create(k.b, k.loc, arguments[2 + n], indices));
  }
  return k.cloneScalar(*spec.epilogue, spec.getArguments(values, sum), [&](Operation &op) {
    auto index = dyn_cast<linalg::IndexOp>(op);
    return index ? at[index.getDim()].value() : Value();
  });
}

} // namespace attn
