#include "frontends/onnx/Payload.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/ImportOnnx.h"
#include "frontends/onnx/Limits.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace attn;
using namespace attn::onnx;

//===----------------------------------------------------------------------===//
// Scalars as bytes
//===----------------------------------------------------------------------===//

static const llvm::fltSemantics &semantics(DType dtype) {
  return dtype == DType::F16 ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat();
}

static llvm::APFloat toSmall(DType dtype, double value) {
  llvm::APFloat result(value);
  bool inexact;
  result.convert(semantics(dtype), llvm::APFloat::rmNearestTiesToEven, &inexact);
  return result;
}

double attn::onnx::roundTo(DType dtype, double value) {
  if (dtype == DType::F64)
    return value;
  if (dtype == DType::F32)
    return static_cast<float>(value);
  llvm::APFloat result = toSmall(dtype, value);
  bool inexact;
  result.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &inexact);
  return result.convertToDouble();
}

template <typename T> static bool writeInt(int64_t value, char *to) {
  T narrow = static_cast<T>(value);
  memcpy(to, &narrow, sizeof(T));
  return static_cast<int64_t>(narrow) == value && (std::is_signed_v<T> || value >= 0);
}

bool attn::onnx::writeScalar(const Scalar &scalar, DType dtype, char *to) {
  if (const double *value = std::get_if<double>(&scalar)) {
    switch (dtype) {
    case DType::F64:
      memcpy(to, value, 8);
      return true;
    case DType::F32: {
      float narrow = static_cast<float>(*value);
      memcpy(to, &narrow, 4);
      return true;
    }
    case DType::F16:
    case DType::BF16:
      return writeInt<uint16_t>(toSmall(dtype, *value).bitcastToAPInt().getZExtValue(), to);
    default:
      return false;
    }
  }
  std::optional<int64_t> value = std::get<Expr>(scalar).constant();
  if (!value)
    return false;
  switch (dtype) {
  case DType::I8:
    return writeInt<int8_t>(*value, to);
  case DType::I16:
    return writeInt<int16_t>(*value, to);
  case DType::I32:
    return writeInt<int32_t>(*value, to);
  case DType::I64:
    return writeInt<int64_t>(*value, to);
  case DType::U8:
    return writeInt<uint8_t>(*value, to);
  case DType::U16:
    return writeInt<uint16_t>(*value, to);
  case DType::U32:
    return writeInt<uint32_t>(*value, to);
  case DType::U64:
    return writeInt<uint64_t>(*value, to);
  case DType::Bool:
    return writeInt<uint8_t>(*value, to) && (*value == 0 || *value == 1);
  case DType::F8E4M3FN:
  case DType::F8E4M3FNUZ:
  case DType::F8E5M2:
  case DType::F8E5M2FNUZ:
  case DType::F8E8M0:
    return writeInt<uint8_t>(*value, to);
  case DType::I4:
  case DType::I2:
    return writeInt<int8_t>(*value, to) && llvm::isIntN(dtypeBits(dtype), *value);
  case DType::U4:
  case DType::U2:
  case DType::F4E2M1:
    return writeInt<uint8_t>(*value, to) && llvm::isUIntN(dtypeBits(dtype), *value);
  default:
    return false;
  }
}

template <typename T> static T load(const char *from) {
  T value;
  memcpy(&value, from, sizeof(T));
  return value;
}

std::optional<Scalar> Payload::element(int64_t i) const {
  const char *from = data.bytes.data() + i * dtypeBytes(dtype);
  switch (dtype) {
  case DType::F64:
    return Scalar(load<double>(from));
  case DType::F32:
    return Scalar(double(load<float>(from)));
  case DType::F16:
  case DType::BF16: {
    llvm::APFloat value(semantics(dtype), llvm::APInt(16, load<uint16_t>(from)));
    bool inexact;
    value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &inexact);
    return Scalar(value.convertToDouble());
  }
  case DType::I2:
  case DType::I4:
  case DType::I8:
    return Scalar(Expr(load<int8_t>(from)));
  case DType::I16:
    return Scalar(Expr(load<int16_t>(from)));
  case DType::I32:
    return Scalar(Expr(load<int32_t>(from)));
  case DType::I64:
    return Scalar(Expr(load<int64_t>(from)));
  case DType::F8E4M3FN:
  case DType::F8E4M3FNUZ:
  case DType::F8E5M2:
  case DType::F8E5M2FNUZ:
  case DType::F8E8M0:
  case DType::F4E2M1:
  case DType::U4:
  case DType::U2:
  case DType::Bool:
  case DType::U8:
    return Scalar(Expr(load<uint8_t>(from)));
  case DType::U16:
    return Scalar(Expr(load<uint16_t>(from)));
  case DType::U32:
    return Scalar(Expr(load<uint32_t>(from)));
  case DType::U64: {
    uint64_t value = load<uint64_t>(from);
    return value <= INT64_MAX ? std::optional(Scalar(Expr(int64_t(value)))) : std::nullopt;
  }
  }
  llvm_unreachable("unknown dtype");
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

