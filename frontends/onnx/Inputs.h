#ifndef FRONTENDS_ONNX_INPUTS_H
#define FRONTENDS_ONNX_INPUTS_H

#include "frontends/onnx/Graph.h"

namespace attn::onnx {

/// One dimension of an input as the model and the options declare it.
struct InputDim {
  std::optional<int64_t> size;
  std::string name; // of the model; "" for none
};

/// One tensor that a caller gives.
struct InputSpec {
  /// What it is of an input of the model: the input, or, of a sequence, the next tensor or all of them, as rows.
  enum class Part { Whole, Item, Stack };

  int value = 0; ///< in Graph::values
  Part part = Part::Whole;
  std::string name;
  DType dtype = DType::F32;
  std::vector<InputDim> dims;
};

/// Leaves those outputs of the model that `--keep-output` names, and the nodes that they need. False after a
/// diagnostic: there is no such output. One of several models may have none of them, and keeps all of its own.
bool keepOutputs(proto::GraphProto &graph, const ImportOptions &options, Reporter &reporter);

/// The inputs of `graph` with `--shape` and `--dim` applied: a dimension that
/// either makes constant is constant wherever its name stands. A sequence `s` is
/// the tensors s.0, s.1, ... that have shapes in the options, or else one that
/// has them all. An optional has its value, or the options say that it has none.
/// nullopt after a diagnostic.
std::optional<std::vector<InputSpec>> readInputs(const Graph &graph, const ImportOptions &options, Reporter &reporter);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_INPUTS_H
