#include "passes/graph/attention/RowDivisor.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn {
namespace {

constexpr unsigned kNoDim = ~0u;

/// The inputs of `scaling` that `value` of its body needs; nullopt where it needs more than inputs, such as an index.
std::optional<SmallVector<OpOperand *>> inputsOf(linalg::GenericOp scaling, Value value) {
  SmallVector<OpOperand *> found;
  bool isOther = worklist<Value>({value}, [&](Value next, Values &list) {
    if (auto argument = dyn_cast<BlockArgument>(next); argument && argument.getOwner() == scaling.getBody()) {
      OpOperand *input = scaling.getMatchingOpOperand(argument);
      found.push_back(input);
      return !scaling.isDpsInput(input);
    }
    Operation *op = next.getDefiningOp();
    if (!op || op->getBlock() != scaling.getBody())
      return false;
    llvm::append_range(list, op->getOperands());
    return op->getNumRegions() || isa<linalg::IndexOp>(op) || !isPure(op);
  });
  return isOther ? std::nullopt : std::optional(found);
}

} // namespace

std::optional<RowDivisor> RowDivisor::find(AttentionOp op) {
  SmallVector<OpOperand *> uses;
  for (OpOperand &each : op.getResult().getUses())
    if (!isa<tensor::DimOp>(each.getOwner()))
      uses.push_back(&each);
  auto scaling = uses.size() == 1 ? dyn_cast<linalg::GenericOp>(uses.front()->getOwner()) : linalg::GenericOp();
  if (!scaling || scaling.getNumReductionLoops() || !scaling.isDpsInput(uses.front()))
    return std::nullopt;
  OpOperand &use = *uses.front();
  RowDivisor found(scaling);
  found.dimOfLoop.assign(scaling.getNumLoops(), kNoDim);
  for (auto [result, loop] :
       llvm::zip_equal(op.getResultMap().getResults(), scaling.getMatchingIndexingMap(&use).getResults()))
    if (isa<AffineDimExpr>(result) && isa<AffineDimExpr>(loop))
      found.dimOfLoop[cast<AffineDimExpr>(loop).getPosition()] = cast<AffineDimExpr>(result).getPosition();
  auto isOfRow = [&](OpOperand *input) {
    return llvm::all_of(scaling.getMatchingIndexingMap(input).getResults(), [&](AffineExpr expr) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      unsigned dim = loop ? found.dimOfLoop[loop.getPosition()] : kNoDim;
      return isa<AffineConstantExpr>(expr) || (dim != kNoDim && dim != unsigned(AttentionOp::E));
    });
  };
  Value at = scaling.getMatchingBlockArgument(&use);
  while (at.hasOneUse()) {
    Operation *user = *at.user_begin();
    auto division = dyn_cast<arith::DivFOp>(user);
    if (division && division.getLhs() == at) {
      auto inputs = inputsOf(scaling, division.getRhs());
      // Divisions by something else are the graph's own.
      bool isOurs = inputs && llvm::all_of(*inputs, isOfRow) &&
                    llvm::any_of(*inputs, [&](OpOperand *input) { return input->get().getDefiningOp() == op; });
      if (!isOurs)
        break;
      found.divisors.push_back(division.getRhs());
      llvm::append_range(found.read, *inputs);
    } else if (!isa<arith::ExtFOp, arith::TruncFOp>(user)) {
      break;
    }
    at = user->getResult(0);
  }
  if (found.divisors.empty())
    return std::nullopt;
  llvm::sort(found.read);
  found.read.erase(llvm::unique(found.read), found.read.end());
  return found;
}

Value RowDivisor::divide(OpBuilder &b, Location loc, Value weights, ArrayRef<unsigned> dims, unsigned added) const {
  unsigned rank = dims.size() + added;
  SmallVector<AffineExpr> places; // of each loop, where the weights have its dimension
  for (unsigned dim : dimOfLoop) {
    const unsigned *place = llvm::find(dims, dim);
    places.push_back(place == dims.end() ? b.getAffineConstantExpr(0)
                                         : b.getAffineDimExpr(static_cast<unsigned>(place - dims.begin())));
  }
  SmallVector<Value> inputs{weights};
  SmallVector<AffineMap> maps{b.getMultiDimIdentityMap(rank)};
  for (OpOperand *input : read) {
    inputs.push_back(input->get());
    maps.push_back(
        cast<linalg::GenericOp>(*scaling).getMatchingIndexingMap(input).replaceDimsAndSymbols(places, {}, rank, 0));
  }
  Type element = getElementTypeOrSelf(weights);
  return elementwise(b, loc, tensor::getMixedSizes(b, loc, weights), element, inputs, maps,
                     [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       linalg::GenericOp op = scaling;
                       IRMapping mapping;
                       for (auto [input, arg] : llvm::zip_equal(read, args.drop_front()))
                         mapping.map(op.getMatchingBlockArgument(input), arg);
                       // What needs other inputs is of no use here.
                       for (Operation &inner : op.getBody()->without_terminator())
                         if (llvm::all_of(inner.getOperands(), [&](Value operand) {
                               return operand.getParentBlock() != op.getBody() || mapping.contains(operand);
                             }))
                           b.clone(inner, mapping);
                       Value weight = args.front();
                       for (Value divisor : divisors)
                         weight = arith::DivFOp::create(b, loc, weight,
                                                        convertFloat(b, loc, mapping.lookup(divisor), element));
                       return weight;
                     });
}

} // namespace attn
