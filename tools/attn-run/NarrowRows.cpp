#include "tools/attn-run/NarrowRows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using attn::runner::Tensor;

namespace attn::tools {

// As attn.narrow_rows says.
static constexpr int64_t kScaleBytes = sizeof(float);
static constexpr float kGreatest = 127, kLeast = 0x1p-100F;

static void narrowRow(const Tensor &numbers, uint64_t row, int64_t width, int8_t *bytes) {
  auto at = [&](int64_t n) { return static_cast<float>(numbers.at(row * width + n)); };
  float top = 0;
  for (int64_t n = 0; n < width; ++n)
    top = std::isnan(at(n)) || std::isnan(top) ? NAN : std::max(top, std::fabs(at(n)));
  float factor = top < kLeast ? 0 : kGreatest / top, scale = top / kGreatest;
  for (int64_t n = 0; n < width; ++n) {
    float code = std::nearbyint(at(n) * factor);
    bytes[n] = std::isnan(code) ? 0 : static_cast<int8_t>(std::clamp(code, -kGreatest, kGreatest));
  }
  std::memcpy(bytes + width, &scale, sizeof(scale));
}

bool narrowInputs(const attnrt_entry_info &entry, std::vector<Tensor> &inputs, std::string &error) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (entry.inputs[i].dtype != ATTNRT_I8 || !runner::isFloat(inputs[i].dtype()))
      continue;
    std::vector<int64_t> shape = inputs[i].shape();
    int64_t width = shape.back();
    shape.back() += kScaleBytes;
    Tensor bytes;
    if (!Tensor::create(ATTNRT_I8, std::move(shape), bytes, error))
      return false;
    for (uint64_t row = 0; row < bytes.elements() / (width + kScaleBytes); ++row)
      narrowRow(inputs[i], row, width, static_cast<int8_t *>(bytes.data()) + row * (width + kScaleBytes));
    inputs[i] = std::move(bytes);
  }
  return true;
}

bool areNarrowRows(const Tensor &bytes, const Tensor &numbers) {
  std::vector<int64_t> shape = numbers.shape();
  if (bytes.dtype() != ATTNRT_I8 || !runner::isFloat(numbers.dtype()) || shape.empty())
    return false;
  shape.back() += kScaleBytes;
  return bytes.shape() == shape;
}

bool widenRows(const Tensor &bytes, Tensor &numbers, std::string &error) {
  std::vector<int64_t> shape = bytes.shape();
  int64_t width = shape.back() -= kScaleBytes;
  if (!Tensor::create(ATTNRT_F32, std::move(shape), numbers, error))
    return false;
  const auto *row = static_cast<const int8_t *>(bytes.data());
  for (uint64_t i = 0; i < numbers.elements(); row += width + kScaleBytes) {
    float scale;
    std::memcpy(&scale, row + width, sizeof(scale));
    for (int64_t n = 0; n < width; ++n)
      numbers.set(i++, row[n] * scale);
  }
  return true;
}

} // namespace attn::tools
