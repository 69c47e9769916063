#include "Session.h"
#include "Threads.h"

#include <cstring>

using namespace attn::rt;

// What generated code gets for a tensor without elements.
alignas(64) static char emptyTensor[64];

static bool isAligned(const void *data, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

//===----------------------------------------------------------------------===//
// Before the entry: check and stage what the caller gave
//===----------------------------------------------------------------------===//

// `tensor` as one of no elements, for an optional input.
static const DLTensor *leaveOut(const attnrt_tensor_info &declared, DLTensor &tensor) {
  static int64_t none[kMaxRank];
  tensor = {};
  tensor.data = emptyTensor;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = declared.rank;
  tensor.dtype = {uint8_t(declared.dtype >> 8), uint8_t(declared.dtype & 0xff), 1};
  tensor.shape = none;
  return &tensor;
}

attnrt_status attnrt_session::takeInputs(const attnrt_entry &entry, const EntryPlan &plan, const DLTensor *const *given,
                                         int32_t count, attnrt_state *state) {
  int32_t expected = entry.num_inputs - (state ? entry.num_states : 0);
  if (count != expected)
    return fail(ATTNRT_INVALID_ARGUMENT, "entry '%s' has %d inputs%s, not %d", entry.name, expected,
                state ? " beside its state" : "", count);
  if (count > 0 && !given)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_session_run: inputs is NULL");
  const DLTensor **tensors = allInputs.data();
  int32_t device = gpu ? gpu->model.device : -1;
  auto check = [&](int32_t i) {
    return checkTensor(tensors[i], "input", entry.inputs[i], 0, inputViews[uint64_t(i)], device);
  };
  for (int32_t i = 0, next = 0; i < entry.num_inputs; ++i) {
    bool isKept = state && state->findInput(i);
    tensors[i] = isKept ? nullptr : given[next++];
    if (!isKept && !tensors[i] && entry.optional_inputs && entry.optional_inputs[i])
      tensors[i] = leaveOut(entry.inputs[i], absent[uint64_t(i)]);
    if (!isKept)
      if (attnrt_status status = check(i))
        return status;
  }
  if (state) {
    if (attnrt_status status = state->prepare(tensors))
      return status;
    for (int32_t i = 0; i < entry.num_inputs; ++i)
      if (KeptInput *input = state->findInput(i)) {
        tensors[i] = &input->view;
        if (attnrt_status status = check(i))
          return status;
      }
  }
  for (int32_t i = 0; i < plan.numSameNames; ++i) {
    const EntryPlan::SameName &same = plan.sameNames[i];
    int64_t size = tensors[same.input]->shape[same.dim], first = tensors[same.firstInput]->shape[same.firstDim];
    if (size != first)
      return fail(ATTNRT_INVALID_ARGUMENT, "input '%s': dimension %d ('%s') has size %lld, but %lld in input '%s'",
                  entry.inputs[same.input].name, same.dim, entry.inputs[same.input].dims[same.dim].name,
                  (long long)size, (long long)first, entry.inputs[same.firstInput].name);
  }
  return ATTNRT_OK;
}

static bool overlap(const TensorView &a, const TensorView &b) {
  return a.bytes && b.bytes && a.data < b.data + b.bytes && b.data < a.data + a.bytes;
}

attnrt_status attnrt_session::takeOutputs(const attnrt_entry &entry, attnrt_output *results, int32_t count,
                                          attnrt_state *state) {
  static attnrt_output nowhere;
  int32_t expected = entry.num_outputs - (state ? entry.num_states : 0);
  if (count != expected)
    return fail(ATTNRT_INVALID_ARGUMENT, "entry '%s' has %d outputs%s, not %d", entry.name, expected,
                state ? " beside its state" : "", count);
  if (count > 0 && !results)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_session_run: outputs is NULL");
  for (int32_t i = 0, next = 0; i < entry.num_outputs; ++i) {
    OutputSlot &slot = outputs[uint64_t(i)];
    slot.kept = state ? state->findOutput(i) : nullptr;
    slot.given = slot.kept ? &nowhere : results + next++;
    slot.tensor = nullptr;
    slot.produced = slot.staged = false;
    slot.staging = outputStaging + i;
    slot.view = {};
    attnrt_output &result = *slot.given;
    if (!result.buffer)
      continue;
    const attnrt_tensor_info &declared = entry.outputs[i];
    if (attnrt_status status =
            checkTensor(result.buffer, "output", declared, result.capacity, slot.view, gpu ? gpu->model.device : -1))
      return status;
    if (!slot.view.dense)
      return fail(ATTNRT_INVALID_ARGUMENT,
                  "output '%s': the buffer's strides are not those of a dense row-major tensor", declared.name);
    for (int32_t j = 0; j < entry.num_inputs; ++j)
      if (inputViews[uint64_t(j)].dense && overlap(slot.view, inputViews[uint64_t(j)]))
        return fail(ATTNRT_INVALID_ARGUMENT, "output '%s' overlaps input '%s'", declared.name, entry.inputs[j].name);
    for (int32_t j = 0; j < i; ++j)
      if (overlap(slot.view, outputs[uint64_t(j)].view))
        return fail(ATTNRT_INVALID_ARGUMENT, "output '%s' overlaps output '%s'", declared.name, entry.outputs[j].name);
  }
  return ATTNRT_OK;
}

// False: the run is to end.
bool attnrt_session::stageInputs(Run &run) {
  const attnrt_entry &entry = *run.plan->entry;
  const DLTensor *const *tensors = allInputs.data();
  for (int32_t i = 0; i < entry.num_inputs; ++i) {
    const TensorView &view = inputViews[uint64_t(i)];
    attnrt_buffer &buffer = inputs[uint64_t(i)];
    buffer.shape = tensors[i]->shape;
    buffer.data = view.data;
    if (view.bytes == 0) {
      buffer.data = emptyTensor;
    } else if (!view.dense || !isAligned(view.data, attnrt_dtype_size(entry.inputs[i].dtype))) {
      buffer.data = inputStaging[i].atLeast(view.bytes);
      if (!buffer.data)
        run.status = failMemory(view.bytes, "a dense copy of an input");
      if (!buffer.data || !copyDense(*tensors[i], view.data, buffer.data, &pool, &run.stop))
        return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// During the entry: what abi.h offers to it
//===----------------------------------------------------------------------===//

static Run &runOf(attnrt_run *run) { return *reinterpret_cast<Run *>(run); }
static_assert(offsetof(Run, abi) == 0, "compiled code hands back a pointer to `abi`");

void *attn::rt::provideWorkspace(attnrt_run *abi, uint64_t bytes) {
  Run &run = runOf(abi);
  WorkspacePiece *&piece = *run.nextPiece;
  if (!piece)
    piece = make<WorkspacePiece>();
  void *memory = piece ? piece->buffer.atLeast(bytes) : nullptr;
  if (memory)
    run.nextPiece = &piece->next;
  else
    run.status = failMemory(bytes, "the workspace of a run");
  return memory;
}

bool attn::rt::acceptsBuffer(Run &run, const OutputSlot &slot, const attnrt_tensor_info &declared) {
  if (!slot.given->buffer)
    return true;
  const DLTensor &buffer = *slot.given->buffer;
  if (slot.given->capacity && slot.bytes > slot.given->capacity) {
    run.status = fail(ATTNRT_INVALID_ARGUMENT, "output '%s' of shape %s has %llu bytes, its buffer only %llu",
                      declared.name, Text().addShape(declared.rank, slot.shape).str(), (unsigned long long)slot.bytes,
                      (unsigned long long)slot.given->capacity);
    return false;
  }
  if (!slot.given->capacity && declared.rank &&
      memcmp(buffer.shape, slot.shape, size_t(declared.rank) * sizeof(int64_t)) != 0) {
    run.status =
        fail(ATTNRT_INVALID_ARGUMENT, "output '%s' has shape %s, its buffer %s", declared.name,
             Text().addShape(declared.rank, slot.shape).str(), Text().addShape(declared.rank, buffer.shape).str());
    return false;
  }
  return true;
}

// The memory for output `slot`; nullptr: `run.status` is set.
static void *placeOutput(Run &run, OutputSlot &slot, const attnrt_tensor_info &declared) {
  if (slot.kept) {
    KeptInput &kept = *slot.kept;
    if (!kept.next)
      kept.next = make<GrowingBuffer>();
    kept.nextData = kept.next ? kept.next->atLeast(slot.bytes ? slot.bytes : 64) : nullptr;
    memcpy(kept.pending, slot.shape, sizeof(kept.pending));
    if (!kept.nextData)
      run.status = failMemory(slot.bytes, "a state");
    return kept.nextData;
  }
  if (!acceptsBuffer(run, slot, declared))
    return nullptr;
  if (!slot.given->buffer) {
    run.status = attnrt_tensor_create(declared.dtype, declared.rank, slot.shape, &slot.tensor);
    return run.status == ATTNRT_OK ? slot.tensor->dl_tensor.data : nullptr;
  }
  if (slot.bytes == 0)
    return emptyTensor;
  if (isAligned(slot.view.data, 64))
    return slot.view.data;
  slot.staged = true;
  void *memory = slot.staging->atLeast(slot.bytes);
  if (!memory)
    run.status = failMemory(slot.bytes, "an output");
  return memory;
}

OutputSlot *attn::rt::declareOutput(Run &run, int32_t index, int32_t rank, const int64_t *shape) {
  const attnrt_entry &entry = *run.plan->entry;
  if (index < 0 || index >= entry.num_outputs || rank != entry.outputs[index].rank ||
      run.session->outputs[uint64_t(index)].produced) {
    run.status =
        fail(ATTNRT_INTERNAL, "entry '%s' asked for output %d of rank %d, which it doesn't declare or asked for before",
             entry.name, index, rank);
    return nullptr;
  }
  const attnrt_tensor_info &declared = entry.outputs[index];
  OutputSlot &slot = run.session->outputs[uint64_t(index)];
  for (int32_t dim = 0; dim < rank; ++dim) {
    int64_t wanted = declared.dims[dim].size;
    if (shape[dim] < 0 || (wanted >= 0 && shape[dim] != wanted)) {
      run.status = fail(ATTNRT_INTERNAL, "entry '%s' made output '%s' with shape %s, dimension %d is declared as %lld",
                        entry.name, declared.name, Text().addShape(rank, shape).str(), dim, (long long)wanted);
      return nullptr;
    }
    slot.shape[dim] = shape[dim];
  }
  if (!denseBytes(declared.dtype, rank, shape, slot.bytes)) {
    run.status = fail(ATTNRT_OUT_OF_MEMORY, "output '%s' of shape %s has more than 2^63 bytes", declared.name,
                      Text().addShape(rank, shape).str());
    return nullptr;
  }
  slot.produced = true;
  return &slot;
}

static void *provideOutput(attnrt_run *abi, int32_t index, int32_t rank, const int64_t *shape) {
  Run &run = runOf(abi);
  OutputSlot *slot = declareOutput(run, index, rank, shape);
  return slot ? placeOutput(run, *slot, run.plan->entry->outputs[index]) : nullptr;
}

// Whether what a run makes of a state's input has its sizes and no fewer rows.
static bool isLonger(const attnrt_state_info &info, const attnrt_tensor_info &declared, const int64_t *before,
                     const int64_t *after) {
  for (int32_t dim = 0; dim < declared.rank; ++dim)
    if (dim == info.dim ? after[dim] < before[dim] : after[dim] != before[dim])
      return false;
  return true;
}

// What attnrt_run.cache gives: the state's memory, or without one the output
// with the input copied to the front.
static void *provideCache(attnrt_run *abi, int32_t number, int32_t rank, const int64_t *shape, int64_t *capacity) {
  Run &run = runOf(abi);
  const attnrt_entry &entry = *run.plan->entry;
  const attnrt_state_info *info = number >= 0 && number < entry.num_states ? entry.states + number : nullptr;
  if (!info || info->dim == -1) {
    run.status = fail(ATTNRT_INTERNAL, "entry '%s' asked for cache %d, which it doesn't declare", entry.name, number);
    return nullptr;
  }
  OutputSlot *slot = declareOutput(run, info->output, rank, shape);
  if (!slot)
    return nullptr;
  const attnrt_tensor_info &declared = entry.inputs[info->input];
  const attnrt_buffer &input = run.session->inputs[uint64_t(info->input)];
  if (!isLonger(*info, declared, input.shape, shape)) {
    run.status = fail(ATTNRT_INTERNAL, "entry '%s' made state '%s' of shape %s from one of shape %s", entry.name,
                      declared.name, Text().addShape(rank, shape).str(), Text().addShape(rank, input.shape).str());
    return nullptr;
  }
  int32_t dim = info->dim;
  if (KeptInput *kept = slot->kept; kept && kept->isWrittenOver()) {
    memcpy(kept->pending, shape, size_t(rank) * sizeof(int64_t));
    kept->isOpen = true;
    return kept->data;
  } else if (kept) {
    int64_t limit = run.state->limit;
    if (limit && shape[dim] > limit) {
      run.status = fail(ATTNRT_INVALID_ARGUMENT, "state '%s' has a limit of %lld rows, the run needs %lld",
                        declared.name, (long long)limit, (long long)shape[dim]);
      return nullptr;
    }
    attnrt_status status = run.state->reserve(*kept, shape[dim], &run.session->pool, &run.stop);
    if (status != ATTNRT_OK) {
      if (status != ATTNRT_CANCELLED)
        run.status = status;
      return nullptr;
    }
    memcpy(kept->pending, shape, size_t(rank) * sizeof(int64_t));
    *capacity = kept->capacity;
    return kept->data;
  }
  void *memory = placeOutput(run, *slot, entry.outputs[info->output]);
  if (!memory)
    return nullptr;
  if (dim < 0) {
    RowCopy copy = {static_cast<const char *>(input.data), static_cast<char *>(memory), 0, 0, slot->bytes};
    return copy.run(1, &run.session->pool, &run.stop) ? memory : nullptr;
  }
  *capacity = shape[dim];
  uint64_t row = attnrt_dtype_size(declared.dtype);
  int64_t outer = 1;
  for (int32_t d = 0; d < rank; ++d)
    if (d < dim)
      outer *= shape[d];
    else if (d > dim)
      row *= uint64_t(shape[d]);
  uint64_t bytes = uint64_t(input.shape[dim]) * row;
  RowCopy copy = {static_cast<const char *>(input.data), static_cast<char *>(memory), bytes, uint64_t(shape[dim]) * row,
                  bytes};
  return slot->bytes == 0 || copy.run(outer, &run.session->pool, &run.stop) ? memory : nullptr;
}

static int32_t parallelFor(attnrt_run *abi, attnrt_task_fn fn, void *arg, int64_t n) {
  Run &run = runOf(abi);
  const PieceObserver observer = {run.options->on_piece, run.options->piece_context};
  bool finished = run.session->pool.run(fn, arg, n, run.stop, observer.fn ? &observer : nullptr);
  // After an index out of range nothing that follows is of use.
  return !finished || __atomic_load_n(&abi->error_message, __ATOMIC_RELAXED) != 0;
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

// From aligned memory to the caller's; where the run is to end meanwhile, `run.stop` says so.
void attnrt_session::copyStagedOutputs(Run &run) {
  for (int32_t i = 0; i < run.plan->entry->num_outputs; ++i) {
    const OutputSlot &slot = outputs[uint64_t(i)];
    if (!slot.staged)
      continue;
    RowCopy copy = {static_cast<const char *>(slot.staging->atLeast(slot.bytes)), slot.view.data, 0, 0, slot.bytes};
    if (!copy.run(1, &pool, &run.stop))
      return;
  }
}

// Calls the entry and finds out how it went.
attnrt_status attnrt_session::call(Run &run) {
  const attnrt_entry &entry = *run.plan->entry;
  int32_t result = ATTNRT_RUN_STOPPED;
  {
    DefaultFloatingPoint environment;
    pool.beginRun();
    run.abi.num_threads = pool.numThreads();
    run.abi.has_tiles = model->hasTiles;
    if (stageInputs(run))
      result = entry.fn(&run.abi, inputs.data());
    if (result == ATTNRT_RUN_DONE)
      copyStagedOutputs(run);
    pool.endRun();
  }
  return checkCall(run, result);
}

// What an entry's return and the callbacks' reports mean.
attnrt_status attnrt_session::checkCall(Run &run, int32_t result) {
  const attnrt_entry &entry = *run.plan->entry;
  switch (run.stop.reason.load(std::memory_order_relaxed)) {
  case StopCondition::Cancelled:
    return fail(ATTNRT_CANCELLED, "the run of entry '%s' was cancelled", entry.name);
  case StopCondition::TimedOut:
    return fail(ATTNRT_DEADLINE_EXCEEDED, "the run of entry '%s' exceeded its deadline", entry.name);
  }
  if (run.status != ATTNRT_OK)
    return run.status;
  if (run.abi.error_message) {
    const int64_t values[] = {run.abi.error_index, run.abi.error_size};
    return failWith(ATTNRT_OUT_OF_RANGE, entry, run.abi.error_message - 1, 2, values);
  }
  if (result != ATTNRT_RUN_DONE)
    return fail(ATTNRT_INTERNAL, "entry '%s' stopped with %d and without a reason", entry.name, result);
  for (int32_t i = 0; i < entry.num_outputs; ++i)
    if (!outputs[uint64_t(i)].produced)
      return fail(ATTNRT_INTERNAL, "entry '%s' did not make output '%s'", entry.name, entry.outputs[i].name);
  return ATTNRT_OK;
}

// After success, so that a failed run leaves the caller's structures alone.
attnrt_status attnrt_session::handOver(const attnrt_entry &entry) {
  for (int32_t i = 0; i < entry.num_outputs; ++i) {
    OutputSlot &slot = outputs[uint64_t(i)];
    if (slot.kept)
      continue;
    DLTensor *buffer = slot.given->buffer;
    if (!buffer) {
      slot.given->tensor = slot.tensor;
      continue;
    }
    if (!slot.given->capacity)
      continue;
    int64_t stride = 1;
    for (int32_t dim = entry.outputs[i].rank - 1; dim >= 0; --dim) {
      buffer->shape[dim] = slot.shape[dim];
      if (buffer->strides)
        buffer->strides[dim] = stride;
      stride = int64_t(uint64_t(stride) * uint64_t(slot.shape[dim]));
    }
  }
  return ATTNRT_OK;
}

void attnrt_session::dropOutputs(int32_t count) {
  for (int32_t i = 0; i < count; ++i)
    if (DLManagedTensor *tensor = outputs[uint64_t(i)].tensor)
      tensor->deleter(tensor);
}

attnrt_status attnrt_session::run(const attnrt_run_options &options, const DLTensor *const *tensors, int32_t numInputs,
                                  attnrt_output *results, int32_t numOutputs) {
  Run run = {};
  if (attnrt_status status = model->find(options.entry, run.plan))
    return status;
  attnrt_state *state = options.state;
  if (!state)
    return this->run(run, options, tensors, numInputs, results, numOutputs);
  const attnrt_entry &entry = *run.plan->entry;
  if (!entry.num_states)
    return fail(ATTNRT_UNSUPPORTED, "entry '%s' has no state", entry.name);
  if (state->model != model)
    return fail(ATTNRT_INVALID_ARGUMENT, "the state is of another model");
  if (state->plan != run.plan)
    return fail(ATTNRT_INVALID_ARGUMENT, "the state is of entry '%s', not '%s'", state->plan->entry->name, entry.name);
  if (state->busy.exchange(1, std::memory_order_acquire))
    return fail(ATTNRT_INVALID_ARGUMENT, "the state of entry '%s' is in use by another run", entry.name);
  state->references.fetch_add(1, std::memory_order_relaxed);
  run.state = state;
  attnrt_status status = this->run(run, options, tensors, numInputs, results, numOutputs);
  if (status == ATTNRT_OK)
    state->commit();
  else
    state->abandon();
  state->busy.store(0, std::memory_order_release);
  state->release();
  return status;
}

attnrt_status attnrt_session::run(Run &run, const attnrt_run_options &options, const DLTensor *const *tensors,
                                  int32_t numInputs, attnrt_output *results, int32_t numOutputs) {
  int64_t start = options.timeout_ns ? monotonicNow() : 0;
  const attnrt_entry &entry = *run.plan->entry;
  if (options.timeout_ns < 0)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_run_options: timeout_ns is %lld", (long long)options.timeout_ns);
  if (attnrt_status status = checkStack(entry.name, model->file.footer().stack_size))
    return status;
  if (attnrt_status status = takeInputs(entry, *run.plan, tensors, numInputs, run.state))
    return status;
  if (attnrt_status status = takeOutputs(entry, results, numOutputs, run.state))
    return status;
  run.session = this;
  run.options = &options;
  run.abi.struct_size = sizeof(run.abi);
  run.abi.mark = reportMark;
  run.abi.token = reportToken;
  run.stop.cancel = options.cancel ? &options.cancel->requested : nullptr;
  if (options.timeout_ns && __builtin_add_overflow(start, options.timeout_ns, &run.stop.deadline))
    run.stop.deadline = INT64_MAX;
  if (gpu) {
    attnrt_status status = runOnGpu(run, options, tensors);
    if (status == ATTNRT_OK)
      return handOver(entry);
    dropOutputs(entry.num_outputs);
    return status;
  }
  run.abi.weights = model->file.weights();
  run.nextPiece = &workspace;
  run.abi.workspace = provideWorkspace;
  run.abi.output = provideOutput;
  run.abi.parallel_for = parallelFor;
  run.abi.fail = reportFailure;
  run.abi.cache = provideCache;
  if (attnrt_status status = model->beginRun())
    return status;
  attnrt_status status = call(run);
  model->endRun();
  if (status == ATTNRT_OK)
    return handOver(entry);
  dropOutputs(entry.num_outputs);
  return status;
}