std::string attn::onnx::shapeText(llvm::ArrayRef<int64_t> shape) {
  auto textOf = [](int64_t n) { return n == -1 ? "?" : n == kOwnSize ? "*" : std::to_string(n); };
  return shape.empty() ? "scalar" : llvm::join(llvm::map_range(shape, textOf), "x");
}

/// Copies `field` into elements of T; `error` when a value does not fit.
template <typename T, typename Field> static OwnedBytes copyField(const Field &field, bool bits, std::string &error) {
  auto buffer = std::make_shared<std::vector<char>>(field.size() * sizeof(T));
  for (int i = 0; i < field.size(); ++i) {
    // f16 and bf16 are bit patterns in the low half.
    T narrow = static_cast<T>(field.Get(i));
    using Wide = std::decay_t<decltype(field.Get(i))>;
    if (!std::is_floating_point_v<T> && !bits && static_cast<Wide>(narrow) != field.Get(i)) {
      error = "element " + std::to_string(i) + " is " + std::to_string(field.Get(i)) + ", which its type cannot hold";
      return {};
    }
    memcpy(buffer->data() + i * sizeof(T), &narrow, sizeof(T));
  }
  return {llvm::ArrayRef<char>(*buffer), buffer};
}

static OwnedBytes readTyped(const proto::TensorProto &tensor, DType dtype, std::string &error) {
  switch (dtype) {
  case DType::F32:
    return copyField<float>(tensor.float_data(), false, error);
  case DType::F64:
    return copyField<double>(tensor.double_data(), false, error);
  case DType::I64:
    return copyField<int64_t>(tensor.int64_data(), false, error);
  case DType::U32:
    return copyField<uint32_t>(tensor.uint64_data(), false, error);
  case DType::U64:
    return copyField<uint64_t>(tensor.uint64_data(), false, error);
  case DType::I32:
    return copyField<int32_t>(tensor.int32_data(), false, error);
  case DType::I16:
    return copyField<int16_t>(tensor.int32_data(), false, error);
  case DType::I8:
    return copyField<int8_t>(tensor.int32_data(), false, error);
  case DType::U16:
    return copyField<uint16_t>(tensor.int32_data(), false, error);
  case DType::F4E2M1: // two in an element, or four
  case DType::I4:
  case DType::U4:
  case DType::I2:
  case DType::U2:
  case DType::F8E8M0:
  case DType::F8E4M3FN:
  case DType::F8E4M3FNUZ:
  case DType::F8E5M2:
  case DType::F8E5M2FNUZ:
  case DType::U8:
  case DType::Bool:
    return copyField<uint8_t>(tensor.int32_data(), false, error);
  case DType::F16:
  case DType::BF16:
    return copyField<uint16_t>(tensor.int32_data(), true, error);
  }
  llvm_unreachable("unknown dtype");
}

/// Number of values in all typed fields.
static int64_t numTyped(const proto::TensorProto &tensor) {
  return int64_t(tensor.float_data_size()) + tensor.double_data_size() + tensor.int32_data_size() +
         tensor.int64_data_size() + tensor.uint64_data_size() + tensor.string_data_size();
}

/// Numbers of 4 or 2 bits, the first in a byte's low ones, as `count` bytes of their own.
static OwnedBytes unpack(llvm::ArrayRef<char> packed, int64_t count, DType dtype) {
  auto apart = std::make_shared<std::vector<char>>(count);
  int64_t bits = dtypeBits(dtype), perByte = 8 / bits;
  bool isSigned = attn::onnx::isSigned(dtype);
  for (int64_t i = 0; i < count; ++i) {
    int value = (uint8_t(packed[i / perByte]) >> (i % perByte * bits)) & ((1 << bits) - 1);
    (*apart)[i] = char(isSigned && value >> (bits - 1) ? value - (1 << bits) : value);
  }
  return {llvm::ArrayRef<char>(*apart), apart};
}

static bool parseNumber(llvm::StringRef text, uint64_t &value) {
  return !text.empty() && llvm::all_of(text, llvm::isDigit) && !text.getAsInteger(10, value) && value <= INT64_MAX;
}

static OwnedBytes readExternal(const proto::TensorProto &tensor, uint64_t expected, ExternalFiles &files,
                               std::string &error) {
  std::map<std::string, std::string> entries;
  for (const proto::StringStringEntryProto &entry : tensor.external_data()) {
    // Keys that we do not know (checksum, basepath) say nothing about the bytes.
    if (entry.key() != "location" && entry.key() != "offset" && entry.key() != "length")
      continue;
    if (!entries.try_emplace(entry.key(), entry.value()).second) {
      error = "external data says '" + entry.key() + "' twice";
      return {};
    }
  }
  std::string location = entries["location"];
  uint64_t offset = 0, length = expected;
  for (auto [key, number] : {std::pair("offset", &offset), std::pair("length", &length)})
    if (auto it = entries.find(key); it != entries.end() && !parseNumber(it->second, *number)) {
      error = std::string("the ") + key + " of its external data, '" + printableName(it->second) +
              "', is not a number in [0, 2^63)";
      return {};
    }
  std::string place = "external data '" + printableName(location) + "': ";
  if (length != expected) {
    error = place + "has length " + std::to_string(length) + ", but the tensor needs " + std::to_string(expected) +
            " bytes";
    return {};
  }
  OwnedBytes result = files.read(location, offset, length, error);
  if (!error.empty())
    error = place + error;
  return result;
}

