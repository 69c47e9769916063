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
#include <optional>

#include "dialects/attn/AttnDialect.h.inc"
#include "dialects/attn/AttnEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/attn/AttnAttrs.h.inc"

namespace attn {
/// Writes the body of a region of attn.attention: gets the f32 score (or
/// weight) and one element of each capture, returns the f32 that is yielded.
using AttentionBody = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::Value, mlir::ValueRange)>;
} // namespace attn

#define GET_OP_CLASSES
#include "dialects/attn/AttnOps.h.inc"

#endif // DIALECTS_ATTN_ATTNOPS_H
