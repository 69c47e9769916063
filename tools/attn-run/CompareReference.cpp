#include "tools/attn-run/CompareReference.h"

#include "tools/attn-run/Describe.h"
#include "tools/attn-run/NarrowRows.h"
#include "tools/options/Console.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

using namespace llvm;
using attn::runner::Tensor;

namespace attn::tools {

Distance measureDistance(const Tensor &output, const Tensor &reference) {
  Distance distance;
  distance.sameShape = output.shape() == reference.shape();
  if (!distance.sameShape)
    return distance;
  distance.elements = output.elements();
  double squaredError = 0, squaredValue = 0;
  for (uint64_t i = 0; i < output.elements(); ++i) {
    double value = reference.at(i), error = std::fabs(output.at(i) - value);
    if (!std::isfinite(error)) { // equal infinities, and NaN in both, are no difference
      bool same = output.at(i) == value || (std::isnan(output.at(i)) && std::isnan(value));
      distance.notFinite += !same;
      continue;
    }
    distance.maxError = std::max(distance.maxError, error);
    distance.maxValue = std::max(distance.maxValue, std::fabs(value));
    squaredError += error * error;
    squaredValue += value * value;
  }
  distance.relative = squaredValue > 0 ? std::sqrt(squaredError / squaredValue) : squaredError > 0 ? INFINITY : 0;
  return distance;
}

void describeDistances(raw_ostream &os, const attnrt_entry_info &entry, const std::vector<Tensor> &outputs,
                       const std::vector<Tensor> &references, bool json) {
  if (json)
    os << '[';
  for (size_t i = 0; i < outputs.size(); ++i) {
    const char *name = entry.outputs[i].name;
    Tensor wide;
    std::string error;
    bool isWidened = areNarrowRows(outputs[i], references[i]) && widenRows(outputs[i], wide, error);
    Distance d = measureDistance(isWidened ? wide : outputs[i], references[i]);
    if (json) {
      os << (i ? "," : "") << "{\"name\":" << jsonString(name) << ",\"same_shape\":" << (d.sameShape ? "true" : "false")
         << ",\"max_error\":" << jsonNumber(d.maxError) << ",\"max_value\":" << jsonNumber(d.maxValue)
         << ",\"relative_error\":" << jsonNumber(d.relative) << ",\"not_finite\":" << d.notFinite << "}";
      continue;
    }
    os << printable(name) << ": ";
    if (!d.sameShape)
      os << "another shape than in f32\n";
    else
      os << format("%.3g %% from f32 (root mean square), at most %.3g of values up to %.3g", 100 * d.relative,
                   d.maxError, d.maxValue)
         << (d.notFinite ? ", " + std::to_string(d.notFinite) + " finite in one alone" : "") << '\n';
  }
  if (json)
    os << ']';
}

} // namespace attn::tools
