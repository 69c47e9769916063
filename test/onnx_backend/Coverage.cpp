#include "test/onnx_backend/Coverage.h"

#include <cstring>
#include <fstream>

// The counters of a program built with ATTNC_COVERAGE, a byte for each branch of our passes; they wrap.
// (clang's SanitizerCoverage page, inline-8bit-counters.)
static char *begin, *end;

extern "C" void __sanitizer_cov_8bit_counters_init(char *start, char *stop) {
  begin = start;
  end = stop;
}

bool attn::writeBranches(const std::string &file) {
  std::ofstream stream(file, std::ios::binary);
  stream.write(begin, end - begin);
  if (begin)
    memset(begin, 0, end - begin);
  return bool(stream.flush());
}
