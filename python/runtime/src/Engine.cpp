#include "Engine.h"
#include "Interrupt.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

namespace nb = nanobind;
using Clock = std::chrono::steady_clock;

namespace attn::python {

static nb::object intern(const char *text) { return nb::steal(PyUnicode_InternFromString(text)); }

static bool isKept(const attnrt_entry_info &entry, int32_t position, bool input) {
  for (int32_t i = 0; entry.has_state && i < entry.num_states; ++i)
    if ((input ? entry.states[i].input : entry.states[i].output) == position)
      return true;
  return false;
}

static Signature signatureOf(const attnrt_entry_info &entry, bool stepping) {
  Signature result;
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    if (!stepping || !isKept(entry, i, true)) {
      result.inputs.push_back(&entry.inputs[i]);
      result.inputNames.push_back(intern(entry.inputs[i].name));
      result.isOptional.push_back(entry.optional_inputs && entry.optional_inputs[i]);
    }
  for (int32_t i = 0; i < entry.num_outputs; ++i)
    if (!stepping || !isKept(entry, i, false)) {
      result.outputs.push_back(&entry.outputs[i]);
      result.outputNames.push_back(intern(entry.outputs[i].name));
    }
  return result;
}

Engine::Engine(const std::string &path, EngineOptions options, const attnrt_load_options &load) {
  attnrt_status status;
  attnrt_model *loaded = nullptr;
  {
    nb::gil_scoped_release unlocked;
    status = attnrt_model_load(path.c_str(), &load, &loaded);
  }
  if (status)
    raise(status);
  model.reset(loaded, attnrt_model_release);
  status = attnrt_model_get_info(loaded, &description);
  if (status)
    raise(status);
  for (uint32_t i = 0; i < description->num_entries; ++i) {
    const attnrt_entry_info &info = *description->entries[i];
    entries.push_back({&info, signatureOf(info, false), signatureOf(info, true)});
  }
  pool = std::make_unique<SessionPool>(loaded, std::move(options));
}

void Engine::close() {
  pool->close();
  model.reset();
}

std::shared_ptr<attnrt_model> Engine::expectOpen() const {
  if (!model)
    raise(ATTNRT_INVALID_ARGUMENT, kClosed);
  return model;
}

const Entry &Engine::entry(int32_t index) const { return entries.at(size_t(index)); }

//===----------------------------------------------------------------------===//
// What a model says of itself
//===----------------------------------------------------------------------===//

static nb::tuple tensorOf(const attnrt_tensor_info &info, bool isOptional) {
  nb::list dims;
  for (int32_t i = 0; i < info.rank; ++i) {
    if (info.dims[i].size >= 0)
      dims.append(info.dims[i].size);
    else
      dims.append(nb::str(info.dims[i].name));
  }
  return nb::make_tuple(info.name, info.dtype_name, nb::tuple(dims), isOptional);
}

static nb::tuple tensorsOf(const attnrt_tensor_info *infos, int32_t count, const uint8_t *areOptional) {
  nb::list list;
  for (int32_t i = 0; i < count; ++i)
    list.append(tensorOf(infos[i], areOptional && areOptional[i]));
  return nb::tuple(list);
}

nb::dict Engine::info() const {
  nb::list entryList, weightList;
  for (const Entry &entry : entries) {
    nb::list states;
    for (int32_t i = 0; entry.info->has_state && i < entry.info->num_states; ++i) {
      const attnrt_state_info &state = entry.info->states[i];
      states.append(nb::make_tuple(entry.info->inputs[state.input].name, entry.info->outputs[state.output].name));
    }
    const attnrt_entry_info &info = *entry.info;
    entryList.append(nb::make_tuple(info.name, tensorsOf(info.inputs, info.num_inputs, info.optional_inputs),
                                    tensorsOf(info.outputs, info.num_outputs, nullptr), nb::tuple(states)));
  }
  for (uint32_t i = 0; i < description->num_weights; ++i) {
    const attnrt_weight_info &weight = description->weights[i];
    nb::list shape;
    for (int32_t d = 0; d < weight.rank; ++d)
      shape.append(weight.shape[d]);
    weightList.append(nb::make_tuple(weight.name, attnrt_dtype_name(weight.dtype), nb::tuple(shape), weight.layout));
  }
  nb::dict result;
  result["entries"] = nb::tuple(entryList);
  result["weights"] = nb::tuple(weightList);
  result["target"] = description->target;
  result["required_cpu_features"] = description->required_cpu_features;
  result["compiler_version"] = description->compiler_version;
  result["manifest"] = nb::bytes(description->manifest_json, std::strlen(description->manifest_json));
  result["file_size"] = description->file_size;
  result["weights_size"] = description->weights_size;
  result["digest"] = nb::bytes(reinterpret_cast<const char *>(description->digest), sizeof description->digest);
  return result;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

static std::string listOf(const std::vector<const attnrt_tensor_info *> &infos) {
  std::string text;
  for (const attnrt_tensor_info *info : infos)
    text += (text.empty() ? "" : ", ") + std::string(info->name) + ": " + describe(*info);
  return text;
}

/// The caller's arrays in the order of the entry's inputs, borrowed; null for one that is left out.
static std::vector<PyObject *> arrange(const Entry &entry, const Signature &signature, PyObject *positional,
                                       PyObject *named) {
  size_t count = signature.inputs.size();
  auto given = positional ? size_t(PyTuple_Size(positional)) : 0;
  Py_ssize_t used = 0;
  std::string quoted = std::string("entry '") + entry.info->name + "'";
  if (given > count)
    raise(ATTNRT_INVALID_ARGUMENT, quoted + " takes " + std::to_string(count) + " inputs, not " +
                                       std::to_string(given) + ": " + listOf(signature.inputs));
  std::vector<PyObject *> arrays(count);
  for (size_t i = 0; i < count; ++i) {
    PyObject *value = named ? PyDict_GetItemWithError(named, signature.inputNames[i].ptr()) : nullptr;
    if (!value && PyErr_Occurred())
      throw nb::python_error();
    used += value != nullptr;
    if (value && i < given)
      raise(ATTNRT_INVALID_ARGUMENT,
            std::string("input '") + signature.inputs[i]->name + "' is given by its place and by its name");
    arrays[i] = value ? value : i < given ? PyTuple_GetItem(positional, Py_ssize_t(i)) : nullptr;
  }
  if (named && used != PyDict_Size(named))
    for (auto [key, value] : nb::borrow<nb::dict>(named)) {
      bool known = false;
      for (const nb::object &name : signature.inputNames)
        known |= name.equal(key);
      if (!known)
        raise(ATTNRT_INVALID_ARGUMENT,
              quoted + " has no input '" + textOf(key) + "'; its inputs are " + listOf(signature.inputs));
    }
  for (size_t i = 0; i < count; ++i)
    if (!arrays[i] && !signature.isOptional[i])
      raise(ATTNRT_INVALID_ARGUMENT, std::string("input '") + signature.inputs[i]->name + "' (" +
                                         describe(*signature.inputs[i]) + ") is missing");
  return arrays;
}

/// Where the caller wants outputs: of `buffers`, a dict, by name.
static std::vector<Borrowed> borrowBuffers(const Signature &signature, PyObject *buffers,
                                           std::vector<attnrt_output> &outputs) {
  std::vector<Borrowed> borrowed;
  if (!buffers)
    return borrowed;
  std::vector<size_t> places;
  borrowed.reserve(size_t(PyDict_Size(buffers)));
  for (auto [key, value] : nb::borrow<nb::dict>(buffers)) {
    size_t place = 0;
    while (place < signature.outputs.size() && !signature.outputNames[place].equal(key))
      ++place;
    std::string what = std::string("output '") + textOf(key) + "'";
    if (place == signature.outputs.size())
      raise(ATTNRT_INVALID_ARGUMENT, "there is no " + what + "; the outputs are " + listOf(signature.outputs));
    borrowed.emplace_back(value.ptr(), *signature.outputs[place], what.c_str(), /*writable=*/true);
    if (borrowed.back().tensor.strides)
      raise(ATTNRT_INVALID_ARGUMENT, "the array for " + what + " has strides; give a contiguous one");
    outputs[place].buffer = &borrowed.back().tensor;
  }
  return borrowed;
}

/// Has the run tell `profiled` of its regions and of what its threads do.
static void watch(ProfiledRun &profiled, int32_t threads, attnrt_run_options &options) {
  profiled.pieces.resize(size_t(threads));
  profiled.begin = Clock::now().time_since_epoch().count();
  options.on_mark = [](void *context, int32_t region, int64_t flops, int64_t bytes) {
    auto &run = *static_cast<ProfiledRun *>(context);
    int64_t begin = run.marks.empty() ? run.begin : run.marks.back()[2];
    run.marks.push_back({region, begin, Clock::now().time_since_epoch().count(), flops, bytes});
  };
  options.on_piece = [](void *context, int32_t thread, int64_t begin, int64_t end) {
    static_cast<ProfiledRun *>(context)->pieces[size_t(thread)].push_back({begin, end});
  };
  options.mark_context = options.piece_context = &profiled;
}

namespace {
/// Hands tokens to a function of the caller's. True, or an exception of it, ends the run.
class TokenListener {
public:
  explicit TokenListener(PyObject *function) : function(function) {}

  void listenTo(attnrt_run_options &options) {
    if (!function)
      return;
    options.on_token = [](void *context, int64_t row, int64_t step, int64_t token) -> int32_t {
      return static_cast<TokenListener *>(context)->tell(row, step, token);
    };
    options.token_context = this;
  }
  bool hasEnded() const { return ended; }
  /// A run that is made anew says what it said before.
  void repeat() { skipped = std::max(skipped, std::exchange(told, 0)); }
  void rethrow() {
    if (failure)
      throw nb::python_error(std::move(*failure));
  }

private:
  int32_t tell(int64_t row, int64_t step, int64_t token) noexcept {
    if (told++ < skipped)
      return 0;
    nb::gil_scoped_acquire locked;
    try {
      nb::object answer = nb::borrow(function)(row, step, token);
      int isTrue = PyObject_IsTrue(answer.ptr());
      if (isTrue < 0)
        throw nb::python_error();
      ended = isTrue;
    } catch (nb::python_error &error) {
      failure.emplace(std::move(error));
      ended = true;
    }
    return ended;
  }

  PyObject *function; // null: there is none
  int64_t told = 0, skipped = 0;
  bool ended = false;
  std::optional<nb::python_error> failure;
};
} // namespace

/// A run that a Ctrl-C ended is made anew if Python's handler of it returns.
static attnrt_status runInterruptibly(Session &session, attnrt_run_options &options, TokenListener &listener,
                                      const DLTensor *const *inputs, int32_t numInputs,
                                      std::vector<attnrt_output> &outputs) {
  bool ownCancel = !options.cancel && isMainThread();
  while (true) {
    if (ownCancel) {
      attnrt_cancel_reset(session.cancel->handle);
      options.cancel = session.cancel->handle;
    }
    attnrt_status status;
    {
      nb::gil_scoped_release unlocked;
      InterruptScope scope(ownCancel ? options.cancel : nullptr);
      status = attnrt_session_run(session.handle, &options, inputs, numInputs, outputs.data(), int32_t(outputs.size()));
    }
    if (status != ATTNRT_CANCELLED || !ownCancel || listener.hasEnded())
      return status;
    if (PyErr_CheckSignals() != 0)
      throw nb::python_error();
    listener.repeat();
  }
}

nb::object Engine::call(int32_t index, PyObject *positional, PyObject *named, const CallOptions &options) {
  auto open = expectOpen();
  const Entry &target = entry(index);
  if (options.state && options.state->entry != index)
    raise(ATTNRT_INVALID_ARGUMENT, "the state belongs to entry '" +
                                       std::string(entry(options.state->entry).info->name) + "', not '" +
                                       target.info->name + "'");
  const Signature &signature = options.state ? target.stepping : target.whole;
  std::vector<PyObject *> arrays = arrange(target, signature, positional, named);
  std::vector<Borrowed> inputs;
  inputs.reserve(arrays.size());
  std::vector<const DLTensor *> tensors;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i]) {
      tensors.push_back(nullptr);
      continue;
    }
    std::string what = std::string("input '") + signature.inputs[i]->name + "'";
    inputs.emplace_back(arrays[i], *signature.inputs[i], what.c_str(), /*writable=*/false);
    tensors.push_back(&inputs.back().tensor);
  }
  std::vector<attnrt_output> outputs(signature.outputs.size());
  std::vector<Borrowed> buffers = borrowBuffers(signature, options.buffers, outputs);

  attnrt_run_options native = ATTNRT_RUN_OPTIONS_INIT;
  native.entry = target.info->name;
  native.cancel = options.cancel ? options.cancel->handle : nullptr;
  native.state = options.state ? options.state->handle : nullptr;
  if (!inputs.empty() && inputs.front().tensor.device.device_type == kDLCUDA)
    native.output_device = kDLCUDA;
  int64_t deadline = options.timeout ? Clock::now().time_since_epoch().count() + options.timeout : 0;

  std::unique_ptr<Session> session = pool->take(deadline);
  // What waiting took counts.
  if (deadline)
    native.timeout_ns = std::max<int64_t>(deadline - Clock::now().time_since_epoch().count(), 1);
  if (options.profiled)
    watch(*options.profiled, attnrt_session_num_threads(session->handle), native);
  TokenListener listener(options.onToken);
  listener.listenTo(native);
  attnrt_status status;
  try {
    status = runInterruptibly(*session, native, listener, tensors.data(), int32_t(tensors.size()), outputs);
  } catch (...) {
    pool->giveBack(std::move(session));
    throw;
  }
  pool->giveBack(std::move(session));
  listener.rethrow();
  if (status)
    raise(status);

  auto first = std::find_if(arrays.begin(), arrays.end(), [](PyObject *array) { return array && !isNumber(array); });
  Kind kind(first == arrays.end() ? nullptr : *first);
  auto result = [&](size_t i) {
    return outputs[i].tensor ? kind.wrap(outputs[i].tensor)
                             : nb::borrow(PyDict_GetItem(options.buffers, signature.outputNames[i].ptr()));
  };
  if (outputs.size() == 1 && !options.asDict)
    return result(0);
  nb::dict all;
  for (size_t i = 0; i < outputs.size(); ++i)
    all[signature.outputNames[i]] = result(i);
  return all;
}

