#ifndef FRONTENDS_GRAPH_SIZETEXT_H
#define FRONTENDS_GRAPH_SIZETEXT_H

#include "frontends/onnx/Symbolic.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace attn::graph {

/// A size as a graph writes it: a sum of products of integers and named
/// dimensions, "batch * 4 + 1". nullopt with the reason in `error`.
std::optional<onnx::Expr> readSize(llvm::StringRef text, const llvm::StringMap<onnx::Expr> &dimensions,
                                   std::string &error);

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_SIZETEXT_H
