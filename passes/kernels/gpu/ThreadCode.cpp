#include "passes/kernels/gpu/ThreadCode.h"

#include "dialects/attn/DeviceOps.h"
#include "passes/kernels/gpu/Float8.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace attn {

constexpr int64_t kWarp = 32, kWordBytes = 4;
/// Address spaces of pointers.
constexpr unsigned kGlobal = 1, kShared = 3;

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

SmallVector<Buffer> ThreadCode::launch(const Index &blocks, int64_t threads, ArrayRef<int64_t> sharedElements,
                                       Value dynamicBytes, int64_t sharedBytes) {
  SmallVector<Type> shared;
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  for (int64_t elements : sharedElements)
    shared.push_back(MemRefType::get({elements}, b.getF32Type(), MemRefLayoutAttrInterface(), space));
  if (sharedBytes)
    shared.push_back(MemRefType::get({sharedBytes}, b.getI8Type(), MemRefLayoutAttrInterface(), space));
  Index one = index(1);
  auto op = gpu::LaunchOp::create(b, loc, blocks, one, one, index(threads), one, one, dynamicBytes,
                                  /*asyncTokenType=*/Type(), /*asyncDependencies=*/ValueRange(), shared);
  b.setInsertionPointToStart(&op.getBody().front());
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(&op.getBody().front());
  block = asIndex(op.getBlockIds().x);
  thread = asIndex(op.getThreadIds().x);
  return llvm::map_to_vector(op.getWorkgroupAttributions(), [&](Value array) { return asBuffer(array); });
}

void ThreadCode::setResidentBlocks(int64_t blocks) {
  b.getInsertionBlock()->getParentOp()->setAttr(kResidentBlocksAttr, b.getI64IntegerAttr(blocks));
}

void ThreadCode::keepRolled() {
  LLVM::InlineAsmOp::create(b, loc, TypeRange(), ValueRange(), ".pragma \"nounroll\";", "", /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
}

void ThreadCode::whenSm90a(Sm90a use, llvm::function_ref<void()> exact, llvm::function_ref<void()> others,
                           Mask isWanted) {
  if (use == Sm90a::none)
    return others();
  if (use == Sm90a::only)
    return isWanted.value() ? when(isWanted, exact, others) : exact();
  constexpr int64_t kArch = 90;
  Mask isExact = asIndex(ExactArchOp::create(b, loc, b.getIndexType())) == kArch;
  when(isWanted.value() ? isExact & isWanted : isExact, exact, others);
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

void ThreadCode::barrier() { gpu::BarrierOp::create(b, loc); }
void ThreadCode::warpBarrier() { NVVM::SyncWarpOp::create(b, loc, i32(-1)); }

void ThreadCode::gridBarrier(const Buffer &counters, const Index &place, const Index &arrivals) {
  constexpr int64_t kBytes = 8;
  constexpr const char *kScope = "device";
  barrier(); // what the block's threads have written is there for the one that says so
  when(thread == 0, [&] {
    Value pointer = pointerTo(counters, place, kGlobal, kBytes);
    Num one = i64(1), wanted = toNum(arrivals, b.getI64Type());
    // For NVPTX an atomicrmw is relaxed, whatever its ordering.
    LLVM::FenceOp::create(b, loc, LLVM::AtomicOrdering::release, kScope);
    LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::add, pointer, one, LLVM::AtomicOrdering::monotonic, kScope);
    auto read = [&] {
      return asNum(LLVM::LoadOp::create(b, loc, b.getI64Type(), pointer, kBytes, /*isVolatile=*/false,
                                        /*isNonTemporal=*/false, /*isInvariant=*/false, /*isInvariantGroup=*/false,
                                        LLVM::AtomicOrdering::acquire, kScope));
    };
    repeat(read(), [&](Num seen) { return seen < wanted; }, [&](Num) { return read(); });
  });
  barrier();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Says of a load or store of a vector of `type` that it is aligned to it.
template <typename Op> static void alignToAll(Op op, VectorType type) {
  int64_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
  op->setAttr(op.getAlignmentAttrName(), IntegerAttr::get(IntegerType::get(op.getContext(), 64), bytes));
}

static Vec loadAligned(ThreadCode &k, const Buffer &flat, const Index &at, int64_t lanes) {
  auto type = VectorType::get({lanes}, flat.memref().getElementType());
  auto load = vector::LoadOp::create(k.b, k.loc, type, flat.value(), at.value());
  alignToAll(load, type);
  return k.asVec(load);
}

static void storeAligned(const Vec &x, const Buffer &flat, const Index &at) {
  auto store = vector::StoreOp::create(x.builder(), x.location(), x.value(), flat.value(), at.value());
  alignToAll(store, cast<VectorType>(x.type()));
}

static Nums elementsOf(const Vec &x) {
  return llvm::map_to_vector(llvm::seq(x.lanes()), [&](int64_t n) { return extract(x, n); });
}

Nums ThreadCode::loadFew(const Buffer &flat, const Index &at, int64_t count) {
  return elementsOf(loadAligned(*this, flat, at, count));
}

Nums ThreadCode::loadWords(const Buffer &flat, const Index &at, int64_t count) {
  int64_t inWord = 8 * kWordBytes / flat.memref().getElementTypeBitWidth();
  return elementsOf(bitcast(loadAligned(*this, flat, at, inWord * count), b.getI32Type()));
}

Nums ThreadCode::loadWide(const Buffer &flat, const Index &at, int64_t count) {
  Type type = flat.memref().getElementType();
  bool isFloat8 = isa<Float8E4M3FNType>(type);
  if (count == 1 && isFloat8) {
    Num byte = bitcast(flat(at), b.getI8Type());
    return {fromFloat8(*this, convertUnsigned(byte, b.getI16Type()))[0]};
  }
  if (count == 1)
    return {convert(flat(at), b.getF32Type())};
  Nums wide;
  if (type.isF32()) {
    for (int64_t n = 0; n < count; n += 4)
      llvm::append_range(wide, loadFew(flat, at + n, std::min<int64_t>(count, 4)));
    return wide;
  }
  for (const Num &word : loadWords(flat, at, count * type.getIntOrFloatBitWidth() / (8 * kWordBytes)))
    llvm::append_range(wide, isFloat8 ? fromFloat8Word(*this, word) : unpacked(word, precisionOf(type)));
  return wide;
}

void ThreadCode::storeFew(ArrayRef<Num> few, const Buffer &flat, const Index &at) {
  storeAligned(convert(vectorOf(few), flat.memref().getElementType()), flat, at);
}

void ThreadCode::storeWords(ArrayRef<Num> words, const Buffer &flat, const Index &at) {
  storeAligned(bitcast(vectorOf(words), flat.memref().getElementType()), flat, at);
}

/// Element `at` of a flat buffer, as a pointer to `space`.
Value ThreadCode::pointerTo(const Buffer &flat, const Index &at, unsigned space, int64_t elementBytes) {
  Index base = flat.address(), address = base + at * elementBytes;
  Num bits = toNum(address, b.getI64Type());
  return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), space), bits.value());
}

