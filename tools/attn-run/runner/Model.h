// A loaded model library and a session on it, with C++ ownership.
#ifndef TOOLS_ATTN_RUN_RUNNER_MODEL_H
#define TOOLS_ATTN_RUN_RUNNER_MODEL_H

#include "tools/attn-run/runner/Tensor.h"

#include <functional>

namespace attn::runner {

/// What the runtime said about a call that failed.
struct Failure {
  attnrt_status status = ATTNRT_OK;
  std::string message;
};

/// The largest number of a GPU that tools take.
inline constexpr uint64_t kMostDevices = 4095;

class Model {
public:
  Model() = default;
  ~Model();
  Model(const Model &) = delete;

  /// Loads a library to look at its info and its entry called `entry` (as load
  /// does): it need not fit this machine's GPU.
  bool open(const std::string &path, const std::string &entry, Failure &failure);

  /// load() then leaves no product to cuBLASLt.
  void useOwnProducts(bool yes) { ownProducts = yes; }
  /// load() then takes this GPU, of a library with GPU code.
  void useDevice(int32_t number) { device = number; }

  /// Loads a library and prepares to run its entry called `entry` ("": the
  /// first) with `threads` threads (0: all processors).
  bool load(const std::string &path, const std::string &entry, int32_t threads, Failure &failure);
  /// What making the session took of load(); its threads start in the first run.
  double sessionMs() const { return msOfSession; }

  /// Runs have a state from now on: its contents are the inputs that it keeps,
  /// as the first run's `inputs` say; each run begins with them.
  bool keepState(Failure &failure);

  const attnrt_model_info &info() const { return *description; }
  const attnrt_entry_info &entry() const { return *chosen; }
  int32_t threads() const { return attnrt_session_num_threads(session); }

  /// Runs once. Empty `outputs` are made by the run; later runs with the same
  /// ones write into them and allocate nothing.
  bool run(std::vector<Tensor> &inputs, std::vector<Tensor> &outputs, Failure &failure);

  /// Runs go on this CUstream, of a library with GPU code.
  void useStream(void *stream) { runStream = stream; }

  /// Called at the end of each region of a run (attnrt_run_options.on_mark).
  using MarkFn = void (*)(void *context, int32_t region, int64_t flops, int64_t bytes);
  void onMark(MarkFn function, void *context) {
    markFn = function;
    markContext = context;
  }

  /// Called by each thread for its pieces of loops (attnrt_run_options.on_piece).
  using PieceFn = void (*)(void *context, int32_t thread, int64_t begin, int64_t end);
  void onPiece(PieceFn function, void *context) {
    pieceFn = function;
    pieceContext = context;
  }

  /// Called after a run for each kernel and copy that it put on its stream (attnrt_run_options.on_kernel).
  using KernelFn = void (*)(void *context, const char *name, int64_t begin, int64_t end);
  void onKernel(KernelFn function, void *context) {
    kernelFn = function;
    kernelContext = context;
  }

  /// Called for each token of a search (attnrt_run_options.on_token); false: the run is to end.
  using TokenFn = std::function<bool(int64_t row, int64_t step, int64_t token)>;
  void onToken(TokenFn function) { tokenFn = std::move(function); }

private:
  bool isKeptInput(int32_t input) const;
  const attnrt_state_info *keptOutput(int32_t output) const;
  bool fillState(std::vector<Tensor> &inputs, Failure &failure);
  bool takeOutput(const DLTensor &made, Tensor &output, Failure &failure);

  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  attnrt_state *state = nullptr;
  double msOfSession = 0;
  bool ownProducts = false;
  int32_t device = 0;
  int64_t stateLength = -1; ///< rows of the caches before each run; -1: not filled yet
  const attnrt_model_info *description = nullptr;
  const attnrt_entry_info *chosen = nullptr;
  MarkFn markFn = nullptr;
  void *markContext = nullptr;
  PieceFn pieceFn = nullptr;
  void *pieceContext = nullptr;
  KernelFn kernelFn = nullptr;
  void *kernelContext = nullptr;
  TokenFn tokenFn;
  void *runStream = nullptr;
};

} // namespace attn::runner

#endif // TOOLS_ATTN_RUN_RUNNER_MODEL_H
