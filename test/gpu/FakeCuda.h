#ifndef TEST_GPU_FAKECUDA_H
#define TEST_GPU_FAKECUDA_H

#include <cstdint>
#include <functional>

// What the stand-in for libcuda offers to those for libraries on top of it.
extern "C" {
/// A number of ATTN_FAKE_CUDA.
long long attnFakeCudaSetting(const char *name, long long fallback);
/// `work` behind what is on the stream, or into the graph that it captures; it returns a CUDA error.
int attnFakeCudaEnqueue(void *stream, const std::function<int()> &work);
/// Where the device's bytes are; null: they are not all of one allocation.
void *attnFakeCudaMemory(uint64_t address, uint64_t bytes);
}

#endif // TEST_GPU_FAKECUDA_H
