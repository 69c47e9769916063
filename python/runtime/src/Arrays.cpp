#include "Arrays.h"

#include <algorithm>
#include <cstring>

namespace nb = nanobind;

namespace attn::python {

void raise(attnrt_status status) { raise(status, attnrt_last_error()); }

void raise(attnrt_status status, const std::string &message) {
  nb::object error = nb::module_::import_("attnc_runtime._errors")
                         .attr("from_status")(int(status), attnrt_status_name(status), message);
  PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

std::string describe(const attnrt_tensor_info &info) {
  std::string text = std::string(info.dtype_name) + " [";
  for (int32_t i = 0; i < info.rank; ++i) {
    const attnrt_dim &dim = info.dims[i];
    text += i ? ", " : "";
    text += dim.size >= 0 ? std::to_string(dim.size) : *dim.name ? dim.name : "?";
  }
  return text + "]";
}

//===----------------------------------------------------------------------===//
// Arrays of the caller
//===----------------------------------------------------------------------===//

/// The dtype that a format of PEP 3118 with one letter stands for; lanes 0 if none does.
static DLDataType dtypeOf(const char *format, Py_ssize_t size) {
  if (!format)
    format = "B";
  if (std::strchr("@=<", *format) && *format)
    ++format;
  if (!format[0] || format[1])
    return {};
  auto bits = uint8_t(size * 8);
  if (*format == '?')
    return {kDLBool, 8, 1};
  if (std::strchr("bhilqn", *format))
    return {kDLInt, bits, 1};
  if (std::strchr("BHILQN", *format))
    return {kDLUInt, bits, 1};
  if (std::strchr("efd", *format))
    return {kDLFloat, bits, 1};
  return {};
}

/// Types that NumPy has by ml_dtypes, whose arrays cannot be asked for a buffer.
static const struct {
  const char *name;
  attnrt_dtype dtype;
} kExtended[] = {
    {"bfloat16", ATTNRT_BF16},        {"float8_e4m3fn", ATTNRT_F8_E4M3FN},     {"float8_e4m3fnuz", ATTNRT_F8_E4M3FNUZ},
    {"float8_e5m2", ATTNRT_F8_E5M2},  {"float8_e5m2fnuz", ATTNRT_F8_E5M2FNUZ}, {"float8_e8m0fnu", ATTNRT_F8_E8M0},
    {"float4_e2m1fn", ATTNRT_F4_E2M1}};

static DLDataType unpack(int32_t dtype) {
  return {uint8_t(dtype >> 8), uint8_t((dtype & 0xff) < 8 ? 8 : dtype & 0xff), 1};
}

static std::string typeName(PyObject *object) {
  return nb::cast<std::string>(nb::borrow(reinterpret_cast<PyObject *>(Py_TYPE(object))).attr("__name__"));
}

/// An array of ml_dtypes as one of integers, and its type; null if `array` is none.
static nb::object withoutExtendedType(PyObject *array, DLDataType &type) {
  nb::object dtype = nb::getattr(nb::borrow(array), "dtype", nb::none());
  nb::object name = nb::getattr(dtype, "name", nb::none());
  if (!nb::isinstance<nb::str>(name) || !nb::hasattr(nb::borrow(array), "view"))
    return {};
  for (const auto &extended : kExtended)
    if (nb::cast<std::string>(name) == extended.name) {
      type = unpack(extended.dtype);
      return nb::borrow(array).attr("view")(type.bits == 16 ? "uint16" : "uint8");
    }
  return {};
}

std::string textOf(nb::handle object) {
  nb::object bytes = nb::steal(PyUnicode_AsEncodedString(nb::str(object).ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid())
    throw nb::python_error();
  return {PyBytes_AsString(bytes.ptr()), size_t(PyBytes_Size(bytes.ptr()))};
}

bool isNumber(PyObject *object) { return PyLong_Check(object) || PyFloat_Check(object); }

/// The number of Python that an input takes, of rank 0 or of one dimension that may be 1: "" for none.
static const char *numberFor(const attnrt_tensor_info &info) {
  if (info.rank > 1 || (info.rank == 1 && info.dims[0].size >= 0 && info.dims[0].size != 1))
    return "";
  if (info.dtype == ATTNRT_F32 || info.dtype == ATTNRT_F64)
    return "a float, ";
  int code = unpack(info.dtype).code;
  return code == kDLInt || code == kDLUInt || code == kDLBool ? "an int, " : "";
}

Borrowed::Borrowed(PyObject *array, const attnrt_tensor_info &info, const char *what, bool writable) {
  int flags = PyBUF_FORMAT | PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_CheckBuffer(array)) {
    if (PyObject_GetBuffer(array, &view, flags) == 0) {
      fromBuffer(info, what);
      return;
    }
    view = {};
    nb::python_error failure; // takes what is raised
    DLDataType type = {};
    if (nb::object plain = withoutExtendedType(array, type); plain.is_valid()) {
      if (PyObject_GetBuffer(plain.ptr(), &view, flags) != 0)
        throw nb::python_error();
      fromBuffer(info, what);
      tensor.dtype = type;
      return;
    }
    raise(ATTNRT_INVALID_ARGUMENT, std::string(what) + " (" + describe(info) + "): " + textOf(failure.value()));
  }
  if (PyObject_HasAttrString(array, "__dlpack__")) {
    fromDLPack(array, what, writable);
    return;
  }
  if (!writable && fromNumber(array, info, what))
    return;
  raise(ATTNRT_INVALID_ARGUMENT, std::string(what) + " is of type " + typeName(array) + "; give " +
                                     (writable ? "" : numberFor(info)) +
                                     "a NumPy array, a torch tensor or anything with __dlpack__: " + describe(info));
}

void Borrowed::fromBuffer(const attnrt_tensor_info &info, const char *what) {
  tensor.dtype = dtypeOf(view.format, view.itemsize);
  std::string problem;
  if (!tensor.dtype.lanes)
    problem = std::string("has elements of type '") + view.format +
              (*view.format == '>' ? "', big-endian; give .astype(array.dtype.newbyteorder('<'))" : "'");
  for (int i = 0; i < view.ndim && problem.empty(); ++i)
    if (view.strides[i] % view.itemsize)
      problem = "has a stride of " + std::to_string(view.strides[i]) + " bytes for elements of " +
                std::to_string(view.itemsize) + "; give a contiguous copy (numpy.ascontiguousarray)";
  if (problem.empty() && reinterpret_cast<uintptr_t>(view.buf) % size_t(view.itemsize))
    problem = "is not aligned to its elements; give a copy";
  if (!problem.empty()) {
    PyBuffer_Release(&view);
    raise(ATTNRT_INVALID_ARGUMENT, std::string(what) + " (" + describe(info) + ") " + problem);
  }
  tensor.data = view.buf;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = view.ndim;
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "shapes are handed on where they lie");
  tensor.shape = reinterpret_cast<int64_t *>(view.shape);
  if (PyBuffer_IsContiguous(&view, 'C'))
    return;
  strides.resize(size_t(view.ndim));
  for (int i = 0; i < view.ndim; ++i)
    strides[size_t(i)] = view.strides[i] / view.itemsize;
  tensor.strides = strides.data();
}

/// Libraries give the strides of a contiguous array, too.
static bool isDense(const DLTensor &tensor) {
  int64_t expected = 1;
  bool dense = true;
  for (int i = tensor.ndim; tensor.strides && tensor.shape && i-- > 0;) {
    if (tensor.shape[i] == 0)
      return true;
    dense &= tensor.shape[i] == 1 || tensor.strides[i] == expected;
    expected *= tensor.shape[i];
  }
  return dense;
}

void Borrowed::fromDLPack(PyObject *array, const char *what, bool writable) {
  nb::object capsule, source = nb::borrow(array);
  // torch hands on a view whose elements stand for their negatives as if they were themselves.
  if (nb::hasattr(source, "is_neg") && nb::cast<bool>(source.attr("is_neg")()))
    source = source.attr("resolve_neg")();
  if (writable && !source.is(array))
    raise(ATTNRT_INVALID_ARGUMENT, std::string(what) + " is a negated view; give a contiguous tensor");
  try {
    capsule = source.attr("__dlpack__")();
  } catch (nb::python_error &error) {
    if (!error.matches(PyExc_Exception))
      throw;
    raise(ATTNRT_INVALID_ARGUMENT, std::string(what) + ": its __dlpack__ says: " + textOf(error.value()));
  }
  managed = static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (!managed)
    throw nb::python_error();
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  tensor = managed->dl_tensor;
  if (isDense(tensor))
    tensor.strides = nullptr;
  // This is not destroyed if its constructor fails.
  size_t size = std::max(tensor.dtype.bits / 8, 1);
  if ((reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset) % size) {
    if (managed->deleter)
      managed->deleter(managed);
    raise(ATTNRT_INVALID_ARGUMENT, std::string(what) + " is not aligned to its elements; give a copy");
  }
}

/// False where the input takes no number, or the number is a float for an integer.
bool Borrowed::fromNumber(PyObject *object, const attnrt_tensor_info &info, const char *what) {
  bool isReal = info.dtype == ATTNRT_F32 || info.dtype == ATTNRT_F64;
  if (!*numberFor(info) || (isReal ? !isNumber(object) : !PyLong_Check(object)))
    return false;
  DLDataType type = unpack(info.dtype);
  number = std::make_unique<Number>();
  if (isReal) {
    double value = PyFloat_AsDouble(object);
    if (value == -1 && PyErr_Occurred())
      throw nb::python_error();
    if (info.dtype == ATTNRT_F32)
      number->single = static_cast<float>(value);
    else
      number->number = value;
  } else {
    int overflow = 0, bits = type.code == kDLBool ? 1 : type.bits - (type.code == kDLInt ? 1 : 0);
    number->integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    int64_t most = bits >= 63 ? INT64_MAX : (int64_t(1) << bits) - 1, least = type.code == kDLInt ? -most - 1 : 0;
    if (overflow || number->integer < least || number->integer > most)
      raise(ATTNRT_INVALID_ARGUMENT, std::string(what) + " is " + textOf(object) + ", which is outside " +
                                         std::to_string(least) + " to " + std::to_string(most));
  }
  tensor.data = &number->integer; // little endian: narrower integers lie in front
  tensor.dtype = type;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = info.rank;
  tensor.shape = &number->shape;
  return true;
}

Borrowed::Borrowed(Borrowed &&other) noexcept
    : tensor(other.tensor), view(other.view), managed(other.managed), strides(std::move(other.strides)),
      number(std::move(other.number)) {
  other.view = {};
  other.managed = nullptr;
}

Borrowed::~Borrowed() {
  if (view.obj)
    PyBuffer_Release(&view);
  if (managed && managed->deleter)
    managed->deleter(managed);
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

Tensor::~Tensor() {
  if (managed)
    managed->deleter(managed);
}

static void deleteUntaken(PyObject *capsule) {
  if (void *tensor = PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : nullptr)
    static_cast<DLManagedTensor *>(tensor)->deleter(static_cast<DLManagedTensor *>(tensor));
}

nb::object Tensor::dlpack(const nb::kwargs &) {
  if (!managed)
    raise(ATTNRT_INVALID_ARGUMENT, "the tensor has been handed on already");
  PyObject *capsule = PyCapsule_New(managed, "dltensor", deleteUntaken);
  if (!capsule)
    throw nb::python_error();
  managed = nullptr;
  return nb::steal(capsule);
}

nb::tuple Tensor::device() const {
  DLDevice device = managed ? managed->dl_tensor.device : DLDevice{kDLCPU, 0};
  return nb::make_tuple(int(device.device_type), device.device_id);
}

static const char *formatOf(DLDataType type) {
  switch (type.code << 8 | type.bits) {
  case ATTNRT_BOOL:
    return "?";
  case ATTNRT_I8:
    return "b";
  case ATTNRT_I16:
    return "h";
  case ATTNRT_I32:
    return "i";
  case ATTNRT_I64:
    return "q";
  case ATTNRT_U16:
  case ATTNRT_BF16: // its bits: Kind::wrap gives them their type
    return "H";
  case ATTNRT_U32:
    return "I";
  case ATTNRT_U64:
    return "Q";
  case ATTNRT_F16:
    return "e";
  case ATTNRT_F32:
    return "f";
  case ATTNRT_F64:
    return "d";
  default: // uint8, and the bits of eight-bit floats
    return "B";
  }
}

int Tensor::fillBuffer(PyObject *self, Py_buffer *view, int) noexcept {
  Tensor &tensor = *nb::inst_ptr<Tensor>(nb::handle(self));
  if (!tensor.managed || tensor.managed->dl_tensor.device.device_type != kDLCPU) {
    PyErr_SetString(PyExc_BufferError, "the tensor is not in the memory of the CPU, or has been handed on");
    return -1;
  }
  const DLTensor &t = tensor.managed->dl_tensor;
  Py_ssize_t size = t.dtype.bits / 8, length = size;
  tensor.byteStrides.resize(size_t(t.ndim));
  for (int i = t.ndim; i-- > 0;) {
    tensor.byteStrides[size_t(i)] = length;
    length *= Py_ssize_t(t.shape[i]);
  }
  *view = {};
  view->obj = Py_NewRef(self);
  view->buf = static_cast<char *>(t.data) + t.byte_offset;
  view->len = length;
  view->itemsize = size;
  view->format = const_cast<char *>(formatOf(t.dtype));
  view->ndim = t.ndim;
  view->shape = reinterpret_cast<Py_ssize_t *>(t.shape);
  view->strides = reinterpret_cast<Py_ssize_t *>(tensor.byteStrides.data());
  return 0;
}

void Tensor::bind(nb::module_ &module) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(fillBuffer)}, {0, nullptr}};
  nb::class_<Tensor>(module, "Tensor", nb::type_slots(slots))
      .def("__dlpack__", &Tensor::dlpack)
      .def("__dlpack_device__", &Tensor::device);
}

