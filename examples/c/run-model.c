// run-model MODEL.so [DIM=SIZE ...]
//
// Loads a compiled model, lists its inputs, runs it once with made-up values
// and prints the outputs. Optional inputs are left out. Dimensions that the
// model leaves open have size 8 unless one is given:
// run-model minilm.so batch=2 sequence=16
#include <attnrt/attnrt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(attnrt_status status) {
  if (status == ATTNRT_OK)
    return;
  fprintf(stderr, "error: %s: %s\n", attnrt_status_name(status), attnrt_last_error());
  exit(1);
}

// The text behind "DIM=" if `argument` is about `dim`.
static const char *sizeGiven(const char *argument, const attnrt_dim *dim) {
  size_t length = strlen(dim->name);
  return dim->size < 0 && length && strncmp(argument, dim->name, length) == 0 && argument[length] == '='
             ? argument + length + 1
             : NULL;
}

// Whether dimension `d` of input `i` is open, and no dimension before it has its name.
static int isFirstOfItsName(const attnrt_entry_info *entry, int32_t i, int32_t d) {
  const attnrt_dim *dim = &entry->inputs[i].dims[d];
  if (dim->size >= 0 || !dim->name[0])
    return 0;
  for (int32_t j = 0; j <= i; ++j)
    for (int32_t e = 0; e < (j < i ? entry->inputs[j].rank : d); ++e)
      if (entry->inputs[j].dims[e].size < 0 && strcmp(entry->inputs[j].dims[e].name, dim->name) == 0)
        return 0;
  return 1;
}

static void checkSize(const char *argument, const attnrt_entry_info *entry) {
  const char *size = NULL;
  for (int32_t i = 0; i < entry->num_inputs; ++i)
    for (int32_t d = 0; d < entry->inputs[i].rank && !size; ++d)
      size = sizeGiven(argument, &entry->inputs[i].dims[d]);
  char *end = NULL;
  if (size && strtoll(size, &end, 10) >= 0 && end != size && !*end)
    return;
  fprintf(stderr, "error: '%s' is not DIM=SIZE; open dimensions are:", argument);
  for (int32_t i = 0; i < entry->num_inputs; ++i)
    for (int32_t d = 0; d < entry->inputs[i].rank; ++d)
      if (isFirstOfItsName(entry, i, d))
        fprintf(stderr, " %s", entry->inputs[i].dims[d].name);
  fprintf(stderr, "\n");
  exit(1);
}

static int64_t sizeOf(const attnrt_dim *dim, int argc, char **argv) {
  if (dim->size >= 0)
    return dim->size;
  for (int i = 2; i < argc; ++i) {
    const char *size = sizeGiven(argv[i], dim);
    if (size)
      return strtoll(size, NULL, 10);
  }
  return 8;
}

// Integers are 1, which suits token ids and masks; floats lie within -1 and 1.
static void fill(DLTensor *tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d)
    count *= tensor->shape[d];
  int bytes = tensor->dtype.bits / 8;
  memset(tensor->data, 0, (size_t)(count * bytes));
  uint32_t random = 1;
  for (int64_t i = 0; i < count; ++i) {
    random = random * 1664525u + 1013904223u;
    if (tensor->dtype.code == kDLFloat && bytes == 4)
      ((float *)tensor->data)[i] = (float)(int32_t)random / 2147483648.0f;
    else if (tensor->dtype.code != kDLFloat && tensor->dtype.code != kDLBfloat)
      ((char *)tensor->data)[i * bytes] = 1; // little endian
  }
}

static void printShape(const DLTensor *tensor) {
  printf("[");
  for (int32_t d = 0; d < tensor->ndim; ++d)
    printf(d ? ", %lld" : "%lld", (long long)tensor->shape[d]);
  printf("]");
}

