// A run's inputs: from files, from text, or made from a seed.
#ifndef TOOLS_ATTN_RUN_RUNNER_INPUTS_H
#define TOOLS_ATTN_RUN_RUNNER_INPUTS_H

#include "tools/attn-run/runner/Tensor.h"
#include <map>

namespace attn::runner {

/// Whose fault it is that a tensor cannot be had.
enum class Fault {
  None,
  Request, ///< what was asked for: a spelling, a name, a file that is not there
  File,    ///< what a file holds
  Memory   ///< there is too little for it
};

/// Reads "@file.npy", "2x3xf32=1,2,3,4,5,6" (one value fills the tensor) or
/// "2x3xf32=seed:7". Dtypes are spelled f32 or float32, and so on. `error` is set
/// unless the fault is None.
Fault parseTensor(const std::string &text, Tensor &tensor, std::string &error);

/// Fills a tensor from a seed, the same on every machine: floats uniform in
/// [-1, 1), integers and bools 0 or 1, which serve as token ids, types and masks.
void fill(Tensor &tensor, uint64_t seed);

struct InputOptions {
  std::vector<std::string> inputs;     ///< each "name=value"
  std::map<std::string, int64_t> dims; ///< sizes of named dimensions
  /// Whether each of `dims` has to be an open dimension of the entry, with the
  /// size that given inputs have there. Not so if it was fixed by a compile.
  bool dimsAreOpen = false;
  std::map<std::string, std::vector<int64_t>> shapes; ///< of inputs, -1 where open
  std::map<std::string, int64_t> openDims;            ///< of dimensions that nothing else decides, ...
  static constexpr int64_t kOpenDim = 8;              ///< ... and of those that are not among them
  uint64_t seed = 0;
  bool areUntouched = false; ///< made-up inputs are not filled: the pages of a large one are zero, and take no memory
};

/// The inputs of `entry`, in its order. Those that `options.inputs` lacks are
/// generated; their named dimensions follow the given inputs, then
/// `options.dims`. A dimension called like a sum ("past + seq") is the sum.
/// `madeUp`, if given, gets the names of the generated ones.
Fault makeInputs(const attnrt_entry_info &entry, const InputOptions &options, std::vector<Tensor> &inputs,
                 std::string &error, std::vector<std::string> *madeUp = nullptr);

/// The sizes of named dimensions that `options` decide: by given inputs, shapes and dims.
Fault decidedSizes(const attnrt_entry_info &entry, const InputOptions &options, std::map<std::string, int64_t> &sizes,
                   std::string &error);

/// Splits "name=value" where `name` is one of `infos`; names may hold '='. The
/// index of the tensor, or -1 with `error` set to a list of the names there are.
int findNamed(const std::string &text, const attnrt_tensor_info *infos, int32_t count, const char *what,
              std::string &value, std::string &error);

/// "float32 [batch, seq, 384]".
std::string printType(const attnrt_tensor_info &info);

} // namespace attn::runner

#endif // TOOLS_ATTN_RUN_RUNNER_INPUTS_H
