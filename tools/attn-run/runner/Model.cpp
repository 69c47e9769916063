#include "tools/attn-run/runner/Model.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace attn::runner {
namespace {

bool check(attnrt_status status, Failure &failure) {
  if (status == ATTNRT_OK)
    return true;
  failure.status = status;
  failure.message = attnrt_last_error();
  return false;
}

} // namespace

Model::~Model() {
  attnrt_state_destroy(state);
  attnrt_session_destroy(session);
  attnrt_model_release(model);
}

bool Model::open(const std::string &path, const std::string &entry, Failure &failure) {
  return check(attnrt_model_load(path.c_str(), nullptr, &model), failure) &&
         check(attnrt_model_get_info(model, &description), failure) &&
         check(attnrt_model_find_entry(model, entry.empty() ? nullptr : entry.c_str(), &chosen), failure);
}

bool Model::load(const std::string &path, const std::string &entry, int32_t threads, Failure &failure) {
  attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
  options.num_threads = threads;
  options.own_products = ownProducts;
  options.device = device;
  if (!open(path, entry, failure))
    return false;
  auto start = std::chrono::steady_clock::now();
  bool made = check(attnrt_session_create(model, &options, &session), failure);
  msOfSession = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (!made && failure.status == ATTNRT_DEVICE) // nothing has run: this machine has not what it needs
    failure.status = ATTNRT_INCOMPATIBLE;
  return made;
}

bool Model::keepState(Failure &failure) { return check(attnrt_state_create(session, chosen->name, &state), failure); }

bool Model::isKeptInput(int32_t input) const {
  for (int32_t i = 0; state && i < chosen->num_states; ++i)
    if (chosen->states[i].input == input)
      return true;
  return false;
}

const attnrt_state_info *Model::keptOutput(int32_t output) const {
  for (int32_t i = 0; state && i < chosen->num_states; ++i)
    if (chosen->states[i].output == output)
      return &chosen->states[i];
  return nullptr;
}

bool Model::fillState(std::vector<Tensor> &inputs, Failure &failure) {
  // Later runs forget what the one before appended.
  if (stateLength >= 0 && attnrt_state_truncate(state, stateLength) == ATTNRT_OK)
    return true;
  for (int32_t i = 0; i < chosen->num_inputs; ++i) {
    if (!isKeptInput(i))
      continue;
    DLTensor view = inputs[static_cast<size_t>(i)].view();
    if (!check(attnrt_state_set(state, chosen->inputs[i].name, &view), failure))
      return false;
  }
  return check(attnrt_state_length(state, &stateLength), failure);
}

bool Model::takeOutput(const DLTensor &made, Tensor &output, Failure &failure) {
  std::vector<int64_t> shape(made.shape, made.shape + made.ndim);
  int32_t dtype = made.dtype.code << 8 | made.dtype.bits;
  if (!Tensor::create(dtype, std::move(shape), output, failure.message))
    return false;
  // Rows that lie apart where a state has room behind them.
  auto element = std::max<size_t>(made.dtype.bits / 8, 1); // an int4 fills a byte
  const char *from = static_cast<const char *>(made.data) + made.byte_offset;
  auto *to = static_cast<char *>(output.data());
  std::vector<int64_t> index(static_cast<size_t>(made.ndim), 0);
  size_t count = output.bytes() / element;
  bool isDense = true;
  int64_t expected = 1;
  for (int32_t dim = made.ndim - 1; dim >= 0; --dim) {
    isDense &= !made.strides || made.shape[dim] == 1 || made.strides[dim] == expected;
    expected *= made.shape[dim];
  }
  if (isDense) {
    std::memcpy(to, from, output.bytes());
    return true;
  }
  for (size_t n = 0; n < count; ++n, to += element) {
    int64_t offset = 0;
    for (int32_t dim = 0; dim < made.ndim; ++dim)
      offset += index[static_cast<size_t>(dim)] * made.strides[dim];
    std::memcpy(to, from + offset * static_cast<int64_t>(element), element);
    for (int32_t dim = made.ndim - 1; dim >= 0 && ++index[static_cast<size_t>(dim)] == made.shape[dim]; --dim)
      index[static_cast<size_t>(dim)] = 0;
  }
  return true;
}

bool Model::run(std::vector<Tensor> &inputs, std::vector<Tensor> &outputs, Failure &failure) {
  if (state && !fillState(inputs, failure))
    return false;
  std::vector<DLTensor> views, buffers;
  std::vector<const DLTensor *> pointers;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!isKeptInput(static_cast<int32_t>(i)))
      views.push_back(inputs[i].view());
  for (const DLTensor &view : views)
    pointers.push_back(&view);

  bool first = outputs.empty();
  std::vector<size_t> given; // outputs that the state does not keep
  for (int32_t i = 0; i < chosen->num_outputs; ++i)
    if (!keptOutput(i))
      given.push_back(static_cast<size_t>(i));
  std::vector<attnrt_output> results(given.size(), attnrt_output{});
  if (!first) {
    for (size_t output : given)
      buffers.push_back(outputs[output].view());
    for (size_t i = 0; i < given.size(); ++i)
      results[i].buffer = &buffers[i];
  }
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = chosen->name;
  options.on_mark = markFn;
  options.mark_context = markContext;
  options.on_piece = pieceFn;
  options.piece_context = pieceContext;
  options.on_kernel = kernelFn;
  options.kernel_context = kernelContext;
  options.state = state;
  options.stream = runStream;
  if (tokenFn) {
    options.on_token = [](void *context, int64_t row, int64_t step, int64_t token) {
      return int32_t(!static_cast<Model *>(context)->tokenFn(row, step, token));
    };
    options.token_context = this;
  }
  if (!check(attnrt_session_run(session, &options, pointers.data(), static_cast<int32_t>(pointers.size()),
                                results.data(), static_cast<int32_t>(given.size())),
             failure))
    return false;
  if (!first)
    return true;

  outputs.resize(static_cast<size_t>(chosen->num_outputs));
  bool whole = true;
  for (size_t i = 0; i < given.size(); ++i) {
    whole = whole && takeOutput(results[i].tensor->dl_tensor, outputs[given[i]], failure);
    results[i].tensor->deleter(results[i].tensor);
  }
  for (int32_t i = 0; i < chosen->num_outputs && whole; ++i) {
    const attnrt_state_info *kept = keptOutput(i);
    const DLTensor *value = nullptr;
    if (!kept)
      continue;
    if (!check(attnrt_state_get(state, chosen->inputs[kept->input].name, &value), failure)) {
      outputs.clear();
      return false;
    }
    whole = takeOutput(*value, outputs[static_cast<size_t>(i)], failure);
  }
  if (!whole) {
    outputs.clear();
    failure.status = ATTNRT_OUT_OF_MEMORY;
  }
  return whole;
}

} // namespace attn::runner
