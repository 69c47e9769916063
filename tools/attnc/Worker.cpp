#include "tools/attnc/Worker.h"

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;

namespace attn::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A message is a kind, a length and that many bytes.
constexpr size_t kHeader = 1 + sizeof(uint32_t);
constexpr int kStoppedSignals[] = {SIGINT, SIGTERM, SIGHUP};

// The handlers below have no argument to carry the channel, and may not allocate.
int workerFd = -1;

// In one write, which is whole up to PIPE_BUF bytes: a thread that runs out of
// memory must not cut into another's message.
void sendRaw(char kind, const char *text, size_t size) {
  char header[kHeader] = {kind};
  uint32_t length = size;
  std::memcpy(header + 1, &length, sizeof length);
  iovec parts[2] = {{header, sizeof header}, {const_cast<char *>(text), size}};
  iovec *part = parts;
  while (part != parts + 2) {
    ssize_t n = writev(workerFd, part, parts + 2 - part);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return; // the driver is gone, and so will we be
    for (; part != parts + 2 && static_cast<size_t>(n) >= part->iov_len; ++part)
      n -= part->iov_len;
    if (part != parts + 2) {
      part->iov_base = static_cast<char *>(part->iov_base) + n;
      part->iov_len -= n;
    }
  }
}

[[noreturn]] void onOutOfMemory() {
  sendRaw('M', "", 0);
  _exit(1);
}

void onBadAlloc(void *, const char *, bool) { onOutOfMemory(); }

/// A fault so close to the limit is what library code that does not check an
/// allocation makes of a failed one.
constexpr size_t kNearLimit = size_t(64) << 20; // what malloc reserves for a thread

bool isNearLimit() {
  void *room = mmap(nullptr, kNearLimit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    return true;
  munmap(room, kNearLimit);
  return false;
}

void onFault(int signal) {
  if (isNearLimit())
    onOutOfMemory();
  raise(signal); // as if never caught: SA_RESETHAND, SA_NODEFER
}

void watchFaults() {
  static char stack[64 << 10]; // the fault may be a stack that cannot grow
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = onFault;
  action.sa_flags = SA_ONSTACK | SA_RESETHAND | SA_NODEFER;
  for (int signal : {SIGSEGV, SIGBUS, SIGABRT})
    sigaction(signal, &action, nullptr);
}

void onFatalError(void *, const char *reason, bool) {
  sendRaw('F', reason, std::strlen(reason));
  // By signal, so that a pass manager that watches for crashes still writes its reproducer.
  std::abort();
}

[[noreturn]] void work(int fd, pid_t driver, const WorkerLimits &limits, const sigset_t &mask,
                       function_ref<int(WorkerChannel &)> body) {
  workerFd = fd;
  // The driver decides what a Ctrl-C on the terminal means, and takes us along when it dies.
  std::signal(SIGINT, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != driver)
    _exit(1);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
#if !__has_feature(address_sanitizer)
  if (limits.memoryBytes) {
    rlimit limit = {limits.memoryBytes, limits.memoryBytes};
    setrlimit(RLIMIT_AS, &limit);
    watchFaults();
  }
#endif
  std::set_new_handler(onOutOfMemory);
  install_bad_alloc_error_handler(onBadAlloc);
  install_fatal_error_handler(onFatalError);

  handOnReports([](Severity severity, StringRef text) {
    std::string message = std::to_string(static_cast<int>(severity)) + text.str();
    sendRaw('P', message.data(), message.size());
  });

  WorkerChannel channel;
  int code = finishOutput(body(channel));
  errs().flush();
  // Destructors of a compiler's globals are time spent for nothing.
  _exit(code);
}

/// Takes whole messages from the front of `buffer`.
void takeMessages(std::string &buffer, WorkerResult &result, bool &outOfMemory, function_ref<void(StringRef)> onStage) {
  size_t at = 0;
  while (buffer.size() - at >= kHeader) {
    uint32_t length;
    std::memcpy(&length, buffer.data() + at + 1, sizeof length);
    if (buffer.size() - at - kHeader < length)
      break;
    std::string text = buffer.substr(at + kHeader, length);
    switch (buffer[at]) {
    case 'S':
      onStage(text);
      result.stage = std::move(text);
      break;
    case 'R':
      result.report = std::move(text);
      break;
    case 'F':
      result.fatal = std::move(text);
      break;
    case 'P':
      result.said.push_back({static_cast<Severity>(text[0] - '0'), text.substr(1)});
      noteReport(result.said.back().first, result.said.back().second);
      break;
    case 'M':
      outOfMemory = true;
      break;
    }
    at += kHeader + length;
  }
  buffer.erase(0, at);
}

/// What the driver keeps of a worker that it has started.
struct Running {
  pid_t worker = -1;
  int messages = -1, signals = -1;
  sigset_t before; ///< signals that were blocked before

  void close() const {
    ::close(messages);
    if (signals >= 0)
      ::close(signals);
  }
};

/// Forks; false, with errno in `code`, where that is not possible.
bool start(Running &running, const WorkerLimits &limits, function_ref<int(WorkerChannel &)> body, int &code) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    code = errno;
    return false;
  }
  sigset_t stopped;
  sigemptyset(&stopped);
  for (int signal : kStoppedSignals)
    sigaddset(&stopped, signal);
  sigprocmask(SIG_BLOCK, &stopped, &running.before);
  running.messages = fds[0];
  running.signals = signalfd(-1, &stopped, SFD_CLOEXEC | SFD_NONBLOCK);

  outs().flush();
  errs().flush();
  pid_t driver = getpid();
  running.worker = fork();
  if (running.worker == 0) {
    running.close();
    work(fds[1], driver, limits, running.before, body);
  }
  int forkError = errno;
  close(fds[1]);
  if (running.worker >= 0)
    return true;
  code = forkError;
  running.close();
  sigprocmask(SIG_SETMASK, &running.before, nullptr);
  return false;
}

