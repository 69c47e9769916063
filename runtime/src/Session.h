#ifndef RUNTIME_SRC_SESSION_H
#define RUNTIME_SRC_SESSION_H

#include "Gpu.h"
#include "Memory.h"
#include "Model.h"
#include "Pool.h"
#include "State.h"
#include "Tensor.h"
#include <atomic>

struct attnrt_cancel {
  std::atomic<int32_t> requested{0};
};

namespace attn::rt {

/// What a session keeps for one output of its current run.
struct OutputSlot {
  attnrt_output *given;
  TensorView view;         ///< of the caller's buffer
  DLManagedTensor *tensor; ///< allocated for this run, not yet handed over
  bool produced;
  uint64_t bytes;
  int64_t shape[kMaxRank];
  GrowingBuffer *staging; ///< where the entry writes if the caller's memory is not aligned
  bool staged;
  KeptInput *kept; ///< the state that the output is for; nobody gave a place for it then
};

/// Workspace of one request; kept for the next run's request of that number.
struct WorkspacePiece {
  GrowingBuffer buffer;
  WorkspacePiece *next = nullptr;
};

/// One run in flight. `abi` is what compiled code sees and hands back.
struct Run {
  attnrt_run abi;
  attnrt_device device; ///< what `abi.device` points to in a run on a GPU
  attnrt_session *session;
  const EntryPlan *plan;
  attnrt_state *state; ///< null: none
  StopCondition stop;
  attnrt_status status;       ///< why the run fails, set by a callback
  WorkspacePiece **nextPiece; ///< where the next workspace piece hangs
  GpuPiece **nextGpuPiece;    ///< the same on a GPU
  void *stream;               ///< of a run on a GPU
  int32_t lastKernel;         ///< launched, -1: none
  int32_t outputDevice;       ///< DLDeviceType
  bool hasPool;               ///< a run on a GPU has woken the threads
  const attnrt_run_options *options;
};

/// The slot of an output that an entry asks for, its shape and bytes filled in;
/// null: `run.status` is set.
OutputSlot *declareOutput(Run &run, int32_t index, int32_t rank, const int64_t *shape);
/// Whether the caller's buffer, if there is one, can hold the output.
bool acceptsBuffer(Run &run, const OutputSlot &slot, const attnrt_tensor_info &declared);
/// attnrt_run.workspace on the CPU.
void *provideWorkspace(attnrt_run *abi, uint64_t bytes);
/// attnrt_run.mark and attnrt_run.token.
void reportMark(attnrt_run *abi, int32_t region, int64_t flops, int64_t bytes);
int32_t reportToken(attnrt_run *abi, int64_t row, int64_t step, int64_t token);
/// Fails with `status` and a message of `entry`, and with `values` where it has places for them.
attnrt_status failWith(attnrt_status status, const attnrt_entry &entry, int32_t message, int32_t numValues,
                       const int64_t *values);
/// attnrt_run.fail.
void reportFailure(attnrt_run *abi, int32_t message, int32_t numValues, const int64_t *values);

} // namespace attn::rt

struct attnrt_session {
  attnrt_model *model;
  std::atomic<int32_t> references{1}; // the caller's, and one while a run is in progress
  std::atomic<int32_t> busy{0};
  attn::rt::Pool pool;
  attn::rt::WorkspacePiece *workspace = nullptr; // a list, in the order of a run's requests
  // As many as the entry with the most inputs or outputs has.
  attn::rt::Array<attnrt_buffer> inputs;
  attn::rt::Array<attn::rt::TensorView> inputViews;
  attn::rt::Array<const DLTensor *> allInputs; // the caller's and those of the state, in the entry's order
  attn::rt::Array<DLTensor> absent;            // of no elements, for inputs that were left out
  attn::rt::GrowingBuffer *inputStaging = nullptr;
  attn::rt::GrowingBuffer *outputStaging = nullptr;
  attn::rt::Array<attn::rt::OutputSlot> outputs;
  attn::rt::GpuSession *gpu = nullptr; // owned, where the model has GPU code

  explicit attnrt_session(attnrt_model *model);
  ~attnrt_session();
  attnrt_session(const attnrt_session &) = delete;

  attnrt_status initialize(const attnrt_session_options &options);
  attnrt_status run(const attnrt_run_options &options, const DLTensor *const *tensors, int32_t numInputs,
                    attnrt_output *results, int32_t numOutputs);

private:
  attnrt_status takeInputs(const attnrt_entry &entry, const attn::rt::EntryPlan &plan, const DLTensor *const *tensors,
                           int32_t count, attnrt_state *state);
  attnrt_status takeOutputs(const attnrt_entry &entry, attnrt_output *results, int32_t count, attnrt_state *state);
  bool stageInputs(attn::rt::Run &run);
  attnrt_status run(attn::rt::Run &run, const attnrt_run_options &options, const DLTensor *const *tensors,
                    int32_t numInputs, attnrt_output *results, int32_t numOutputs);
  attnrt_status call(attn::rt::Run &run);
  void copyStagedOutputs(attn::rt::Run &run);
  attnrt_status handOver(const attnrt_entry &entry);
  // On a GPU, in GpuRun.cpp.
  attnrt_status runOnGpu(attn::rt::Run &run, const attnrt_run_options &options, const DLTensor *const *tensors);
  attnrt_status stageGpuInputs(attn::rt::Run &run, const DLTensor *const *tensors);
  attnrt_status enqueue(attn::rt::Run &run);
  attnrt_status collect(attn::rt::Run &run);
  attnrt_status checkCall(attn::rt::Run &run, int32_t result);
  void dropOutputs(int32_t count);
  void release();
  friend void attnrt_session_destroy(attnrt_session *);
  friend attnrt_status attnrt_session_run(attnrt_session *, const attnrt_run_options *, const DLTensor *const *,
                                          int32_t, attnrt_output *, int32_t);
};

#endif // RUNTIME_SRC_SESSION_H