void ThreadCode::copyAsync(const Buffer &to, const Index &toAt, const Buffer &from, const Index &fromAt, int64_t words,
                           const Mask &isInside) {
  // The address must be valid even where nothing is read.
  Index readable = select(isInside, fromAt, index(0));
  Value source = pointerTo(from, readable, kGlobal, from.memref().getElementTypeBitWidth() / 8);
  Value target = pointerTo(to, toAt, kShared, kWordBytes);
  int64_t all = kWordBytes * words;
  Num some = i32(all), none = i32(0), bytes = select(isInside, some, none);
  // Only copies of 16 bytes can pass by the L1 cache.
  auto modifier = words == 4 ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA;
  NVVM::CpAsyncOp::create(b, loc, target, source, b.getI32IntegerAttr(all),
                          NVVM::LoadCacheModifierKindAttr::get(b.getContext(), modifier), bytes);
}

void ThreadCode::commitCopies() { NVVM::CpAsyncCommitGroupOp::create(b, loc); }
void ThreadCode::waitForCopies(int64_t pending) {
  NVVM::CpAsyncWaitGroupOp::create(b, loc, b.getI32IntegerAttr(pending));
}

//===----------------------------------------------------------------------===//
// Matrix units
//===----------------------------------------------------------------------===//

Nums ThreadCode::packed(ArrayRef<Num> four, Precision precision) {
  Nums result;
  if (precision == Precision::tf32) {
    for (const Num &x : four)
      result.push_back(asNum(NVVM::ConvertFloatToTF32Op::create(b, loc, b.getI32Type(), x, NVVM::FPRoundingMode::RNA,
                                                                NVVM::SaturationMode::NONE, /*relu=*/false)));
    return result;
  }
  bool isF16 = precision == Precision::f16;
  for (ArrayRef<Num> pair : {four.take_front(2), four.drop_front(2)}) {
    Vec narrow = convert(vectorOf(pair), isF16 ? Type(b.getF16Type()) : Type(b.getBF16Type()));
    result.push_back(isF16 ? asNum(narrow) : asWord(narrow));
  }
  return result;
}

