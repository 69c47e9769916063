#include "State.h"
#include "Session.h"

#include <algorithm>
#include <cstring>

using namespace attn::rt;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static constexpr uint64_t kCopiedAtOnce = 1 << 16; // bytes; fewer are copied before a thread has begun

static void copyPieces(void *arg, int64_t begin, int64_t end) {
  const RowCopy &copy = *static_cast<const RowCopy *>(arg);
  uint64_t perRow = (copy.bytes - 1) / kCopiedAtOnce + 1;
  for (uint64_t n = uint64_t(begin); n < uint64_t(end); ++n) {
    uint64_t row = n / perRow, at = n % perRow * kCopiedAtOnce;
    memcpy(copy.to + row * copy.toStride + at, copy.from + row * copy.fromStride + at,
           std::min(copy.bytes - at, kCopiedAtOnce));
  }
}

bool RowCopy::run(int64_t outer, Pool *pool, StopCondition *stop) {
  if (outer <= 0 || bytes == 0)
    return true;
  int64_t pieces = outer * int64_t((bytes - 1) / kCopiedAtOnce + 1);
  if (pool && uint64_t(outer) * bytes > kCopiedAtOnce)
    return pool->run(copyPieces, this, pieces, *stop);
  copyPieces(this, 0, pieces);
  return true;
}

int64_t KeptInput::outerSize() const {
  int64_t size = 1;
  for (int32_t dim = 0; dim < info->dim; ++dim)
    size *= shape[dim];
  return size;
}

uint64_t KeptInput::rowBytes() const {
  uint64_t bytes = attnrt_dtype_size(declared->dtype);
  for (int32_t dim = info->dim + 1; dim < declared->rank; ++dim)
    bytes *= uint64_t(shape[dim]);
  return bytes;
}

attnrt_status KeptInput::checkWhole() const {
  return isTorn ? fail(ATTNRT_INVALID_ARGUMENT,
                       "state '%s' holds what a run that ended early has written: reset the state, or fill it with "
                       "attnrt_state_set",
                       declared->name)
                : ATTNRT_OK;
}

void KeptInput::describe() {
  int64_t stride = 1;
  for (int32_t dim = declared->rank - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride = int64_t(uint64_t(stride) * uint64_t(dim == info->dim ? capacity : shape[dim]));
  }
  view = {data,
          {kDLCPU, 0},
          declared->rank,
          {uint8_t(declared->dtype >> 8), uint8_t(declared->dtype & 0xff), 1},
          shape,
          nullptr,
          0};
}