Kind::Kind(PyObject *array) : array(array && !PyObject_CheckBuffer(array) ? array : nullptr) {}

nb::object Kind::wrap(DLManagedTensor *managed) const {
  DLDataType type = managed->dl_tensor.dtype;
  nb::object tensor = nb::cast(new Tensor(managed), nb::rv_policy::take_ownership);
  if (array) {
    nb::object arrayType = nb::borrow(reinterpret_cast<PyObject *>(Py_TYPE(array)));
    auto module = nb::cast<std::string>(arrayType.attr("__module__"));
    if (module.compare(0, 5, "torch") == 0 && (module.size() == 5 || module[5] == '.'))
      return nb::module_::import_("torch").attr("from_dlpack")(tensor);
    if (nb::hasattr(nb::borrow(array), "__array_namespace__"))
      return nb::borrow(array).attr("__array_namespace__")().attr("from_dlpack")(tensor);
  }
  // Kept for ever: looked up at each call they would cost as much as the rest of it.
  static PyObject *asarray = nb::object(nb::module_::import_("numpy").attr("asarray")).release().ptr();
  nb::object result = nb::borrow(asarray)(tensor);
  for (const auto &extended : kExtended)
    if (DLDataType candidate = unpack(extended.dtype); candidate.code == type.code && candidate.bits == type.bits)
      return nb::module_::import_("attnc_runtime._tensor").attr("view_as")(result, extended.name);
  return result;
}

} // namespace attn::python
