#include "passes/graph/products/QuantizedOperand.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include <cmath>

using namespace mlir;

namespace attn {
namespace {

/// The dimension of size other than 1 among `dims` of `type`; -1 for none, nothing for several.
std::optional<int64_t> onlyDim(RankedTensorType type, ArrayRef<int64_t> dims) {
  int64_t found = -1;
  for (int64_t dim : dims) {
    if (type.getDimSize(dim) == 1)
      continue;
    if (found >= 0)
      return std::nullopt;
    found = dim;
  }
  return found;
}

/// Through a reshape that adds or drops dimensions of size 1 and does nothing else.
bool followReshape(LoopRead &read, Value source, ArrayRef<ReassociationIndices> groups, bool expands) {
  auto wide = cast<RankedTensorType>(expands ? read.tensor.getType() : source.getType());
  MLIRContext *context = read.map.getContext();
  SmallVector<AffineExpr> exprs;
  AffineExpr none = getAffineConstantExpr(0, context);
  if (!expands)
    exprs.assign(wide.getRank(), none);
  for (auto [n, group] : llvm::enumerate(groups)) {
    std::optional<int64_t> dim = onlyDim(wide, group);
    if (!dim)
      return false;
    if (expands)
      exprs.push_back(*dim < 0 ? none : read.map.getResult(*dim));
    else if (*dim >= 0)
      exprs[*dim] = read.map.getResult(n);
  }
  read = {source, AffineMap::get(read.map.getNumDims(), 0, exprs, context)};
  return true;
}

/// The loops of `op`, pointwise, when its result is read at `map`.
AffineMap loopsOf(linalg::LinalgOp op, AffineMap map) {
  return inversePermutation(op.getMatchingIndexingMap(op.getDpsInitOperand(0))).compose(map);
}

bool followView(LoopRead &read) {
  Operation *op = read.tensor.getDefiningOp();
  if (auto cast = dyn_cast_or_null<tensor::CastOp>(op)) {
    read.tensor = cast.getSource();
    return true;
  }
  if (auto expand = dyn_cast_or_null<tensor::ExpandShapeOp>(op))
    return followReshape(read, expand.getSrc(), expand.getReassociationIndices(), /*expands=*/true);
  if (auto collapse = dyn_cast_or_null<tensor::CollapseShapeOp>(op))
    return followReshape(read, collapse.getSrc(), collapse.getReassociationIndices(), /*expands=*/false);
  auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op);
  OpOperand *moved = linalgOp ? getMovedInput(linalgOp) : nullptr;
  if (!moved)
    return false;
  AffineMap map = linalgOp.getMatchingIndexingMap(moved).compose(loopsOf(linalgOp, read.map));
  read = {moved->get(), map};
  return true;
}

/// Reads the scalars of elementwise ops.
class Reader {
public:
  std::optional<QuantizedOperand> tensor(LoopRead read) {
    followViews(read);
    auto op = read.tensor.getDefiningOp<linalg::LinalgOp>();
    if (!op || !isPointwise(op))
      return std::nullopt;
    return scalar(op.getBlock()->getTerminator()->getOperand(0), op, loopsOf(op, read.map));
  }

private:
  /// What an argument of the body of `op` is an element of.
  std::optional<LoopRead> argument(Value value, linalg::LinalgOp op, AffineMap loops) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != op.getBlock())
      return std::nullopt;
    OpOperand *operand = op.getMatchingOpOperand(argument);
    if (!op.isDpsInput(operand) || !isa<RankedTensorType>(operand->get().getType()))
      return std::nullopt;
    return LoopRead{operand->get(), op.getMatchingIndexingMap(operand).compose(loops)};
  }

  /// A conversion of an integer that loses nothing.
  static Value widened(Value value) {
    Operation *op = value.getDefiningOp();
    return isa_and_nonnull<arith::ExtUIOp, arith::ExtSIOp, arith::UIToFPOp, arith::SIToFPOp>(op) ? op->getOperand(0)
                                                                                                 : Value();
  }

  std::optional<Parameter> parameter(Value value, linalg::LinalgOp op, AffineMap loops) {
    if (std::optional<LoopRead> read = argument(value, op, loops)) {
      followViews(*read);
      if (TypedAttr splat = splatConstant(read->tensor))
        return Parameter{std::nullopt, splat};
      return Parameter{read, {}};
    }
    TypedAttr constant = splatConstant(value);
    return constant ? std::optional(Parameter{std::nullopt, constant}) : std::nullopt;
  }

  /// A zero point: an element of i8, widened here or in an op before.
  bool readZero(Value value, linalg::LinalgOp op, AffineMap loops, QuantizedOperand &operand) {
    if (Value narrow = widened(value); narrow && narrow.getType().isInteger(8)) {
      operand.zeroIsUnsigned = isa<arith::ExtUIOp, arith::UIToFPOp>(value.getDefiningOp());
      operand.zero = parameter(narrow, op, loops);
      return operand.zero.has_value();
    }
    if (TypedAttr constant = splatConstant(value)) {
      operand.zeroIsUnsigned = operand.isUnsigned;
      operand.zero = Parameter{std::nullopt, constant};
      return true;
    }
    std::optional<LoopRead> read = argument(value, op, loops);
    if (!read)
      return false;
    followViews(*read);
    auto producer = read->tensor.getDefiningOp<linalg::LinalgOp>();
    return producer && isPointwise(producer) &&
           readZero(producer.getBlock()->getTerminator()->getOperand(0), producer, loopsOf(producer, read->map),
                    operand);
  }

  std::optional<QuantizedOperand> scalar(Value value, linalg::LinalgOp op, AffineMap loops) {
    if (std::optional<LoopRead> read = argument(value, op, loops))
      return getElementTypeOrSelf(read->tensor).isInteger(8) ? std::nullopt : tensor(*read);
    if (Value narrow = widened(value)) {
      if (!narrow.getType().isInteger(8)) // an i32 difference as f32
        return narrow.getType().isInteger(32) && isa<arith::SIToFPOp>(value.getDefiningOp()) ? scalar(narrow, op, loops)
                                                                                             : std::nullopt;
      std::optional<LoopRead> stored = argument(narrow, op, loops);
      if (!stored)
        return std::nullopt;
      QuantizedOperand operand;
      operand.stored = *stored;
      operand.isUnsigned = isa<arith::ExtUIOp, arith::UIToFPOp>(value.getDefiningOp());
      return operand;
    }
    Operation *inner = value.getDefiningOp();
    if (isa_and_nonnull<arith::SubIOp, arith::SubFOp>(inner)) {
      std::optional<QuantizedOperand> operand = scalar(inner->getOperand(0), op, loops);
      if (!operand || operand->zero || !operand->scales.empty() || !readZero(inner->getOperand(1), op, loops, *operand))
        return std::nullopt;
      return operand;
    }
    if (!isa_and_nonnull<arith::MulFOp>(inner))
      return std::nullopt;
    for (unsigned side : {0, 1}) {
      std::optional<QuantizedOperand> operand = scalar(inner->getOperand(side), op, loops);
      std::optional<Parameter> scale = operand ? parameter(inner->getOperand(1 - side), op, loops) : std::nullopt;
      if (!scale)
        continue;
      operand->scales.push_back(*scale);
      return operand;
    }
    return std::nullopt;
  }
};

} // namespace

