#include "passes/kernels/gpu/BlockBuilder.h"
#include "dialects/attn/DeviceOps.h"
#include "passes/kernels/gpu/Float8.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace attn {

func::FuncOp BlockBuilder::function(StringRef symbol, TypeRange types) {
  auto function = func::FuncOp::create(b, loc, symbol, b.getFunctionType(types, {}));
  function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());
  b.setInsertionPointToStart(function.addEntryBlock());
  func::ReturnOp::create(b, loc);
  b.setInsertionPointToStart(&function.getBody().front());
  return function;
}

LaneBuilder::Values BlockBuilder::launch(Value blocks, int64_t threads, ArrayRef<int64_t> sharedElements,
                                         Value dynamicBytes, int64_t sharedBytes) {
  SmallVector<Type> shared;
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  for (int64_t elements : sharedElements)
    shared.push_back(MemRefType::get({elements}, b.getF32Type(), MemRefLayoutAttrInterface(), space));
  if (sharedBytes)
    shared.push_back(MemRefType::get({sharedBytes}, b.getI8Type(), MemRefLayoutAttrInterface(), space));
  Value one = index(1);
  auto op = gpu::LaunchOp::create(b, loc, blocks, one, one, index(threads), one, one, dynamicBytes,
                                  /*asyncTokenType=*/Type(), /*asyncDependencies=*/ValueRange(), shared);
  b.setInsertionPointToStart(&op.getBody().front());
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(&op.getBody().front());
  block = op.getBlockIds().x;
  thread = op.getThreadIds().x;
  return Values(op.getWorkgroupAttributions());
}

void BlockBuilder::keepRolled() {
  LLVM::InlineAsmOp::create(b, loc, TypeRange(), ValueRange(), ".pragma \"nounroll\";", "", /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
}

void BlockBuilder::setResidentBlocks(int64_t blocks) {
  b.getInsertionBlock()->getParentOp()->setAttr(kResidentBlocksAttr, b.getI64IntegerAttr(blocks));
}

void BlockBuilder::branch(Value condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise) {
  auto nothing = [](llvm::function_ref<void()> body) {
    body();
    return Values();
  };
  branch(condition, TypeRange(), [&] { return nothing(then); }, [&] { return nothing(otherwise); });
}

void BlockBuilder::branchOnSm90a(Sm90a use, llvm::function_ref<void()> exact, llvm::function_ref<void()> others,
                                 Value isWanted) {
  if (use == Sm90a::none)
    return others();
  if (use == Sm90a::only)
    return isWanted ? branch(isWanted, exact, others) : exact();
  constexpr int64_t kArch = 90;
  Value arch = ExactArchOp::create(b, loc, b.getIndexType());
  Value isExact = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, arch, index(kArch));
  branch(isWanted ? both(isExact, isWanted) : isExact, exact, others);
}

Value BlockBuilder::fma(Value x, Value y, Value z) { return math::FmaOp::create(b, loc, x, y, z); }
void BlockBuilder::barrier() { gpu::BarrierOp::create(b, loc); }

static IntegerAttr align(OpBuilder &b, int64_t bytes) { return b.getI64IntegerAttr(bytes); }

LaneBuilder::Values BlockBuilder::loadFew(Value flat, Value offset, int64_t count) {
  Type type = cast<MemRefType>(flat.getType()).getElementType();
  auto load = vector::LoadOp::create(b, loc, VectorType::get({count}, type), flat, offset);
  load->setAttr(load.getAlignmentAttrName(), align(b, type.getIntOrFloatBitWidth() / 8 * count));
  Values values;
  for (int64_t n = 0; n < count; ++n)
    values.push_back(extract(load, n));
  return values;
}

LaneBuilder::Values BlockBuilder::loadWords(Value flat, Value offset, int64_t count) {
  Type type = cast<MemRefType>(flat.getType()).getElementType();
  int64_t inWord = 32 / type.getIntOrFloatBitWidth();
  auto load = vector::LoadOp::create(b, loc, VectorType::get({inWord * count}, type), flat, offset);
  load->setAttr(load.getAlignmentAttrName(), align(b, 4 * count));
  auto asWords = VectorType::get({count}, b.getI32Type());
  // LLVM's dialect has no vectors of e4m3.
  bool isFloat8 = isa<Float8E4M3FNType>(type);
  Value vector = isFloat8 ? vector::BitCastOp::create(b, loc, asWords, load).getResult() : bitcast(load, asWords);
  Values words;
  for (int64_t n = 0; n < count; ++n)
    words.push_back(extract(vector, n));
  return words;
}

