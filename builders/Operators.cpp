#include "builders/Operators.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace attn {

template <typename Op, typename... Args> static Value make(const Term &at, Args &&...args) {
  return at.builder().createOrFold<Op>(at.location(), std::forward<Args>(args)...);
}

/// `element`, or a vector of as many as `like` has lanes.
static Type shaped(const Term &like, Type element) {
  auto vector = dyn_cast<VectorType>(like.type());
  return vector ? Type(vector.clone(element)) : element;
}

static Value constantOf(OpBuilder &b, Location loc, Type type, TypedAttr element) {
  auto vector = dyn_cast<VectorType>(type);
  TypedAttr value = vector ? cast<TypedAttr>(Attribute(SplatElementsAttr::get(vector, Attribute(element)))) : element;
  return arith::ConstantOp::create(b, loc, value);
}

Value emit::constant(OpBuilder &b, Location loc, Type type, int64_t c) {
  Type element = getElementTypeOrSelf(type);
  if (isa<FloatType>(element))
    return constant(b, loc, type, static_cast<double>(c));
  unsigned bits = isa<IndexType>(element) ? IndexType::kInternalStorageBitWidth : element.getIntOrFloatBitWidth();
  APInt value = APInt(64, static_cast<uint64_t>(c), true).sextOrTrunc(bits);
  return constantOf(b, loc, type, IntegerAttr::get(element, value));
}

Value emit::constant(OpBuilder &b, Location loc, Type type, double c) {
  Type element = getElementTypeOrSelf(type);
  if (!isa<FloatType>(element))
    return constant(b, loc, type, static_cast<int64_t>(c));
  return constantOf(b, loc, type, FloatAttr::get(element, c));
}

static Value zeroLike(const Term &x) { return emit::constant(x.builder(), x.location(), x.type(), int64_t(0)); }

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

template <typename FloatOp, typename IntOp> static Value arithmetic(const Term &x, const Term &y) {
  return x.isFloating() ? make<FloatOp>(x, x.value(), y.value()) : make<IntOp>(x, x.value(), y.value());
}

Value emit::add(const Term &x, const Term &y) { return arithmetic<arith::AddFOp, arith::AddIOp>(x, y); }
Value emit::subtract(const Term &x, const Term &y) { return arithmetic<arith::SubFOp, arith::SubIOp>(x, y); }
Value emit::multiply(const Term &x, const Term &y) { return arithmetic<arith::MulFOp, arith::MulIOp>(x, y); }
Value emit::divide(const Term &x, const Term &y) {
  assert((x.isFloating() || x.type().isIndex()) && "which division of integers?");
  return arithmetic<arith::DivFOp, arith::DivUIOp>(x, y);
}
Value emit::remainder(const Term &x, const Term &y) {
  assert(x.type().isIndex() && "which remainder?");
  return make<arith::RemUIOp>(x, x.value(), y.value());
}
Value emit::bitAnd(const Term &x, const Term &y) { return make<arith::AndIOp>(x, x.value(), y.value()); }
Value emit::bitOr(const Term &x, const Term &y) { return make<arith::OrIOp>(x, x.value(), y.value()); }
Value emit::bitXor(const Term &x, const Term &y) { return make<arith::XOrIOp>(x, x.value(), y.value()); }
Value emit::shiftLeft(const Term &x, const Term &y) { return make<arith::ShLIOp>(x, x.value(), y.value()); }
Value emit::shiftRight(const Term &x, const Term &y) { return make<arith::ShRUIOp>(x, x.value(), y.value()); }
Value emit::shiftRightSigned(const Term &x, const Term &y) { return make<arith::ShRSIOp>(x, x.value(), y.value()); }

Value emit::negate(const Term &x) {
  if (x.isFloating())
    return make<arith::NegFOp>(x, x.value());
  return make<arith::SubIOp>(x, zeroLike(x), x.value());
}

Value emit::compare(Relation relation, const Term &x, const Term &y, bool isUnsigned) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  constexpr F floats[] = {F::OLT, F::OLE, F::OGT, F::OGE, F::OEQ, F::UNE};
  constexpr I integers[] = {I::slt, I::sle, I::sgt, I::sge, I::eq, I::ne},
              naturals[] = {I::ult, I::ule, I::ugt, I::uge, I::eq, I::ne};
  auto n = static_cast<size_t>(relation);
  if (x.isFloating())
    return make<arith::CmpFOp>(x, floats[n], x.value(), y.value());
  return make<arith::CmpIOp>(x, (isUnsigned ? naturals : integers)[n], x.value(), y.value());
}

Value emit::select(const Term &condition, const Term &x, const Term &y) {
  return make<arith::SelectOp>(x, condition.value(), x.value(), y.value());
}

