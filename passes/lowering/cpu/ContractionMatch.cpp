#include "passes/lowering/cpu/ContractionMatch.h"
#include "dialects/attn/AttnOps.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn {

LoopDims getDims(AffineMap map) {
  return llvm::map_to_vector(map.getResults(), [](AffineExpr e) { return cast<AffineDimExpr>(e).getPosition(); });
}

int64_t getPosition(AffineMap map, unsigned dim) {
  return *map.getResultPosition(getAffineDimExpr(dim, map.getContext()));
}

LoopDims concat(const LoopDims &x, const LoopDims &y) {
  LoopDims both(x);
  llvm::append_range(both, y);
  return both;
}

namespace {

// Of products whose right-hand side the run has to pack.
constexpr double kLeastRows = 4;
constexpr double kLeastWork = 1 << 15;

LogicalResult fail(std::string &reason, const Twine &text) {
  reason = text.str();
  return failure();
}

bool isZeroFill(Value value) {
  auto fill = value.getDefiningOp<linalg::FillOp>();
  return fill && matchPattern(fill.getInputs().front(), m_AnyZeroFloat());
}

/// Sorts the loops, with operand `rightNumber` on the right.
LogicalResult sortLoops(Contraction &match, unsigned rightNumber, std::string &reason) {
  linalg::LinalgOp op = match.op;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  match.right = cast<TypedValue<RankedTensorType>>(op->getOperand(rightNumber));
  match.activation = op->getOperand(1 - rightNumber);
  match.activationMap = maps[1 - rightNumber];
  match.rightMap = maps[rightNumber];
  match.resultMap = maps[2];
  LoopDims activation = getDims(match.activationMap), right = getDims(match.rightMap),
           result = getDims(match.resultMap);
  LoopDims batch, rows;
  for (unsigned dim : result) {
    bool inA = llvm::is_contained(activation, dim), inW = llvm::is_contained(right, dim);
    if (!inA && !inW)
      return fail(reason, "the result has a dimension of its own");
    (inA && inW ? batch : inA ? rows : match.columns).push_back(dim);
  }
  for (unsigned dim : right) {
    bool inA = llvm::is_contained(activation, dim), inC = llvm::is_contained(result, dim);
    if (!inA && !inC)
      return fail(reason, "the right-hand side has a dimension of its own");
    if (!inC)
      match.sums.push_back(dim);
  }
  match.numBatch = batch.size();
  match.rows = concat(batch, rows);
  if (activation.size() != match.rows.size() + match.sums.size())
    return fail(reason, "the activation has a dimension of its own");
  if (match.sums.empty() || match.columns.empty())
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

} // namespace

LogicalResult matchContraction(linalg::LinalgOp op, Contraction &match, std::string &reason) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1)
    return fail(reason, "it is not on tensors");
  for (Value operand : op->getOperands())
    if (!getElementTypeOrSelf(operand.getType()).isF32())
      return fail(reason, "it is not all f32");
  if (!isZeroFill(op.getDpsInits()[0]))
    return fail(reason, "it does not accumulate onto zeros");
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
    return success();
  }
  match = Contraction{op};
  return matchTwoActivations(match, reason);
}

} // namespace attn
