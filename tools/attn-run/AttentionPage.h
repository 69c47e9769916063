// The page that draws what a run attended to.
#ifndef TOOLS_ATTN_RUN_ATTENTIONPAGE_H
#define TOOLS_ATTN_RUN_ATTENTIONPAGE_H

#include "tools/attn-run/AttentionMaps.h"

#include "llvm/Support/JSON.h"
#include <set>

namespace attn::tools {

/// An output that shows the weights of an attention, or a reduction of them.
struct Exposed {
  enum class Form { weights, alignment, mean, argmax, entropy, topWeights, topKeys };

  Exposed(llvm::StringRef output, const runner::Tensor *tensor, bool isSearch);

  std::string output; ///< "NODE.weights", "NODE.weights.2" of a node that became several attentions
  const runner::Tensor *tensor;
  bool isSearch; ///< behind batch a beam has its hypotheses
  Form form = Form::weights;
  std::string node; ///< "NODE", "NODE.2"
};

/// What the page draws: of each attention whole weights or, where it has none, its reductions; of many and long ones a
/// part, so that a browser opens it.
class AttentionPage {
public:
  AttentionPage(llvm::ArrayRef<Exposed> exposed, const AttentionMapsOptions &options);

  std::string text(llvm::StringRef model) const;
  /// How many queries (axis 0) and keys (axis 1) the attentions have.
  std::set<int64_t> positions(int axis) const;
  /// Whether items are left out, or positions are drawn in groups.
  bool isReduced() const;

private:
  /// Rows of weights, [items, heads, queries, keys].
  struct Layer {
    std::string name;
    Exposed::Form form;
    const runner::Tensor *tensor, *places; ///< the keys of a top-k
    int64_t items, heads, queries, keys;
    int64_t hypotheses; ///< of each item; 0: it has none
    double most = 1;    ///< of its elements, where they are no weights
  };

  void addLayer(const Exposed &one, llvm::ArrayRef<Exposed> all);
  int64_t groupOf(const Layer &layer, int axis) const;
  int64_t itemsOf(const Layer &layer) const { return std::min(layer.items, items); }
  uint64_t drawnWeights() const;
  void readRow(const Layer &layer, int64_t item, int64_t head, int64_t query, llvm::MutableArrayRef<double> to) const;
  std::string encode(const Layer &layer) const;
  llvm::json::Array entropies(const Layer &layer) const;
  llvm::json::Object describe(const Layer &layer) const;

  const AttentionMapsOptions &options;
  std::vector<Layer> layers;
  int64_t items = 0, mostItems = 0; ///< that are drawn, and that there are
  int64_t mostGroups;               ///< of positions on an axis
};

} // namespace attn::tools

#endif // TOOLS_ATTN_RUN_ATTENTIONPAGE_H
