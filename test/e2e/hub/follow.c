// Follows a search and ends it: follow LIBRARY
#include "attnrt/attnrt.h"
#include <stdio.h>
#include <string.h>

typedef struct {
  int64_t tokens[64];
  int64_t count, most;
} Heard;

static int32_t hear(void *context, int64_t row, int64_t step, int64_t token) {
  Heard *heard = context;
  if (row != 0 || step != heard->count)
    printf("token %lld of row %lld came as number %lld\n", (long long)step, (long long)row, (long long)heard->count);
  heard->tokens[heard->count++] = token;
  return heard->count == heard->most;
}

static int find(const attnrt_entry_info *entry, const char *name) {
  for (int32_t i = 0; i < entry->num_inputs; ++i)
    if (strcmp(entry->inputs[i].name, name) == 0)
      return i;
  return -1;
}

// Runs `entry` on a prompt of two tokens; `most`: the callback ends the run there.
static attnrt_status run(attnrt_session *session, const attnrt_entry_info *entry, int64_t most, int64_t newTokens) {
  int64_t ids[] = {3, 4}, shape[] = {1, 2}, one[] = {1};
  DLTensor prompt = {ids, {kDLCPU, 0}, 2, {kDLInt, 64, 1}, shape, NULL, 0};
  DLTensor length = {&newTokens, {kDLCPU, 0}, 1, {kDLInt, 64, 1}, one, NULL, 0};
  const DLTensor *inputs[32] = {NULL}; // what is left out
  inputs[find(entry, "input_ids")] = &prompt;
  if (newTokens)
    inputs[find(entry, "max_new_tokens")] = &length;
  attnrt_output outputs[8] = {{NULL, 0, NULL}};
  Heard heard = {{0}, 0, most};
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = entry->name;
  options.on_token = hear;
  options.token_context = &heard;
  attnrt_status status = attnrt_session_run(session, &options, inputs, entry->num_inputs, outputs, entry->num_outputs);
  if (status != ATTNRT_OK) {
    printf("%s: %s\n", attnrt_status_name(status), attnrt_last_error());
    return status;
  }
  const DLTensor *tokens = &outputs[0].tensor->dl_tensor;
  int isSame = tokens->shape[1] == heard.count && memcmp(tokens->data, heard.tokens, 8 * (size_t)heard.count) == 0;
  printf("%lld tokens, %s\n", (long long)heard.count, isSame ? "as returned" : "others than returned");
  for (int32_t i = 0; i < entry->num_outputs; ++i)
    outputs[i].tensor->deleter(outputs[i].tensor);
  return status;
}

int main(int argc, char **argv) {
  attnrt_model *model;
  attnrt_session *session;
  const attnrt_entry_info *entry;
  if (argc != 2 || attnrt_model_load(argv[1], NULL, &model) || attnrt_session_create(model, NULL, &session) ||
      attnrt_model_find_entry(model, "generate", &entry)) {
    printf("%s\n", attnrt_last_error());
    return 1;
  }
  for (int32_t i = 0; i < entry->num_inputs; ++i)
    printf("%s%s\n", entry->inputs[i].name, entry->optional_inputs[i] ? " may be left out" : "");
  run(session, entry, 0, 0);
  run(session, entry, 0, 5);
  run(session, entry, 3, 0);
  run(session, entry, 0, -1);
  attnrt_session_destroy(session);
  attnrt_model_release(model);
  return 0;
}
