// A model library made by hand: what the runtime's tests load. Each entry shows
// one thing that compiled code can do. LibraryFile.h appends the weights that
// fixture-weights.h lists.
#include "fixture-weights.h"

#include <float.h>
#include <math.h>
#include <time.h>

#ifndef FIXTURE_FEATURES
#define FIXTURE_FEATURES ""
#endif
#ifndef FIXTURE_ABI
#define FIXTURE_ABI ATTNRT_ABI_VERSION
#endif
#ifndef FIXTURE_RANK
#define FIXTURE_RANK 2
#endif
#ifndef FIXTURE_LESS
#define FIXTURE_LESS 0
#endif

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof((array)[0])))

static void nap(int64_t nanoseconds) {
  struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  nanosleep(&time, 0);
}

//===----------------------------------------------------------------------===//
// lookup: y[n, :] = table[ids[n], :] + x[n, :]
//===----------------------------------------------------------------------===//

struct lookup {
  attnrt_run *run;
  const float *table, *x;
  const int64_t *ids;
  float *y;
};

static void lookup_rows(void *arg, int64_t begin, int64_t end) {
  struct lookup *l = arg;
  for (int64_t n = begin; n < end; ++n) {
    int64_t id = l->ids[n];
    if (id < 0 || id >= 8) {
      int32_t none = 0;
      if (__atomic_compare_exchange_n(&l->run->error_message, &none, 1 + 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        l->run->error_index = id;
        l->run->error_size = 8;
      }
      id = 0;
    }
    for (int64_t c = 0; c < 4; ++c)
      l->y[n * 4 + c] = l->table[id * 4 + c] + l->x[n * 4 + c];
  }
}

static int32_t lookup(attnrt_run *run, const attnrt_buffer *inputs) {
  int64_t shape[] = {inputs[0].shape[0], 4};
  float *y = run->output(run, 0, 2, shape);
  if (!y)
    return ATTNRT_RUN_STOPPED;
  struct lookup l = {run, (const float *)run->weights, inputs[1].data, inputs[0].data, y};
  return run->parallel_for(run, lookup_rows, &l, shape[0]) ? ATTNRT_RUN_STOPPED : ATTNRT_RUN_DONE;
}

static const attnrt_dim lookup_n[] = {{-1, "n"}};
static const attnrt_dim lookup_n4[] = {{-1, "n"}, {4, ""}};
static const attnrt_tensor_info lookup_inputs[] = {{"ids", "int64", ATTNRT_I64, 1, lookup_n},
                                                   {"x", "float32", ATTNRT_F32, 2, lookup_n4}};
static const attnrt_tensor_info lookup_outputs[] = {{"y", "float32", ATTNRT_F32, FIXTURE_RANK, lookup_n4}};
static const char *const lookup_messages[] = {
    "node 'emb' (Gather): an index is out of range: {0} in a dimension of size {1}"};

//===----------------------------------------------------------------------===//
// weights: the stored weights as one sees them: the plain matrix, and both
// packed ones unpacked (all 5 x 7)
//===----------------------------------------------------------------------===//

static int32_t weights(attnrt_run *run, const attnrt_buffer *inputs) {
  (void)inputs;
  const int64_t shape[] = {5, 7};
  const float *packed[] = {(const float *)(run->weights + 320), (const float *)(run->weights + 512)};
  float *plain = run->output(run, 0, 2, shape);
  if (!plain)
    return ATTNRT_RUN_STOPPED;
  for (int i = 0; i < 35; ++i)
    plain[i] = ((const float *)(run->weights + 128))[i];
  for (int32_t o = 1; o <= 2; ++o) {
    float *out = run->output(run, o, 2, shape);
    if (!out)
      return ATTNRT_RUN_STOPPED;
    for (int k = 0; k < 5; ++k)
      for (int n = 0; n < 7; ++n)
        out[k * 7 + n] = packed[o - 1][(n / 4) * 20 + k * 4 + n % 4];
  }
  return ATTNRT_RUN_DONE;
}

// narrow: the bits of what is stored in 16 of them, and of what lies side by side
static int32_t narrow(attnrt_run *run, const attnrt_buffer *inputs) {
  (void)inputs;
  const int64_t shape[] = {46};
  int64_t *bits = run->output(run, 0, 1, shape);
  if (!bits)
    return ATTNRT_RUN_STOPPED;
  for (int i = 0; i < 16; ++i)
    bits[i] = ((const uint16_t *)(run->weights + (i < 8 ? 832 : 896)))[i % 8];
  for (int i = 0; i < 15; ++i)
    bits[16 + i] = ((const uint32_t *)(run->weights + 960))[i],
              bits[31 + i] = ((const uint16_t *)(run->weights + 1024))[i];
  return ATTNRT_RUN_DONE;
}

static const attnrt_dim narrow_dims[] = {{46, ""}};
static const attnrt_tensor_info narrow_outputs[] = {{"bits", "int64", ATTNRT_I64, 1, narrow_dims}};
static const attnrt_dim weights_dims[] = {{5, ""}, {7, ""}};
static const attnrt_tensor_info weights_outputs[] = {{"plain", "float32", ATTNRT_F32, 2, weights_dims},
                                                     {"panels", "float32", ATTNRT_F32, 2, weights_dims},
                                                     {"panels-t", "float32", ATTNRT_F32, 2, weights_dims}};

//===----------------------------------------------------------------------===//
// slow: `steps` iterations of one region, 200 us each
//===----------------------------------------------------------------------===//

static void slow_steps(void *arg, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    nap(200000);
    __atomic_fetch_add((int64_t *)arg, 1, __ATOMIC_RELAXED);
  }
}

