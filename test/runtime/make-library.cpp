// make-library FIXTURE.so OUT: the fixture as a model library, for tests that
// are not C++.
#include "test/runtime/LibraryFile.h"

#include <cstdio>

int main(int argc, char **argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: make-library FIXTURE.so OUT\n");
    return 1;
  }
  attn::test::writeFile(argv[2], attn::test::makeLibrary(attn::test::readFile(argv[1]), attn::test::fixtureWeights()));
  return 0;
}
