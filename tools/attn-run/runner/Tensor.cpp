#include "tools/attn-run/runner/Tensor.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace attn::runner {
namespace {

float bitsToFloat(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

float halfToFloat(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 31)
    return bitsToFloat(sign | 0x7f800000 | mantissa << 13);
  float magnitude =
      exponent ? std::ldexp(float(1024 + mantissa), int(exponent) - 25) : std::ldexp(float(mantissa), -24);
  return sign ? -magnitude : magnitude;
}

/// Rounds to nearest, ties to even, straight from double: no double rounding.
uint16_t doubleToHalf(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value))
    return sign | 0x7e00;
  double magnitude = std::fabs(value);
  if (magnitude >= 65520)
    return sign | 0x7c00;
  int exponent;
  std::frexp(magnitude, &exponent); // magnitude in [2^(exponent-1), 2^exponent)
  int ulp = std::max(exponent - 11, -24);
  auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -ulp)));
  // Carries into the exponent by itself: units 2048 is the next binade.
  return sign | static_cast<uint16_t>(((ulp + 24) << 10) + units);
}

uint16_t doubleToBf16(double value) {
  auto narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof bits);
  if (std::isnan(value))
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T> T load(const void *data, uint64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T> void store(void *data, uint64_t i, T value) {
  std::memcpy(static_cast<char *>(data) + i * sizeof(T), &value, sizeof(T));
}

} // namespace

bool countElements(const std::vector<int64_t> &shape, int32_t dtype, uint64_t &count) {
  constexpr uint64_t kMaxBytes = UINT64_C(1) << 62;
  uint64_t size = attnrt_dtype_size(dtype);
  count = 1;
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0)
      return false;
    empty |= dim == 0;
  }
  if (empty) {
    count = 0;
    return true;
  }
  for (int64_t dim : shape)
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(dim), &count) ||
        count > kMaxBytes / std::max<uint64_t>(size, 1))
      return false;
  return true;
}

bool Tensor::create(int32_t dtype, std::vector<int64_t> shape, Tensor &result, std::string &error) {
  uint64_t count;
  if (!countElements(shape, dtype, count)) {
    error = "the shape " + printShape(shape) + " has too many elements";
    return false;
  }
  uint64_t bytes = count * attnrt_dtype_size(dtype);
  void *memory = nullptr;
  if (posix_memalign(&memory, 64, std::max<uint64_t>(bytes, 64)) != 0) {
    error = "no memory for a tensor of " + std::to_string(bytes) + " bytes";
    return false;
  }
  result.type = dtype;
  result.sizes = std::move(shape);
  result.count = count;
  result.memory.reset(memory);
  return true;
}

int64_t Tensor::intAt(uint64_t i) const {
  switch (type) {
  case ATTNRT_I8:
  case ATTNRT_I4:
  case ATTNRT_I2:
    return load<int8_t>(data(), i);
  case ATTNRT_I16:
    return load<int16_t>(data(), i);
  case ATTNRT_I32:
    return load<int32_t>(data(), i);
  case ATTNRT_U8:
  case ATTNRT_U4:
  case ATTNRT_U2:
  case ATTNRT_F4_E2M1:
  case ATTNRT_F8_E8M0:
  case ATTNRT_BOOL:
  case ATTNRT_F8_E4M3FN: // the bits
  case ATTNRT_F8_E4M3FNUZ:
  case ATTNRT_F8_E5M2:
  case ATTNRT_F8_E5M2FNUZ:
    return load<uint8_t>(data(), i);
  case ATTNRT_U16:
    return load<uint16_t>(data(), i);
  case ATTNRT_U32:
    return load<uint32_t>(data(), i);
  default:
    return load<int64_t>(data(), i); // also u64: the same bits
  }
}

void Tensor::setInt(uint64_t i, int64_t value) {
  switch (attnrt_dtype_size(type)) {
  case 1:
    return store(data(), i, static_cast<int8_t>(value));
  case 2:
    return store(data(), i, static_cast<int16_t>(value));
  case 4:
    return store(data(), i, static_cast<int32_t>(value));
  default:
    return store(data(), i, value);
  }
}

double Tensor::at(uint64_t i) const {
  switch (type) {
  case ATTNRT_F32:
    return load<float>(data(), i);
  case ATTNRT_F64:
    return load<double>(data(), i);
  case ATTNRT_F16:
    return halfToFloat(load<uint16_t>(data(), i));
  case ATTNRT_BF16:
    return bitsToFloat(uint32_t(load<uint16_t>(data(), i)) << 16);
  case ATTNRT_U64:
    return static_cast<double>(load<uint64_t>(data(), i));
  default:
    return static_cast<double>(intAt(i));
  }
}

void Tensor::set(uint64_t i, double value) {
  switch (type) {
  case ATTNRT_F32:
    return store(data(), i, static_cast<float>(value));
  case ATTNRT_F64:
    return store(data(), i, value);
  case ATTNRT_F16:
    return store(data(), i, doubleToHalf(value));
  case ATTNRT_BF16:
    return store(data(), i, doubleToBf16(value));
  default:
    return setInt(i, static_cast<int64_t>(value));
  }
}

