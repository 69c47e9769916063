#include "tools/attn-run/runner/Inputs.h"

#include "tools/attn-run/runner/Npy.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <unistd.h>

namespace attn::runner {
namespace {

struct Spelling {
  const char *shortName, *longName;
  int32_t dtype;
};
constexpr Spelling kSpellings[] = {
    {"f32", "float32", ATTNRT_F32},    {"f64", "float64", ATTNRT_F64}, {"f16", "float16", ATTNRT_F16},
    {"bf16", "bfloat16", ATTNRT_BF16}, {"i8", "int8", ATTNRT_I8},      {"i16", "int16", ATTNRT_I16},
    {"i32", "int32", ATTNRT_I32},      {"i64", "int64", ATTNRT_I64},   {"u8", "uint8", ATTNRT_U8},
    {"u16", "uint16", ATTNRT_U16},     {"u32", "uint32", ATTNRT_U32},  {"u64", "uint64", ATTNRT_U64},
    {"i1", "bool", ATTNRT_BOOL}};

/// SplitMix64 (Steele, Lea, Flood 2014): one multiplication chain, no state to
/// seed badly, the same sequence everywhere.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

private:
  uint64_t state;
};

template <typename T> bool parseNumber(std::string_view text, T &value) {
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size();
}

/// Reads "2x3xf32".
bool parseType(std::string_view text, int32_t &dtype, std::vector<int64_t> &shape, std::string &error) {
  while (true) {
    size_t x = text.find('x');
    std::string_view part = text.substr(0, x);
    if (x == std::string_view::npos) {
      for (const Spelling &spelling : kSpellings)
        if (part == spelling.shortName || part == spelling.longName) {
          dtype = spelling.dtype;
          return true;
        }
      error =
          "unknown element type '" + std::string(part) + "'; there are f32, f64, f16, bf16, i8 to i64, u8 to u64, bool";
      return false;
    }
    int64_t dim;
    if (!parseNumber(part, dim) || dim < 0 || shape.size() == 32) {
      error = "'" + std::string(part) + "' is no size; expected a shape and type like 2x3xf32";
      return false;
    }
    shape.push_back(dim);
    text.remove_prefix(x + 1);
  }
}

/// Range of an integer dtype; u64 is handled apart.
bool inRange(int64_t value, int32_t dtype) {
  if (dtype == ATTNRT_BOOL)
    return value == 0 || value == 1;
  unsigned bits = dtype & 0xff;
  if (bits == 64)
    return true;
  int64_t upper = isUnsigned(dtype) ? (INT64_C(1) << bits) - 1 : (INT64_C(1) << (bits - 1)) - 1;
  return value <= upper && value >= (isUnsigned(dtype) ? 0 : -upper - 1);
}

bool parseElement(std::string_view text, Tensor &tensor, uint64_t i) {
  if (isFloat(tensor.dtype())) {
    double value;
    if (!parseNumber(text, value))
      return false;
    tensor.set(i, value);
    return true;
  }
  if (tensor.dtype() == ATTNRT_BOOL && (text == "true" || text == "false")) {
    tensor.setInt(i, text == "true");
    return true;
  }
  if (tensor.dtype() == ATTNRT_U64) {
    uint64_t value;
    if (!parseNumber(text, value))
      return false;
    tensor.setInt(i, static_cast<int64_t>(value));
    return true;
  }
  int64_t value;
  if (!parseNumber(text, value) || !inRange(value, tensor.dtype()))
    return false;
  tensor.setInt(i, value);
  return true;
}

bool parseElements(std::string_view text, Tensor &tensor, std::string &error) {
  uint64_t count = 0;
  while (!text.empty() || count) {
    size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    if (count < tensor.elements() && !parseElement(part, tensor, count)) {
      error = "'" + std::string(part) + "' is no " + attnrt_dtype_name(tensor.dtype());
      return false;
    }
    ++count;
    if (comma == std::string_view::npos)
      break;
    text.remove_prefix(comma + 1);
  }
  if (count == 1 && tensor.elements() == 0) {
    Tensor one; // still a value of the type
    if (Tensor::create(tensor.dtype(), {1}, one, error) && parseElements(text, one, error))
      return true;
    error += "; the shape " + printShape(tensor.shape()) + " has no elements, so nothing need stand behind '='";
    return false;
  }
  if (count == 1 && tensor.elements() > 1) {
    uint64_t size = attnrt_dtype_size(tensor.dtype());
    auto *bytes = static_cast<char *>(tensor.data());
    for (uint64_t i = 1; i < tensor.elements(); ++i)
      std::memcpy(bytes + i * size, bytes, size);
    return true;
  }
  if (count != tensor.elements()) {
    error = std::to_string(count) + (count == 1 ? " value" : " values") + " given, the shape " +
            printShape(tensor.shape()) + " takes " + std::to_string(tensor.elements());
    return false;
  }
  return true;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ')
    text.remove_suffix(1);
  return text;
}

/// The size of a dimension by its name, as far as it is known.
std::optional<int64_t> sizeOf(std::string_view name, const std::map<std::string, int64_t> &known) {
  name = trim(name);
  if (auto it = known.find(std::string(name)); it != known.end())
    return it->second;
  int64_t number;
  if (parseNumber(name, number))
    return number >= 0 ? std::optional(number) : std::nullopt;
  size_t plus = name.rfind('+');
  if (plus == std::string_view::npos)
    return std::nullopt;
  auto left = sizeOf(name.substr(0, plus), known), right = sizeOf(name.substr(plus + 1), known);
  int64_t sum;
  if (!left || !right || __builtin_add_overflow(*left, *right, &sum))
    return std::nullopt;
  return sum;
}

bool isSum(const char *name) { return std::strchr(name, '+') != nullptr; }

Fault create(int32_t dtype, const std::vector<int64_t> &shape, Tensor &tensor, std::string &error) {
  if (Tensor::create(dtype, shape, tensor, error))
    return Fault::None;
  uint64_t count;
  return countElements(shape, dtype, count) ? Fault::Memory : Fault::Request;
}

} // namespace

