#include "passes/kernels/gpu/Gemm.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/gpu/BlockBuilder.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

//===----------------------------------------------------------------------===//
// GpuGemmSpec
//===----------------------------------------------------------------------===//

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

static int64_t guessProduct(ArrayRef<int64_t> sizes, ArrayRef<unsigned> dims) {
  constexpr int64_t kGuess = 64, kMany = 1 << 20;
  int64_t product = 1;
  for (unsigned dim : dims)
    product = std::min(kMany, product * std::min(kMany, ShapedType::isDynamic(sizes[dim]) ? kGuess : sizes[dim]));
  return product;
}

void GpuGemmSpec::chooseTile() {
  constexpr int64_t kProcessors = 132; // of an H100; other cards have about as many
  int64_t numRows = guessProduct(sizes, rows), numColumns = guessProduct(sizes, columns);
  auto blocks = [&](const Tile &tile) {
    return llvm::divideCeil(numRows, tile.rows) * llvm::divideCeil(numColumns, tile.columns) *
           guessProduct(sizes, batch);
  };
  // A dear epilogue on 64 sums a thread takes longer to compile than it saves.
  bool isDear = epilogue && std::distance(epilogue->begin(), epilogue->end()) > 16;
  Tile large = {128, 128, 8, 8}, medium = {64, 64, 8, 4}, small = {32, 32, 4, 4};
  if (!isDear && numRows >= 96 && numColumns >= 96 && blocks(large) >= kProcessors)
    tile = large;
  else
    tile = numRows > 32 && numColumns > 32 ? medium : small;
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

namespace {

class GemmEmitter {
public:
  GemmEmitter(OpBuilder &b, Location loc, const GpuGemmSpec &spec) : k(b, loc), spec(spec), tile(spec.tile) {}

  func::FuncOp emit(StringRef symbol) {
    SmallVector<Type> types = {spec.left, spec.right};
    types.append(spec.operands.begin(), spec.operands.end());
    types.push_back(spec.result);
    func::FuncOp function = k.function(symbol, types);
    arguments = Values(function.getArguments());
    for (unsigned dim = 0; dim < spec.sizes.size(); ++dim)
      sizes.push_back(sizeOf(dim));
    numRows = product(spec.rows), numColumns = product(spec.columns), numSums = product(spec.sums);
    sides[0] = makeSide(arguments[0], spec.leftMap, spec.rows, tile.rows, tile.threadRows);
    sides[1] = makeSide(arguments[1], spec.rightMap, spec.columns, tile.columns, tile.threadColumns);
    Value rowTiles = k.ceilDiv(numRows, tile.rows), columnTiles = k.ceilDiv(numColumns, tile.columns);
    Value blocks = k.mul(k.mul(rowTiles, columnTiles), product(spec.batch));
    Values shared = k.launch(blocks, tile.threads(), {2 * sides[0].elements(tile), 2 * sides[1].elements(tile)});
    sides[0].shared = shared[0], sides[1].shared = shared[1];

    Value position = k.rem(k.block, k.mul(rowTiles, columnTiles));
    batchIndices = delinearize(k, k.div(k.block, k.mul(rowTiles, columnTiles)), sizesOf(spec.batch));
    int64_t across = tile.columns / tile.threadColumns;
    sides[0].first = k.mul(k.div(position, columnTiles), tile.rows);
    sides[1].first = k.mul(k.rem(position, columnTiles), tile.columns);
    sides[0].lane = k.div(k.thread, k.index(across)), sides[1].lane = k.rem(k.thread, k.index(across));
    for (Side &side : sides)
      prepareCopies(side);
    finish(multiply());
    return function;
  }

private:
  /// One operand of the product. A tile of it stands in shared memory as
  /// [outer][depth + 4], or [depth][outer] where the outer dimension is the
  /// contiguous one; the padding spreads the rows over the banks.
  struct Side {
    Value flat, shared, first, lane, extent;
    AffineMap map;
    ArrayRef<unsigned> outer;
    Values strides; ///< by loop; null where the operand does not have it
    int64_t tile, perThread;
    bool isDeep;    ///< contiguous along the sum
    bool isVector;  ///< in aligned groups of 4
    Values offsets; ///< of the groups (elements) that a thread copies, without the sum
    Values isInside;

    int64_t pitch(const GpuGemmSpec::Tile &t) const { return isDeep ? t.depth + 4 : tile; }
    int64_t elements(const GpuGemmSpec::Tile &t) const { return isDeep ? tile * pitch(t) : t.depth * tile; }
  };

  Value sizeOf(unsigned dim) {
    if (!ShapedType::isDynamic(spec.sizes[dim]))
      return k.index(spec.sizes[dim]);
    for (auto [argument, map] : {std::pair(arguments[0], spec.leftMap), std::pair(arguments[1], spec.rightMap)})
      if (auto n = map.getResultPosition(getAffineDimExpr(dim, map.getContext())))
        return k.b.createOrFold<memref::DimOp>(k.loc, argument, *n);
    llvm_unreachable("a loop of the result alone has no kernel");
  }
  Values sizesOf(ArrayRef<unsigned> dims) {
    return llvm::map_to_vector<6>(dims, [&](unsigned dim) { return sizes[dim]; });
  }
  Value product(ArrayRef<unsigned> dims) {
    Value result = k.index(1);
    for (unsigned dim : dims)
      result = k.mul(result, sizes[dim]);
    return result;
  }

  Side makeSide(Value buffer, AffineMap map, ArrayRef<unsigned> outer, int64_t extent, int64_t perThread) {
    Side side;
    Values strides = rowMajorStrides(k, buffer);
    side.flat = k.flatten(buffer);
    side.map = map, side.outer = outer, side.tile = extent, side.perThread = perThread;
    side.extent = product(outer);
    side.strides.resize(sizes.size());
    for (auto [n, expr] : llvm::enumerate(map.getResults()))
      side.strides[cast<AffineDimExpr>(expr).getPosition()] = strides[n];
    unsigned last = map.getNumResults() ? map.getDimPosition(map.getNumResults() - 1) : ~0u;
    bool isGroup = last != ~0u && !ShapedType::isDynamic(spec.sizes[last]) && spec.sizes[last] % 4 == 0;
    side.isDeep = outer.empty() || last != outer.back();
    side.isVector = isGroup && last == (side.isDeep ? spec.sums.back() : outer.back());
    return side;
  }

  Value offsetOf(const Side &side, ArrayRef<unsigned> dims, ArrayRef<Value> indices) {
    Value offset = k.index(0);
    for (auto [dim, index] : llvm::zip_equal(dims, indices))
      if (side.strides[dim])
        offset = k.add(offset, k.mul(index, side.strides[dim]));
    return offset;
  }

  int64_t copiesOf(const Side &side) const { return side.tile * tile.depth / 4 / tile.threads(); }
  /// Position in the tile of group `n` of a thread: (outer, depth).
  std::pair<Value, Value> groupAt(const Side &side, int64_t n) {
    Value group = k.add(k.thread, n * tile.threads());
    int64_t inner = (side.isDeep ? tile.depth : side.tile) / 4;
    Value major = k.div(group, k.index(inner)), minor = k.mul(k.rem(group, k.index(inner)), 4);
    return side.isDeep ? std::pair(major, minor) : std::pair(minor, major);
  }
  void prepareCopies(Side &side) {
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
  void copyTile(const Side &side, Value depthBegin, Value stage) {
    Value target = k.mul(stage, side.elements(tile));
    for (int64_t n = 0; n < copiesOf(side); ++n) {
      auto [outer, depth] = groupAt(side, n);
      Value place = side.isDeep ? k.add(k.mul(outer, side.pitch(tile)), depth) : k.add(k.mul(depth, side.tile), outer);
      place = k.add(target, place);
      for (int64_t e = 0; e < (side.isVector ? 1 : 4); ++e) {
        size_t known = side.isVector || side.isDeep ? n : 4 * n + e;
        Value at = k.add(k.add(depthBegin, depth), side.isDeep ? e : 0);
        Value offset = k.add(side.offsets[known], offsetOf(side, spec.sums, delinearize(k, at, sizesOf(spec.sums))));
        Value isInside = k.both(side.isInside[known], k.less(at, numSums));
        k.copyAsync(side.shared, k.add(place, e), side.flat, offset, side.isVector ? 4 : 1, isInside);
      }
    }
  }

  /// Which of the tile's rows (columns) is number `n` of a thread.
  Value placeOf(const Side &side, int64_t n) {
    int64_t lanes = side.tile / side.perThread;
    if (side.isDeep)
      return k.add(side.lane, n * lanes);
    return k.add(k.mul(side.lane, 4), n / 4 * 4 * lanes + n % 4);
  }
  /// [row or column of the thread][of 4 steps of the sum].
  SmallVector<Values> readFragment(const Side &side, Value stage, Value depth) {
    Value base = k.mul(stage, side.elements(tile));
    SmallVector<Values> fragment(side.perThread, Values(4));
    if (side.isDeep) {
      for (int64_t n = 0; n < side.perThread; ++n)
        fragment[n] = k.load4(side.shared, k.add(k.add(base, k.mul(placeOf(side, n), side.pitch(tile))), depth));
      return fragment;
    }
    for (int64_t step = 0; step < 4; ++step)
      for (int64_t n = 0; n < side.perThread; n += 4) {
        Value row = k.add(base, k.mul(k.add(depth, step), side.tile));
        Values four = k.load4(side.shared, k.add(row, placeOf(side, n)));
        for (int64_t e = 0; e < 4; ++e)
          fragment[n + e][step] = four[e];
      }
    return fragment;
  }

  Values multiply() {
    Values zeros(tile.threadRows * tile.threadColumns, k.scalar(0));
    Value zero = k.index(0), two = k.index(2);
    for (Side &side : sides)
      copyTile(side, zero, zero);
    k.commitCopies();
    Values sums = k.loop(zero, k.ceilDiv(numSums, tile.depth), 1, zeros, [&](Value step, ValueRange sums) {
      Value next = k.add(step, 1), stage = k.rem(step, two);
      for (Side &side : sides)
        copyTile(side, k.mul(next, tile.depth), k.rem(next, two));
      k.commitCopies();
      k.waitForCopies(1);
      k.barrier();
      Values result = k.loop(zero, k.index(tile.depth), 4, sums, [&](Value depth, ValueRange carried) {
        SmallVector<Values> left = readFragment(sides[0], stage, depth), right = readFragment(sides[1], stage, depth);
        Values next(carried);
        for (int64_t q = 0; q < 4; ++q)
          for (int64_t i = 0; i < tile.threadRows; ++i)
            for (int64_t j = 0; j < tile.threadColumns; ++j) {
              Value &sum = next[i * tile.threadColumns + j];
              sum = k.fma(left[i][q], right[j][q], sum);
            }
        return next;
      });
      k.barrier(); // the next step's copies go where this one has read
      return result;
    });
    k.waitForCopies(0); // none may be under way when the block ends
    return sums;
  }

  /// Epilogue and result of the thread's sums.
  void finish(const Values &sums) {
    Values loops(sizes.size());
    auto place = [&](ArrayRef<unsigned> dims, ArrayRef<Value> indices) {
      for (auto [dim, index] : llvm::zip_equal(dims, indices))
        loops[dim] = index;
    };
    place(spec.batch, batchIndices);
    SmallVector<Values> columns;
    Values isColumn;
    for (int64_t j = 0; j < tile.threadColumns; ++j) {
      Value column = k.add(sides[1].first, placeOf(sides[1], j));
      isColumn.push_back(k.less(column, numColumns));
      columns.push_back(delinearize(k, column, sizesOf(spec.columns)));
    }
    for (int64_t i = 0; i < tile.threadRows; ++i) {
      Value row = k.add(sides[0].first, placeOf(sides[0], i));
      Value isRow = k.less(row, numRows);
      Values rowIndices = delinearize(k, row, sizesOf(spec.rows));
      for (int64_t j = 0; j < tile.threadColumns; ++j)
        k.branch(k.both(isRow, isColumn[j]), [&] {
          place(spec.rows, rowIndices);
          place(spec.columns, columns[j]);
          Values at;
          for (AffineExpr expr : spec.resultMap.getResults())
            at.push_back(loops[cast<AffineDimExpr>(expr).getPosition()]);
          Value sum = applyEpilogue(sums[i * tile.threadColumns + j], at);
          memref::StoreOp::create(k.b, k.loc, sum, arguments.back(), at);
        });
    }
  }
  Value applyEpilogue(Value sum, ArrayRef<Value> at) {
    if (!spec.epilogue)
      return sum;
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

  BlockBuilder k;
  const GpuGemmSpec &spec;
  const GpuGemmSpec::Tile tile;
  Values arguments, sizes, batchIndices;
  Value numRows, numColumns, numSums;
  Side sides[2];
};

} // namespace

func::FuncOp buildGpuGemm(OpBuilder &builder, Location loc, StringRef symbol, const GpuGemmSpec &spec) {
  OpBuilder::InsertionGuard guard(builder);
  return GemmEmitter(builder, loc, spec).emit(symbol);
}

} // namespace attn
