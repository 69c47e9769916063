/// The switch of the faults that mutants.py puts into sources. ATTN_MUTANT=N in the environment turns the N-th on. With
/// ATTN_REACHED=FILE, a file of a byte for each mutant, the bytes of those that a program asks for become 1.
#ifndef TEST_MUTANTS_SWITCH_H
#define TEST_MUTANTS_SWITCH_H

#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace attn_mutants {

struct Switch {
  Switch() {
    if (const char *number = getenv("ATTN_MUTANT"))
      on = atoi(number);
    const char *name = getenv("ATTN_REACHED");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    struct stat status;
    if (file >= 0 && fstat(file, &status) == 0) {
      void *bytes = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      reached = bytes == MAP_FAILED ? nullptr : static_cast<char *>(bytes);
    }
    if (file >= 0)
      close(file);
  }
  int on = 0;
  char *reached = nullptr;
};

inline bool isOn(int number) {
  static const Switch state;
  if (state.reached)
    state.reached[number] = 1;
  return state.on == number;
}

} // namespace attn_mutants

#define ATTN_MUTANT(number) ::attn_mutants::isOn(number)

#endif // TEST_MUTANTS_SWITCH_H
