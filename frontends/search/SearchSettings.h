#ifndef FRONTENDS_SEARCH_SEARCHSETTINGS_H
#define FRONTENDS_SEARCH_SEARCHSETTINGS_H

#include "frontends/search/Beginning.h"

namespace attn {

/// An operand of attn.search, by the name that its `given` has.
struct Setting {
  llvm::StringRef name;
  mlir::Value value;
};

/// What `options` say that attn.search takes as operands, and, with `SearchOptions::runSettings`, optional inputs of
/// the entry in place of them. `vocabulary` says how many tokens are scored, null where only the steps tell; `seed`
/// is there already where parts of the search draw. `length`, the most tokens of a result, may be replaced.
llvm::SmallVector<Setting> makeSettings(mlir::OpBuilder &b, mlir::Location loc, const SearchOptions &options,
                                        Beginning &beginning, const Beginning::AddInput &addInput,
                                        mlir::Value vocabulary, mlir::Value seed, mlir::Value &length);

} // namespace attn

#endif // FRONTENDS_SEARCH_SEARCHSETTINGS_H