nb::object Engine::profile(int32_t index, const nb::dict &named) {
  ProfiledRun run;
  CallOptions options;
  options.profiled = &run;
  auto start = Clock::now();
  call(index, nullptr, named.ptr(), options);
  int64_t total = (Clock::now() - start).count();
  nb::list marks, threads;
  for (const auto &[region, begin, end, flops, bytes] : run.marks)
    marks.append(nb::make_tuple(region, begin, end, flops, bytes));
  for (const auto &thread : run.pieces) {
    nb::list pieces;
    for (auto [begin, end] : thread)
      pieces.append(nb::make_tuple(begin, end));
    threads.append(pieces);
  }
  return nb::make_tuple(total, run.begin, marks, threads);
}

State *Engine::makeState(nb::object self, int32_t index) {
  auto open = expectOpen();
  attnrt_state *handle = nullptr;
  std::unique_ptr<Session> session = pool->take(0);
  attnrt_status status = attnrt_state_create(session->handle, entry(index).info->name, &handle);
  pool->giveBack(std::move(session));
  if (status)
    raise(status);
  return new State(std::move(self), index, handle);
}

void Engine::setWeight(const std::string &name, const nb::object &value) {
  auto open = expectOpen();
  attnrt_tensor_info any = {name.c_str(), "the weight's dtype", 0, 0, nullptr};
  Borrowed array(value.ptr(), any, ("weight '" + name + "'").c_str(), /*writable=*/false);
  attnrt_status status;
  {
    nb::gil_scoped_release unlocked;
    status = attnrt_model_set_weight(open.get(), name.c_str(), &array.tensor);
  }
  if (status)
    raise(status);
}

State::State(nb::object engine, int32_t entry, attnrt_state *handle)
    : engine(std::move(engine)), entry(entry), handle(handle) {}

PyObject *EntryFunction::call(PyObject *self, PyObject *args, PyObject *kwargs) noexcept {
  try {
    const auto &function = *nb::inst_ptr<EntryFunction>(nb::handle(self));
    return nb::inst_ptr<Engine>(function.engine)->call(function.index, args, kwargs, {}).release().ptr();
  } catch (nb::python_error &error) {
    error.restore();
  } catch (const std::exception &error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  }
  return nullptr;
}

} // namespace attn::python
