#include "Engine.h"
#include "Interrupt.h"

#include <chrono>
#include <unistd.h>

namespace nb = nanobind;
using Clock = std::chrono::steady_clock;

namespace attn::python {

// How long a thread that waits for a session goes without looking for Ctrl-C.
static constexpr auto kLook = std::chrono::milliseconds(50);

Cancel::Cancel() {
  if (attnrt_status status = attnrt_cancel_create(&handle))
    raise(status);
}

SessionPool::SessionPool(attnrt_model *model, EngineOptions given)
    : model(model), options(std::move(given)), pid(getpid()), wait(new Wait) {
  // The first one tells how many threads the runtime gives a session.
  giveBack(take(0));
  numThreads = attnrt_session_num_threads(idle.front()->handle);
  if (!options.sessions)
    options.sessions = std::max(attnrt_available_cpus() / std::max(numThreads, 1), 1);
}

void SessionPool::noticeFork() {
  if (pid == getpid())
    return;
  pid = getpid();
  made = int32_t(idle.size());
  waiting = 0;
  // Another thread may have held the mutex, and does not exist here.
  [[maybe_unused]] Wait *held = wait.release();
  wait.reset(new Wait);
}

std::unique_ptr<Session> SessionPool::take(int64_t deadline) {
  noticeFork();
  bool onMainThread = options.sessions && isMainThread();
  while (idle.empty() && options.sessions && made >= options.sessions) {
    ++waiting;
    {
      nb::gil_scoped_release unlocked;
      std::unique_lock<std::mutex> lock(wait->mutex);
      // A wake-up that comes before is lost, and made up for by the next look.
      wait->freed.wait_for(lock, onMainThread || deadline ? kLook / 10 : kLook);
    }
    --waiting;
    if (isClosed)
      break;
    if (onMainThread && PyErr_CheckSignals() != 0)
      throw nb::python_error();
    if (deadline && Clock::now().time_since_epoch().count() >= deadline && idle.empty())
      raise(ATTNRT_DEADLINE_EXCEEDED, "the deadline passed while all " + std::to_string(options.sessions) +
                                          " sessions were busy; load with sessions= for more");
  }
  if (isClosed)
    raise(ATTNRT_INVALID_ARGUMENT, kClosed);
  if (!idle.empty()) {
    std::unique_ptr<Session> session = std::move(idle.back());
    idle.pop_back();
    return session;
  }
  auto session = std::make_unique<Session>();
  session->cancel = std::make_unique<Cancel>();
  attnrt_session_options native = ATTNRT_SESSION_OPTIONS_INIT;
  native.num_threads = options.threads;
  native.num_cpus = int32_t(options.cpus.size());
  native.cpus = options.cpus.data();
  native.own_products = options.ownProducts;
  native.device = options.device;
  if (attnrt_status status = attnrt_session_create(model, &native, &session->handle))
    raise(status);
  ++made;
  return session;
}

void SessionPool::giveBack(std::unique_ptr<Session> session) {
  if (isClosed)
    return;
  idle.push_back(std::move(session));
  if (waiting)
    wait->freed.notify_one();
}

void SessionPool::close() {
  noticeFork();
  isClosed = true;
  idle.clear();
  wait->freed.notify_all();
}

} // namespace attn::python
