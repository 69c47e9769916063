#include "passes/lowering/buffers/ExpandAccesses.h"

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace attn {
namespace {

/// Addresses in one function. Steps that several of them have in common are made once a block.
class Addresses {
public:
  explicit Addresses(MLIRContext *context)
      : types(context), ptr(LLVM::LLVMPointerType::get(context)), i64(IntegerType::get(context, 64)) {}

  /// Whether LLVM has `accessed`, the elements at some place of a buffer of `type`, as it is.
  static bool canStandFor(MemRefType type, Type accessed) {
    Type element = type.getElementType();
    auto vector = dyn_cast<VectorType>(accessed);
    bool isKnown = element.isF16() || element.isBF16() || element.isF32() || element.isF64() ||
                   (element.isSignlessInteger() && element.getIntOrFloatBitWidth() % 8 == 0);
    return isKnown && !type.getMemorySpace() && (type.getLayout().isIdentity() || type.isStrided()) &&
           (accessed == element ||
            (vector && vector.getRank() == 1 && !vector.isScalable() && vector.getElementType() == element));
  }

  /// The address of the element at `indices`, for `op`. What is known outside of loops comes first, so that it leaves
  /// them, and constants last, where instructions take them.
  Value of(Operation *op, TypedValue<MemRefType> buffer, OperandRange indices) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    MemRefType type = buffer.getType();
    auto [strides, offset] = layoutOf(type);
    Value address = dataOf(buffer);
    int64_t constant = 0;
    if (!ShapedType::isDynamic(offset))
      constant = offset;
    else
      address = step(b, loc, address, type, field(buffer, {2}));
    SmallVector<Summand> summands;
    for (auto [dim, index] : llvm::enumerate(indices)) {
      bool isDynamic = ShapedType::isDynamic(strides[dim]);
      Value stride = isDynamic ? field(buffer, {4, static_cast<int64_t>(dim)}) : Value();
      int64_t known = split(index, stride, strides[dim], summands);
      if (!isDynamic)
        constant += known * strides[dim];
      else if (known)
        add({number(b, loc, known), stride, 0, 0}, summands);
    }
    for (const Summand &summand : summands)
      address = step(b, loc, address, type, times(b, loc, asI64(b, loc, summand.value), summand.stride, summand.known));
    if (constant == static_cast<int32_t>(constant))
      return constant ? step(b, loc, address, type, Value(), constant) : address;
    return step(b, loc, address, type, number(b, loc, constant));
  }

private:
  /// Strides and offset, of most memrefs without the affine expressions that MLIR makes each time.
  static std::pair<SmallVector<int64_t>, int64_t> layoutOf(MemRefType type) {
    ArrayRef<int64_t> shape = type.getShape();
    if (!type.getLayout().isIdentity() || shape.empty() || ShapedType::isDynamicShape(shape.drop_front()))
      return type.getStridesAndOffset();
    return {computeSuffixProduct(shape), 0};
  }

  struct Summand {
    Value value, stride;  ///< without a stride, `known` is it
    int64_t known, depth; ///< how many loops are around the value
  };

  /// Adds to `summands` what `index` is the sum of, as far as not all of it changes in the same loops; its constant
  /// part.
  int64_t split(Value index, Value stride, int64_t knownStride, SmallVectorImpl<Summand> &summands) {
    if (std::optional<int64_t> known = getConstantIntValue(index))
      return *known;
    if (auto sum = index.getDefiningOp<arith::AddIOp>()) {
      bool hasConstant = getConstantIntValue(sum.getRhs()).has_value();
      if (hasConstant || depthOf(sum.getLhs()) < depthOf(sum) || depthOf(sum.getRhs()) < depthOf(sum))
        return split(sum.getLhs(), stride, knownStride, summands) + split(sum.getRhs(), stride, knownStride, summands);
    }
    add({index, stride, knownStride, depthOf(index)}, summands);
    return 0;
  }

  /// Behind those with as many loops around them.
  static void add(const Summand &summand, SmallVectorImpl<Summand> &summands) {
    auto *at = llvm::find_if(summands, [&](const Summand &other) { return other.depth > summand.depth; });
    summands.insert(at, summand);
  }

  int64_t depthOf(Value value) {
    Region *region = value.getParentRegion();
    auto [known, isNew] = depths.try_emplace(region, 0);
    if (!isNew)
      return known->second;
    int64_t depth = 0;
    for (Operation *parent = region->getParentOp(); parent; parent = parent->getParentOp())
      depth += isa<LoopLikeOpInterface>(parent);
    return depths[region] = depth;
  }

  /// Where the data of `buffer` begin, before its offset. Other views of a buffer have the same.
  Value dataOf(Value buffer) {
    while (Operation *view = buffer.getDefiningOp()) {
      if (!isa<memref::ReinterpretCastOp, memref::CastOp>(view))
        break;
      if (!isa<MemRefType>(view->getOperand(0).getType()))
        break;
      buffer = view->getOperand(0);
    }
    return field(buffer, {1});
  }

  /// A field of the descriptor of `buffer`, right where that is known.
  Value field(Value buffer, ArrayRef<int64_t> position) {
    Value &made = fields[{buffer, position.front() * 64 + (position.size() > 1 ? position[1] : 0)}];
    if (made)
      return made;
    OpBuilder b(buffer.getContext());
    b.setInsertionPointAfterValue(buffer);
    Location loc = buffer.getLoc();
    Value &descriptor = descriptors[buffer];
    if (!descriptor)
      descriptor = UnrealizedConversionCastOp::create(b, loc, types.convertType(buffer.getType()), buffer).getResult(0);
    b.setInsertionPointAfterValue(descriptor);
    return made = LLVM::ExtractValueOp::create(b, loc, descriptor, position);
  }

  Value asI64(OpBuilder &b, Location loc, Value index) {
    if (index.getType() == i64)
      return index;
    Value &made = casts[{b.getInsertionBlock(), index}];
    if (!made)
      made = arith::IndexCastOp::create(b, loc, i64, index);
    return made;
  }

  Value number(OpBuilder &b, Location loc, int64_t value) {
    return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
  }

  /// `x` times `dynamic`, if there is one, else times `known`.
  Value times(OpBuilder &b, Location loc, Value x, Value dynamic, int64_t known) {
    if (!dynamic && known == 1)
      return x;
    Value &made = products[{b.getInsertionBlock(), {x, {dynamic, known}}}];
    if (!made)
      made = arith::MulIOp::create(b, loc, x, dynamic ? dynamic : number(b, loc, known));
    return made;
  }

  /// `address` and `elements`, or a constant number of them, of a buffer of `type`.
  Value step(OpBuilder &b, Location loc, Value address, MemRefType type, Value elements, int64_t constant = 0) {
    Value &made = steps[{{b.getInsertionBlock(), type.getElementType()}, {address, {elements, constant}}}];
    if (!made) {
      LLVM::GEPArg by = elements ? LLVM::GEPArg(elements) : LLVM::GEPArg(static_cast<int32_t>(constant));
      made = LLVM::GEPOp::create(b, loc, ptr, type.getElementType(), address, ArrayRef<LLVM::GEPArg>{by});
    }
    return made;
  }

  using ByConstant = std::pair<Value, int64_t>;
  LLVMTypeConverter types;
  Type ptr, i64;
  llvm::DenseMap<Region *, int64_t> depths;
  llvm::DenseMap<Value, Value> descriptors;
  llvm::DenseMap<ByConstant, Value> fields;
  llvm::DenseMap<std::pair<Block *, Value>, Value> casts;
  llvm::DenseMap<std::pair<Block *, std::pair<Value, ByConstant>>, Value> products;
  llvm::DenseMap<std::pair<std::pair<Block *, Type>, std::pair<Value, ByConstant>>, Value> steps;
};

/// As convert-to-llvm aligns them.
template <typename OpTy> unsigned alignmentOf(OpTy op) {
  return op.getAlignment().value_or(op.getMemRefType().getElementTypeBitWidth() / 8);
}

/// The op that does at address `at` what `op` does in a buffer.
Operation *access(OpBuilder &b, memref::LoadOp op, Value at) {
  return LLVM::LoadOp::create(b, op.getLoc(), op.getType(), at, op.getAlignment().value_or(0), /*isVolatile=*/false,
                              op.getNontemporal());
}
Operation *access(OpBuilder &b, memref::StoreOp op, Value at) {
  return LLVM::StoreOp::create(b, op.getLoc(), op.getValue(), at, op.getAlignment().value_or(0), /*isVolatile=*/false,
                               op.getNontemporal());
}
Operation *access(OpBuilder &b, memref::PrefetchOp op, Value at) {
  return LLVM::Prefetch::create(b, op.getLoc(), at, op.getIsWrite(), op.getLocalityHint(), op.getIsDataCache());
}
Operation *access(OpBuilder &b, vector::LoadOp op, Value at) {
  return LLVM::LoadOp::create(b, op.getLoc(), op.getVectorType(), at, alignmentOf(op), /*isVolatile=*/false,
                              op.getNontemporal());
}
Operation *access(OpBuilder &b, vector::StoreOp op, Value at) {
  return LLVM::StoreOp::create(b, op.getLoc(), op.getValueToStore(), at, alignmentOf(op), /*isVolatile=*/false,
                               op.getNontemporal());
}
Operation *access(OpBuilder &b, vector::MaskedLoadOp op, Value at) {
  return LLVM::MaskedLoadOp::create(b, op.getLoc(), op.getVectorType(), at, op.getMask(), op.getPassThru(),
                                    alignmentOf(op));
}
Operation *access(OpBuilder &b, vector::MaskedStoreOp op, Value at) {
  return LLVM::MaskedStoreOp::create(b, op.getLoc(), op.getValueToStore(), at, op.getMask(), alignmentOf(op));
}

/// `accessed` is what `op` has of `buffer` at a place.
template <typename OpTy> void expand(OpTy op, TypedValue<MemRefType> buffer, Type accessed, Addresses &addresses) {
  if (!Addresses::canStandFor(buffer.getType(), accessed))
    return;
  Value at = addresses.of(op, buffer, op.getIndices());
  OpBuilder b(op);
  op->replaceAllUsesWith(access(b, op, at));
  op->erase();
}

} // namespace

void expandAccesses(func::FuncOp function) {
  SmallVector<Operation *> accesses;
  function.walk([&](Operation *op) {
    if (isa<memref::MemRefDialect, vector::VectorDialect>(op->getDialect()))
      accesses.push_back(op);
  });
  Addresses addresses(function.getContext());
  for (Operation *op : accesses)
    llvm::TypeSwitch<Operation *>(op)
        .Case<memref::LoadOp, memref::StoreOp, memref::PrefetchOp>([&](auto access) {
          expand(access, access.getMemref(), access.getMemRefType().getElementType(), addresses);
        })
        .Case<vector::LoadOp, vector::StoreOp, vector::MaskedLoadOp, vector::MaskedStoreOp>(
            [&](auto access) { expand(access, access.getBase(), access.getVectorType(), addresses); });
}

} // namespace attn
