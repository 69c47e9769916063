#include "passes/kernels/cpu/RegionVectorizer.h"

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;

namespace attn {
namespace {

/// The dimension that an index op asks for.
std::optional<int64_t> getIndexDim(Operation *op) {
  if (auto index = dyn_cast<IndexOp>(op))
    return index.getDim();
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return index.getDim();
  return std::nullopt;
}

/// The value of a scalar constant, wherever it stands.
TypedAttr getConstant(Value value) {
  Attribute attribute;
  if (!value.getType().isIntOrIndexOrFloat() || !matchPattern(value, m_Constant(&attribute)))
    return {};
  return dyn_cast<TypedAttr>(attribute);
}

class BlockVectorizer {
public:
  BlockVectorizer(OpBuilder &builder, int64_t lanes, IndexVectorFn indexVector)
      : builder(builder), lanes(lanes), indexVector(indexVector) {}

  Value run(Block &block, ValueRange args, Value result) {
    for (auto [argument, value] : llvm::zip_equal(block.getArguments(), args))
      mapping.map(argument, value);
    for (Operation &op : block.without_terminator())
      cloneOp(op);
    Location loc = block.getTerminator()->getLoc();
    return toVector(lookup(result ? result : block.getTerminator()->getOperand(0), loc), loc);
  }

private:
  /// The scalar or vector that stands for `value`.
  Value lookup(Value value, Location loc) {
    if (Value known = mapping.lookupOrNull(value))
      return known;
    // A constant from outside the block: bring it in.
    Value constant = arith::ConstantOp::create(builder, loc, getConstant(value));
    mapping.map(value, constant);
    return constant;
  }

  Value toVector(Value value, Location loc) {
    if (isa<VectorType>(value.getType()))
      return value;
    auto type = VectorType::get({lanes}, value.getType());
    Value &cached = splats[value];
    if (cached)
      return cached;
    if (TypedAttr constant = getConstant(value))
      return cached = arith::ConstantOp::create(builder, loc, SplatElementsAttr::get(type, constant));
    return cached = vector::BroadcastOp::create(builder, loc, type, value);
  }

  void cloneOp(Operation &op) {
    Location loc = op.getLoc();
    if (std::optional<int64_t> dim = getIndexDim(&op)) {
      mapping.map(op.getResult(0), indexVector(builder, loc, *dim));
      return;
    }
    SmallVector<Value> operands = llvm::map_to_vector(op.getOperands(), [&](Value v) { return lookup(v, loc); });
    bool isShared = llvm::none_of(operands, [](Value v) { return isa<VectorType>(v.getType()); });
    SmallVector<Type> types(op.getResultTypes());
    if (!isShared) {
      for (Value &operand : operands)
        operand = toVector(operand, loc);
      for (Type &type : types)
        type = VectorType::get({lanes}, type);
    }
    OperationState state(loc, op.getName());
    state.addOperands(operands);
    state.addTypes(types);
    state.addAttributes(llvm::to_vector(op.getDiscardableAttrs()));
    state.propertiesAttr = op.getPropertiesAsAttribute();
    mapping.map(op.getResults(), builder.create(state)->getResults());
  }

  OpBuilder &builder;
  int64_t lanes;
  IndexVectorFn indexVector;
  IRMapping mapping;
  DenseMap<Value, Value> splats;
};

bool fail(std::string *reason, const Twine &text) {
  if (reason)
    *reason = text.str();
  return false;
}

bool canVectorizeOp(Operation &op, std::string *reason) {
  StringRef name = op.getName().getStringRef();
  if (op.getNumRegions() || op.getNumSuccessors())
    return fail(reason, "'" + name + "' has a region or successor");
  bool isMapped = OpTrait::hasElementwiseMappableTraits(&op) && isMemoryEffectFree(&op);
  if (!isMapped && !getIndexDim(&op) && !(op.getNumResults() == 1 && getConstant(op.getResult(0))))
    return fail(reason, "'" + name + "' does not map over the elements of a vector");
  for (Type type : op.getResultTypes())
    if (!type.isIntOrIndexOrFloat())
      return fail(reason, "'" + name + "' yields a value that is no number");
  for (Value operand : op.getOperands())
    if (operand.getParentBlock() != op.getBlock() && !getConstant(operand))
      return fail(reason, "'" + name + "' uses a value from outside that is no constant");
  return true;
}

} // namespace

bool canVectorizeBlock(Block &block, std::string *reason) {
  for (Type type : block.getArgumentTypes())
    if (!type.isIntOrIndexOrFloat())
      return fail(reason, "an argument is no number");
  if (block.empty() || !block.back().hasTrait<OpTrait::IsTerminator>())
    return fail(reason, "the block has no terminator");
  for (Operation &op : block.without_terminator())
    if (!canVectorizeOp(op, reason))
      return false;
  Operation &yield = block.back();
  if (yield.getNumOperands() != 1 || yield.getNumSuccessors())
    return fail(reason, "the block yields " + Twine(yield.getNumOperands()) + " values instead of one");
  Value result = yield.getOperand(0);
  if (!result.getType().isIntOrIndexOrFloat() || (result.getParentBlock() != &block && !getConstant(result)))
    return fail(reason, "the block yields a value from outside that is no constant");
  return true;
}

FailureOr<Value> vectorizeBlock(OpBuilder &builder, Block &block, ValueRange args, int64_t lanes,
                                IndexVectorFn indexVector, std::string *reason, Value result) {
  if (!canVectorizeBlock(block, reason))
    return failure();
  if (!indexVector && llvm::any_of(block, [](Operation &op) { return getIndexDim(&op).has_value(); })) {
    fail(reason, "an index is used where none is known");
    return failure();
  }
  if (args.size() != block.getNumArguments()) {
    fail(reason, Twine(args.size()) + " values for " + Twine(block.getNumArguments()) + " arguments");
    return failure();
  }
  return BlockVectorizer(builder, lanes, indexVector).run(block, args, result);
}

} // namespace attn
