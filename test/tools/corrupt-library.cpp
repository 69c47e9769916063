// corrupt-library MODEL.so TRUNCATIONS FLIPS: damages a real library in memory
// at random places, and fails if the runtime loads one of them, dies of it, or
// refuses it without a message.
#include "attnrt/attnrt.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

/// The status of loading `bytes` from a file without a name.
attnrt_status load(const std::vector<char> &bytes, size_t size) {
  int fd = memfd_create("model", MFD_CLOEXEC);
  if (fd < 0 || write(fd, bytes.data(), size) != static_cast<ssize_t>(size)) {
    std::perror("memfd");
    std::exit(1);
  }
  attnrt_model *model = nullptr;
  attnrt_status status = attnrt_model_load_fd(fd, nullptr, &model);
  attnrt_model_release(model);
  close(fd);
  return status;
}

bool refused(attnrt_status status, const char *what, size_t place) {
  // Incompatible: a flip in the footer's version looks like a newer file.
  if ((status == ATTNRT_CORRUPT_FILE || status == ATTNRT_INCOMPATIBLE) && *attnrt_last_error())
    return true;
  std::printf("%s at %zu: status '%s', message '%s'\n", what, place, attnrt_status_name(status), attnrt_last_error());
  return false;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: corrupt-library LIBRARY TRUNCATIONS FLIPS\n");
    return 1;
  }
  std::ifstream file(argv[1], std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  long truncations = std::atol(argv[2]), flips = std::atol(argv[3]);
  if (bytes.empty() || load(bytes, bytes.size()) != ATTNRT_OK) {
    std::printf("the library itself does not load: %s\n", attnrt_last_error());
    return 1;
  }
  std::mt19937_64 random(1);
  long accepted = 0;
  for (long i = 0; i < truncations; ++i) {
    // The first and the last bytes each once, then anywhere.
    size_t size = i < 128   ? static_cast<size_t>(i)
                  : i < 256 ? bytes.size() - static_cast<size_t>(i - 127)
                            : random() % bytes.size();
    accepted += !refused(load(bytes, size), "truncated", size);
  }
  for (long i = 0; i < flips; ++i) {
    // The footer's bits are few among so many: every second flip hits the last 128 bytes.
    size_t place = i % 2 ? bytes.size() - 1 - random() % 128 : random() % bytes.size();
    char mask = static_cast<char>(1 << random() % 8);
    bytes[place] ^= mask;
    accepted += !refused(load(bytes, bytes.size()), "flipped", place);
    bytes[place] ^= mask;
  }
  if (load(bytes, bytes.size()) != ATTNRT_OK) {
    std::printf("the undamaged library loads no more: %s\n", attnrt_last_error());
    return 1;
  }
  std::printf("%ld truncations and %ld flips of %zu bytes: %ld not refused\n", truncations, flips, bytes.size(),
              accepted);
  return accepted != 0;
}
