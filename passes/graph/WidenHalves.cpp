#include "dialects/attn/AttnOps.h"
#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "dialects/attn/Rounding.h"
#include "dialects/attn/TopKOp.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"
#include "passes/graph/WidenBody.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_WIDENHALVESPASS
#include "passes/Passes.h.inc"

namespace {

/// Gives each tensor of halves a twin in f32 as it is needed. Some twins hold what an op computes, before it is
/// rounded; the others are what is stored in 16 bits, widened.
class Widening {
public:
  explicit Widening(ModuleOp module) : b(module.getContext()), symbols(module), globals(module, symbols) {}

  void run(func::FuncOp function) {
    twins.clear(); // of ops that are gone
    fromHalves.clear();
    computed.clear();
    constants.clear();
    for (Operation *op : collect(function))
      widen(op);
    if (twins.empty())
      return;
    readSizesOfTwins(function);
    eraseDead(function);
  }

private:
  /// All ops, without those in bodies of linalg.
  static SmallVector<Operation *> collect(func::FuncOp function) {
    SmallVector<Operation *> ops;
    function.walk<WalkOrder::PreOrder>([&](Operation *op) {
      ops.push_back(op);
      return isa<linalg::LinalgOp>(op) ? WalkResult::skip() : WalkResult::advance();
    });
    return ops;
  }

  void widen(Operation *op);
  bool widenView(Operation *op);
  bool widenJoin(Operation *op);
  void widenGeneric(linalg::GenericOp op);
  void widenContraction(linalg::ContractOp op);
  void widenFill(linalg::FillOp op);
  void followWidened(Operation *op);
  void rebuild(Operation *op);
  Value getTwin(Value half);
  void replace(Operation *op, ValueRange twins);
  void readSizesOfTwins(func::FuncOp function);
  void eraseDead(func::FuncOp function);

  /// `value` in f32 if it is a half.
  Value widened(Value value) { return isHalf(value.getType()) ? getTwin(value) : value; }
  SmallVector<Value> widened(ValueRange values) {
    return llvm::map_to_vector(values, [&](Value value) { return widened(value); });
  }
  bool isComputed(Value half) const { return computed.contains(half); }
  /// Whether `value` is stored in the library or the code, so that any view of it is, too.
  bool isConstant(Value value) const {
    return constants.contains(value) || isa_and_nonnull<WeightOp, arith::ConstantOp>(value.getDefiningOp());
  }

  OpBuilder b;
  SymbolTable symbols;
  DerivedGlobals globals;
  DenseMap<Value, Value> twins;
  DenseMap<Value, Type> fromHalves; ///< tensors of f32 whose elements the graph has converted from this type
  DenseSet<Value> computed, constants;
};

/// The twin of `half`; where nothing computes it, it is made behind it.
Value Widening::getTwin(Value half) {
  Value &twin = twins[half];
  if (twin)
    return twin;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(half);
  Location loc = half.getLoc();
  auto type = cast<RankedTensorType>(widenType(half.getType()));
  DenseFPElementsAttr elements;
  if (auto constant = half.getDefiningOp<arith::ConstantOp>())
    elements = dyn_cast<DenseFPElementsAttr>(constant.getValue());
  if (elements) {
    auto wide = elements.mapValues(type.getElementType(), [](const APFloat &value) {
      APFloat single = value;
      bool lost = false;
      single.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &lost);
      return single.bitcastToAPInt();
    });
    return twin = arith::ConstantOp::create(b, loc, cast<TypedAttr>(Attribute(wide)));
  }
  if (auto weight = half.getDefiningOp<WeightOp>()) {
    auto expression = ReshapeAttr::get(b.getContext(), weight.getGlobalAttr());
    FlatSymbolRefAttr global = globals.get(weight.getGlobal() + "_f32", type, expression, loc);
    return twin = WeightOp::create(b, loc, type, global);
  }
  return twin = castTo(b, loc, convertTensor(b, loc, half, type.getElementType()), type);
}

/// Puts `wide`, results of an op's twin, in the place of its results: rounded to halves for who reads such.
void Widening::replace(Operation *op, ValueRange wide) {
  b.setInsertionPointAfter(op);
  for (auto [result, twin] : llvm::zip_equal(op->getResults(), wide)) {
    if (!isHalf(result.getType())) {
      result.replaceAllUsesWith(twin);
      continue;
    }
    Type element = getElementTypeOrSelf(result.getType());
    Location loc = op->getLoc();
    Value half = castTo(b, loc, convertTensor(b, loc, twin, element), result.getType());
    result.replaceAllUsesWith(half);
    twins[half] = twin;
    computed.insert(half);
  }
  op->erase();
}

