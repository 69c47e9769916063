#include "builders/Buffer.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace attn {

Value Place::at(const Term &near) const {
  if (index.value())
    return index;
  return arith::ConstantIndexOp::create(near.builder(), near.location(), constant);
}

static Index indexOf(const Term &near, int64_t value) {
  return Index(near.builder(), near.location(), arith::ConstantIndexOp::create(near.builder(), near.location(), value));
}

static Value zeros(const Term &near, Type type) {
  return arith::ConstantOp::create(near.builder(), near.location(), near.builder().getZeroAttr(type));
}

Mask firstLanes(const Index &count, int64_t lanes) {
  OpBuilder &b = count.builder();
  auto type = VectorType::get({lanes}, b.getI1Type());
  return count.truth(vector::CreateMaskOp::create(b, count.location(), type, count.value()));
}

SmallVector<Value> Buffer::places(Places at) const {
  SmallVector<Value> values;
  for (const Place &place : at)
    values.push_back(place.at(*this));
  return values;
}

Index Buffer::dim(int64_t n) const {
  return Index(builder(), location(), builder().createOrFold<memref::DimOp>(location(), value(), n));
}

Index Buffer::count(int64_t first, std::optional<int64_t> end) const {
  Index product = indexOf(*this, 1);
  for (int64_t n = first; n < end.value_or(memref().getRank()); ++n)
    product = product * dim(n);
  return product;
}

Num Buffer::load(Places at) const {
  return Num(builder(), location(), memref::LoadOp::create(builder(), location(), value(), places(at)));
}

void Buffer::store(const Term &x, Places at) const {
  memref::StoreOp::create(builder(), location(), x.value(), value(), places(at));
}

Num Buffer::update(arith::AtomicRMWKind kind, const Num &x, Places at) const {
  return x.with(memref::AtomicRMWOp::create(builder(), location(), x.type(), kind, x.value(), value(), places(at)));
}

Vec Buffer::loadVector(int64_t lanes, Places at) const {
  return vec(vector::LoadOp::create(builder(), location(), vectorOf(lanes), value(), places(at)));
}

Vec Buffer::loadMasked(const Mask &mask, const Vec &otherwise, Places at) const {
  return vec(vector::MaskedLoadOp::create(builder(), location(), otherwise.type(), value(), places(at), mask.value(),
                                          otherwise.value()));
}

Vec Buffer::loadFirst(const Index &count, int64_t lanes, Places at) const {
  return loadMasked(firstLanes(count, lanes), vec(zeros(*this, vectorOf(lanes))), at);
}

Vec Buffer::loadFirst(int64_t count, int64_t lanes, Places at) const {
  if (count >= lanes)
    return loadVector(lanes, at);
  if (count <= 0)
    return vec(zeros(*this, vectorOf(lanes)));
  return loadFirst(indexOf(*this, count), lanes, at);
}

Vec Buffer::loadPadded(const Num &padding, int64_t lanes, Places at) const {
  return vec(
      vector::TransferReadOp::create(builder(), location(), vectorOf(lanes), value(), places(at), padding.value()));
}

Vec Buffer::broadcastWord(int64_t lanes, Places at) const {
  constexpr int64_t kBits = 32;
  Vec few = loadVector(kBits / memref().getElementTypeBitWidth(), at);
  return splat(extract(bitcast(few, builder().getIntegerType(kBits)), 0), lanes);
}

void Buffer::storeVector(const Vec &x, Places at) const {
  vector::StoreOp::create(builder(), location(), x.value(), value(), places(at));
}

void Buffer::storeMasked(const Mask &mask, const Vec &x, Places at) const {
  vector::MaskedStoreOp::create(builder(), location(), value(), places(at), mask.value(), x.value());
}

void Buffer::storeFirst(const Vec &x, const Index &count, Places at) const {
  storeMasked(firstLanes(count, x.lanes()), x, at);
}

void Buffer::storeFirst(const Vec &x, int64_t count, Places at) const {
  count < x.lanes() ? storeFirst(x, indexOf(*this, count), at) : storeVector(x, at);
}

void Buffer::prefetch(const Index &at, bool isWrite, int64_t locality) const {
  memref::PrefetchOp::create(builder(), location(), value(), at.value(), isWrite, locality, /*isDataCache=*/true);
}

Buffer Buffer::flat() const {
  OpBuilder &b = builder();
  auto type = MemRefType::get({ShapedType::kDynamic}, memref().getElementType(), MemRefLayoutAttrInterface(),
                              memref().getMemorySpace());
  return with(memref::ReinterpretCastOp::create(b, location(), type, value(), OpFoldResult(b.getIndexAttr(0)),
                                                ArrayRef<OpFoldResult>{count().value()},
                                                ArrayRef<OpFoldResult>{b.getIndexAttr(1)}));
}

Index Buffer::address() const {
  return Index(builder(), location(), memref::ExtractAlignedPointerAsIndexOp::create(builder(), location(), value()));
}

} // namespace attn
