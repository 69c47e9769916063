#ifndef PASSES_KERNELS_CPU_BLOCKGEMMEMITTER_H
#define PASSES_KERNELS_CPU_BLOCKGEMMEMITTER_H

#include "passes/kernels/cpu/BlockGemm.h"
#include "passes/kernels/cpu/PanelResult.h"

namespace attn {

/// Emits one GEMM kernel of blocks: tasks, the two ways to their sums, and the epilogue. With rows of bytes
/// (BlockGemmBytes.cpp) A is rounded first, with digits (BlockGemmDigits.cpp) one row is taken apart. Tiles may
/// multiply bytes, or f32 in parts (BlockGemmTiles.cpp).
class BlockGemmEmitter {
public:
  BlockGemmEmitter(mlir::OpBuilder &builder, mlir::Location loc, const BlockGemmSpec &spec)
      : f(builder, loc, spec.symbol()), k(f.k), spec(spec), width(spec.panelWidth()), group(spec.group()),
        f32(builder.getF32Type()), i32(builder.getI32Type()), i8(builder.getI8Type()),
        result(k, spec, spec.n, width, spec.lanes) {}

  mlir::func::FuncOp emit();

private:
  /// The scales of a block of the panel at hand, and what is subtracted from its codes.
  struct BlockFactors {
    Vecs scales, zeros;
  };

  void declareArguments();
  void takeTask(const Index &task, const Index &rowsOfChunk);
  void makeTable();
  void emitTask(const Index &task);
  void emitFewRows();
  void emitFew(int64_t height);
  Vecs addBlock(int64_t height, const Index &number, int64_t size, const Vecs &totals);
  void emitMany();
  void unpack(const Index &firstBlock, const Index &blocks);
  void unpackBlock(const Index &number, const Index &target, int64_t size);
  void addDepth(int64_t height, const Index &tile, const Index &depth, const Index &size, const Mask &isFirst);
  void emitRows();

  BlockFactors factors(const Index &number);
  /// Vector `v` of the words in step `step`, and row `place` of them less the zero points.
  Vec words(const Index &step, int64_t v) { return codes.vector(spec.lanes, panel, step, v * spec.lanes); }
  Vec row(const Vec &word, int64_t place, const BlockFactors &factors, int64_t v);
  Vec multiplyAdd(const Vec &x, const Vec &y, const Vec &sum) { return spec.hasFma() ? fma(x, y, sum) : x * y + sum; }
  Vec zeroVec() { return k.splat(k.f32(0), spec.lanes); }

  // Rows of bytes.
  void roundRows();
  void roundRow(const Index &row);
  void roundBlock(const Index &row, const Index &number, const Index &place, int64_t size);
  Vecs blockOfRow(const Index &row, const Index &number, int64_t size);
  Num greatestOf(const Vecs &parts);
  Vecs addByteBlock(int64_t height, const Index &number, const Vecs &totals);
  Vecs addBytes(int64_t height, const Index &first, const Buffer &bytes, const Index &number, const Vecs &start);
  void emitManyBytes();
  void unpackBytes(const Index &firstWord, const Index &count);
  void addByteDepth(int64_t height, const Index &tile, const Index &firstBlock, const Index &blocks);
  Vecs startBlock(int64_t height, const Index &firstRow, const Index &number);
  void addScaled(int64_t height, const Index &firstRow, const Index &number, const Vecs &blockSums,
                 llvm::function_ref<void(int64_t r, int64_t v, const Vec &scaled, const Vec &rowScale)> add);
  Vec fourRows(const Vec &word, int64_t part);
  Vec dot(const Vec &sum, const Vec &codes, const Vec &rows);
  Vec zeroPoints(const Index &number, const Index &column);
  void prefetchAhead(const Index &step);

  // One row in digits.
  void takeDigits();
  Mask takeDigitsOf(const Index &number, int64_t size);
  void emitDigits();
  Vecs addDigitBlock(const Index &number, const Vecs &totals);

  class Tiles; // BlockGemmTiles.cpp
  void emitTileTasks();
  void partRows();
  void partBlock(const Index &row, const Index &number, const Index &place, int64_t size);
  bool hasTable() const { return spec.bits == 4 && spec.lanes == 16; }
  /// Subtracted from every stored code, which are from 0 on.
  int64_t base() const {
    int64_t half = int64_t(1) << (spec.bits - 1);
    return spec.zeros == BlockZeros::Constant ? spec.zeroPoint + (spec.isUnsigned ? 0 : half) : half;
  }

  KernelFunction f;
  Code &k;
  const BlockGemmSpec &spec;
  const int64_t width, group; ///< columns of a panel, rows in a word
  const mlir::Type f32, i32, i8;

  Buffer a, codes, flatCodes, scales, zeros, sums, unpacked;
  /// A in bytes, the scale of each of its blocks, and what starts a sum: minus its bytes' sum, times the zero point if
  /// that is constant.
  Buffer rowBytes, rowScales, rowStarts;
  /// The row's digits, the power of two of each of its blocks, and what starts the sums of the two lower digits and of
  /// the two upper ones.
  Buffer digits, digitScales, digitStarts;
  Mask isInDigits; ///< whether there is one row, and it could be taken apart
  Buffer rowParts; ///< A as sums of bf16: of each block all parts, the smallest first
  PanelResult result;
  Vec table; ///< what each code of 4 bits stands for
  Index rows, chunkRows;
  Mask usesTiles; ///< with hasTiles
  // Of the task at hand.
  Index panel, firstRow, taskRows;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_BLOCKGEMMEMITTER_H
