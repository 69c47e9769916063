#ifndef TEST_GPU_PTXCARD_H
#define TEST_GPU_PTXCARD_H

#include <cstdint>
#include <string>
#include <vector>

namespace ptx::test {

/// Whether bodies run by the driver (PTX_ON_CARD is set) and not in the interpreter.
bool onCard();

/// Runs kernel `k` of `text` by libcuda.so.1 on device 0, which has to be of compute capability 9.0, as the interpreter
/// runs it for runBody(). Throws ptx::Error with the driver's name of what failed.
std::vector<uint8_t> runOnCard(const std::string &text, const std::vector<uint8_t> &in, size_t outBytes,
                               unsigned threads, unsigned blocks);

} // namespace ptx::test

#endif // TEST_GPU_PTXCARD_H
