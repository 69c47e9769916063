// Runs model libraries that attnc compiled.
//
//     attnrt_model *model;
//     attnrt_session *session;
//     attnrt_model_load("model.so", NULL, &model);
//     attnrt_session_create(model, NULL, &session);
//     attnrt_session_run(session, NULL, inputs, 2, outputs, 1);
//     attnrt_session_destroy(session);
//     attnrt_model_release(model);
//
// Errors. Every call that can fail returns an attnrt_status. If it isn't
// ATTNRT_OK, attnrt_last_error() on the same thread says what went wrong, with
// names and both values. A call that fails changes nothing and leaves its
// results unset, unless said otherwise below. NULL for an argument that isn't
// said to be optional is ATTNRT_INVALID_ARGUMENT.
//
// Threads. A model may be used by any number of threads. A session serves one
// run at a time; threads that run at the same time have a session each, which
// costs one workspace, not another copy of the weights.
//
// fork(). In the child, models may be used as before, and sessions that were
// not running; their worker threads, which fork() does not copy, are started
// anew by the first run. A session that ran during the fork() stays busy there.
// CUDA does not survive fork(): in a child of a process that has made a session of
// a library with GPU code, runs and new sessions of such libraries are
// ATTNRT_DEVICE. Fork before the first one, or start processes by exec.
//
// Option structures begin with `struct_size`, so that a program built against an
// older header works with a newer library: initialise them with the ..._INIT
// macro, then set fields. NULL stands for all defaults.
#ifndef ATTNRT_ATTNRT_H
#define ATTNRT_ATTNRT_H

#include "attnrt/abi.h"
#include "attnrt/dlpack.h"
#include <stddef.h>
#include <stdint.h>

#define ATTNRT_VERSION_MAJOR 0
#define ATTNRT_VERSION_MINOR 1
#define ATTNRT_VERSION_PATCH 0

#if defined(__GNUC__)
#define ATTNRT_API __attribute__((visibility("default")))
#else
#define ATTNRT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attnrt_status {
  ATTNRT_OK = 0,
  ATTNRT_INVALID_ARGUMENT = 1, // what the caller passed cannot be right
  ATTNRT_OUT_OF_RANGE = 2,     // an index in the data (a token id, say) is beyond its axis
  ATTNRT_NOT_FOUND = 3,        // no such file, entry or weight
  ATTNRT_CORRUPT_FILE = 4,     // not a model library, or a damaged one
  ATTNRT_INCOMPATIBLE = 5,     // made for another ABI version, architecture or CPU
  ATTNRT_OUT_OF_MEMORY = 6,
  ATTNRT_CANCELLED = 7,
  ATTNRT_DEADLINE_EXCEEDED = 8,
  ATTNRT_INTERNAL = 9,     // a fault of the runtime or of compiled code
  ATTNRT_UNSUPPORTED = 10, // a sound request that this version does not serve
  ATTNRT_IO = 11,          // the operating system refused
  ATTNRT_DEVICE = 12       // no usable GPU, or the GPU or its driver failed
} attnrt_status;

// "0.1.0". Never NULL, valid for ever.
ATTNRT_API const char *attnrt_version(void);

// "invalid argument", ... Never NULL, valid for ever.
ATTNRT_API const char *attnrt_status_name(attnrt_status status);

// The message of the last call on this thread that did not return ATTNRT_OK, ""
// before the first. Valid until the next failing call on this thread. Calls that
// succeed leave it alone. At most 1023 bytes; a longer one is cut.
ATTNRT_API const char *attnrt_last_error(void);

// Bytes of one element of an attnrt_dtype; 0 if it isn't one.
ATTNRT_API uint64_t attnrt_dtype_size(int32_t dtype);

// "float32", ... as NumPy spells it; "unknown" if it isn't an attnrt_dtype.
ATTNRT_API const char *attnrt_dtype_name(int32_t dtype);

//===----------------------------------------------------------------------===//
// Models
//===----------------------------------------------------------------------===//

// A loaded model library: code and weights. Reference-counted.
typedef struct attnrt_model attnrt_model;

