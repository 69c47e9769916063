#ifndef PASSES_GRAPH_ELEMENT_CONSTANTMASK_H
#define PASSES_GRAPH_ELEMENT_CONSTANTMASK_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <cstdint>
#include <optional>

namespace attn {

/// Entries of a table by their place: all of these hold where they are there.
/// With `prefix`, one column below it counts whatever `above` and `below` say.
struct TableBand {
  std::optional<int64_t> below;  ///< column <= row + below
  std::optional<int64_t> above;  ///< column >= row - above
  std::optional<int64_t> upTo;   ///< column < upTo
  std::optional<int64_t> from;   ///< column >= from
  std::optional<int64_t> prefix; ///< column < prefix

  bool contains(int64_t row, int64_t column) const;
  bool isEverything() const { return !below && !above && !upTo && !from; }
};

/// The band that is exactly where `isSet` holds in a table of `rows` x
/// `columns`, checked at each entry; none where there is none, or it says
/// nothing.
std::optional<TableBand> findBand(int64_t rows, int64_t columns, llvm::function_ref<bool(int64_t, int64_t)> isSet);

/// Blocks of which each is visible or hidden as a whole.
struct BlockGrid {
  int64_t rows, columns; ///< of a block
  int64_t listed;        ///< the most visible blocks in a row of them
};

/// The largest blocks of `planes` tables of `rows` x `columns` entries, one
/// behind the other in `visible` (0 or 1); none where a kernel that goes by
/// lists of visible blocks would not save half of its work, or the lists were
/// no shorter than the tables.
std::optional<BlockGrid> findBlocks(int64_t planes, int64_t rows, int64_t columns, llvm::ArrayRef<uint8_t> visible);

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_CONSTANTMASK_H