attnrt_status attnrt_state::reserve(KeptInput &input, int64_t rows, Pool *pool, StopCondition *stop) {
  if (rows <= input.capacity && input.data)
    return ATTNRT_OK;
  constexpr int64_t kFewest = 16;
  int64_t wanted = std::max(limit ? limit : std::max(input.capacity * 2, kFewest), rows);
  int64_t shape[kMaxRank];
  memcpy(shape, input.shape, sizeof(shape));
  uint64_t bytes;
  GrowingBuffer *fresh = nullptr;
  void *data = nullptr;
  for (;; wanted = rows) { // where there is no room for more than these, just for these
    shape[input.info->dim] = wanted;
    bool fits = denseBytes(input.declared->dtype, input.declared->rank, shape, bytes);
    fresh = fits ? make<GrowingBuffer>() : nullptr;
    data = fresh ? fresh->atLeast(std::max<uint64_t>(bytes, 64)) : nullptr;
    if (data)
      break;
    destroy(fresh);
    if (wanted == rows)
      return fits ? failMemory(bytes, "a state")
                  : fail(ATTNRT_OUT_OF_MEMORY, "state '%s' of shape %s has more than 2^63 bytes", input.declared->name,
                         Text().addShape(input.declared->rank, shape).str());
  }
  if (input.length()) {
    uint64_t row = input.rowBytes();
    RowCopy copy = {static_cast<const char *>(input.data), static_cast<char *>(data), uint64_t(input.capacity) * row,
                    uint64_t(wanted) * row, uint64_t(input.length()) * row};
    if (!copy.run(input.outerSize(), pool, stop)) {
      destroy(fresh);
      return ATTNRT_CANCELLED; // the run says why
    }
  }
  destroy(input.memory);
  input.memory = fresh;
  input.data = data;
  input.capacity = wanted;
  return ATTNRT_OK;
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

attnrt_state::attnrt_state(attnrt_model *model, const EntryPlan *plan) : model(model), plan(plan) {
  attnrt_model_retain(model);
}

attnrt_state::~attnrt_state() {
  for (uint64_t i = 0; i < kept.size(); ++i) {
    attn::rt::destroy(kept[i].memory);
    attn::rt::destroy(kept[i].next);
  }
  attnrt_model_release(model);
}

void attnrt_state::release() {
  if (references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    destroy(this);
}

attnrt_status attnrt_state::initialize() {
  const attnrt_entry &entry = *plan->entry;
  if (!kept.allocate(uint64_t(entry.num_states)))
    return failMemory(sizeof(KeptInput), "a state");
  for (int32_t i = 0; i < entry.num_states; ++i) {
    KeptInput *input = new (&kept[uint64_t(i)]) KeptInput();
    input->info = entry.states + i;
    input->declared = entry.inputs + entry.states[i].input;
  }
  return ATTNRT_OK;
}

KeptInput *attnrt_state::findInput(int32_t input) {
  for (uint64_t i = 0; i < kept.size(); ++i)
    if (kept[i].info->input == input)
      return &kept[i];
  return nullptr;
}

KeptInput *attnrt_state::findOutput(int32_t output) {
  for (uint64_t i = 0; i < kept.size(); ++i)
    if (kept[i].info->output == output)
      return &kept[i];
  return nullptr;
}

// The size that the caller's inputs, or what the state holds, give to `name`; -1: none does.
static int64_t sizeOfName(attnrt_state &state, const char *name, const DLTensor *const *tensors) {
  const attnrt_entry &entry = *state.plan->entry;
  for (int32_t i = 0; i < entry.num_inputs; ++i) {
    const KeptInput *own = state.findInput(i);
    for (int32_t dim = 0; dim < entry.inputs[i].rank; ++dim) {
      if (strcmp(entry.inputs[i].dims[dim].name, name) != 0)
        continue;
      if (own && own->isKnown)
        return own->shape[dim];
      if (!own && tensors[i] && tensors[i]->shape && tensors[i]->ndim == entry.inputs[i].rank)
        return tensors[i]->shape[dim];
    }
  }
  return -1;
}

// The sizes of an input that holds nothing yet.
static attnrt_status emptyShape(attnrt_state &state, const KeptInput &input, const DLTensor *const *tensors,
                                int64_t *shape) {
  const attnrt_tensor_info &after = state.plan->entry->outputs[input.info->output];
  for (int32_t dim = 0; dim < input.declared->rank; ++dim) {
    const attnrt_dim &declared = input.declared->dims[dim];
    shape[dim] = declared.size;
    if (dim == input.info->dim)
      shape[dim] = 0;
    else if (declared.size < 0 && *declared.name)
      shape[dim] = sizeOfName(state, declared.name, tensors);
    // What has another name after a run grows, from nothing.
    if (shape[dim] < 0 && !input.isWrittenOver() && *declared.name && after.rank == input.declared->rank &&
        strcmp(after.dims[dim].name, declared.name) != 0)
      shape[dim] = 0;
    if (shape[dim] < 0)
      return fail(ATTNRT_INVALID_ARGUMENT,
                  "state '%s' is empty, and no input tells the size of its dimension %d ('%s'): "
                  "fill it with attnrt_state_set",
                  input.declared->name, dim, declared.name);
  }
  return ATTNRT_OK;
}

attnrt_status attnrt_state::prepare(const DLTensor *const *tensors) {
  for (uint64_t i = 0; i < kept.size(); ++i) {
    KeptInput &input = kept[i];
    if (attnrt_status status = input.checkWhole())
      return status;
    if (!input.isKnown) {
      int64_t shape[kMaxRank] = {};
      if (attnrt_status status = emptyShape(*this, input, tensors, shape))
        return status;
      // The memory's rows are of the shape that the input had: both change together.
      bool hasSameRows = true;
      for (int32_t dim = 0; dim < input.declared->rank; ++dim)
        hasSameRows &= dim == input.info->dim || input.shape[dim] == shape[dim];
      if (!hasSameRows)
        input.capacity = 0;
      memcpy(input.shape, shape, sizeof(shape));
      if (input.appends() && limit)
        if (attnrt_status status = reserve(input, limit, nullptr, nullptr))
          return status;
      if (!input.appends()) {
        uint64_t bytes;
        if (!denseBytes(input.declared->dtype, input.declared->rank, input.shape, bytes))
          return fail(ATTNRT_INVALID_ARGUMENT, "state '%s' of shape %s has more than 2^63 bytes", input.declared->name,
                      Text().addShape(input.declared->rank, input.shape).str());
        if (!input.memory)
          input.memory = make<GrowingBuffer>();
        input.data = input.memory ? input.memory->atLeast(std::max<uint64_t>(bytes, 64)) : nullptr;
        if (!input.data)
          return failMemory(bytes, "a state");
        memset(input.data, 0, bytes);
      }
    }
    input.describe();
  }
  return ATTNRT_OK;
}

void attnrt_state::commit() {
  for (uint64_t i = 0; i < kept.size(); ++i) {
    KeptInput &input = kept[i];
    memcpy(input.shape, input.pending, sizeof(input.shape));
    input.isKnown = true;
    input.isOpen = false;
    if (input.appends() || input.isWrittenOver())
      continue;
    std::swap(input.memory, input.next);
    std::swap(input.data, input.nextData);
  }
}

void attnrt_state::abandon() {
  for (uint64_t i = 0; i < kept.size(); ++i) {
    kept[i].isTorn |= kept[i].isOpen && kept[i].isKnown;
    kept[i].isOpen = false;
  }
}

attnrt_status attnrt_state::set(KeptInput &input, const DLTensor &value) {
  TensorView view;
  if (attnrt_status status = checkTensor(&value, "state", *input.declared, 0, view))
    return status;
  int32_t dim = input.info->dim;
  if (dim >= 0 && limit && value.shape[dim] > limit)
    return fail(ATTNRT_INVALID_ARGUMENT, "state '%s' has a limit of %lld rows, the value has %lld",
                input.declared->name, (long long)limit, (long long)value.shape[dim]);
  // In memory of its own first: a value that does not fit leaves the state as it was.
  KeptInput filled = input;
  filled.memory = nullptr;
  filled.isKnown = filled.isTorn = false;
  filled.data = nullptr;
  filled.capacity = 0;
  for (int32_t d = 0; d < input.declared->rank; ++d)
    filled.shape[d] = value.shape[d];
  if (dim >= 0) {
    if (attnrt_status status = reserve(filled, value.shape[dim], nullptr, nullptr))
      return status;
  } else {
    filled.memory = make<GrowingBuffer>();
    filled.data = filled.memory ? filled.memory->atLeast(std::max<uint64_t>(view.bytes, 64)) : nullptr;
    if (!filled.data) {
      destroy(filled.memory);
      return failMemory(view.bytes, "a state");
    }
  }
  if (dim < 0) {
    copyDense(value, view.data, filled.data);
  } else if (view.bytes) {
    const char *from = view.data;
    void *dense = nullptr;
    if (!view.dense) {
      dense = malloc(view.bytes);
      if (!dense) {
        destroy(filled.memory);
        return failMemory(view.bytes, "a dense copy of a state");
      }
      copyDense(value, view.data, dense);
      from = static_cast<const char *>(dense);
    }
    uint64_t row = filled.rowBytes(), bytes = uint64_t(value.shape[dim]) * row;
    RowCopy copy = {from, static_cast<char *>(filled.data), bytes, uint64_t(filled.capacity) * row, bytes};
    copy.run(filled.outerSize(), nullptr, nullptr);
    free(dense);
  }
  destroy(input.memory);
  input = filled;
  input.isKnown = true;
  input.describe();
  return ATTNRT_OK;
}

//===----------------------------------------------------------------------===//
// C API
//===----------------------------------------------------------------------===//

static attnrt_status find(attnrt_state &state, const char *name, KeptInput *&found) {
  for (uint64_t i = 0; i < state.kept.size(); ++i)
    if (strcmp(state.kept[i].declared->name, name) == 0) {
      found = &state.kept[i];
      return ATTNRT_OK;
    }
  return fail(ATTNRT_NOT_FOUND, "the state of entry '%s' does not keep an input '%s'", state.plan->entry->name, name);
}

attnrt_status attnrt_state_create(attnrt_session *session, const char *entry, attnrt_state **state) {
  if (!session || !state)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_state_create: %s is NULL", session ? "state" : "session");
  const EntryPlan *plan = nullptr;
  if (attnrt_status status = session->model->find(entry, plan))
    return status;
  if (!plan->entry->num_states)
    return fail(ATTNRT_UNSUPPORTED, "entry '%s' has no state", plan->entry->name);
  attnrt_state *made = make<attnrt_state>(session->model, plan);
  if (!made)
    return failMemory(sizeof(attnrt_state), "a state");
  attnrt_status status = made->initialize();
  if (status != ATTNRT_OK)
    destroy(made);
  else
    *state = made;
  return status;
}

void attnrt_state_destroy(attnrt_state *state) {
  if (state)
    state->release();
}

attnrt_status attnrt_state_clone(attnrt_state *state, attnrt_state **copy) {
  StateGuard guard(state);
  if (attnrt_status status = guard.check("attnrt_state_clone"))
    return status;
  if (!copy)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_state_clone: copy is NULL");
  attnrt_state *made = make<attnrt_state>(state->model, state->plan);
  if (!made)
    return failMemory(sizeof(attnrt_state), "a state");
  attnrt_status status = made->initialize();
  made->limit = state->limit;
  for (uint64_t i = 0; i < state->kept.size() && status == ATTNRT_OK; ++i) {
    KeptInput &from = state->kept[i];
    if (!from.isKnown)
      continue;
    if ((status = from.checkWhole()))
      break;
    from.describe();
    DLTensor value = from.view;
    value.strides = from.strides;
    status = made->set(made->kept[i], value);
  }
  if (status != ATTNRT_OK)
    destroy(made);
  else
    *copy = made;
  return status;
}

attnrt_status attnrt_state_reset(attnrt_state *state) {
  StateGuard guard(state);
  if (attnrt_status status = guard.check("attnrt_state_reset"))
    return status;
  for (uint64_t i = 0; i < state->kept.size(); ++i)
    state->kept[i].isKnown = state->kept[i].isTorn = false;
  return ATTNRT_OK;
}

attnrt_status attnrt_state_truncate(attnrt_state *state, int64_t length) {
  StateGuard guard(state);
  if (attnrt_status status = guard.check("attnrt_state_truncate"))
    return status;
  for (uint64_t i = 0; i < state->kept.size(); ++i) {
    const KeptInput &input = state->kept[i];
    if (!input.appends())
      return fail(ATTNRT_UNSUPPORTED, "state '%s' does not keep what it was before", input.declared->name);
    if (length < 0 || length > input.length())
      return fail(ATTNRT_INVALID_ARGUMENT, "state '%s' has %lld rows, which cannot become %lld", input.declared->name,
                  (long long)input.length(), (long long)length);
  }
  for (uint64_t i = 0; i < state->kept.size(); ++i)
    if (state->kept[i].isKnown)
      state->kept[i].shape[state->kept[i].info->dim] = length;
  return ATTNRT_OK;
}

attnrt_status attnrt_state_set_limit(attnrt_state *state, int64_t rows) {
  StateGuard guard(state);
  if (attnrt_status status = guard.check("attnrt_state_set_limit"))
    return status;
  if (rows < 0 || rows > kMaxSize)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_state_set_limit: %lld rows are not between 0 and %lld",
                (long long)rows, (long long)kMaxSize);
  for (uint64_t i = 0; i < state->kept.size(); ++i)
    if (rows && state->kept[i].length() > rows)
      return fail(ATTNRT_INVALID_ARGUMENT, "state '%s' has %lld rows, the limit is to be %lld",
                  state->kept[i].declared->name, (long long)state->kept[i].length(), (long long)rows);
  for (uint64_t i = 0; i < state->kept.size(); ++i)
    if (rows && state->kept[i].isKnown && state->kept[i].appends())
      if (attnrt_status status = state->reserve(state->kept[i], rows, nullptr, nullptr))
        return status;
  state->limit = rows;
  return ATTNRT_OK;
}

attnrt_status attnrt_state_length(attnrt_state *state, int64_t *length) {
  StateGuard guard(state);
  if (attnrt_status status = guard.check("attnrt_state_length"))
    return status;
  if (!length)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_state_length: length is NULL");
  int64_t most = 0;
  for (uint64_t i = 0; i < state->kept.size(); ++i)
    most = std::max(most, state->kept[i].length());
  *length = most;
  return ATTNRT_OK;
}

attnrt_status attnrt_state_set(attnrt_state *state, const char *input, const DLTensor *value) {
  StateGuard guard(state);
  if (attnrt_status status = guard.check("attnrt_state_set"))
    return status;
  if (!input || !value)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_state_set: %s is NULL", input ? "value" : "input");
  KeptInput *found = nullptr;
  if (attnrt_status status = find(*state, input, found))
    return status;
  return state->set(*found, *value);
}

attnrt_status attnrt_state_get(attnrt_state *state, const char *input, const DLTensor **value) {
  StateGuard guard(state);
  if (attnrt_status status = guard.check("attnrt_state_get"))
    return status;
  if (!input || !value)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_state_get: %s is NULL", input ? "value" : "input");
  KeptInput *found = nullptr;
  if (attnrt_status status = find(*state, input, found))
    return status;
  if (!found->isKnown)
    return fail(ATTNRT_INVALID_ARGUMENT, "state '%s' is empty", found->declared->name);
  if (attnrt_status status = found->checkWhole())
    return status;
  found->describe();
  found->view.strides = found->strides;
  *value = &found->view;
  return ATTNRT_OK;
}