Fault parseTensor(const std::string &text, Tensor &tensor, std::string &error) {
  if (!text.empty() && text[0] == '@') {
    std::string path = text.substr(1);
    if (access(path.c_str(), R_OK) == 0)
      return readNpy(path, tensor, error) ? Fault::None : Fault::File;
    error = path + ": " + std::strerror(errno);
    return Fault::Request;
  }
  size_t equals = text.find('=');
  if (equals == std::string::npos) {
    error = "'" + text + "' is neither @FILE.npy nor a shape and values like 2x3xf32=0";
    return Fault::Request;
  }
  int32_t dtype;
  std::vector<int64_t> shape;
  std::string_view values = std::string_view(text).substr(equals + 1);
  if (!parseType(std::string_view(text).substr(0, equals), dtype, shape, error))
    return Fault::Request;
  if (Fault fault = create(dtype, shape, tensor, error); fault != Fault::None)
    return fault;
  constexpr std::string_view kSeed = "seed:";
  if (values.substr(0, kSeed.size()) != kSeed)
    return parseElements(values, tensor, error) ? Fault::None : Fault::Request;
  uint64_t seed;
  if (!parseNumber(values.substr(kSeed.size()), seed)) {
    error = "'" + std::string(values) + "' has no whole number as its seed";
    return Fault::Request;
  }
  fill(tensor, seed);
  return Fault::None;
}

void fill(Tensor &tensor, uint64_t seed) {
  Random random(seed);
  if (isFloat(tensor.dtype()))
    for (uint64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, std::ldexp(static_cast<double>(random.next() >> 40), -23) - 1);
  else
    for (uint64_t i = 0; i < tensor.elements(); ++i)
      tensor.setInt(i, static_cast<int64_t>(random.next() >> 63));
}