// Whether a load reads the whole file and compares its digest.
typedef enum attnrt_verify {
  ATTNRT_VERIFY_ALWAYS = 0,
  // Once per file and user. What was verified is noted in attnrt/verified in the
  // user's cache folder ($XDG_CACHE_HOME or ~/.cache): device, inode, size, times
  // of the last change of contents and inode, and the digest; where any of these
  // differs, where there is no such folder or another user may write to it, the
  // file is verified. That trusts the file system to keep what it has and to tell
  // of changes: damage on the disk itself is not found.
  ATTNRT_VERIFY_ONCE = 1,
  // Not at all, for files whose storage is trusted, or verified otherwise: a run of a
  // damaged file may read and write anywhere.
  ATTNRT_VERIFY_NEVER = 2
} attnrt_verify;

typedef struct attnrt_load_options {
  size_t struct_size;
  // Threads that verify the file, the caller among them; 0: as a session has
  // them, at most 8. They end before the load returns.
  int32_t num_threads;
  // 0: weights are mapped from the file, so that they are loaded once for all
  // processes. The file must then not be written to while the model is loaded
  // (replacing it by rename is fine): a run that finds it modified verifies the
  // digest again and fails with ATTNRT_CORRUPT_FILE if it differs; a file that is
  // cut short in the middle of a run kills the process with SIGBUS.
  // 1: weights are copied into private memory and the file may vanish.
  int32_t copy_weights;
  int32_t verify; // attnrt_verify
} attnrt_load_options;
#define ATTNRT_LOAD_OPTIONS_INIT {sizeof(attnrt_load_options), 0, 0, 0}

// Loads the model library at `path`. Before any of its code is mapped, the
// BLAKE3 digest over the whole file is checked. That finds damage, not malice:
// load only what you would also execute. Cost: reading and hashing the file
// (about 3 GB/s per thread), unless the options say otherwise.
//
// `options` may be NULL. `*model` is owned by the caller, who releases it.
//
// Profilers such as perf find no names in code that no file holds. Where the
// environment has ATTNRT_PERF_DIR, the code is mapped from a file that is made
// in that folder, attnrt-PID-*.so, and stays there.
//
//   not_found     there is no such file
//   io            the file cannot be read; the code cannot be mapped, which takes
//                 memfd_create and a mounted /proc; ATTNRT_PERF_DIR cannot be written
//   corrupt_file  no model library, cut short, or the digest differs
//   incompatible  another ABI version or architecture, or the CPU lacks features
ATTNRT_API attnrt_status attnrt_model_load(const char *path, const attnrt_load_options *options, attnrt_model **model);

// The same from an open file (a memfd, say), which must be readable and
// seekable. The descriptor is duplicated; its file offset does not matter.
ATTNRT_API attnrt_status attnrt_model_load_fd(int fd, const attnrt_load_options *options, attnrt_model **model);

ATTNRT_API void attnrt_model_retain(attnrt_model *model);

// Gives up one reference. Sessions hold one each, so the order of releasing does
// not matter. NULL is ignored.
ATTNRT_API void attnrt_model_release(attnrt_model *model);

typedef struct attnrt_entry_info {
  const char *name;
  int32_t num_inputs;
  int32_t num_outputs;
  const attnrt_tensor_info *inputs;  // num_inputs of them
  const attnrt_tensor_info *outputs; // num_outputs of them
  int32_t has_state;                 // whether a run takes an attnrt_state
  int32_t num_states;                // inputs that the state keeps
  const attnrt_state_info *states;   // num_states of them
  const uint8_t *optional_inputs;    // num_inputs of them, 1: a run's input may be NULL; NULL: none may be
} attnrt_entry_info;

typedef struct attnrt_model_info {
  uint32_t abi_version;
  uint32_t num_entries;
  const attnrt_entry_info *const *entries; // at least one; the first is the default
  uint32_t num_weights;
  const attnrt_weight_info *weights;
  const char *target;                // LLVM triple
  const char *required_cpu_features; // comma-separated, as in /proc/cpuinfo
  const char *compiler_version;
  const char *manifest_json;
  uint64_t file_size;    // bytes
  uint64_t weights_size; // bytes
  uint8_t digest[32];
} attnrt_model_info;

// Describes the model. `*info` and all it points to belong to the model and are
// valid as long as it is. Later versions may append fields.
ATTNRT_API attnrt_status attnrt_model_get_info(const attnrt_model *model, const attnrt_model_info **info);

// The entry called `name`; NULL: the first. not_found, with the names there are.
ATTNRT_API attnrt_status attnrt_model_find_entry(const attnrt_model *model, const char *name,
                                                 const attnrt_entry_info **entry);