LaneBuilder::Values BlockBuilder::loadWide(Value flat, Value offset, int64_t count) {
  Type type = cast<MemRefType>(flat.getType()).getElementType();
  bool isFloat8 = isa<Float8E4M3FNType>(type);
  ThreadCode thread(b, loc);
  if (count == 1 && isFloat8) {
    Num byte = attn::bitcast(thread.asNum(load(flat, offset)), b.getI8Type());
    return {fromFloat8(thread, convertUnsigned(byte, b.getI16Type()))[0].value()};
  }
  if (count == 1)
    return {toF32(load(flat, offset))};
  Values values;
  if (type.isF32()) {
    for (int64_t n = 0; n < count; n += 4)
      llvm::append_range(values, loadFew(flat, add(offset, n), std::min<int64_t>(count, 4)));
    return values;
  }
  if (isFloat8) {
    for (Value word : loadWords(flat, offset, count / 4))
      llvm::append_range(values, ThreadCode::values<Num>(fromFloat8Word(thread, thread.asNum(word))));
    return values;
  }
  for (Value word : loadWords(flat, offset, count / 2))
    llvm::append_range(values, unpacked(word, type.isF16() ? Precision::f16 : Precision::bf16));
  return values;
}

void BlockBuilder::storeFew(ArrayRef<Value> values, Value flat, Value offset) {
  auto given = VectorType::get({static_cast<int64_t>(values.size())}, values.front().getType());
  Type element = cast<MemRefType>(flat.getType()).getElementType();
  Value vector = vector::FromElementsOp::create(b, loc, given, values);
  if (element != given.getElementType())
    vector = fromF32(vector, element);
  auto type = cast<VectorType>(vector.getType());
  auto store = vector::StoreOp::create(b, loc, vector, flat, offset);
  store->setAttr(store.getAlignmentAttrName(), align(b, type.getNumElements() * type.getElementTypeBitWidth() / 8));
}

void BlockBuilder::storeWords(ArrayRef<Value> words, Value flat, Value offset) {
  Type type = cast<MemRefType>(flat.getType()).getElementType();
  auto count = static_cast<int64_t>(words.size()), inWord = 32 / int64_t(type.getIntOrFloatBitWidth());
  Value vector = vector::FromElementsOp::create(b, loc, VectorType::get({count}, b.getI32Type()), words);
  auto store = vector::StoreOp::create(b, loc, bitcast(vector, VectorType::get({inWord * count}, type)), flat, offset);
  store->setAttr(store.getAlignmentAttrName(), align(b, 4 * count));
}

/// Element `offset` of a flat buffer, as a pointer to `space`.
static Value pointerTo(BlockBuilder &k, Value flat, Value offset, unsigned space, int64_t elementBytes = 4) {
  OpBuilder &b = k.b;
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, k.loc, flat);
  Value address = k.add(base, k.mul(offset, elementBytes));
  Value bits = arith::IndexCastOp::create(b, k.loc, b.getI64Type(), address);
  return LLVM::IntToPtrOp::create(b, k.loc, LLVM::LLVMPointerType::get(b.getContext(), space), bits);
}

void BlockBuilder::gridBarrier(Value counters, Value place, Value arrivals) {
  constexpr int64_t kBytes = 8;
  constexpr const char *kScope = "device";
  barrier(); // what the block's threads have written is there for the one that says so
  Value isFirst = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, thread, index(0));
  branch(isFirst, [&] {
    Value pointer = pointerTo(*this, counters, place, /*space=*/1, kBytes);
    Value one = arith::ConstantIntOp::create(b, loc, 1, 64);
    Value wanted = arith::IndexCastOp::create(b, loc, b.getI64Type(), arrivals);
    // For NVPTX an atomicrmw is relaxed, whatever its ordering.
    LLVM::FenceOp::create(b, loc, LLVM::AtomicOrdering::release, kScope);
    LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::add, pointer, one, LLVM::AtomicOrdering::monotonic, kScope);
    auto read = [&]() -> Value {
      return LLVM::LoadOp::create(b, loc, b.getI64Type(), pointer, kBytes, /*isVolatile=*/false,
                                  /*isNonTemporal=*/false, /*isInvariant=*/false, /*isInvariantGroup=*/false,
                                  LLVM::AtomicOrdering::acquire, kScope);
    };
    repeat(read(), [&](ValueRange seen) { return less(seen[0], wanted); }, [&](ValueRange) { return Values{read()}; });
  });
  barrier();
}