static int32_t slow(attnrt_run *run, const attnrt_buffer *inputs) {
  int64_t *count = run->output(run, 0, 0, 0);
  if (!count)
    return ATTNRT_RUN_STOPPED;
  *count = 0;
  return run->parallel_for(run, slow_steps, count, *(const int64_t *)inputs[0].data) ? ATTNRT_RUN_STOPPED
                                                                                     : ATTNRT_RUN_DONE;
}

static const attnrt_tensor_info scalar_input[] = {{"steps", "int64", ATTNRT_I64, 0, 0}};
static const attnrt_tensor_info scalar_output[] = {{"count", "int64", ATTNRT_I64, 0, 0}};

//===----------------------------------------------------------------------===//
// hungry: a workspace of `steps` bytes, filled, and its address mod 64
//===----------------------------------------------------------------------===//

static int32_t hungry(attnrt_run *run, const attnrt_buffer *inputs) {
  int64_t bytes = *(const int64_t *)inputs[0].data;
  unsigned char *memory = run->workspace(run, (uint64_t)bytes);
  if (!memory)
    return ATTNRT_RUN_STOPPED;
  for (int64_t i = 0; i < bytes; ++i)
    memory[i] = (unsigned char)i;
  int64_t *count = run->output(run, 0, 0, 0);
  if (!count)
    return ATTNRT_RUN_STOPPED;
  *count = (int64_t)((uintptr_t)memory % 64);
  return ATTNRT_RUN_DONE;
}

//===----------------------------------------------------------------------===//
// require: fails unless a and b are equal
//===----------------------------------------------------------------------===//

static int32_t require(attnrt_run *run, const attnrt_buffer *inputs) {
  int64_t values[] = {inputs[0].shape[0], inputs[1].shape[0]};
  if (values[0] != values[1]) {
    run->fail(run, 1, 2, values);
    return ATTNRT_RUN_STOPPED;
  }
  return ATTNRT_RUN_DONE;
}

static const attnrt_dim require_a[] = {{-1, "a"}};
static const attnrt_dim require_b[] = {{-1, "b"}};
static const attnrt_tensor_info require_inputs[] = {{"left", "uint8", ATTNRT_U8, 1, require_a},
                                                    {"right", "uint8", ATTNRT_U8, 1, require_b}};
static const char *const require_messages[] = {
    "unused", "node 'add' (Add): dimensions {1} and {0} of {x} differ, {1} is not {0} {7}"};

