#ifndef FRONTENDS_SEARCH_BEGINNING_H
#define FRONTENDS_SEARCH_BEGINNING_H

#include "frontends/search/BuildSearch.h"
#include "frontends/search/SearchSeed.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <functional>

namespace attn {

/// What stands before the first step: entries that are called, each with what those before it returned, and with
/// `SearchOptions::prompts` a prompt, its mask and positions, and empty caches.
class Beginning {
public:
  using AddInput = std::function<mlir::Value(mlir::Type, mlir::DictionaryAttr)>;

  /// `scores` is what the step calls the scores of the next token.
  Beginning(mlir::func::FuncOp step, llvm::StringRef scores, const SearchOptions &options, mlir::OpBuilder &b,
            AddInput addInput);

  /// Calls the entries. `isWhole`: the step takes all tokens at once (makeStepOfWhole).
  mlir::LogicalResult call(llvm::ArrayRef<mlir::func::FuncOp> entries, bool isWhole, SearchSeed &seed);

  /// The output that is the input `name` of a later entry, or that it makes of its state, which it calls `later`; null:
  /// there is none.
  mlir::Value output(mlir::func::FuncOp of, llvm::StringRef name, llvm::StringRef later = "");
  /// The input of a called entry that has this name.
  mlir::Value input(llvm::StringRef name);
  /// What the prompt makes of an input of the first step; null: nothing.
  mlir::Value made(unsigned number);

  /// Scores of the first token, or the tokens that the first step is given; null: nothing tells.
  mlir::Value first();
  /// The prompt, [rows, tokens] in i64, and how many tokens it has; null without one.
  mlir::Value prompt() { return ids; }
  mlir::Value promptLength() { return length; }
  /// How many tokens at the front of each prompt its mask hides, [rows] in i64; null without a mask.
  mlir::Value promptPadding();
  /// How the output `value` names its dimensions.
  llvm::SmallVector<llvm::StringRef> dimsOf(mlir::Value value);

  /// `given` as an entry takes it for its input `name`; sizes that only the run knows are required.
  mlir::FailureOr<mlir::Value> fit(mlir::Value given, mlir::Type type, llvm::StringRef name);

  /// Fails where an entry was called for nothing.
  mlir::LogicalResult checkUses();

private:
  struct Call {
    mlir::func::FuncOp entry;
    mlir::func::CallOp op;
  };

  mlir::InFlightDiagnostic error();
  mlir::FailureOr<mlir::Value> operandOf(mlir::func::FuncOp entry, unsigned number, bool takesPrompt);
  mlir::Value makeFor(mlir::func::FuncOp entry, unsigned number, bool isNext);
  mlir::Value encoderMask();
  mlir::Value emptyCache(mlir::RankedTensorType type);
  mlir::LogicalResult takePrompt(mlir::func::FuncOp decoder);
  mlir::Value takeSource(mlir::func::FuncOp decoder);
  mlir::Value takeTokens(llvm::StringRef name, llvm::StringRef rowsName, mlir::Value rows);
  void takeMask(llvm::StringRef rowsName);
  mlir::DictionaryAttr describe(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> dims, bool isOptional);

  mlir::func::FuncOp step;
  llvm::StringRef scores;
  const SearchOptions &options;
  mlir::OpBuilder &b;
  mlir::Location loc;
  AddInput addInput;
  bool isWhole = false;
  llvm::SmallVector<Call, 2> calls;
  llvm::SmallVector<std::pair<std::string, mlir::Value>> inputs;
  mlir::Value ids, mask, length, rows; // of the prompt
};

} // namespace attn

#endif // FRONTENDS_SEARCH_BEGINNING_H
