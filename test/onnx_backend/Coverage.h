// What a build with ATTNC_COVERAGE counts: how often each branch of our passes was taken.
#ifndef ATTN_TEST_ONNX_BACKEND_COVERAGE_H
#define ATTN_TEST_ONNX_BACKEND_COVERAGE_H

#include <string>

namespace attn {

/// Writes the counters, a byte per branch, to `file` and sets them to zero. The file is empty in a build that counts
/// nothing. False: it cannot be written.
bool writeBranches(const std::string &file);

} // namespace attn

#endif // ATTN_TEST_ONNX_BACKEND_COVERAGE_H
