#include "passes/lowering/buffers/DeviceFunction.h"

#include "passes/lowering/buffers/KernelParameters.h"
#include "runtime/include/attnrt/abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"
#include <array>
#include <cstddef>

static_assert(sizeof(attnrt_product) == 104, "lower(ProductOp) writes it field by field");

using namespace mlir;

namespace attn {

/// Of a map of tiles on the host, which is words there.
constexpr unsigned kWordBytes = 8;

static int64_t bytesOf(Type element) { return element.isIndex() ? 8 : (element.getIntOrFloatBitWidth() + 7) / 8; }

LogicalResult DeviceFunction::lower(ExactArchOp op) {
  Value arch = load(i32, deviceTable(), offsetof(attnrt_device, exact_arch));
  op.replaceAllUsesWith(arith::IndexCastOp::create(b, loc(), b.getIndexType(), arch).getResult());
  return success();
}

LogicalResult DeviceFunction::lower(DeviceLimitsOp op) {
  Value device = deviceTable();
  for (auto [result, offset] : {std::pair(op.getProcessors(), offsetof(attnrt_device, processors)),
                                std::pair(op.getSharedBytes(), offsetof(attnrt_device, shared_bytes))}) {
    Value number = load(i32, device, offset);
    result.replaceAllUsesWith(arith::IndexCastOp::create(b, loc(), b.getIndexType(), number));
  }
  return success();
}

LogicalResult DeviceFunction::lower(DeviceErrorOp op) {
  Value data = load(ptr, deviceTable(), offsetof(attnrt_device, error));
  op.replaceAllUsesWith(describe(::cast<MemRefType>(op.getType()), data, {}));
  return success();
}

LogicalResult DeviceFunction::lower(FetchOp op) {
  auto type = ::cast<MemRefType>(op.getBuffer().getType());
  Type element = types.convertType(type.getElementType());
  Value descriptor = cast(op.getBuffer(), types.convertType(type));
  auto get = [&](ArrayRef<int64_t> at) { return LLVM::ExtractValueOp::create(b, loc(), descriptor, at); };
  Value at = get({2});
  for (auto [dim, index] : llvm::enumerate(op.getIndices()))
    at = LLVM::AddOp::create(b, loc(), at,
                             LLVM::MulOp::create(b, loc(), asI64(index), get({4, static_cast<int64_t>(dim)})));
  Value from = LLVM::GEPOp::create(b, loc(), ptr, element, get({1}), ArrayRef<LLVM::GEPArg>{at});
  Value to = stack(i64, 1);
  int64_t bytes = bytesOf(type.getElementType());
  Value status = callDevice(offsetof(attnrt_device, fetch), i32, {to, from, constant(i64, bytes)});
  stopIf(isNonzero(status));
  Value value = load(element, to, 0, /*invariant=*/false);
  op.replaceAllUsesWith(element == op.getType() ? value : cast(value, op.getType()));
  return success();
}

template <typename OpTy> LogicalResult DeviceFunction::lowerCopy(OpTy op, int64_t offset) {
  auto type = ::cast<MemRefType>(op.getFrom().getType());
  Value bytes = constant(i64, bytesOf(type.getElementType()));
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    bytes = LLVM::MulOp::create(b, loc(), bytes, sizeOf(op.getFrom(), dim));
  Value status = callDevice(offset, i32, {addressOf(op.getTo()), addressOf(op.getFrom()), bytes});
  stopIf(isNonzero(status));
  return success();
}

LogicalResult DeviceFunction::lower(DownloadOp op) { return lowerCopy(op, offsetof(attnrt_device, fetch)); }
LogicalResult DeviceFunction::lower(UploadOp op) { return lowerCopy(op, offsetof(attnrt_device, send)); }

Value DeviceFunction::descriptorField(Value buffer, ArrayRef<int64_t> field) {
  return LLVM::ExtractValueOp::create(b, loc(), cast(buffer, types.convertType(buffer.getType())), field);
}

Value DeviceFunction::firstOf(Value buffer) {
  auto type = ::cast<MemRefType>(buffer.getType());
  Value data = descriptorField(buffer, {1});
  if (type.getStridesAndOffset().second == 0)
    return data;
  return LLVM::GEPOp::create(b, loc(), ptr, types.convertType(type.getElementType()), data,
                             ArrayRef<LLVM::GEPArg>{descriptorField(buffer, {2})});
}
Value DeviceFunction::addressOf(Value buffer) { return descriptorField(buffer, {1}); } // dense: no offset
Value DeviceFunction::sizeOf(Value buffer, int64_t dim) { return descriptorField(buffer, {3, dim}); }

LogicalResult DeviceFunction::lower(ProductOp op) {
  auto structType = LLVM::LLVMStructType::getLiteral(
      b.getContext(), {i32, i32, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64, b.getF32Type(), i32, i32, i32, i32, i32});
  Value none = LLVM::ZeroOp::create(b, loc(), ptr);
  Value product = stack(structType, 1);
  int32_t next = 0;
  auto put = [&](Value value) { LLVM::StoreOp::create(b, loc(), value, structField(product, structType, next++)); };
  bool hasNarrowResult = !getElementTypeOrSelf(op.getResult()).isF32();
  int64_t flags = (op.getNarrow() ? ATTNRT_PRODUCT_NARROW : 0) | (op.getAsk() ? ATTNRT_PRODUCT_ASK : 0) |
                  (hasNarrowResult ? ATTNRT_PRODUCT_NARROW_RESULT : 0);
  put(constant(i32, sizeof(attnrt_product)));
  put(constant(i32, flags));
  for (Value buffer : {op.getLeft(), op.getRight(), op.getResult(), op.getBias(), op.getAddend()})
    put(buffer ? addressOf(buffer) : none);
  for (Value size : {op.getBatch(), op.getRows(), op.getColumns(), op.getSums()})
    put(asI64(size));
  put(LLVM::ConstantOp::create(b, loc(), b.getF32Type(), op.getScaleAttr()));
  for (int64_t number : {int64_t(op.getPrecision()), int64_t(op.getActivation()), int64_t(op.getLeftTransposed()),
                         int64_t(op.getRightTransposed()), int64_t(0)})
    put(constant(i32, number));
  Value status = callDevice(offsetof(attnrt_device, product), i32, {product});
  Value zero = constant(i32, 0);
  stopIf(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::slt, status, zero));
  op.replaceAllUsesWith(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::ne, status, zero).getResult());
  return success();
}

