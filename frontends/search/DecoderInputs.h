#ifndef FRONTENDS_SEARCH_DECODERINPUTS_H
#define FRONTENDS_SEARCH_DECODERINPUTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

// Decoders as exporters of transformers write them: what their inputs are called.

namespace attn {

enum class Purpose { Other, Tokens, EncoderStates, EncoderMask, Mask, Positions, CachePositions, Past };

/// The number of the input that takes tokens; -1: none has a name that tells.
int64_t findTokens(mlir::func::FuncOp decoder);

Purpose purposeOf(mlir::func::FuncOp decoder, unsigned input);

/// Whether the decoder hands something on that a later call of it takes.
bool hasPast(mlir::func::FuncOp decoder);

/// What the keys and values of the encoder are called, which no step changes.
bool isCrossCache(llvm::StringRef name);

/// A decoder that takes all tokens at once, as a step that takes the last one: the ids so far are its state. Null, with
/// a diagnostic at `whole`, where it does not take any number of tokens.
mlir::func::FuncOp makeStepOfWhole(mlir::ModuleOp module, mlir::func::FuncOp whole, llvm::StringRef logits);

} // namespace attn

#endif // FRONTENDS_SEARCH_DECODERINPUTS_H
