// serve-model MODEL.so [DIM=SIZE ...]
//
// One model shared by two threads with a session each, a time limit for each
// run, and outputs in the program's own memory. Inputs are made up, and optional
// ones left out; the threads must get the same bits.
#include <attnrt/attnrt.h>
#include <cctype>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(attnrt_status status) {
  if (status != ATTNRT_OK)
    throw std::runtime_error(std::string(attnrt_status_name(status)) + ": " + attnrt_last_error());
}

struct Release {
  void operator()(attnrt_model *model) const { attnrt_model_release(model); }
  void operator()(attnrt_session *session) const { attnrt_session_destroy(session); }
  void operator()(DLManagedTensor *tensor) const { tensor->deleter(tensor); }
};
using Model = std::unique_ptr<attnrt_model, Release>;
using Session = std::unique_ptr<attnrt_session, Release>;
using Tensor = std::unique_ptr<DLManagedTensor, Release>;
using Dims = std::map<std::string, int64_t>;

std::vector<int64_t> shapeOf(const attnrt_tensor_info &declared, const Dims &dims) {
  std::vector<int64_t> shape;
  for (int32_t d = 0; d < declared.rank; ++d) {
    auto given = dims.find(declared.dims[d].name);
    shape.push_back(declared.dims[d].size >= 0 ? declared.dims[d].size : given != dims.end() ? given->second : 8);
  }
  return shape;
}

// "DIM=SIZE".
std::pair<std::string, int64_t> parseSize(const std::string &text) {
  size_t equals = text.find('='), end = 0;
  int64_t size = -1;
  if (equals != std::string::npos && equals + 1 < text.size() && std::isdigit(text[equals + 1]))
    size = std::stoll(text.substr(equals + 1), &end);
  if (size < 0 || equals + 1 + end != text.size())
    throw std::runtime_error("'" + text + "' is not DIM=SIZE");
  return {text.substr(0, equals), size};
}

void checkNames(const attnrt_entry_info &entry, const Dims &dims) {
  std::set<std::string> open;
  for (int32_t i = 0; i < entry.num_inputs; ++i)
    for (int32_t d = 0; d < entry.inputs[i].rank; ++d)
      if (entry.inputs[i].dims[d].size < 0)
        open.insert(entry.inputs[i].dims[d].name);
  for (const auto &[name, size] : dims)
    if (!open.count(name))
      throw std::runtime_error("the model has no open dimension '" + name + "'");
}

int64_t countOf(const DLTensor &tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor.ndim; ++d)
    count *= tensor.shape[d];
  return count;
}

// Ones where the type is an integer, a wave where it is float32.
Tensor makeInput(const attnrt_tensor_info &declared, const Dims &dims) {
  std::vector<int64_t> shape = shapeOf(declared, dims);
  DLManagedTensor *made;
  check(attnrt_tensor_create(declared.dtype, declared.rank, shape.data(), &made));
  Tensor tensor(made);
  int64_t bytes = int64_t(attnrt_dtype_size(declared.dtype)), count = countOf(made->dl_tensor);
  char *data = static_cast<char *>(made->dl_tensor.data);
  std::memset(data, 0, size_t(bytes * count));
  for (int64_t i = 0; i < count; ++i)
    if (declared.dtype == ATTNRT_F32)
      reinterpret_cast<float *>(data)[i] = float(i % 17) / 17 - 0.5f;
    else if (made->dl_tensor.dtype.code != kDLFloat && made->dl_tensor.dtype.code != kDLBfloat)
      data[i * bytes] = 1; // little endian
  return tensor;
}

struct Result {
  std::vector<Tensor> outputs;
  std::string error;
};

// What each thread does: its own session, two runs, the second into the memory
// that the first allocated.
Result serve(attnrt_model *model, const std::vector<const DLTensor *> &inputs, int32_t numOutputs) try {
  attnrt_session_options sessionOptions = ATTNRT_SESSION_OPTIONS_INIT;
  sessionOptions.num_threads = 1;
  attnrt_session *made;
  check(attnrt_session_create(model, &sessionOptions, &made));
  Session session(made);

  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.timeout_ns = 60'000'000'000;
  std::vector<attnrt_output> outputs(static_cast<size_t>(numOutputs));
  check(attnrt_session_run(made, &options, inputs.data(), int32_t(inputs.size()), outputs.data(), numOutputs));
  Result result;
  for (attnrt_output &output : outputs) {
    result.outputs.emplace_back(output.tensor);
    output = {&output.tensor->dl_tensor, 0, nullptr};
  }
  check(attnrt_session_run(made, &options, inputs.data(), int32_t(inputs.size()), outputs.data(), numOutputs));
  return result;
} catch (const std::exception &error) {
  Result result;
  result.error = error.what();
  return result;
}

bool sameBits(const DLTensor &a, const DLTensor &b) {
  return countOf(a) == countOf(b) && !std::memcmp(a.data, b.data, size_t(countOf(a)) * a.dtype.bits / 8);
}

void run(const char *path, const Dims &dims) {
  attnrt_model *loaded;
  check(attnrt_model_load(path, nullptr, &loaded));
  Model model(loaded);
  const attnrt_entry_info *entry;
  check(attnrt_model_find_entry(loaded, nullptr, &entry));
  checkNames(*entry, dims);

  std::vector<Tensor> tensors;
  std::vector<const DLTensor *> inputs;
  for (int32_t i = 0; i < entry->num_inputs; ++i) {
    bool isOptional = entry->optional_inputs && entry->optional_inputs[i];
    tensors.push_back(isOptional ? nullptr : makeInput(entry->inputs[i], dims));
    inputs.push_back(isOptional ? nullptr : &tensors.back()->dl_tensor);
  }
  Result results[2];
  std::thread other([&] { results[1] = serve(loaded, inputs, entry->num_outputs); });
  results[0] = serve(loaded, inputs, entry->num_outputs);
  other.join();
  for (const Result &result : results)
    if (!result.error.empty())
      throw std::runtime_error(result.error);

  for (int32_t i = 0; i < entry->num_outputs; ++i) {
    const DLTensor &tensor = results[0].outputs[size_t(i)]->dl_tensor;
    std::cout << "output '" << entry->outputs[i].name << "' " << entry->outputs[i].dtype_name << " [";
    for (int32_t d = 0; d < tensor.ndim; ++d)
      std::cout << (d ? ", " : "") << tensor.shape[d];
    std::cout << "]" << (sameBits(tensor, results[1].outputs[size_t(i)]->dl_tensor) ? ", same bits\n" : ", differs\n");
  }
}

} // namespace

int main(int argc, char **argv) try {
  if (argc < 2)
    throw std::runtime_error("usage: serve-model MODEL.so [DIM=SIZE ...]");
  Dims dims;
  for (int i = 2; i < argc; ++i)
    dims.insert(parseSize(argv[i]));
  run(argv[1], dims);
  return 0;
} catch (const std::exception &error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
