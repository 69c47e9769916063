#include "tools/interpret/Interpreter.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;

namespace attn::interpret {

/// Calls and loops deeper than this end with an error.
static constexpr unsigned kMaxDepth = 64;
/// So do loop nests with more points.
static constexpr int64_t kMaxPoints = int64_t(1) << 34;

FailureOr<SmallVector<DatumRef>> Interpreter::call(func::FuncOp function, ArrayRef<DatumRef> arguments) {
  if (function.isExternal())
    return function.emitError("the interpreter has no body for this function");
  if (arguments.size() != function.getNumArguments())
    return function.emitError("expects ") << function.getNumArguments() << " inputs, got " << arguments.size();
  return runRegion(function.getBody(), arguments);
}

FailureOr<SmallVector<DatumRef>> Interpreter::runRegion(Region &region, ArrayRef<DatumRef> arguments) {
  Operation *parent = region.getParentOp();
  if (!region.hasOneBlock())
    return parent->emitError("the interpreter takes regions of one block");
  if (depth == kMaxDepth)
    return parent->emitError("the interpreter stops at ") << kMaxDepth << " nested calls and loops";
  ++depth;
  Block &block = region.front();
  for (auto [argument, value] : llvm::zip(block.getArguments(), arguments))
    set(argument, value);
  SmallVector<DatumRef> results;
  for (Operation &op : block) {
    if (!op.hasTrait<OpTrait::IsTerminator>()) {
      if (failed(run(&op)))
        return failure();
      continue;
    }
    for (Value operand : op.getOperands())
      results.push_back(get(operand));
  }
  --depth;
  return results;
}

FailureOr<std::shared_ptr<Datum>> Interpreter::make(Value result, ArrayRef<int64_t> shape) {
  int64_t count = countElements(shape);
  if (count < 0)
    return emitError(result.getLoc()) << "the interpreter takes tensors of at most " << kMaxElements << " elements";
  if (auto type = dyn_cast<RankedTensorType>(result.getType()))
    if (failed(verifyCompatibleShape(type.getShape(), shape)))
      return emitError(result.getLoc()) << "sizes at run time do not fit the type " << type;
  auto datum = std::make_shared<Datum>();
  datum->shape.assign(shape.begin(), shape.end());
  datum->data.resize(count,
                     isa<FloatType>(getElementTypeOrSelf(result.getType())) ? Scalar::of(0.0) : Scalar::of(int64_t(0)));
  return datum;
}

SmallVector<int64_t> Interpreter::sizesOf(ArrayRef<OpFoldResult> mixed) const {
  SmallVector<int64_t> sizes;
  for (OpFoldResult size : mixed) {
    if (auto value = dyn_cast<Value>(size))
      sizes.push_back(get(value)->data.front().integer);
    else
      sizes.push_back(cast<IntegerAttr>(cast<Attribute>(size)).getInt());
  }
  return sizes;
}

LogicalResult Interpreter::runConstant(Operation *op, Attribute value) {
  Value result = op->getResult(0);
  auto scalar = [&](Attribute attr) -> FailureOr<Scalar> {
    if (auto real = dyn_cast<FloatAttr>(attr))
      return Scalar::of(real.getValueAsDouble());
    if (auto integer = dyn_cast<IntegerAttr>(attr); integer && integer.getValue().getBitWidth() <= 64)
      return fit(Scalar::of(integer.getValue().getSExtValue()), integer.getType());
    return failure();
  };
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense) {
    FailureOr<Scalar> one = scalar(value);
    if (failed(one))
      return op->emitError("the interpreter has no rule for this constant");
    set(result, std::make_shared<Datum>(Datum{{}, {*one}}));
    return success();
  }
  FailureOr<std::shared_ptr<Datum>> datum = make(result, dense.getType().getShape());
  if (failed(datum))
    return failure();
  size_t n = 0;
  if (isa<FloatType>(dense.getElementType())) {
    for (APFloat x : dense.getValues<APFloat>()) {
      bool losesInfo;
      x.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
      (*datum)->data[n++] = Scalar::of(x.convertToDouble());
    }
  } else if (dense.getElementType().isIntOrIndex() &&
             (dense.getElementType().isIndex() || dense.getElementType().getIntOrFloatBitWidth() <= 64)) {
    for (APInt x : dense.getValues<APInt>())
      (*datum)->data[n++] = fit(Scalar::of(x.getSExtValue()), dense.getElementType());
  } else {
    return op->emitError("the interpreter has no rule for constants of type ") << dense.getType();
  }
  set(result, *datum);
  return success();
}

LogicalResult Interpreter::runScalar(Operation *op, ScalarRule rule) {
  SmallVector<Scalar> arguments;
  for (Value operand : op->getOperands())
    arguments.push_back(get(operand)->data.front());
  Value result = op->getResult(0);
  set(result, std::make_shared<Datum>(Datum{{}, {fit(rule(op, arguments), result.getType())}}));
  return success();
}

