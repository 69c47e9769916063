// A loaded model and the sessions that serve its calls.
#ifndef PYTHON_RUNTIME_SRC_ENGINE_H
#define PYTHON_RUNTIME_SRC_ENGINE_H

#include "Arrays.h"

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace attn::python {

/// A flag that stops runs, from any thread.
class Cancel {
public:
  Cancel();
  Cancel(const Cancel &) = delete;
  ~Cancel() { attnrt_cancel_destroy(handle); }

  attnrt_cancel *handle = nullptr;
};

struct Session {
  attnrt_session *handle = nullptr;
  std::unique_ptr<Cancel> cancel; // for Ctrl-C

  ~Session() { attnrt_session_destroy(handle); }
};

struct EngineOptions {
  int32_t threads = 0, sessions = 0;
  std::vector<int32_t> cpus;
  bool ownProducts = false;
  int32_t device = 0; ///< GPU that libraries with GPU code run on
};

constexpr char kClosed[] = "the model is closed; load it again";

/// Sessions are made when they are needed, `most` of them. What is here is guarded by the GIL, so that a fork(),
/// which Python makes with the GIL held, finds it whole.
class SessionPool {
public:
  SessionPool(attnrt_model *model, EngineOptions options);

  /// Waits without the GIL. invalid_argument once closed, deadline_exceeded at `deadline` (steady, 0: never), cancelled
  /// once `cancel` is set.
  std::unique_ptr<Session> take(int64_t deadline);
  void giveBack(std::unique_ptr<Session> session);
  /// Ends the sessions: idle ones now, others when they are given back.
  void close();
  int32_t most() const { return options.sessions; }
  int32_t threads() const { return numThreads; }

private:
  /// In the child of a fork() sessions that ran meanwhile stay busy for ever.
  void noticeFork();

  struct Wait {
    std::mutex mutex;
    std::condition_variable freed;
  };

  attnrt_model *model;
  EngineOptions options;
  std::vector<std::unique_ptr<Session>> idle;
  int32_t made = 0, numThreads = 0; ///< sessions that were made, threads of each
  bool isClosed = false;
  int pid = 0;
  int waiting = 0;
  std::unique_ptr<Wait> wait;
};

class Engine;

/// What an entry keeps from one run to the next.
class State {
public:
  State(nanobind::object engine, int32_t entry, attnrt_state *handle);
  State(const State &) = delete;
  ~State() { attnrt_state_destroy(handle); }

  nanobind::object engine; // keeps the model alive
  int32_t entry;
  attnrt_state *handle;
};

/// An entry as the calls see it: with a state, inputs and outputs that it keeps are left out.
struct Signature {
  std::vector<const attnrt_tensor_info *> inputs, outputs;
  std::vector<nanobind::object> inputNames, outputNames;
  std::vector<bool> isOptional; ///< inputs that a call may leave out
};

struct Entry {
  const attnrt_entry_info *info;
  Signature whole, stepping;
};

/// What a profiled run did, in nanoseconds of CLOCK_MONOTONIC.
struct ProfiledRun {
  int64_t begin = 0;
  std::vector<std::array<int64_t, 5>> marks;                    // region, begin, end, flops, bytes
  std::vector<std::vector<std::pair<int64_t, int64_t>>> pieces; // begin and end, by thread
};

/// What a call asks for besides its inputs.
struct CallOptions {
  int64_t timeout = 0; // ns
  Cancel *cancel = nullptr;
  State *state = nullptr;
  PyObject *buffers = nullptr; // a dict of outputs, or null
  PyObject *onToken = nullptr; // called with each token of a search, or null
  bool asDict = false;
  ProfiledRun *profiled = nullptr;
};

class Engine {
public:
  Engine(const std::string &path, EngineOptions options, const attnrt_load_options &load);
  Engine(const Engine &) = delete;

  nanobind::dict info() const;
  nanobind::object call(int32_t entry, PyObject *positional, PyObject *named, const CallOptions &options);
  nanobind::object profile(int32_t entry, const nanobind::dict &named);
  State *makeState(nanobind::object self, int32_t entry);
  void setWeight(const std::string &name, const nanobind::object &value);
  const Entry &entry(int32_t index) const;
  /// Gives up the model, which calls in progress keep to their end, and states as long as they live. Nothing
  /// may be asked of the model afterwards: that is invalid_argument.
  void close();
  int32_t threads() const { return pool->threads(); }
  int32_t sessions() const { return pool->most(); }

private:
  /// The model, which is there as long as the caller holds this; closing does not wait.
  std::shared_ptr<attnrt_model> expectOpen() const;

  std::shared_ptr<attnrt_model> model; ///< null: closed
  const attnrt_model_info *description = nullptr;
  std::unique_ptr<SessionPool> pool;
  std::vector<Entry> entries;
};

/// Calls an entry as a Python function, which costs less than a method does.
struct EntryFunction {
  nanobind::object engine;
  int32_t index;

  static PyObject *call(PyObject *self, PyObject *args, PyObject *kwargs) noexcept;
};

} // namespace attn::python

#endif // PYTHON_RUNTIME_SRC_ENGINE_H
