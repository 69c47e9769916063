#include "tools/attn-run/AttentionPage.h"
#include "tools/options/Page.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace llvm;
using attn::runner::Tensor;

namespace attn::tools {
namespace {

constexpr const char kPage[] =
#include "tools/pages/attention.inc"
    ;

using Form = Exposed::Form;

constexpr uint64_t kMostWeights = uint64_t(4) << 20; ///< that are drawn: 11 MB of a page
constexpr int64_t kMostGroups = 512;                 ///< of positions: a pixel each

constexpr std::pair<StringRef, Form> kForms[] = {
    {"weights", Form::weights},          {"head_mean", Form::mean},     {"argmax", Form::argmax},
    {"top_k_weights", Form::topWeights}, {"top_k_keys", Form::topKeys}, {"entropy", Form::entropy},
};

/// As the page's script knows them, and what it calls them behind a node's name.
StringRef wordOf(Form form) {
  switch (form) {
  case Form::mean:
    return "mean";
  case Form::argmax:
    return "argmax";
  case Form::topWeights:
    return "top";
  case Form::entropy:
    return "entropy";
  default:
    return "weights";
  }
}

bool isWhole(Form form) { return form == Form::weights || form == Form::alignment; }

} // namespace

Exposed::Exposed(StringRef output, const Tensor *tensor, bool isSearch)
    : output(output.str()), tensor(tensor), isSearch(isSearch) {
  StringRef name = output, number;
  if (auto [front, back] = name.rsplit('.'); !back.empty() && all_of(back, isDigit))
    name = front, number = output.substr(front.size());
  StringRef node = name.rsplit('.').first, suffix = name.substr(node.size()).drop_front(node.size() < name.size());
  const auto *known = find_if(kForms, [&](const auto &each) { return each.first == suffix; });
  if (known == std::end(kForms)) {
    form = Form::alignment;
    this->node = output.str();
    return;
  }
  form = known->second;
  this->node = (node + number).str();
}

AttentionPage::AttentionPage(ArrayRef<Exposed> exposed, const AttentionMapsOptions &options)
    : options(options), mostGroups(kMostGroups) {
  for (const Exposed &one : exposed)
    addLayer(one, exposed);
  for (const Layer &layer : layers)
    mostItems = std::max(mostItems, layer.items);
  for (items = mostItems; items > 1 && drawnWeights() > kMostWeights;)
    items = divideCeil(items, 2);
  while (mostGroups > 1 && drawnWeights() > kMostWeights)
    mostGroups /= 2;
}

void AttentionPage::addLayer(const Exposed &one, ArrayRef<Exposed> all) {
  auto isDrawn = [&](const Exposed &other) { return other.node == one.node && isWhole(other.form); };
  if (one.form == Form::topKeys || (!isWhole(one.form) && any_of(all, isDrawn)))
    return;
  std::vector<int64_t> shape = one.tensor->shape();
  Layer layer{one.node, one.form, one.tensor, nullptr, 1, 1, 1, 1, 0};
  // Of an alignment hypotheses take the place of heads where there is nothing else.
  bool hasHeads = one.form != Form::mean && one.form != Form::alignment;
  bool isAlone =
      one.form == Form::alignment && all_of(all, [](const Exposed &each) { return each.form == Form::alignment; });
  bool hasKeys = isWhole(one.form) || one.form == Form::mean, hasPlaces = one.form == Form::topWeights;
  size_t rank = 2 + hasHeads + hasKeys + hasPlaces;
  if (one.isSearch && shape.size() == rank + 1) {
    if (isAlone) {
      layer.heads = shape[1];
    } else {
      layer.hypotheses = shape[1];
      shape[0] *= shape[1];
    }
    shape.erase(shape.begin() + 1);
  }
  if (shape.size() != rank)
    return;
  layer.items = shape[0];
  layer.heads = hasHeads ? shape[1] : layer.heads;
  layer.queries = shape[1 + hasHeads];
  if (hasKeys)
    layer.keys = shape.back();
  if (one.form == Form::topWeights)
    for (const Exposed &other : all)
      if (other.form == Form::topKeys && other.node == one.node)
        layer.places = other.tensor;
  if (one.form == Form::argmax)
    layer.places = one.tensor;
  if (hasPlaces && !layer.places)
    return;
  // How many keys there are is not told.
  if (layer.places) {
    layer.keys = static_cast<int64_t>(options.keyLabels.size());
    for (uint64_t n = 0; n != layer.places->elements(); ++n)
      layer.keys = std::max(layer.keys, layer.places->intAt(n) + 1);
  }
  if (one.form == Form::entropy) {
    layer.keys = std::exchange(layer.heads, 1);
    layer.most = 1e-9;
    for (uint64_t n = 0; n != one.tensor->elements(); ++n)
      layer.most = std::fmax(layer.most, one.tensor->at(n));
  }
  layers.push_back(std::move(layer));
}

std::set<int64_t> AttentionPage::positions(int axis) const {
  std::set<int64_t> sizes;
  for (const Layer &layer : layers)
    if (axis == 0 || layer.form != Form::entropy)
      sizes.insert(axis ? layer.keys : layer.queries);
  return sizes;
}

bool AttentionPage::isReduced() const {
  return items < mostItems ||
         any_of(layers, [&](const Layer &layer) { return groupOf(layer, 0) > 1 || groupOf(layer, 1) > 1; });
}

/// How many positions are drawn as one. The parts of a picture stay as they are, and so do heads.
int64_t AttentionPage::groupOf(const Layer &layer, int axis) const {
  if (axis && (!options.image.empty() || layer.form == Form::entropy))
    return 1;
  return std::max<int64_t>(1, divideCeil(axis ? layer.keys : layer.queries, mostGroups));
}

uint64_t AttentionPage::drawnWeights() const {
  uint64_t sum = 0;
  for (const Layer &layer : layers)
    sum += static_cast<uint64_t>(itemsOf(layer) * layer.heads * divideCeil(layer.queries, groupOf(layer, 0)) *
                                 divideCeil(layer.keys, groupOf(layer, 1)));
  return sum;
}

void AttentionPage::readRow(const Layer &layer, int64_t item, int64_t head, int64_t query,
                            MutableArrayRef<double> to) const {
  const Tensor &tensor = *layer.tensor;
  auto row = static_cast<uint64_t>((item * layer.heads + head) * layer.queries + query);
  if (layer.form == Form::entropy) {
    for (auto [h, value] : enumerate(to))
      value = tensor.at((static_cast<uint64_t>(item) * to.size() + h) * static_cast<uint64_t>(layer.queries) +
                        static_cast<uint64_t>(query));
    return;
  }
  if (!layer.places) {
    for (auto [j, value] : enumerate(to))
      value = tensor.at(row * to.size() + j);
    return;
  }
  fill(to, 0.0);
  uint64_t count = layer.form == Form::argmax ? 1 : static_cast<uint64_t>(tensor.shape().back());
  for (uint64_t n = row * count; n != (row + 1) * count; ++n) {
    auto place = static_cast<size_t>(layer.places->intAt(n));
    if (place < to.size())
      to[place] = std::max(to[place], layer.form == Form::argmax ? 1.0 : tensor.at(n));
  }
}

/// Two bytes a weight, 65535 being 1. Of a group the sum over keys and the mean over queries, so that a row still sums
/// to what it did.
std::string AttentionPage::encode(const Layer &layer) const {
  int64_t group = groupOf(layer, 0), keyGroup = groupOf(layer, 1);
  std::vector<double> row(static_cast<size_t>(layer.keys)), sums(static_cast<size_t>(divideCeil(layer.keys, keyGroup)));
  std::string bytes;
  for (int64_t slice = 0, end = itemsOf(layer) * layer.heads; slice != end; ++slice)
    for (int64_t first = 0; first < layer.queries; first += group) {
      int64_t last = std::min(first + group, layer.queries);
      fill(sums, 0.0);
      for (int64_t query = first; query != last; ++query) {
        readRow(layer, slice / layer.heads, slice % layer.heads, query, row);
        for (auto [j, weight] : enumerate(row))
          if (weight > 0) // no NaN
            sums[j / static_cast<size_t>(keyGroup)] += weight;
      }
      for (double sum : sums) {
        double share = sum / static_cast<double>(last - first) / layer.most;
        auto word = static_cast<uint16_t>(std::lround(65535 * std::min(share, 1.0)));
        bytes.push_back(static_cast<char>(word & 255));
        bytes.push_back(static_cast<char>(word >> 8));
      }
    }
  return encodeBase64(bytes);
}

/// In bits, the mean over the queries of each item and head; of weights as they are, in no groups.
json::Array AttentionPage::entropies(const Layer &layer) const {
  bool isGiven = layer.form == Form::entropy;
  std::vector<double> row(static_cast<size_t>(layer.keys));
  json::Array bits;
  for (int64_t slice = 0, end = itemsOf(layer) * layer.heads; slice != end; ++slice) {
    std::vector<double> sums(isGiven ? row.size() : 1, 0.0); // by head
    for (int64_t query = 0; query != layer.queries; ++query) {
      readRow(layer, slice / layer.heads, slice % layer.heads, query, row);
      for (auto [n, value] : enumerate(row))
        if (value > 0)
          sums[isGiven ? n : 0] += isGiven ? value / numbers::ln2 : -value * std::log2(value);
    }
    for (double sum : sums)
      bits.push_back(layer.queries && std::isfinite(sum) ? sum / static_cast<double>(layer.queries) : 0);
  }
  return bits;
}

json::Object AttentionPage::describe(const Layer &layer) const {
  int64_t group = groupOf(layer, 0), keyGroup = groupOf(layer, 1);
  json::Object object{
      {"name", json::fixUTF8(layer.name)},
      {"form", wordOf(layer.form)},
      {"shape", json::Array{itemsOf(layer), layer.heads, static_cast<int64_t>(divideCeil(layer.queries, group)),
                            static_cast<int64_t>(divideCeil(layer.keys, keyGroup))}},
      {"positions", json::Array{layer.queries, layer.keys}},
      {"group", json::Array{group, keyGroup}},
      {"weights", encode(layer)}};
  if (isWhole(layer.form) || layer.form == Form::entropy)
    object["bits"] = entropies(layer);
  if (layer.form == Form::entropy)
    object["most"] = layer.most / numbers::ln2;
  if (layer.hypotheses)
    object["hypotheses"] = layer.hypotheses;
  for (auto [key, labels, size] : {std::tuple("queryLabels", &options.queryLabels, layer.queries),
                                   std::tuple("keyLabels", &options.keyLabels, layer.keys)}) {
    json::Array texts;
    for (const std::string &label : *labels)
      texts.push_back(json::fixUTF8(label));
    bool isHeads = layer.form == Form::entropy && labels == &options.keyLabels;
    if (!texts.empty() && !isHeads && static_cast<size_t>(size) == texts.size())
      object[key] = std::move(texts);
  }
  return object;
}

std::string AttentionPage::text(StringRef model) const {
  json::Array described;
  for (const Layer &layer : layers)
    described.push_back(describe(layer));
  json::Object data{{"model", json::fixUTF8(model)}, {"layers", std::move(described)}, {"items", mostItems}};
  if (!options.image.empty())
    data["image"] = options.image;
  auto hasHypotheses = [](const Layer &layer) {
    return layer.form == Form::alignment && layer.tensor->shape().size() == 4;
  };
  if (all_of(layers, hasHypotheses) && !layers.empty() && !layers.front().hypotheses)
    data["heads"] = "Hypothesis";
  return fillPage(kPage, "@ATTENTION_DATA@", std::move(data));
}

} // namespace attn::tools