LogicalResult DeviceFunction::lower(MapTilesOp op) {
  auto type = ::cast<VectorType>(op.getMap().getType());
  int64_t rank = ::cast<MemRefType>(op.getTensor().getType()).getRank();
  auto store = [&](llvm::function_ref<Value(int64_t dim)> number) {
    SmallVector<Value> numbers;
    for (int64_t dim = 0; dim < rank; ++dim)
      numbers.push_back(asIndex(number(dim)));
    return storeSizes(numbers);
  };
  Value map = stack(i64, type.getNumElements());
  Value sizes = store([&](int64_t dim) { return sizeOf(op.getTensor(), dim); });
  Value strides = store([&](int64_t dim) { return descriptorField(op.getTensor(), {4, dim}); });
  Value tile = store([&](int64_t dim) { return constant(i64, op.getTile()[dim]); });
  stopIf(isNonzero(callDevice(offsetof(attnrt_device, map_tiles), i32,
                              {map, firstOf(op.getTensor()), constant(i32, rank), sizes, strides, tile})));
  op.replaceAllUsesWith(LLVM::LoadOp::create(b, loc(), type, map, kWordBytes).getResult());
  return success();
}

LogicalResult DeviceFunction::lower(BeginLoopOp) {
  stopIf(isNonzero(callDevice(offsetof(attnrt_device, begin_loop), i32, {})));
  return success();
}

LogicalResult DeviceFunction::lower(EndLoopOp op) {
  Value condition = field(addressOf(op.getState()), 8 * static_cast<int64_t>(op.getWord()));
  stopIf(isNonzero(callDevice(offsetof(attnrt_device, end_loop), i32, {condition})));
  return success();
}

LogicalResult DeviceFunction::appendParameters(Operation *op, Value operand, SmallVectorImpl<Value> &parts) {
  Type converted = types.convertType(operand.getType());
  if (!converted)
    return op->emitOpError("cannot pass a value of type ") << operand.getType();
  Value value = converted == operand.getType() ? operand : cast(operand, converted);
  auto memref = dyn_cast<MemRefType>(operand.getType());
  if (!memref) {
    if (isTileMap(converted)) {
      parts.push_back(value);
      return success();
    }
    if (!converted.isIntOrFloat() || converted.getIntOrFloatBitWidth() < 8)
      return op->emitOpError("cannot pass a value of type ") << operand.getType();
    parts.push_back(value);
    return success();
  }
  auto get = [&](ArrayRef<int64_t> at) { return LLVM::ExtractValueOp::create(b, loc(), value, at).getResult(); };
  Value data = get({1});
  if (ShapedType::isDynamic(memref.getStridesAndOffset().second))
    data = LLVM::GEPOp::create(b, loc(), ptr, types.convertType(memref.getElementType()), data,
                               ArrayRef<LLVM::GEPArg>{get({2})});
  parts.push_back(data);
  for (std::array<int64_t, 2> at : openFields(memref))
    parts.push_back(get(at));
  return success();
}

LogicalResult DeviceFunction::lower(gpu::LaunchFuncOp op) {
  auto names = op->getParentOfType<ModuleOp>()->getAttrOfType<ArrayAttr>(AttnDialect::kGpuKernelsAttr);
  auto *found = names ? llvm::find(names, op.getKernelName()) : nullptr;
  if (!names || found == names.end())
    return op.emitOpError("expects '") << op.getKernelName() << "' among " << AttnDialect::kGpuKernelsAttr;
  SmallVector<Value> parts;
  for (Value operand : op.getKernelOperands())
    if (failed(appendParameters(op, operand, parts)))
      return failure();
  int64_t bytes = 0;
  SmallVector<int64_t> places;
  for (Value part : parts) {
    ParameterRoom room = roomOf(part.getType());
    places.push_back(llvm::alignTo(bytes, room.alignment));
    bytes = places.back() + room.bytes;
  }
  Value parameters = stack(i64, llvm::divideCeil(bytes, kWordBytes));
  for (auto [part, place] : llvm::zip_equal(parts, places))
    LLVM::StoreOp::create(b, loc(), part, field(parameters, place), isTileMap(part.getType()) ? kWordBytes : 0);
  Value grid = storeSizes({op.getGridSizeX(), op.getGridSizeY(), op.getGridSizeZ()});
  Value block = storeSizes({op.getBlockSizeX(), op.getBlockSizeY(), op.getBlockSizeZ()});
  Value shared = constant(i64, 0);
  if (Value size = op.getDynamicSharedMemorySize())
    shared = LLVM::ZExtOp::create(b, loc(), i64, size);
  if (op->hasAttr(kCooperativeAttr))
    shared = LLVM::OrOp::create(b, loc(), shared, constant(i64, ATTNRT_LAUNCH_COOPERATIVE));
  Value status =
      callDevice(offsetof(attnrt_device, launch), i32,
                 {constant(i32, found - names.begin()), grid, block, shared, parameters, constant(i64, bytes)});
  stopIf(isNonzero(status));
  return success();
}

} // namespace attn
