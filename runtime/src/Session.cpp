#include "Session.h"

#include "CpuQuota.h"
#include "Threads.h"
#include <algorithm>
#include <cstring>

using namespace attn::rt;

attnrt_session::attnrt_session(attnrt_model *model) : model(model) { attnrt_model_retain(model); }

static GrowingBuffer *makeBuffers(int32_t count) {
  void *memory = calloc(size_t(std::max(count, 1)), sizeof(GrowingBuffer));
  GrowingBuffer *buffers = static_cast<GrowingBuffer *>(memory);
  for (int32_t i = 0; memory && i < count; ++i)
    new (buffers + i) GrowingBuffer();
  return buffers;
}

static int32_t maxCount(const attnrt_model &model, int32_t attnrt_entry::*count) {
  int32_t most = 0;
  for (uint64_t i = 0; i < model.entries.size(); ++i)
    most = std::max(most, model.entries[i].entry->*count);
  return most;
}

attnrt_status attnrt_session::initialize(const attnrt_session_options &options) {
  int32_t threads = options.num_threads ? options.num_threads : defaultThreads();
  int32_t numInputs = maxCount(*model, &attnrt_entry::num_inputs);
  int32_t numOutputs = maxCount(*model, &attnrt_entry::num_outputs);
  inputStaging = makeBuffers(numInputs);
  outputStaging = makeBuffers(numOutputs);
  // Time that a thread spins is time that the quota takes from the next ones.
  bool spins = quotaCpus("") == 0;
  if (!pool.initialize(threads, options.cpus, options.num_cpus, spins) || !inputs.allocate(uint64_t(numInputs)) ||
      !inputViews.allocate(uint64_t(numInputs)) || !allInputs.allocate(uint64_t(numInputs)) ||
      !absent.allocate(uint64_t(numInputs)) || !outputs.allocate(uint64_t(numOutputs)) || !inputStaging ||
      !outputStaging)
    return failMemory(sizeof(attnrt_session), "a session");
  if (!model->library.gpu)
    return ATTNRT_OK;
  GpuModel *opened = nullptr;
  if (attnrt_status status = model->openGpu(options.device, opened))
    return status;
  gpu = make<GpuSession>(*opened);
  if (!gpu)
    return failMemory(sizeof(GpuSession), "a session");
  if (options.own_products)
    gpu->launches.products.refuse();
  return gpu->initialize(numInputs, numOutputs);
}

attnrt_session::~attnrt_session() {
  attn::rt::destroy(gpu);
  for (int32_t i = 0, e = maxCount(*model, &attnrt_entry::num_inputs); inputStaging && i < e; ++i)
    inputStaging[i].~GrowingBuffer();
  for (int32_t i = 0, e = maxCount(*model, &attnrt_entry::num_outputs); outputStaging && i < e; ++i)
    outputStaging[i].~GrowingBuffer();
  free(inputStaging);
  free(outputStaging);
  while (attn::rt::WorkspacePiece *piece = workspace) {
    workspace = piece->next;
    attn::rt::destroy(piece);
  }
  attnrt_model_release(model);
}

void attnrt_session::release() {
  if (references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    destroy(this);
}

//===----------------------------------------------------------------------===//
// C API
//===----------------------------------------------------------------------===//

attnrt_status attnrt_session_create(attnrt_model *model, const attnrt_session_options *given,
                                    attnrt_session **session) {
  if (!model || !session)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_session_create: %s is NULL", model ? "session" : "model");
  attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
  if (attnrt_status status = readOptions(given, sizeof(options), "attnrt_session_options", &options))
    return status;
  if (options.num_threads < 0 || options.num_threads > kMaxThreads)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_session_options: num_threads is %d, not between 0 and %d",
                options.num_threads, kMaxThreads);
  if (options.num_cpus < 0 || (options.num_cpus > 0 && !options.cpus))
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_session_options: num_cpus is %d and cpus %s", options.num_cpus,
                options.cpus ? "set" : "NULL");
  int32_t allCpus = countCpus();
  for (int32_t i = 0; i < options.num_cpus; ++i)
    if (options.cpus[i] < 0 || options.cpus[i] >= allCpus)
      return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_session_options: cpus[%d] is %d; this machine has CPUs 0 to %d", i,
                  options.cpus[i], allCpus - 1);
  if (options.device < 0)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_session_options: device is %d; GPUs are numbered from 0",
                options.device);
  if (options.device && !model->library.gpu)
    return fail(ATTNRT_INVALID_ARGUMENT,
                "attnrt_session_options: device is %d, but '%s' runs on the CPU: compile it with --target=cuda",
                options.device, model->file.name());
  attnrt_session *made = make<attnrt_session>(model);
  if (!made)
    return failMemory(sizeof(attnrt_session), "a session");
  attnrt_status status = made->initialize(options);
  if (status != ATTNRT_OK)
    destroy(made);
  else
    *session = made;
  return status;
}

