// Prints the read bandwidth of N threads over 512 MiB each, GB/s, the best of eight passes.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kPasses = 8, kLanes = 16 };
static const size_t kBytes = (size_t)512 << 20;
static pthread_barrier_t barrier;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef uint64_t Lanes __attribute__((vector_size(kLanes * sizeof(uint64_t))));

static void *work(void *result) {
  Lanes *data = aligned_alloc(sizeof(Lanes), kBytes);
  if (!data)
    return NULL;
  memset(data, 1, kBytes);
  Lanes sum = {0};
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    pthread_barrier_wait(&barrier);
    double start = now();
    for (size_t i = 0; i < kBytes / sizeof(Lanes); ++i)
      sum ^= data[i];
    pthread_barrier_wait(&barrier); // the slowest thread's end counts
    double speed = (double)kBytes / (now() - start) / 1e9;
    best = speed > best ? speed : best;
  }
  *(double *)result = best + (sum[0] == 42 ? 1e-9 : 0);
  free(data);
  return NULL;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 2;
  if (threads < 1 || threads > 64)
    return 1;
  pthread_t handles[64];
  double speeds[64], sum = 0;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (int i = 0; i < threads; ++i)
    pthread_create(&handles[i], NULL, work, &speeds[i]);
  for (int i = 0; i < threads; ++i) {
    pthread_join(handles[i], NULL);
    sum += speeds[i];
  }
  printf("%.2f\n", sum);
  return 0;
}
