#ifndef RUNTIME_SRC_MEMORY_H
#define RUNTIME_SRC_MEMORY_H

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

// The library links no C++ runtime, so that C programs can link it statically:
// memory comes from malloc and mmap, and its absence is a null pointer.

namespace attn::rt {

/// A zero-initialised array of plain data.
template <typename T> class Array {
public:
  Array() = default;
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
  ~Array() { free(items); }

  /// False: out of memory. Call it once. Zero items succeed.
  bool allocate(uint64_t count) {
    items = static_cast<T *>(calloc(count ? count : 1, sizeof(T)));
    length = items ? count : 0;
    return items;
  }
  T *data() const { return items; }
  uint64_t size() const { return length; }
  T &operator[](uint64_t i) const { return items[i]; }

private:
  T *items = nullptr;
  uint64_t length = 0;
};

/// Calls a function at the end of the scope.
template <typename F> class AtExit {
public:
  explicit AtExit(F function) : function(std::move(function)) {}
  AtExit(const AtExit &) = delete;
  ~AtExit() { function(); }

private:
  F function;
};

/// Memory that grows and never shrinks, aligned to at least 64 bytes. Its
/// contents are lost when it grows.
class GrowingBuffer {
public:
  GrowingBuffer() = default;
  GrowingBuffer(const GrowingBuffer &) = delete;
  ~GrowingBuffer() { release(); }

  /// At least `bytes`; nullptr: out of memory. The old memory is gone either way
  /// if it was too small.
  void *atLeast(uint64_t bytes);
  void release();

private:
  void *memory = nullptr;
  uint64_t capacity = 0;
  bool mapped = false;
};

template <typename T, typename... Args> T *make(Args &&...args) {
  void *memory = nullptr;
  if (posix_memalign(&memory, alignof(T) < sizeof(void *) ? sizeof(void *) : alignof(T), sizeof(T)) != 0)
    return nullptr;
  return new (memory) T(std::forward<Args>(args)...);
}

template <typename T> void destroy(T *object) {
  if (!object)
    return;
  object->~T();
  free(object);
}

} // namespace attn::rt

#endif // RUNTIME_SRC_MEMORY_H
