// Loading: what is accepted, and what is refused with which message.
#include "test/runtime/Support.h"

#include <fcntl.h>
#include <random>
#include <sys/stat.h>

using namespace attn::test;

namespace {
class LoadTest : public testing::Test {
protected:
  TempDir dir;
  std::string file = dir / "model.so";

  attnrt_status load(const attnrt_load_options *options = nullptr) {
    attnrt_model *loaded = nullptr;
    attnrt_status status = attnrt_model_load(file.c_str(), options, &loaded);
    EXPECT_EQ(loaded != nullptr, status == ATTNRT_OK);
    model.reset(loaded);
    return status;
  }
  void expectRefused(attnrt_status wanted, const std::string &message) {
    EXPECT_EQ(load(), wanted) << attnrt_last_error();
    EXPECT_TRUE(errorSays(message));
  }
  void writeVariant(const char *fixture) {
    writeFile(file, makeLibrary(readFile(std::string(ATTN_FIXTURE_FOLDER "/") + fixture), fixtureWeights()));
  }
  template <typename Edit> void writeEdited(Edit edit) {
    writeFile(file, makeLibrary(fixtureElf(), fixtureWeights(), edit));
  }

  Model model;
};

TEST_F(LoadTest, DescribesTheModel) {
  Bytes bytes = makeLibrary(fixtureElf(), fixtureWeights());
  writeFile(file, bytes);
  ASSERT_EQ(load(), ATTNRT_OK) << attnrt_last_error();
  const attnrt_model_info *info = nullptr;
  ASSERT_EQ(attnrt_model_get_info(model.get(), &info), ATTNRT_OK);
  EXPECT_EQ(info->abi_version, ATTNRT_ABI_VERSION);
  EXPECT_EQ(info->num_entries, 19u);
  EXPECT_STREQ(info->entries[0]->name, "lookup");
  EXPECT_EQ(info->entries[0]->num_inputs, 2);
  EXPECT_STREQ(info->entries[0]->inputs[1].name, "x");
  EXPECT_EQ(info->entries[0]->inputs[1].dtype, ATTNRT_F32);
  EXPECT_EQ(info->entries[0]->inputs[1].dims[0].size, -1);
  EXPECT_STREQ(info->entries[0]->inputs[1].dims[0].name, "n");
  EXPECT_EQ(info->entries[0]->has_state, 0);
  EXPECT_EQ(info->num_weights, 18u);
  EXPECT_STREQ(info->weights[2].layout, "panels:4");
  EXPECT_STREQ(info->target, "x86_64-unknown-linux-gnu");
  EXPECT_STREQ(info->compiler_version, "by hand");
  EXPECT_STREQ(info->manifest_json, "{\"entries\": []}");
  EXPECT_STREQ(info->required_cpu_features, "");
  EXPECT_EQ(info->file_size, bytes.size());
  EXPECT_EQ(info->weights_size, 1212u);
  EXPECT_EQ(memcmp(info->digest, bytes.data() + bytes.size() - 48, 32), 0);
  const attnrt_entry_info *entry = nullptr;
  ASSERT_EQ(attnrt_model_find_entry(model.get(), "rows", &entry), ATTNRT_OK);
  EXPECT_STREQ(entry->name, "rows");
  ASSERT_EQ(attnrt_model_find_entry(model.get(), nullptr, &entry), ATTNRT_OK);
  EXPECT_STREQ(entry->name, "lookup");
  EXPECT_EQ(attnrt_model_find_entry(model.get(), "row", &entry), ATTNRT_NOT_FOUND);
}

// The function's own test vectors: bytes 0, 1, ... 250, 0, ...
TEST(DigestTest, IsBlake3) {
  auto hexOf = [](size_t size) {
    Bytes bytes(size);
    for (size_t i = 0; i < size; ++i)
      bytes[i] = char(i % 251);
    uint8_t digest[32];
    hash(bytes.data(), size, digest);
    std::string text;
    for (uint8_t byte : digest)
      for (int nibble : {byte >> 4, byte & 15})
        text += "0123456789abcdef"[nibble];
    return text;
  };
  EXPECT_EQ(hexOf(0), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  EXPECT_EQ(hexOf(1024), "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7");
  EXPECT_EQ(hexOf(102400), "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085");
}

// Leaves that begin and end in the ELF object, the padding and the weights.
TEST_F(LoadTest, LargeFilesWithAnyNumberOfThreads) {
  Bytes weights = fixtureWeights((5 << 20) + 12345);
  for (size_t i = 4096; i < weights.size(); ++i)
    weights[i] = char(i * 2654435761u >> 13);
  writeFile(file, makeLibrary(fixtureElf(), weights));
  for (int32_t threads : {0, 1, 2, 3, 8, 100})
    for (int32_t copy : {0, 1}) {
      attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
      options.num_threads = threads;
      options.copy_weights = copy;
      EXPECT_EQ(load(&options), ATTNRT_OK) << attnrt_last_error();
    }
  attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
  options.num_threads = -1;
  EXPECT_EQ(load(&options), ATTNRT_INVALID_ARGUMENT);
}

TEST_F(LoadTest, ExactlyFullLeaves) {
  size_t elf = (fixtureElf().size() + 4095) / 4096 * 4096;
  for (size_t total : {size_t(1) << 20, size_t(2) << 20})
    for (int more : {-1, 0, 1}) {
      writeFile(file, makeLibrary(fixtureElf(), fixtureWeights(total - elf + size_t(more))));
      EXPECT_EQ(load(), ATTNRT_OK) << attnrt_last_error();
    }
}

TEST_F(LoadTest, FromADescriptor) {
  writeFile(file, makeLibrary(fixtureElf(), fixtureWeights()));
  int fd = open(file.c_str(), O_RDONLY);
  lseek(fd, 100, SEEK_SET);
  attnrt_model *loaded = nullptr;
  EXPECT_EQ(attnrt_model_load_fd(fd, nullptr, &loaded), ATTNRT_OK) << attnrt_last_error();
  close(fd);
  unlink(file.c_str());
  attnrt_model_retain(loaded);
  attnrt_model_release(loaded);
  attnrt_session *session = nullptr;
  EXPECT_EQ(attnrt_session_create(loaded, nullptr, &session), ATTNRT_OK);
  attnrt_model_release(loaded); // the session keeps it
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "tiny";
  attnrt_output output = {};
  EXPECT_EQ(attnrt_session_run(session, &options, nullptr, 0, &output, 1), ATTNRT_OK) << attnrt_last_error();
  Managed y(output.tensor);
  attnrt_session_destroy(session);
  EXPECT_EQ(attnrt_model_load_fd(-1, nullptr, &loaded), ATTNRT_INVALID_ARGUMENT);
}

TEST_F(LoadTest, ManyModelsDoNotGetMixedUp) {
  // Different weights, all loaded at once, then loaded in turns: descriptors'
  // numbers come again.
  std::vector<Model> models;
  for (int i = 0; i < 20; ++i) {
    Bytes weights = fixtureWeights();
    weights[768] = char(i);
    writeFile(file + std::to_string(i), makeLibrary(fixtureElf(), weights));
  }
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20; ++i) {
      attnrt_model *loaded = nullptr;
      ASSERT_EQ(attnrt_model_load((file + std::to_string(i)).c_str(), nullptr, &loaded), ATTNRT_OK);
      models.emplace_back(loaded);
    }
    models.erase(models.begin(), models.begin() + 11);
  }
}