/// Shapes, transposes, broadcasts and slices of one tensor. A slice of what is stored stays in 16 bits: less is
/// widened.
bool Widening::widenView(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  OpOperand *moved = linalgOp ? getMovedInput(linalgOp) : nullptr;
  bool isSlice = isa<tensor::ExtractSliceOp>(op);
  bool isReshape = isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::CastOp, tensor::ReshapeOp>(op);
  if (!isSlice && !isReshape && !(moved && linalgOp.getNumDpsInputs() == 1))
    return false;
  Value source = moved ? moved->get() : op->getOperand(0);
  if (isSlice && !isComputed(source) && !isConstant(source))
    return true;
  b.setInsertionPoint(op);
  twins[op->getResult(0)] = remadeView(b, op, getTwin(source));
  if (isComputed(source))
    computed.insert(op->getResult(0));
  else if (isConstant(source))
    constants.insert(op->getResult(0));
  return true;
}

/// Tensors side by side: in 16 bits where one is stored so, as a cache is, and in f32 where all are computed.
bool Widening::widenJoin(Operation *op) {
  if (!isa<tensor::ConcatOp, tensor::InsertSliceOp, tensor::InsertOp>(op))
    return false;
  auto halves = llvm::make_filter_range(op->getOperands(), [](Value operand) { return isHalf(operand.getType()); });
  bool isOfScalar = llvm::any_of(halves, [](Value operand) { return !isa<RankedTensorType>(operand.getType()); });
  bool isStored = llvm::any_of(halves, [&](Value operand) { return !isComputed(operand) && !isConstant(operand); });
  bool anyComputed = llvm::any_of(
      halves, [&](Value operand) { return isComputed(operand) && !operand.getDefiningOp<tensor::EmptyOp>(); });
  if (isOfScalar || isStored || !anyComputed)
    return true;
  b.setInsertionPoint(op);
  twins[op->getResult(0)] =
      mlir::clone(b, op, widenType(op->getResult(0).getType()), widened(op->getOperands()))->getResult(0);
  computed.insert(op->getResult(0));
  return true;
}

void Widening::widenGeneric(linalg::GenericOp op) {
  Block &body = *op.getBody();
  if (!canWidenBody(body))
    return;
  // What only moves elements of stored tensors, as a lookup in a table, moves halves.
  if (onlyMoves(body)) {
    bool anyComputed = llvm::any_of(op.getDpsInputs(), [&](Value input) { return isComputed(input); });
    op.getBody()->walk([&](tensor::ExtractOp extract) { anyComputed |= isComputed(extract.getTensor()); });
    if (!anyComputed)
      return;
  }
  b.setInsertionPoint(op);
  auto readWide = [&](Value tensor) { return isComputed(tensor) ? getTwin(tensor) : Value(); };
  SmallVector<Value> inputs = widened(op.getDpsInputs()), inits = widened(op.getDpsInits());
  auto twin = linalg::GenericOp::create(b, op.getLoc(), TypeRange(ValueRange(inits)), inputs, inits,
                                        op.getIndexingMapsArray(), op.getIteratorTypesArray());
  auto &block = twin.getRegion().emplaceBlock();
  IRMapping scalars;
  for (BlockArgument argument : body.getArguments())
    scalars.map(argument, block.addArgument(widenType(argument.getType()), argument.getLoc()));
  b.setInsertionPointToStart(&block);
  widenBody(b, body, scalars, readWide);
  if (llvm::hasSingleElement(body.without_terminator()) && isa<arith::ExtFOp>(body.front()))
    fromHalves[twin->getResult(0)] = body.front().getOperand(0).getType();
  replace(op, twin->getResults());
}

/// Sums are f32 already; the factors become so.
void Widening::widenContraction(linalg::ContractOp op) {
  b.setInsertionPoint(op);
  SmallVector<Value> inits = widened(op.getOutputs());
  auto twin = linalg::ContractOp::create(b, op.getLoc(), TypeRange(ValueRange(inits)), widened(op.getInputs()), inits,
                                         op.getIndexingMaps());
  replace(op, twin->getResults());
}

void Widening::widenFill(linalg::FillOp op) {
  b.setInsertionPoint(op);
  Value scalar = op.getInputs().front();
  FloatAttr constant;
  if (matchPattern(scalar, m_Constant(&constant)))
    scalar = floatConstant(b, op.getLoc(), b.getF32Type(), constant.getValueAsDouble());
  else if (isHalf(scalar.getType()))
    scalar = arith::ExtFOp::create(b, op.getLoc(), b.getF32Type(), scalar);
  twins[op->getResult(0)] = linalg::FillOp::create(b, op.getLoc(), scalar, widened(op.getOutputs())).getResult(0);
  computed.insert(op->getResult(0));
}

/// An op of the dialect that takes f32 as well.
void Widening::rebuild(Operation *op) {
  b.setInsertionPoint(op);
  SmallVector<Type> types = llvm::map_to_vector(op->getResultTypes(), widenType);
  replace(op, mlir::clone(b, op, types, widened(op->getOperands()))->getResults());
}

