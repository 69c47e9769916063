#ifndef BUILDERS_BUFFER_H
#define BUILDERS_BUFFER_H

#include "builders/Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <optional>

namespace attn {

/// A place in a buffer: one number for each dimension, of C++ or of the run.
class Place {
public:
  Place(const Index &index) : index(index) {}
  Place(int64_t constant) : constant(constant) {}
  Place(int constant) : constant(constant) {}
  mlir::Value at(const Term &near) const;

private:
  Index index;
  int64_t constant = 0;
};

/// Memory of one element type (a memref) in any number of dimensions, which are
/// named one by one:
///
///     Num x = scores(row, column);
///     scores.set(x + 1.0, row, column);
///
/// Vectors lie along the last dimension, which is dense; the place is that of
/// their first element. Nothing is checked: a place is within the sizes.
class Buffer : public Kind<Buffer> {
public:
  using Kind::Kind;

  mlir::MemRefType memref() const { return mlir::cast<mlir::MemRefType>(type()); }
  Index dim(int64_t n) const;
  /// How many elements dimensions [first, end) have; without `end` to the last one.
  Index count(int64_t first = 0, std::optional<int64_t> end = std::nullopt) const;

  //===--- elements -------------------------------------------------------===//
  template <typename... Places> Num operator()(const Places &...at) const { return load({Place(at)...}); }
  template <typename... Places> void set(const Term &x, const Places &...at) const { store(x, {Place(at)...}); }
  /// The word that was there, which becomes `kind` of it and `x` at once for all threads.
  template <typename... Places> Num atomic(mlir::arith::AtomicRMWKind kind, const Num &x, const Places &...at) const {
    return update(kind, x, {Place(at)...});
  }

  //===--- vectors --------------------------------------------------------===//
  template <typename... Places> Vec vector(int64_t lanes, const Places &...at) const {
    return loadVector(lanes, {Place(at)...});
  }
  /// The first `count` of `lanes` elements, 0 beyond; reads no others. `count` may be any number.
  template <typename... Places> Vec first(const Index &count, int64_t lanes, const Places &...at) const {
    return loadFirst(count, lanes, {Place(at)...});
  }
  template <typename... Places> Vec first(int64_t count, int64_t lanes, const Places &...at) const {
    return loadFirst(count, lanes, {Place(at)...});
  }
  /// The elements where `mask` holds, `otherwise` elsewhere; reads no others.
  template <typename... Places> Vec where(const Mask &mask, const Vec &otherwise, const Places &...at) const {
    return loadMasked(mask, otherwise, {Place(at)...});
  }
  /// `lanes` elements, `padding` beyond the end of the last dimension.
  template <typename... Places> Vec padded(const Num &padding, int64_t lanes, const Places &...at) const {
    return loadPadded(padding, lanes, {Place(at)...});
  }
  template <typename... Places> void setVector(const Vec &x, const Places &...at) const {
    storeVector(x, {Place(at)...});
  }
  template <typename... Places> void setFirst(const Vec &x, const Index &count, const Places &...at) const {
    storeFirst(x, count, {Place(at)...});
  }
  template <typename... Places> void setFirst(const Vec &x, int64_t count, const Places &...at) const {
    storeFirst(x, count, {Place(at)...});
  }
  template <typename... Places> void setWhere(const Mask &mask, const Vec &x, const Places &...at) const {
    storeMasked(mask, x, {Place(at)...});
  }
  /// `count` vectors side by side, the first of them at the beginning of the last dimension.
  template <typename... Places> Vecs vectors(int64_t count, int64_t lanes, const Places &...row) const {
    Vecs all;
    for (int64_t n = 0; n < count; ++n)
      all.push_back(vector(lanes, row..., n * lanes));
    return all;
  }
  template <typename... Places> void setVectors(llvm::ArrayRef<Vec> all, const Places &...row) const {
    for (auto [n, x] : llvm::enumerate(all))
      setVector(x, row..., static_cast<int64_t>(n) * x.lanes());
  }
  /// The 32-bit word from this element on, as an integer in each of `lanes` lanes: four elements of i8, two of bf16.
  template <typename... Places> Vec word(int64_t lanes, const Places &...at) const {
    return broadcastWord(lanes, {Place(at)...});
  }

  /// Asks, of one dimension, for the cache line of this element; `locality` is from 0, used once, to 3, kept nearest.
  void prefetch(const Index &at, bool isWrite = false, int64_t locality = 2) const;

  //===--- views ----------------------------------------------------------===//
  /// A contiguous buffer as one dimension.
  Buffer flat() const;
  /// The address of the first element.
  Index address() const;

private:
  using Places = std::initializer_list<Place>;
  llvm::SmallVector<mlir::Value> places(Places) const;
  mlir::VectorType vectorOf(int64_t lanes) const { return mlir::VectorType::get({lanes}, memref().getElementType()); }
  Vec vec(mlir::Value v) const { return Vec(builder(), location(), v); }
  Num load(Places) const;
  void store(const Term &, Places) const;
  Num update(mlir::arith::AtomicRMWKind, const Num &, Places) const;
  Vec loadVector(int64_t lanes, Places) const;
  Vec loadFirst(const Index &count, int64_t lanes, Places) const;
  Vec loadFirst(int64_t count, int64_t lanes, Places) const;
  Vec loadMasked(const Mask &, const Vec &otherwise, Places) const;
  Vec loadPadded(const Num &padding, int64_t lanes, Places) const;
  Vec broadcastWord(int64_t lanes, Places) const;
  void storeVector(const Vec &, Places) const;
  void storeFirst(const Vec &, const Index &count, Places) const;
  void storeFirst(const Vec &, int64_t count, Places) const;
  void storeMasked(const Mask &, const Vec &, Places) const;
};

/// Whether a lane's number is below `count`.
Mask firstLanes(const Index &count, int64_t lanes);

} // namespace attn

#endif // BUILDERS_BUFFER_H
