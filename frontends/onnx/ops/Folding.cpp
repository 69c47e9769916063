#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "frontends/onnx/ops/Taps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// What goes back from windows to the image: Col2Im and MaxUnpool.

using namespace mlir;

namespace attn::onnx {
namespace {

/// The attribute, of `size` numbers of at least `least`; `fallback` without it.
FailureOr<SmallVector<int64_t>> sizedInts(Node &n, StringRef name, size_t size, int64_t least, int64_t fallback) {
  SmallVector<int64_t> values = n.intsAttr(name).value_or(SmallVector<int64_t>(size, fallback));
  if (values.size() != size)
    return n.error() << "expects " << size << " " << name << ", has " << values.size();
  for (int64_t value : values)
    if (value < least || value > (int64_t(1) << 31))
      return n.error() << "expects " << name << " from " << least << " to 2^31, has " << value;
  return values;
}

//===----------------------------------------------------------------------===//
// Col2Im
//===----------------------------------------------------------------------===//

struct Columns {
  SmallVector<Expr> image, block, positions; // one entry a spatial dimension
  SmallVector<int64_t> strides, pads, dilations;
  Expr channels;
  size_t rank() const { return image.size(); }
};

FailureOr<Columns> readColumns(Node &n) {
  if (failed(expectInputs(n, 3)))
    return failure();
  const Tensor &x = n.input(0);
  std::optional<int64_t> spatial = n.declaredRank();
  if (spatial)
    *spatial -= 2;
  std::optional<SmallVector<Expr>> image = shapeExprs(n, 1, spatial);
  if (image) // as long as the other
    spatial = image->size();
  std::optional<SmallVector<Expr>> block = shapeExprs(n, 2, spatial);
  if (!image || !block)
    return n.unsupported() << "a shape whose length is not known at import";
  if (x.dtype == DType::Bool || isNarrow(x.dtype))
    return n.error() << "expects numbers, has " << dtypeName(x.dtype);
  if (x.rank() != 3 || image->empty() || image->size() != block->size())
    return n.error() << "expects an input of rank 3, and image_shape and block_shape of one length, has rank "
                     << x.rank() << ", " << image->size() << " and " << block->size();
  Columns c{*image, *block, {}, {}, {}, {}, {}};
  FailureOr<SmallVector<int64_t>> strides = sizedInts(n, "strides", c.rank(), 1, 1);
  FailureOr<SmallVector<int64_t>> dilations = sizedInts(n, "dilations", c.rank(), 1, 1);
  FailureOr<SmallVector<int64_t>> pads = sizedInts(n, "pads", 2 * c.rank(), 0, 0);
  if (failed(strides) || failed(dilations) || failed(pads))
    return failure();
  c.strides = *strides, c.dilations = *dilations, c.pads = *pads;
  Expr area = 1, positions = 1;
  for (size_t d = 0; d < c.rank(); ++d) {
    Expr reach = (c.block[d] - Expr(1)) * Expr(c.dilations[d]) + Expr(1);
    Expr room = c.image[d] + Expr(c.pads[d] + c.pads[d + c.rank()]) - reach;
    if (failed(n.requireAtMost(1, c.block[d], "a block has size {1}")) ||
        failed(n.requireAtMost(1, c.image[d], "the image has size {1}")) ||
        failed(n.requireAtMost(0, room, "a block reaches {1} beyond the image")))
      return failure();
    c.positions.push_back(n.symbols().floorDiv(room, c.strides[d]) + Expr(1));
    area = area * c.block[d];
    positions = positions * c.positions.back();
  }
  c.channels = n.symbols().floorDiv(x.shape[1], area);
  if (failed(n.requireEqual(c.channels * area, x.shape[1], "blocks cover {0} of {1} rows")) ||
      failed(n.requireEqual(positions, x.shape[2], "there are {0} blocks, the input has {1} columns")))
    return failure();
  return c;
}

/// One loop an image place and one a place in the block: adds the column where the block lies so that they meet.
LogicalResult importCol2Im(Node &n) {
  FailureOr<Columns> c = readColumns(n);
  if (failed(c))
    return failure();
  const Tensor &x = n.input(0);
  OpBuilder &b = n.builder();
  size_t r = c->rank(), loops = 2 + 2 * r;
  SmallVector<Expr, 4> shape{x.shape[0], c->channels};
  llvm::append_range(shape, c->image);
  DType sum = computeDType(x.dtype);
  SmallVector<AffineExpr> place, inBlock;
  for (size_t d = 0; d < loops; ++d)
    (d < 2 + r ? place : inBlock).push_back(b.getAffineDimExpr(d));
  AffineMap maps[] = {AffineMap::get(loops, 0, inBlock, b.getContext()),
                      AffineMap::get(loops, 0, place, b.getContext())};
  SmallVector<utils::IteratorType> iterators(loops, utils::IteratorType::parallel);
  std::fill(iterators.begin() + 2 + r, iterators.end(), utils::IteratorType::reduction);
  Value source = n.value(x);
  SmallVector<Value> blocks = sizeValues(n, c->block), positions = sizeValues(n, c->positions);
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    auto at = [&](size_t d) { return toInteger(b, loc, linalg::IndexOp::create(b, loc, d)); };
    Num row = at(1), column = row.constant(0), hit = constantNum(b, loc, DType::Bool, int64_t(1));
    for (size_t d = 0; d < r; ++d) {
      Num offset = at(2 + r + d), count = toInteger(b, loc, positions[d]), stride = row.constant(c->strides[d]);
      Num start = at(2 + d) + row.constant(c->pads[d]) - offset * row.constant(c->dilations[d]);
      Num position = start / stride;
      hit = hit & (start >= row.constant(0)) & (position * stride == start) & (position < count);
      row = row * toInteger(b, loc, blocks[d]) + offset;
      column = column * count + position;
    }
    SmallVector<Value> from{linalg::IndexOp::create(b, loc, 0), toIndex(row),
                            toIndex(select(hit, column, column.constant(0)))};
    Num element = convert(load(b, loc, source, x.dtype, from), sum);
    linalg::YieldOp::create(b, loc, (Num(b, loc, sum, v[1]) + select(hit, element, element.constant(0))).value());
  };
  Value init = n.filled(sum, shape, n.constant(sum, 0)), window = n.empty(DType::U8, c->block);
  Tensor y;
  y.dtype = sum;
  y.shape = shape;
  y.value = linalg::GenericOp::create(b, n.loc(), init.getType(), window, init, maps, iterators, body).getResult(0);
  n.setOutput(0, n.cast(y, x.dtype));
  return success();
}

//===----------------------------------------------------------------------===//
// MaxUnpool
//===----------------------------------------------------------------------===//

/// The shape that the pooling had, as far as the attributes say.
FailureOr<SmallVector<Expr, 4>> pooledShape(Node &n) {
  const Tensor &x = n.input(0);
  if (x.rank() < 3)
    return n.error() << "expects X of rank 3 or more, has rank " << x.rank();
  size_t r = x.rank() - 2;
  FailureOr<SmallVector<int64_t>> kernel = sizedInts(n, "kernel_shape", r, 1, 0);
  FailureOr<SmallVector<int64_t>> strides = sizedInts(n, "strides", r, 1, 1), pads = sizedInts(n, "pads", 2 * r, 0, 0);
  if (failed(kernel) || failed(strides) || failed(pads))
    return failure();
  SmallVector<Expr, 4> shape{x.shape[0], x.shape[1]};
  for (size_t d = 0; d < r; ++d) {
    Expr size = (x.shape[d + 2] - Expr(1)) * Expr((*strides)[d]) + Expr((*kernel)[d] - (*pads)[d] - (*pads)[d + r]);
    if (failed(n.requireAtMost(0, size, "makes a dimension of size {1}")))
      return failure();
    shape.push_back(size);
  }
  return shape;
}

/// `y` in the corner of zeros of shape output_shape.
FailureOr<Tensor> inCorner(Node &n, const Tensor &y) {
  std::optional<SmallVector<Expr>> asked = shapeExprs(n, 2, y.rank());
  if (!asked)
    return n.unsupported() << "an output_shape whose length is not known at import";
  if (asked->size() != y.shape.size())
    return n.error() << "expects an output_shape of " << y.shape.size() << " numbers";
  OpBuilder &b = n.builder();
  SmallVector<OpFoldResult> sizes, offsets(y.rank(), b.getIndexAttr(0)), strides(y.rank(), b.getIndexAttr(1));
  for (auto [own, size] : llvm::zip_equal(y.shape, *asked)) {
    if (failed(n.requireAtMost(own, size, "what was pooled has size {0}, output_shape says {1}")))
      return failure();
    sizes.push_back(n.symbols().size(b, n.loc(), own));
  }
  Tensor out = y;
  out.shape.assign(asked->begin(), asked->end());
  Value zeros = n.filled(y.dtype, out.shape, n.constant(y.dtype, 0));
  out.value = tensor::InsertSliceOp::create(b, n.loc(), n.value(y), zeros, offsets, sizes, strides).getResult();
  return out;
}

LogicalResult importMaxUnpool(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0), &indices = n.input(1);
  if (indices.dtype != DType::I64 || indices.rank() != x.rank())
    return n.error() << "expects int64 indices of rank " << x.rank() << ", has " << dtypeName(indices.dtype)
                     << " of rank " << indices.rank();
  for (auto [own, size] : llvm::zip_equal(indices.shape, x.shape))
    if (failed(n.requireEqual(own, size, "the indices have size {0}, X has {1}")))
      return failure();
  FailureOr<SmallVector<Expr, 4>> shape = pooledShape(n);
  if (failed(shape))
    return failure();
  Expr count = 1, total = 1;
  for (auto [size, pooled] : llvm::zip_equal(x.shape, *shape)) {
    count = count * size;
    total = total * pooled;
  }
  FailureOr<Tensor> from = n.reshape(x, count), places = n.reshape(indices, count);
  if (failed(from) || failed(places))
    return failure();
  OpBuilder &b = n.builder();
  Value values = n.value(*from), positions = n.value(*places);
  Value limit = n.symbols().materialize(b, n.loc(), total), zeros = n.filled(x.dtype, total, n.constant(x.dtype, 0));
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Value index = checkedIndex(n, b, loc, load(b, loc, positions, DType::I64, at).value(), limit);
    return {store(b, loc, load(b, loc, values, x.dtype, at), carried[0], index)};
  };
  Tensor flat;
  flat.dtype = x.dtype;
  flat.shape.push_back(total);
  flat.value = sequential(b, n.loc(), n.symbols().materialize(b, n.loc(), count), zeros, body)[0];
  FailureOr<Tensor> y = n.reshape(flat, *shape);
  if (succeeded(y) && n.hasInput(2))
    y = inCorner(n, *y);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerFoldingOps(OpRegistry &registry) {
  registry.add("Col2Im", {18}, importCol2Im);
  registry.add("MaxUnpool", {9, 11, 22}, importMaxUnpool);
}

} // namespace attn::onnx
