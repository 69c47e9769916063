#include "frontends/graph/Safetensors.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/graph/Json.h"
#include "frontends/graph/Limits.h"
#include "frontends/onnx/Limits.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Endian.h"

using namespace attn;
using namespace attn::graph;
using llvm::StringRef;
using onnx::DType;

/// The element type that the format calls `name`; its bytes in `bytes` (0: unknown).
static std::optional<DType> readDType(StringRef name, int64_t &bytes) {
  auto known = llvm::StringSwitch<std::optional<DType>>(name)
                   .Case("F64", DType::F64)
                   .Case("F32", DType::F32)
                   .Case("F16", DType::F16)
                   .Case("BF16", DType::BF16)
                   .Case("I64", DType::I64)
                   .Case("I32", DType::I32)
                   .Case("I16", DType::I16)
                   .Case("I8", DType::I8)
                   .Case("U64", DType::U64)
                   .Case("U32", DType::U32)
                   .Case("U16", DType::U16)
                   .Case("U8", DType::U8)
                   .Case("BOOL", DType::Bool)
                   .Default(std::nullopt);
  bytes = known ? onnx::dtypeBytes(*known) : name == "F8_E4M3" || name == "F8_E5M2" || name == "F8_E8M0" ? 1 : 0;
  return known;
}

/// One tensor of the header; "" or what is wrong.
static std::string readEntry(const Json &value, uint64_t dataBytes, Safetensors::Entry &entry) {
  const Json *dtype = value.find("dtype"), *shape = value.find("shape"), *offsets = value.find("data_offsets");
  if (!value.is(Json::Object) || !dtype || !shape || !offsets || value.members.size() != 3)
    return "is described by dtype, shape and data_offsets, and nothing else";
  if (!dtype->is(Json::String) || !shape->is(Json::Array) || !offsets->is(Json::Array) || offsets->items.size() != 2)
    return "has a dtype that is no string, a shape that is no array or data_offsets that are no pair";
  int64_t elementBytes = 0;
  entry.dtypeText = dtype->text;
  entry.dtype = readDType(dtype->text, elementBytes);
  if (!elementBytes)
    return "has the unknown dtype '" + printableName(dtype->text) + "'";
  if (shape->items.size() > onnx::kMaxRank)
    return "has " + std::to_string(shape->items.size()) + " dimensions, the limit is " + std::to_string(onnx::kMaxRank);
  for (const Json &size : shape->items) {
    if (!size.is(Json::Integer) || size.integer < 0)
      return "has a dimension that is no size";
    entry.shape.push_back(size.integer);
  }
  std::optional<int64_t> bytes = onnx::checkedBytes(entry.shape, elementBytes);
  if (!bytes)
    return "of shape " + onnx::shapeText(entry.shape) + " is larger than the limit of " +
           std::to_string(onnx::kMaxTensorBytes) + " bytes";
  for (const Json &offset : offsets->items)
    if (!offset.is(Json::Integer) || offset.integer < 0)
      return "has a data offset that is no position";
  entry.begin = offsets->items[0].integer;
  entry.end = offsets->items[1].integer;
  if (entry.begin > entry.end || entry.end > dataBytes)
    return "has data_offsets " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) +
           ", which are not within the " + std::to_string(dataBytes) + " bytes of data";
  if (entry.end - entry.begin != uint64_t(*bytes))
    return "has " + std::to_string(entry.end - entry.begin) + " bytes, its shape " + onnx::shapeText(entry.shape) +
           " of " + entry.dtypeText + " needs " + std::to_string(*bytes);
  return "";
}

