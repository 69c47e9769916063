#include "passes/lowering/choose/Epilogue.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {

ReassociationIndices dimRange(int64_t first, int64_t end) {
  return llvm::to_vector_of<int64_t, 2>(llvm::seq(first, end));
}

int64_t countElements(RankedTensorType type, unsigned first, unsigned count) {
  ArrayRef<int64_t> sizes = type.getShape().slice(first, count);
  return ShapedType::isDynamicShape(sizes) ? ShapedType::kDynamic : ShapedType::getNumElements(sizes);
}

OpFoldResult multiplySizes(OpBuilder &b, Location loc, ArrayRef<OpFoldResult> sizes) {
  int64_t constant = 1;
  Value product;
  for (OpFoldResult size : sizes) {
    if (std::optional<int64_t> number = getConstantIntValue(size)) {
      constant *= *number;
      continue;
    }
    Value next = cast<Value>(size);
    product = product ? arith::MulIOp::create(b, loc, product, next).getResult() : next;
  }
  if (!product)
    return b.getIndexAttr(constant);
  if (constant != 1)
    product = arith::MulIOp::create(b, loc, product, arith::ConstantIndexOp::create(b, loc, constant));
  return product;
}

Value ceilDivide(OpBuilder &b, Location loc, OpFoldResult size, int64_t step) {
  Value dividend = getValueOrCreateConstantIndexOp(b, loc, size),
        divisor = arith::ConstantIndexOp::create(b, loc, step);
  return arith::CeilDivUIOp::create(b, loc, dividend, divisor);
}

Value toMatrix(OpBuilder &b, Location loc, Value value, unsigned leading) {
  auto type = cast<RankedTensorType>(value.getType());
  unsigned rank = type.getRank();
  if (leading == 0) {
    if (rank > 1)
      value = tensor::CollapseShapeOp::create(b, loc, value, ArrayRef{dimRange(0, rank)});
    auto row = RankedTensorType::get({1, countElements(type, 0, rank)}, type.getElementType());
    return tensor::ExpandShapeOp::create(b, loc, row, value, ArrayRef<ReassociationIndices>{{0, 1}});
  }
  if (leading == 1 && rank == 2)
    return value;
  SmallVector<ReassociationIndices> groups = {dimRange(0, leading), dimRange(leading, rank)};
  return tensor::CollapseShapeOp::create(b, loc, value, groups);
}

Value toCube(OpBuilder &b, Location loc, Value value, unsigned batch, unsigned rows, ArrayRef<OpFoldResult> sizes) {
  auto type = cast<RankedTensorType>(value.getType());
  unsigned rank = type.getRank();
  if (batch == 0) {
    auto cube = RankedTensorType::get({1, countElements(type, 0, rows), countElements(type, rows, rank - rows)},
                                      type.getElementType());
    return tensor::ExpandShapeOp::create(b, loc, cube, toMatrix(b, loc, value, rows),
                                         ArrayRef<ReassociationIndices>{{0, 1}, {2}}, sizes);
  }
  if (rank == 3)
    return value;
  return tensor::CollapseShapeOp::create(
      b, loc, value,
      ArrayRef<ReassociationIndices>{dimRange(0, batch), dimRange(batch, batch + rows), dimRange(batch + rows, rank)});
}

Value fromMatrix(OpBuilder &b, Location loc, Value matrix, RankedTensorType type, ArrayRef<OpFoldResult> sizes,
                 unsigned leading) {
  Type element = type.getElementType();
  unsigned rank = type.getRank();
  // The result may know sizes that the matrix does not.
  if (leading)
    matrix = castTo(b, loc, matrix,
                    RankedTensorType::get(
                        {countElements(type, 0, leading), countElements(type, leading, rank - leading)}, element));
  if (leading == 0) {
    matrix = tensor::CollapseShapeOp::create(b, loc, matrix, ArrayRef{dimRange(0, 2)});
    matrix = castTo(b, loc, matrix, RankedTensorType::get({countElements(type, 0, rank)}, element));
    if (rank > 1)
      matrix = tensor::ExpandShapeOp::create(b, loc, type, matrix, ArrayRef{dimRange(0, rank)}, sizes);
  } else if (rank > 2) {
    matrix = tensor::ExpandShapeOp::create(b, loc, type, matrix,
                                           ArrayRef{dimRange(0, leading), dimRange(leading, rank)}, sizes);
  }
  return matrix;
}

