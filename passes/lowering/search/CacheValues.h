#ifndef PASSES_LOWERING_SEARCH_CACHEVALUES_H
#define PASSES_LOWERING_SEARCH_CACHEVALUES_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/CacheOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SetVector.h"
#include <string>

namespace attn {

/// Why no kernel of the target serves an attention that reads a cache; "" where one does.
using AttentionObstacle = llvm::function_ref<std::string(AttentionOp)>;

/// A state of an entry, or a buffer that a search carries: all values that are its memory in turn, what is written to
/// it, and who reads it.
class CacheValues {
public:
  CacheValues(mlir::Value start, AttentionObstacle findObstacleOf);

  /// Why its rows cannot be attn.narrow_rows; "" where they can.
  std::string findObstacle() const;

  struct Read {
    mlir::OpOperand *operand; ///< of an attention, keys or values
    mlir::Value source;       ///< the value of the cache that it reads, perhaps widened to f32
    AttentionOp attention() const { return mlir::cast<AttentionOp>(operand->getOwner()); }
  };

  llvm::SetVector<mlir::Value> values;
  llvm::SetVector<mlir::OpOperand *> written;   ///< whole rows
  llvm::SetVector<mlir::Operation *> views;     ///< slices, and kernels that move rows
  llvm::SetVector<mlir::Operation *> widenings; ///< to f32, for attentions alone
  llvm::SmallVector<Read> reads;

private:
  using List = llvm::SmallVector<mlir::Value>;
  void followMaker(mlir::Value value, List &list);
  void followArgument(mlir::BlockArgument argument, List &list);
  void followUse(mlir::OpOperand &use, List &list);
  void followTie(mlir::scf::WhileOp loop, mlir::OpOperand &use, List &list);
  void followState(mlir::BlockArgument argument, List &list);
  void followSlice(mlir::OffsetSizeAndStrideOpInterface slice, mlir::RankedTensorType whole,
                   mlir::RankedTensorType part);
  void read(mlir::OpOperand &operand, mlir::Value source);
  void refuse(const llvm::Twine &reason);

  AttentionObstacle findObstacleOf;
  std::string obstacle;
  std::optional<unsigned> output; ///< of the state
  bool isAppended = false;
};

} // namespace attn

#endif // PASSES_LOWERING_SEARCH_CACHEVALUES_H