static std::nullopt_t refuse(std::string &reason, StringRef text) {
  reason = text.str();
  return std::nullopt;
}

std::optional<RowLoops> matchRows(linalg::LinalgOp op, AffineMap rows, std::string &reason) {
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  ArrayRef<AffineExpr> left = rows.getResults(), result = map.getResults();
  if (result.empty() || left.size() != result.size())
    return refuse(reason, "the activation has other dimensions than the result");
  auto depth = dyn_cast<AffineDimExpr>(left.back()), column = dyn_cast<AffineDimExpr>(result.back());
  if (!depth || !column || map.isFunctionOfDim(depth.getPosition()) || op.getNumReductionLoops() != 1)
    return refuse(reason, "the sum does not run along the rows of the activation");
  if (left.drop_back() != result.drop_back())
    return refuse(reason, "the rows of the activation stand in another order than those of the result");
  return RowLoops{depth.getPosition(), column.getPosition()};
}

std::optional<bool> matchTransposed(AffineMap matrix, const RowLoops &loops, std::string &reason) {
  ArrayRef<AffineExpr> places = matrix.getResults();
  if (places.size() != 2)
    return refuse(reason, "the weight is no matrix");
  AffineExpr depth = getAffineDimExpr(loops.depth, matrix.getContext()),
             column = getAffineDimExpr(loops.column, matrix.getContext());
  if (places[0] == column && places[1] == depth)
    return true;
  if (places[0] == depth && places[1] == column)
    return false;
  return refuse(reason, "the weight is not read as K x N or N x K");
}

void followViews(LoopRead &read) {
  while (followView(read)) {
  }
}

std::optional<int64_t> constantZero(const QuantizedOperand &operand) {
  if (!operand.zero)
    return 0;
  if (operand.zero->read)
    return std::nullopt;
  TypedAttr constant = operand.zero->constant;
  double zero, low = operand.isUnsigned ? 0 : -128;
  if (auto integer = dyn_cast<IntegerAttr>(constant))
    zero = integer.getValue().roundToDouble(!integer.getType().isInteger(8) || !operand.zeroIsUnsigned);
  else
    zero = cast<FloatAttr>(constant).getValueAsDouble();
  return zero >= low && zero <= low + 255 && zero == std::trunc(zero) ? std::optional<int64_t>(zero) : std::nullopt;
}

std::optional<QuantizedOperand> readQuantized(Value value, AffineMap map) { return Reader().tensor({value, map}); }

} // namespace attn
