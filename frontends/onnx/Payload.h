#ifndef FRONTENDS_ONNX_PAYLOAD_H
#define FRONTENDS_ONNX_PAYLOAD_H

#include "frontends/onnx/ExternalData.h"
#include "frontends/onnx/Importer.h"
#include "frontends/onnx/Schema.h"

namespace attn::onnx {

/// A constant of the model file: dense, row-major, little endian, Bool 0 or 1.
struct Payload {
  DType dtype = DType::F32;
  llvm::SmallVector<int64_t, 4> shape;
  OwnedBytes data;

  int64_t numElements() const { return data.bytes.size() / dtypeBytes(dtype); }
  /// Element `i`; nullopt for an unsigned 64-bit integer above 2^63 - 1.
  std::optional<Scalar> element(int64_t i) const;
};

struct PayloadError {
  std::string message;      // "has 12 bytes, its shape 2x4 of float32 needs 32"
  bool unsupported = false; // a legal element type that the importer lacks
};

/// Reads a tensor in any of its encodings (raw, one of the typed fields,
/// external data) and checks that it holds what its shape says. With `take`
/// the bytes are moved out of `tensor`; otherwise raw data stays there and
/// `tensor` must outlive the payload.
std::optional<Payload> readPayload(proto::TensorProto &tensor, bool take, ExternalFiles &files, PayloadError &error);

/// Reads a sparse tensor as the dense one that it stands for, under the name of its values. `bytes` counts those of all
/// that the model has.
std::optional<Payload> readSparse(proto::SparseTensorProto &sparse, bool take, ExternalFiles &files, uint64_t &bytes,
                                  PayloadError &error);

/// Takes a tensor's external data into it; false with the reason in `error`.
bool embedExternal(proto::TensorProto &tensor, ExternalFiles &files, std::string &error);

/// TensorProto's name of a data type; "" for a number that is none.
std::string dataTypeName(int64_t type);

/// "2x3" or "scalar".
std::string shapeText(llvm::ArrayRef<int64_t> shape);

/// Writes a scalar as dtype's bytes to `to`; false for an integer that does not fit.
bool writeScalar(const Scalar &scalar, DType dtype, char *to);
/// `value` rounded to a float dtype.
double roundTo(DType dtype, double value);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_PAYLOAD_H