void BlockBuilder::copyAsync(Value to, Value toOffset, Value from, Value fromOffset, int64_t words, Value isInside) {
  constexpr unsigned kGlobal = 1, kShared = 3;
  // The address must be valid even where nothing is read.
  int64_t elementBytes = cast<MemRefType>(from.getType()).getElementTypeBitWidth() / 8;
  Value source = pointerTo(*this, from, select(isInside, fromOffset, index(0)), kGlobal, elementBytes);
  Value target = pointerTo(*this, to, toOffset, kShared);
  auto number = [&](int64_t value) -> Value { return arith::ConstantIntOp::create(b, loc, value, 32); };
  Value bytes = select(isInside, number(4 * words), number(0));
  // Only copies of 16 bytes can pass by the L1 cache.
  auto modifier = words == 4 ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA;
  NVVM::CpAsyncOp::create(b, loc, target, source, b.getI32IntegerAttr(4 * words),
                          NVVM::LoadCacheModifierKindAttr::get(b.getContext(), modifier), bytes);
}

LaneBuilder::Values BlockBuilder::loadMatrices(Value flat, Value offset, bool transposed, Precision precision) {
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getI32Type()));
  Value four =
      NVVM::LdMatrixOp::create(b, loc, type, pointerTo(*this, flat, offset, /*space=*/3), 4,
                               transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                               NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8), NVVM::LdStMatrixEltType::B16);
  Values result;
  for (int64_t n = 0; n < 4; ++n) {
    Value part = LLVM::ExtractValueOp::create(b, loc, four, n);
    result.push_back(precision == Precision::f16 ? bitcast(part, VectorType::get({2}, b.getF16Type())) : part);
  }
  return result;
}

Value BlockBuilder::bitcast(Value x, Type type) { return LLVM::BitcastOp::create(b, loc, type, x); }

LaneBuilder::Values BlockBuilder::unpacked(Value word, Precision precision) {
  Type type = precision == Precision::f16 ? Type(b.getF16Type()) : Type(b.getBF16Type());
  Value pair = bitcast(word, VectorType::get({2}, type));
  Values result;
  for (int64_t n = 0; n < 2; ++n)
    result.push_back(arith::ExtFOp::create(b, loc, b.getF32Type(), extract(pair, n)));
  return result;
}

void BlockBuilder::warpBarrier() { NVVM::SyncWarpOp::create(b, loc, arith::ConstantIntOp::create(b, loc, -1, 32)); }

void BlockBuilder::commitCopies() { NVVM::CpAsyncCommitGroupOp::create(b, loc); }
void BlockBuilder::waitForCopies(int64_t pending) {
  NVVM::CpAsyncWaitGroupOp::create(b, loc, b.getI32IntegerAttr(pending));
}

Value BlockBuilder::acrossThreads(Value x, int64_t width, llvm::function_ref<Value(Value, Value)> combine,
                                  int64_t apart) {
  for (int64_t distance = width / 2 * apart; distance >= apart; distance /= 2) {
    auto other = gpu::ShuffleOp::create(b, loc, x, static_cast<int32_t>(distance), 32, gpu::ShuffleMode::XOR);
    x = combine(x, other.getShuffleResult());
  }
  return x;
}

LaneBuilder::Values BlockBuilder::transposeFour(ArrayRef<Value> four) {
  Values words(four);
  for (int64_t distance : {1, 2}) {
    Value isUpper = less(index(0), rem(div(thread, index(distance)), index(2)));
    for (int64_t n = 0; n < 4; ++n) {
      if (n & distance)
        continue;
      Value &low = words[n], &high = words[n + distance];
      auto other = gpu::ShuffleOp::create(b, loc, select(isUpper, low, high), static_cast<int32_t>(distance), 32,
                                          gpu::ShuffleMode::XOR);
      low = select(isUpper, other.getShuffleResult(), low);
      high = select(isUpper, high, other.getShuffleResult());
    }
  }
  return words;
}

