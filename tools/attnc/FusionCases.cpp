#include "tools/attnc/FusionCases.h"
#include "tools/options/DrawnSizes.h"

#include "tools/attn-run/runner/Inputs.h"
#include "tools/attn-run/runner/Model.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace attn::tools {
namespace {

using runner::Tensor;
using Tensors = std::vector<Tensor>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
/// At most so many inputs get a -inf or NaN of their own.
constexpr size_t kMaxInjections = 6;
/// The noise of the unfused form is measured so often, and counts so much.
constexpr unsigned kNoiseRuns = 3;
constexpr double kNoiseFactor = 16;

enum class Floats { Random, Equal, Large };
enum class Integers { Random, Ones, Zeros, Lengths };

struct Case {
  std::string name;
  Sizes sizes = Sizes::Even;
  Floats floats = Floats::Random;
  Integers integers = Integers::Random;
  /// A value put into one float input: at every third element, or at the last
  /// index of an axis.
  double injected = 0;
  int input = -1, axis = -1;
};

/// The elements of `tensor` by row and position in the row.
void forEach(Tensor &tensor,
             const std::function<void(uint64_t i, int64_t row, int64_t position, int64_t length)> &visit) {
  int64_t length = tensor.shape().empty() ? 1 : tensor.shape().back();
  for (uint64_t i = 0; i < tensor.elements(); ++i)
    visit(i, int64_t(i) / length, int64_t(i) % length, length);
}

void fillIntegers(Tensor &tensor, Integers kind) {
  if (kind == Integers::Random)
    return;
  int64_t rows =
      tensor.shape().empty() || tensor.shape().back() == 0 ? 1 : int64_t(tensor.elements()) / tensor.shape().back();
  forEach(tensor, [&](uint64_t i, int64_t row, int64_t position, int64_t length) {
    // Row r of n sees the first (r + 1) / (n + 1) of its length.
    bool isShown = position * (rows + 1) < (row + 1) * length;
    tensor.setInt(i, kind == Integers::Ones || (kind == Integers::Lengths && isShown));
  });
}

void fillFloats(Tensor &tensor, Floats kind) {
  for (uint64_t i = 0; i < tensor.elements() && kind != Floats::Random; ++i)
    tensor.set(i, kind == Floats::Equal ? 0.5 : tensor.at(i) * 100);
}

/// Puts the case's value into its input (`replacement` in the place of it).
void inject(const Case &one, Tensors &inputs, double value) {
  if (one.input < 0)
    return;
  Tensor &tensor = inputs[one.input];
  if (one.axis < 0) {
    for (uint64_t i = 0; i < tensor.elements(); i += 3)
      tensor.set(i, value);
    return;
  }
  uint64_t inner = 1, size = tensor.shape()[one.axis];
  for (size_t n = one.axis + 1; n < tensor.shape().size(); ++n)
    inner *= tensor.shape()[n];
  for (uint64_t i = 0; i < tensor.elements(); ++i)
    if (i / inner % size == size - 1)
      tensor.set(i, value);
}

bool makeCase(const Case &one, const attnrt_entry_info &entry, const DrawnSizes &sizes, Tensors &inputs,
              std::string *why = nullptr) {
  runner::InputOptions options;
  options.seed = 20;
  sizes.draw(one.sizes, options);
  std::string error;
  if (runner::makeInputs(entry, options, inputs, error) != runner::Fault::None) {
    if (why)
      *why = error;
    return false;
  }
  for (Tensor &tensor : inputs)
    if (runner::isFloat(tensor.dtype()))
      fillFloats(tensor, one.floats);
    else
      fillIntegers(tensor, one.integers);
  return true;
}

std::vector<Case> listCases(const attnrt_entry_info &entry, const FusionAssumptions &assumptions) {
  bool hasFloats = false, hasIntegers = false, isOpen = false;
  for (int32_t i = 0; i < entry.num_inputs; ++i) {
    (runner::isFloat(entry.inputs[i].dtype) ? hasFloats : hasIntegers) = true;
    for (int32_t d = 0; d < entry.inputs[i].rank; ++d)
      isOpen |= entry.inputs[i].dims[d].size < 0;
  }
  std::vector<Case> cases{{"random"}};
  auto add = [&](std::string name, Sizes sizes, Floats floats, Integers integers) {
    cases.push_back({std::move(name), sizes, floats, integers});
  };
  if (hasIntegers) {
    add("masks of ones", Sizes::Even, Floats::Random, Integers::Ones);
    add("masks of zeros", Sizes::Even, Floats::Random, Integers::Zeros);
    add("masks of lengths", Sizes::Even, Floats::Random, Integers::Lengths);
  }
  if (isOpen) {
    add("length 1", Sizes::One, Floats::Random, Integers::Ones);
    add("ragged", Sizes::Ragged, Floats::Random, Integers::Lengths);
    add("33 of each", Sizes::Full, Floats::Random, Integers::Lengths);
  }
  if (hasFloats) {
    add("equal logits", Sizes::Even, Floats::Equal, Integers::Ones);
    if (!assumptions.keepsLogitsSmall)
      add("large logits", Sizes::Even, Floats::Large, Integers::Lengths);
  }
  for (int32_t i = 0, injections = 0; i < entry.num_inputs && injections < int32_t(kMaxInjections); ++i) {
    const attnrt_tensor_info &info = entry.inputs[i];
    if (!runner::isFloat(info.dtype))
      continue;
    ++injections;
    if (!assumptions.keepsLogitsSmall) // a score may be made of it
      cases.push_back(
          {std::string("-inf in '") + info.name + "'", Sizes::Even, Floats::Random, Integers::Ones, -kInfinity, i, -1});
    // Keys stand before the width, or before heads and width.
    for (int32_t axis = std::max(info.rank - 3, 0); axis < info.rank - 1; ++axis)
      cases.push_back({llvm::formatv("NaN at the end of dimension {0} of '{1}'", axis, info.name).str(), Sizes::Even,
                       Floats::Random, Integers::Lengths, kNaN, i, axis});
  }
  return cases;
}

/// Moves each float by up to two units in the last place.
void perturb(Tensors &inputs, unsigned seed) {
  std::minstd_rand random(seed + 1);
  std::uniform_real_distribution<double> pick(-2, 2);
  for (Tensor &tensor : inputs) {
    if (!runner::isFloat(tensor.dtype()))
      continue;
    double unit = attnrt_dtype_size(tensor.dtype()) == 2 ? 0x1p-9 : 0x1p-23;
    for (uint64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, tensor.at(i) * (1 + unit * pick(random)));
  }
}

class Comparison {
public:
  Comparison(runner::Model &fused, runner::Model &unfused, const FusionAssumptions &assumptions,
             FusionComparison &result)
      : fused(fused), unfused(unfused), assumptions(assumptions), result(result), sizes(fused.entry()) {
    sizes.relate([&](const runner::InputOptions &options) {
      Tensors inputs, outputs;
      std::string error;
      runner::Failure failure;
      if (runner::makeInputs(unfused.entry(), options, inputs, error) != runner::Fault::None)
        return false;
      for (Tensor &tensor : inputs)
        if (!runner::isFloat(tensor.dtype()))
          fillIntegers(tensor, Integers::Lengths); // tokens and positions that a table has
      return unfused.run(inputs, outputs, failure);
    });
  }

