// Loads that do not read the whole file.
#include "test/runtime/Support.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>

using namespace attn::test;
namespace fs = std::filesystem;

namespace {
class VerifyTest : public FixtureTest {
protected:
  std::string cache = dir / "cache", notes = dir / "cache/attnrt/verified";
  std::string before = getenv("XDG_CACHE_HOME") ? getenv("XDG_CACHE_HOME") : "";

  VerifyTest() { setenv("XDG_CACHE_HOME", cache.c_str(), 1); }
  ~VerifyTest() override { before.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", before.c_str(), 1); }

  attnrt_status load(const std::string &path, int32_t verify, int32_t copy = 0) {
    attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
    options.verify = verify;
    options.copy_weights = copy;
    attnrt_model *loaded = nullptr;
    attnrt_status status = attnrt_model_load(path.c_str(), &options, &loaded);
    attnrt_model_release(loaded);
    return status;
  }
  /// The last weight is another one, the digest is not.
  void damage() {
    Bytes bytes = readFile(file);
    bytes[bytes.size() - sizeof(attnrt_footer) - 4] ^= 1;
    writeFile(file, bytes);
  }
  /// What a note says of a file, from the files' status and footer.
  static std::string noteOf(const std::string &path) {
    struct stat status;
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    auto timeOf = [](const timespec &time) {
      std::string nanoseconds = std::to_string(time.tv_nsec);
      return std::to_string(time.tv_sec) + "." + std::string(9 - nanoseconds.size(), '0') + nanoseconds;
    };
    std::string text = "1 " + std::to_string(status.st_dev) + " " + std::to_string(status.st_ino) + " " +
                       std::to_string(status.st_size) + " " + timeOf(status.st_mtim) + " " + timeOf(status.st_ctim) +
                       " ";
    Bytes bytes = readFile(path);
    for (size_t i = bytes.size() - 48; i < bytes.size() - 16; ++i)
      for (int nibble : {bytes[i] >> 4 & 15, bytes[i] & 15})
        text += "0123456789abcdef"[nibble];
    return text;
  }
  /// Notes that `file` was verified, in the place of every file.
  void forge() {
    fs::create_directories(notes);
    chmod(notes.c_str(), 0700);
    std::string text = noteOf(file);
    for (int slot = 0; slot < 1024; ++slot) {
      char name[8];
      snprintf(name, sizeof(name), "/%03x", slot);
      std::ofstream(notes + name) << text;
    }
  }
  size_t countNotes() {
    return fs::exists(notes) ? size_t(std::distance(fs::directory_iterator(notes), fs::directory_iterator())) : 0;
  }
};

TEST_F(VerifyTest, NeverLooks) {
  damage();
  for (int32_t copy : {0, 1}) {
    EXPECT_EQ(load(file, ATTNRT_VERIFY_ALWAYS, copy), ATTNRT_CORRUPT_FILE);
    EXPECT_EQ(load(file, ATTNRT_VERIFY_NEVER, copy), ATTNRT_OK) << attnrt_last_error();
  }
  EXPECT_EQ(countNotes(), 0u);
  // What is copied is whole.
  attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
  options.verify = ATTNRT_VERIFY_NEVER;
  options.copy_weights = 1;
  attnrt_model *loaded = nullptr;
  writeFile(file, makeLibrary(fixtureElf(), fixtureWeights((5 << 20) + 77)));
  ASSERT_EQ(attnrt_model_load(file.c_str(), &options, &loaded), ATTNRT_OK) << attnrt_last_error();
  model.reset(loaded);
  session = makeSession(1);
  Tensor<int64_t> ids({1}, 7);
  Tensor<float> x({1, 4});
  EXPECT_EQ(valuesOf<float>(*run("lookup", {&ids.view, &x.view})), (std::vector<float>{7, 7.25f, 7.5f, 7.75f}));
  EXPECT_EQ(load(file, 3), ATTNRT_INVALID_ARGUMENT);
  EXPECT_TRUE(errorSays("verify is 3"));
}

// A file that lies there for long is noted, one of this moment is not: its file
// system may not tell the next change from the last one.
TEST_F(VerifyTest, OnceNotes) {
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(countNotes(), 0u);
  const std::string old = ATTN_STORED_LIBRARY;
  for (int i = 0; i < 2; ++i) {
    attnrt_status status = load(old, ATTNRT_VERIFY_ONCE);
    if (status == ATTNRT_INCOMPATIBLE)
      GTEST_SKIP() << attnrt_last_error(); // made for another architecture
    EXPECT_EQ(status, ATTNRT_OK) << attnrt_last_error();
    ASSERT_EQ(countNotes(), 1u);
    Bytes text = readFile(fs::directory_iterator(notes)->path());
    EXPECT_EQ(std::string(text.begin(), text.end()), noteOf(old));
  }
  struct stat status;
  stat(notes.c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(VerifyTest, OnceTrustsItsNotes) {
  damage();
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_CORRUPT_FILE);
  EXPECT_EQ(countNotes(), 0u);
  forge();
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_OK) << attnrt_last_error();
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ALWAYS), ATTNRT_CORRUPT_FILE);
  // Not where others may write, nor through a link.
  chmod(notes.c_str(), 0777);
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_CORRUPT_FILE);
  chmod(notes.c_str(), 0700);
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_OK);
  fs::rename(notes, dir / "elsewhere");
  fs::create_symlink(dir / "elsewhere", notes);
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_CORRUPT_FILE);
  fs::remove(notes);
  // Nor of another file, or after a change.
  forge();
  fs::rename(file, file + ".1");
  fs::copy_file(file + ".1", file);
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_CORRUPT_FILE) << "another inode";
  forge();
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_OK);
  timespec times[] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_CORRUPT_FILE) << "another time";
}

TEST_F(VerifyTest, WithoutAFolder) {
  for (const char *folder : {"/proc/nowhere", "relative", "/dev/null"}) {
    setenv("XDG_CACHE_HOME", folder, 1);
    EXPECT_EQ(load(ATTN_STORED_LIBRARY, ATTNRT_VERIFY_ONCE), load(ATTN_STORED_LIBRARY, ATTNRT_VERIFY_ALWAYS)) << folder;
    EXPECT_EQ(load(file, ATTNRT_VERIFY_ONCE), ATTNRT_OK) << folder;
  }
}
} // namespace
