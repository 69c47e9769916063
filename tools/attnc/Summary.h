// What the worker reported about a compile.
#ifndef TOOLS_ATTNC_SUMMARY_H
#define TOOLS_ATTNC_SUMMARY_H

#include "tools/attnc/VerifyFusion.h"

#include "llvm/Support/JSON.h"
#include <string>
#include <vector>

namespace attn::tools {

/// An attention that --expose-attention names.
struct ExposedAttention {
  std::string node;   ///< "node 'NAME' (OPERATOR)"
  std::string entry;  ///< "" where the library has one
  std::string reason; ///< why it has no outputs
};

/// Its JSON texts go into --json and --fusion-report as they are.
struct Summary {
  uint64_t elfBytes = 0, weightBytes = 0;
  std::string narrowed = "[]";
  double narrowingError = 0;
  std::string states = "[]";
  std::vector<std::string> copiedStates; ///< notes on those that grow
  std::string caches = "[]";
  std::vector<std::string> wideCaches;           ///< notes on those that --cache does not change, ...
  size_t wideCacheCount = 0, cacheCount = 0;     ///< ... their number, and that of these and the others, ...
  uint64_t cacheBytes = 0, cacheBytesBefore = 0; ///< ... which take so much for a position of a sequence
  std::vector<std::string> hostOps;
  unsigned fused = 0, softmaxes = 0;
  std::string fusion = "[]", products = "[]", header;
  std::vector<std::string> fusionPasses;
  FusionAssumptions assumptions;
  std::vector<ExposedAttention> exposed;
  /// What --expose-attention can name: the nodes of fused attentions, behind their entry where there are several.
  std::vector<std::string> attentions;

  /// Of WorkerResult::report; what is not there keeps its default.
  static Summary parse(llvm::StringRef text);

private:
  void readFusion(const llvm::json::Object &object);
  void readStates(const llvm::json::Array &list);
  void readCaches(const llvm::json::Array &list);
};

} // namespace attn::tools

#endif // TOOLS_ATTNC_SUMMARY_H