Value emit::maximum(const Term &x, const Term &y, bool isUnsigned) {
  return isUnsigned ? arithmetic<arith::MaximumFOp, arith::MaxUIOp>(x, y)
                    : arithmetic<arith::MaximumFOp, arith::MaxSIOp>(x, y);
}
Value emit::minimum(const Term &x, const Term &y, bool isUnsigned) {
  return isUnsigned ? arithmetic<arith::MinimumFOp, arith::MinUIOp>(x, y)
                    : arithmetic<arith::MinimumFOp, arith::MinSIOp>(x, y);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Value emit::sqrt(const Term &x) { return make<math::SqrtOp>(x, x.value()); }
Value emit::exp(const Term &x) { return make<math::ExpOp>(x, x.value()); }
Value emit::expm1(const Term &x) { return make<math::ExpM1Op>(x, x.value()); }
Value emit::log(const Term &x) { return make<math::LogOp>(x, x.value()); }
Value emit::log1p(const Term &x) { return make<math::Log1pOp>(x, x.value()); }
Value emit::erf(const Term &x) { return make<math::ErfOp>(x, x.value()); }
Value emit::tanh(const Term &x) { return make<math::TanhOp>(x, x.value()); }
Value emit::sin(const Term &x) { return make<math::SinOp>(x, x.value()); }
Value emit::cos(const Term &x) { return make<math::CosOp>(x, x.value()); }
Value emit::asin(const Term &x) { return make<math::AsinOp>(x, x.value()); }
Value emit::acos(const Term &x) { return make<math::AcosOp>(x, x.value()); }
Value emit::atan(const Term &x) { return make<math::AtanOp>(x, x.value()); }
Value emit::floor(const Term &x) { return make<math::FloorOp>(x, x.value()); }
Value emit::ceil(const Term &x) { return make<math::CeilOp>(x, x.value()); }
Value emit::roundEven(const Term &x) { return make<math::RoundEvenOp>(x, x.value()); }
Value emit::abs(const Term &x) {
  return x.isFloating() ? make<math::AbsFOp>(x, x.value()) : make<math::AbsIOp>(x, x.value());
}
Value emit::copySign(const Term &magnitude, const Term &sign) {
  return make<math::CopySignOp>(magnitude, magnitude.value(), sign.value());
}
Value emit::fma(const Term &x, const Term &y, const Term &z) {
  if (isa<VectorType>(x.type()))
    return make<vector::FMAOp>(x, x.value(), y.value(), z.value());
  return make<math::FmaOp>(x, x.value(), y.value(), z.value());
}
Value emit::countOnes(const Term &x) { return make<math::CtPopOp>(x, x.value()); }

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

Value emit::convert(const Term &x, Type to, bool isUnsigned) {
  Type from = x.element(), type = shaped(x, to);
  if (from == to)
    return x.value();
  if (isa<IndexType>(from) || isa<IndexType>(to))
    return isUnsigned ? make<arith::IndexCastUIOp>(x, type, x.value()) : make<arith::IndexCastOp>(x, type, x.value());
  bool widens = to.getIntOrFloatBitWidth() > from.getIntOrFloatBitWidth();
  if (isa<FloatType>(from) && isa<FloatType>(to)) {
    if (widens)
      return make<arith::ExtFOp>(x, type, x.value());
    Value wide = x.value();
    if (to.getIntOrFloatBitWidth() == from.getIntOrFloatBitWidth()) // bf16 and f16
      wide = make<arith::ExtFOp>(x, shaped(x, x.builder().getF32Type()), wide);
    return make<arith::TruncFOp>(x, type, wide);
  }
  if (isa<FloatType>(from))
    return isUnsigned ? make<arith::FPToUIOp>(x, type, x.value()) : make<arith::FPToSIOp>(x, type, x.value());
  if (isa<FloatType>(to))
    return isUnsigned ? make<arith::UIToFPOp>(x, type, x.value()) : make<arith::SIToFPOp>(x, type, x.value());
  if (!widens)
    return make<arith::TruncIOp>(x, type, x.value());
  return isUnsigned ? make<arith::ExtUIOp>(x, type, x.value()) : make<arith::ExtSIOp>(x, type, x.value());
}

Value emit::bitcast(const Term &x, Type to) {
  auto vector = dyn_cast<VectorType>(x.type());
  if (!vector)
    return make<arith::BitcastOp>(x, to, x.value());
  int64_t bits = vector.getDimSize(0) * vector.getElementTypeBitWidth();
  return make<vector::BitCastOp>(x, VectorType::get({bits / to.getIntOrFloatBitWidth()}, to), x.value());
}

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

Value emit::splat(const Term &scalar, int64_t lanes) {
  return make<vector::BroadcastOp>(scalar, VectorType::get({lanes}, scalar.type()), scalar.value());
}

Num extract(const Vec &x, int64_t lane) {
  return Num(x.builder(), x.location(), make<vector::ExtractOp>(x, x.value(), lane));
}

Vec vectorOf(ArrayRef<Num> elements) {
  const Num &first = elements.front();
  auto type = VectorType::get({static_cast<int64_t>(elements.size())}, first.type());
  return Vec(first.builder(), first.location(),
             make<vector::FromElementsOp>(first, type, SmallVector<Value>(elements)));
}

Vec shuffle(const Vec &x, const Vec &y, ArrayRef<int64_t> positions) {
  return x.with(make<vector::ShuffleOp>(x, x.value(), y.value(), positions));
}

static Value reduce(const Term &x, vector::CombiningKind kind) { return make<vector::ReductionOp>(x, kind, x.value()); }
Num sumOfLanes(const Vec &x) { return Num(x.builder(), x.location(), reduce(x, vector::CombiningKind::ADD)); }
Num maximumOfLanes(const Vec &x) {
  auto kind = x.isFloating() ? vector::CombiningKind::MAXIMUMF : vector::CombiningKind::MAXSI;
  return Num(x.builder(), x.location(), reduce(x, kind));
}
Num orOfLanes(const Vec &x) { return Num(x.builder(), x.location(), reduce(x, vector::CombiningKind::OR)); }
Num andOfLanes(const Vec &x) { return Num(x.builder(), x.location(), reduce(x, vector::CombiningKind::AND)); }
Mask any(const Mask &x) { return x.with(reduce(x, vector::CombiningKind::OR)); }

Mask unlikely(const Mask &x) { return x.with(make<LLVM::ExpectOp>(x, x.value(), zeroLike(x))); }

} // namespace attn