LogicalResult Interpreter::runLinalg(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics())
    return op.emitOpError("works on buffers, which the interpreter does not");
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  // The size of each loop is that of a dimension it reads alone.
  SmallVector<int64_t> loops(op.getNumLoops(), -1);
  SmallVector<DatumRef> operands;
  for (OpOperand &operand : op->getOpOperands()) {
    operands.push_back(get(operand.get()));
    for (auto [n, expr] : llvm::enumerate(maps[operand.getOperandNumber()].getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        loops[dim.getPosition()] = operands.back()->shape[n];
  }
  if (llvm::is_contained(loops, -1))
    return op.emitOpError("has a loop whose size the interpreter cannot tell");
  int64_t points = 1;
  for (int64_t size : loops)
    points = size == 0 ? 0 : points > kMaxPoints / size ? kMaxPoints + 1 : points * size;
  if (points > kMaxPoints)
    return op.emitOpError("has more loop points than the interpreter takes");
  SmallVector<std::shared_ptr<Datum>> results;
  unsigned firstInit = operands.size() - op.getNumDpsInits();
  for (unsigned n = 0; n != op.getNumDpsInits(); ++n)
    results.push_back(std::make_shared<Datum>(*operands[firstInit + n]));
  FailureOr<ScalarBody> body = ScalarBody::prepare(*this, *op.getBlock());
  if (failed(body))
    return failure();
  SmallVector<int64_t> index(loops.size(), 0), at;
  SmallVector<int64_t> positions(operands.size());
  SmallVector<Scalar> arguments(operands.size());
  for (bool more = points > 0; more; more = step(index, loops)) {
    for (auto [n, operand] : llvm::enumerate(operands)) {
      at.clear();
      for (AffineExpr expr : maps[n].getResults())
        at.push_back(evaluate(expr, index));
      positions[n] = positionIn(operand->shape, at);
      if (positions[n] < 0)
        return op.emitOpError("reads outside of operand ") << n;
      arguments[n] = n < firstInit ? operand->data[positions[n]] : results[n - firstInit]->data[positions[n]];
    }
    FailureOr<ArrayRef<Scalar>> yields = body->run(arguments, index);
    if (failed(yields))
      return failure();
    for (auto [n, value] : llvm::enumerate(*yields))
      results[n]->data[positions[firstInit + n]] = value;
  }
  for (auto [value, datum] : llvm::zip_equal(op->getResults(), results))
    set(value, datum);
  return success();
}

LogicalResult Interpreter::runControl(Operation *op, bool &known) {
  known = true;
  auto setAll = [&](FailureOr<SmallVector<DatumRef>> values) -> LogicalResult {
    if (failed(values))
      return failure();
    for (auto [result, value] : llvm::zip_equal(op->getResults(), *values))
      set(result, value);
    return success();
  };
  auto scalar = [&](Value value) { return get(value)->data.front().integer; };
  if (auto call = dyn_cast<func::CallOp>(op)) {
    auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, call.getCalleeAttr());
    SmallVector<DatumRef> arguments;
    for (Value operand : op->getOperands())
      arguments.push_back(get(operand));
    if (!callee)
      return op->emitError("calls a function that is not there");
    return setAll(this->call(callee, arguments));
  }
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    Region &region = scalar(branch.getCondition()) ? branch.getThenRegion() : branch.getElseRegion();
    return region.empty() ? success() : setAll(runRegion(region, {}));
  }
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    int64_t upper = scalar(loop.getUpperBound()), stride = scalar(loop.getStep());
    if (stride <= 0)
      return op->emitError("has step ") << stride;
    SmallVector<DatumRef> state;
    for (Value init : loop.getInitArgs())
      state.push_back(get(init));
    for (int64_t i = scalar(loop.getLowerBound()); i < upper; i += stride) {
      SmallVector<DatumRef> arguments{std::make_shared<Datum>(Datum{{}, {Scalar::of(i)}})};
      llvm::append_range(arguments, state);
      FailureOr<SmallVector<DatumRef>> next = runRegion(loop.getRegion(), arguments);
      if (failed(next))
        return failure();
      state = *next;
    }
    return setAll(state);
  }
  if (auto loop = dyn_cast<scf::WhileOp>(op)) {
    SmallVector<DatumRef> state;
    for (Value init : loop.getInits())
      state.push_back(get(init));
    while (true) {
      FailureOr<SmallVector<DatumRef>> condition = runRegion(loop.getBefore(), state);
      if (failed(condition))
        return failure();
      state.assign(condition->begin() + 1, condition->end());
      if (!condition->front()->data.front().integer)
        return setAll(state);
      FailureOr<SmallVector<DatumRef>> next = runRegion(loop.getAfter(), state);
      if (failed(next))
        return failure();
      state = *next;
    }
  }
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op)) {
    SmallVector<int64_t> values;
    for (Value operand : op->getOperands())
      values.push_back(scalar(operand));
    unsigned dims = apply.getAffineMap().getNumDims();
    int64_t result = evaluate(apply.getAffineMap().getResult(0), ArrayRef(values).take_front(dims),
                              ArrayRef(values).drop_front(dims));
    set(op->getResult(0), std::make_shared<Datum>(Datum{{}, {Scalar::of(result)}}));
    return success();
  }
  known = false;
  return success();
}

LogicalResult Interpreter::run(Operation *op) {
  for (Value operand : op->getOperands())
    if (!get(operand))
      return op->emitError("the interpreter has no value for an operand of '") << op->getName() << "'";
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return runConstant(op, constant.getValue());
  if (ScalarRule rule = findScalarRule(op))
    return runScalar(op, rule);
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return runLinalg(linalgOp);
  bool known = false;
  for (auto family : {&Interpreter::runControl, &Interpreter::runTensor, &Interpreter::runAttn}) {
    LogicalResult done = (this->*family)(op, known);
    if (failed(done) || known)
      return done;
  }
  return op->emitError("the interpreter has no rule for '") << op->getName() << "'";
}

} // namespace attn::interpret