Value flattenOperand(OpBuilder &b, Location loc, Value value, EpilogueOperand kind, unsigned rows) {
  if (kind == EpilogueOperand::Full)
    return toMatrix(b, loc, value, rows);
  int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
  if (rank == (kind == EpilogueOperand::Scalar ? 0 : 1))
    return value;
  SmallVector<ReassociationIndices> groups;
  if (kind != EpilogueOperand::Scalar)
    groups.push_back(dimRange(0, rank));
  return tensor::CollapseShapeOp::create(b, loc, value, groups);
}

/// How `map`, from the loops of an elementwise op whose result has `rows`
/// leading and then `columns` dimensions, reads an operand.
static std::optional<EpilogueOperand> classify(AffineMap map, unsigned rows, unsigned columns) {
  SmallVector<unsigned> dims;
  for (AffineExpr expr : map.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      dims.push_back(dim.getPosition());
  auto isRange = [&](unsigned first, unsigned count) {
    return dims.size() == count && llvm::equal(dims, llvm::seq(first, first + count));
  };
  if (dims.empty())
    return EpilogueOperand::Scalar;
  if (isRange(0, rows + columns))
    return EpilogueOperand::Full;
  if (isRange(rows, columns))
    return EpilogueOperand::RowVector;
  if (isRange(0, rows))
    return EpilogueOperand::Column;
  return std::nullopt;
}

std::optional<Epilogue> findEpilogue(OpResult product, std::string &reason) {
  if (!product.hasOneUse())
    return std::nullopt;
  OpOperand &use = *product.getUses().begin();
  auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!generic || generic.getNumParallelLoops() != generic.getNumLoops())
    return std::nullopt;
  auto refuse = [&](const Twine &text) {
    reason = text.str();
    return std::nullopt;
  };
  if (generic.getNumDpsInits() != 1 || generic.isDpsInit(&use))
    return refuse("the elementwise op has several results");
  if (!generic.getMatchingIndexingMap(&use).isIdentity() ||
      !generic.getMatchingIndexingMap(generic.getDpsInitOperand(0)).isIdentity())
    return refuse("the elementwise op broadcasts or permutes");
  Epilogue epilogue;
  epilogue.op = generic;
  epilogue.accumulator = use.getOperandNumber();
  for (OpOperand *operand : generic.getDpsInputOperands()) {
    if (operand == &use)
      continue;
    AffineMap map = generic.getMatchingIndexingMap(operand);
    if (!isa<RankedTensorType>(operand->get().getType()))
      return refuse("operand " + Twine(operand->getOperandNumber()) + " of the elementwise op is no tensor");
    if (!llvm::all_of(map.getResults(), llvm::IsaPred<AffineDimExpr, AffineConstantExpr>))
      return refuse("operand " + Twine(operand->getOperandNumber()) +
                    " of the elementwise op is not read at its element");
    epilogue.operands.push_back(operand->get());
    epilogue.maps.push_back(map);
  }
  return epilogue;
}

std::optional<Epilogue> matchEpilogue(OpResult product, unsigned rows, unsigned columns, std::string &reason) {
  std::optional<Epilogue> epilogue = findEpilogue(product, reason);
  if (!epilogue)
    return std::nullopt;
  for (auto [n, map] : llvm::enumerate(epilogue->maps)) {
    std::optional<EpilogueOperand> kind = classify(map, rows, columns);
    if (!kind) {
      reason = ("operand " + Twine(n + (n >= epilogue->accumulator)) +
                " of the elementwise op is neither a scalar nor by row, by column or by element")
                   .str();
      return std::nullopt;
    }
    epilogue->kinds.push_back(*kind);
  }
  return epilogue;
}

} // namespace attn
