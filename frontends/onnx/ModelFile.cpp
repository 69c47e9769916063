#include "frontends/onnx/ModelFile.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Limits.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace attn;
using namespace attn::onnx;

//===----------------------------------------------------------------------===//
// Reporter
//===----------------------------------------------------------------------===//

Reporter::Reporter(mlir::MLIRContext *context, llvm::StringRef path)
    : context(context), path(path.str()), name(printableName(path)) {}

mlir::Location Reporter::fileLoc() const { return fileLocation(context, name); }
mlir::Location Reporter::nodeLoc(llvm::StringRef node, llvm::StringRef op) const {
  return nodeLocation(context, name, node, op);
}

mlir::InFlightDiagnostic Reporter::invalid(mlir::Location loc) {
  status = ImportStatus::Invalid;
  return mlir::emitError(loc);
}

mlir::InFlightDiagnostic Reporter::request() {
  status = ImportStatus::Request;
  return mlir::emitError(fileLoc());
}

mlir::InFlightDiagnostic Reporter::unsupported(mlir::Location loc) {
  if (status == ImportStatus::Ok)
    status = ImportStatus::Unsupported;
  return mlir::emitError(loc);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// What a file that does not parse is, where its start tells; else "".
static std::string describeOther(int fd) {
  char bytes[256];
  ssize_t count = pread(fd, bytes, sizeof(bytes), 0);
  llvm::StringRef start(bytes, count > 0 ? size_t(count) : 0);
  if (start.starts_with("\x7f"
                        "ELF"))
    return "compiled code; attn-run runs a model library";
  if (start.starts_with("\x93NUMPY"))
    return "a NumPy array";
  bool isText = llvm::all_of(start, [](char c) { return llvm::isPrint(c) || llvm::isSpace(c); });
  return isText && !start.empty() ? "text" : "";
}

static std::unique_ptr<proto::ModelProto> parse(int fd, int64_t size, Reporter &reporter) {
  // protobuf would write what it thinks of the file to stderr.
  google::protobuf::LogHandler *old = google::protobuf::SetLogHandler(nullptr);
  llvm::scope_exit restore([&] { google::protobuf::SetLogHandler(old); });

  auto model = std::make_unique<proto::ModelProto>();
  google::protobuf::io::FileInputStream file(fd, 1 << 20);
  google::protobuf::io::CodedInputStream stream(&file);
  stream.SetRecursionLimit(kMaxProtoDepth);
  bool parsed = model->MergeFromCodedStream(&stream) && stream.ConsumedEntireMessage();
  if (file.GetErrno()) {
    reporter.invalid() << "cannot be read: " << strerror(file.GetErrno());
    return nullptr;
  }
  if (!parsed) {
    std::string what = describeOther(fd);
    mlir::InFlightDiagnostic diagnostic = reporter.invalid();
    diagnostic << "is not an ONNX model, " << (what.empty() ? "or is cut off or damaged" : "but " + what);
    // Where the parser gave up says nothing if it read all.
    if (what.empty() && stream.CurrentPosition() < size)
      diagnostic << ": parsing stopped at byte " << stream.CurrentPosition() << " of " << size;
    return nullptr;
  }
  return model;
}

bool attn::onnx::isUtf8(llvm::StringRef text) {
  const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.begin());
  return llvm::isLegalUTF8String(&begin, begin + text.size());
}

std::string attn::onnx::canonicalDomain(llvm::StringRef domain) { return domain == "ai.onnx" ? "" : domain.str(); }

std::optional<int> attn::onnx::opsetOf(const OpsetImports &imports, const std::string &domain) {
  auto found = imports.find(domain);
  if (found != imports.end())
    return found->second;
  return domain.empty() ? std::nullopt : std::optional(1);
}

bool attn::onnx::readOpsetImports(const google::protobuf::RepeatedPtrField<proto::OperatorSetIdProto> &imports,
                                  Reporter &reporter, OpsetImports &result) {
  for (const proto::OperatorSetIdProto &import : imports) {
    if (import.domain().size() > kMaxNameBytes) {
      reporter.invalid() << "a domain's name has " << import.domain().size() << " bytes, the limit is "
                         << kMaxNameBytes;
      return false;
    }
    std::string domain = canonicalDomain(import.domain());
    if (import.version() < 1 || import.version() > INT32_MAX) {
      reporter.invalid() << "imports version " << import.version() << " of domain '" << printableName(domain) << "'";
      return false;
    }
    auto [it, fresh] = result.try_emplace(domain, int(import.version()));
    if (!fresh && it->second != import.version()) {
      reporter.invalid() << "imports domain '" << printableName(domain) << "' twice, as version " << it->second
                         << " and " << import.version();
      return false;
    }
    if (domain.empty() && (import.version() < kMinOpset || import.version() > kMaxOpset)) {
      reporter.unsupported() << "opset " << import.version() << " is not supported; known are " << kMinOpset << " to "
                             << kMaxOpset;
      return false;
    }
  }
  return true;
}

std::unique_ptr<proto::ModelProto> attn::onnx::readModelFile(Reporter &reporter) {
  // A fifo must not make the open wait.
  int fd = open(reporter.getPath().str().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    reporter.request() << "cannot be opened: " << strerror(errno);
    return nullptr;
  }
  llvm::scope_exit closeFile([&] { ::close(fd); });
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    reporter.request() << (S_ISDIR(info.st_mode) ? "is a folder, not a file" : "is not a regular file");
    return nullptr;
  }
  if (info.st_size == 0) {
    reporter.invalid() << "is empty";
    return nullptr;
  }
  if (uint64_t(info.st_size) > kMaxFileBytes) {
    reporter.invalid() << "has " << info.st_size << " bytes, the limit is " << kMaxFileBytes
                       << "; larger models keep their weights in external data";
    return nullptr;
  }
  std::unique_ptr<proto::ModelProto> model = parse(fd, info.st_size, reporter);
  if (!model)
    return nullptr;
  if (!model->has_ir_version() && !model->has_graph()) {
    reporter.invalid() << "is not an ONNX model: it has neither an IR version nor a graph";
    return nullptr;
  }
  if (!model->has_graph()) {
    reporter.invalid() << "has no graph";
    return nullptr;
  }
  if (model->ir_version() < kMinIrVersion || model->ir_version() > kMaxIrVersion) {
    reporter.unsupported() << "IR version " << model->ir_version() << " is not supported; known are " << kMinIrVersion
                           << " to " << kMaxIrVersion;
    return nullptr;
  }
  return model;
}
