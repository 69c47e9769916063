#include "passes/lowering/choose/ContractionMatch.h"
#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"

using namespace mlir;

namespace attn {

LoopDims getDims(AffineMap map) {
  return llvm::map_to_vector(map.getResults(), [](AffineExpr e) { return cast<AffineDimExpr>(e).getPosition(); });
}

int64_t getPosition(AffineMap map, unsigned dim) {
  return *map.getResultPosition(getAffineDimExpr(dim, map.getContext()));
}

LoopDims inOrder(const LoopDims &order, const LoopDims &set) {
  return llvm::filter_to_vector(order, [&](unsigned dim) { return llvm::is_contained(set, dim); });
}

StringRef findRowsObstacle(const Contraction &match) {
  if (!match.global)
    return "the run computes both operands";
  if (match.sums.size() != 1 || match.columns.size() != 1 || match.right.getType().getRank() != 2)
    return "its weight has more than two dimensions";
  if (getDims(match.activationMap) != concat(match.rows, match.sums) ||
      getDims(match.resultMap) != concat(match.rows, match.columns))
    return "rows are not the first dimensions of its operand and its result";
  return match.rows.empty() ? "it has one row" : "";
}

namespace {

// Of products whose right-hand side the run has to pack.
constexpr double kLeastRows = 4;
constexpr double kLeastWork = 1 << 15;

LogicalResult fail(std::string &reason, const Twine &text) {
  reason = text.str();
  return failure();
}

/// Sorts the loops, with operand `rightNumber` on the right.
LogicalResult sortLoops(Contraction &match, unsigned rightNumber, std::string &reason) {
  linalg::LinalgOp op = match.op;
  FailureOr<ContractionLoops> loops = attn::sortLoops(op, 1 - rightNumber, reason);
  if (failed(loops))
    return failure();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  match.right = cast<TypedValue<RankedTensorType>>(op->getOperand(rightNumber));
  match.activation = op->getOperand(1 - rightNumber);
  match.activationMap = maps[1 - rightNumber];
  match.rightMap = maps[rightNumber];
  match.resultMap = maps[2];
  LoopDims result = getDims(match.resultMap);
  match.numBatch = loops->batch.size();
  match.rows = concat(inOrder(result, loops->batch), inOrder(result, loops->rows));
  match.columns = inOrder(result, loops->columns);
  match.sums = inOrder(getDims(match.rightMap), loops->sums);
  if (match.columns.empty())
    return fail(reason, "the right-hand side is a vector");
  return success();
}

/// Number of elements along loops, for a guess: 64 for one that only the run knows.
double guessSize(const Contraction &match, ArrayRef<unsigned> dims) {
  double size = 1;
  for (unsigned dim : dims) {
    bool inRight = llvm::is_contained(getDims(match.rightMap), dim);
    auto type = cast<RankedTensorType>((inRight ? Value(match.right) : match.activation).getType());
    int64_t extent = type.getDimSize(getPosition(inRight ? match.rightMap : match.activationMap, dim));
    size *= ShapedType::isDynamic(extent) ? 64 : static_cast<double>(extent);
  }
  return size;
}

/// A right-hand side that the run packs: worth it from 2^15 multiplications
/// for each, and rows enough to use it.
LogicalResult matchTwoActivations(Contraction &match, std::string &reason) {
  LoopDims first = getDims(match.op.getIndexingMapsArray()[0]), second = getDims(match.op.getIndexingMapsArray()[1]);
  unsigned last =
      getDims(match.op.getIndexingMapsArray()[2]).empty() ? 0 : getDims(match.op.getIndexingMapsArray()[2]).back();
  bool isFirst = llvm::is_contained(first, last) && !llvm::is_contained(second, last);
  if (failed(sortLoops(match, isFirst ? 0 : 1, reason)))
    return failure();
  double rows = guessSize(match, ArrayRef(match.rows).drop_front(match.numBatch));
  if (rows < kLeastRows)
    return fail(reason, "the run would have to pack an operand, for too few rows");
  if (rows * guessSize(match, match.columns) * guessSize(match, match.sums) < kLeastWork)
    return fail(reason, "the run would have to pack an operand, for too little work");
  return success();
}

/// Whether an operand of `op` is a weight that `match` can be by; fails where no loops can be.
FailureOr<bool> matchWeight(linalg::LinalgOp op, Contraction &match, std::string &reason) {
  for (unsigned number : {1, 0}) {
    auto weightOp = op->getOperand(number).getDefiningOp<WeightOp>();
    if (!weightOp)
      continue;
    match = Contraction{op};
    if (failed(sortLoops(match, number, reason)))
      return failure();
    if (match.numBatch)
      continue;
    LoopDims weight = getDims(match.rightMap);
    match.isTransposed = weight == concat(match.columns, match.sums);
    if (!match.isTransposed && weight != concat(match.sums, match.columns))
      continue;
    match.global = weightOp.getGlobalAttr();
    return true;
  }
  return false;
}

} // namespace

FailureOr<ContractionLoops> sortLoops(linalg::LinalgOp op, unsigned left, std::string &reason) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1)
    return fail(reason, "it is not on tensors");
  if (!isZeroFill(op.getDpsInits()[0]))
    return fail(reason, "it does not accumulate onto zeros");
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (!llvm::all_of(maps, [](AffineMap map) { return map.isProjectedPermutation(); }))
    return fail(reason, "an operand is not read at its loops");
  ContractionLoops loops;
  for (unsigned dim = 0; dim < op.getNumLoops(); ++dim) {
    bool inLeft = maps[left].isFunctionOfDim(dim), inRight = maps[1 - left].isFunctionOfDim(dim),
         inResult = maps[2].isFunctionOfDim(dim);
    if (!inLeft && !inRight)
      return fail(reason, "the result has a dimension of its own");
    if (!inResult && !(inLeft && inRight))
      return fail(reason, "an operand has a dimension of its own");
    (!inResult ? loops.sums : inLeft && inRight ? loops.batch : inLeft ? loops.rows : loops.columns).push_back(dim);
  }
  if (loops.sums.empty())
    return fail(reason, "nothing is summed");
  return loops;
}

LogicalResult matchContraction(linalg::LinalgOp op, Contraction &match, std::string &reason) {
  for (Value operand : op->getOperands())
    if (!getElementTypeOrSelf(operand.getType()).isF32())
      return fail(reason, "it is not all f32");
  FailureOr<bool> isByWeight = matchWeight(op, match, reason);
  if (failed(isByWeight) || *isByWeight)
    return success(succeeded(isByWeight));
  match = Contraction{op};
  return matchTwoActivations(match, reason);
}

LogicalResult matchWeightProduct(linalg::LinalgOp op, Contraction &match, std::string &reason) {
  for (Value operand : op->getOperands()) {
    Type type = getElementTypeOrSelf(operand.getType());
    bool isHalf = (type.isF16() || type.isBF16()) && operand != op.getDpsInits()[0];
    if (!type.isF32() && !isHalf)
      return fail(reason, "it is not of f32, f16 or bf16, summed in f32");
  }
  FailureOr<bool> isByWeight = matchWeight(op, match, reason);
  if (succeeded(isByWeight) && !*isByWeight)
    return fail(reason, "no operand is a weight");
  return success(succeeded(isByWeight));
}

} // namespace attn
