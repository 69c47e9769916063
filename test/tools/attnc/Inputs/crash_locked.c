// Preloaded into attnc: the first pass that locks a table of the context for writing crashes with it, in the first worker
// that comes there (CRASH_ONCE names the file that says so). Who wants one of those tables afterwards waits for ever.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int crashed;

static void waitIfCrashed(void) {
  while (crashed)
    pause();
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
  waitIfCrashed();
  return ((__typeof__(&pthread_rwlock_rdlock))dlsym(RTLD_NEXT, "pthread_rwlock_rdlock"))(lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *lock) {
  waitIfCrashed();
  int failed = ((__typeof__(&pthread_rwlock_wrlock))dlsym(RTLD_NEXT, "pthread_rwlock_wrlock"))(lock);
  // Passes that are watched for crashes run on a thread of their own.
  if (gettid() != getpid() && open(getenv("CRASH_ONCE"), O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0) {
    crashed = 1;
    raise(SIGSEGV);
  }
  return failed;
}