//===----------------------------------------------------------------------===//
// regions: `count` regions over the elements of y, each adds one to each
//===----------------------------------------------------------------------===//

static void add_one(void *arg, int64_t begin, int64_t end) {
  int64_t *y = arg;
  for (int64_t i = begin; i < end; ++i)
    ++y[i];
}

static int32_t regions(attnrt_run *run, const attnrt_buffer *inputs) {
  int64_t count = *(const int64_t *)inputs[0].data, n = inputs[1].shape[0];
  int64_t *y = run->output(run, 0, 1, &n);
  if (!y)
    return ATTNRT_RUN_STOPPED;
  for (int64_t i = 0; i < n; ++i)
    y[i] = ((const int64_t *)inputs[1].data)[i];
  for (int64_t i = 0; i < count; ++i) {
    if (run->parallel_for(run, add_one, y, n))
      return ATTNRT_RUN_STOPPED;
    if (i < 3)
      run->mark(run, (int32_t)i, 10 * i, 20 * i);
  }
  return ATTNRT_RUN_DONE;
}

static const attnrt_tensor_info regions_inputs[] = {{"count", "int64", ATTNRT_I64, 0, 0},
                                                    {"x", "int64", ATTNRT_I64, 1, lookup_n}};
static const attnrt_tensor_info regions_outputs[] = {{"y", "int64", ATTNRT_I64, 1, lookup_n}};

//===----------------------------------------------------------------------===//
// rows: y[r] = a sum over x[r, :] whose bits depend on the order of addition
//===----------------------------------------------------------------------===//

struct rows {
  const float *x;
  int64_t width;
  float *y;
};

static void sum_rows(void *arg, int64_t begin, int64_t end) {
  struct rows *rows = arg;
  for (int64_t r = begin; r < end; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < rows->width; ++c)
      sum += sinf(rows->x[r * rows->width + c]) / 3;
    rows->y[r] = sum;
  }
}

static int32_t rows(attnrt_run *run, const attnrt_buffer *inputs) {
  const int64_t *shape = inputs[0].shape;
  struct rows r = {inputs[0].data, shape[1], run->output(run, 0, 1, shape)};
  if (!r.y)
    return ATTNRT_RUN_STOPPED;
  return run->parallel_for(run, sum_rows, &r, shape[0]) ? ATTNRT_RUN_STOPPED : ATTNRT_RUN_DONE;
}

static const attnrt_dim rows_dims[] = {{-1, "rows"}, {-1, "width"}};
static const attnrt_tensor_info rows_inputs[] = {{"x", "float32", ATTNRT_F32, 2, rows_dims}};
static const attnrt_tensor_info rows_outputs[] = {{"y", "float32", ATTNRT_F32, 1, rows_dims}};

//===----------------------------------------------------------------------===//
// tiny: half the smallest normal number, computed by every thread: 0 where
// denormals are flushed
//===----------------------------------------------------------------------===//

static void halve(void *arg, int64_t begin, int64_t end) {
  volatile float smallest = FLT_MIN;
  for (int64_t i = begin; i < end; ++i)
    ((float *)arg)[i] = smallest * 0.5f;
}

static int32_t tiny(attnrt_run *run, const attnrt_buffer *inputs) {
  (void)inputs;
  const int64_t n = 64;
  float *y = run->output(run, 0, 1, &n);
  if (!y)
    return ATTNRT_RUN_STOPPED;
  return run->parallel_for(run, halve, y, n) ? ATTNRT_RUN_STOPPED : ATTNRT_RUN_DONE;
}

static const attnrt_dim tiny_dims[] = {{64, ""}};
static const attnrt_tensor_info tiny_outputs[] = {{"y", "float32", ATTNRT_F32, 1, tiny_dims}};

//===----------------------------------------------------------------------===//
// append: present = past with rows behind, y = the sum of present. step: the
// same, and count_out = count + 1. A first row of -1 is an index out of range
// once the rows are written, -2 takes its time.
//===----------------------------------------------------------------------===//

