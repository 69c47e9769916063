// Runs the first entry of a library on a thread with a small stack: small_stacks STACK LIBRARY DTYPE:SIZE,SIZE...
//
// STACK is in KiB; then the inputs, f32 and f16 ones of ones, i64 ones of zeros. Below the stack lie a guard page and a
// mapping of someone else's, as on a thread of musl's, which stays as it is.
#define _GNU_SOURCE
#include "attnrt/attnrt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kMostInputs = 16, kMostDims = 8, kPage = 4096, kBelow = 1 << 20 };

static attnrt_session *session;
static const DLTensor *inputs[kMostInputs];
static attnrt_output outputs[kMostInputs];
static int numInputs, numOutputs;
static attnrt_status status;
static char message[1024];

static const DLTensor *makeInput(char *text) {
  DLManagedTensor *made = NULL;
  int64_t shape[kMostDims], count = 1;
  int32_t rank = 0, dtype = strncmp(text, "f32", 3) == 0   ? ATTNRT_F32
                            : strncmp(text, "f16", 3) == 0 ? ATTNRT_F16
                                                           : ATTNRT_I64;
  for (char *next = strtok(text + 4, ","); next; next = strtok(NULL, ","))
    count *= shape[rank++] = atoll(next);
  if (attnrt_tensor_create(dtype, rank, shape, &made) != ATTNRT_OK)
    exit(2);
  for (int64_t i = 0; i < count; ++i)
    if (dtype == ATTNRT_F32)
      ((float *)made->dl_tensor.data)[i] = 1;
    else if (dtype == ATTNRT_F16)
      ((uint16_t *)made->dl_tensor.data)[i] = 0x3c00;
    else
      ((int64_t *)made->dl_tensor.data)[i] = 0;
  return &made->dl_tensor;
}

static void *run(void *unused) {
  status = attnrt_session_run(session, NULL, inputs, numInputs, outputs, numOutputs);
  snprintf(message, sizeof(message), "%s", status ? attnrt_last_error() : "done");
  return unused;
}

int main(int count, char **arguments) {
  size_t stack = (size_t)atol(arguments[1]) << 10;
  attnrt_model *model;
  const attnrt_entry_info *entry;
  attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
  options.num_threads = 2;
  if (attnrt_model_load(arguments[2], NULL, &model) || attnrt_session_create(model, &options, &session) ||
      attnrt_model_find_entry(model, NULL, &entry)) {
    fprintf(stderr, "%s\n", attnrt_last_error());
    return 2;
  }
  numOutputs = entry->num_outputs;
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
  return 0;
}
