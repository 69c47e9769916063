#include "frontends/onnx/ops/Rotary.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Loops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn::onnx {

FailureOr<Tensor> gatherRows(Node &n, const Tensor &t, const Tensor &ids) {
  if (t.rank() != 2 || ids.rank() != 2)
    return n.error() << "expects a table and ids of rank 2, has ranks " << t.rank() << " and " << ids.rank();
  OpBuilder &b = n.builder();
  Tensor out;
  out.dtype = t.dtype;
  out.shape.append({ids.shape[0], ids.shape[1], t.shape[1]});
  Value table = n.value(t), rows = n.symbols().materialize(b, n.loc(), t.shape[0]);
  Value init = n.empty(out.dtype, out.shape);
  AffineMap identity = b.getMultiDimIdentityMap(3);
  AffineMap maps[] = {identity.getMajorSubMap(2), identity};
  SmallVector<utils::IteratorType> iterators(3, utils::IteratorType::parallel);
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Value row = placeIn(n, b, loc, v[0], rows);
    Value element = tensor::ExtractOp::create(b, loc, table, ValueRange{row, linalg::IndexOp::create(b, loc, 2)});
    linalg::YieldOp::create(b, loc, element);
  };
  out.value =
      linalg::GenericOp::create(b, n.loc(), init.getType(), n.value(ids), init, maps, iterators, body).getResult(0);
  return out;
}

FailureOr<Tensor> alignAngles(Node &n, const Tensor &angles, const Rotated &r) {
  if (angles.rank() != 3)
    return n.error() << "expects a cache of rank 3 without position ids, has rank " << angles.rank();
  if (failed(n.requireEqual(angles.shape.back(), r.pairs, "the cache has {0} columns for {1} pairs")))
    return failure();
  SmallVector<Expr, 4> shape(angles.shape);
  shape.insert(shape.begin() + (r.sequence == 1 ? 2 : 1), Expr(1));
  return n.reshape(angles, shape);
}

namespace {

/// The cosines or sines for each pair, broadcast over the heads.
FailureOr<Tensor> readAngles(Node &n, size_t cache, const Rotated &r) {
  FailureOr<Tensor> angles = n.input(cache);
  if (angles->dtype != r.x.dtype)
    return n.error() << "expects a cache of type " << dtypeName(r.x.dtype) << ", has " << dtypeName(angles->dtype);
  if (n.hasInput(3))
    angles = gatherRows(n, *angles, n.input(3));
  if (failed(angles))
    return failure();
  return alignAngles(n, *angles, r);
}

FailureOr<Rotated> readRotated(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)))
    return failure();
  Rotated r{n.input(0), 2, {}, n.intAttr("interleaved", 0) != 0};
  if (r.x.rank() == 3) {
    int64_t heads = n.intAttr("num_heads", 0);
    if (heads < 1)
      return n.error() << "expects num_heads of at least 1 for an input of rank 3, has " << heads;
    Expr width = n.symbols().floorDiv(r.x.shape[2], heads);
    if (failed(n.requireEqual(width * Expr(heads), r.x.shape[2], "heads cover {0} of {1} elements")))
      return failure();
    FailureOr<Tensor> view = n.reshape(r.x, {r.x.shape[0], r.x.shape[1], Expr(heads), width});
    if (failed(view))
      return failure();
    r.x = *view;
    r.sequence = 1;
  } else if (r.x.rank() != 4) {
    return n.error() << "expects an input of rank 3 or 4, has rank " << r.x.rank();
  }
  int64_t rotated = n.intAttr("rotary_embedding_dim", 0);
  if (rotated < 0 || rotated % 2)
    return n.error() << "expects an even rotary_embedding_dim of at least 0, has " << rotated;
  Expr width = rotated ? Expr(rotated) : r.x.shape[3];
  if (failed(n.requireAtMost(width, r.x.shape[3], "{0} elements are rotated, a head has {1}")))
    return failure();
  r.pairs = n.symbols().floorDiv(width, 2);
  if (failed(n.requireEqual(r.pairs * Expr(2), width, "pairs cover {0} of {1} elements")))
    return failure();
  return r;
}

} // namespace

FailureOr<Tensor> rotated(Node &n, const Rotated &r, const Tensor &cosine, const Tensor &sine) {
  OpBuilder &b = n.builder();
  SmallVector<OpFoldResult> sizes, strides(4, b.getIndexAttr(1));
  for (const Expr &dim : r.x.shape)
    sizes.push_back(n.symbols().size(b, n.loc(), dim));
  sizes[3] = n.symbols().size(b, n.loc(), r.pairs);
  strides[3] = b.getIndexAttr(r.interleaved ? 2 : 1);
  SmallVector<OpFoldResult> offsets[2] = {SmallVector<OpFoldResult>(4, b.getIndexAttr(0)),
                                          SmallVector<OpFoldResult>(4, b.getIndexAttr(0))};
  offsets[1][3] = r.interleaved ? OpFoldResult(b.getIndexAttr(1)) : sizes[3];
  // What is not rotated is what stays of x.
  Value x = n.value(r.x), y = x;
  Tensor half[2];
  for (int i : {0, 1}) {
    half[i].dtype = r.x.dtype;
    half[i].shape = r.x.shape;
    half[i].shape[3] = r.pairs;
    Value v =
        tensor::ExtractSliceOp::create(b, n.loc(), n.type(half[i].dtype, half[i].shape), x, offsets[i], sizes, strides);
    half[i].value = v;
  }
  if (n.symbols().isEqual(r.pairs * Expr(2), r.x.shape[3]).value_or(false))
    y = n.empty(r.x.dtype, r.x.shape);
  for (int i : {0, 1}) {
    FailureOr<Tensor> turned = formula(n, r.x.dtype, {half[0], half[1], cosine, sine}, [&](ArrayRef<Num> v) {
      return i == 0 ? v[0] * v[2] - v[1] * v[3] : v[0] * v[3] + v[1] * v[2];
    });
    if (failed(turned))
      return failure();
    // Angles may say a size that x leaves open, but none of their own.
    for (size_t d = 0; d < 4; ++d) {
      if (failed(n.requireEqual(turned->shape[d], half[i].shape[d], "angles for {0} where the input has {1}")))
        return failure();
      sizes[d] = n.symbols().size(b, n.loc(), turned->shape[d]);
    }
    y = tensor::InsertSliceOp::create(b, n.loc(), n.value(*turned), y, offsets[i], sizes, strides);
  }
  Tensor out;
  out.dtype = r.x.dtype;
  out.shape = r.x.shape;
  out.value = y;
  return out;
}

namespace {

LogicalResult importRotaryEmbedding(Node &n) {
  FailureOr<Rotated> r = readRotated(n);
  if (failed(r))
    return failure();
  FailureOr<Tensor> cosine = readAngles(n, 1, *r), sine = readAngles(n, 2, *r);
  if (failed(cosine) || failed(sine))
    return failure();
  FailureOr<Tensor> out = rotated(n, *r, *cosine, *sine);
  if (failed(out))
    return failure();
  FailureOr<Tensor> result = n.reshape(*out, n.input(0).shape);
  if (failed(result))
    return failure();
  n.setOutput(0, *result);
  return success();
}

} // namespace

void registerRotaryOps(OpRegistry &registry) { registry.add("RotaryEmbedding", {23}, importRotaryEmbedding); }

} // namespace attn::onnx
