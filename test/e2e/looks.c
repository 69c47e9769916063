// Preloaded by deadlines.py: measures how long a thread computes between two looks whether its run is to end. At each of
// them the runtime reads this clock.
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Thread_local int watches;
static _Thread_local int64_t begin, last, longest;

static int64_t computed(void) {
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void look(void) {
  int64_t now = computed();
  if (now - last > longest)
    longest = now - last;
  last = now;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (watches && clock == CLOCK_MONOTONIC)
    look();
  return (int)syscall(SYS_clock_gettime, clock, time);
}

void watch_looks(void) {
  begin = last = computed();
  longest = 0;
  watches = 1;
}

// Nanoseconds that the thread computed since watch_looks, and the most between two looks.
void count_looks(int64_t result[2]) {
  look();
  watches = 0;
  result[0] = last - begin;
  result[1] = longest;
}