TEST_F(LoadTest, NoSuchFile) { expectRefused(ATTNRT_NOT_FOUND, "model.so: cannot be opened: No such file"); }

TEST_F(LoadTest, NotARegularFile) {
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expectRefused(ATTNRT_CORRUPT_FILE, "not a regular file");
  file = "/dev/zero";
  expectRefused(ATTNRT_CORRUPT_FILE, "not a regular file");
  file = dir / "";
  expectRefused(ATTNRT_CORRUPT_FILE, "not a regular file");
}

TEST_F(LoadTest, Empty) {
  writeFile(file, {});
  expectRefused(ATTNRT_CORRUPT_FILE, "no model library: the file is empty");
}

TEST_F(LoadTest, SomethingElse) {
  file = "/proc/self/exe";
  expectRefused(ATTNRT_CORRUPT_FILE, "its last bytes are not a footer");
}

// A compiler of the next version that needs nothing new of the runtime: its
// footer and structures have more fields, which are skipped.
TEST_F(LoadTest, NewerThatNeedsNothingNew) {
  auto grown = [](attnrt_footer &footer) { footer.abi_version = ATTNRT_ABI_VERSION + 1; };
  for (size_t more : {0, 8, 48}) {
    writeFile(file, makeLibrary(readFile(ATTN_FIXTURE_FOLDER "/fixture-newer.so"), fixtureWeights(), grown, more));
    ASSERT_EQ(load(), ATTNRT_OK) << attnrt_last_error();
    const attnrt_model_info *info = nullptr;
    ASSERT_EQ(attnrt_model_get_info(model.get(), &info), ATTNRT_OK);
    EXPECT_EQ(info->abi_version, ATTNRT_ABI_VERSION + 1);
    EXPECT_STREQ(info->entries[16]->name, "wide");
  }
  // What is behind the fields that are known is part of the digest.
  Bytes bytes = makeLibrary(readFile(ATTN_FIXTURE_FOLDER "/fixture-newer.so"), fixtureWeights(), grown, 8);
  bytes[bytes.size() - 50] ^= 1;
  writeFile(file, bytes);
  expectRefused(ATTNRT_CORRUPT_FILE, "damaged");
}

