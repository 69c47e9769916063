#include "Threads.h"

#include "CpuQuota.h"
#include "Error.h"
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace attn::rt;

int32_t attn::rt::availableCpus() {
  cpu_set_t cpus;
  // Fails on machines beyond 1024 CPUs; nobody wants that many threads by default.
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
    return 1;
  int count = CPU_COUNT(&cpus);
  return count > 0 ? count : 1;
}

int32_t attn::rt::countCpus() { return int32_t(std::clamp<long>(sysconf(_SC_NPROCESSORS_CONF), 1, CPU_SETSIZE)); }

int32_t attn::rt::chooseThreads(const char *wished, int32_t cpus, int32_t quota) {
  char *end = nullptr;
  long number = wished ? strtol(wished, &end, 10) : 0;
  end += end ? strspn(end, " \t") : 0;
  if (number > 0 && (*end == 0 || *end == ','))
    return int32_t(std::min<long>(number, kMaxThreads));
  return quota ? std::min(cpus, quota) : cpus;
}

int32_t attnrt_available_cpus(void) { return chooseThreads(nullptr, availableCpus(), quotaCpus("")); }

int32_t attn::rt::defaultThreads() { return chooseThreads(getenv("OMP_NUM_THREADS"), availableCpus(), quotaCpus("")); }

bool attn::rt::startThread(pthread_t &thread, void *(*function)(void *), void *argument, size_t stackSize) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0)
    return false;
  pthread_attr_setstacksize(&attributes, stackSize);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread, &attributes, function, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error == 0;
}

void attn::rt::pinThread(pthread_t thread, int32_t cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (cpu >= 0 && cpu < CPU_SETSIZE) {
    CPU_SET(cpu, &cpus);
    pthread_setaffinity_np(thread, sizeof(cpus), &cpus);
  }
}

size_t attn::rt::stackLeft() {
  // For the main thread the system reads /proc/self/maps: once a thread.
  static thread_local uintptr_t begin = 0, end = 0;
  uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (!end) {
    end = 1;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      void *address = nullptr;
      size_t size = 0;
      if (pthread_attr_getstack(&attributes, &address, &size) == 0) {
        begin = reinterpret_cast<uintptr_t>(address);
        end = begin + size;
      }
      pthread_attr_destroy(&attributes);
    }
  }
  return here >= begin && here < end ? here - begin : SIZE_MAX;
}

// Beside an entry's code: the runtime's frames in front of it and behind, libm's, and a signal's (11 KiB with AMX).
static constexpr size_t kOwnStack = 16u << 10;

attnrt_status attn::rt::checkStack(const char *name, uint64_t needed) {
  size_t left = needed ? stackLeft() : SIZE_MAX;
  if (left == SIZE_MAX || (left >= kOwnStack && left - kOwnStack >= needed))
    return ATTNRT_OK;
  return fail(ATTNRT_OUT_OF_MEMORY,
              "entry '%s' takes up to %llu bytes of stack, beside %llu of the runtime, and the calling thread has %llu "
              "left: run it on a thread with a larger stack",
              name, (unsigned long long)needed, (unsigned long long)kOwnStack, (unsigned long long)left);
}

#if defined(__x86_64__)
static uint64_t readControl() { return _mm_getcsr(); }
static void writeControl(uint64_t value) { _mm_setcsr(unsigned(value)); }
static constexpr uint64_t kDefaultControl = 0x1f80; // all exceptions masked, nearest, no FTZ, no DAZ
#elif defined(__aarch64__)
static uint64_t readControl() {
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
static void writeControl(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
static constexpr uint64_t kDefaultControl = 0;
#else
static uint64_t readControl() { return 0; }
static void writeControl(uint64_t) {}
static constexpr uint64_t kDefaultControl = 0;
#endif

DefaultFloatingPoint::DefaultFloatingPoint() : saved(readControl()) {
  if (saved != kDefaultControl)
    writeControl(kDefaultControl);
}

DefaultFloatingPoint::~DefaultFloatingPoint() {
  // Sticky exception flags of the run are dropped with it.
  writeControl(saved);
}