bool attn::onnx::embedExternal(proto::TensorProto &tensor, ExternalFiles &files, std::string &error) {
  std::optional<DType> dtype = dtypeFromProto(tensor.data_type());
  llvm::SmallVector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  std::optional<int64_t> bytes = dtype && llvm::all_of(shape, [](int64_t size) { return size >= 0; })
                                     ? checkedBytes(shape, dtypeBytes(*dtype))
                                     : std::nullopt;
  if (!bytes) {
    error =
        "of shape " + shapeText(shape) + " and element type " + std::to_string(tensor.data_type()) + " has no bytes";
    return false;
  }
  if (*dtype == DType::I4 || *dtype == DType::U4)
    *bytes = (*bytes + 1) / 2; // in the file
  OwnedBytes data = readExternal(tensor, *bytes, files, error);
  if (!error.empty())
    return false;
  tensor.set_raw_data(data.bytes.data(), data.bytes.size());
  tensor.clear_external_data();
  tensor.clear_data_location();
  return true;
}

std::string attn::onnx::dataTypeName(int64_t type) {
  bool isKnown = type > 0 && type <= INT32_MAX && proto::TensorProto::DataType_IsValid(int(type));
  return isKnown ? proto::TensorProto::DataType_Name(proto::TensorProto::DataType(type)) : "";
}

std::optional<Payload> attn::onnx::readPayload(proto::TensorProto &tensor, bool take, ExternalFiles &files,
                                               PayloadError &error) {
  auto fail = [&](std::string message) {
    error.message = std::move(message);
    return std::nullopt;
  };
  std::optional<DType> dtype = dtypeFromProto(tensor.data_type());
  if (!dtype) {
    std::string name = dataTypeName(tensor.data_type());
    error.unsupported = !name.empty();
    if (error.unsupported)
      return fail("has element type " + name + ", which is not supported");
    return fail("has the unknown element type " + std::to_string(tensor.data_type()));
  }
  if (size_t(tensor.dims_size()) > kMaxRank)
    return fail("has " + std::to_string(tensor.dims_size()) + " dimensions, the limit is " + std::to_string(kMaxRank));

  Payload payload;
  payload.dtype = *dtype;
  payload.shape.assign(tensor.dims().begin(), tensor.dims().end());
  for (int64_t size : payload.shape)
    if (size < 0)
      return fail("has a dimension of size " + std::to_string(size));
  std::optional<int64_t> bytes = checkedBytes(payload.shape, dtypeBytes(*dtype));
  if (!bytes)
    return fail("of shape " + shapeText(payload.shape) + " is larger than the limit of " +
                std::to_string(kMaxTensorBytes) + " bytes");
  bool isPacked = dtypeBits(*dtype) < 8;
  int64_t count = *bytes;
  if (isPacked)
    *bytes = (count * dtypeBits(*dtype) + 7) / 8; // in the file
  if (tensor.has_segment())
    return fail("is stored in segments, which ONNX does not define");

  std::string message;
  if (tensor.data_location() == proto::TensorProto::EXTERNAL) {
    if (!tensor.raw_data().empty() || numTyped(tensor))
      return fail("has both external data and data in the file");
    payload.data = readExternal(tensor, *bytes, files, message);
  } else if (!tensor.raw_data().empty()) {
    if (numTyped(tensor))
      return fail("has both raw data and " + std::to_string(numTyped(tensor)) + " typed elements");
    if (take) {
      auto owned = std::make_shared<std::string>(std::move(*tensor.mutable_raw_data()));
      payload.data = {llvm::ArrayRef<char>(owned->data(), owned->size()), owned};
    } else {
      payload.data = {llvm::ArrayRef<char>(tensor.raw_data().data(), tensor.raw_data().size()), nullptr};
    }
  } else {
    payload.data = readTyped(tensor, *dtype, message);
    if (take) {
      tensor.clear_float_data();
      tensor.clear_double_data();
      tensor.clear_int32_data();
      tensor.clear_int64_data();
      tensor.clear_uint64_data();
    }
  }
  if (!message.empty())
    return fail(message);
  if (int64_t(payload.data.bytes.size()) != *bytes)
    return fail("has " + std::to_string(payload.data.bytes.size()) + " bytes, but its shape " +
                shapeText(payload.shape) + " of " + dtypeName(*dtype).str() + " needs " + std::to_string(*bytes));
  if (isPacked)
    payload.data = unpack(payload.data.bytes, count, *dtype);
  if (*dtype == DType::Bool && llvm::any_of(payload.data.bytes, [](char c) { return c != 0 && c != 1; })) {
    auto clean = std::make_shared<std::vector<char>>(payload.data.bytes.begin(), payload.data.bytes.end());
    for (char &c : *clean)
      c = c != 0;
    payload.data = {llvm::ArrayRef<char>(*clean), clean};
  }
  return payload;
}
