#ifndef FRONTENDS_SEARCH_SEARCHSEED_H
#define FRONTENDS_SEARCH_SEARCHSEED_H

#include "frontends/search/OptionalInputs.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Whether input `number` of `entry` is the seed of what it draws.
bool isSeed(mlir::func::FuncOp entry, unsigned number);

/// The seed of a search around entries that draw random numbers, an optional input of the search: each call and each
/// step is given another seed that is made of it.
class SearchSeed {
public:
  /// Adds the input where one of `parts` draws. It is `fallback` where a caller leaves it out.
  SearchSeed(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::func::FuncOp> parts, int64_t fallback,
             AddInputFn addInput);

  /// What the caller gave, i64; null: nothing draws.
  mlir::Value number() const { return given; }
  /// The input; null: there is none.
  mlir::Value input() const { return list; }
  /// For the next call before the search, [1].
  mlir::Value ofCall();
  /// For the first step, [1]: a position, so that a step more is a seed more.
  mlir::Value ofSteps();

private:
  mlir::Value derive(int64_t number);

  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Value given, list;
  int64_t calls = 0;
};

} // namespace attn

#endif // FRONTENDS_SEARCH_SEARCHSEED_H