// Replaces the weight called `name` in all places where the library stores it,
// for all sessions of the model. `value` has the dtype and shape that the weight
// table lists, on the CPU, with any strides. It is copied, and packed as the
// compiled code wants it; the model then has a private copy of the touched pages.
// Waits until the model's running runs have ended; later ones see the new value.
//
//   not_found         no weight of this name in attnrt_model_info.weights: the model
//                     has none, or it is part of the code, as biases, norms and
//                     small tensors are
//   invalid_argument  another dtype or shape
//   unsupported       the weight was folded into others or into code when the model
//                     was compiled ("derived", as int64 always is), or an equal one
//                     shares its bytes, so that it cannot be replaced alone
ATTNRT_API attnrt_status attnrt_model_set_weight(attnrt_model *model, const char *name, const DLTensor *value);

//===----------------------------------------------------------------------===//
// Sessions
//===----------------------------------------------------------------------===//

// What one run at a time needs: worker threads and a workspace.
typedef struct attnrt_session attnrt_session;

typedef struct attnrt_session_options {
  size_t struct_size;
  // Threads that compute, the caller of the run among them; 0: as many as the
  // environment's OMP_NUM_THREADS says, else as CPUs that this process may use
  // (sched_setaffinity) and its control groups grant it time for (cgroup v1 or
  // v2, rounded up). Results are the same bits for any number. If the system
  // refuses some, the session works with fewer. Under a control group's quota
  // threads that wait sleep; without one they spin for a while.
  int32_t num_threads;
  // Pins thread number i (0: the thread that calls the run, for the length of
  // the run) to CPU cpus[i % num_cpus]. num_cpus 0: no pinning. `cpus` is copied.
  int32_t num_cpus;
  const int32_t *cpus;
  // 1: products on a GPU are made by the library's own kernels alone. 0: by
  // cuBLASLt where this machine has it (libcublasLt.so.13 or .12) and it serves
  // them. The two round differently.
  int32_t own_products;
  // The GPU that runs a library with GPU code, by the CUDA driver's number, which
  // CUDA_VISIBLE_DEVICES rules. Sessions of one model may be on several; each GPU
  // gets one copy of the weights, with the first session on it.
  int32_t device;
} attnrt_session_options;
#define ATTNRT_SESSION_OPTIONS_INIT {sizeof(attnrt_session_options), 0, 0, NULL, 0, 0}

// `options` may be NULL. The session keeps the model alive. Worker threads are
// started by the first run.
//   invalid_argument  a number of threads or CPUs out of range; no such GPU, or a
//                     GPU other than 0 for a library without GPU code
//   incompatible      the library has no code for that GPU
//   out_of_memory     of the process or of the GPU
//   device            no usable GPU; or it was opened before fork()
ATTNRT_API attnrt_status attnrt_session_create(attnrt_model *model, const attnrt_session_options *options,
                                               attnrt_session **session);

// Ends the worker threads and frees the workspace. If a run is in progress on
// another thread, that happens when it ends. Outputs stay valid. NULL is ignored.
ATTNRT_API void attnrt_session_destroy(attnrt_session *session);

// Threads that runs of this session use, the caller's among them. 0: NULL session.
ATTNRT_API int32_t attnrt_session_num_threads(const attnrt_session *session);

// CPUs that this process may use: those of its affinity, or where its control
// groups grant it less time, that many, rounded up. At least 1.
ATTNRT_API int32_t attnrt_available_cpus(void);

// A flag that stops runs. One may serve several runs; it stays set until reset.
typedef struct attnrt_cancel attnrt_cancel;
ATTNRT_API attnrt_status attnrt_cancel_create(attnrt_cancel **cancel);
// May be called from any thread and from a signal handler. NULL is ignored.
ATTNRT_API void attnrt_cancel_request(attnrt_cancel *cancel);
ATTNRT_API void attnrt_cancel_reset(attnrt_cancel *cancel);
// No run may use it any more. NULL is ignored.
ATTNRT_API void attnrt_cancel_destroy(attnrt_cancel *cancel);

