#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// Elements moved by block, by row or to another size, none of them changed.

using namespace mlir;

namespace attn::onnx {
namespace {

//===----------------------------------------------------------------------===//
// DepthToSpace, SpaceToDepth
//===----------------------------------------------------------------------===//

struct Blocks {
  int64_t size;
  bool columnsFirst; ///< CRD: the channel is the outer part of the depth
};

FailureOr<Blocks> readBlocks(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  if (n.input(0).rank() != 4)
    return n.error() << "expects an input of rank 4, has rank " << n.input(0).rank();
  int64_t size = n.intAttr("blocksize", 0);
  if (size < 1 || size > (1 << 20))
    return n.error() << "expects a blocksize in [1, 1048576], has " << size;
  std::string mode = n.stringAttr("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return n.error() << "mode '" << mode << "' is none of DCR and CRD";
  return Blocks{size, mode == "CRD"};
}

/// [from] seen as `apart`, its dimensions in another order, seen as `shape`.
LogicalResult setShuffled(Node &n, ArrayRef<Expr> apart, ArrayRef<int64_t> order, ArrayRef<Expr> shape) {
  FailureOr<Tensor> view = n.reshape(n.input(0), apart);
  if (failed(view))
    return failure();
  FailureOr<Tensor> result = n.reshape(n.transpose(*view, order), shape);
  if (failed(result))
    return failure();
  n.setOutput(0, *result);
  return success();
}

LogicalResult importDepthToSpace(Node &n) {
  FailureOr<Blocks> blocks = readBlocks(n);
  if (failed(blocks))
    return failure();
  ArrayRef<Expr> x = n.input(0).shape;
  Expr size(blocks->size), depth = n.symbols().floorDiv(x[1], blocks->size * blocks->size);
  if (failed(n.requireEqual(depth * size * size, x[1], "blocks cover {0} of {1} channels")))
    return failure();
  SmallVector<Expr> shape{x[0], depth, x[2] * size, x[3] * size};
  if (blocks->columnsFirst)
    return setShuffled(n, {x[0], depth, size, size, x[2], x[3]}, {0, 1, 4, 2, 5, 3}, shape);
  return setShuffled(n, {x[0], size, size, depth, x[2], x[3]}, {0, 3, 4, 1, 5, 2}, shape);
}

LogicalResult importSpaceToDepth(Node &n) {
  FailureOr<Blocks> blocks = readBlocks(n);
  if (failed(blocks))
    return failure();
  ArrayRef<Expr> x = n.input(0).shape;
  Expr size(blocks->size), rows = n.symbols().floorDiv(x[2], size), columns = n.symbols().floorDiv(x[3], size);
  if (failed(n.requireEqual(rows * size, x[2], "blocks cover {0} of {1} rows")) ||
      failed(n.requireEqual(columns * size, x[3], "blocks cover {0} of {1} columns")))
    return failure();
  SmallVector<Expr> apart{x[0], x[1], rows, size, columns, size}, shape{x[0], x[1] * size * size, rows, columns};
  if (blocks->columnsFirst)
    return setShuffled(n, apart, {0, 1, 3, 5, 2, 4}, shape);
  return setShuffled(n, apart, {0, 3, 5, 1, 2, 4}, shape);
}

//===----------------------------------------------------------------------===//
// ReverseSequence
//===----------------------------------------------------------------------===//

LogicalResult importReverseSequence(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  const Tensor &x = n.input(0), &lengths = n.input(1);
  FailureOr<int64_t> time = n.axis(n.intAttr("time_axis", 0), x.rank());
  FailureOr<int64_t> batch = n.axis(n.intAttr("batch_axis", 1), x.rank());
  if (failed(time) || failed(batch))
    return failure();
  if (*time == *batch)
    return n.error() << "time_axis and batch_axis are both " << *time;
  if (lengths.dtype != DType::I64 || lengths.rank() != 1)
    return n.error() << "expects int64 lengths of rank 1, has " << dtypeName(lengths.dtype) << " of rank "
                     << lengths.rank();
  if (failed(n.requireEqual(lengths.shape[0], x.shape[*batch], "there are {0} lengths for a batch of {1}")))
    return failure();
  Value source = n.value(x), counts = n.value(lengths);
  Value size = n.symbols().materialize(n.builder(), n.loc(), x.shape[*time]);
  Value end = n.symbols().materialize(n.builder(), n.loc(), x.shape[*time] + Expr(1));
  Value result = n.generate(x.dtype, x.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num given = load(b, loc, counts, DType::I64, at[*batch]);
    Value checked = arith::IndexCastOp::create(b, loc, b.getIndexType(), given.value());
    checked = CheckIndexOp::create(b, loc, b.getIndexType(), checked, end, n.describe() + ": sequence_lens",
                                   /*nonnegative=*/true);
    Num length = fromIndex(b, loc, DType::I64, checked), t = fromIndex(b, loc, DType::I64, at[*time]);
    SmallVector<Value> from(at);
    Num mirrored = select(t < length, length - t - length.constant(1), t);
    from[*time] = checkedIndex(n, b, loc, mirrored.value(), size);
    return tensor::ExtractOp::create(b, loc, source, from);
  });
  n.setOutput(0, result, x.dtype, x.shape);
  return success();
}

//===----------------------------------------------------------------------===//
// CenterCropPad
//===----------------------------------------------------------------------===//

LogicalResult importCenterCropPad(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  Tensor t = n.input(0);
  SmallVector<int64_t> axes = llvm::to_vector(llvm::seq<int64_t>(0, t.rank()));
  if (std::optional<SmallVector<int64_t>> given = n.intsAttr("axes"))
    axes = *given;
  std::optional<SmallVector<Expr>> sizes = exprsOfLength(n, 1, axes.size());
  if (!sizes)
    return n.error() << "expects " << axes.size() << " sizes, one an axis";
  Symbols &symbols = n.symbols();
  SmallVector<Expr, 4> shape(t.shape), before(t.rank(), Expr(0));
  for (auto [given, size] : llvm::zip_equal(axes, *sizes)) {
    FailureOr<int64_t> axis = n.axis(given, t.rank());
    if (failed(axis) || failed(n.requireAtMost(0, size, "asks for a dimension of size {1}")))
      return failure();
    Expr have = t.shape[*axis], kept = symbols.min(have, size);
    t = n.slice(t, *axis, symbols.floorDiv(symbols.max(0, have - size), 2), kept);
    shape[*axis] = size;
    before[*axis] = symbols.floorDiv(symbols.max(0, size - have), 2);
  }
  if (llvm::equal(shape, t.shape)) {
    n.setOutput(0, t);
    return success();
  }
  OpBuilder &b = n.builder();
  Value background = n.filled(t.dtype, shape, n.constant(t.dtype, 0));
  SmallVector<OpFoldResult> offsets, extents, strides(t.rank(), b.getIndexAttr(1));
  for (int64_t d = 0; d < t.rank(); ++d) {
    offsets.push_back(symbols.size(b, n.loc(), before[d]));
    extents.push_back(symbols.size(b, n.loc(), t.shape[d]));
  }
  Value result = tensor::InsertSliceOp::create(b, n.loc(), n.value(t), background, offsets, extents, strides);
  n.setOutput(0, result, t.dtype, shape);
  return success();
}

} // namespace

void registerRearrangementOps(OpRegistry &registry) {
  registry.add("DepthToSpace", {1, 11, 13, 28}, importDepthToSpace);
  registry.add("SpaceToDepth", {1, 13, 28}, importSpaceToDepth);
  registry.add("ReverseSequence", {10, 28}, importReverseSequence);
  registry.add("CenterCropPad", {18}, importCenterCropPad);
}

} // namespace attn::onnx
