#ifndef DIALECTS_ATTN_NODELOCATION_H
#define DIALECTS_ATTN_NODELOCATION_H

#include "mlir/IR/Location.h"
#include "llvm/ADT/StringRef.h"
#include <string>

// The one spelling of "where" for everything that came from a model file. A
// diagnostic's message does not repeat it; who prints diagnostics writes
//
//     error: <describe(location)>: <message>

namespace attn {

/// The location of what a node became: NameLoc "node 'name' (Op)" around
/// FileLineColLoc(file, 0, 0).
mlir::Location nodeLocation(mlir::MLIRContext *context, llvm::StringRef file, llvm::StringRef node, llvm::StringRef op);

/// The location of what belongs to no node: FileLineColLoc(file, 0, 0).
mlir::Location fileLocation(mlir::MLIRContext *context, llvm::StringRef file);

/// "model.onnx: node 'name' (Op)", "model.onnx", or "file:12:3" for a text
/// file; "" when nothing is known. A fused or call location is described by
/// the first of its parts that names a node, else the first that is known.
std::string describe(mlir::Location location);

/// "node 'name' (Op)" of the first node in `location` ("layer 'name' (type)" of
/// a graph file, around its line and column), or "".
llvm::StringRef nodeName(mlir::Location location);

/// `text` (a name from a model file) with control characters and bytes that
/// are not UTF-8 replaced by '?', cut at 200 bytes: safe to print.
std::string printableName(llvm::StringRef text);

} // namespace attn

#endif // DIALECTS_ATTN_NODELOCATION_H
