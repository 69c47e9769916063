#ifndef TEST_GPU_INTERPRETER_SCANNER_H
#define TEST_GPU_INTERPRETER_SCANNER_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace ptx {

bool isDigit(char c);
bool isNameStart(char c);

/// The characters of PTX without its comments, taken word by word.
class Scanner {
public:
  explicit Scanner(const std::string &text);

protected:
  [[noreturn]] void error(const std::string &message);
  void skipSpace();
  /// Whether `c` comes next; then it is behind.
  bool take(char c);
  void expect(char c);
  /// A run of name characters and dots: ".entry", "add.rn.f32", "%r1", "%tid.x".
  std::string word();
  std::string name();
  int64_t integer();
  /// An integer, or the bits of a float: 0fXXXXXXXX, 0dXXXXXXXXXXXXXXXX.
  uint64_t immediate();

  std::string text;
  size_t at = 0;
  unsigned line = 1;
};

} // namespace ptx

#endif // TEST_GPU_INTERPRETER_SCANNER_H
