// Optional inputs of a typed function are left out by NULL: leave_out typed.so
#include "typed.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  (void)argc;
  attnrt_model *model;
  attnrt_session *session;
  if (attnrt_model_load(argv[1], NULL, &model) || attnrt_session_create(model, NULL, &session))
    return puts(attnrt_last_error());
  const int64_t ids[] = {3, 4}, ones[] = {1, 1}, most[] = {3};
  typed_generate_dims dims = {0};
  dims.batch_size = dims.attention_mask_dim0 = dims.max_new_tokens_dim0 = dims.min_new_tokens_dim0 = 1;
  dims.prompt_length = dims.attention_mask_dim1 = 2;
  int64_t tokens[2][3], length;
  float score;
  for (int has = 0; has < 2; ++has) {
    attnrt_output out = {NULL, 0, NULL};
    if (typed_generate(session, NULL, &dims, ids, has ? ones : NULL, most, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                       &out, &length, &score))
      return puts(attnrt_last_error());
    memcpy(tokens[has], out.tensor->dl_tensor.data, sizeof(tokens[has]));
    out.tensor->deleter(out.tensor);
  }
  if (!memcmp(tokens[0], tokens[1], sizeof(tokens[0])))
    puts("3 tokens, as with a mask of ones");
  attnrt_session_destroy(session);
  attnrt_model_release(model);
}
