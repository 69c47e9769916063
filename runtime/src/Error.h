#ifndef RUNTIME_SRC_ERROR_H
#define RUNTIME_SRC_ERROR_H

#include "attnrt/attnrt.h"
#include <cstddef>

namespace attn::rt {

/// Keeps the message for attnrt_last_error on this thread, and returns `status`.
attnrt_status fail(attnrt_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/// ATTNRT_OUT_OF_MEMORY, naming the number of bytes and what they were for.
attnrt_status failMemory(uint64_t bytes, const char *what);

/// Text that is built up in a fixed buffer; what doesn't fit is dropped.
class Text {
public:
  Text &add(const char *format, ...) __attribute__((format(printf, 2, 3)));
  Text &addShape(int32_t rank, const int64_t *shape); ///< "2x3", "scalar"
  const char *str() const { return text; }

private:
  char text[512] = "";
  size_t size = 0;
};

/// Copies an option structure of the caller's version over our defaults. Fails
/// if it is newer and sets something that we do not know.
attnrt_status readOptions(const void *options, size_t knownSize, const char *type, void *result);

} // namespace attn::rt

#endif // RUNTIME_SRC_ERROR_H
