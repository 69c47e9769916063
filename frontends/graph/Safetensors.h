#ifndef FRONTENDS_GRAPH_SAFETENSORS_H
#define FRONTENDS_GRAPH_SAFETENSORS_H

#include "frontends/onnx/Payload.h"
#include "llvm/ADT/StringMap.h"

namespace attn::graph {

/// A safetensors file: eight bytes with the length of a JSON header, the
/// header, then the tensors' bytes without a hole, an overlap or anything
/// behind them. The header is checked when the file is opened, a tensor is read
/// when it is asked for.
class Safetensors {
public:
  /// Opens `location`, beneath the folder of the graph that `files` serves;
  /// false with what is wrong in `error`.
  bool open(onnx::ExternalFiles &files, llvm::StringRef location, std::string &error);

  struct Entry {
    std::optional<onnx::DType> dtype; // nullopt: an element type that we lack
    std::string dtypeText;
    llvm::SmallVector<int64_t, 4> shape;
    uint64_t begin = 0, end = 0; // in the file
  };
  /// The tensor `name`, or null.
  const Entry *find(llvm::StringRef name) const;
  /// Its name closest to `name`, or "".
  std::string closest(llvm::StringRef name) const;
  /// The bytes of a tensor; nullopt with the reason.
  std::optional<onnx::Payload> read(const Entry &entry, std::string &error);

private:
  bool readHeader(llvm::StringRef text, uint64_t dataBegin, uint64_t dataBytes, std::string &error);

  onnx::ExternalFiles *files = nullptr;
  std::string location;
  llvm::StringMap<Entry> entries;
};

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_SAFETENSORS_H
