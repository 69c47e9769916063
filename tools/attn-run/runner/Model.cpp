#include "tools/attn-run/runner/Model.h"

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
  attnrt_session_destroy(session);
  attnrt_model_release(model);
}

bool Model::load(const std::string &path, const std::string &entry, int32_t threads, Failure &failure) {
  attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
  options.num_threads = threads;
  return check(attnrt_model_load(path.c_str(), nullptr, &model), failure) &&
         check(attnrt_model_get_info(model, &description), failure) &&
         check(attnrt_model_find_entry(model, entry.empty() ? nullptr : entry.c_str(), &chosen), failure) &&
         check(attnrt_session_create(model, &options, &session), failure);
}

bool Model::run(std::vector<Tensor> &inputs, std::vector<Tensor> &outputs, Failure &failure) {
  std::vector<DLTensor> views, buffers;
  std::vector<const DLTensor *> pointers;
  for (Tensor &input : inputs)
    views.push_back(input.view());
  for (const DLTensor &view : views)
    pointers.push_back(&view);

  bool first = outputs.empty();
  auto count = static_cast<size_t>(chosen->num_outputs);
  std::vector<attnrt_output> results(count, attnrt_output{});
  if (!first) {
    for (Tensor &output : outputs)
      buffers.push_back(output.view());
    for (size_t i = 0; i < count; ++i)
      results[i].buffer = &buffers[i];
  }
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = chosen->name;
  options.on_mark = markFn;
  options.mark_context = markContext;
  if (!check(attnrt_session_run(session, &options, pointers.data(), static_cast<int32_t>(pointers.size()),
                                results.data(), static_cast<int32_t>(count)),
             failure))
    return false;
  if (!first)
    return true;

  outputs.resize(count);
  bool whole = true;
  for (size_t i = 0; i < count; ++i) {
    const DLTensor &made = results[i].tensor->dl_tensor;
    std::vector<int64_t> shape(made.shape, made.shape + made.ndim);
    int32_t dtype = made.dtype.code << 8 | made.dtype.bits;
    if (whole && Tensor::create(dtype, std::move(shape), outputs[i], failure.message))
      std::memcpy(outputs[i].data(), static_cast<const char *>(made.data) + made.byte_offset, outputs[i].bytes());
    else
      whole = false;
    results[i].tensor->deleter(results[i].tensor);
  }
  if (!whole) {
    outputs.clear();
    failure.status = ATTNRT_OUT_OF_MEMORY;
  }
  return whole;
}

} // namespace attn::runner
