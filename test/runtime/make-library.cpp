// make-library FIXTURE.so OUT [LIBRARY]: the fixture as a model library, for tests that
// are not C++; or another object, with the weights of LIBRARY.
#include "test/runtime/LibraryFile.h"

#include <cstdio>

using namespace attn::test;

static Bytes weightsOf(const Bytes &library) {
  attnrt_footer footer;
  memcpy(&footer, library.data() + library.size() - sizeof(footer), sizeof(footer));
  auto begin = library.begin() + long(footer.weights_offset);
  return Bytes(begin, begin + long(footer.weights_size));
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: make-library FIXTURE.so OUT [LIBRARY]\n");
    return 1;
  }
  writeFile(argv[2], makeLibrary(readFile(argv[1]), argc == 4 ? weightsOf(readFile(argv[3])) : fixtureWeights()));
  return 0;
}
