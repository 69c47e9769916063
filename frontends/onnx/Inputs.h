#ifndef FRONTENDS_ONNX_INPUTS_H
#define FRONTENDS_ONNX_INPUTS_H

#include "frontends/onnx/Graph.h"

namespace attn::onnx {

/// One dimension of an input as the model and the options declare it.
struct InputDim {
  std::optional<int64_t> size;
  std::string name; // of the model; "" for none
};

struct InputSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<InputDim> dims;
};

/// The inputs of `graph` with `--shape` and `--dim` applied: a dimension that
/// either makes constant is constant wherever its name stands. nullopt after a
/// diagnostic.
std::optional<std::vector<InputSpec>> readInputs(const Graph &graph, const ImportOptions &options, Reporter &reporter);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_INPUTS_H
