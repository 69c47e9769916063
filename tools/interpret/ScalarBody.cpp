#include "tools/interpret/Interpreter.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn::interpret {

int64_t evaluate(AffineExpr expr, ArrayRef<int64_t> dims, ArrayRef<int64_t> symbols) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return symbols[symbol.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  auto binary = cast<AffineBinaryOpExpr>(expr);
  int64_t x = evaluate(binary.getLHS(), dims, symbols), y = evaluate(binary.getRHS(), dims, symbols);
  switch (binary.getKind()) {
  case AffineExprKind::Add:
    return uint64_t(x) + uint64_t(y);
  case AffineExprKind::Mul:
    return uint64_t(x) * uint64_t(y);
  default:
    break;
  }
  if (y <= 0) // not affine
    return 0;
  int64_t down = x / y - (x % y < 0);
  if (binary.getKind() == AffineExprKind::FloorDiv)
    return down;
  if (binary.getKind() == AffineExprKind::Mod)
    return x - down * y;
  return x % y == 0 ? down : down + 1; // CeilDiv
}

int64_t positionIn(ArrayRef<int64_t> shape, ArrayRef<int64_t> index) {
  int64_t position = 0;
  for (auto [size, at] : llvm::zip_equal(shape, index)) {
    if (at < 0 || at >= size)
      return -1;
    position = position * size + at;
  }
  return position;
}

FailureOr<ScalarBody> ScalarBody::prepare(Interpreter &interpreter, Block &block) {
  ScalarBody body;
  DenseMap<Value, unsigned> numbers;
  auto number = [&](Value value) {
    auto [found, isNew] = numbers.try_emplace(value, body.slots.size());
    if (isNew)
      body.slots.push_back(Scalar::of(int64_t(0)));
    return found->second;
  };
  for (BlockArgument argument : block.getArguments())
    number(argument);
  /// The slot of an operand; what comes from outside is copied into one.
  auto operandSlot = [&](Operation *op, Value value) -> FailureOr<unsigned> {
    bool isKnown = numbers.contains(value);
    unsigned slot = number(value);
    if (isKnown)
      return slot;
    DatumRef outside = interpreter.get(value);
    if (!outside || !outside->shape.empty())
      return op->emitError("the interpreter has no value for an operand of '") << op->getName() << "'";
    body.slots[slot] = outside->data.front();
    return slot;
  };
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>()) {
      for (Value operand : op.getOperands()) {
        FailureOr<unsigned> slot = operandSlot(&op, operand);
        if (failed(slot))
          return failure();
        body.yielded.push_back(*slot);
      }
      body.yields.resize(body.yielded.size());
      break;
    }
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      unsigned slot = number(constant.getResult());
      if (auto real = dyn_cast<FloatAttr>(constant.getValue())) {
        body.slots[slot] = Scalar::of(real.getValueAsDouble());
      } else if (auto integer = dyn_cast<IntegerAttr>(constant.getValue());
                 integer && integer.getValue().getBitWidth() <= 64) {
        body.slots[slot] = fit(Scalar::of(integer.getValue().getSExtValue()), constant.getType());
      } else {
        return op.emitError("the interpreter has no rule for this constant");
      }
      continue;
    }
    Step step{&op, findScalarRule(&op), {}, 0, nullptr};
    bool isKnown = step.rule || isa<linalg::IndexOp, IndexOp, affine::AffineApplyOp, CheckIndexOp>(op);
    if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
      step.tensor = interpreter.get(extract.getTensor());
      isKnown = step.tensor != nullptr;
    }
    if (!isKnown || op.getNumResults() != 1)
      return op.emitError("the interpreter has no rule for '") << op.getName() << "'";
    for (Value operand : op.getOperands()) {
      if (step.tensor && operand == cast<tensor::ExtractOp>(op).getTensor())
        continue;
      FailureOr<unsigned> slot = operandSlot(&op, operand);
      if (failed(slot))
        return failure();
      step.operands.push_back(*slot);
    }
    step.result = number(op.getResult(0));
    body.steps.push_back(std::move(step));
  }
  return body;
}

FailureOr<ArrayRef<Scalar>> ScalarBody::run(ArrayRef<Scalar> arguments, ArrayRef<int64_t> index) {
  llvm::copy(arguments, slots.begin());
  SmallVector<Scalar, 4> values;
  SmallVector<int64_t, 6> integers;
  for (const Step &step : steps) {
    values.clear();
    integers.clear();
    for (unsigned slot : step.operands) {
      values.push_back(slots[slot]);
      integers.push_back(slots[slot].integer);
    }
    Scalar &result = slots[step.result];
    if (step.rule) {
      result = fit(step.rule(step.op, values), step.op->getResult(0).getType());
    } else if (auto own = dyn_cast<linalg::IndexOp>(step.op)) {
      result = Scalar::of(index[own.getDim()]);
    } else if (auto own = dyn_cast<IndexOp>(step.op)) {
      result = Scalar::of(index[own.getDim()]);
    } else if (auto apply = dyn_cast<affine::AffineApplyOp>(step.op)) {
      unsigned dims = apply.getAffineMap().getNumDims();
      result = Scalar::of(evaluate(apply.getAffineMap().getResult(0), ArrayRef(integers).take_front(dims),
                                   ArrayRef(integers).drop_front(dims)));
    } else if (auto check = dyn_cast<CheckIndexOp>(step.op)) {
      int64_t at = integers[0] + (integers[0] < 0 && !check.getNonnegative() ? integers[1] : 0);
      if (at < 0 || at >= integers[1])
        return check.emitError("index ") << integers[0] << " is out of range [0, " << integers[1] << ")";
      result = Scalar::of(at);
    } else {
      int64_t position = positionIn(step.tensor->shape, integers);
      if (position < 0)
        return step.op->emitError("the interpreter reads outside of a tensor");
      result = step.tensor->data[position];
    }
  }
  for (auto [n, slot] : llvm::enumerate(yielded))
    yields[n] = slots[slot];
  return ArrayRef<Scalar>(yields);
}

} // namespace attn::interpret
