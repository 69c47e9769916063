// What a run attended to: the weights that a library exposes (--expose-attention), as files and as a page.
#ifndef TOOLS_ATTN_RUN_ATTENTIONMAPS_H
#define TOOLS_ATTN_RUN_ATTENTIONMAPS_H

#include "tools/attn-run/runner/Tensor.h"
#include "tools/options/Options.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace attn::tools {

/// Where --attention-maps writes, and what its axes are called.
struct AttentionMapsOptions {
  std::string folder;
  /// Names of positions, from --attention-labels: each axis that is as long has them.
  std::vector<std::string> queryLabels, keyLabels;
  /// What the keys are parts of, from --attention-image: a data URI, or "".
  std::string image;
};

/// Reads the files that `line` names for --attention-maps; an exit code.
int readMapsOptions(CommandLine &line, AttentionMapsOptions &options);

/// Writes each exposed output of `entry` into `options.folder` as N-NODE.WHAT.npy, and attention.html, a page that
/// needs no network, which draws them; an exit code. `model` is what the page calls the model.
int writeAttentionMaps(const AttentionMapsOptions &options, llvm::StringRef model, const attnrt_model_info &info,
                       const attnrt_entry_info &entry, llvm::ArrayRef<runner::Tensor> outputs);

} // namespace attn::tools

#endif // TOOLS_ATTN_RUN_ATTENTIONMAPS_H