static float fromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// An IEEE half has 5 bits of exponent and 10 of significand. Where those lie in a float, the exponent is too small by
// 112; that of infinity and NaN is all ones in both.
static float halfToFloat(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
  if ((half & 0x7c00) == 0x7c00)
    return fromBits(sign | 0x7f800000u | rest);
  float size = fromBits(rest) * 0x1p112f;
  return sign ? -size : size;
}

static void printValue(const DLTensor *tensor, int64_t n) {
  int code = tensor->dtype.code, bits = tensor->dtype.bits;
  if (code == kDLFloat && bits == 64)
    printf(" %g", ((const double *)tensor->data)[n]);
  else if (code == kDLFloat && bits == 32)
    printf(" %g", ((const float *)tensor->data)[n]);
  else if (code == kDLFloat && bits == 16)
    printf(" %g", halfToFloat(((const uint16_t *)tensor->data)[n]));
  else if (code == kDLBfloat)
    printf(" %g", fromBits((uint32_t)((const uint16_t *)tensor->data)[n] << 16));
  else if (code == kDLInt && bits == 64)
    printf(" %lld", (long long)((const int64_t *)tensor->data)[n]);
  else if (code == kDLInt && bits == 32)
    printf(" %d", ((const int32_t *)tensor->data)[n]);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: run-model MODEL.so [DIM=SIZE ...]\n");
    return 1;
  }
  attnrt_model *model;
  attnrt_session *session;
  const attnrt_model_info *info;
  check(attnrt_model_load(argv[1], NULL, &model));
  check(attnrt_session_create(model, NULL, &session));
  check(attnrt_model_get_info(model, &info));
  const attnrt_entry_info *entry = info->entries[0];
  for (int i = 2; i < argc; ++i)
    checkSize(argv[i], entry);
  printf("entry '%s', compiled by %s for %s\n", entry->name, info->compiler_version, info->target);

  DLManagedTensor **owned = calloc((size_t)entry->num_inputs + 1, sizeof(*owned));
  const DLTensor **inputs = calloc((size_t)entry->num_inputs + 1, sizeof(*inputs));
  attnrt_output *outputs = calloc((size_t)entry->num_outputs + 1, sizeof(*outputs));
  if (!owned || !inputs || !outputs)
    return 1;
  for (int32_t i = 0; i < entry->num_inputs; ++i) {
    const attnrt_tensor_info *declared = &entry->inputs[i];
    if (entry->optional_inputs && entry->optional_inputs[i]) { // NULL: the model has a value of its own
      printf("input '%s' %s left out\n", declared->name, declared->dtype_name);
      continue;
    }
    int64_t shape[32];
    for (int32_t d = 0; d < declared->rank; ++d)
      shape[d] = sizeOf(&declared->dims[d], argc, argv);
    check(attnrt_tensor_create(declared->dtype, declared->rank, shape, &owned[i]));
    inputs[i] = &owned[i]->dl_tensor;
    fill(&owned[i]->dl_tensor);
    printf("input '%s' %s ", declared->name, declared->dtype_name);
    printShape(inputs[i]);
    printf("\n");
  }

  // All fields of an output zero: the runtime allocates it.
  check(attnrt_session_run(session, NULL, inputs, entry->num_inputs, outputs, entry->num_outputs));

  for (int32_t i = 0; i < entry->num_outputs; ++i) {
    const DLTensor *tensor = &outputs[i].tensor->dl_tensor;
    int64_t count = 1;
    for (int32_t d = 0; d < tensor->ndim; ++d)
      count *= tensor->shape[d];
    printf("output '%s' %s ", entry->outputs[i].name, entry->outputs[i].dtype_name);
    printShape(tensor);
    for (int64_t n = 0; n < count && n < 4; ++n)
      printValue(tensor, n);
    printf("\n");
    outputs[i].tensor->deleter(outputs[i].tensor);
  }

  for (int32_t i = 0; i < entry->num_inputs; ++i)
    if (owned[i])
      owned[i]->deleter(owned[i]);
  free(owned);
  free(inputs);
  free(outputs);
  attnrt_session_destroy(session);
  attnrt_model_release(model);
  return 0;
}
