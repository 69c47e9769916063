// Models and tensors in words and as JSON.
#ifndef TOOLS_ATTN_RUN_DESCRIBE_H
#define TOOLS_ATTN_RUN_DESCRIBE_H

#include "tools/attn-run/runner/Tensor.h"
#include "llvm/ADT/StringRef.h"

namespace llvm {
class raw_ostream;
}

namespace attn::tools {

/// What a library holds, for --info.
void describeModel(llvm::raw_ostream &os, llvm::StringRef name, const attnrt_model_info &info);

/// The manifest, with what is known of the file.
std::string modelJson(const attnrt_model_info &info);

/// A line for each output: type, range and first elements.
void describeOutputs(llvm::raw_ostream &os, const attnrt_entry_info &entry, const std::vector<runner::Tensor> &outputs);

/// The same as a JSON array.
std::string outputsJson(const attnrt_entry_info &entry, const std::vector<runner::Tensor> &outputs);

/// A number as JSON has it: null if it is not finite.
std::string jsonNumber(double value);

} // namespace attn::tools

#endif // TOOLS_ATTN_RUN_DESCRIBE_H