bool Safetensors::readHeader(StringRef text, uint64_t dataBegin, uint64_t dataBytes, std::string &error) {
  JsonError problem;
  if (!text.starts_with("{")) {
    error = "its header does not begin with '{'";
    return false;
  }
  std::optional<Json> header = parseJson(text, problem);
  if (!header) {
    error = "its header, column " + std::to_string(problem.at.column) + ": " + problem.message;
    return false;
  }
  if (header->members.size() > kMaxWeights) {
    error = "has " + std::to_string(header->members.size()) + " tensors, the limit is " + std::to_string(kMaxWeights);
    return false;
  }
  std::vector<std::pair<StringRef, const Entry *>> order;
  for (const Json::Member &member : header->members) {
    if (member.key == "__metadata__") {
      bool isText = member.value.is(Json::Object) &&
                    llvm::all_of(member.value.members, [](const auto &m) { return m.value.is(Json::String); });
      if (isText)
        continue;
      error = "its __metadata__ is not an object of strings";
      return false;
    }
    Entry entry;
    if (std::string what = readEntry(member.value, dataBytes, entry); !what.empty()) {
      error = "tensor '" + printableName(member.key) + "' " + what;
      return false;
    }
    auto &slot = entries[member.key] = std::move(entry);
    order.push_back({member.key, &slot});
  }
  // Empty tensors may stand anywhere; the others cover the data exactly once.
  llvm::stable_sort(order, [](const auto &a, const auto &b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  uint64_t covered = 0;
  for (auto [name, entry] : order) {
    if (entry->begin == entry->end)
      continue;
    if (entry->begin != covered) {
      error = "tensor '" + printableName(name) + "' begins at byte " + std::to_string(entry->begin) +
              " of the data, the one before it ends at " + std::to_string(covered);
      return false;
    }
    covered = entry->end;
  }
  if (covered != dataBytes) {
    error = "has " + std::to_string(dataBytes) + " bytes of data, its tensors end at " + std::to_string(covered);
    return false;
  }
  for (auto &entry : entries) {
    entry.second.begin += dataBegin;
    entry.second.end += dataBegin;
  }
  return true;
}

bool Safetensors::open(onnx::ExternalFiles &source, StringRef path, std::string &error) {
  files = &source;
  location = path.str();
  std::optional<uint64_t> size = files->size(location, error);
  if (!size)
    return false;
  if (*size < 8) {
    error = "has " + std::to_string(*size) + " bytes, too few for a safetensors file";
    return false;
  }
  onnx::OwnedBytes length = files->read(location, 0, 8, error);
  if (!error.empty())
    return false;
  uint64_t headerBytes = llvm::support::endian::read64le(length.bytes.data());
  if (headerBytes > kMaxJsonBytes || headerBytes > *size - 8) {
    error = "says that its header has " + std::to_string(headerBytes) + " bytes; the file has " +
            std::to_string(*size) + ", and the limit is " + std::to_string(kMaxJsonBytes);
    return false;
  }
  onnx::OwnedBytes header = files->read(location, 8, headerBytes, error);
  if (!error.empty())
    return false;
  return readHeader(StringRef(header.bytes.data(), header.bytes.size()), 8 + headerBytes, *size - 8 - headerBytes,
                    error);
}

const Safetensors::Entry *Safetensors::find(StringRef name) const {
  auto it = entries.find(name);
  return it == entries.end() ? nullptr : &it->second;
}

std::string Safetensors::closest(StringRef name) const {
  std::string best;
  unsigned least = std::max<size_t>(2, name.size() / 3);
  for (StringRef known : entries.keys())
    if (unsigned distance = name.edit_distance(known, true, least); distance <= least && known.size() < 200) {
      // Not by the order of a hash table.
      if (distance < least || best.empty() || known < best)
        best = known.str();
      least = distance;
    }
  return best;
}

std::optional<onnx::Payload> Safetensors::read(const Entry &entry, std::string &error) {
  onnx::Payload payload;
  payload.dtype = *entry.dtype;
  payload.shape.assign(entry.shape.begin(), entry.shape.end());
  payload.data = files->read(location, entry.begin, entry.end - entry.begin, error);
  if (!error.empty())
    return std::nullopt;
  if (payload.dtype == DType::Bool && llvm::any_of(payload.data.bytes, [](char c) { return c != 0 && c != 1; })) {
    error = "holds a bool that is neither 0 nor 1";
    return std::nullopt;
  }
  return payload;
}