static int32_t append(attnrt_run *run, const attnrt_buffer *inputs) {
  const float *rows = inputs[0].data;
  int64_t batch = inputs[0].shape[0], more = inputs[0].shape[1], past = inputs[1].shape[1], capacity = 0;
  int64_t shape[] = {batch, past + more, 3}, one = 1;
  float *y = run->output(run, 0, 1, &one);
  if (!y)
    return ATTNRT_RUN_STOPPED;
  if (more && batch && rows[0] == -2)
    nap(300000000);
  float *present = run->cache(run, 0, 3, shape, &capacity);
  if (!present)
    return ATTNRT_RUN_STOPPED;
  *y = 0;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t n = 0; n < more * 3; ++n)
      present[b * capacity * 3 + past * 3 + n] = rows[b * more * 3 + n];
    for (int64_t n = 0; n < (past + more) * 3; ++n)
      *y += present[b * capacity * 3 + n];
  }
  if (more && batch && rows[0] == -1)
    run->error_message = 1;
  return ATTNRT_RUN_DONE;
}

static int32_t step(attnrt_run *run, const attnrt_buffer *inputs) {
  int64_t one = 1;
  float *count = run->output(run, 2, 1, &one);
  if (!count)
    return ATTNRT_RUN_STOPPED;
  *count = *(const float *)inputs[2].data + 1;
  return append(run, inputs);
}

// wide: append with rows of any width, y[batch] = the sums, total_out = total + scale;
// the sizes of an empty past and total come from rows and scale.
static int32_t wide(attnrt_run *run, const attnrt_buffer *inputs) {
  const float *scale = inputs[0].data, *rows = inputs[1].data, *total = inputs[3].data;
  const int64_t *sizes = inputs[1].shape;
  int64_t batch = sizes[0], more = sizes[1], width = sizes[2], past = inputs[2].shape[1], capacity = 0;
  int64_t shape[] = {batch, past + more, width};
  float *y = run->output(run, 0, 1, &batch), *total_out = y ? run->output(run, 2, 1, &batch) : 0;
  float *present = total_out ? run->cache(run, 0, 3, shape, &capacity) : 0;
  if (!present)
    return ATTNRT_RUN_STOPPED;
  for (int64_t b = 0; b < batch; ++b) {
    float *cache = present + b * capacity * width;
    total_out[b] = total[b] + scale[b];
    y[b] = 0;
    for (int64_t n = 0; n < more * width; ++n)
      cache[past * width + n] = rows[b * more * width + n];
    for (int64_t n = 0; n < (past + more) * width; ++n)
      y[b] += cache[n];
  }
  return ATTNRT_RUN_DONE;
}

// replace: present = past with 1 added to element `at`, y = the sum of present.
// 4 is an index out of range once element 0 is written.
static int32_t replace(attnrt_run *run, const attnrt_buffer *inputs) {
  int64_t one = 1, four = 4, capacity = 0;
  int at = (int)*(const float *)inputs[0].data;
  float *y = run->output(run, 0, 1, &one), *present = y ? run->cache(run, 0, 1, &four, &capacity) : 0;
  if (!present)
    return ATTNRT_RUN_STOPPED;
  present[at % 4] += 1;
  *y = present[0] + present[1] + present[2] + present[3];
  if (at == 4)
    run->error_message = 1;
  return ATTNRT_RUN_DONE;
}

static const attnrt_dim append_rows[] = {{-1, "batch"}, {-1, "rows"}, {3, ""}};
static const attnrt_dim append_past[] = {{-1, "batch"}, {-1, "past"}, {3, ""}};
static const attnrt_dim append_present[] = {{-1, "batch"}, {-1, "total"}, {3, ""}};
static const attnrt_dim one_dims[] = {{1, ""}};
static const attnrt_tensor_info append_inputs[] = {{"rows", "float32", ATTNRT_F32, 3, append_rows},
                                                   {"past", "float32", ATTNRT_F32, 3, append_past},
                                                   {"count", "float32", ATTNRT_F32, 1, one_dims}};
