#include "passes/graph/attention/RaiseContraction.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
namespace {

/// The sum over one dimension of a tensor made of softmaxes over it, as an expression of what does not depend on it.
class WeightSum {
public:
  /// Dimension `key` is summed over.
  explicit WeightSum(unsigned key) : key(key) {}

  /// Whether the element of `value` at `at`, of the dimensions, is made of softmaxes whose sums are known.
  bool add(Value value, AffineMap at);
  /// The sum of the element of `value`, from elements of the inputs at a point of the other dimensions.
  Value compute(OpBuilder &b, Location loc, Value value, ValueRange args);

  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;

private:
  /// The scalar op of an elementwise op, and how its inputs are read.
  struct Term {
    Operation *op = nullptr;
    SmallVector<Value, 2> operands; ///< tensors, or scalars that every element has
    SmallVector<int, 2> inputs;     ///< for each, the input that it is, -1 for what is summed
  };
  std::optional<Term> read(linalg::LinalgOp op, AffineMap at);
  int addInput(Value tensor, AffineMap at);

  unsigned key;
  DenseMap<Value, Term> terms;
};

int WeightSum::addInput(Value tensor, AffineMap at) {
  inputs.push_back(tensor);
  maps.push_back(at);
  return inputs.size() - 1;
}

std::optional<WeightSum::Term> WeightSum::read(linalg::LinalgOp op, AffineMap at) {
  Term term;
  term.op = getScalarOp(op);
  if (!term.op || !isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp>(term.op))
    return std::nullopt;
  unsigned numSums = 0;
  for (Value operand : term.op->getOperands()) {
    OpOperand *input = getInput(op, stripConversions(operand));
    if (!input)
      return std::nullopt;
    AffineMap place = readThrough(*input, at);
    term.operands.push_back(input->get());
    if (!place.isFunctionOfDim(key)) {
      term.inputs.push_back(addInput(input->get(), place));
    } else if (add(input->get(), place)) {
      term.inputs.push_back(-1);
      ++numSums;
    } else {
      return std::nullopt;
    }
  }
  // A product has one factor that is summed; a sum, nothing but terms that are.
  bool isProduct = isa<arith::MulFOp, arith::DivFOp>(term.op);
  bool isLinear = isProduct ? numSums == 1 && !(isa<arith::DivFOp>(term.op) && term.inputs[1] < 0)
                            : numSums == term.op->getNumOperands();
  return isLinear ? std::optional(term) : std::nullopt;
}

bool WeightSum::add(Value value, AffineMap at) {
  if (!at.isProjectedPermutation())
    return false;
  if (auto softmax = value.getDefiningOp<SoftmaxOp>())
    return !softmax.getLog() && at.getResult(softmax.getDim()) == getAffineDimExpr(key, value.getContext());
  auto op = value.getDefiningOp<linalg::LinalgOp>();
  if (!op || !isPointwise(op) || terms.contains(value))
    return false;
  std::optional<Term> term = read(op, at);
  if (term)
    terms[value] = *term;
  return term.has_value();
}

Value WeightSum::compute(OpBuilder &b, Location loc, Value value, ValueRange args) {
  auto it = terms.find(value);
  if (it == terms.end())
    return floatConstant(b, loc, getElementTypeOrSelf(value), 1);
  const Term &term = it->second;
  IRMapping mapping;
  for (auto [n, operand] : llvm::enumerate(term.op->getOperands())) {
    Value scalar = term.inputs[n] < 0 ? compute(b, loc, term.operands[n], args) : args[term.inputs[n]];
    mapping.map(operand, convertFloat(b, loc, scalar, operand.getType()));
  }
  return convertFloat(b, loc, b.clone(*term.op, mapping)->getResult(0), getElementTypeOrSelf(value));
}

} // namespace

bool sumWeights(RewriterBase &b, linalg::LinalgOp sum) {
  OpOperand *input = sum.getDpsInputOperand(0);
  AffineMap read = sum.getMatchingIndexingMap(input), written = sum.getMatchingIndexingMap(sum.getDpsInitOperand(0));
  std::optional<unsigned> key = onlyReducedLoop(sum);
  if (!key || !read.isPermutation() || !written.isProjectedPermutation() || input->get().getDefiningOp<SoftmaxOp>() ||
      !sum->hasOneUse()) // a sum over no keys is 0, which another may read
    return false;
  // The loops of the sum, with the key among them.
  WeightSum weights(*key);
  if (!weights.add(input->get(), read))
    return false;
  b.setInsertionPoint(sum);
  Location loc = sum.getLoc();
  Value init = sum.getDpsInits()[0];
  // The same loops without the key, in the order of the result.
  AffineMap places = inverseAndBroadcastProjectedPermutation(written);
  SmallVector<AffineMap> maps = llvm::map_to_vector(weights.maps, [&](AffineMap map) { return map.compose(places); });
  Type element = getElementTypeOrSelf(init);
  Value whole = elementwise(b, loc, tensor::getMixedSizes(b, loc, init), element, weights.inputs, maps,
                            [&](OpBuilder &body, Location loc, ValueRange args) {
                              return convertFloat(body, loc, weights.compute(body, loc, input->get(), args), element);
                            });
  remark::passed(loc, remark::RemarkOpts::name("WeightSum").category("attn-raise-contraction"))
      << "the weights of a softmax add up to one";
  b.replaceOp(sum, castTo(b, loc, whole, sum->getResult(0).getType()));
  return true;
}

} // namespace attn
