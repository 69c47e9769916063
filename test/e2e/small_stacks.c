// Runs the first entry of a library on a thread with a small stack: small_stacks STACK LIBRARY DTYPE:SIZE,SIZE...
//
// STACK is in KiB; then the inputs, f32 or f16. Below the stack lie a guard page and a mapping of someone else's, as on
// a thread of musl's, which stays as it is. Eight threads that work in parts, as where a run has a deadline, give the
// bits of one.
#define _GNU_SOURCE
#include "attnrt/attnrt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kMostInputs = 16, kMostDims = 8, kPage = 4096, kBelow = 1 << 20 };

static attnrt_model *model;
static const DLTensor *inputs[kMostInputs];
static attnrt_output alone, together;
static int numInputs;
static attnrt_status status;
static char message[1024];

static const DLTensor *makeInput(char *text) {
  DLManagedTensor *made = NULL;
  int64_t shape[kMostDims], count = 1;
  int32_t rank = 0, dtype = strncmp(text, "f32", 3) == 0 ? ATTNRT_F32 : ATTNRT_F16;
  for (char *next = strtok(text + 4, ","); next; next = strtok(NULL, ","))
    count *= shape[rank++] = atoll(next);
  if (attnrt_tensor_create(dtype, rank, shape, &made) != ATTNRT_OK)
    exit(2);
  for (int64_t i = 0; i < count; ++i)
    if (dtype == ATTNRT_F32)
      ((float *)made->dl_tensor.data)[i] = (float)(i * 7919 % 1013) / 1013 - 0.4f;
    else // between 1/8 and 1/2
      ((uint16_t *)made->dl_tensor.data)[i] = (uint16_t)(0x3000 + i * 7919 % 2039);
  return &made->dl_tensor;
}

static attnrt_status runOn(int32_t threads, int64_t timeout, attnrt_output *output) {
  attnrt_session *session;
  attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
  attnrt_run_options run = ATTNRT_RUN_OPTIONS_INIT;
  options.num_threads = threads;
  run.timeout_ns = timeout;
  if (attnrt_session_create(model, &options, &session))
    return ATTNRT_INTERNAL;
  attnrt_status status = attnrt_session_run(session, &run, inputs, numInputs, output, 1);
  attnrt_session_destroy(session);
  return status;
}

static void *run(void *unused) {
  status = runOn(1, 0, &alone);
  if (status == ATTNRT_OK)
    status = runOn(8, 1000000000000, &together);
  snprintf(message, sizeof(message), "%s", status ? attnrt_last_error() : "done");
  return unused;
}

// Whether both runs gave the same.
static int isSame(void) {
  const DLTensor *a = &alone.tensor->dl_tensor, *b = &together.tensor->dl_tensor;
  size_t bytes = a->dtype.bits / 8;
  for (int32_t dim = 0; dim < a->ndim; ++dim)
    bytes *= (size_t)a->shape[dim];
  return memcmp(a->data, b->data, bytes) == 0;
}

int main(int count, char **arguments) {
  size_t stack = (size_t)atol(arguments[1]) << 10;
  if (attnrt_model_load(arguments[2], NULL, &model)) {
    fprintf(stderr, "%s\n", attnrt_last_error());
    return 2;
  }
  for (numInputs = 0; numInputs < count - 3; ++numInputs)
    inputs[numInputs] = makeInput(arguments[3 + numInputs]);

  char *below = mmap(NULL, kBelow + kPage + stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(below, 0x5a, kBelow);
  mprotect(below + kBelow, kPage, PROT_NONE);
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, below + kBelow + kPage, stack);
  if (pthread_create(&thread, &attributes, run, NULL) != 0 || pthread_join(thread, NULL) != 0)
    return 2;
  for (int i = 0; i < kBelow; ++i)
    if (below[i] != 0x5a) {
      printf("wrote %d bytes below the stack\n", kBelow + kPage - i);
      return 1;
    }
  printf("%d: %s\n", status, message);
  if (status == ATTNRT_OK && !isSame()) {
    printf("eight threads give other bits than one\n");
    return 1;
  }
  return 0;
}