  void run(const Case &one) {
    const attnrt_entry_info &entry = fused.entry();
    Tensors inputs, a, b;
    std::string error;
    if (!makeCase(one, entry, sizes, inputs, &error)) {
      refused = refused.empty() ? error : refused;
      return;
    }
    inject(one, inputs, one.injected);
    runner::Failure failureA, failureB;
    bool ranB = unfused.run(inputs, b, failureB), ranA = fused.run(inputs, a, failureA);
    if (!ranA || !ranB) {
      // Sizes that the model does not take.
      refused = refused.empty() ? failureB.message : refused;
      if (ranA != ranB)
        say(one, ranA ? "only the unfused form fails: " + failureB.message
                      : "only the fused form fails: " + failureA.message);
      return;
    }
    ++result.casesRun;
    ++casesRun;
    for (int32_t n = 0; n < entry.num_outputs; ++n)
      compare(one, entry, n, a[n], b[n]);
  }

  /// Why not a single case ran; "": one did.
  std::string whyNone() const {
    std::string open = sizes.list();
    return casesRun       ? ""
           : open.empty() ? refused
                          : refused + "; sizes of " + open +
                                " were drawn, and no one of them from two others fits; give those that belong together "
                                "with --dim=NAME:N, or with --shape=INPUT:... where they have no name";
  }

private:
  void say(const Case &one, const std::string &text) {
    result.differences.push_back(std::string(fused.entry().name) + ", " + one.name + ": " + text);
  }

