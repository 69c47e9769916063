// attnc_runtime._core: libattnrt as Python sees it. What is convenient about it is written in Python.
#include "Engine.h"

#include <cstring>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace attn::python {

/// `call` with all that may be asked for besides inputs.
static nb::object run(Engine &engine, int32_t entry, const nb::dict &inputs, const nb::object &out, int64_t timeout,
                      Cancel *cancel, State *state, const nb::object &onToken, bool asDict) {
  CallOptions options;
  options.timeout = timeout;
  options.cancel = cancel;
  options.state = state;
  options.buffers = out.is_none() ? nullptr : out.ptr();
  options.onToken = onToken.is_none() ? nullptr : onToken.ptr();
  options.asDict = asDict;
  return engine.call(entry, nullptr, inputs.ptr(), options);
}

static void check(attnrt_status status) {
  if (status)
    raise(status);
}

/// `rows` on the CPU, of int64.
static void gatherState(State &state, const nb::object &rows, std::optional<std::string> dim) {
  attnrt_dim count = {-1, "rows"};
  attnrt_tensor_info info = {"rows", "int64", ATTNRT_I64, 1, &count};
  Borrowed array(rows.ptr(), info, "the array of rows", /*writable=*/false);
  const DLTensor &tensor = array.tensor;
  bool isInt64 = tensor.dtype.code == kDLInt && tensor.dtype.bits == 64;
  if (tensor.device.device_type != kDLCPU || !isInt64 || tensor.ndim != 1 || tensor.strides)
    raise(ATTNRT_INVALID_ARGUMENT, "rows are one contiguous dimension of int64 on the CPU");
  const char *data = static_cast<const char *>(tensor.data) + tensor.byte_offset;
  check(attnrt_state_gather(state.handle, dim ? dim->c_str() : nullptr, reinterpret_cast<const int64_t *>(data),
                            tensor.shape[0]));
}

static void setState(State &state, const std::string &input, const nb::object &value) {
  attnrt_tensor_info any = {input.c_str(), "the input's dtype", 0, 0, nullptr};
  Borrowed array(value.ptr(), any, ("input '" + input + "' of the state").c_str(), /*writable=*/false);
  check(attnrt_state_set(state.handle, input.c_str(), &array.tensor));
}

static nb::object getState(State &state, const std::string &input) {
  const DLTensor *value = nullptr;
  check(attnrt_state_get(state.handle, input.c_str(), &value));
  DLManagedTensor *copy = nullptr;
  check(attnrt_tensor_create(value->dtype.code << 8 | value->dtype.bits, value->ndim, value->shape, &copy));
  // Rows of a cache lie apart: it has room for more of them.
  auto size = size_t(value->dtype.bits / 8);
  auto *to = static_cast<char *>(copy->dl_tensor.data);
  const char *from = static_cast<const char *>(value->data) + value->byte_offset;
  std::vector<int64_t> at(size_t(value->ndim));
  int64_t count = 1, inner = value->ndim ? value->shape[value->ndim - 1] : 1;
  for (int i = 0; i < value->ndim; ++i)
    count *= value->shape[i];
  for (int64_t done = 0; done < count; done += inner) {
    int64_t offset = 0;
    for (size_t i = 0; i < at.size(); ++i)
      offset += at[i] * (value->strides ? value->strides[i] : 0);
    bool dense = !value->strides || value->ndim == 0;
    std::memcpy(to + size_t(done) * size, from + size_t(dense ? done : offset) * size, size_t(inner) * size);
    for (int i = value->ndim - 1; i-- > 0;) {
      if (++at[size_t(i)] < value->shape[i])
        break;
      at[size_t(i)] = 0;
    }
  }
  return Kind(nullptr).wrap(copy);
}

NB_MODULE(_core, module) {
  // Arrays that outlive the interpreter's last collection are no fault.
  nb::set_leak_warnings(false);
  module.attr("version") = attnrt_version();
  module.attr("interface") = ATTNC_INTERFACE;
  Tensor::bind(module);

  nb::class_<Cancel>(module, "Cancel").def(nb::init<>()).def("request", [](Cancel &cancel) {
    attnrt_cancel_request(cancel.handle);
  });

  nb::class_<State>(module, "State")
      .def_prop_ro("entry", [](State &state) { return state.entry; })
      .def(
          "clone",
          [](State &state) {
            attnrt_state *copy = nullptr;
            check(attnrt_state_clone(state.handle, &copy));
            return new State(state.engine, state.entry, copy);
          },
          nb::rv_policy::take_ownership)
      .def("reset", [](State &state) { check(attnrt_state_reset(state.handle)); })
      .def("length",
           [](State &state) {
             int64_t length = 0;
             check(attnrt_state_length(state.handle, &length));
             return length;
           })
      .def("truncate", [](State &state, int64_t length) { check(attnrt_state_truncate(state.handle, length)); })
      .def("set_limit", [](State &state, int64_t rows) { check(attnrt_state_set_limit(state.handle, rows)); })
      .def("gather", gatherState)
      .def("set", setState)
      .def("get", getState);

  static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void *>(EntryFunction::call)}, {0, nullptr}};
  [[maybe_unused]] auto function = nb::class_<EntryFunction>(module, "EntryFunction", nb::type_slots(slots));

  nb::class_<Engine>(module, "Engine")
      .def("__init__",
           [](Engine *self, const std::string &path, int32_t threads, int32_t sessions, std::vector<int32_t> cpus,
              bool copyWeights, bool ownProducts, int32_t device, int32_t verify) {
             attnrt_load_options load = ATTNRT_LOAD_OPTIONS_INIT;
             load.copy_weights = copyWeights;
             load.verify = verify;
             new (self) Engine(path, {threads, sessions, std::move(cpus), ownProducts, device}, load);
           })
      .def("info", &Engine::info)
      .def("run", run, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(), nb::arg().none(),
           nb::arg().none(), nb::arg())
      .def("profile", &Engine::profile)
      .def("set_weight", &Engine::setWeight)
      .def("close", &Engine::close)
      .def("threads", &Engine::threads)
      .def("sessions", &Engine::sessions)
      .def(
          "state",
          [](const nb::object &self, int32_t entry) { return nb::cast<Engine &>(self).makeState(self, entry); },
          nb::rv_policy::take_ownership)
      .def(
          "entry_function", [](nb::object self, int32_t entry) { return new EntryFunction{std::move(self), entry}; },
          nb::rv_policy::take_ownership);
}

} // namespace attn::python
