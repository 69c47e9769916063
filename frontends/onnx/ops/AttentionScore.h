#ifndef FRONTENDS_ONNX_OPS_ATTENTIONSCORE_H
#define FRONTENDS_ONNX_OPS_ATTENTIONSCORE_H

#include "frontends/onnx/ops/Formula.h"

namespace attn::onnx {

/// The sizes of an attention: batch, query heads, queries, keys.
struct AttentionSizes {
  Expr batch, heads, queries, keys;
};

/// What ONNX Attention does to a score q . k before the softmax, for the score
/// region of attn.attention and for the decomposed form alike.
class ScoreRule {
public:
  /// Steps in their order; the output qk_matmul_output is the score after one.
  enum Step { Scaled = 0, Capped = 1, Masked = 2 };

  /// Reads attributes, mask (input 3) and lengths (input 6). `past` is the
  /// number of keys in the cache; `scale` is 1 when it is applied already.
  static mlir::FailureOr<ScoreRule> read(Node &n, const AttentionSizes &sizes, std::optional<Expr> past, double scale);

  /// The scores times `scale`; what follows adds to it.
  static ScoreRule scaled(double scale, double softcap = 0);
  /// A mask that broadcasts to the scores: bool keeps, numbers are added.
  mlir::LogicalResult addMask(Node &n, Tensor mask, const AttentionSizes &sizes);
  /// int64 [batch]: keys from there on are not seen.
  mlir::LogicalResult addLengths(Node &n, const Tensor &lengths, const AttentionSizes &sizes);
  /// Query i sees keys from i + offset - left to i + offset + right, -1: open.
  /// `offsets` is int64, a scalar or [batch]; without it the offset is 0.
  void addWindow(int64_t left, int64_t right, const std::optional<Tensor> &offsets);

  /// Tensors that the rule reads, and for each the dimensions of
  /// (b, h, i, j) = (0, 1, 2, 3) that its own dimensions are.
  struct Capture {
    Tensor tensor;
    llvm::SmallVector<int64_t> dims;
  };
  llvm::ArrayRef<Capture> captures() const { return operands; }

  /// The score after `last`. `values` are elements of the captures, `index`
  /// gives the value of b, h, i or j.
  Num apply(const Num &score, mlir::ValueRange values, llvm::function_ref<mlir::Value(int64_t)> index,
            Step last = Masked) const;

private:
  void readOffset(Node &n, const AttentionSizes &sizes, std::optional<Expr> past);
  std::optional<Num> visible(mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange values,
                             llvm::function_ref<mlir::Value(int64_t)> index) const;

  llvm::SmallVector<Capture, 2> operands;
  double scale = 1, softcap = 0;
  int64_t left = -1, right = -1;               // window around the diagonal, -1: open
  std::optional<size_t> mask, lengths, offset; // positions in `operands`
  int64_t constantOffset = 0;                  // of the diagonal, without a capture
  bool offsetAtLength = false;                 // the lengths are part of it
};

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_ATTENTIONSCORE_H
