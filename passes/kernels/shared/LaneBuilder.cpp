#include "passes/kernels/shared/LaneBuilder.h"

#include "builders/Lanes.h"
#include "passes/kernels/shared/Exponential.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;

namespace attn {

//===----------------------------------------------------------------------===//
// index
//===----------------------------------------------------------------------===//

Value LaneBuilder::index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
Value LaneBuilder::add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
Value LaneBuilder::sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
Value LaneBuilder::mul(Value x, Value y) { return b.createOrFold<arith::MulIOp>(loc, x, y); }
Value LaneBuilder::div(Value x, Value y) { return b.createOrFold<arith::DivUIOp>(loc, x, y); }
Value LaneBuilder::rem(Value x, Value y) { return b.createOrFold<arith::RemUIOp>(loc, x, y); }
Value LaneBuilder::min(Value x, Value y) { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
Value LaneBuilder::max(Value x, Value y) { return b.createOrFold<arith::MaxSIOp>(loc, x, y); }
Value LaneBuilder::less(Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y);
}
Value LaneBuilder::floorTo(Value x, int64_t step) { return mul(div(x, index(step)), step); }
Value LaneBuilder::ceilDiv(Value x, int64_t step) { return div(add(x, step - 1), index(step)); }

std::optional<int64_t> LaneBuilder::constant(Value x) {
  APInt value;
  if (!matchPattern(x, m_ConstantInt(&value)))
    return std::nullopt;
  return value.getSExtValue();
}

//===----------------------------------------------------------------------===//
// f32 vectors
//===----------------------------------------------------------------------===//

Value LaneBuilder::splat(float value) {
  return arith::ConstantOp::create(b, loc, SplatElementsAttr::get(vectorType(), b.getF32FloatAttr(value)));
}
Value LaneBuilder::broadcast(Value scalar) {
  return vector::BroadcastOp::create(b, loc, VectorType::get({lanes}, scalar.getType()), scalar);
}
Value LaneBuilder::addf(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
Value LaneBuilder::subf(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
Value LaneBuilder::mulf(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
Value LaneBuilder::divf(Value x, Value y) { return arith::DivFOp::create(b, loc, x, y); }
Value LaneBuilder::fma(Value x, Value y, Value z) { return vector::FMAOp::create(b, loc, x, y, z); }
Value LaneBuilder::compare(arith::CmpFPredicate predicate, Value x, Value y) {
  return arith::CmpFOp::create(b, loc, predicate, x, y);
}
Value LaneBuilder::select(Value condition, Value x, Value y) {
  return b.createOrFold<arith::SelectOp>(loc, condition, x, y);
}
Value LaneBuilder::maxf(Value x, Value y) { return select(compare(arith::CmpFPredicate::OGT, x, y), x, y); }
Value LaneBuilder::any(Value mask) { return vector::ReductionOp::create(b, loc, vector::CombiningKind::OR, mask); }
Value LaneBuilder::either(Value x, Value y) { return b.createOrFold<arith::OrIOp>(loc, x, y); }
Value LaneBuilder::both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); }
Value LaneBuilder::unlikely(Value condition) {
  Value no = arith::ConstantOp::create(b, loc, b.getBoolAttr(false));
  return LLVM::ExpectOp::create(b, loc, condition, no);
}

Value LaneBuilder::tree(ArrayRef<Value> values, llvm::function_ref<Value(Value, Value)> combine) {
  return attn::tree(values, combine);
}

Value LaneBuilder::acrossLanes(Value x, llvm::function_ref<Value(Value, Value)> combine) {
  return attn::acrossLanes(Vec(b, loc, x), [&](Vec x, Vec y) { return x.with(combine(x, y)); });
}

Value LaneBuilder::addEstimatedQuotient(Value sum, Value x, Value y) {
  Code k(b, loc);
  Num all = k.number(b.getI16Type(), int64_t(-1));
  Vec d = k.asVec(y), r = k.asVec(k.intrinsic("llvm.x86.avx512.rcp14.ps.512", y.getType(), {y, splat(0), all}));
  // r + r (1 - y r), which squares the error.
  Vec left = attn::fma(-d, r, constantLike(d, 1.0));
  return attn::fma(k.asVec(x), attn::fma(r, left, r), k.asVec(sum));
}

Value LaneBuilder::exp2(Value x) {
  Code k(b, loc);
  return attn::exp2(k, k.asVec(x), hasScalef);
}
Value LaneBuilder::expTwice(Value x) { return attn::expTwice(Vec(b, loc, x)); }

Value LaneBuilder::maxAbs(Value x, Value y) {
  Value magnitude = math::AbsFOp::create(b, loc, y);
  Value isNumber = compare(arith::CmpFPredicate::ORD, y, y);
  return maxf(x, select(isNumber, magnitude, splat(std::numeric_limits<float>::infinity())));
}

Value LaneBuilder::clamp(Value x, float bound) {
  Vec v(b, loc, x);
  return maxf(splat(-bound), atMost(v, constantLike(v, bound)));
}

Value LaneBuilder::scalar(float value) { return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value)); }
Value LaneBuilder::extract(Value vector, int64_t lane) { return vector::ExtractOp::create(b, loc, vector, lane); }

