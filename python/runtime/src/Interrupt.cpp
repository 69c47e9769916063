#include "Interrupt.h"

#include <atomic>
#include <sys/syscall.h>
#include <unistd.h>

namespace attn::python {

static std::atomic<attnrt_cancel *> running{nullptr};
static struct sigaction before;

static void onInterrupt(int signal, siginfo_t *info, void *context) {
  attnrt_cancel_request(running.load());
  if (before.sa_flags & SA_SIGINFO)
    before.sa_sigaction(signal, info, context);
  else
    before.sa_handler(signal);
}

bool isMainThread() { return syscall(SYS_gettid) == getpid(); }

InterruptScope::InterruptScope(attnrt_cancel *cancel) {
  // Within a run that calls the caller's function.
  if (cancel && (outer = running.load())) {
    running.store(cancel);
    return;
  }
  // Where nobody handles it, the process ends by it or does not see it.
  if (!cancel || sigaction(SIGINT, nullptr, &before) != 0 ||
      (!(before.sa_flags & SA_SIGINFO) && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)))
    return;
  running.store(cancel);
  struct sigaction ours = before;
  ours.sa_flags |= SA_SIGINFO;
  ours.sa_sigaction = onInterrupt;
  installed = sigaction(SIGINT, &ours, nullptr) == 0;
}

InterruptScope::~InterruptScope() {
  if (installed)
    sigaction(SIGINT, &before, nullptr);
  if (installed || outer)
    running.store(outer);
}

} // namespace attn::python
