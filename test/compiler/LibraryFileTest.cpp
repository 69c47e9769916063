#include "compiler/package/LibraryFile.h"

#include "attnrt/abi.h"
#include "llvm/Support/BLAKE3.h"
#include "gtest/gtest.h"
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

using namespace attn;
using llvm::ArrayRef;

namespace {

struct Files : testing::Test {
  Files() {
    std::string pattern = (std::filesystem::temp_directory_path() / "attnc-package-XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~Files() override { std::filesystem::remove_all(folder); }
  std::vector<char> read(const std::filesystem::path &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::filesystem::path folder;
};

TEST_F(Files, FooterAndDigestAreThoseOfTheAbi) {
  std::string path = folder / "model.so", error;
  {
    std::unique_ptr<LibraryFile> file = LibraryFile::create(path, error);
    ASSERT_TRUE(file) << error;
    std::vector<char> elf(5000, 'e'), weights(2 * ATTNRT_DIGEST_LEAF + 17, 'w');
    EXPECT_TRUE(file->append(elf) && file->padTo(ATTNRT_PAGE_SIZE));
    EXPECT_EQ(file->size(), 8192u);
    EXPECT_TRUE(file->append(weights));
    ASSERT_TRUE(file->commitLibrary(5000, 8192, weights.size(), 4711, ATTNRT_ABI_NEEDED, error)) << error;
  }
  std::vector<char> bytes = read(path);
  attnrt_footer footer;
  ASSERT_EQ(bytes.size(), 8192 + 2 * ATTNRT_DIGEST_LEAF + 17 + sizeof(footer));
  std::memcpy(&footer, bytes.data() + bytes.size() - sizeof(footer), sizeof(footer));
  EXPECT_EQ(std::memcmp(footer.magic, ATTNRT_FOOTER_MAGIC, 8), 0);
  EXPECT_EQ(footer.file_size, bytes.size());
  EXPECT_EQ(footer.elf_size, 5000u);
  EXPECT_EQ(footer.weights_offset, 8192u);
  EXPECT_EQ(footer.stack_size, 4711u);
  // The digest again, from the definition.
  std::vector<unsigned char> leaves;
  size_t end = bytes.size() - sizeof(footer);
  for (size_t at = 0; at < end; at += ATTNRT_DIGEST_LEAF) {
    llvm::BLAKE3Result<> leaf = llvm::BLAKE3::hash(
        ArrayRef(reinterpret_cast<uint8_t *>(bytes.data()) + at, std::min<size_t>(ATTNRT_DIGEST_LEAF, end - at)));
    leaves.insert(leaves.end(), leaf.begin(), leaf.end());
  }
  auto *head = reinterpret_cast<unsigned char *>(&footer);
  leaves.insert(leaves.end(), head, head + offsetof(attnrt_footer, digest));
  llvm::BLAKE3Result<> want = llvm::BLAKE3::hash(leaves);
  EXPECT_EQ(std::memcmp(footer.digest, want.data(), want.size()), 0);
}

TEST_F(Files, NothingIsLeftWithoutACommit) {
  std::string path = folder / "model.so", error;
  std::ofstream(path) << "old";
  LibraryFile::create(path, error)->append(ArrayRef<char>("new", 3));
  EXPECT_EQ(read(path), (std::vector<char>{'o', 'l', 'd'}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(Files, RefusesWhatIsNoFile) {
  std::string error;
  EXPECT_FALSE(LibraryFile::create(folder.string(), error));
  EXPECT_NE(error.find("it is a folder"), std::string::npos) << error;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(LibraryFile::create((folder / "pipe").string(), error));
  EXPECT_NE(error.find("no regular file"), std::string::npos) << error;
  EXPECT_FALSE(LibraryFile::create((folder / "missing" / "model.so").string(), error));
  EXPECT_NE(error.find("No such file"), std::string::npos) << error;
}

} // namespace
