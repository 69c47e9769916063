// The items of a batch in another order, for beams and for batches whose
// sequences begin and end at different times.
#include "State.h"

#include <algorithm>
#include <cstring>

using namespace attn::rt;

namespace {
/// One input of a state before and after its items are gathered along `batch`.
struct ItemCopy {
  const KeptInput &from;
  char *to;
  int32_t batch;
  const int64_t *items;
  int64_t numItems;

  /// Elements from one position of dimension `dim` to the next, `size` of them in the batch.
  int64_t strideOf(int32_t dim, int64_t size) const {
    int64_t stride = 1;
    for (int32_t d = dim + 1; d < from.declared->rank; ++d)
      stride *= d == batch ? size : d == from.info->dim ? from.capacity : from.shape[d];
    return stride;
  }
  void run() { copy(0, 0, 0); }

private:
  /// What lies at an index of the dimensions before `dim`, which is at `fromAt` and `toAt`.
  void copy(int32_t dim, int64_t fromAt, int64_t toAt) {
    // Behind the batch and the cache's rows all is dense.
    if (dim > batch && dim > from.info->dim)
      return copyDenseRest(dim, fromAt, toAt);
    int64_t fromStride = strideOf(dim, from.shape[batch]), toStride = strideOf(dim, numItems);
    int64_t size = dim == batch ? numItems : from.shape[dim];
    // So are the rows themselves.
    if (dim > batch && dim == from.info->dim)
      return move(fromAt, toAt, size * fromStride);
    for (int64_t n = 0; n < size; ++n) {
      int64_t source = dim == batch ? items[n] : n;
      if (source >= 0)
        copy(dim + 1, fromAt + source * fromStride, toAt + n * toStride);
    }
  }
  void copyDenseRest(int32_t dim, int64_t fromAt, int64_t toAt) {
    int64_t count = 1;
    for (int32_t d = dim; d < from.declared->rank; ++d)
      count *= from.shape[d];
    move(fromAt, toAt, count);
  }
  void move(int64_t fromAt, int64_t toAt, int64_t count) {
    int64_t element = int64_t(attnrt_dtype_size(from.declared->dtype));
    memcpy(to + toAt * element, static_cast<const char *>(from.data) + fromAt * element, size_t(count * element));
  }
};
} // namespace

// The dimension of `input` that is called `name`; null: the first.
static attnrt_status findItems(const KeptInput &input, const char *name, int32_t &dim) {
  for (dim = 0; name && dim < input.declared->rank && strcmp(input.declared->dims[dim].name, name) != 0;)
    ++dim;
  if (dim >= input.declared->rank)
    return fail(ATTNRT_UNSUPPORTED, "state '%s' has no dimension '%s'", input.declared->name, name ? name : "0");
  if (dim == input.info->dim)
    return fail(ATTNRT_UNSUPPORTED,
                "state '%s': dimension %d ('%s') is the one in which it grows: use "
                "attnrt_state_truncate",
                input.declared->name, dim, input.declared->dims[dim].name);
  return ATTNRT_OK;
}

static attnrt_status checkItems(const KeptInput &input, int32_t dim, const int64_t *items, int64_t count) {
  const char *name = input.declared->name;
  if (!input.isKnown)
    return fail(ATTNRT_INVALID_ARGUMENT, "state '%s' is empty", name);
  if (attnrt_status status = input.checkWhole())
    return status;
  int64_t declared = input.declared->dims[dim].size;
  if (declared >= 0 && declared != count)
    return fail(ATTNRT_INVALID_ARGUMENT, "state '%s': dimension %d has size %lld in the model, not %lld", name, dim,
                (long long)declared, (long long)count);
  for (int64_t n = 0; n < count; ++n)
    if (items[n] < -1 || items[n] >= input.shape[dim])
      return fail(ATTNRT_INVALID_ARGUMENT, "state '%s': item %lld is to be item %lld, there are %lld", name,
                  (long long)n, (long long)items[n], (long long)input.shape[dim]);
  return ATTNRT_OK;
}

attnrt_status attnrt_state::gather(const char *dim, const int64_t *items, int64_t count) {
  // All new contents are made before the first old ones go.
  struct Made {
    GrowingBuffer *memory;
    void *data;
    int32_t batch;
  };
  Array<Made> made;
  if (!made.allocate(kept.size()))
    return failMemory(sizeof(Made), "a state");
  AtExit drop([&] {
    for (uint64_t i = 0; i < made.size(); ++i)
      destroy(made[i].memory);
  });
  for (uint64_t i = 0; i < kept.size(); ++i) {
    const KeptInput &input = kept[i];
    int32_t &batch = made[i].batch;
    if (attnrt_status status = findItems(input, dim, batch))
      return status;
    if (attnrt_status status = checkItems(input, batch, items, count))
      return status;
    int64_t shape[kMaxRank];
    memcpy(shape, input.shape, sizeof(shape));
    shape[batch] = count;
    if (input.appends())
      shape[input.info->dim] = input.capacity;
    uint64_t bytes;
    if (!denseBytes(input.declared->dtype, input.declared->rank, shape, bytes))
      return fail(ATTNRT_OUT_OF_MEMORY, "state '%s' of shape %s has more than 2^63 bytes", input.declared->name,
                  Text().addShape(input.declared->rank, shape).str());
    GrowingBuffer *memory = made[i].memory = make<GrowingBuffer>();
    made[i].data = memory ? memory->atLeast(std::max<uint64_t>(bytes, 64)) : nullptr;
    if (!made[i].data)
      return failMemory(bytes, "a state");
    if (std::find(items, items + count, -1) != items + count)
      memset(made[i].data, 0, bytes);
    if (bytes)
      ItemCopy{input, static_cast<char *>(made[i].data), batch, items, count}.run();
  }
  for (uint64_t i = 0; i < kept.size(); ++i) {
    std::swap(kept[i].memory, made[i].memory);
    kept[i].data = made[i].data;
    kept[i].shape[made[i].batch] = count;
    kept[i].describe();
  }
  return ATTNRT_OK;
}

//===----------------------------------------------------------------------===//
// C API
//===----------------------------------------------------------------------===//

attnrt_status attnrt_state_gather(attnrt_state *state, const char *dim, const int64_t *items, int64_t num_items) {
  StateGuard guard(state);
  if (attnrt_status status = guard.check("attnrt_state_gather"))
    return status;
  if (num_items < 0 || num_items > kMaxSize || (num_items && !items))
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_state_gather: num_items is %lld and items %s", (long long)num_items,
                items ? "set" : "NULL");
  return state->gather(dim, items, num_items);
}
