#ifndef PASSES_LOWERING_SEARCH_SEARCHLOOP_H
#define PASSES_LOWERING_SEARCH_SEARCHLOOP_H

#include "dialects/attn/SearchOp.h"
#include "passes/lowering/choose/KernelCall.h"
#include "passes/lowering/search/SearchKernels.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringMap.h"

namespace attn {

/// Writes one attn.search as a loop: a copy of the step, the kernels that
/// choose, and the states in the order of the rows that live on.
class SearchLoop {
public:
  SearchLoop(SearchOp op, KernelTable &kernels, const SearchKernels &target, bool traces);

  mlir::LogicalResult run();

private:
  /// One argument of the step.
  struct Argument {
    int64_t source = 0, rowsDim = -1, growDim = -1;
    mlir::RankedTensorType type;
    mlir::Value init;                            // with all rows; a buffer where it grows
    llvm::SmallVector<mlir::OpFoldResult> sizes; // that of growDim is the one at first
    size_t carried = 0;                          // its place in what the loop carries; the size that grows follows
    mlir::Value inside, length;                  // in the body
  };

  /// What was chosen until now: buffers of the loop.
  struct StepTokens {
    mlir::Value history, parents, sequence;
  };

  using BuildFn = llvm::function_ref<mlir::func::FuncOp(mlir::OpBuilder &, llvm::StringRef symbol)>;

  mlir::Value index(int64_t value);
  mlir::Value integer(int64_t value);
  mlir::Value fill(mlir::RankedTensorType type, llvm::ArrayRef<mlir::OpFoldResult> sizes, mlir::TypedAttr value);
  mlir::Value sizeOf(mlir::Value tensor, int64_t dim);
  mlir::Value value(mlir::OpFoldResult size);
  void require(mlir::Value a, mlir::Value b, llvm::StringRef message);
  mlir::Value castTo(mlir::Value tensor, mlir::Type type);

  void takeArguments();
  void requireEqualNames(bool inBody);
  mlir::Value expandRows(mlir::Value tensor, int64_t dim, mlir::RankedTensorType type);
  mlir::Value gatherRows(mlir::Value tensor, int64_t dim, mlir::Value parents);
  mlir::Value appendOnes(Argument &argument, mlir::Value &length);
  mlir::Value countOn(mlir::Value positions);
  mlir::Value alignmentOf(mlir::Value chosenRows, mlir::Value lengths);
  void trace(mlir::Value chosenRows);
  void finishRows(mlir::Value length);
  void finishBeams(mlir::Value length);
  /// The first results are written over the inputs at `inPlace`, which the kernel reads an element at a time.
  llvm::SmallVector<mlir::Value>
  call(llvm::StringRef role, mlir::ValueRange inputs,
       llvm::ArrayRef<std::pair<mlir::RankedTensorType, llvm::SmallVector<mlir::OpFoldResult>>> outs, BuildFn build,
       llvm::ArrayRef<int64_t> inPlace = {});

  size_t carry(mlir::Value init);
  void startLoop();
  void fillBody();
  llvm::SmallVector<mlir::Value> cloneStep();
  void enterArguments();
  mlir::Value tokensFor(mlir::RankedTensorType type, mlir::Value tokens);
  mlir::Value lastScores(mlir::Value logits);
  mlir::Value penaltyAt(mlir::Value count);
  llvm::SmallVector<mlir::Value> choose(mlir::Value scores, mlir::ValueRange hypotheses, mlir::Value number,
                                        const StepTokens &before, mlir::Value covered = {});
  mlir::Value coveredBy(mlir::Value weights);
  mlir::Value coverageTerms(mlir::Value covered);
  mlir::Value given(llvm::StringRef name);
  mlir::Value integerSetting(llvm::StringRef name, int64_t fallback);
  mlir::Value realSetting(llvm::StringRef name, double fallback, mlir::Type type);
  StepTokens chosenBefore(mlir::ValueRange carried);
  void tell(mlir::Value tokens, mlir::Value info, mlir::Value number);
  void carrySequence();
  std::pair<mlir::Value, mlir::Value> adjust(mlir::Value scores, mlir::Value number, const StepTokens &before,
                                             mlir::Value &mayNotEnd);
  mlir::Value firstKin();
  void chooseFirst();
  mlir::OpFoldResult alignmentSize();
  void leaveState(Argument &argument, mlir::Value state, mlir::Value parents);
  void leaveGrowing(Argument &argument, mlir::Value state, mlir::Value parents);
  bool leaveAppended(Argument &argument, mlir::Value state, mlir::Value parents);
  mlir::Value moveRows(const Argument &argument, mlir::Value buffer, mlir::Value length, int64_t added,
                       mlir::Value parents);
  mlir::Value appendRow(mlir::Value buffer, mlir::Value row, mlir::Value at, mlir::Value count);
  void finish();

  SearchOp op;
  KernelTable &kernels;
  const SearchKernels &target;
  bool traces;
  mlir::func::FuncOp step;
  mlir::OpBuilder b;
  mlir::Location loc;
  SearchKernelSpec spec;
  int64_t width;
  mlir::Value batch, rows;
  llvm::SmallVector<Argument> arguments; // of the step but for the tokens
  llvm::SmallVector<mlir::Value> inits, yielded;
  mlir::ValueRange inside; // what the body is given
  mlir::ValueRange results;
  mlir::Operation *loop = nullptr;
  mlir::IRMapping outer, inner;
  // Places in what the loop carries.
  size_t go = 0, steps = 0, tokens = 0, live = 0, best = 0, info = 0, open = 0, history = 0, parents = 0, kin = 0,
         alignments = 0, coverage = 0, sequence = 0;
  mlir::Value sequenceAfter; // null where nothing looks at it
};

/// Replaces `op` by calls of kernels.
void lowerCtcSearch(CtcSearchOp op, KernelTable &kernels, const SearchKernels &target);

/// All searches of a module. With `traces` an attn.trace stands behind each loop.
mlir::LogicalResult lowerSearches(mlir::ModuleOp module, const SearchKernels &target, bool traces);

} // namespace attn

#endif // PASSES_LOWERING_SEARCH_SEARCHLOOP_H