void attnrt_session_destroy(attnrt_session *session) {
  if (session)
    session->release();
}

int32_t attnrt_session_num_threads(const attnrt_session *session) { return session ? session->pool.numThreads() : 0; }

attnrt_status attnrt_session_run(attnrt_session *session, const attnrt_run_options *given,
                                 const DLTensor *const *inputs, int32_t num_inputs, attnrt_output *outputs,
                                 int32_t num_outputs) {
  if (!session)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_session_run: session is NULL");
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  if (attnrt_status status = readOptions(given, sizeof(options), "attnrt_run_options", &options))
    return status;
  if (session->busy.exchange(1, std::memory_order_acquire))
    return fail(ATTNRT_INVALID_ARGUMENT, "the session is running on another thread; each thread needs its own");
  session->references.fetch_add(1, std::memory_order_relaxed);
  attnrt_status status = session->run(options, inputs, num_inputs, outputs, num_outputs);
  session->busy.store(0, std::memory_order_release);
  session->release();
  return status;
}

attnrt_status attnrt_cancel_create(attnrt_cancel **cancel) {
  if (!cancel)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_cancel_create: cancel is NULL");
  attnrt_cancel *made = make<attnrt_cancel>();
  if (!made)
    return failMemory(sizeof(attnrt_cancel), "a cancel flag");
  *cancel = made;
  return ATTNRT_OK;
}

void attnrt_cancel_request(attnrt_cancel *cancel) {
  if (cancel)
    cancel->requested.store(1, std::memory_order_relaxed);
}

void attnrt_cancel_reset(attnrt_cancel *cancel) {
  if (cancel)
    cancel->requested.store(0, std::memory_order_relaxed);
}

void attnrt_cancel_destroy(attnrt_cancel *cancel) { destroy(cancel); }

//===----------------------------------------------------------------------===//
// What a run tells its caller
//===----------------------------------------------------------------------===//

static const char *messageOf(const attnrt_entry &entry, int32_t message) {
  return message >= 0 && message < entry.num_messages && entry.messages[message]
             ? entry.messages[message]
             : "the model's code reports an error without a message";
}

attnrt_status attn::rt::failWith(attnrt_status status, const attnrt_entry &entry, int32_t message, int32_t numValues,
                                 const int64_t *values) {
  Text text;
  for (const char *next = messageOf(entry, message); *next;) {
    // {0}, {1}, ... up to {99}; other braces are text.
    char *end;
    if (*next == '{' && next[1] >= '0' && next[1] <= '9') {
      unsigned long position = strtoul(next + 1, &end, 10);
      if (*end == '}' && end - next <= 3 && position < (unsigned long)(numValues > 0 ? numValues : 0)) {
        text.add("%lld", (long long)values[position]);
        next = end + 1;
        continue;
      }
    }
    size_t length = 1 + strcspn(next + 1, "{");
    text.add("%.*s", int(length), next);
    next += length;
  }
  return fail(status, "%s", text.str());
}

void attn::rt::reportFailure(attnrt_run *abi, int32_t message, int32_t numValues, const int64_t *values) {
  Run &run = *reinterpret_cast<Run *>(abi);
  attnrt_status status = message & ATTNRT_FAIL_UNSUPPORTED ? ATTNRT_UNSUPPORTED : ATTNRT_INVALID_ARGUMENT;
  run.status = failWith(status, *run.plan->entry, message & ~ATTNRT_FAIL_UNSUPPORTED, numValues, values);
}

void attn::rt::reportMark(attnrt_run *abi, int32_t region, int64_t flops, int64_t bytes) {
  const attnrt_run_options &options = *reinterpret_cast<Run *>(abi)->options;
  if (options.on_mark)
    options.on_mark(options.mark_context, region, flops, bytes);
}

int32_t attn::rt::reportToken(attnrt_run *abi, int64_t row, int64_t step, int64_t token) {
  Run &run = *reinterpret_cast<Run *>(abi);
  const attnrt_run_options &options = *run.options;
  if (!options.on_token || !options.on_token(options.token_context, row, step, token))
    return 0;
  run.status = fail(ATTNRT_CANCELLED, "the run of entry '%s' was ended by on_token at token %lld of row %lld",
                    run.plan->entry->name, (long long)step, (long long)row);
  return 1;
}
