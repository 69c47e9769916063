// NumPy's .npy files, versions 1 to 3, for the dtypes that models have.
//
// The reader trusts nothing: the header must be exactly NumPy's dictionary, and
// the file as long as its shape says, before memory is taken for it. Column-major
// arrays are rearranged; big-endian ones, records and Python objects are refused.
// bfloat16, which NumPy has not, is read and written as two raw bytes ("V2").
#ifndef TOOLS_ATTN_RUN_RUNNER_NPY_H
#define TOOLS_ATTN_RUN_RUNNER_NPY_H

#include "tools/attn-run/runner/Tensor.h"

namespace attn::runner {

/// False with `error` set, which begins with the path.
bool readNpy(const std::string &path, Tensor &tensor, std::string &error);

/// The same of an opened regular file, which it reads from the start; `error` does not name it.
bool readNpy(int file, Tensor &tensor, std::string &error);

/// Writes through a temporary file and a rename, if `path` is not a device.
bool writeNpy(const std::string &path, const Tensor &tensor, std::string &error);

} // namespace attn::runner

#endif // TOOLS_ATTN_RUN_RUNNER_NPY_H
