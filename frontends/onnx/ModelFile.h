#ifndef FRONTENDS_ONNX_MODELFILE_H
#define FRONTENDS_ONNX_MODELFILE_H

#include "frontends/onnx/ImportOnnx.h"
#include "frontends/onnx/Schema.h"
#include "mlir/IR/Diagnostics.h"
#include <memory>

namespace attn::onnx {

/// Where diagnostics of one import go, and what kind of failure they make it.
class Reporter {
public:
  Reporter(mlir::MLIRContext *context, llvm::StringRef path);

  mlir::MLIRContext *getContext() const { return context; }
  llvm::StringRef getPath() const { return path; }
  /// Name of the file as diagnostics show it.
  llvm::StringRef getName() const { return name; }
  mlir::Location fileLoc() const;
  mlir::Location nodeLoc(llvm::StringRef node, llvm::StringRef op) const;

  /// The file breaks a rule or a limit.
  mlir::InFlightDiagnostic invalid(mlir::Location loc);
  mlir::InFlightDiagnostic invalid() { return invalid(fileLoc()); }
  /// What the caller asks for does not fit the file, or there is no such file.
  mlir::InFlightDiagnostic request();
  /// Legal, but not implemented.
  mlir::InFlightDiagnostic unsupported(mlir::Location loc);
  mlir::InFlightDiagnostic unsupported() { return unsupported(fileLoc()); }

  bool failed() const { return status != ImportStatus::Ok; }
  ImportStatus getStatus() const { return status; }

private:
  mlir::MLIRContext *context;
  std::string path, name;
  ImportStatus status = ImportStatus::Ok;
};

/// Reads and parses a regular file of at most kMaxFileBytes; null after a
/// diagnostic. Checked: IR version, opset imports, a graph is there. The file is
/// read, not mapped: it may change while we look at it.
std::unique_ptr<proto::ModelProto> readModelFile(Reporter &reporter);

/// The opset imports of a model or function by domain ("ai.onnx" is ""); false
/// after a diagnostic.
using OpsetImports = std::map<std::string, int>;

/// The version that the model imports of a domain. Of another one than ONNX's own it may import none, as optimisers
/// leave it: that is version 1.
std::optional<int> opsetOf(const OpsetImports &imports, const std::string &domain);

bool readOpsetImports(const google::protobuf::RepeatedPtrField<proto::OperatorSetIdProto> &imports, Reporter &reporter,
                      OpsetImports &result);

/// Whether `text`, of a model, is what protobuf's strings have to be.
bool isUtf8(llvm::StringRef text);

/// "" for "ai.onnx".
std::string canonicalDomain(llvm::StringRef domain);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_MODELFILE_H