TEST_F(LoadTest, NeedsANewerRuntime) {
  writeEdited([](attnrt_footer &footer) { footer.abi_version = footer.needed_abi = ATTNRT_ABI_VERSION + 1; });
  expectRefused(ATTNRT_INCOMPATIBLE,
                "needs ABI version 11, this runtime (0.1.0) serves 9 to 10: update the runtime, or "
                "compile the model with an attnc of the runtime's version");
  writeEdited([](attnrt_footer &footer) { footer.flags = 4; });
  expectRefused(ATTNRT_INCOMPATIBLE, "footer flags 0x4, this runtime (0.1.0) knows none");
  writeVariant("fixture-refuses.so");
  expectRefused(ATTNRT_INCOMPATIBLE, "its code does not serve ABI version 10");
}

TEST_F(LoadTest, TooOld) {
  writeEdited([](attnrt_footer &footer) { footer.abi_version = footer.needed_abi = ATTNRT_ABI_OLDEST - 1; });
  expectRefused(ATTNRT_INCOMPATIBLE,
                "compiled for ABI version 8, this runtime (0.1.0) serves 9 to 10: compile the model again");
  writeEdited([](attnrt_footer &footer) { memcpy(footer.magic, "ATTNLIB\1", 8); });
  expectRefused(ATTNRT_INCOMPATIBLE, "compiled for an ABI version before 9, this runtime (0.1.0) serves 9 to 10");
}

TEST_F(LoadTest, VersionsThatContradict) {
  writeEdited([](attnrt_footer &footer) { footer.needed_abi = ATTNRT_ABI_VERSION + 1; });
  expectRefused(ATTNRT_CORRUPT_FILE, "compiled for ABI version 10, but says that it needs 11");
  writeVariant("fixture-newer.so");
  expectRefused(ATTNRT_CORRUPT_FILE, "its code has ABI version 11, its footer says 10");
  writeVariant("fixture-short.so");
  expectRefused(ATTNRT_CORRUPT_FILE, "its description has 79 bytes, fewer than 80");
  for (uint64_t size : {uint64_t(0), uint64_t(95), uint64_t(4097), UINT64_MAX}) {
    writeEdited([&](attnrt_footer &footer) { footer.footer_size = size; });
    expectRefused(ATTNRT_CORRUPT_FILE, "bytes, not between 96 and 4096");
  }
}

