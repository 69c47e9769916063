#include "Model.h"
#include "Tensor.h"

#include <cstring>

using namespace attn::rt;

namespace {
/// attnrt_weight_info.layout, parsed.
struct Layout {
  enum Kind { Plain, Bf16, F16, Panels, Derived } kind;
  bool transposed;
  uint64_t width;        // columns of a panel
  uint64_t first, pitch; // of the tensor's elements in each row of so many; 0: it lies alone

  uint64_t elementBytes(const attnrt_weight_info &weight) const {
    return kind == Plain ? attnrt_dtype_size(weight.dtype) : sizeof(uint16_t);
  }
};

// Where a tensor's elements lie: `count` rows of `length` elements.
struct Rows {
  uint64_t count, length;
};
} // namespace

// "columns:F:P", "columns-bf16:F:P", "columns-f16:F:P".
static bool parseColumns(const char *text, Layout &layout) {
  const char *kinds[] = {":", "-bf16:", "-f16:"};
  for (Layout::Kind kind : {Layout::Plain, Layout::Bf16, Layout::F16})
    if (strncmp(text, kinds[kind], strlen(kinds[kind])) == 0) {
      char *end;
      layout.kind = kind;
      layout.first = strtoull(text + strlen(kinds[kind]), &end, 10);
      if (*end != ':')
        return false;
      layout.pitch = strtoull(end + 1, &end, 10);
      return !*end && layout.pitch > layout.first && layout.pitch <= UINT64_MAX / 8;
    }
  return false;
}

static bool parseLayout(const char *text, Layout &layout) {
  layout = {Layout::Plain, false, 0, 0, 0};
  if (strcmp(text, "plain") == 0)
    return true;
  if (strncmp(text, "columns", 7) == 0)
    return parseColumns(text + 7, layout);
  layout.kind = Layout::Bf16;
  if (strcmp(text, "plain-bf16") == 0)
    return true;
  layout.kind = Layout::F16;
  if (strcmp(text, "plain-f16") == 0)
    return true;
  layout.kind = Layout::Derived;
  if (strcmp(text, "derived") == 0)
    return true;
  layout.kind = Layout::Panels;
  layout.transposed = strncmp(text, "panels-t:", 9) == 0;
  if (!layout.transposed && strncmp(text, "panels:", 7) != 0)
    return false;
  const char *digits = text + (layout.transposed ? 9 : 7);
  char *end;
  layout.width = strtoull(digits, &end, 10);
  return *digits >= '1' && *digits <= '9' && !*end && layout.width <= 65536;
}

// The rows of a tensor in a place that it shares with others; false: it does not fit there.
static bool findRows(const attnrt_weight_info &weight, const Layout &layout, Rows &rows) {
  uint64_t dense, element = attnrt_dtype_size(weight.dtype), rowBytes = layout.pitch * layout.elementBytes(weight);
  if (!denseBytes(weight.dtype, weight.rank, weight.shape, dense) || weight.size % rowBytes || !weight.size ||
      (layout.kind != Layout::Plain && weight.dtype != ATTNRT_F32))
    return false;
  rows.count = weight.size / rowBytes;
  rows.length = dense / element / rows.count;
  return rows.count * rows.length * element == dense && rows.length <= layout.pitch - layout.first;
}

// Bytes of the place that has the packed form; false: it cannot be (not a matrix).
static bool packedBytes(const attnrt_weight_info &weight, const Layout &layout, uint64_t &bytes) {
  if (Rows rows; layout.pitch) {
    bytes = weight.size;
    return findRows(weight, layout, rows);
  }
  if (layout.kind == Layout::Plain)
    return denseBytes(weight.dtype, weight.rank, weight.shape, bytes);
  if (layout.kind == Layout::Bf16 || layout.kind == Layout::F16) // of as many bits, whichever
    return weight.dtype == ATTNRT_F32 && denseBytes(ATTNRT_F16, weight.rank, weight.shape, bytes);
  if (weight.rank != 2)
    return false;
  int64_t columns = weight.shape[layout.transposed ? 0 : 1], rows = weight.shape[layout.transposed ? 1 : 0];
  int64_t width = int64_t(layout.width);
  int64_t shape[] = {columns / width + (columns % width != 0), rows, width};
  return denseBytes(weight.dtype, 3, shape, bytes);
}

