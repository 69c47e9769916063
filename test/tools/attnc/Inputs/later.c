// A clock that is an hour fast.
#include <stddef.h>
#include <time.h>

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec += 3600;
  if (result != NULL)
    *result = now.tv_sec;
  return now.tv_sec;
}
