#ifndef FRONTENDS_SEARCH_STEPROLES_H
#define FRONTENDS_SEARCH_STEPROLES_H

#include "dialects/attn/SearchOp.h"
#include "frontends/search/BuildSearch.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

// What the inputs and outputs of a decoder step are for, found by their names.

namespace attn {

/// The parts of a step in the words of attn.search.
struct StepRoles {
  llvm::SmallVector<int64_t> sources, rowDims, growDims;
  int64_t tokens = -1, logits = -1, alignment = -1;
};

/// A name or dimension names of an argument or result of an entry; "" and none where it has none.
llvm::StringRef nameOfInput(mlir::func::FuncOp entry, unsigned number);
llvm::StringRef nameOfOutput(mlir::func::FuncOp entry, unsigned number);
llvm::SmallVector<llvm::StringRef> dimsOfInput(mlir::func::FuncOp entry, unsigned number);
llvm::SmallVector<llvm::StringRef> dimsOfOutput(mlir::func::FuncOp entry, unsigned number);

/// `type` as the command line writes it: 1x?x64xf32.
std::string shapeAndType(mlir::Type type);

/// The entry of that name, null where there is none.
mlir::func::FuncOp findEntry(mlir::ModuleOp module, llvm::StringRef name);

/// What an entry is called.
llvm::StringRef nameOfEntry(mlir::func::FuncOp entry);

/// "'x', 'mask'": names of inputs or outputs, for errors.
std::string listNames(mlir::func::FuncOp entry, bool ofInputs);

/// "it has 'encode', 'decode'", for errors.
std::string listEntries(mlir::ModuleOp module);

/// Whether the output `output` of a step is what its input `input` is in the next one.
bool isStatePair(llvm::StringRef input, llvm::StringRef output);

/// Reports at `step` two inputs of one name among those of a search around it: an input of a part of the search, and
/// one that it adds.
mlir::LogicalResult checkNames(mlir::func::FuncOp step, llvm::ArrayRef<mlir::func::FuncOp> parts,
                               llvm::ArrayRef<mlir::DictionaryAttr> inputs);

/// Reports at `step` what cannot be told.
mlir::FailureOr<StepRoles> findRoles(mlir::func::FuncOp step, const SearchOptions &options);

} // namespace attn

#endif // FRONTENDS_SEARCH_STEPROLES_H