// The nearest number, ties to even; what is finite stays finite.
static uint16_t rounded(float value, bool isF16) {
  const uint32_t kInfinity = 0x7f800000;
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  uint32_t sign = word >> 16 & 0x8000, size = word & 0x7fffffff;
  if (!isF16) {
    uint32_t half = size > kInfinity ? size >> 16 | 0x40 : (size + 0x7fff + (size >> 16 & 1)) >> 16;
    return uint16_t(sign | (half == kInfinity >> 16 && size < kInfinity ? half - 1 : half));
  }
  if (size >= kInfinity)
    return uint16_t(sign | (size > kInfinity ? 0x7e00 : 0x7c00));
  if (size >= 0x477ff000) // beyond the largest
    return uint16_t(sign | 0x7bff);
  if (size >= 0x38800000) // normal
    return uint16_t(sign | (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13);
  // Whole multiples of 2^-24: the sum has no bits for less.
  memcpy(&value, &size, sizeof value);
  float sum = value * 16777216.0f + 8388608.0f;
  memcpy(&size, &sum, sizeof size);
  return uint16_t(sign | (size & 0x7fff));
}

static void roundAll(uint64_t count, bool isF16, const char *from, char *to) {
  for (uint64_t n = 0; n < count; ++n) {
    float value;
    memcpy(&value, from + n * sizeof value, sizeof value);
    uint16_t half = rounded(value, isF16);
    memcpy(to + n * sizeof half, &half, sizeof half);
  }
}

// #attn.pack_panels: panel p, row k, column c of the packed tensor is element
// (k, p * width + c) of the K x N matrix, 0 beyond N. A transposed source is
// stored as N x K.
static void packPanels(const attnrt_weight_info &weight, const Layout &layout, const char *from, char *to) {
  uint64_t element = attnrt_dtype_size(weight.dtype);
  uint64_t columns = uint64_t(weight.shape[layout.transposed ? 0 : 1]);
  uint64_t rows = uint64_t(weight.shape[layout.transposed ? 1 : 0]);
  for (uint64_t first = 0; first < columns; first += layout.width) {
    uint64_t count = columns - first < layout.width ? columns - first : layout.width;
    for (uint64_t row = 0; row < rows; ++row, to += layout.width * element) {
      if (!layout.transposed)
        memcpy(to, from + (row * columns + first) * element, count * element);
      else
        for (uint64_t column = 0; column < count; ++column)
          memcpy(to + column * element, from + ((first + column) * rows + row) * element, element);
      memset(to + count * element, 0, (layout.width - count) * element);
    }
  }
}

// Row by row, beside the elements of other tensors.
static void writeColumns(const attnrt_weight_info &weight, const Layout &layout, const char *from, char *to) {
  Rows rows;
  findRows(weight, layout, rows);
  uint64_t element = layout.elementBytes(weight), bytes = rows.length * attnrt_dtype_size(weight.dtype);
  to += layout.first * element;
  for (uint64_t row = 0; row < rows.count; ++row, from += bytes, to += layout.pitch * element)
    if (layout.kind == Layout::Plain)
      memcpy(to, from, bytes);
    else
      roundAll(rows.length, layout.kind == Layout::F16, from, to);
}

// Whether two tensors of one place have columns of their own.
static bool areBeside(const attnrt_weight_info &one, const attnrt_weight_info &other) {
  Layout a, b;
  Rows ofA, ofB;
  return one.offset == other.offset && one.size == other.size && parseLayout(one.layout, a) &&
         parseLayout(other.layout, b) && a.pitch && a.pitch == b.pitch && findRows(one, a, ofA) &&
         findRows(other, b, ofB) && ofA.count == ofB.count &&
         (a.first + ofA.length <= b.first || b.first + ofB.length <= a.first);
}

// Another weight whose bytes would change, too: equal tensors may be stored once.
static const char *findNeighbour(const attnrt_library &library, const attnrt_weight_info &weight) {
  for (uint32_t i = 0; i < library.num_weights; ++i) {
    const attnrt_weight_info &other = library.weights[i];
    if (other.offset < weight.offset + weight.size && weight.offset < other.offset + other.size &&
        strcmp(other.name, weight.name) != 0 && !areBeside(weight, other))
      return other.name;
  }
  return nullptr;
}

// Whether `value` can go to every place where the weight is stored.
static attnrt_status checkPlaces(const attnrt_model &model, const char *name, const DLTensor *value, TensorView &view) {
  const attnrt_library &library = model.library;
  bool found = false;
  for (uint32_t i = 0; i < library.num_weights; ++i) {
    const attnrt_weight_info &weight = library.weights[i];
    if (strcmp(weight.name, name) != 0)
      continue;
    found = true;
    Layout layout;
    uint64_t bytes;
    if (parseLayout(weight.layout, layout) && layout.kind == Layout::Derived)
      return fail(ATTNRT_UNSUPPORTED,
                  "weight '%s' cannot be replaced alone: the compiler folded it with others (layout 'derived')", name);
    if (!parseLayout(weight.layout, layout) || !packedBytes(weight, layout, bytes) || bytes != weight.size)
      return fail(ATTNRT_UNSUPPORTED,
                  "weight '%s' of shape %s is stored as '%s' in %llu bytes, which this runtime cannot write", name,
                  Text().addShape(weight.rank, weight.shape).str(), weight.layout, (unsigned long long)weight.size);
    if (const char *other = findNeighbour(library, weight))
      return fail(ATTNRT_UNSUPPORTED, "weight '%s' cannot be replaced alone: it shares its bytes with weight '%s'",
                  name, other);
    attnrt_dim dims[kMaxRank];
    for (int32_t dim = 0; dim < weight.rank; ++dim)
      dims[dim] = {weight.shape[dim], ""};
    attnrt_tensor_info declared = {name, "", weight.dtype, weight.rank, dims};
    if (attnrt_status status = checkTensor(value, "weight", declared, 0, view))
      return status;
  }
  return found
             ? ATTNRT_OK
             : fail(ATTNRT_NOT_FOUND, "%s: no weight '%s' in its table (a bias or a small tensor is part of the code)",
                    model.file.name(), name);
}

// Calls `function` for each place with bytes until one returns false.
template <typename F> static bool forEachPlace(const attnrt_model &model, const char *name, F function) {
  for (uint32_t i = 0; i < model.library.num_weights; ++i) {
    const attnrt_weight_info &weight = model.library.weights[i];
    if (weight.size && strcmp(weight.name, name) == 0 && !function(weight))
      return false;
  }
  return true;
}

// Writes the dense `data` to each place. A child of fork() sees all of it or nothing.
static attnrt_status writePlaces(attnrt_model &model, const char *name, const char *data, uint64_t bytes) {
  ForkGuard guard;
  // All places are opened before the first is written, so that none is left
  // with the old value. The mapping is private: the first write to a page copies it.
  if (!forEachPlace(model, name, [&](const attnrt_weight_info &weight) {
        return model.file.makeWritable(weight.offset, weight.size);
      }))
    return failMemory(bytes, "a private copy of a weight");
  forEachPlace(model, name, [&](const attnrt_weight_info &weight) {
    Layout layout;
    parseLayout(weight.layout, layout);
    char *target = reinterpret_cast<char *>(model.file.weights() + weight.offset);
    if (layout.pitch)
      writeColumns(weight, layout, data, target);
    else if (layout.kind == Layout::Plain)
      memcpy(target, data, weight.size);
    else if (layout.kind == Layout::Bf16 || layout.kind == Layout::F16)
      roundAll(weight.size / sizeof(uint16_t), layout.kind == Layout::F16, data, target);
    else
      packPanels(weight, layout, data, target);
    return true;
  });
  // Neighbours may share a page, so they are closed last.
  forEachPlace(model, name, [&](const attnrt_weight_info &weight) {
    model.file.makeReadOnly(weight.offset, weight.size);
    return true;
  });
  return ATTNRT_OK;
}

attnrt_status attnrt_model_set_weight(attnrt_model *model, const char *name, const DLTensor *value) {
  if (!model || !name || !value)
    return fail(ATTNRT_INVALID_ARGUMENT, "attnrt_model_set_weight: %s is NULL",
                !model  ? "model"
                : !name ? "name"
                        : "value");
  TensorView view;
  if (attnrt_status status = checkPlaces(*model, name, value, view))
    return status;
  const char *data = view.data;
  Array<char> copy;
  if (!view.dense) {
    if (!copy.allocate(view.bytes))
      return failMemory(view.bytes, "a weight");
    copyDense(*value, view.data, copy.data());
    data = copy.data();
  }

  pthread_rwlock_wrlock(&model->weightsLock);
  AtExit unlock([&] { pthread_rwlock_unlock(&model->weightsLock); });
  if (attnrt_status status = writePlaces(*model, name, data, view.bytes))
    return status;
  // A GPU that is lost keeps no other from its new weights.
  attnrt_status status = ATTNRT_OK;
  for (GpuModel *gpu = model->gpus; gpu; gpu = gpu->next)
    forEachPlace(*model, name, [&](const attnrt_weight_info &weight) {
      attnrt_status updated = gpu->update(model->file.weights(), weight.offset, weight.size);
      status = updated ? updated : status;
      return updated == ATTNRT_OK;
    });
  return status;
}