static const attnrt_tensor_info append_outputs[] = {{"y", "float32", ATTNRT_F32, 1, one_dims},
                                                    {"present", "float32", ATTNRT_F32, 3, append_present},
                                                    {"count_out", "float32", ATTNRT_F32, 1, one_dims}};
static const char *const append_messages[] = {"a row is out of range"};
static const attnrt_state_info append_states[] = {{1, 1, 1}, {2, 2, -1}};

static const attnrt_dim replace_cache[] = {{4, ""}};
static const attnrt_tensor_info replace_inputs[] = {{"at", "float32", ATTNRT_F32, 1, one_dims},
                                                    {"past", "float32", ATTNRT_F32, 1, replace_cache}};
static const attnrt_tensor_info replace_outputs[] = {{"y", "float32", ATTNRT_F32, 1, one_dims},
                                                     {"present", "float32", ATTNRT_F32, 1, replace_cache}};
static const attnrt_state_info replace_states[] = {{1, 1, -2}};

static const attnrt_dim wide_scale[] = {{-1, "batch"}};
static const attnrt_dim wide_rows[] = {{-1, "batch"}, {-1, "rows"}, {-1, "width"}};
static const attnrt_dim wide_past[] = {{-1, "batch"}, {-1, "past"}, {-1, "width"}};
static const attnrt_tensor_info wide_inputs[] = {{"scale", "float32", ATTNRT_F32, 1, wide_scale},
                                                 {"rows", "float32", ATTNRT_F32, 3, wide_rows},
                                                 {"past", "float32", ATTNRT_F32, 3, wide_past},
                                                 {"total", "float32", ATTNRT_F32, 1, wide_scale}};
static const attnrt_tensor_info wide_outputs[] = {{"y", "float32", ATTNRT_F32, 1, wide_scale},
                                                  {"present", "float32", ATTNRT_F32, 3, wide_past},
                                                  {"total_out", "float32", ATTNRT_F32, 1, wide_scale}};
static const attnrt_state_info wide_states[] = {{2, 1, 1}, {3, 2, -1}};

// turned: caches whose batch is not their first dimension, to be filled and looked at.
static const attnrt_dim turned_rows_first[] = {{-1, "past"}, {-1, "batch"}, {3, ""}};
static const attnrt_dim turned_heads_first[] = {{2, ""}, {-1, "batch"}, {2, ""}, {-1, "past"}, {3, ""}};
static const attnrt_dim turned_layers_first[] = {{2, ""}, {-1, "batch"}};
static const attnrt_tensor_info turned_tensors[] = {{"rows", "float32", ATTNRT_F32, 3, turned_rows_first},
                                                    {"heads", "float32", ATTNRT_F32, 5, turned_heads_first},
                                                    {"layers", "float32", ATTNRT_F32, 2, turned_layers_first}};
static const attnrt_state_info turned_states[] = {{0, 0, 0}, {1, 1, 3}, {2, 2, -1}};

//===----------------------------------------------------------------------===//
// Compiled code that breaks its contract
//===----------------------------------------------------------------------===//

static int32_t stops(attnrt_run *run, const attnrt_buffer *inputs) {
  (void)run, (void)inputs;
  return ATTNRT_RUN_STOPPED;
}

static int32_t turned(attnrt_run *run, const attnrt_buffer *inputs) { return stops(run, inputs); }

static int32_t forgets(attnrt_run *run, const attnrt_buffer *inputs) { return stops(run, inputs), ATTNRT_RUN_DONE; }

static int32_t misshapes(attnrt_run *run, const attnrt_buffer *inputs) {
  (void)inputs;
  const int64_t n = 63;
  return run->output(run, 0, 1, &n) ? ATTNRT_RUN_DONE : ATTNRT_RUN_STOPPED;
}

static int32_t repeats(attnrt_run *run, const attnrt_buffer *inputs) {
  (void)inputs;
  const int64_t n = 64;
  return run->output(run, 0, 1, &n) && run->output(run, 0, 1, &n) ? ATTNRT_RUN_DONE : ATTNRT_RUN_STOPPED;
}