Nums ThreadCode::multiplyMatrices(ArrayRef<Num> top, ArrayRef<Num> bottom, ArrayRef<Num> column, ArrayRef<Num> sums,
                                  Precision precision) {
  using Layouts = std::array<NVVM::MMALayout, 2>;
  using Types = std::array<NVVM::MMATypes, 2>;
  bool isTf32 = precision == Precision::tf32;
  NVVM::MMATypes type = isTf32                        ? NVVM::MMATypes::tf32
                        : precision == Precision::f16 ? NVVM::MMATypes::f16
                                                      : NVVM::MMATypes::bf16;
  auto result = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getF32Type()));
  SmallVector<Value> current = values(sums);
  // tf32 goes 8 deep: the places of a step may be any, the same of A and B.
  for (int64_t step = 0; step < (isTf32 ? 2 : 1); ++step) {
    int64_t n = 2 * step;
    SmallVector<Value> left = {top[n], bottom[n], top[n + 1], bottom[n + 1]}, right = {column[n], column[n + 1]};
    Value product =
        NVVM::MmaOp::create(b, loc, result, left, right, current, {16, 8, isTf32 ? 8 : 16}, std::nullopt, std::nullopt,
                            Types{type, type}, Layouts{NVVM::MMALayout::row, NVVM::MMALayout::col});
    for (int64_t i = 0; i < 4; ++i)
      current[i] = LLVM::ExtractValueOp::create(b, loc, product, i);
  }
  return llvm::map_to_vector(current, [&](Value x) { return asNum(x); });
}

Nums ThreadCode::loadMatrices(const Buffer &flat, const Index &at, bool transposed, Precision precision) {
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getI32Type()));
  Value four =
      NVVM::LdMatrixOp::create(b, loc, type, pointerTo(flat, at, kShared, kWordBytes), 4,
                               transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                               NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8), NVVM::LdStMatrixEltType::B16);
  Nums result;
  for (int64_t n = 0; n < 4; ++n) {
    Value part = LLVM::ExtractValueOp::create(b, loc, four, n);
    result.push_back(asNum(precision == Precision::f16 ? bitsAs(part, VectorType::get({2}, b.getF16Type())) : part));
  }
  return result;
}

Nums ThreadCode::unpacked(const Num &word, Precision precision) {
  Type type = precision == Precision::f16 ? Type(b.getF16Type()) : Type(b.getBF16Type());
  Vec pair = asVec(bitsAs(word, VectorType::get({2}, type)));
  return llvm::map_to_vector(elementsOf(pair), [&](const Num &x) { return convert(x, b.getF32Type()); });
}

Value ThreadCode::bitsAs(Value x, Type type) { return LLVM::BitcastOp::create(b, loc, type, x); }

//===----------------------------------------------------------------------===//
// Between threads
//===----------------------------------------------------------------------===//

/// `x` of the lane whose number differs by the bit `distance`.
Num ThreadCode::fromLane(const Num &x, int64_t distance) {
  auto shuffle = gpu::ShuffleOp::create(b, loc, x, static_cast<int32_t>(distance), kWarp, gpu::ShuffleMode::XOR);
  return asNum(shuffle.getShuffleResult());
}

Num ThreadCode::acrossThreads(Num x, int64_t width, Combine combine, int64_t apart) {
  for (int64_t distance = width / 2 * apart; distance >= apart; distance /= 2)
    x = combine(x, fromLane(x, distance));
  return x;
}

Num ThreadCode::acrossBlock(Num x, int64_t threads, const Buffer &shared, Combine combine) {
  x = acrossThreads(x, kWarp, combine);
  barrier(); // what was exchanged before has been read
  when(thread % kWarp < 1, [&] {
    Num mine = bitcast(x, b.getF32Type());
    shared.set(mine, thread / kWarp);
  });
  barrier();
  Nums parts;
  for (int64_t n = 0; n < threads / kWarp; ++n)
    parts.push_back(bitcast(shared(n), x.type()));
  return tree<Num>(parts, combine);
}

Nums ThreadCode::transposeFour(ArrayRef<Num> four) {
  Nums words(four);
  for (int64_t distance : {1, 2}) {
    Mask isUpper = 0 < thread / distance % 2;
    for (int64_t n = 0; n < 4; ++n) {
      if (n & distance)
        continue;
      Num &low = words[n], &high = words[n + distance];
      Num other = fromLane(select(isUpper, low, high), distance);
      low = select(isUpper, other, low);
      high = select(isUpper, high, other);
    }
  }
  return words;
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Num ThreadCode::exp2Fast(const Num &x) { return asNum(intrinsic("llvm.nvvm.ex2.approx.ftz.f32", b.getF32Type(), {x})); }

Num ThreadCode::cloneScalar(Block &block, ValueRange arguments, llvm::function_ref<Value(Operation &)> special) {
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
  return asNum(map.lookupOrDefault(block.getTerminator()->getOperand(0)));
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Indices rowMajorStrides(ThreadCode &k, const Buffer &buffer) {
  int64_t rank = buffer.memref().getRank();
  Indices strides(rank);
  Index stride = k.index(1);
  for (int64_t n = rank; n-- > 0;) {
    strides[n] = stride;
    if (n)
      stride = stride * buffer.dim(n);
  }
  return strides;
}

Indices delinearize(Index linear, ArrayRef<Index> sizes) {
  Indices result(sizes.size());
  for (size_t n = sizes.size(); n-- > 0;) {
    result[n] = n ? linear % sizes[n] : linear;
    if (n)
      linear = linear / sizes[n];
  }
  return result;
}

} // namespace attn