/// Elements that the graph has converted to f32, and now moves, sorts or chooses from, are still such: where it
/// converts them back they are what they were. A threshold from TopK in f32 is then one of the scores that it is
/// compared with.
void Widening::followWidened(Operation *op) {
  if (op->getNumResults() == 0 || !getElementTypeOrSelf(op->getResult(0)).isF32())
    return;
  SmallVector<Value> sources;
  auto generic = dyn_cast<linalg::GenericOp>(op);
  // A reduction reads its init, and the greatest number of some starts from an infinity.
  auto mayBeRead = [&](OpOperand &init) {
    auto fill = init.get().getDefiningOp<linalg::FillOp>();
    APFloat start(0.0f);
    return !generic.payloadUsesValueFromOperand(&init) ||
           (fill && matchPattern(fill.getInputs()[0], m_ConstantFloat(&start)) && start.isInfinity());
  };
  if (generic && onlyChooses(*generic.getBody()) && llvm::all_of(generic.getDpsInitsMutable(), mayBeRead)) {
    llvm::append_range(sources, generic.getDpsInputs());
    generic.getBody()->walk([&](tensor::ExtractOp extract) { sources.push_back(extract.getTensor()); });
  } else if (isa<tensor::ConcatOp, tensor::InsertSliceOp>(op)) {
    llvm::append_range(sources, op->getOperands());
    llvm::erase_if(sources, [](Value source) { return source.getDefiningOp<tensor::EmptyOp>(); });
  } else if (isa<tensor::ExtractSliceOp, TopKOp>(op)) {
    sources.push_back(op->getOperand(0));
  } else if (Value viewed = getViewed(op)) {
    sources.push_back(viewed);
  }
  llvm::erase_if(sources, [](Value source) { return !isa<FloatType>(getElementTypeOrSelf(source)); });
  Type type = sources.empty() ? Type() : fromHalves.lookup(sources.front());
  if (type && llvm::all_of(sources, [&](Value source) { return fromHalves.lookup(source) == type; }))
    fromHalves[op->getResult(0)] = type;
}

void Widening::widen(Operation *op) {
  followWidened(op);
  auto isTensor = [](Type type) { return isa<RankedTensorType>(type) && isHalf(type); };
  bool gives = llvm::any_of(op->getResultTypes(), isTensor);
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    bool reads = false;
    generic.getBody()->walk([&](tensor::ExtractOp extract) { reads |= isHalf(extract.getType()); });
    if (!gives && !reads && llvm::none_of(op->getOperandTypes(), isTensor))
      return;
    // The graph asks for a rounding, which changes what was not in such a type before.
    if (generic->removeAttr(kRoundsAttr) &&
        fromHalves.lookup(generic.getDpsInputs()[0]) != getElementTypeOrSelf(op->getResult(0)))
      return;
    if (!generic.hasPureTensorSemantics() || (gives && widenView(op)))
      return;
    return widenGeneric(generic);
  }
  if (!gives && llvm::none_of(op->getOperandTypes(), isTensor))
    return;
  if (auto contract = dyn_cast<linalg::ContractOp>(op))
    return contract.hasPureTensorSemantics() ? widenContraction(contract) : void();
  if (isa<SoftmaxOp, LayerNormOp, RnnOp, GruOp, LstmOp, TopKOp, DequantizeBlocksOp>(op))
    return rebuild(op);
  if (!gives)
    return;
  if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
    b.setInsertionPoint(op);
    twins[empty] = tensor::EmptyOp::create(b, op->getLoc(), empty.getMixedSizes(), b.getF32Type());
    computed.insert(empty);
  } else if (auto fill = dyn_cast<linalg::FillOp>(op)) {
    if (fill.hasPureTensorSemantics())
      widenFill(fill);
  } else if (!widenView(op)) {
    widenJoin(op);
  }
}

/// Whose size is asked for need not be rounded.
void Widening::readSizesOfTwins(func::FuncOp function) {
  function.walk([&](tensor::DimOp op) {
    if (isComputed(op.getSource()))
      op.getSourceMutable().assign(twins.lookup(op.getSource()));
  });
}

void Widening::eraseDead(func::FuncOp function) {
  SmallVector<Operation *> all = collect(function);
  for (Operation *op : llvm::reverse(all)) // what is in an op before the op itself
    if (isOpTriviallyDead(op))
      op->erase();
}

struct WidenHalvesPass : impl::WidenHalvesPassBase<WidenHalvesPass> {
  void runOnOperation() override {
    Widening widening(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && !function->hasAttr(AttnDialect::kKernelAttr))
        widening.run(function);
  }
};

} // namespace
} // namespace attn
