#include "tools/options/DrawnSizes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include <set>

namespace attn::tools {

static int64_t sizeOf(Sizes sizes, unsigned n) {
  constexpr int64_t ragged[] = {3, 17, 13, 7, 11, 5, 19, 2};
  switch (sizes) {
  case Sizes::Even:
    return 8;
  case Sizes::One:
    return 1;
  case Sizes::Ragged:
    return ragged[n % std::size(ragged)];
  case Sizes::Full:
    return 33; // one more than two registers of queries
  }
  return 1;
}

DrawnSizes::DrawnSizes(const attnrt_entry_info &entry, Map decided, Map bounded)
    : entry(entry), decided(std::move(decided)), bounded(std::move(bounded)) {
  std::set<std::string> names;
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    for (int32_t d = 0; d < entry.inputs[i].rank; ++d) {
      const attnrt_dim &dim = entry.inputs[i].dims[d];
      if (dim.size < 0 && !llvm::StringRef(dim.name).contains('+') && (!*dim.name || names.insert(dim.name).second))
        dims.push_back({dim.name, i, d});
    }
}

void DrawnSizes::draw(Sizes sizes, runner::InputOptions &options) const {
  std::vector<int64_t> drawn;
  for (auto [n, dim] : llvm::enumerate(dims)) {
    auto fixed = decided.find(dim.name), within = bounded.find(dim.name);
    drawn.push_back(fixed != decided.end()    ? fixed->second
                    : within != bounded.end() ? within->second
                                              : sizeOf(sizes, static_cast<unsigned>(n)));
  }
  if (relation.follower >= 0) {
    int64_t size = relation.more;
    for (int part : {relation.first, relation.second})
      size += part >= 0 ? drawn[part] : 0;
    drawn[relation.follower] = size;
  }
  for (auto [dim, size] : llvm::zip_equal(dims, drawn)) {
    const attnrt_tensor_info &input = entry.inputs[dim.input];
    if (!dim.name.empty())
      options.dims[dim.name] = size;
    else if (!entry.optional_inputs || !entry.optional_inputs[dim.input])
      options.shapes.try_emplace(input.name, input.rank, -1).first->second[dim.axis] = size;
  }
}

std::vector<DrawnSizes::Relation> DrawnSizes::relations() const {
  // Enough for the inputs of a decoder; a model with many open sizes has no obvious one that is a sum.
  constexpr int kMostDims = 8;
  std::vector<Relation> found;
  int count = std::min<int>(dims.size(), kMostDims);
  for (int follower = 0; follower < count; ++follower) {
    if (decided.count(dims[follower].name))
      continue;
    found.push_back({follower, -1, -1, 1});
    for (int first = 0; first < count; ++first) {
      if (first == follower)
        continue;
      found.push_back({follower, first, -1, 0});
      found.push_back({follower, first, -1, 1});
      for (int second = first + 1; second < count; ++second)
        if (second != follower)
          found.push_back({follower, first, second, 0});
    }
  }
  return found;
}

void DrawnSizes::relate(llvm::function_ref<bool(const runner::InputOptions &)> runs) {
  // In ragged sizes none is another one or a sum by chance; in even ones nothing is longer than it has to be.
  auto fits = [&] {
    for (Sizes sizes : {Sizes::Ragged, Sizes::Even}) {
      runner::InputOptions options;
      draw(sizes, options);
      if (!runs(options))
        return false;
    }
    return true;
  };
  if (fits())
    return;
  for (const Relation &each : relations()) {
    relation = each;
    if (fits())
      return;
  }
  relation = Relation();
}

std::string DrawnSizes::print(const Dim &dim) const {
  return "'" +
         (dim.name.empty() ? std::string(entry.inputs[dim.input].name) + "[" + std::to_string(dim.axis) + "]"
                           : dim.name) +
         "'";
}

std::string DrawnSizes::list() const {
  std::string text;
  for (const Dim &dim : dims)
    if (!decided.count(dim.name))
      text += (text.empty() ? "" : ", ") + print(dim);
  return text;
}

std::string DrawnSizes::printRelation() const {
  if (relation.follower < 0)
    return "";
  std::string text;
  for (int part : {relation.first, relation.second})
    if (part >= 0)
      text += (text.empty() ? "" : " + ") + print(dims[part]);
  if (relation.more)
    text += (text.empty() ? "" : " + ") + std::to_string(relation.more);
  return print(dims[relation.follower]) + " is " + text;
}

} // namespace attn::tools
