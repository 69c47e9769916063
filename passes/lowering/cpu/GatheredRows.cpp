#include "passes/lowering/cpu/GatheredRows.h"
#include "passes/lowering/choose/Epilogue.h"

#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace attn {
namespace {

/// How often each loop is in each dimension of what `copy` reads; none where one is not a sum of multiples.
std::optional<SmallVector<SmallVector<int64_t>>> factorsOf(linalg::GenericOp copy) {
  SmallVector<SmallVector<int64_t>> all;
  for (AffineExpr expr : copy.getMatchingIndexingMap(copy.getDpsInputOperand(0)).getResults()) {
    SmallVector<int64_t> factors;
    if (failed(getFlattenedAffineExpr(expr, copy.getNumLoops(), 0, &factors)) ||
        factors.size() != copy.getNumLoops() + 1 || factors.pop_back_val() != 0)
      return std::nullopt;
    all.push_back(std::move(factors));
  }
  return all;
}

/// Whether `copy` yields its one input, in the order of its loops.
bool isCopy(linalg::GenericOp copy) {
  return copy.getNumDpsInputs() == 1 && copy.getNumDpsInits() == 1 &&
         copy.getNumParallelLoops() == copy.getNumLoops() &&
         copy.getMatchingIndexingMap(copy.getDpsInitOperand(0)).isIdentity() &&
         copy.getBody()->getTerminator()->getOperand(0) == copy.getBody()->getArgument(0);
}

/// Whether windows, of loops of `ranges`, have more elements than there are from one to the next.
bool overlap(ArrayRef<int64_t> ranges, const LoopDims &rowLoops, ArrayRef<SmallVector<int64_t>> factors) {
  int64_t elements = 1, steps = 1;
  for (const SmallVector<int64_t> &dim : factors) {
    if (llvm::none_of(rowLoops, [&](unsigned loop) { return dim[loop] != 0; }))
      continue;
    for (auto [loop, factor] : llvm::enumerate(dim))
      if (factor && llvm::is_contained(rowLoops, loop))
        steps *= factor;
      else if (factor)
        elements *= ranges[loop];
  }
  return elements > steps;
}

} // namespace

std::optional<GatheredRows> GatheredRows::find(const Contraction &match, int64_t depth) {
  Value value = match.activation;
  // The loops of the copy that each dimension of the activation has.
  SmallVector<ReassociationIndices> groups;
  if (auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>(); collapse && collapse->hasOneUse()) {
    groups = collapse.getReassociationIndices();
    value = collapse.getSrc();
  }
  auto copy = value.getDefiningOp<linalg::GenericOp>();
  if (!copy || !copy->hasOneUse() || !isCopy(copy) || !getElementTypeOrSelf(copy.getInputs()[0].getType()).isF32() ||
      !copy.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>())
    return std::nullopt;
  for (unsigned loop = 0; groups.size() != match.activationMap.getNumResults() && loop != copy.getNumLoops(); ++loop)
    groups.push_back({loop});
  GatheredRows rows{copy, {}, {}};
  for (auto [dims, loops] : {std::pair(match.rows, &rows.rowLoops), std::pair(match.sums, &rows.depthLoops)})
    for (unsigned dim : dims)
      llvm::append_range(*loops, groups[getPosition(match.activationMap, dim)]);
  SmallVector<int64_t> ranges = copy.getStaticLoopRanges();
  int64_t product = 1;
  for (unsigned loop : rows.depthLoops) {
    if (ShapedType::isDynamic(ranges[loop]))
      return std::nullopt;
    product *= ranges[loop];
  }
  std::optional<SmallVector<SmallVector<int64_t>>> factors = factorsOf(copy);
  if (product != depth || !factors || !overlap(ranges, rows.rowLoops, *factors))
    return std::nullopt;
  return rows;
}

GatheredRows::Operands GatheredRows::emit(OpBuilder &b, Location loc) {
  Value source = copy.getInputs()[0];
  auto type = cast<RankedTensorType>(source.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, source);
  SmallVector<SmallVector<int64_t>> factors = *factorsOf(copy);
  SmallVector<OpFoldResult> ranges = copy.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>().getMixedSizes();
  // How far a step of each loop leads.
  SmallVector<Value> steps;
  for (unsigned loop = 0; loop != copy.getNumLoops(); ++loop) {
    Value step = arith::ConstantIndexOp::create(b, loc, 0);
    for (int64_t dim = 0; dim != type.getRank(); ++dim)
      if (int64_t factor = factors[dim][loop]) {
        Value stride =
            getValueOrCreateConstantIndexOp(b, loc, multiplySizes(b, loc, ArrayRef(sizes).drop_front(dim + 1)));
        Value times = arith::ConstantIndexOp::create(b, loc, factor);
        step = b.createOrFold<arith::AddIOp>(loc, step, b.createOrFold<arith::MulIOp>(loc, stride, times));
      }
    steps.push_back(step);
  }
  auto places = [&](const LoopDims &loops) -> Value {
    SmallVector<OpFoldResult> within;
    for (unsigned loop : loops)
      within.push_back(ranges[loop]);
    SmallVector<utils::IteratorType> parallel(within.size(), utils::IteratorType::parallel);
    Value empty = tensor::EmptyOp::create(b, loc, within, b.getI64Type());
    auto body = [&](OpBuilder &b, Location loc, ValueRange) {
      Value place = arith::ConstantIndexOp::create(b, loc, 0);
      for (auto [n, loop] : llvm::enumerate(loops)) {
        Value at = linalg::IndexOp::create(b, loc, n);
        place = b.createOrFold<arith::AddIOp>(loc, place, b.createOrFold<arith::MulIOp>(loc, at, steps[loop]));
      }
      linalg::YieldOp::create(b, loc, arith::IndexCastOp::create(b, loc, b.getI64Type(), place).getResult());
    };
    Value all = linalg::GenericOp::create(b, loc, empty.getType(), ValueRange(), empty,
                                          b.getMultiDimIdentityMap(within.size()), parallel, body)
                    ->getResult(0);
    ReassociationIndices whole = llvm::to_vector(llvm::seq<int64_t>(0, within.size()));
    return within.size() == 1 ? all : tensor::CollapseShapeOp::create(b, loc, all, ArrayRef{whole}).getResult();
  };
  ReassociationIndices whole = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  if (type.getRank() > 1)
    source = tensor::CollapseShapeOp::create(b, loc, source, ArrayRef{whole});
  return {places(rowLoops), places(depthLoops), source};
}

} // namespace attn