/// Milliseconds until `deadline` for poll, at most an hour; 0 or less once it has passed.
int millisecondsUntil(Clock::time_point deadline) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left <= 0 ? 0 : static_cast<int>(std::min<long long>(left + 1, 3600 * 1000));
}

/// Reads messages until the worker closes its end. False if it must be stopped: `result.end` says why.
bool listen(const Running &running, const WorkerLimits &limits, WorkerResult &result, bool &outOfMemory,
            function_ref<void(StringRef)> onStage) {
  Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                  std::chrono::duration<double>(std::min(limits.seconds, 1e9)));
  std::string buffer;
  while (true) {
    int wait = limits.seconds > 0 ? millisecondsUntil(deadline) : -1;
    if (wait == 0) {
      result.end = WorkerResult::End::TimedOut;
      return false;
    }
    pollfd polled[2] = {{running.messages, POLLIN, 0}, {running.signals, POLLIN, 0}};
    if (poll(polled, 2, wait) <= 0)
      continue; // the deadline or EINTR
    if (polled[1].revents & POLLIN) {
      signalfd_siginfo info;
      if (read(running.signals, &info, sizeof info) == sizeof info) {
        result.end = WorkerResult::End::Interrupted;
        result.code = info.ssi_signo;
        return false;
      }
    }
    if (!polled[0].revents)
      continue;
    char chunk[16384];
    ssize_t n = read(running.messages, chunk, sizeof chunk);
    if (n > 0) {
      buffer.append(chunk, n);
      takeMessages(buffer, result, outOfMemory, onStage);
    } else if (n == 0 || errno != EINTR) {
      return true;
    }
  }
}

} // namespace

void WorkerChannel::send(char kind, StringRef text) { sendRaw(kind, text.data(), text.size()); }

void WorkerChannel::endIfNearMemoryLimit() {
  if (isNearLimit())
    onOutOfMemory();
}

WorkerResult runWorker(const WorkerLimits &limits, function_ref<int(WorkerChannel &)> body,
                       function_ref<void(StringRef)> onStage) {
  WorkerResult result;
  Running running;
  if (!start(running, limits, body, result.code))
    return result;
  bool outOfMemory = false, ended = listen(running, limits, result, outOfMemory, onStage);
  if (!ended)
    kill(running.worker, SIGKILL);
  int status = 0;
  while (waitpid(running.worker, &status, 0) < 0 && errno == EINTR) {
  }
  running.close();
  // After an interrupt the signals stay blocked: the caller has to clean up.
  if (result.end == WorkerResult::End::Interrupted)
    return result;
  sigprocmask(SIG_SETMASK, &running.before, nullptr);
  if (!ended)
    return result;
  if (outOfMemory) {
    result.end = WorkerResult::End::OutOfMemory;
  } else if (WIFSIGNALED(status)) {
    result.end = WorkerResult::End::Died;
    result.code = WTERMSIG(status);
  } else {
    result.end = WorkerResult::End::Exited;
    result.code = WEXITSTATUS(status);
  }
  return result;
}

} // namespace attn::tools