TEST_F(LoadTest, MissingCpuFeatures) {
  writeVariant("fixture-features.so");
  expectRefused(ATTNRT_INCOMPATIBLE,
                "needs CPU features that this machine lacks: warp_drive, flux_capacitor (of sse2,");
}

TEST_F(LoadTest, AnOutputOfTooManyDimensions) {
  writeVariant("fixture-deep.so");
  expectRefused(ATTNRT_CORRUPT_FILE, "the description of entry 0 is not sound");
}

TEST_F(LoadTest, OtherArchitecture) {
  Bytes elf = fixtureElf();
  elf[18] = char(0xf3), elf[19] = 0; // e_machine: RISC-V
  writeFile(file, makeLibrary(elf, fixtureWeights()));
  expectRefused(ATTNRT_INCOMPATIBLE, "compiled for ELF machine 243, this is");
}

// Files with a right digest that no compiler of ours writes.
TEST_F(LoadTest, NoElf) {
  writeFile(file, makeLibrary(Bytes(5000, 'x'), fixtureWeights()));
  expectRefused(ATTNRT_CORRUPT_FILE, "does not begin with an ELF shared object");
  writeFile(file, makeLibrary(Bytes(10, 'x'), {}));
  expectRefused(ATTNRT_CORRUPT_FILE, "does not begin with an ELF shared object");
}

TEST_F(LoadTest, WeightsThatAreNotThere) {
  writeFile(file, makeLibrary(fixtureElf(), fixtureWeights(783)));
  expectRefused(ATTNRT_CORRUPT_FILE, "the description of weight 5 is not sound, or the weight not in the file");
  writeFile(file, makeLibrary(fixtureElf(), {}));
  expectRefused(ATTNRT_CORRUPT_FILE, "the description of weight 0");
}

TEST_F(LoadTest, SizesThatDoNotAddUp) {
  const std::string message = "do not make a file of";
  writeEdited([](attnrt_footer &footer) { footer.elf_size = 0; });
  expectRefused(ATTNRT_CORRUPT_FILE, message);
  writeEdited([](attnrt_footer &footer) { footer.elf_size = UINT64_MAX; });
  expectRefused(ATTNRT_CORRUPT_FILE, message);
  writeEdited([](attnrt_footer &footer) { footer.elf_size -= 4096; });
  expectRefused(ATTNRT_CORRUPT_FILE, message);
  writeEdited([](attnrt_footer &footer) { footer.weights_offset += 1; });
  expectRefused(ATTNRT_CORRUPT_FILE, message);
  writeEdited([](attnrt_footer &footer) { footer.weights_offset = UINT64_MAX - 4095; });
  expectRefused(ATTNRT_CORRUPT_FILE, message);
  writeEdited([](attnrt_footer &footer) { footer.weights_size = UINT64_MAX - 100; });
  expectRefused(ATTNRT_CORRUPT_FILE, message);
  writeEdited([](attnrt_footer &footer) { footer.weights_size += 1; });
  expectRefused(ATTNRT_CORRUPT_FILE, message);
  writeEdited([](attnrt_footer &footer) { footer.file_size += 4096; });
  expectRefused(ATTNRT_CORRUPT_FILE, "bytes, but its footer says");
}

class DamageTest : public LoadTest {
protected:
  // Three leaves, so that damage is found in each.
  Bytes sound = makeLibrary(fixtureElf(), fixtureWeights((2 << 20) + 777));
  std::mt19937_64 random{20240117};

  void expectDamaged(const std::string &what) {
    attnrt_status status = load();
    ASSERT_TRUE(status == ATTNRT_CORRUPT_FILE || status == ATTNRT_INCOMPATIBLE) << what << ": " << status;
    ASSERT_STRNE(attnrt_last_error(), "") << what;
  }
};