int findNamed(const std::string &text, const attnrt_tensor_info *infos, int32_t count, const char *what,
              std::string &value, std::string &error) {
  int best = -1;
  size_t length = 0;
  for (int32_t i = 0; i < count; ++i) {
    std::string name = infos[i].name;
    if (text.size() > name.size() && text[name.size()] == '=' && text.compare(0, name.size(), name) == 0 &&
        (best < 0 || name.size() > length)) {
      best = i;
      length = name.size();
    }
  }
  if (best >= 0) {
    value = text.substr(length + 1);
    return best;
  }
  for (int32_t i = 0; i < count; ++i)
    if (text == infos[i].name) {
      error = "--" + std::string(what) + " expects NAME=VALUE, as " + text + "=@" + text + ".npy, not '" + text + "'";
      return -1;
    }
  error = "no " + std::string(what) + " '" + text.substr(0, text.find('=')) + "'; the " + what + "s are";
  for (int32_t i = 0; i < count; ++i)
    error += std::string(i ? ", " : " ") + infos[i].name;
  return -1;
}

std::string printType(const attnrt_tensor_info &info) {
  std::string text = std::string(info.dtype_name) + " [";
  for (int32_t d = 0; d < info.rank; ++d) {
    const attnrt_dim &dim = info.dims[d];
    text += d ? ", " : "";
    text += dim.size >= 0 ? std::to_string(dim.size) : *dim.name ? dim.name : "?";
  }
  return text + "]";
}

/// "--shape=x:Nx64", which gives dimension `place` of an input a size.
static std::string shapeOption(const attnrt_tensor_info &info, int32_t place) {
  std::string text = "--shape=" + std::string(info.name) + ":";
  for (int32_t d = 0; d < info.rank; ++d)
    text += (d ? "x" : "") + (d == place ? "N" : info.dims[d].size < 0 ? "?" : std::to_string(info.dims[d].size));
  return text;
}

/// Whether each size that was asked for belongs to an open dimension of `entry`.
static bool haveDims(const attnrt_entry_info &entry, const std::map<std::string, int64_t> &dims, std::string &error) {
  std::set<std::string> open;
  std::string nameless;
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    for (int32_t d = 0; d < entry.inputs[i].rank; ++d) {
      const attnrt_dim &dim = entry.inputs[i].dims[d];
      if (dim.size < 0 && *dim.name)
        open.insert(dim.name);
      else if (dim.size < 0 && nameless.empty())
        nameless = shapeOption(entry.inputs[i], d);
    }
  for (const auto &[name, size] : dims) {
    if (open.count(name))
      continue;
    error = "--dim=" + name + ":" + std::to_string(size) + ": entry '" + entry.name + "' has no open dimension '" +
            name + "'; ";
    error += !open.empty() ? "open are" : nameless.empty() ? "it has none" : "none that is open has a name";
    for (const std::string &other : open)
      error += (other == *open.begin() ? " " : ", ") + other;
    if (!nameless.empty())
      error += "; one without a name is given as in " + nameless;
    return false;
  }
  return true;
}

/// The inputs that --input gives, and which these are.
static Fault readGiven(const attnrt_entry_info &entry, const InputOptions &options, std::vector<Tensor> &inputs,
                       std::vector<bool> &given, std::string &error) {
  inputs.clear();
  inputs.resize(static_cast<size_t>(entry.num_inputs));
  given.assign(inputs.size(), false);
  for (const std::string &text : options.inputs) {
    std::string value;
    int i = findNamed(text, entry.inputs, entry.num_inputs, "input", value, error);
    if (i < 0)
      return Fault::Request;
    if (given[i]) {
      error = std::string("input '") + entry.inputs[i].name + "' is given twice";
      return Fault::Request;
    }
    if (Fault fault = parseTensor(value, inputs[i], error); fault != Fault::None) {
      error = std::string("input '") + entry.inputs[i].name + "': " + error;
      return fault;
    }
    given[i] = true;
  }
  return Fault::None;
}

