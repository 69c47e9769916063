#include "passes/kernels/gpu/AttentionPacking.h"

#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// Whether an index follows from the batch and the head alone.
static bool isOfHead(AffineExpr expr) {
  bool isSound = true;
  expr.walk([&](AffineExpr part) {
    if (auto dim = dyn_cast<AffineDimExpr>(part))
      isSound &= dim.getPosition() == Dim::B || dim.getPosition() == Dim::H;
  });
  return isSound;
}

/// Whether each stride is a multiple of the next one, as cuTensorMapEncodeTiled asks: not of heads of 40 in rows of
/// 288, which they share with heads of another width. A stride that isn't known is one.
static bool hasNestedStrides(MemRefType type) {
  SmallVector<int64_t> strides = type.getStridesAndOffset().first;
  for (size_t n = 1; n < strides.size(); ++n)
    if (!ShapedType::isDynamic(strides[n - 1]) && !ShapedType::isDynamic(strides[n]) &&
        (strides[n] == 0 || strides[n - 1] % strides[n] != 0))
      return false;
  return true;
}

PackedOperand::PackedOperand(const AttentionSpec &spec, size_t position, unsigned rowDim, unsigned dim)
    : position(position), rowDim(rowDim), dim(dim), width(*spec.getStaticSize(dim)),
      padded(llvm::alignTo(width, Warpgroups::kPanel)), isF32(attn::isF32(spec)), map(spec.maps[position]) {
  for (piece = isF32 ? 4 : 8; piece > 1 && !hasPieces(spec, position, dim, piece);)
    piece = piece == 8 ? 4 : 1;
  constexpr int64_t kMostDims = 5; // of a tensor map
  int64_t rank = map.getNumResults();
  isTiled = piece == 8 && rank == spec.types[position].getRank() && rank <= kMostDims &&
            hasNestedStrides(spec.types[position]) &&
            llvm::count(map.getResults(), getAffineDimExpr(rowDim, map.getContext())) == 1 &&
            llvm::all_of(map.getResults(), [&](AffineExpr expr) {
              auto known = dyn_cast<AffineDimExpr>(expr);
              return known ? known.getPosition() == rowDim || known == map.getResults().back() || isOfHead(expr)
                           : isOfHead(expr);
            });
}

Nums PackedOperand::readPiece(ThreadCode &k, const OperandView &view, const Index &row, const Mask &isRow,
                              const Index &column, Precision precision) const {
  Nums eight;
  Index offset = view.at({{rowDim, row}});
  for (int64_t e = 0; e < 8; e += piece) {
    Index place = column + e;
    Mask isInside = padded == width ? isRow : isRow & (place < width);
    // The address must be valid even where nothing is wanted.
    Index at = select(isInside, view.along(offset, dim, place), k.index(0));
    if (piece == 8) {
      Nums words = k.loadWords(view.flat, at, 4);
      for (Num &word : words)
        word = select(isInside, word, k.i32(0));
      return words;
    }
    for (const Num &x : k.loadWide(view.flat, at, piece))
      eight.push_back(select(isInside, x, k.f32(0)));
  }
  return Warpgroups(k).piece(eight, precision);
}

Value PackedOperand::mapTiles(ThreadCode &k, Value buffer, int64_t rows) const {
  SmallVector<int64_t> tile;
  for (AffineExpr expr : map.getResults())
    tile.push_back(expr == getAffineDimExpr(rowDim, map.getContext()) ? rows : 1);
  tile.back() = Warpgroups::kPanel;
  return Warpgroups(k).mapTiles(buffer, tile);
}

void PackedOperand::copyTiles(ThreadCode &k, Value tiles, const Index &batch, const Index &head, const Index &begin,
                              int64_t rows, const Index &place, const Index &barrier) const {
  Indices at;
  for (AffineExpr expr : map.getResults()) {
    auto known = dyn_cast<AffineDimExpr>(expr);
    auto group = dyn_cast<AffineBinaryOpExpr>(expr);
    if (known)
      at.push_back(known.getPosition() == Dim::B ? batch : known.getPosition() == Dim::H ? head : begin);
    else if (group)
      at.push_back(head / cast<AffineConstantExpr>(group.getRHS()).getValue());
    else
      at.push_back(k.index(cast<AffineConstantExpr>(expr).getValue()));
  }
  for (int64_t column = 0; column < padded; column += Warpgroups::kPanel) {
    at.back() = k.index(column);
    Warpgroups(k).copyTile(place + column * rows * 2, tiles, at, barrier);
  }
}

/// Whether the scores of 128 keys and what is computed for each leave ptxas without registers: with a region beyond a
/// scale it spilled up to 276 bytes, with a log-sum-exp up to 28.
static bool isBusy(const AttentionSpec &spec) { return !spec.extras.empty() || !spec.getPureScale(); }

Packing::Packing(const AttentionSpec &spec)
    : keys(spec, spec.keyOperand, Dim::J, Dim::D), values(spec, spec.value, Dim::J, Dim::E) {
  // What leaves ptxas without registers, up to 224 bytes of them: scores of 128 keys beside a table, and anything
  // computed for each score beside heads wider than 128 and a tile ahead.
  int64_t widest = std::max(keys.padded, values.padded);
  bool hasTable = !spec.denseMasks.empty();
  keysPerTile = widest > 128 || isBusy(spec) || hasTable ? 64 : 128;
  isAhead = widest <= 128 || !(isBusy(spec) || hasTable);
  isPacked = !keys.isTiled || !values.isTiled;
  for (size_t position : {keys.position, values.position})
    for (AffineExpr expr : spec.maps[position].getResults()) {
      std::optional<int64_t> found;
      if (expr == getAffineDimExpr(Dim::H, expr.getContext()))
        found = 1;
      else if (auto group = dyn_cast<AffineBinaryOpExpr>(expr))
        found = cast<AffineConstantExpr>(group.getRHS()).getValue();
      if (found)
        ratio = std::gcd(ratio.value_or(*found), *found);
    }
}

} // namespace attn
