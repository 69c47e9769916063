#ifndef DIALECTS_ATTN_ATTNOPS_H
#define DIALECTS_ATTN_ATTNOPS_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <limits>
#include <optional>

#include "dialects/attn/AttnDialect.h.inc"
#include "dialects/attn/AttnEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/attn/AttnAttrs.h.inc"

namespace attn {
/// Writes the body of a region of attn.attention: gets the f32 score (or
/// weight) and one element of each capture, returns the f32 that is yielded.
using AttentionBody = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::Value, mlir::ValueRange)>;

/// One term of an attention's mask. `operand` is null where the term takes none.
struct MaskTerm {
  mlir::Attribute term;
  mlir::Value operand;
  mlir::AffineMap map;
};

/// Whether `term` is a mask term, and whether it takes an operand.
bool isMaskTerm(mlir::Attribute term);
bool takesMaskOperand(mlir::Attribute term);

/// All of an attn.attention but its regions and location. `key` and `alignment`
/// are null where the kind has none; `maps` are those of the operands in the
/// op's order (query, key, value, alignment, captures, mask operands), then of
/// the results; `types` are those of the results.
struct AttentionParts {
  ScoreKind kind = ScoreKind::dot;
  Normalizer normalizer = Normalizer::softmax;
  MaskedRows maskedRows = MaskedRows::nan;
  mlir::Value query, key, value, alignment;
  llvm::SmallVector<mlir::Value> captures, maskOperands;
  llvm::SmallVector<mlir::Attribute> mask, extras;
  mlir::Type softmaxType;
  mlir::ArrayAttr axes; ///< null: each dimension is the axis of its name
  llvm::SmallVector<mlir::AffineMap> maps;
  llvm::SmallVector<mlir::Type> types;
};
} // namespace attn

#define GET_OP_CLASSES
#include "dialects/attn/AttnOps.h.inc"

#endif // DIALECTS_ATTN_ATTNOPS_H