  /// How far output `n` of the unfused form moves with its inputs; infinity
  /// where an integer or a NaN does.
  double noise(const Case &one, const attnrt_entry_info &entry, int32_t n, const Tensor &want) {
    double most = 0;
    for (unsigned seed = 0; seed < kNoiseRuns; ++seed) {
      Tensors inputs, moved;
      runner::Failure failure;
      if (!makeCase(one, entry, sizes, inputs))
        return 0;
      perturb(inputs, seed);
      inject(one, inputs, one.injected);
      if (!unfused.run(inputs, moved, failure) || moved[n].elements() != want.elements())
        return 0;
      for (uint64_t i = 0; i < want.elements(); ++i) {
        double x = want.at(i), y = moved[n].at(i);
        if (!runner::isFloat(want.dtype()))
          most = want.intAt(i) == moved[n].intAt(i) ? most : kInfinity;
        else if (std::isnan(x) != std::isnan(y))
          most = kInfinity;
        else if (std::isfinite(x) && std::isfinite(y))
          most = std::max(most, std::fabs(x - y));
      }
    }
    return most;
  }

  /// Whether each element of fused output `n` is the same without the injected value.
  std::vector<bool> independent(const Case &one, const attnrt_entry_info &entry, int32_t n, const Tensor &got) {
    std::vector<bool> same(got.elements(), false);
    Tensors inputs, other;
    runner::Failure failure;
    if (one.input < 0 || !makeCase(one, entry, sizes, inputs))
      return same;
    inject(one, inputs, 0);
    if (!fused.run(inputs, other, failure) || other[n].elements() != got.elements())
      return same;
    for (uint64_t i = 0; i < got.elements(); ++i)
      same[i] = std::fabs(got.at(i) - other[n].at(i)) <= 1e-5 * (1 + std::fabs(got.at(i)));
    return same;
  }

  /// Whether the injected value makes scores NaN: an infinity in a mask only makes rows without a visible key, whose
  /// guard the fused form has.
  bool mayMakeNaN(const Case &one, const attnrt_entry_info &entry) const {
    return std::isnan(one.injected) ||
           (std::isinf(one.injected) && !llvm::is_contained(assumptions.masks, entry.inputs[one.input].name));
  }