// What an entry keeps from one run to the next: inputs that are, in the next
// run, what outputs were in this one (attnrt_entry_info.states). A key/value
// cache is appended to where it lies, in memory with room for more, so a run
// copies none of it. Whether an entry has a state was chosen when the model was
// compiled (attnc --own-state); such an entry runs without one, too.
//
//     attnrt_state *state;
//     attnrt_state_create(session, "step", &state);
//     attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
//     options.entry = "step";
//     options.state = state;
//     for (...) // inputs and outputs without those of the state
//       attnrt_session_run(session, &options, inputs, 2, outputs, 1);
//     attnrt_state_destroy(state);
//
// A new state is empty: caches have no rows, other inputs are zeros of the sizes
// that the first run's inputs imply, and 0 where none does and the dimension has
// another name in the output: a cache that attnc could not append to (it says so)
// begins without rows, too. It serves one call at a time, with any
// session of its model; a second one meanwhile is invalid_argument. A run that
// fails leaves it as it was, but for a cache of fixed size in which runs replace
// rows (TensorScatter): where it has begun to, the state is invalid_argument
// until it is reset or that input is set.
typedef struct attnrt_state attnrt_state;

// `entry` NULL: the model's first. unsupported: the entry has no state. The
// state keeps the model alive.
ATTNRT_API attnrt_status attnrt_state_create(attnrt_session *session, const char *entry, attnrt_state **state);

// If a run uses it on another thread, it is freed when that ends. NULL is ignored.
ATTNRT_API void attnrt_state_destroy(attnrt_state *state);

// Another state with a copy of the contents.
ATTNRT_API attnrt_status attnrt_state_clone(attnrt_state *state, attnrt_state **copy);

// Empty again; its memory is kept.
ATTNRT_API attnrt_status attnrt_state_reset(attnrt_state *state);

// Rows of the caches (of the longest one); 0 if it keeps none.
ATTNRT_API attnrt_status attnrt_state_length(attnrt_state *state, int64_t *length);

// Forgets all rows of the caches behind the first `length`, without a copy.
//   invalid_argument  a cache has fewer rows
//   unsupported       the state keeps other inputs than caches, too
ATTNRT_API attnrt_status attnrt_state_truncate(attnrt_state *state, int64_t length);

// Makes item n of what the state keeps what item items[n] was, in every kept input
// along the dimension that is called `dim` (NULL: the first one, as of a batch):
// items change places, are repeated (a beam that goes on twice) or left out (a
// sequence that has ended). -1 gives an item of zeros, for a sequence that begins:
// it has as many rows in the caches as the others, so a mask has to hide them.
// `items` has `num_items` elements, which is the dimension's size afterwards.
//   invalid_argument  nothing is known yet; an item is not there; the dimension has
//                     another size in the model
//   unsupported       a kept input has no such dimension, or its cache grows in it
ATTNRT_API attnrt_status attnrt_state_gather(attnrt_state *state, const char *dim, const int64_t *items,
                                             int64_t num_items);

// Makes room for `rows` rows in each cache, of which a run that needs more fails
// with invalid_argument. 0, as at first: as many as memory holds; room then
// doubles where it ends.
ATTNRT_API attnrt_status attnrt_state_set_limit(attnrt_state *state, int64_t rows);

// Replaces the contents for input `input` by a copy of `value`, on the CPU, with any strides.
//   not_found         the state keeps no such input
//   invalid_argument  another dtype, rank or size, or beyond the limit
ATTNRT_API attnrt_status attnrt_state_set(attnrt_state *state, const char *input, const DLTensor *value);

// The contents for input `input`, with strides, where they lie: to be read until
// the state is next run, changed or destroyed. invalid_argument: nothing is known yet.
ATTNRT_API attnrt_status attnrt_state_get(attnrt_state *state, const char *input, const DLTensor **value);

