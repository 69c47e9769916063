#ifndef FRONTENDS_ONNX_IMPORTONNX_H
#define FRONTENDS_ONNX_IMPORTONNX_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace attn {
class WeightStore;

namespace onnx {

/// What the models of a compile have that options can name.
struct InputNames {
  using Names = llvm::SetVector<std::string, std::vector<std::string>, std::set<std::string>>;

  Names inputs;  ///< of the models
  Names tensors; ///< that a caller gives: inputs, or tensors of a sequence
  Names dims;
  Names outputs; ///< of the models
};

/// In a shape: a dimension that is open and has no name, whatever the model calls it.
constexpr int64_t kOwnSize = -2;

struct ImportOptions {
  /// `--shape=name:2x128`: whole shapes of inputs; -1 keeps a dimension as it is.
  std::map<std::string, std::vector<int64_t>> shapes;
  /// `--dim=seq:128`: named dimensions made constant.
  std::map<std::string, int64_t> dims;
  /// `--dim=seq:1..512`: least and greatest size of named dimensions that stay
  /// open; the entry requires them.
  std::map<std::string, std::pair<int64_t, int64_t>> dimRanges;
  /// Inputs of integers or bools that are one value, and no inputs of the entry.
  std::map<std::string, int64_t> constants;
  /// Optional inputs of the model that are none of the entry: they have no value.
  std::set<std::string> absent;
  /// `--keep-output=y`: outputs of the entry; the model's others, and nodes that only they need, are left out.
  /// Empty: all.
  std::set<std::string> outputs;
  /// Inputs whose last dimension, if it is open, is 1, whatever others of its name are.
  std::set<std::string> singles;
  /// Inputs whose last dimension cannot be the size of a batch or a cache: a name that says so is none.
  std::set<std::string> masks;
  /// A loop that asks for more ends the run.
  int64_t maxLoopIterations = int64_t(1) << 24;
  /// Name of the entry.
  std::string entry = "main";
  /// One of several models: `shapes` and `dims` may name what only others have.
  bool isOneOfSeveral = false;
  /// Gets the names of each model. Of one of several nobody else asks whether there is what the options name.
  InputNames *names = nullptr;
  /// A run in which one of two sizes that the model names differently is 1 is
  /// served by a second form of the entry.
  bool servesBroadcasts = false;
  /// It is this form.
  bool isBroadcastForm = false;
};

enum class ImportStatus {
  Ok,
  Request,     ///< exit status 1: there is no such file, or it lacks what `options` name
  Unsupported, ///< exit status 2: one diagnostic lists every unsupported operator
  Invalid      ///< exit status 3: the file breaks a rule or a limit
};

/// Reads the ONNX model at `path` into `module` (context's dialects must be
/// loaded; a module that is there gets one more entry) and its initialisers into `weights`. Diagnostics, each starting
/// with the file's name, go to the context's handler.
ImportStatus importOnnx(mlir::MLIRContext *context, llvm::StringRef path, const ImportOptions &options,
                        mlir::OwningOpRef<mlir::ModuleOp> &module, WeightStore &weights);

/// The first input, output or dimension that `options` name and `names` lacks, and those that there are:
/// "input 'x', which --absent names; inputs are 'a', 'b'". Empty: there is each.
std::string findUnknownName(const ImportOptions &options, const InputNames &names);

} // namespace onnx
} // namespace attn

#endif // FRONTENDS_ONNX_IMPORTONNX_H
