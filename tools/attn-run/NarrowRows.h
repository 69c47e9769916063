// Caches of --cache=int8 beside those of the same model in floats.
#ifndef TOOLS_ATTN_RUN_NARROWROWS_H
#define TOOLS_ATTN_RUN_NARROWROWS_H

#include "tools/attn-run/runner/Tensor.h"

namespace attn::tools {

/// Inputs that `entry` takes in rows of bytes, each with a scale behind it, and that are floats in `inputs`, become
/// such rows. False where there is no memory for them.
bool narrowInputs(const attnrt_entry_info &entry, std::vector<runner::Tensor> &inputs, std::string &error);

/// Whether `bytes` has the rows of `numbers` as bytes, as far as types and shapes tell.
bool areNarrowRows(const runner::Tensor &bytes, const runner::Tensor &numbers);

/// What rows of bytes stand for.
bool widenRows(const runner::Tensor &bytes, runner::Tensor &numbers, std::string &error);

} // namespace attn::tools

#endif // TOOLS_ATTN_RUN_NARROWROWS_H