TEST_F(DamageTest, Truncation) {
  std::vector<size_t> sizes;
  for (size_t cut = 1; cut <= 200; ++cut)
    sizes.push_back(sound.size() - cut);
  for (size_t size = 0; size < sizeof(attnrt_footer) + 4; ++size)
    sizes.push_back(size);
  while (sizes.size() < 2000)
    sizes.push_back(random() % sound.size());
  std::sort(sizes.rbegin(), sizes.rend()); // so that the file only shrinks
  writeFile(file, sound);
  for (size_t size : sizes) {
    ASSERT_EQ(truncate(file.c_str(), off_t(size)), 0);
    expectDamaged("cut to " + std::to_string(size));
  }
}

TEST_F(DamageTest, BitFlips) {
  constexpr int kFooterBits = 8 * sizeof(attnrt_footer);
  writeFile(file, sound);
  int fd = open(file.c_str(), O_RDWR);
  for (int i = 0; i < 2000; ++i) {
    // Half of them in what is most delicate: the ELF object and the footer.
    size_t elf = fixtureElf().size(), byte = random() % sound.size();
    if (i < 500)
      byte = random() % elf;
    else if (i < 500 + kFooterBits)
      byte = sound.size() - 1 - size_t(i - 500) / 8;
    unsigned bit = i >= 500 && i < 500 + kFooterBits ? unsigned(i - 500) % 8 : unsigned(random() % 8);
    char flipped = char(sound[byte] ^ (1 << bit));
    ASSERT_EQ(pwrite(fd, &flipped, 1, off_t(byte)), 1);
    expectDamaged("bit " + std::to_string(bit) + " of byte " + std::to_string(byte));
    ASSERT_EQ(pwrite(fd, &sound[byte], 1, off_t(byte)), 1);
  }
  close(fd);
  EXPECT_EQ(load(), ATTNRT_OK) << attnrt_last_error();
}

TEST_F(DamageTest, ZeroedPages) {
  for (size_t page = 0; page * 4096 < sound.size(); page += 1 + page / 8) {
    Bytes bytes = sound;
    size_t begin = page * 4096, end = std::min(bytes.size(), begin + 4096);
    std::fill(bytes.begin() + long(begin), bytes.begin() + long(end), 0);
    if (bytes == sound)
      continue;
    writeFile(file, bytes);
    expectDamaged("page " + std::to_string(page));
  }
}

TEST_F(DamageTest, Appended) {
  Bytes bytes = sound;
  bytes.push_back(0);
  writeFile(file, bytes);
  expectDamaged("one byte more");
  bytes.insert(bytes.end(), sound.begin(), sound.end());
  writeFile(file, bytes);
  expectDamaged("two files in one");
}

using ModifiedTest = FixtureTest;

TEST_F(ModifiedTest, ReplacingByRenameIsFine) {
  Bytes other = fixtureWeights();
  other[0] = 1;
  writeFile(dir / "new.so", makeLibrary(fixtureElf(), other));
  ASSERT_EQ(rename((dir / "new.so").c_str(), file.c_str()), 0);
  run("tiny", {});
}

TEST_F(ModifiedTest, TouchingIsFine) {
  timespec times[] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  run("tiny", {});
  run("tiny", {});
}

TEST_F(ModifiedTest, WritingIsNoticed) {
  Bytes bytes = readFile(file);
  int fd = open(file.c_str(), O_RDWR);
  size_t byte = bytes.size() - sizeof(attnrt_footer) - 4; // the last weights
  char other = char(bytes[byte] + 1);
  ASSERT_EQ(pwrite(fd, &other, 1, off_t(byte)), 1);
  timespec times[] = {{2, 0}, {2, 0}}; // the clock of a file system may be coarser than this test
  ASSERT_EQ(futimens(fd, times), 0);
  run("tiny", {}, ATTNRT_CORRUPT_FILE, "damaged");
  run("tiny", {}, ATTNRT_CORRUPT_FILE, "damaged");
  ASSERT_EQ(pwrite(fd, &bytes[byte], 1, off_t(byte)), 1);
  run("tiny", {});
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  run("tiny", {}, ATTNRT_CORRUPT_FILE, "changed from");
  close(fd);
}
} // namespace
