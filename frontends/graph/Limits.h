#ifndef FRONTENDS_GRAPH_LIMITS_H
#define FRONTENDS_GRAPH_LIMITS_H

#include <cstddef>
#include <cstdint>

// How much a graph file may ask for. Each limit is the greatest value that is
// accepted; what a tensor may be is in frontends/onnx/Limits.h.

namespace attn::graph {

/// Arrays and objects inside one another, in a graph or a safetensors header.
inline constexpr unsigned kMaxJsonDepth = 64;
/// Bytes of a graph, and of a safetensors header.
inline constexpr uint64_t kMaxJsonBytes = uint64_t(16) << 20;
/// Values in one JSON text.
inline constexpr size_t kMaxJsonValues = 2'000'000;
/// Layers, with those that a repeat writes out.
inline constexpr size_t kMaxLayers = 100'000;
/// Tensors of one safetensors file.
inline constexpr size_t kMaxWeights = 100'000;
/// Parentheses and operators inside one another in a formula.
inline constexpr unsigned kMaxFormulaDepth = 64;

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_LIMITS_H
