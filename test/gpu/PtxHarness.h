#ifndef TEST_GPU_PTXHARNESS_H
#define TEST_GPU_PTXHARNESS_H

#include "test/gpu/PtxCard.h"
#include "test/gpu/interpreter/Machine.h"

#include <gtest/gtest.h>

namespace ptx::test {

/// A module of one kernel `k(.param .u64 in, .param .u64 out)` with `body`, in
/// which %in and %out hold its addresses and %t the thread. Registers: %r, %rd,
/// %f, %fd, %h, %p, 32 of each.
/// With `hasTiles` %map is the generic address of a tensor map.
inline std::string kernelText(const std::string &body, const std::string &directives = "", bool hasTiles = false) {
  return std::string(".version 8.0\n.target sm_90a\n.address_size 64\n"
                     ".visible .entry k(.param .u64 a, .param .u64 b") +
         (hasTiles ? ", .param .align 64 .b8 c[128])\n" : ")\n") + directives +
         "\n{\n"
         ".reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .b32 %f<32>; .reg .b64 %fd<32>; .reg .b16 %h<32>;\n"
         ".reg .pred %p<32>; .reg .b64 %in, %out; .reg .b32 %t;\n"
         "ld.param.u64 %in, [a]; ld.param.u64 %out, [b]; mov.u32 %t, %tid.x;\n" +
         (hasTiles ? ".reg .b64 %map; mov.b64 %map, c; cvta.param.u64 %map, %map;\n" : "") + body + "\nret;\n}\n";
}

/// Runs the body, in the interpreter or on a card, and returns the first `outBytes` of the output.
inline std::vector<uint8_t> runBody(const std::string &body, const std::vector<uint8_t> &in, size_t outBytes,
                                    unsigned threads = 1, unsigned blocks = 1, LaunchOptions options = {},
                                    const std::string &directives = "", const Tiles *tiles = nullptr) {
  const std::string text = kernelText(body, directives, tiles);
  if (onCard())
    return runOnCard(text, in, outBytes, threads, blocks, tiles);
  GlobalMemory memory;
  Module module = parse(text, [&](const std::vector<uint8_t> &bytes, uint32_t) {
    uint64_t address = memory.allocate(bytes.size());
    memcpy(memory.find(address, bytes.size()), bytes.data(), bytes.size());
    return address;
  });
  uint64_t parameters[2] = {memory.allocate(in.size() + 1), memory.allocate(outBytes)};
  memcpy(memory.find(parameters[0], in.size()), in.data(), in.size());
  std::vector<uint8_t> bytes(tiles ? 64 + kTileMapBytes : 16);
  memcpy(bytes.data(), parameters, 16);
  if (tiles) {
    alignas(kTileMapAlignment) uint8_t map[kTileMapBytes];
    std::string problem =
        encodeTileMap({tiles->type, uint32_t(tiles->sizes.size()), parameters[0], tiles->sizes.data(),
                       tiles->pitches.data(), tiles->tile.data(), tiles->steps.data(), 0, tiles->swizzle, 0},
                      map);
    if (!problem.empty())
      throw Error(problem);
    memcpy(&bytes[64], map, sizeof(map));
  }
  Launch launch{module.kernels.at("k"), memory, {blocks, 1, 1}, {threads, 1, 1}, bytes, 0, options, 0};
  run(launch);
  uint8_t *out = memory.find(parameters[1], outBytes);
  return {out, out + outBytes};
}

template <typename T> std::vector<uint8_t> bytesOf(std::initializer_list<T> values) {
  auto *begin = reinterpret_cast<const uint8_t *>(values.begin());
  return {begin, begin + values.size() * sizeof(T)};
}
template <typename T> std::vector<T> valuesOf(const std::vector<uint8_t> &bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// The message of the Error of the interpreter that running `body` throws; "" if it throws none.
inline std::string errorOf(const std::string &body, unsigned threads = 1, LaunchOptions options = {},
                           const std::string &directives = "", const Tiles *tiles = nullptr) {
  try {
    runBody(body, std::vector<uint8_t>(64, 0), 64, threads, 1, options, directives, tiles);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

} // namespace ptx::test

/// For a test of the interpreter's own errors.
#define SKIP_ON_CARD()                                                                                                 \
  if (ptx::test::onCard())                                                                                             \
  GTEST_SKIP() << "the interpreter alone says so"

#endif // TEST_GPU_PTXHARNESS_H
