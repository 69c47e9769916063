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

class BlockVectorizer {
public:
  BlockVectorizer(OpBuilder &builder, int64_t lanes, IndexVectorFn indexVector)
      : builder(builder), lanes(lanes), indexVector(indexVector) {}

  Value run(Block &block, ValueRange args) {
    for (auto [argument, value] : llvm::zip_equal(block.getArguments(), args))
      mapping.map(argument, value);
    for (Operation &op : block.without_terminator())
      cloneOp(op);
    Location loc = block.getTerminator()->getLoc();
    return toVector(lookup(block.getTerminator()->getOperand(0), loc), loc);
  }

private:
  /// The scalar or vector that stands for `value`.
  Value lookup(Value value, Location loc) {
    if (Value known = mapping.lookupOrNull(value))
      return known;
    // A constant from outside the block: bring it in.
    Value constant = arith::ConstantOp::create(builder, loc, getScalarConstant(value));
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
    if (TypedAttr constant = getScalarConstant(value))
      return cached = arith::ConstantOp::create(builder, loc, SplatElementsAttr::get(type, constant));
    return cached = vector::BroadcastOp::create(builder, loc, type, value);
  }

  void cloneOp(Operation &op) {
    Location loc = op.getLoc();
    if (std::optional<int64_t> dim = getIndexDim(&op)) {
      assert(indexVector && "an index is used where none is known");
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

} // namespace

Value vectorizeBlock(OpBuilder &builder, Block &block, ValueRange args, int64_t lanes, IndexVectorFn indexVector) {
  assert(canVectorizeBlock(block));
  return BlockVectorizer(builder, lanes, indexVector).run(block, args);
}

} // namespace attn