Value LaneBuilder::toF32(Value x) { return emit::convert(Num(b, loc, x), b.getF32Type(), /*isUnsigned=*/false); }

Value LaneBuilder::fromF32(Value x, Type type) { return emit::convert(Num(b, loc, x), type, /*isUnsigned=*/false); }

Value LaneBuilder::isNonZero(Value x) { return Num(b, loc, x) != 0; }

//===----------------------------------------------------------------------===//
// pairs
//===----------------------------------------------------------------------===//

Value LaneBuilder::pack(Value low, Value high) {
  Type pairs = VectorType::get({2 * lanes}, b.getBF16Type());
  Vec halves(b, loc, Code(b, loc).intrinsic("llvm.x86.avx512bf16.cvtne2ps2bf16.512", pairs, {high, low}));
  SmallVector<int64_t> order;
  for (int64_t n = 0; n < lanes; ++n)
    order.append({n, lanes + n});
  return bitcast(attn::shuffle(halves, halves, order), b.getF32Type());
}

std::pair<Value, Value> LaneBuilder::unpack(Value pairs) {
  Vec words = bitcast(Vec(b, loc, pairs), b.getI32Type());
  return {bitcast(words << 16, b.getF32Type()), bitcast(words & 0xffff0000, b.getF32Type())};
}

Value LaneBuilder::addProducts(Value sum, Value x, Value y) {
  Type bf16 = b.getBF16Type();
  return Code(b, loc).intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", vectorType(),
                                {sum, bitcast(Vec(b, loc, x), bf16), bitcast(Vec(b, loc, y), bf16)});
}

std::pair<Value, Value> LaneBuilder::interleave(Value x, Value y) {
  auto half = [&](int64_t first) -> Value {
    SmallVector<int64_t> order;
    for (int64_t n = 0; n < lanes; ++n)
      order.append({first + n, 2 * lanes + first + n});
    return bitcast(attn::shuffle(Vec(b, loc, x), Vec(b, loc, y), order), b.getF32Type());
  };
  return {half(0), half(lanes)};
}

//===----------------------------------------------------------------------===//
// memory
//===----------------------------------------------------------------------===//

Value LaneBuilder::scratch(int64_t elements, Type type) {
  return memref::AllocaOp::create(b, loc, MemRefType::get({elements}, type), b.getI64IntegerAttr(64));
}

void LaneBuilder::withoutDenormals(llvm::function_ref<void()> body) {
  if (lanes == 4) // no x86, or one of which no more is known
    return body();
  // What the control register held, and what it holds meanwhile: denormals are zeros (6), flush to zero (15).
  Value control = scratch(2, b.getI32Type());
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, control);
  auto call = [&](StringRef intrinsic, int64_t word) {
    Value place = arith::IndexCastOp::create(b, loc, b.getI64Type(), add(address, 4 * word));
    Value pointer = LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), place);
    LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr(intrinsic), ValueRange{pointer});
  };
  call("llvm.x86.sse.stmxcsr", 0);
  Value flags = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0x8040));
  Value set = arith::OrIOp::create(b, loc, load(control, index(0)), flags);
  memref::StoreOp::create(b, loc, set, control, index(1));
  call("llvm.x86.sse.ldmxcsr", 1);
  body();
  call("llvm.x86.sse.ldmxcsr", 0);
}

Value LaneBuilder::flatten(Value memref) { return Buffer(b, loc, memref).flat(); }

Value LaneBuilder::load(Value flat, Value offset) { return memref::LoadOp::create(b, loc, flat, offset); }

Value LaneBuilder::loadVector(Value flat, Value offset, int64_t length) {
  return Buffer(b, loc, flat).vector(length, Index(b, loc, offset));
}

Value LaneBuilder::loadFirst(Value flat, Value offset, Value count, int64_t length) {
  return Buffer(b, loc, flat).first(Index(b, loc, count), length, Index(b, loc, offset));
}

