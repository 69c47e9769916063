#include "VerifiedFiles.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

using namespace attn::rt;

namespace {
using Number = long long;

/// A descriptor of this scope.
struct Descriptor {
  int number;
  explicit Descriptor(int number) : number(number) {}
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
  bool isOpen() const { return number >= 0; }
};

// Nobody else can have put there what this user is to trust.
bool isOurs(int file) {
  struct stat status;
  return fstat(file, &status) == 0 && status.st_uid == geteuid() && !(status.st_mode & (S_IWGRP | S_IWOTH));
}

// The folder of the notes, made if it is not there; -1: there is none.
int openFolder() {
  char path[PATH_MAX];
  // Not from the environment of whoever called a program with more rights than his.
  const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
  int length = cache && *cache == '/' ? snprintf(path, sizeof(path), "%s", cache)
               : home && *home == '/' ? snprintf(path, sizeof(path), "%s/.cache", home)
                                      : -1;
  const char *const parts[] = {"", "/attnrt", "/verified"};
  for (const char *part : parts) {
    if (length < 0 || length + 16 > int(sizeof(path)))
      return -1;
    length += snprintf(path + length, sizeof(path) - size_t(length), "%s", part);
    mkdir(path, 0700);
  }
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder >= 0 && isOurs(folder))
    return folder;
  if (folder >= 0)
    close(folder);
  return -1;
}

struct Note {
  char name[16];
  char text[320];

  Note(const struct stat &file, const uint8_t digest[32]) {
    uint64_t number = (uint64_t(file.st_ino) ^ uint64_t(file.st_dev) << 40) * 0x9e3779b97f4a7c15;
    snprintf(name, sizeof(name), "%03x", unsigned(number >> 54));
    int length = snprintf(text, sizeof(text), "1 %lld %lld %lld %lld.%09lld %lld.%09lld ", Number(file.st_dev),
                          Number(file.st_ino), Number(file.st_size), Number(file.st_mtim.tv_sec),
                          Number(file.st_mtim.tv_nsec), Number(file.st_ctim.tv_sec), Number(file.st_ctim.tv_nsec));
    for (int i = 0; i < 32; ++i)
      length += snprintf(text + length, sizeof(text) - size_t(length), "%02x", digest[i]);
  }
};
} // namespace

bool attn::rt::isNotedAsVerified(const struct stat &file, const uint8_t digest[32]) {
  Descriptor folder(openFolder());
  if (!folder.isOpen())
    return false;
  Note note(file, digest);
  Descriptor found(openat(folder.number, note.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char text[sizeof(note.text) + 1] = {};
  return found.isOpen() && isOurs(found.number) && read(found.number, text, sizeof(text) - 1) > 0 &&
         strcmp(text, note.text) == 0;
}

void attn::rt::noteAsVerified(const struct stat &file, const uint8_t digest[32]) {
  // A file that was changed just now may be changed again within what its file
  // system's clock tells apart.
  constexpr time_t kCoarsest = 2; // seconds
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (now.tv_sec - file.st_ctim.tv_sec < kCoarsest)
    return;
  Descriptor folder(openFolder());
  if (!folder.isOpen())
    return;
  Note note(file, digest);
  char temporary[48];
  snprintf(temporary, sizeof(temporary), ".%s.%lld", note.name, Number(getpid()));
  size_t length = strlen(note.text);
  bool isWritten = false;
  {
    Descriptor made(openat(folder.number, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!made.isOpen())
      return;
    isWritten = write(made.number, note.text, length) == ssize_t(length);
  }
  if (!isWritten || renameat(folder.number, temporary, folder.number, note.name) != 0)
    unlinkat(folder.number, temporary, 0);
}
