// Ctrl-C during a run.
#ifndef PYTHON_RUNTIME_SRC_INTERRUPT_H
#define PYTHON_RUNTIME_SRC_INTERRUPT_H

#include "attnrt/attnrt.h"

#include <csignal>

namespace attn::python {

/// Whether Python runs the handlers of signals on this thread.
bool isMainThread();

/// While it lives, SIGINT stops the runs that use `cancel`, before Python's own handler notes it. On the main thread
/// alone; `cancel` null: nothing is changed. Scopes nest.
class InterruptScope {
public:
  explicit InterruptScope(attnrt_cancel *cancel);
  InterruptScope(const InterruptScope &) = delete;
  ~InterruptScope();

private:
  bool installed = false;
  attnrt_cancel *outer = nullptr; ///< that of the scope around it
};

} // namespace attn::python

#endif // PYTHON_RUNTIME_SRC_INTERRUPT_H
