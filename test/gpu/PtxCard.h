#ifndef TEST_GPU_PTXCARD_H
#define TEST_GPU_PTXCARD_H

#include <cstdint>
#include <string>
#include <vector>

namespace ptx::test {

/// Whether bodies run by the driver (PTX_ON_CARD is set) and not in the interpreter.
bool onCard();

/// The input as a dense tensor of bf16, the innermost dimension first, and how a tensor map cuts it.
struct Tiles {
  Tiles(std::vector<uint64_t> sizes, std::vector<uint32_t> tile) : sizes(sizes), tile(tile), steps(sizes.size(), 1) {
    uint64_t pitch = 2;
    for (uint64_t size : sizes)
      pitches.push_back(pitch *= size);
  }
  std::vector<uint64_t> sizes, pitches;
  std::vector<uint32_t> tile, steps;
  int type = 9, swizzle = 3; ///< CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B
};

/// Runs kernel `k` of `text` by libcuda.so.1 on device 0, which has to be of compute capability 9.0, as the interpreter
/// runs it for runBody(). Throws ptx::Error with the driver's name of what failed.
std::vector<uint8_t> runOnCard(const std::string &text, const std::vector<uint8_t> &in, size_t outBytes,
                               unsigned threads, unsigned blocks, const Tiles *tiles = nullptr);

} // namespace ptx::test

#endif // TEST_GPU_PTXCARD_H
