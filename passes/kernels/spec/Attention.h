#ifndef PASSES_KERNELS_SPEC_ATTENTION_H
#define PASSES_KERNELS_SPEC_ATTENTION_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/CacheOps.h"
#include "dialects/attn/MaskTerms.h"
#include "dialects/attn/ScoreKinds.h"
#include <optional>
#include <string>

namespace attn {

/// The buffer that `operand` will be: dense, a slice of rows that a linalg op
/// has made, or the front of a cache in the memory of a state or a loop.
mlir::MemRefType getBufferType(mlir::Value operand);

/// A bound that a term of the mask sets; where the term takes an operand, that of the kernel at position `operand`.
struct KeyLimit : KeyBound {
  MaskJoin join = MaskJoin::always;
  int64_t operand = -1;

  bool isPrefix() const { return join == MaskJoin::prefix; }
};

/// The blocks of `columns` keys that each block of `rows` queries sees: a list
/// of their numbers in the last dimension of the operand at position `operand`.
struct BlockList {
  int64_t rows = 1, columns = 1;
  size_t operand = 0;
};

/// What one fused attention kernel computes, and how it is cut into tiles.
struct AttentionSpec {
  /// Of the operands in the op's order, the result, extra results; identity layout, but for a
  /// cache in the memory of a state, which has room behind its rows, and slices of rows.
  llvm::SmallVector<mlir::MemRefType> types;
  /// In the same order, from (b, h, i, j, d, e).
  llvm::SmallVector<mlir::AffineMap> maps;
  ScoreKind kind = ScoreKind::dot;
  Normalizer normalizer = Normalizer::softmax;
  MaskedRows maskedRows = MaskedRows::nan;
  /// To which scores and weights are rounded; null for f32.
  mlir::Type softmaxType;

  /// Positions in `types`; keyOperand and alignment where the kind has one.
  size_t query = 0, keyOperand = 0, value = 0, alignment = 0, firstCapture = 0, numCaptures = 0, result = 0;
  llvm::SmallVector<size_t> denseMasks;
  struct Extra {
    ExtraSource source;
    size_t operand;
  };
  llvm::SmallVector<Extra> extras;

  /// The regions' blocks, owned by the op; null is the identity.
  mlir::Block *score = nullptr, *weight = nullptr, *activation = nullptr, *masked = nullptr;
  llvm::SmallVector<KeyLimit> limits;
  llvm::SmallVector<BlockList, 1> blockLists;
  /// What no kernel serves yet, if anything.
  std::string unsupported;

  int64_t lanes = 4; ///< f32 lanes of a register
  /// Whether sums of tanh multiply by an estimate of the reciprocal (vrcp14ps)
  /// after a step of Newton's, which divides 16 lanes in half the time.
  bool hasSlowDivision = false;
  /// Scores and products with values are of pairs of bf16 (vdpbf16ps), summed in f32; weights are rounded to
  /// bf16 for it. Few queries, which are bound by memory, are widened to f32 all the same.
  bool hasNarrowProducts = false;
  /// A tile is keyTile keys (or valueTile value columns) times queryVectors
  /// registers of queries: 16 accumulators of 32 registers on AVX-512, 8 of 16
  /// elsewhere. keyBlock rows of weights stay in L1 between the two products.
  int64_t queryVectors = 2;
  int64_t keyTile = 4;
  int64_t valueTile = 4;
  int64_t keyBlock = 256;
  /// As many keys may there be that a sweep for weights finds the scores of the sweep before in memory, a quarter of
  /// L2; those of more keys, or of 0, are computed again. A multiple of keyTile.
  int64_t storedKeys = 0;

  /// The spec of `op` with the tiles for `target`; with products of bf16 where
  /// `narrow` asks for them and all of the operands and the target can. The
  /// kernel reads `operands` in place of the op's, which may be of other floats.
  static AttentionSpec get(AttentionOp op, TargetAttr target, bool narrow, mlir::ValueRange operands);
  static AttentionSpec get(AttentionOp op, TargetAttr target, bool narrow = false) {
    return get(op, target, narrow, op->getOperands());
  }

  /// Whether operand `n` is keys or values as rows of attn.narrow_rows.
  bool isInBytes(size_t n) const {
    return (n == value || (n == keyOperand && formula().hasKey)) && isByteOfRow(types[n].getElementType());
  }
  /// Static size of iteration dimension `dim` (1 where no map names it), or
  /// nullopt where it is dynamic.
  std::optional<int64_t> getStaticSize(int64_t dim) const;

  ScoreFormula formula() const { return getScoreFormula(kind); }
  /// The factor c when the scores are dot products times c and nothing else.
  std::optional<double> getPureScale() const;
  bool wants(ExtraSource source) const {
    return llvm::any_of(extras, [&](const Extra &extra) { return extra.source == source; });
  }
  /// Whether the mask hides keys; the score region may do so, too.
  bool hasMask() const { return !limits.empty() || !denseMasks.empty() || !blockLists.empty(); }
  /// Whether a row may see no key, or a weight may be 0 that hides a NaN.
  bool canMask() const;
  /// Whether hidden keys count in rows that see no other.
  bool letsHiddenTakePart() const { return maskedRows == MaskedRows::finite && hasMask(); }
  /// Whether keys that no query sees must be swept all the same.
  bool needsAllKeys() const;
  /// Whether the final weights are made in a sweep of their own.
  bool hasWeightSweep() const {
    return weight || softmaxType || wants(ExtraSource::weights) || wants(ExtraSource::final_weights);
  }
  /// Whether the activation of additive scores is tanh.
  bool isTanh() const;
  /// Whether the first key that a query sees moves with it.
  bool isWindow() const;

  /// Whether the products are of dense rows of keys and values, which as bf16 are read in pairs.
  bool readsPairs() const;

  /// All that the kernel depends on: equal keys give the same IR.
  std::string key() const;
  /// "attention_f32_d64_e64_" and a hash of the key.
  std::string symbol() const;
};

/// Whether buildAttention can build `spec`; if not, `reason` says why.
bool canBuildAttention(const AttentionSpec &spec, std::string *reason = nullptr);

} // namespace attn

#endif // PASSES_KERNELS_SPEC_ATTENTION_H
