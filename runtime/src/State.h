#ifndef RUNTIME_SRC_STATE_H
#define RUNTIME_SRC_STATE_H

#include "Error.h"
#include "Memory.h"
#include "Pool.h"
#include "Tensor.h"
#include <atomic>

namespace attn::rt {

struct EntryPlan;

/// Copies `rows` rows of each of `outer` blocks, which lie `fromStride` and
/// `toStride` bytes apart; on the threads of `pool` if there is one. False: `stop` said so.
struct RowCopy {
  const char *from;
  char *to;
  uint64_t fromStride, toStride, bytes;
  bool run(int64_t outer, Pool *pool, StopCondition *stop);
};

/// One input of an entry that a state keeps.
struct KeptInput {
  const attnrt_state_info *info;
  const attnrt_tensor_info *declared; ///< the input
  bool isKnown = false;               ///< whether it holds anything; else the shape is not known
  int64_t shape[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};
  int64_t capacity = 0; ///< rows in dimension `dim` that the memory has room for
  /// The contents; where a run makes the next contents of an input without `dim`.
  GrowingBuffer *memory = nullptr, *next = nullptr;
  void *data = nullptr, *nextData = nullptr;
  /// The input as runs and callers see it.
  DLTensor view = {};
  /// Of the run in progress.
  int64_t pending[kMaxRank] = {};

  /// A run that ended early may have changed some of the contents.
  bool isTorn = false;
  /// The run in progress may write to the contents.
  bool isOpen = false;

  bool appends() const { return info->dim >= 0; }
  bool isWrittenOver() const { return info->dim == -2; }
  int64_t length() const { return isKnown && appends() ? shape[info->dim] : 0; }
  int64_t outerSize() const;
  uint64_t rowBytes() const;
  attnrt_status checkWhole() const;
  /// Gives the input's view what `shape` and `data` say.
  void describe();
};

} // namespace attn::rt

struct attnrt_state {
  attnrt_model *model;
  const attn::rt::EntryPlan *plan;
  std::atomic<int32_t> references{1}; // the caller's, and one while a run is in progress
  std::atomic<int32_t> busy{0};
  int64_t limit = 0; // rows, 0: none
  attn::rt::Array<attn::rt::KeptInput> kept;

  attnrt_state(attnrt_model *model, const attn::rt::EntryPlan *plan);
  ~attnrt_state();
  attnrt_state(const attnrt_state &) = delete;
  attnrt_status initialize();
  void release();

  attn::rt::KeptInput *findInput(int32_t input);
  attn::rt::KeptInput *findOutput(int32_t output);
  /// Sizes of what holds nothing yet come from `tensors`, the other inputs (null at those of the state).
  attnrt_status prepare(const DLTensor *const *tensors);
  /// Room for `rows` rows of `input`.
  attnrt_status reserve(attn::rt::KeptInput &input, int64_t rows, attn::rt::Pool *pool, attn::rt::StopCondition *stop);
  /// The run has ended well: what it made is the contents from now on.
  void commit();
  /// The run has failed.
  void abandon();
  attnrt_status set(attn::rt::KeptInput &input, const DLTensor &value);
  attnrt_status gather(const char *dim, const int64_t *items, int64_t count);
};

namespace attn::rt {

/// Keeps other calls away from a state.
class StateGuard {
public:
  explicit StateGuard(attnrt_state *state) : state(state) {
    mine = state && !state->busy.exchange(1, std::memory_order_acquire);
  }
  ~StateGuard() {
    if (mine)
      state->busy.store(0, std::memory_order_release);
  }
  /// What to say to a caller that has it not.
  attnrt_status check(const char *function) const {
    if (!state)
      return fail(ATTNRT_INVALID_ARGUMENT, "%s: state is NULL", function);
    return mine ? ATTNRT_OK : fail(ATTNRT_INVALID_ARGUMENT, "%s: a run is using the state", function);
  }

private:
  attnrt_state *state;
  bool mine;
};

} // namespace attn::rt

#endif // RUNTIME_SRC_STATE_H