/// What names of dimensions stand for: the first given input that has one decides. Whether inputs agree is for the
/// runtime to say.
static Fault decideSizes(const attnrt_entry_info &entry, const InputOptions &options, const std::vector<Tensor> &inputs,
                         const std::vector<bool> &given, std::map<std::string, int64_t> &known, std::string &error) {
  auto learn = [&](const attnrt_tensor_info &info, const std::vector<int64_t> &shape) {
    for (int32_t d = 0; d < info.rank && static_cast<size_t>(d) < shape.size(); ++d)
      if (shape[d] >= 0 && *info.dims[d].name)
        known.emplace(info.dims[d].name, shape[d]);
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (given[i])
      learn(entry.inputs[i], inputs[i].shape());
  for (const auto &[name, shape] : options.shapes)
    for (int32_t i = 0; i < entry.num_inputs; ++i)
      if (name == entry.inputs[i].name)
        learn(entry.inputs[i], shape);
  for (const auto &[name, size] : options.dims)
    if (int64_t fixed = known.emplace(name, size).first->second; options.dimsAreOpen && fixed != size) {
      error =
          "--dim=" + name + ":" + std::to_string(size) + ": the inputs given have " + std::to_string(fixed) + " there";
      return Fault::Request;
    }
  return Fault::None;
}

Fault decidedSizes(const attnrt_entry_info &entry, const InputOptions &options, std::map<std::string, int64_t> &sizes,
                   std::string &error) {
  std::vector<Tensor> inputs;
  std::vector<bool> given;
  if (Fault fault = readGiven(entry, options, inputs, given, error); fault != Fault::None)
    return fault;
  return decideSizes(entry, options, inputs, given, sizes, error);
}

Fault makeInputs(const attnrt_entry_info &entry, const InputOptions &options, std::vector<Tensor> &inputs,
                 std::string &error, std::vector<std::string> *madeUp) {
  if (options.dimsAreOpen && !haveDims(entry, options.dims, error))
    return Fault::Request;
  std::vector<bool> given;
  if (Fault fault = readGiven(entry, options, inputs, given, error); fault != Fault::None)
    return fault;

  std::map<std::string, int64_t> known;
  if (Fault fault = decideSizes(entry, options, inputs, given, known, error); fault != Fault::None)
    return fault;
  known.insert(options.openDims.begin(), options.openDims.end());
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    for (int32_t d = 0; d < entry.inputs[i].rank; ++d)
      if (const attnrt_dim &dim = entry.inputs[i].dims[d]; dim.size < 0 && *dim.name && !isSum(dim.name))
        known.emplace(dim.name, InputOptions::kOpenDim);

  for (size_t i = 0; i < inputs.size(); ++i) {
    const attnrt_tensor_info &info = entry.inputs[i];
    if (given[i])
      continue;
    if (entry.optional_inputs && entry.optional_inputs[i] && !options.shapes.count(info.name)) {
      // Left out: of no elements.
      if (!Tensor::create(info.dtype, std::vector<int64_t>(info.rank), inputs[i], error))
        return Fault::Request;
      continue;
    }
    if (madeUp)
      madeUp->push_back(info.name);
    std::vector<int64_t> shape;
    auto asked = options.shapes.find(info.name);
    if (asked != options.shapes.end() && asked->second.size() != static_cast<size_t>(info.rank)) {
      error = std::string("input '") + info.name + "' is " + printType(info) +
              ", which --shape=" + printShape(asked->second) + " does not fit";
      return Fault::Request;
    }
    for (int32_t d = 0; d < info.rank; ++d) {
      const attnrt_dim &dim = info.dims[d];
      if (asked != options.shapes.end() && asked->second[d] >= 0)
        shape.push_back(asked->second[d]);
      else
        shape.push_back(dim.size >= 0 ? dim.size : sizeOf(dim.name, known).value_or(InputOptions::kOpenDim));
    }
    if (Fault fault = create(info.dtype, shape, inputs[i], error); fault != Fault::None) {
      error = std::string("input '") + info.name + "': " + error;
      return fault;
    }
    // Inputs of one type must not be equal: their difference would hide swaps.
    if (!options.areUntouched)
      fill(inputs[i], options.seed + (static_cast<uint64_t>(i) << 32));
  }
  return Fault::None;
}

} // namespace attn::runner
