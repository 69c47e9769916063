#ifndef TEST_RUNTIME_SUPPORT_H
#define TEST_RUNTIME_SUPPORT_H

#include "attnrt/attnrt.h"
#include "test/runtime/LibraryFile.h"
#include "gtest/gtest.h"
#include <memory>
#include <unistd.h>

namespace attn::test {

struct Release {
  void operator()(attnrt_model *model) const { attnrt_model_release(model); }
  void operator()(attnrt_session *session) const { attnrt_session_destroy(session); }
  void operator()(attnrt_cancel *cancel) const { attnrt_cancel_destroy(cancel); }
  void operator()(DLManagedTensor *tensor) const { tensor->deleter(tensor); }
};
using Model = std::unique_ptr<attnrt_model, Release>;
using Session = std::unique_ptr<attnrt_session, Release>;
using Cancel = std::unique_ptr<attnrt_cancel, Release>;
using Managed = std::unique_ptr<DLManagedTensor, Release>;

template <typename T> constexpr int32_t dtypeOf();
template <> constexpr int32_t dtypeOf<float>() { return ATTNRT_F32; }
template <> constexpr int32_t dtypeOf<double>() { return ATTNRT_F64; }
template <> constexpr int32_t dtypeOf<int64_t>() { return ATTNRT_I64; }
template <> constexpr int32_t dtypeOf<uint8_t>() { return ATTNRT_U8; }

/// A tensor with its elements and shape.
template <typename T> struct Tensor {
  std::vector<int64_t> shape, strides;
  std::vector<T> storage; // one 64-byte line more, so that elements can begin on one
  DLTensor view = {};

  explicit Tensor(std::vector<int64_t> sizes, T first = T(), T step = T()) : shape(std::move(sizes)) {
    size_t count = 1;
    for (int64_t size : shape)
      count *= size_t(size);
    storage.resize(count + 2 * 64 / sizeof(T));
    uintptr_t start = (reinterpret_cast<uintptr_t>(storage.data()) + 63) / 64 * 64;
    view.data = reinterpret_cast<void *>(start);
    for (size_t i = 0; i < count; ++i)
      data()[i] = T(first + step * T(i));
    view.device = {kDLCPU, 0};
    view.ndim = int32_t(shape.size());
    view.dtype = {uint8_t(dtypeOf<T>() >> 8), uint8_t(dtypeOf<T>()), 1};
    view.shape = shape.data();
  }
  Tensor(const Tensor &) = delete;
  T *data() { return static_cast<T *>(view.data); }
  size_t size() const {
    size_t count = 1;
    for (int64_t size : shape)
      count *= size_t(size);
    return count;
  }
  std::vector<T> values() { return {data(), data() + size()}; }
};

template <typename T> std::vector<T> valuesOf(const DLManagedTensor &tensor) {
  size_t count = 1;
  for (int32_t i = 0; i < tensor.dl_tensor.ndim; ++i)
    count *= size_t(tensor.dl_tensor.shape[i]);
  const T *data = static_cast<const T *>(tensor.dl_tensor.data);
  return {data, data + count};
}

/// Whether the last error's message contains `text`.
inline testing::AssertionResult errorSays(const std::string &text) {
  std::string message = attnrt_last_error();
  if (message.find(text) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << message << "' does not contain '" << text << "'";
}

/// A folder that is gone afterwards.
class TempDir {
public:
  TempDir() {
    std::string pattern = testing::TempDir() + "attnrt-XXXXXX";
    path = mkdtemp(pattern.data());
  }
  ~TempDir() { [[maybe_unused]] int status = system(("rm -rf '" + path + "'").c_str()); }
  std::string operator/(const std::string &name) const { return path + "/" + name; }

private:
  std::string path;
};

inline const Bytes &fixtureElf() {
  static const Bytes elf = readFile(ATTN_FIXTURE);
  return elf;
}

/// The fixture, loaded from a file that still exists.
class FixtureTest : public testing::Test {
protected:
  FixtureTest() {
    writeFile(file, makeLibrary(fixtureElf(), fixtureWeights()));
    attnrt_model *loaded = nullptr;
    EXPECT_EQ(attnrt_model_load(file.c_str(), nullptr, &loaded), ATTNRT_OK) << attnrt_last_error();
    model.reset(loaded);
    session = makeSession(2);
  }

  Session makeSession(int32_t threads) {
    attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
    options.num_threads = threads;
    attnrt_session *made = nullptr;
    EXPECT_EQ(attnrt_session_create(model.get(), &options, &made), ATTNRT_OK) << attnrt_last_error();
    return Session(made);
  }

  /// Runs an entry of any number of inputs and one or no output. `wanted` and,
  /// if not ok, the message are checked.
  Managed run(const char *entry, std::vector<const DLTensor *> inputs, attnrt_status wanted = ATTNRT_OK,
              const std::string &message = "", attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT) {
    options.entry = entry;
    const attnrt_entry_info *info = nullptr;
    EXPECT_EQ(attnrt_model_find_entry(model.get(), entry, &info), ATTNRT_OK);
    attnrt_output output = {};
    attnrt_status status =
        attnrt_session_run(session.get(), &options, inputs.data(), int32_t(inputs.size()), &output, info->num_outputs);
    EXPECT_EQ(status, wanted) << attnrt_last_error();
    if (wanted != ATTNRT_OK) {
      EXPECT_TRUE(errorSays(message));
      EXPECT_EQ(output.tensor, nullptr);
    }
    return Managed(output.tensor);
  }

  TempDir dir;
  std::string file = dir / "model.so";
  Model model;
  Session session;
};

} // namespace attn::test

#endif // TEST_RUNTIME_SUPPORT_H
