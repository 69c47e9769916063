#include "passes/kernels/gpu/AttentionPacking.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

PackedOperand::PackedOperand(const AttentionSpec &spec, size_t position, unsigned rowDim, unsigned dim)
    : position(position), rowDim(rowDim), dim(dim), width(*spec.getStaticSize(dim)),
      padded(llvm::alignTo(width, Warpgroups::kPanel)), isF32(attn::isF32(spec)) {
  for (piece = isF32 ? 4 : 8; piece > 1 && !hasPieces(spec, position, dim, piece);)
    piece = piece == 8 ? 4 : 1;
}

Values PackedOperand::readPiece(BlockBuilder &k, const HeadView &view, Value row, Value isRow, Value column,
                                Precision precision) const {
  Values eight;
  Value offset = view.along(k, view.base, rowDim, row);
  for (int64_t e = 0; e < 8; e += piece) {
    Value place = k.add(column, e), isInside = isRow;
    if (padded != width)
      isInside = k.both(isRow, k.less(place, k.index(width)));
    // The address must be valid even where nothing is wanted.
    Value at = k.select(isInside, view.along(k, offset, dim, place), k.index(0));
    if (piece == 8) {
      Values words = k.loadWords(view.flat, at, 4);
      for (Value &word : words)
        word = k.select(isInside, word, arith::ConstantIntOp::create(k.b, k.loc, 0, 32));
      return words;
    }
    Values read = piece == 1 ? Values{k.toF32(k.load(view.flat, at))}
                  : isF32    ? k.load4(view.flat, at)
                             : k.loadWide(view.flat, at, 4);
    for (Value x : read)
      eight.push_back(k.select(isInside, x, k.scalar(0)));
  }
  return Warpgroups(k).piece(eight, precision);
}

void PackedOperand::startCopies(BlockBuilder &k, const HeadView &view, Value begin, Value end, int64_t rows,
                                Value place) const {
  Warpgroups w(k);
  // Eight threads a row, one panel after the other: a multiple of 8 rows each time, so that the place within a pattern
  // stays the same.
  constexpr int64_t kPieces = Warpgroups::kRowBytes / 16, kStep = Warpgroups::kThreads / kPieces;
  Value row = k.div(k.thread, k.index(kPieces)), number = k.rem(k.thread, k.index(kPieces));
  Value to = k.add(place, k.mul(w.pieceAt(row, number), 16));
  Value source = k.add(begin, row), left = k.sub(end, source);
  Value offset = view.along(k, view.along(k, view.base, dim, k.mul(number, 8)), rowDim, source);
  for (int64_t n = 0; n < rows; n += kStep) {
    Value isRow = k.less(k.index(n), left);
    // The address must be valid even where nothing is read.
    Value at = k.select(isRow, view.along(k, offset, rowDim, k.index(n)), k.index(0));
    for (int64_t e = 0; e < padded; e += Warpgroups::kPanel)
      w.copyPiece(k.add(to, (e * rows + n * Warpgroups::kPanel) * 2), view.flat, view.along(k, at, dim, k.index(e)),
                  isRow);
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
  // Wide rows come faster in bulk where each is read by enough queries to pay for the launch: 2.94 ms instead of 3.29
  // at 16k keys of 256, as fast at 4k, and at 512 0.29 instead of 0.17 (H100).
  constexpr int64_t kManyKeys = 8192;
  bool isLong = widest > 128 && spec.getStaticSize(Dim::J).value_or(0) >= kManyKeys;
  isPacked = isLong || !keys.isWhole() || !values.isWhole();
  for (size_t position : {keys.position, values.position})
    for (AffineExpr expr : spec.maps[position].getResults()) {
      std::optional<int64_t> found;
      if (expr == getAffineDimExpr(Dim::H, expr.getContext()))
        found = 1;
      else if (auto group = dyn_cast<AffineBinaryOpExpr>(expr))
        found = cast<AffineConstantExpr>(group.getRHS()).getValue();
      if (found)
        ratio = std::min(ratio.value_or(*found), *found);
    }
}

} // namespace attn