Value BlockBuilder::acrossBlock(Value x, int64_t threads, Value shared,
                                llvm::function_ref<Value(Value, Value)> combine) {
  constexpr int64_t kWarp = 32;
  Type type = x.getType();
  x = acrossThreads(x, kWarp, combine);
  barrier(); // what was exchanged before has been read
  branch(less(rem(thread, index(kWarp)), index(1)),
         [&] { memref::StoreOp::create(b, loc, bitcast(x, b.getF32Type()), shared, div(thread, index(kWarp))); });
  barrier();
  Values parts;
  for (int64_t n = 0; n < threads / kWarp; ++n)
    parts.push_back(bitcast(load(shared, index(n)), type));
  return tree(parts, combine);
}

Value BlockBuilder::exp2Fast(Value x) {
  return LLVM::CallIntrinsicOp::create(b, loc, b.getF32Type(), b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f32"),
                                       ValueRange{x})
      .getResult(0);
}

Value BlockBuilder::greater(Value x, Value y) { return arith::MaximumFOp::create(b, loc, x, y); }

Value BlockBuilder::cloneScalar(Block &block, ValueRange arguments, llvm::function_ref<Value(Operation &)> special,
                                Value root) {
  IRMapping map;
  map.map(block.getArguments(), arguments);
  for (Operation &each : block.without_terminator()) {
    // Constants may stand outside, in another function.
    for (Value operand : each.getOperands())
      if (!map.contains(operand) && operand.getParentBlock() != &block)
        map.map(operand, b.clone(*operand.getDefiningOp())->getResult(0));
    if (Value value = special ? special(each) : Value())
      map.map(each.getResult(0), value);
    else
      b.clone(each, map);
  }
  return map.lookupOrDefault(root ? root : block.getTerminator()->getOperand(0));
}

LaneBuilder::Values BlockBuilder::packed(ArrayRef<Value> four, Precision precision) {
  Values result;
  if (precision == Precision::tf32) {
    for (Value x : four)
      result.push_back(NVVM::ConvertFloatToTF32Op::create(b, loc, b.getI32Type(), x, NVVM::FPRoundingMode::RNA,
                                                          NVVM::SaturationMode::NONE, /*relu=*/false));
    return result;
  }
  bool isF16 = precision == Precision::f16;
  auto narrow = VectorType::get({2}, isF16 ? Type(b.getF16Type()) : Type(b.getBF16Type()));
  for (ArrayRef<Value> pair : {four.take_front(2), four.drop_front(2)}) {
    Value wide = vector::FromElementsOp::create(b, loc, VectorType::get({2}, b.getF32Type()), pair);
    Value x = arith::TruncFOp::create(b, loc, narrow, wide);
    result.push_back(isF16 ? x : LLVM::BitcastOp::create(b, loc, b.getI32Type(), x));
  }
  return result;
}

LaneBuilder::Values BlockBuilder::multiplyMatrices(ArrayRef<Value> top, ArrayRef<Value> bottom, ArrayRef<Value> column,
                                                   ArrayRef<Value> sums, Precision precision) {
  using Layouts = std::array<NVVM::MMALayout, 2>;
  using Types = std::array<NVVM::MMATypes, 2>;
  bool isTf32 = precision == Precision::tf32;
  NVVM::MMATypes type = isTf32                        ? NVVM::MMATypes::tf32
                        : precision == Precision::f16 ? NVVM::MMATypes::f16
                                                      : NVVM::MMATypes::bf16;
  auto result = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getF32Type()));
  Values current(sums);
  // tf32 goes 8 deep: the places of a step may be any, the same of A and B.
  for (int64_t step = 0; step < (isTf32 ? 2 : 1); ++step) {
    int64_t n = 2 * step;
    Values left = {top[n], bottom[n], top[n + 1], bottom[n + 1]}, right = {column[n], column[n + 1]};
    Value product =
        NVVM::MmaOp::create(b, loc, result, left, right, current, {16, 8, isTf32 ? 8 : 16}, std::nullopt, std::nullopt,
                            Types{type, type}, Layouts{NVVM::MMALayout::row, NVVM::MMALayout::col});
    for (int64_t i = 0; i < 4; ++i)
      current[i] = LLVM::ExtractValueOp::create(b, loc, product, i);
  }
  return current;
}

} // namespace attn