DLTensor Tensor::view() {
  DLTensor view = {};
  view.data = memory.get();
  view.device.device_type = kDLCPU;
  view.ndim = static_cast<int32_t>(sizes.size());
  view.dtype.code = static_cast<uint8_t>(type >> 8);
  view.dtype.bits = static_cast<uint8_t>(type & 0xff);
  view.dtype.lanes = 1;
  view.shape = sizes.data();
  return view;
}

std::string printShape(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t dim : shape)
    text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text.empty() ? "scalar" : text;
}

std::string printElement(const Tensor &tensor, uint64_t i) {
  if (tensor.dtype() == ATTNRT_U64)
    return std::to_string(static_cast<uint64_t>(tensor.intAt(i)));
  if (!isFloat(tensor.dtype()))
    return std::to_string(tensor.intAt(i));
  char text[40];
  int digits = tensor.dtype() == ATTNRT_F64 ? 17 : tensor.dtype() == ATTNRT_F32 ? 9 : 5;
  std::snprintf(text, sizeof text, "%.*g", digits, tensor.at(i));
  return text;
}

std::string printTensor(const Tensor &tensor) {
  const std::vector<int64_t> &shape = tensor.shape();
  if (shape.empty())
    return printElement(tensor, 0);
  if (tensor.elements() == 0)
    return "[]";
  std::string text;
  for (uint64_t i = 0; i < tensor.elements(); ++i) {
    // Dimensions that begin and end at an element: a bracket each.
    size_t begin = 0, end = 0;
    uint64_t inner = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      inner *= static_cast<uint64_t>(shape[d]);
      begin += i % inner == 0;
      end += (i + 1) % inner == 0;
    }
    if (begin && i)
      text += std::string(begin > 1 ? 2 : 1, '\n') + std::string(shape.size() - begin, ' ');
    text += std::string(begin, '[') + printElement(tensor, i) + std::string(end, ']');
    if (i + 1 < tensor.elements())
      text += end ? "," : ", ";
  }
  return text;
}

Statistics statistics(const Tensor &tensor) {
  Statistics result;
  double sum = 0;
  for (uint64_t i = 0; i < tensor.elements(); ++i) {
    double value = tensor.at(i);
    if (std::isnan(value)) {
      ++result.nans;
      continue;
    }
    result.min = result.any ? std::min(result.min, value) : value;
    result.max = result.any ? std::max(result.max, value) : value;
    result.any = true;
    sum += value;
  }
  if (result.any)
    result.mean = sum / static_cast<double>(tensor.elements() - result.nans);
  return result;
}

Comparison compare(const Tensor &got, const Tensor &want, double rtol, double atol) {
  Comparison result;
  if (got.dtype() != want.dtype()) {
    result.complaint =
        std::string("its type is ") + attnrt_dtype_name(got.dtype()) + ", expected " + attnrt_dtype_name(want.dtype());
    return result;
  }
  if (got.shape() != want.shape()) {
    result.complaint = "its shape is " + printShape(got.shape()) + ", expected " + printShape(want.shape());
    return result;
  }
  bool floats = isFloat(got.dtype());
  uint64_t first = 0;
  for (uint64_t i = 0; i < got.elements(); ++i) {
    bool same;
    if (!floats) {
      same = got.intAt(i) == want.intAt(i);
      result.maxError = std::max(result.maxError, std::fabs(got.at(i) - want.at(i)));
    } else {
      double g = got.at(i), w = want.at(i), difference = std::fabs(g - w);
      if (std::isfinite(g) && std::isfinite(w)) {
        result.maxError = std::max(result.maxError, difference);
        same = difference <= atol + rtol * std::fabs(w);
      } else {
        same = g == w || (std::isnan(g) && std::isnan(w));
      }
    }
    if (!same && result.different++ == 0)
      first = i;
  }
  result.equal = result.different == 0;
  if (result.equal)
    return result;

  // The place as indices: a flat one says nothing in a 3-D tensor.
  std::vector<uint64_t> index(got.shape().size());
  uint64_t rest = first;
  for (size_t d = index.size(); d-- > 0; rest /= static_cast<uint64_t>(got.shape()[d]))
    index[d] = rest % static_cast<uint64_t>(got.shape()[d]);
  std::string place;
  for (uint64_t i : index)
    place += (place.empty() ? "" : ", ") + std::to_string(i);
  char largest[120] = "";
  if (floats)
    std::snprintf(largest, sizeof largest, "; largest difference %.3g, tolerance %g + %g * |expected|", result.maxError,
                  atol, rtol);
  result.complaint = std::to_string(result.different) + " of " + std::to_string(got.elements()) +
                     " elements differ, first [" + place + "]: " + printElement(got, first) + ", expected " +
                     printElement(want, first) + largest;
  return result;
}

} // namespace attn::runner
