// What a run attended to: the weights that a library exposes (--expose-attention), as files and as a page.
#ifndef TOOLS_ATTN_RUN_ATTENTIONMAPS_H
#define TOOLS_ATTN_RUN_ATTENTIONMAPS_H

#include "tools/attn-run/runner/Tensor.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace attn::tools {

/// Where --attention-maps writes, and what its axes are called.
struct AttentionMapsOptions {
  std::string folder;
  /// Names of positions, from --attention-labels. They label each axis that is as long.
  std::vector<std::string> labels;
};

/// Reads a label from each line of `path`; an exit code.
int readLabels(llvm::StringRef path, std::vector<std::string> &labels);

/// Writes each exposed output of `entry` into `options.folder` as N-NODE.WHAT.npy, and attention.html, a page that
/// needs no network, which draws those that are whole weights; an exit code. `model` is what the page calls the model.
int writeAttentionMaps(const AttentionMapsOptions &options, llvm::StringRef model, const attnrt_model_info &info,
                       const attnrt_entry_info &entry, llvm::ArrayRef<runner::Tensor> outputs);

} // namespace attn::tools

#endif // TOOLS_ATTN_RUN_ATTENTIONMAPS_H