  void compare(const Case &one, const attnrt_entry_info &entry, int32_t n, const Tensor &got, const Tensor &want) {
    std::string output = std::string("output '") + entry.outputs[n].name + "' ";
    if (got.shape() != want.shape())
      return say(one, output + "has shape " + runner::printShape(got.shape()) + ", unfused " +
                          runner::printShape(want.shape()));
    bool isHalf = attnrt_dtype_size(want.dtype()) == 2;
    double relative = isHalf ? 1e-2 : 1e-3, absolute = relative / 10;
    auto isClose = [&](uint64_t i, double slack) {
      if (!runner::isFloat(want.dtype()))
        return got.intAt(i) == want.intAt(i);
      double x = got.at(i), y = want.at(i);
      if (std::isnan(x) || std::isnan(y) || std::isinf(x) || std::isinf(y))
        return (std::isnan(x) && std::isnan(y)) || x == y;
      return std::fabs(x - y) <= absolute + relative * std::fabs(y) + slack;
    };
    std::vector<uint64_t> far;
    for (uint64_t i = 0; i < want.elements(); ++i)
      if (!isClose(i, 0))
        far.push_back(i);
    if (far.empty())
      return;
    // A masked key's NaN or infinity that no longer arrives is declared: the
    // element does not depend on it, or (0 * inf was NaN) on visible ones only. A guard that hid a NaN of query or key
    // no longer does, so that one behind it may, and one that gave 0 for all of a row with such a key has nothing to
    // guard there. Exponentials without a maximum overflow in the graph alone.
    std::vector<bool> same = independent(one, entry, n, got);
    std::vector<uint64_t> rest;
    for (uint64_t i : far) {
      bool wasGuarded = assumptions.nanGuards && std::isnan(one.injected);
      bool isHidden = same[i] && std::isfinite(got.at(i)) && (!std::isfinite(want.at(i)) || wasGuarded);
      bool isVisible = std::isinf(one.injected) && std::isinf(got.at(i)) && std::isnan(want.at(i));
      bool isUnguarded = assumptions.nanGuards && mayMakeNaN(one, entry) && std::isnan(got.at(i));
      bool isGuardedBehind = assumptions.nanGuards > 1 && std::isnan(one.injected) && !same[i] && got.at(i) == 0;
      bool hasOverflowed = one.floats == Floats::Large && std::isnan(want.at(i)) && std::isfinite(got.at(i));
      if (!isHidden && !isVisible && !isUnguarded && !isGuardedBehind && !hasOverflowed)
        rest.push_back(i);
    }
    if (rest.size() != far.size())
      ++result.declared;
    if (rest.empty())
      return;
    double slack = kNoiseFactor * noise(one, entry, n, want), largest = 0;
    uint64_t count = 0, first = 0;
    for (uint64_t i : rest) {
      if (slack == kInfinity || isClose(i, slack))
        continue;
      first = count++ ? first : i;
      if (double distance = std::fabs(got.at(i) - want.at(i)); std::isfinite(distance) && distance > largest)
        largest = distance;
    }
    if (count)
      say(one, output + llvm::formatv("differs in {0} of {1} elements{2}: element {3} is {4}, unfused {5}", count,
                                      want.elements(),
                                      largest > 0 ? llvm::formatv(", by up to {0:e}", largest).str() : std::string(),
                                      first, runner::printElement(got, first), runner::printElement(want, first))
                            .str());
  }

  runner::Model &fused, &unfused;
  const FusionAssumptions &assumptions;
  FusionComparison &result;
  DrawnSizes sizes;
  unsigned casesRun = 0;
  std::string refused;
};

} // namespace

FusionComparison compareFusedForms(const std::string &fused, const std::string &unfused,
                                   const FusionAssumptions &assumptions) {
  FusionComparison result;
  std::vector<std::string> entries{""};
  for (size_t n = 0; n < entries.size(); ++n) {
    runner::Model a, b;
    runner::Failure failure;
    if (!a.load(fused, entries[n], 2, failure) || !b.load(unfused, entries[n], 2, failure)) {
      result.error = failure.message;
      result.isUnfit = failure.status == ATTNRT_INCOMPATIBLE || failure.status == ATTNRT_UNSUPPORTED;
      return result;
    }
    if (n == 0)
      for (uint32_t other = 1; other < a.info().num_entries; ++other)
        entries.push_back(a.info().entries[other]->name);
    Comparison comparison(a, b, assumptions, result);
    for (const Case &one : listCases(a.entry(), assumptions))
      comparison.run(one);
    if (std::string why = comparison.whyNone(); !why.empty() && result.uncompared.empty())
      result.uncompared = std::string("entry '") + a.entry().name + "': " + why;
  }
  return result;
}

} // namespace attn::tools
