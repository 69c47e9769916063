#include "Error.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

using namespace attn::rt;

// A plain array: no destructor to run, no allocation that could fail.
static thread_local char lastError[1024];

attnrt_status attn::rt::fail(attnrt_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(lastError, sizeof(lastError), format, arguments);
  va_end(arguments);
  return status;
}

attnrt_status attn::rt::failMemory(uint64_t bytes, const char *what) {
  if (bytes >= uint64_t(INT64_MAX)) // as sums of sizes end that leave 64 bits
    return fail(ATTNRT_OUT_OF_MEMORY, "cannot allocate %s: its size in bytes is beyond 63 bits", what);
  return fail(ATTNRT_OUT_OF_MEMORY, "cannot allocate %llu bytes for %s", (unsigned long long)bytes, what);
}

Text &Text::add(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text + size, sizeof(text) - size, format, arguments);
  va_end(arguments);
  if (length > 0)
    size = size + size_t(length) < sizeof(text) ? size + size_t(length) : sizeof(text) - 1;
  return *this;
}

Text &Text::addShape(int32_t rank, const int64_t *shape) {
  if (rank == 0)
    return add("scalar");
  for (int32_t dim = 0; dim < rank; ++dim)
    add(dim ? "x%lld" : "%lld", (long long)shape[dim]);
  return *this;
}

attnrt_status attn::rt::readOptions(const void *options, size_t knownSize, const char *type, void *result) {
  if (!options)
    return ATTNRT_OK;
  size_t size;
  memcpy(&size, options, sizeof(size));
  if (size < sizeof(size) || size > 4096)
    return fail(ATTNRT_INVALID_ARGUMENT, "%s has struct_size %zu; initialise it with the ..._INIT macro", type, size);
  for (size_t i = knownSize; i < size; ++i)
    if (static_cast<const char *>(options)[i])
      return fail(ATTNRT_UNSUPPORTED, "%s sets an option that version %s of the runtime does not have", type,
                  attnrt_version());
  memcpy(result, options, size < knownSize ? size : knownSize);
  return ATTNRT_OK;
}

const char *attnrt_last_error(void) { return lastError; }

#define ATTNRT_STRING(x) #x
#define ATTNRT_DOTTED(major, minor, patch) ATTNRT_STRING(major) "." ATTNRT_STRING(minor) "." ATTNRT_STRING(patch)
const char *attnrt_version(void) {
  return ATTNRT_DOTTED(ATTNRT_VERSION_MAJOR, ATTNRT_VERSION_MINOR, ATTNRT_VERSION_PATCH);
}

const char *attnrt_status_name(attnrt_status status) {
  int number; // of a C enumeration, which may hold any
  memcpy(&number, &status, sizeof(number));
  switch (number) {
  case ATTNRT_DEVICE:
    return "device";
  case ATTNRT_OK:
    return "ok";
  case ATTNRT_INVALID_ARGUMENT:
    return "invalid argument";
  case ATTNRT_OUT_OF_RANGE:
    return "out of range";
  case ATTNRT_NOT_FOUND:
    return "not found";
  case ATTNRT_CORRUPT_FILE:
    return "corrupt file";
  case ATTNRT_INCOMPATIBLE:
    return "incompatible";
  case ATTNRT_OUT_OF_MEMORY:
    return "out of memory";
  case ATTNRT_CANCELLED:
    return "cancelled";
  case ATTNRT_DEADLINE_EXCEEDED:
    return "deadline exceeded";
  case ATTNRT_INTERNAL:
    return "internal error";
  case ATTNRT_UNSUPPORTED:
    return "unsupported";
  case ATTNRT_IO:
    return "i/o error";
  }
  return "unknown status";
}
