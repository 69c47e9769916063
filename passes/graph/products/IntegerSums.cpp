#include "passes/graph/products/IntegerSums.h"

#include "dialects/attn/IntegerProductOp.h"
#include "passes/graph/Formulas.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {
namespace {

/// u8 as s8, or the other way around: each less 128, and more 128.
Value flipped(OpBuilder &b, Location loc, Value bytes) {
  auto type = cast<RankedTensorType>(bytes.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, bytes);
  AffineMap map = b.getMultiDimIdentityMap(type.getRank());
  return elementwise(b, loc, sizes, type.getElementType(), bytes, map,
                     formula([](ArrayRef<Num> x) { return x[0] ^ constantLike(x[0], -128); }));
}

/// A zero point in rank 0, or 1 where it goes by column.
Value asRank(OpBuilder &b, Location loc, const LoopRead &read) {
  auto type = cast<RankedTensorType>(read.tensor.getType());
  bool isByColumn = llvm::any_of(read.map.getResults(), llvm::IsaPred<AffineDimExpr>);
  if (type.getRank() == (isByColumn ? 1 : 0))
    return read.tensor;
  // Its other dimensions are of size 1.
  SmallVector<ReassociationIndices> groups;
  if (isByColumn)
    groups.push_back(llvm::to_vector_of<int64_t, 2>(llvm::seq<int64_t>(0, type.getRank())));
  return tensor::CollapseShapeOp::create(b, loc, read.tensor, groups);
}

Value byteConstant(OpBuilder &b, Location loc, int64_t value) {
  auto type = RankedTensorType::get({}, b.getI8Type());
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, APInt(8, value & 0xff)));
}

using Loops = SmallVector<unsigned>;

/// `read` with its dimensions in the order of `loops`, of these sizes: a copy, where they do not stand so already.
Value arranged(OpBuilder &b, Location loc, const LoopRead &read, const Loops &loops, ArrayRef<OpFoldResult> loopSizes) {
  MLIRContext *context = b.getContext();
  auto isPlace = [&](auto item) {
    auto [n, expr] = item;
    auto dim = dyn_cast<AffineDimExpr>(expr);
    return dim && n < loops.size() && dim.getPosition() == loops[n];
  };
  if (read.map.getNumResults() == loops.size() && llvm::all_of(llvm::enumerate(read.map.getResults()), isPlace))
    return read.tensor;
  SmallVector<AffineExpr> places(read.map.getNumDims(), getAffineConstantExpr(0, context));
  SmallVector<OpFoldResult> sizes;
  for (auto [n, loop] : llvm::enumerate(loops)) {
    places[loop] = getAffineDimExpr(n, context);
    sizes.push_back(loopSizes[loop]);
  }
  AffineMap map = read.map.replaceDimsAndSymbols(places, {}, loops.size(), 0);
  return elementwise(b, loc, sizes, getElementTypeOrSelf(read.tensor), read.tensor, map,
                     [](OpBuilder &, Location, ValueRange args) { return args[0]; });
}

/// How often each loop of `op` runs.
SmallVector<OpFoldResult> sizesOfLoops(OpBuilder &b, linalg::LinalgOp op) {
  SmallVector<OpFoldResult> sizes(op.getNumLoops());
  for (OpOperand &operand : op->getOpOperands())
    for (auto [n, expr] : llvm::enumerate(op.getMatchingIndexingMap(&operand).getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        if (OpFoldResult &size = sizes[dim.getPosition()]; !size || isa<Value>(size))
          size = tensor::getMixedSize(b, op.getLoc(), operand.get(), n);
  return sizes;
}

} // namespace

Value unsignedBytes(OpBuilder &b, Location loc, const QuantizedOperand &operand) {
  return operand.isUnsigned ? operand.stored.tensor : flipped(b, loc, operand.stored.tensor);
}

Value unsignedZero(OpBuilder &b, Location loc, const QuantizedOperand &operand) {
  if (operand.zero && operand.zero->read) {
    Value given = asRank(b, loc, *operand.zero->read);
    return operand.isUnsigned ? given : flipped(b, loc, given);
  }
  int64_t number = *constantZero(operand) + (operand.isUnsigned ? 0 : 128);
  return number ? byteConstant(b, loc, number) : Value();
}

Value storedZero(OpBuilder &b, Location loc, const QuantizedOperand &operand) {
  if (!operand.zero)
    return {};
  return operand.zero->read ? asRank(b, loc, *operand.zero->read) : byteConstant(b, loc, *constantZero(operand));
}

Value sumPair(OpBuilder &b, const QuantizedProduct &product) {
  linalg::LinalgOp op = product.op;
  Location loc = op.getLoc();
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  AffineMap left, right;
  for (OpOperand *input : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(input);
    (map.isFunctionOfDim(product.loops.column) ? right : left) = map;
  }
  // Batches in front, then rows, in the order of the result.
  Loops batch, rows;
  for (AffineExpr expr : result.getResults()) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    if (loop != product.loops.column)
      (right.isFunctionOfDim(loop) ? batch : rows).push_back(loop);
  }
  SmallVector<OpFoldResult> sizes = sizesOfLoops(b, op);
  Loops order = batch;
  llvm::append_range(order, rows);
  QuantizedOperand lhs = product.lhs;
  order.push_back(product.loops.depth);
  lhs.stored.tensor = arranged(b, loc, lhs.stored, order, sizes);
  order.back() = product.loops.column;
  Loops rhsOrder = batch, turned = batch;
  rhsOrder.append({product.loops.depth, product.loops.column});
  turned.append({product.loops.column, product.loops.depth});
  ArrayRef<AffineExpr> read = product.rhs.stored.map.getResults();
  bool isTransposed = !read.empty() && read.back() == b.getAffineDimExpr(product.loops.depth);
  Value rhs = arranged(b, loc, product.rhs.stored, isTransposed ? turned : rhsOrder, sizes);

  SmallVector<int64_t> ranges = op.getStaticLoopRanges(), shape, permutation;
  for (unsigned loop : order)
    shape.push_back(ranges[loop]);
  for (AffineExpr expr : result.getResults())
    permutation.push_back(llvm::find(order, cast<AffineDimExpr>(expr).getPosition()) - order.begin());
  Value sums = IntegerProductOp::create(b, loc, RankedTensorType::get(shape, b.getI32Type()),
                                        unsignedBytes(b, loc, lhs), unsignedZero(b, loc, lhs), rhs,
                                        storedZero(b, loc, product.rhs), isTransposed, product.rhs.isUnsigned);
  if (!isIdentityPermutation(permutation))
    sums = transposed(b, loc, sums, permutation);
  Type type = cast<RankedTensorType>(op->getResult(0).getType()).clone(b.getI32Type());
  return castTo(b, loc, sums, type);
}

} // namespace attn
