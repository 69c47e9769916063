// Preloaded into attnc: call number FAIL_AT of the function FAIL_CALL fails with FAIL_ERRNO, in the driver and in each
// worker. Descriptors 0 to 2 are left alone, so that messages come through.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1; // calls until the one that fails

static int fails(const char *name) {
  if (left < 0) {
    const char *call = getenv("FAIL_CALL"), *at = getenv("FAIL_AT");
    left = call && at && strcmp(call, name) == 0 ? atol(at) : 0;
    if (!call || strcmp(call, name) != 0) {
      left = -1;
      return 0;
    }
  }
  const char *call = getenv("FAIL_CALL");
  if (!call || strcmp(call, name) != 0 || left == 0 || --left != 0)
    return 0;
  errno = atoi(getenv("FAIL_ERRNO"));
  return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *bytes, size_t count) {
  return file > 2 && fails("write") ? -1 : NEXT(write)(file, bytes, count);
}
int fsync(int file) { return fails("fsync") ? -1 : NEXT(fsync)(file); }
int rename(const char *from, const char *to) { return fails("rename") ? -1 : NEXT(rename)(from, to); }
int mkostemp(char *name, int flags) { return fails("mkostemp") ? -1 : NEXT(mkostemp)(name, flags); }
int fchmod(int file, mode_t mode) { return fails("fchmod") ? -1 : NEXT(fchmod)(file, mode); }
int memfd_create(const char *name, unsigned flags) {
  return fails("memfd_create") ? -1 : NEXT(memfd_create)(name, flags);
}
int pipe2(int ends[2], int flags) { return fails("pipe2") ? -1 : NEXT(pipe2)(ends, flags); }
pid_t fork(void) { return fails("fork") ? -1 : NEXT(fork)(); }
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) {
  return fails("pthread_create") ? errno : NEXT(pthread_create)(thread, attributes, function, argument);
}

// Not by dlsym, which allocates.
extern void *__libc_malloc(size_t);
static long allocations;
void *malloc(size_t bytes) {
  static long at = -1;
  if (at < 0) {
    const char *call = getenv("FAIL_CALL"), *number = getenv("FAIL_AT");
    at = call && number && strcmp(call, "malloc") == 0 ? atol(number) : 0;
  }
  if (at && __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED) == at) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(bytes);
}