typedef struct attnrt_run_options {
  size_t struct_size;
  const char *entry;     // NULL: the model's first
  attnrt_cancel *cancel; // optional; must outlive the run
  // Nanoseconds from the start of the run after which it is given up; 0: never.
  int64_t timeout_ns;
  // Optional: what the entry keeps. Inputs and outputs are then those that the
  // state does not keep, in their order.
  attnrt_state *state;
  // For a library with GPU code: the CUstream on which the run's work goes, behind
  // what is there already; one of the primary context of the session's GPU. NULL:
  // the session's own. The run waits for its work.
  void *stream;
  // Where outputs lie that the runtime allocates: kDLCPU (or 0), or kDLCUDA.
  int32_t output_device;
  // For a library that was compiled to be profiled (attnc --mark-regions): called
  // on the thread of the run, with `mark_context`, at the end of each region of
  // the manifest's "regions". Returns soon: its time counts as the next region's.
  void (*on_mark)(void *context, int32_t region, int64_t flops, int64_t bytes);
  void *mark_context;
  // For an entry that searches on the CPU, and not by a beam: called on the thread of
  // the run, with `token_context`, as soon as row `row` has its token number `step`,
  // counted from 0; rows that have ended get none. Nonzero: the run ends with
  // ATTNRT_CANCELLED.
  int32_t (*on_token)(void *context, int64_t row, int64_t step, int64_t token);
  void *token_context;
  // For a timeline: called with `piece_context` when a thread has done its piece of a
  // loop on the CPU, by that thread, by several at once. `thread` counts from 0, which
  // is that of the run, to those of the session; `begin` and `end` are nanoseconds of
  // CLOCK_MONOTONIC. Returns soon: the loop waits.
  void (*on_piece)(void *context, int32_t thread, int64_t begin, int64_t end);
  void *piece_context;
  // The same for what a run has put on its stream, of a library with GPU code: called
  // on the thread of the run, when its work is done, for each kernel, product of
  // cuBLASLt and copy, in their order. `name` is the kernel's, or says what is copied;
  // it is read before the call returns. Times are those of events around each, on the
  // clock of on_piece. Such a run makes no CUDA graphs, and loops come back to the
  // host with each step.
  void (*on_kernel)(void *context, const char *name, int64_t begin, int64_t end);
  void *kernel_context;
} attnrt_run_options;
#define ATTNRT_RUN_OPTIONS_INIT                                                                                        \
  {sizeof(attnrt_run_options), NULL, NULL, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

// Where an output goes. {NULL, 0, NULL}: the runtime allocates it.
typedef struct attnrt_output {
  // Caller's memory: on the CPU, dense row-major, `shape` room for the declared
  // rank. Must not overlap an input or another output. Memory aligned to 64
  // bytes is written directly, other costs one copy of the output.
  DLTensor *buffer;
  // 0: `buffer->shape` must be the output's exact shape. Otherwise the bytes
  // there are behind the first element: the output may have any shape that
  // fits, and a successful run writes its shape (and strides, if not NULL) to
  // `buffer`; what these hold before does not matter.
  uint64_t capacity;
  // Set by a successful run if `buffer` is NULL: a tensor aligned to 64 bytes
  // that the caller frees by `tensor->deleter(tensor)`, at any time, on any thread.
  DLManagedTensor *tensor;
} attnrt_output;

// Runs an entry. `inputs` are in the order of the entry's inputs (NULL for one that
// is optional: attnrt_entry_info.optional_inputs), on the CPU, or
// on the GPU (kDLCUDA) where the library has GPU code: what is not there yet is
// copied to it, outputs for the CPU are copied back. Inputs are only read. Dense
// row-major inputs, aligned to their element, are used where they lie; others
// are first copied into memory of the session. With
// caller's output buffers and shapes no larger than earlier runs', a run
// allocates nothing.
//
// `options` may be NULL; `inputs` and `outputs` may if their number is 0.
//
// On failure no output tensor is allocated; what is in callers' buffers is then
// undefined, their shapes are untouched. The session can be used again.
//
//   invalid_argument   wrong number, dtype, rank or size (beyond 2^40) of tensors, NULL data,
//                      overlapping buffers, a size that breaks the model's own
//                      requirements; the session is running on another thread; a
//                      state that is in use, at its limit or of another entry
//   out_of_range       an index in an input is beyond the axis it selects from
//   not_found          no such entry
//   out_of_memory      workspace or outputs cannot be allocated; the calling thread's
//                      stack is too small for the library's code
//   cancelled, deadline_exceeded
//   device             the GPU or its driver failed; where its context is lost,
//                      so are all models of the process that use it
//   corrupt_file       the library's file was modified since it was loaded
ATTNRT_API attnrt_status attnrt_session_run(attnrt_session *session, const attnrt_run_options *options,
                                            const DLTensor *const *inputs, int32_t num_inputs, attnrt_output *outputs,
                                            int32_t num_outputs);

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

// A dense row-major tensor on the CPU with undefined elements, aligned to 64
// bytes. The caller frees it by `(*tensor)->deleter(*tensor)`.
//   invalid_argument  unknown dtype, rank beyond 32, a negative size
//   out_of_memory     also when the bytes exceed the address space
ATTNRT_API attnrt_status attnrt_tensor_create(int32_t dtype, int32_t rank, const int64_t *shape,
                                              DLManagedTensor **tensor);

#ifdef __cplusplus
}
#endif
#endif // ATTNRT_ATTNRT_H
