#ifndef PASSES_KERNELS_CPU_PANELRESULT_H
#define PASSES_KERNELS_CPU_PANELRESULT_H

#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/spec/Regions.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>

namespace attn {

/// The columns of a panel: a fixed number, or what is left in the last one, as the run knows it.
struct PanelColumns {
  int64_t count = 0;
  std::optional<Index> left;
};

/// What becomes of the sums of a product by panels: the operands of its epilogue, and C.
class PanelResult {
public:
  /// A panel has `width` columns, or what is left of the N ones; `lanes` of them are a vector.
  PanelResult(Code &k, const EpilogueSpec &spec, int64_t n, int64_t width, int64_t lanes)
      : k(k), spec(spec), n(n), width(width), lanes(lanes) {}

  /// Declares the operands, in their order. Without a block for them there are none.
  void takeOperands(KernelFunction &f, int64_t m);
  void takeResult(const Buffer &buffer) { c = buffer; }

  /// Runs `emitColumns` for those of a panel.
  void forColumns(const Index &panel, llvm::function_ref<void(const PanelColumns &)> emitColumns);
  /// Those of panel `panel`, where all that is known is known to the run.
  PanelColumns openColumns(const Index &panel) const { return {width, c.dim(1) - panel * width}; }
  /// How many vectors hold them: all that a panel has where only the run knows.
  int64_t vectorsOf(const PanelColumns &columns) const { return llvm::divideCeil(columns.count, lanes); }

  /// A vector of a buffer's elements, number `v` of `columns`.
  template <typename... Places>
  Vec load(const Buffer &buffer, const PanelColumns &columns, int64_t v, const Places &...at) const {
    std::optional<Index> left = leftIn(columns, v);
    return left ? buffer.first(*left, lanes, at...) : buffer.vector(lanes, at...);
  }
  /// What vector number `v` of every row of `panel` has of each operand; null where that differs from row to row.
  llvm::SmallVector<mlir::Value> readShared(const Index &panel, const PanelColumns &columns, int64_t v) const;
  /// Applies the epilogue to vector number `v` of a row of `panel`, and stores what it makes. `shared`: what
  /// readShared gave, if anything.
  void store(const Vec &sum, const Index &row, const Index &panel, const PanelColumns &columns, int64_t v,
             llvm::ArrayRef<mlir::Value> shared = {});

private:
  std::optional<Index> leftIn(const PanelColumns &columns, int64_t v) const;
  mlir::Value read(EpilogueOperand kind, const Buffer &buffer, const Index &row, const Index &column,
                   const PanelColumns &columns, int64_t v) const;

  Code &k;
  const EpilogueSpec &spec;
  const int64_t n, width, lanes;
  llvm::SmallVector<Buffer> operands;
  Buffer c;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_PANELRESULT_H