Value LaneBuilder::broadcastWord(Value flat, Value offset) {
  auto word = VectorType::get({1}, b.getF32Type());
  unsigned bits = cast<MemRefType>(flat.getType()).getElementTypeBitWidth();
  return broadcast(extract(vector::BitCastOp::create(b, loc, word, loadVector(flat, offset, 32 / bits)), 0));
}

void LaneBuilder::store(Value vector, Value flat, Value offset) {
  Buffer(b, loc, flat).setVector(Vec(b, loc, vector), Index(b, loc, offset));
}

void LaneBuilder::storeFirst(Value vector, Value flat, Value offset, Value count) {
  Buffer(b, loc, flat).setFirst(Vec(b, loc, vector), Index(b, loc, count), Index(b, loc, offset));
}

// Rows r, r + C, r + 2C... side by side in one vector make blocks of C x C that
// all transpose at once, by exchanging off-diagonal s x s blocks for s = 1, 2, 4...
SmallVector<Value> LaneBuilder::transpose(ArrayRef<Value> rows) {
  int64_t height = rows.size(), width = cast<VectorType>(rows.front().getType()).getDimSize(0);
  Values blocks;
  for (int64_t n = 0; n < width; ++n) {
    Values column;
    for (int64_t r = n; r < height; r += width)
      column.push_back(rows[r]);
    blocks.push_back(tree(column, [&](Value x, Value y) -> Value {
      int64_t length = cast<VectorType>(x.getType()).getDimSize(0);
      return vector::ShuffleOp::create(b, loc, x, y, llvm::to_vector(llvm::seq<int64_t>(2 * length)));
    }));
  }
  for (int64_t s = 1; s < width; s *= 2)
    for (int64_t n = 0; n < width; ++n) {
      if (n & s)
        continue;
      SmallVector<int64_t> low, high;
      for (int64_t k = 0; k < height; ++k) {
        low.push_back(k & s ? height + k - s : k);
        high.push_back(k & s ? height + k : k + s);
      }
      Value upper = blocks[n], lower = blocks[n + s];
      blocks[n] = vector::ShuffleOp::create(b, loc, upper, lower, low);
      blocks[n + s] = vector::ShuffleOp::create(b, loc, upper, lower, high);
    }
  return blocks;
}

//===----------------------------------------------------------------------===//
// control
//===----------------------------------------------------------------------===//

LaneBuilder::Values LaneBuilder::loop(Value lower, Value upper, int64_t step, ValueRange init,
                                      llvm::function_ref<Values(Value, ValueRange)> body) {
  auto op = scf::ForOp::create(
      b, loc, lower, upper, index(step), init,
      [&](OpBuilder &, Location, Value n, ValueRange values) { scf::YieldOp::create(b, loc, body(n, values)); });
  auto unroll = LLVM::LoopUnrollAttr::get(b.getContext(), /*disable=*/b.getBoolAttr(true), {}, {}, {}, {}, {}, {});
  op->setAttr("llvm.loop_annotation", LLVM::LoopAnnotationAttr::get(b.getContext(), {}, {}, {}, unroll, {}, {}, {}, {},
                                                                    {}, {}, {}, {}, {}, {}, {}));
  return Values(op.getResults());
}

void LaneBuilder::loop(Value lower, Value upper, int64_t step, llvm::function_ref<void(Value)> body) {
  loop(lower, upper, step, ValueRange(), [&](Value n, ValueRange) {
    body(n);
    return Values();
  });
}

LaneBuilder::Values LaneBuilder::repeat(ValueRange init, llvm::function_ref<Value(ValueRange)> condition,
                                        llvm::function_ref<Values(ValueRange)> body) {
  auto op = scf::WhileOp::create(
      b, loc, init.getTypes(), init,
      [&](OpBuilder &, Location, ValueRange values) { scf::ConditionOp::create(b, loc, condition(values), values); },
      [&](OpBuilder &, Location, ValueRange values) { scf::YieldOp::create(b, loc, body(values)); });
  return Values(op.getResults());
}

LaneBuilder::Values LaneBuilder::branch(Value condition, TypeRange types, llvm::function_ref<Values()> then,
                                        llvm::function_ref<Values()> otherwise) {
  auto op = scf::IfOp::create(b, loc, types, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (auto [region, emit] : {std::pair(&op.getThenRegion(), then), std::pair(&op.getElseRegion(), otherwise)}) {
    b.setInsertionPointToStart(&region->front());
    Values values = emit();
    if (!region->front().mightHaveTerminator())
      scf::YieldOp::create(b, loc, values);
  }
  return Values(op.getResults());
}

void LaneBuilder::branch(Value condition, llvm::function_ref<void()> then) {
  auto op = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&op.getThenRegion().front());
  then();
}

} // namespace attn
