// How long the open dimensions of an entry are in runs of made-up inputs.
#ifndef TOOLS_OPTIONS_DRAWNSIZES_H
#define TOOLS_OPTIONS_DRAWNSIZES_H

#include "attnrt/attnrt.h"
#include "tools/attn-run/runner/Inputs.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <string>
#include <vector>

namespace attn::tools {

enum class Sizes { Even, One, Ragged, Full };

/// Each open dimension has a size of its own. Where a model takes no such sizes, since it calls sizes differently that
/// belong together ("total" is "past" and "sequence"), one of them follows from others.
class DrawnSizes {
public:
  using Map = std::map<std::string, int64_t>;

  /// Dimensions in `decided` have the size there, and those in `bounded`, unless one follows from others.
  explicit DrawnSizes(const attnrt_entry_info &entry, Map decided = {}, Map bounded = {});

  /// Looks for a dimension that is 1, is another one, or one more, or the sum of two, in runs that end well.
  void relate(llvm::function_ref<bool(const runner::InputOptions &)> runs);
  void draw(Sizes sizes, runner::InputOptions &options) const;
  /// "'past', 'mask[1]'": what is open; "" for nothing.
  std::string list() const;
  /// "'total' is 'past' + 'new'"; "" if none follows from others.
  std::string printRelation() const;

private:
  struct Dim {
    std::string name; ///< "" for none, which is ...
    int32_t input, axis;
  };
  /// dims[follower] is dims[first] + dims[second] + more; -1: none.
  struct Relation {
    int follower = -1, first = -1, second = -1;
    int64_t more = 0;
  };
  std::vector<Relation> relations() const;
  std::string print(const Dim &dim) const;

  const attnrt_entry_info &entry;
  Map decided, bounded;
  std::vector<Dim> dims;
  Relation relation;
};

} // namespace attn::tools

#endif // TOOLS_OPTIONS_DRAWNSIZES_H
