#ifndef PASSES_PASSES_TD
#define PASSES_PASSES_TD

include "passes/graph/GraphPasses.td"
include "passes/lowering/buffers/BufferPasses.td"
include "passes/lowering/choose/ChoosePasses.td"
include "passes/lowering/cpu/CpuPasses.td"
include "passes/lowering/gpu/GpuPasses.td"

#endif // PASSES_PASSES_TD
