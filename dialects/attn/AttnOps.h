#ifndef DIALECTS_ATTN_ATTNOPS_H
#define DIALECTS_ATTN_ATTNOPS_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/attn/AttnDialect.h.inc"
#include "dialects/attn/AttnEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/attn/AttnAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/attn/AttnOps.h.inc"

#endif // DIALECTS_ATTN_ATTNOPS_H
