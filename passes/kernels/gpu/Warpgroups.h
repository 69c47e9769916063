#ifndef PASSES_KERNELS_GPU_WARPGROUPS_H
#define PASSES_KERNELS_GPU_WARPGROUPS_H

#include "passes/kernels/gpu/ThreadCode.h"

namespace attn {

/// What kernels of sm_90a alone have: products of a warpgroup (128 threads, 64
/// rows) on 16-bit operands in shared memory, and bulk copies that an mbarrier
/// waits for. Places in shared memory are byte addresses.
///
/// An operand stands there in panels of 64 columns, each [rows][64] with 128 bytes
/// a row, of which the 16-byte pieces of row r are exchanged: piece p stands where
/// p ^ r % 8 would. Panels begin at multiples of 1024.
class Warpgroups {
public:
  static constexpr int64_t kThreads = 128, kRows = 64, kPanel = 64, kRowBytes = 128;
  static constexpr unsigned kArch = 90; ///< AttnDialect::kOnlyExactAttr
  /// Of a thread of the one warpgroup that copies and of the two that multiply; 65536 in all.
  static constexpr int64_t kFewRegisters = 40, kManyRegisters = 232;

  explicit Warpgroups(ThreadCode &k) : k(k) {}

  /// Opens a launch, for images of sm_90a, with `bytes` of shared memory, of which
  /// the first place is returned.
  Index launch(const Index &blocks, int64_t threads, int64_t bytes);

  /// `elements` f32 of it from `place` on.
  Buffer asFloats(const Index &place, int64_t elements);

  /// Eight f32 as the four words of a piece.
  Nums piece(llvm::ArrayRef<Num> eight, Precision precision);
  /// Number, in 16 bytes, of piece `piece` of `row` in a panel.
  Index pieceAt(const Index &row, const Index &piece);
  void storePiece(llvm::ArrayRef<Num> words, const Index &place);

  //===--- mbarriers -------------------------------------------------------===//
  void initialize(const Index &barrier, int64_t arrivals);
  /// After all of them, before the block's barrier.
  void publishBarriers();
  void arrive(const Index &barrier);
  void arriveExpecting(const Index &barrier, int64_t bytes);
  /// Until the phase of `parity` is over; that before the first one has parity 1.
  void wait(const Index &barrier, const Index &parity);
  /// On the host: what `copyTile` takes, of a buffer in tiles with so many elements along each dimension.
  mlir::Value mapTiles(mlir::Value buffer, mlir::ArrayRef<int64_t> tile);
  /// Copies the tile that begins at element `at`, with zeros beyond the buffer; `barrier` gets to know.
  void copyTile(const Index &place, mlir::Value map, llvm::ArrayRef<Index> at, const Index &barrier);
  /// Copies from element `offset` of a flat buffer; `barrier` gets to know.
  void copy(const Index &place, const Buffer &flat, const Index &offset, int64_t bytes, const Index &barrier);

  //===--- warpgroups ------------------------------------------------------===//
  /// What the thread has stored is there for products, after a barrier.
  void publishStores();
  /// Of `threads` in all; who does not wait only says that it is there.
  void barrier(const Index &number, int64_t threads, bool waits = true);
  /// What is the same in all threads of a warp, so that the compiler knows, too.
  Index sameInWarp(const Index &x);
  /// `x`, of which nothing is computed before this place: values that a loop keeps for later take registers.
  Index fromHere(const Index &x);
  /// Each thread of the warpgroup gets so many registers.
  void setRegisters(int64_t count, bool isMore);

  /// How an operand lies in shared memory: panels of 64 along the sum with a row for each row (column) of the product,
  /// or, across, panels of 64 of these with a row for each of the sum.
  struct Panels {
    Index place;
    int64_t rows; ///< in a panel
    bool isAcross = false;
  };
  /// Starts A (64 rows) times the transpose of B (`columns` rows), over `depth`. Of the result a lane has
  /// rows g and g + 8 of its warp's 16, columns 2t and 2t + 1 of each 8:
  /// [8 columns][row][two]. `sums` are added to; none: zeros. Until `finish` all of these belong to the product.
  Nums startShared(llvm::ArrayRef<Num> sums, const Panels &left, const Panels &right, int64_t columns, int64_t depth,
                   Precision precision);
  /// Starts `sums`, so laid out, plus A times B (`depth` rows of panels from `right` on).
  /// Of each 16 of A's columns four packed registers: rows g and g + 8 at 2t, the
  /// same at 2t + 8.
  Nums startProducts(llvm::ArrayRef<Num> sums, llvm::ArrayRef<Num> left, const Index &right, int64_t depth,
                     Precision precision);
  /// Until all products but the last `underWay` are done. `values`, all f32, are there then: their sums, and what else
  /// is to be computed before the wait ends.
  Nums finish(llvm::ArrayRef<Num> values, int64_t underWay = 0);

private:
  Num bits(const Index &index) { return toNum(index, k.b.getI64Type()); }
  Num word(const Index &index) { return toNum(index, k.b.getI32Type()); }
  Nums assembly(const llvm::Twine &text, llvm::StringRef constraints, llvm::ArrayRef<Num> operands,
                mlir::TypeRange results = {});
  /// An operand in shared memory, and the descriptor of what is so many bytes further. What changes is 32 bits wide, so
  /// that an addition in front of a product is all that it takes.
  struct Matrix {
    Num low;
    int64_t stride;
  };
  Matrix matrix(const Index &place, int64_t leading, int64_t stride);
  Matrix matrix(const Panels &panels);
  static int64_t bytesTo(const Panels &panels, int64_t depth);
  Num descriptor(const Matrix &matrix, int64_t bytes);

  ThreadCode &k;
  Buffer memory; ///< all of the launch's shared memory
  Index begin;   ///< its first place
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_WARPGROUPS_H
