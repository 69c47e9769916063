#ifndef FRONTENDS_ONNX_REDUCE_H
#define FRONTENDS_ONNX_REDUCE_H

#include "frontends/onnx/ImportOnnx.h"
#include <memory>
#include <optional>
#include <utility>

namespace attn::onnx {

/// A model file that can be made smaller part by part. Weights beside the file are taken into it, so that what is left
/// stands alone. What no output needs any more goes with the part that needed it, and so do comments.
class ReducibleModel {
public:
  enum Part : unsigned {
    Nodes,    ///< of the main graph: their outputs become inputs, what only they needed becomes an output
    Outputs,  ///< of the main graph, all but one
    Branches, ///< an If, in whose place one of its branches stands
    Detours,  ///< nodes of any graph, in whose place an input of the same type stands
    Details,  ///< attributes and last inputs of nodes of any graph
    NumParts
  };

  /// Null after a diagnostic, with its kind in `status`.
  static std::unique_ptr<ReducibleModel> read(mlir::MLIRContext *context, llvm::StringRef path, ImportStatus &status);
  ~ReducibleModel();

  /// Parts of this kind that the model has.
  size_t count(unsigned part) const;
  /// Makes a candidate without those in [first, last). False where there is none: the element type of a value that
  /// would become an input is not declared, say.
  bool leaveOut(unsigned part, size_t first, size_t last);
  /// Bytes of the candidate's file, or of the model's before the first one.
  std::string candidate() const;
  /// The candidate becomes the model.
  void accept();

  /// Nodes of all graphs, and bytes: less is smaller.
  std::pair<size_t, size_t> size() const;
  std::pair<size_t, size_t> candidateSize() const;
  /// Values of the main graph that could be inputs if their types were declared.
  size_t countUntyped() const;

  struct State;

private:
  explicit ReducibleModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_REDUCE_H