// mutes: an error whose message the entry doesn't have
static int32_t mutes(attnrt_run *run, const attnrt_buffer *inputs) {
  run->error_message = (int32_t)*(const int64_t *)inputs[0].data;
  return ATTNRT_RUN_DONE;
}

//===----------------------------------------------------------------------===//

// As a later version would have them: with fields behind those that this one knows.
struct described {
  attnrt_entry entry;
  uint64_t later;
};
#ifdef FIXTURE_GROWN
#define SIZE_OF(known, grown) sizeof(grown)
#else
#define SIZE_OF(known, grown) (sizeof(known) - FIXTURE_LESS)
#endif

// clang-format off
#define ENTRY(name, numInputs, inputs, numOutputs, outputs, numMessages, messages, numStates, states)                     \
  {{SIZE_OF(attnrt_entry, struct described), numInputs, numOutputs, numMessages, numStates, 0, #name, name, inputs,       \
    outputs, messages, states}, UINT64_MAX}
// clang-format on
static const struct described described[] = {
    ENTRY(lookup, 2, lookup_inputs, 1, lookup_outputs, COUNT(lookup_messages), lookup_messages, 0, 0),
    ENTRY(weights, 0, 0, 3, weights_outputs, 0, 0, 0, 0),
    ENTRY(narrow, 0, 0, 1, narrow_outputs, 0, 0, 0, 0),
    ENTRY(slow, 1, scalar_input, 1, scalar_output, 0, 0, 0, 0),
    ENTRY(hungry, 1, scalar_input, 1, scalar_output, 0, 0, 0, 0),
    ENTRY(require, 2, require_inputs, 0, 0, COUNT(require_messages), require_messages, 0, 0),
    ENTRY(regions, 2, regions_inputs, 1, regions_outputs, 0, 0, 0, 0),
    ENTRY(rows, 1, rows_inputs, 1, rows_outputs, 0, 0, 0, 0),
    ENTRY(tiny, 0, 0, 1, tiny_outputs, 0, 0, 0, 0),
    ENTRY(stops, 0, 0, 0, 0, 0, 0, 0, 0),
    ENTRY(forgets, 0, 0, 1, tiny_outputs, 0, 0, 0, 0),
    ENTRY(misshapes, 0, 0, 1, tiny_outputs, 0, 0, 0, 0),
    ENTRY(repeats, 0, 0, 1, tiny_outputs, 0, 0, 0, 0),
    ENTRY(append, 2, append_inputs, 2, append_outputs, COUNT(append_messages), append_messages, 1, append_states),
    ENTRY(step, 3, append_inputs, 3, append_outputs, COUNT(append_messages), append_messages, 2, append_states),
    ENTRY(replace, 2, replace_inputs, 2, replace_outputs, COUNT(append_messages), append_messages, 1, replace_states),
    ENTRY(wide, 4, wide_inputs, 3, wide_outputs, 0, 0, 2, wide_states),
    ENTRY(turned, 3, turned_tensors, 3, turned_tensors, 0, 0, 3, turned_states),
    ENTRY(mutes, 1, scalar_input, 0, 0, 0, 0, 0, 0),
};
#define AT(n) &described[n].entry
static const attnrt_entry *const entries[] = {
    AT(0),  AT(1),  AT(2),  AT(3),  AT(4),  AT(5),  AT(6),  AT(7),  AT(8),  AT(9),
    AT(10), AT(11), AT(12), AT(13), AT(14), AT(15), AT(16), AT(17), AT(18),
};

struct described_library {
  attnrt_library library;
  uint64_t later;
};
static const struct described_library grown = {
    {SIZE_OF(attnrt_library, struct described_library), FIXTURE_ABI, COUNT(entries), COUNT(weight_table), entries,
     weight_table, FIXTURE_FEATURES, "x86_64-unknown-linux-gnu", "by hand", "{\"entries\": []}", 0, ""},
    UINT64_MAX};

__attribute__((visibility("default"))) const attnrt_library *attnrt_library_query(uint32_t abi_version) {
#ifdef FIXTURE_REFUSES
  return abi_version == 0 ? &grown.library : 0;
#else
  (void)abi_version;
  return &grown.library;
#endif
}
